//! The process that serves one device.

use crate::{Disk, Options, front};
use rustix::process::{Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// The hidden argument that starts this program as a server.
const ARGUMENT: &str = "kilnyard-block-server";
/// `PR_SET_IO_FLUSHER` (linux/prctl.h), from Linux 5.6 on.
const SET_IO_FLUSHER: i32 = 57;

/// How a device is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// As a file in a FUSE mount, for a loop device.
    Fuse {
        /// The mount point.
        folder: PathBuf,
        /// The name of the file in it.
        name: String,
    },
    /// As an NBD export at a Unix socket.
    Nbd {
        /// The new socket.
        socket: PathBuf,
    },
    /// As a block device of the kernel, by ublk_drv.
    Ublk {
        /// A new symbolic link to the device, which the server removes when it ends by a signal.
        link: PathBuf,
    },
}

/// The description of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The image, which is never changed.
    pub image: PathBuf,
    /// The most bytes of blocks in memory.
    pub memory_bytes_max: u64,
    /// The folder of the unnamed file for other blocks.
    pub spill: PathBuf,
    /// Whether flushes are performed.
    pub keeps_flushes: bool,
    /// Whether nothing can be written.
    pub is_read_only: bool,
    /// How the device is shown.
    pub front: Front,
    /// The log of requests, if one is kept.
    pub requests: Option<PathBuf>,
    /// The file for the counters, which is made at once and written at the end, wherever it was moved to.
    pub counters: Option<PathBuf>,
    /// The file for the id of the process, which is written when the device can be used.
    pub ready: PathBuf,
}

impl Service {
    /// The command that starts this program as the server. It ends when the device is no longer used (FUSE), by
    /// SIGTERM, or with the process that started it.
    ///
    /// # Errors
    /// The program cannot be found.
    pub fn command(&self) -> io::Result<Command> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT).arg(serde_json::to_string(self)?).env_clear();
        let parent = getpid();
        // A device of the kernel is removed by its server. The others have nothing to do at their end.
        let signal = if matches!(self.front, Front::Ublk { .. }) { Signal::TERM } else { Signal::KILL };
        let prepare = move || {
            set_parent_process_death_signal(Some(signal))?;
            match getppid() == Some(parent) {
                true => Ok(()),
                // It has ended already.
                false => Err(io::ErrorKind::BrokenPipe.into()),
            }
        };
        // SAFETY: the closure makes only system calls.
        unsafe { command.pre_exec(prepare) };
        Ok(command)
    }
}

/// Serves a device and exits, if this process was started to do so.
#[expect(clippy::disallowed_methods, reason = "the process is no longer the program")]
pub fn become_server_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return;
    }
    let description = arguments.next().and_then(|text| text.into_string().ok()).unwrap_or_default();
    let served =
        serde_json::from_str(&description).map_err(io::Error::from).and_then(|service| serve(&service));
    let code = match served {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    };
    std::process::exit(code);
}

fn serve(service: &Service) -> io::Result<()> {
    let end = block_end()?;
    stand_behind_memory();
    let base = File::open(&service.image)?;
    let counters = service.counters.as_ref().map(File::create).transpose()?;
    let log = service.requests.as_ref().map(File::create).transpose()?;
    let disk = Arc::new(Disk::new(Options {
        size_bytes: base.metadata()?.len(),
        base: Some(base),
        memory_bytes_max: service.memory_bytes_max,
        spill: service.spill.clone(),
        keeps_flushes: service.keeps_flushes,
        is_read_only: service.is_read_only,
        requests: log,
    })?);
    let mut front = front::start(&service.front, &disk)?;
    let remove = front.removal();
    std::fs::write(&service.ready, format!("{}\n", std::process::id()))?;
    let (tell, served) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = tell.send(front.run());
        let _ = kill_process(getpid(), Signal::TERM);
    });
    wait_for(&end)?;
    let removed = remove();
    let ended = served.try_recv().unwrap_or(Ok(()));
    let logged = disk.finish_log();
    if let Some(mut file) = counters {
        file.write_all(&serde_json::to_vec(&disk.counters())?)?;
    }
    ended.and(removed).and(logged)
}

/// Blocks the signals that end the process, in this thread and those that it starts.
fn block_end() -> io::Result<libc::sigset_t> {
    // SAFETY: a set of signals is initialised by `sigemptyset`, and lives until the end of the calls.
    unsafe {
        let mut end: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut end);
        libc::sigaddset(&mut end, libc::SIGTERM);
        libc::sigaddset(&mut end, libc::SIGINT);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &end, std::ptr::null_mut()) {
            0 => Ok(end),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn wait_for(signals: &libc::sigset_t) -> io::Result<()> {
    let mut signal = 0;
    // SAFETY: both live until the end of the call.
    match unsafe { libc::sigwait(signals, &mut signal) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The kernel frees memory by writing to this device: the process must not wait for memory meanwhile. Without the right
/// to do so, as for the virtual machine of an ordinary user, nothing in the kernel depends on it either.
fn stand_behind_memory() {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0);
        // Pages are locked when they are first used: the map of a device is larger than the memory.
        // A limit that is smaller would refuse the map itself.
        if libc::geteuid() == 0 {
            libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
        }
    }
}
