//! Real sandboxes for tests. Their root uses the machine's own `/usr`, so nothing has to be fetched.

pub mod user;

use kilnyard_process::Limits;
use kilnyard_root::sandbox::Task;
use kilnyard_root::{
    Access, Flushes, IdMap, Making, Nesting, Operation, ProcessStat, RootPlan, Sandbox, User, View, probe,
};
use std::fs;
use std::path::Path;

fn ids() -> Result<IdMap, String> {
    let (ids, lack) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    lack.map_or(Ok(ids), |lack| Err(lack.to_string()))
}

/// A folder that the users of roots can enter.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Why sandboxes do not work on this machine; `None` if they do.
pub fn missing() -> Option<String> {
    let folder = open_folder();
    let making = Making::default();
    let tried = ids()
        .and_then(|ids| probe::try_root(folder.path(), &ids, &making).map_err(|error| error.to_string()));
    tried.err()
}

pub const LIMITS: Limits = Limits {
    wall_seconds_max: 60.0,
    cpu_seconds_max: None,
    hung_seconds_max: 60.0,
    silent_seconds_max: 60.0,
    memory_bytes_max: None,
    processes_max: None,
    written_bytes_max: None,
    open_files_max: None,
};

pub struct Yard(tempfile::TempDir);

impl Yard {
    pub fn new() -> Yard {
        let (folder, ids) = (open_folder(), ids().unwrap());
        let make = |part: &str| {
            fs::create_dir_all(folder.path().join(part)).unwrap();
            probe::give_to_root(&folder.path().join(part), &ids).unwrap();
        };
        for part in ["", "/usr", "/proc", "/sys", "/dev", "/run", "/tmp"] {
            make(&format!("base{part}"));
        }
        for part in ["root", "root/upper", "root/work", "root/merged"] {
            make(part);
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), folder.path().join("base").join(link)).unwrap();
        }
        Yard(folder)
    }

    pub fn sandbox(&self, script: &str) -> Sandbox {
        let plan = RootPlan::new(Path::new("root"), &["base".into()], &Making::default());
        let mut operations = plan.entering(&[]);
        let usr =
            Operation::Bind { source: "/usr".into(), target: "root/merged/usr".into(), access: Access::Read };
        operations.insert(1, usr);
        Sandbox {
            folder: self.0.path().into(),
            ids: ids().unwrap(),
            keeper: None,
            view: View::Root(operations),
            user: User::Root,
            task: Task::Program(["/bin/sh", "-c", script].map(str::to_owned).into()),
            directory: "/".into(),
            environment: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
            is_interactive: false,
            has_network: false,
            flushes: Flushes::Discard,
            nesting: Nesting::Refused,
        }
    }
}

/// The `sleep` process with this argument.
pub fn process_with(argument: &str) -> Option<ProcessStat> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        (line == format!("sleep\0{argument}\0").as_bytes()).then_some(())?;
        ProcessStat::parse(&fs::read(entry.path().join("stat")).ok()?)
    })
}

/// How many processes of this machine have this argument.
pub fn processes_with(argument: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.split(|b| *b == 0).any(|part| part == argument.as_bytes()))
        .count()
}
