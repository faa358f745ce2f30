//! Programs of Kilnyard's own in the root of a build: what hands the build's jobserver to its make.
//!
//! A build system that allows several jobs says so by an explicit number (`make -j8`, as debhelper and pkgsrc do), and a
//! make with a number starts a jobserver of its own. So a few lines of shell stand in for make, and for ninja: they take
//! the number away and name the build's jobserver instead. A make without a number, or with one job, was not written for
//! more and is left alone. The program itself is seen at another place, below [`INSIDE`]`/real`; a link to it leads to what
//! stands in for it.

use kilnyard_root::{Access, Operation};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the jobserver is named to make. Known to the configuration by these words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobserverStyle {
    /// By two descriptors (`--jobserver-auth=R,W`), which make understands from 4.2 on, and gcc through it.
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
/// Names of programs that can be stood in for, and what their scripts begin with.
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

/// Removes the programs of a yard, which are written anew, and jobservers of builds that did not end.
pub(crate) fn prepare(yard: &Path) -> io::Result<()> {
    for folder in [PROGRAMS, JOBSERVERS] {
        match fs_err::remove_dir_all(yard.join(folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Roots have users of their own, who go through all of these.
    for folder in ["tools", PROGRAMS, JOBSERVERS] {
        make_folder(&yard.join(folder))?;
    }
    write_whole(&yard.join(PROGRAMS).join("jobserver"), "", 0o644)
}

/// Writes what stands in for these programs, which are named by their paths inside.
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
        // The program itself is mounted over this. Where that is not so, it cannot be run, and does not do nothing.
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

/// Where a program's script and the program itself are, below the folder of programs.
struct Client {
    script: PathBuf,
    real: PathBuf,
}

impl Client {
    /// Of a program at this path inside, with the beginning of its script; none of one that nothing stands in for.
    fn of(path: &str) -> Option<(Client, &'static str)> {
        let (folder, name) = path.rsplit_once('/')?;
        let (_, beginning) = CLIENTS.iter().find(|(known, _)| *known == name)?;
        // It becomes a word of the shell.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
        if !folder.starts_with('/') || !folder.chars().all(is_plain) {
            return None;
        }
        let folder = folder.trim_start_matches('/').replace('/', "-");
        let below = |kind: &str| Path::new(kind).join(&folder).join(name);
        Some((Client { script: below("script"), real: below("real") }, beginning))
    }
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

/// What a client that reads its environment is told; nobody else reads this variable.
pub(crate) fn environment() -> (String, String) {
    ("CARGO_MAKEFLAGS".to_owned(), format!("-j --jobserver-auth=fifo:/{INSIDE}/jobserver"))
}
