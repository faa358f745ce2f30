//! Kilnyard's wrappers in the root of a build, which pass the build's jobserver to make and ninja.
//!
//! A build system that allows several jobs passes an explicit number (`make -j8`, as debhelper and pkgsrc do), and a
//! make with a number starts its own jobserver. Shell wrappers therefore replace make and ninja: they remove the number
//! and pass the build's jobserver instead. A make without a number, or with one job, may not support more, and runs
//! unchanged. The program itself is mounted below [`INSIDE`]`/real`; links to the program lead to its wrapper.

use kilnyard_root::{Access, Operation};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the jobserver is passed to make. The configuration uses the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobserverStyle {
    /// As two descriptors (`--jobserver-auth=R,W`), which make 4.2 and later and gcc understand.
    #[default]
    Pipe,
    /// As a path (`--jobserver-auth=fifo:PATH`), for make 4.4 and later.
    Fifo,
    /// Builds get no jobserver.
    Off,
}

/// Mount point of the wrappers in a root.
const INSIDE: &str = "kilnyard/tools";
/// The wrappers, relative to the yard.
const PROGRAMS: &str = "tools/programs";
/// The jobservers of running builds, relative to the yard.
const JOBSERVERS: &str = "tools/jobservers";
/// Names of programs that have a wrapper, and the first part of its script.
const CLIENTS: [(&str, &str); 3] = [("make", MAKE), ("gmake", MAKE), ("ninja", NINJA)];

const HEAD: &str = include_str!("tools/head.sh");
const MAKE: &str = include_str!("tools/make.sh");
const NINJA: &str = include_str!("tools/ninja.sh");
const JOBS: &str = include_str!("tools/jobs.sh");
const BY_PIPE: &str = include_str!("tools/pipe.sh");
const BY_FIFO: &str = include_str!("tools/fifo.sh");
const BY_ENVIRONMENT: &str = include_str!("tools/environment.sh");

/// The path of a build's jobserver, whether it exists or not.
pub fn jobserver_path(yard: &Path, build: u64) -> PathBuf {
    yard.join(JOBSERVERS).join(build.to_string())
}

/// Removes the wrappers of a yard, which builds write again, and the jobservers of interrupted builds.
pub(crate) fn prepare(yard: &Path) -> io::Result<()> {
    for folder in [PROGRAMS, JOBSERVERS] {
        match fs_err::remove_dir_all(yard.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The users of roots, which are other ids, must be able to enter all of these.
    for folder in ["tools", PROGRAMS, JOBSERVERS] {
        make_folder(&yard.join(folder))?;
    }
    write_whole(&yard.join(PROGRAMS).join("jobserver"), "", 0o644)
}

/// Writes the wrappers of these programs, given by their paths inside the root.
pub(crate) fn provide(yard: &Path, style: JobserverStyle, clients: &[String]) -> io::Result<()> {
    for (client, beginning) in clients.iter().filter_map(|client| Client::of(client)) {
        let end = match style {
            _ if beginning == NINJA => BY_ENVIRONMENT,
            JobserverStyle::Fifo => BY_FIFO,
            JobserverStyle::Pipe | JobserverStyle::Off => BY_PIPE,
        };
        let programs = yard.join(PROGRAMS);
        let (script, real) = (programs.join(&client.script), programs.join(&client.real));
        if script.exists() && real.exists() {
            continue;
        }
        for path in [&script, &real] {
            for folder in path.ancestors().skip(1).take_while(|folder| **folder != programs) {
                make_folder(folder)?;
            }
        }
        // The program itself is mounted over this file. Without that mount, running it must fail, not silently succeed.
        write_whole(&real, "", 0o644)?;
        let own = format!("real=/{INSIDE}/{}\n", client.real.display());
        write_whole(&script, &[HEAD, &own, beginning, JOBS, end].concat(), 0o755)?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs_err::create_dir_all(path)?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// Writes a file that another slot may write and use at the same time.
fn write_whole(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let beside = path.with_extension(format!("new-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    fs_err::write(&beside, text)?;
    fs_err::set_permissions(&beside, std::fs::Permissions::from_mode(mode))?;
    fs_err::rename(beside, path)
}

/// The wrapper of a program and the program itself, relative to the folder of wrappers.
struct Client {
    script: PathBuf,
    real: PathBuf,
}

impl Client {
    /// For the program at this path inside the root, with the first part of its script. `None` if it has no wrapper.
    fn of(path: &str) -> Option<(Client, &'static str)> {
        let (folder, name) = path.rsplit_once('/')?;
        let (_, beginning) = CLIENTS.iter().find(|(known, _)| *known == name)?;
        // The path becomes a word of a shell script.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
        if !folder.starts_with('/') || !folder.chars().all(is_plain) {
            return None;
        }
        let folder = folder.trim_start_matches('/').replace('/', "-");
        let below = |kind: &str| Path::new(kind).join(&folder).join(name);
        Some((Client { script: below("script"), real: below("real") }, beginning))
    }
}

/// Mounts the jobserver of a build, and the wrappers of its programs, in its root at `merged`. `clients` are paths
/// inside the root; programs that do not exist there are skipped. `merged` and `jobserver` are relative to the yard.
pub(crate) fn operations(merged: &Path, jobserver: &Path, clients: &[String]) -> Vec<Operation> {
    let inside = merged.join(INSIDE);
    let bind = |source: &Path, target: PathBuf, access| Operation::Bind {
        source: source.to_owned(),
        target,
        access,
    };
    let mut operations = vec![
        Operation::Folder { path: inside.clone() },
        bind(PROGRAMS.as_ref(), inside.clone(), Access::Read),
        // A named pipe can be written on a read-only mount too, but a mount that forbids devices would keep it from
        // being read.
        bind(jobserver, inside.join("jobserver"), Access::Write),
    ];
    for path in clients {
        let Some((client, _)) = Client::of(path) else { continue };
        operations.push(Operation::StandIn {
            root: merged.to_owned(),
            program: PathBuf::from(path.trim_start_matches('/')),
            with: Path::new(PROGRAMS).join(client.script),
            real: inside.join(client.real),
        });
    }
    operations
}

/// The variable that names the jobserver for clients that read their environment; no other program reads it.
pub(crate) fn environment() -> (String, String) {
    ("CARGO_MAKEFLAGS".to_owned(), format!("-j --jobserver-auth=fifo:/{INSIDE}/jobserver"))
}
