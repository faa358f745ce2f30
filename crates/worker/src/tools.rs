//! Programs of Kilnyard's own in the root of a build: what hands the build's jobserver to its make.
//!
//! A build system that allows several jobs says so by an explicit number (`make -j8`, as debhelper and pkgsrc do), and a
//! make with a number starts a jobserver of its own. So a few lines of shell stand in for make, and for ninja: they take
//! the number away and name the build's jobserver instead. What is started without a number, or with one job, was not
//! written for more and is left alone. The program itself is seen at another place, [`INSIDE`]`/real`.

use kilnyard_root::{Access, Operation};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How the jobserver is named to make. Known to the configuration by these words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobserverStyle {
    /// By two descriptors (`--jobserver-auth=R,W`), which every make understands, and gcc through it.
    #[default]
    Pipe,
    /// By its path (`--jobserver-auth=fifo:PATH`), for make from 4.4 on.
    Fifo,
    /// Not at all.
    Off,
}

/// Where the programs are seen in a root.
const INSIDE: &str = "kilnyard/tools";
/// Where they are in the yard.
const PROGRAMS: &str = "tools/programs";
/// Where the jobservers of builds that go on are in the yard.
const JOBSERVERS: &str = "tools/jobservers";
/// Programs that can be stood in for, and what their scripts begin with.
const CLIENTS: [(&str, &str); 3] = [("make", MAKE), ("gmake", MAKE), ("ninja", NINJA)];

const HEAD: &str = include_str!("tools/head.sh");
const MAKE: &str = include_str!("tools/make.sh");
const NINJA: &str = include_str!("tools/ninja.sh");
const JOBS: &str = include_str!("tools/jobs.sh");
const BY_PIPE: &str = include_str!("tools/pipe.sh");
const BY_FIFO: &str = include_str!("tools/fifo.sh");
const BY_ENVIRONMENT: &str = include_str!("tools/environment.sh");

/// Where the jobserver of a build is in the yard.
pub fn jobserver_path(yard: &Path, build: u64) -> PathBuf {
    yard.join(JOBSERVERS).join(build.to_string())
}

/// Writes the programs of a yard anew, and removes jobservers of builds that did not end.
pub(crate) fn prepare(yard: &Path, style: JobserverStyle) -> io::Result<()> {
    for folder in [PROGRAMS, JOBSERVERS] {
        match fs_err::remove_dir_all(yard.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let real = yard.join(PROGRAMS).join("real");
    for folder in [&real, &yard.join(JOBSERVERS)] {
        fs_err::create_dir_all(folder)?;
    }
    // Roots have users of their own, who go through all of these.
    for folder in [&yard.join("tools"), &yard.join(PROGRAMS), &real, &yard.join(JOBSERVERS)] {
        fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    let write = |path: &Path, text: &str| {
        fs_err::write(path, text)?;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))
    };
    for (name, beginning) in CLIENTS {
        let end = match style {
            _ if beginning == NINJA => BY_ENVIRONMENT,
            JobserverStyle::Fifo => BY_FIFO,
            JobserverStyle::Pipe | JobserverStyle::Off => BY_PIPE,
        };
        let path = yard.join(PROGRAMS).join(name);
        write(&path, &[HEAD, beginning, JOBS, end].concat())?;
        // The program itself is mounted over this.
        write(&real.join(name), "")?;
    }
    write(&yard.join(PROGRAMS).join("jobserver"), "")
}

/// What makes the jobserver of a build and the programs that know it visible in its root at `merged`, where it has them.
/// `clients` are paths inside. The jobserver's own path is relative to the yard, as all of these are.
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
        // A pipe takes what is written whatever the mount allows; to be read it must not be one for devices.
        bind(jobserver, inside.join("jobserver"), Access::Write),
    ];
    for client in clients {
        let Some(name) = Path::new(client).file_name().and_then(|name| name.to_str()) else { continue };
        if CLIENTS.iter().any(|(known, _)| *known == name) {
            operations.push(Operation::StandIn {
                root: merged.to_owned(),
                program: PathBuf::from(client.trim_start_matches('/')),
                with: Path::new(PROGRAMS).join(name),
                real: inside.join("real").join(name),
            });
        }
    }
    operations
}

/// What a client that reads its environment is told; nobody else reads this variable.
pub(crate) fn environment() -> (String, String) {
    ("CARGO_MAKEFLAGS".to_owned(), format!("-j --jobserver-auth=fifo:/{INSIDE}/jobserver"))
}
