//! Project quotas, on the file systems of `KILNYARD_QUOTA_FOLDERS` (separated by colons), and on those of
//! `KILNYARD_COUNTING_FOLDERS`, where quotas are accounted but not enforced. The tests need a kernel with quotas:
//! `soak/quota` starts one in a virtual machine. Elsewhere only the test without quotas runs.

use kilnyard_root::quota::Project;
use kilnyard_root::sandbox::{RunError, Task, become_sandbox_if_asked};
use kilnyard_root::{Access, Flushes, IdMap, Making, Mapper, Nesting, RootPlan, Sandbox, User, View, probe};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const BYTES_MAX: u64 = 32 << 20;
const NUMBER: u32 = 0x7800_1234;

fn main() -> ExitCode {
    become_sandbox_if_asked();
    let folders = std::env::var("KILNYARD_QUOTA_FOLDERS").unwrap_or_default();
    let mut trials = vec![Trial::test("a_file_system_without_quotas_has_none", without)];
    for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
        let of = |name: &str, trial: fn(&Path)| {
            let folder = PathBuf::from(folder);
            Trial::test(format!("{name} {}", folder.display()), move || {
                let own = tempfile::Builder::new().prefix("quota-").tempdir_in(folder).unwrap();
                trial(own.path());
                Ok(())
            })
        };
        trials.extend([
            of("a_root_cannot_exceed_its_quota", a_root),
            of("earlier_use_of_a_project_does_not_count", others),
        ]);
    }
    let counting = std::env::var("KILNYARD_COUNTING_FOLDERS").unwrap_or_default();
    for folder in counting.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        let name = format!("accounting_alone_is_not_a_quota {}", folder.display());
        trials.push(Trial::test(name, move || {
            let own = tempfile::tempdir_in(&folder).unwrap();
            assert!(Project::begin(&[own.path()], NUMBER).unwrap().is_none());
            Ok(())
        }));
    }
    // The tests share the project id.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn without() -> Result<(), Failed> {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    assert!(Project::begin(&[folder.path()], NUMBER).unwrap().is_none());
    Ok(())
}

/// A yard with a root whose base has the machine's programs and one large file.
struct Yard<'a> {
    folder: &'a Path,
    ids: IdMap,
    plan: RootPlan,
}

impl Yard<'_> {
    fn new(folder: &Path) -> Yard<'_> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let lines = vec![(0, 0x7800_0000, 65_536)];
        let ids = IdMap { users: lines.clone(), groups: lines, mapper: Mapper::Root };
        for name in ["base", "base/usr", "base/proc", "base/sys", "base/dev", "base/run", "base/tmp"] {
            fs::create_dir(folder.join(name)).unwrap();
            probe::give_to_root(&folder.join(name), &ids).unwrap();
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{link}"), folder.join("base").join(link)).unwrap();
        }
        fs::write(folder.join("base/large"), vec![1; 24 << 20]).unwrap();
        probe::give_to_root(&folder.join("base/large"), &ids).unwrap();
        let plan = RootPlan::new(Path::new("root"), &["base".into()], &Making::default());
        plan.make(folder, &ids).unwrap();
        Yard { folder, ids, plan }
    }

    fn project(&self) -> Project {
        let (upper, work) = (self.folder.join("root/upper"), self.folder.join("root/work"));
        Project::begin(&[&upper, &work], NUMBER).unwrap().expect("a file system with project quotas")
    }

    /// Runs a script as root inside. Returns its output.
    fn run(&self, script: &str) -> String {
        let usr = ("/usr".into(), "/usr".into(), Access::Read);
        let sandbox = Sandbox {
            folder: self.folder.to_owned(),
            ids: self.ids.clone(),
            keeper: None,
            view: View::Root(self.plan.entering(&[usr])),
            user: User::Root,
            task: Task::Program(["/bin/bash", "-c", script].map(str::to_owned).into()),
            directory: "/".into(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            is_interactive: false,
            has_network: false,
            flushes: Flushes::Discard,
            nesting: Nesting::Refused,
        };
        match sandbox.run() {
            Ok(text) | Err(RunError::Command { output: text, .. }) => text,
            Err(error) => panic!("{error}"),
        }
    }
}

fn a_root(folder: &Path) {
    let yard = Yard::new(folder);
    let project = yard.project();
    project.bound(BYTES_MAX).unwrap();
    // Files can be written, renamed, copied up and deleted as usual, and are counted.
    let text = yard.run(
        "set -e; mkdir /d; head -c 4M /dev/zero > /d/a; mv /d/a /d/b; mv /d /e; ln /e/b /e/c; echo x >> /large; rm /e/c; \
         stat -c %s /e/b /large",
    );
    assert_eq!(text, format!("{}\n{}\n", 4 << 20, (24 << 20) + 2));
    let used = project.used_bytes().unwrap();
    assert!((28 << 20..30 << 20).contains(&used), "{used}");
    // The kernel enforces the limit whatever the root tries: a folder without permissions, a deleted file, another
    // project.
    let text = yard.run(
        "exec 2>&1; mkdir -m 0 /closed; exec 3> /closed/f; rm /closed/f; head -c 16M /dev/zero >&3 && echo written; true",
    );
    assert!(text.contains("No space left") || text.contains("quota exceeded"), "{text}");
    let text = yard.run("chattr -p 0 /e /e/b 2>&1; lsattr -pd /e");
    assert!(text.contains(&NUMBER.to_string()) && !text.contains("    0 "), "{text}");
    let text = yard.run("head -c 16M /dev/zero > /e/more && echo written; true");
    assert!(!text.contains("written\n"), "{text}");
    // A higher limit takes effect immediately, and files outside the project are not limited.
    project.bound(4 * BYTES_MAX).unwrap();
    assert_eq!(yard.run("head -c 16M /dev/zero > /e/more && echo written"), "written\n");
    fs::write(folder.join("beside"), vec![1; 2 * BYTES_MAX as usize]).unwrap();
    // The upper folder can become a layer.
    fs::rename(folder.join("root/upper"), folder.join("layer")).unwrap();
    drop(project);
}

fn others(folder: &Path) {
    let first = folder.join("first");
    fs::create_dir(&first).unwrap();
    let yard = Yard::new(&first);
    let project = yard.project();
    project.bound(BYTES_MAX).unwrap();
    assert_eq!(yard.run("head -c 24M /dev/zero > /kept && echo written"), "written\n");
    drop(project);
    // The files stay, and are no longer limited.
    assert_eq!(yard.run("head -c 24M /dev/zero > /shell && echo written"), "written\n");
    let second = folder.join("second");
    fs::create_dir(&second).unwrap();
    let yard = Yard::new(&second);
    let project = yard.project();
    project.bound(BYTES_MAX).unwrap();
    assert!(project.used_bytes().unwrap() < 1 << 20);
    assert_eq!(yard.run("head -c 24M /dev/zero > /f && echo written"), "written\n");
    let text = yard.run("head -c 24M /dev/zero > /g && echo written; true");
    assert!(!text.contains("written\n"), "{text}");
}
