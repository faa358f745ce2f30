//! Programs without the preload library: the kernel hands their system calls over to the launcher, which answers
//! them from the same table and by the same rules.
//!
//! The gate (`gate/`) starts such a program. It connects to a socket next to the session file; [`gate`] checks
//! whether this process may read the other one's memory and takes the descriptor of the filter, and a thread
//! answers ([`answer`]) until the last process behind that filter has ended. Everything that such a program starts
//! is answered in the same way; a preload library that finds itself there stays inactive.
//!
//! Invariants: a call that was started is not restarted; memory is written only after checking that it belongs to the
//! waiting process; no descriptor of the other side is kept.
//!
//! Known downsides: a call costs about 10 microseconds instead of a fraction of one. If the launcher is killed, the
//! kernel answers with ENOSYS, and the programs fail; none of them hangs. Links in /proc to files of other
//! processes are not followed.

mod answer;
mod attributes;
mod call;
mod gate;
mod identity;
mod listener;
mod place;
mod tracee;

use crate::shared::mapping::Mapping;
use crate::shared::table::Table;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Maximum number of programs that are answered at once: each costs a thread and a descriptor.
const LISTENERS_MAX: usize = 512;
/// Descriptors that the launcher needs for itself.
const DESCRIPTORS_OWN: u64 = 32;
/// Descriptors per answered program: its connection, its filter, and two to resolve its paths.
const DESCRIPTORS_EACH: u64 = 4;
/// With a lower limit of open files (`ulimit -n`), no program is answered: a call that fails because the launcher
/// has no descriptors left would look like a failure of the program's own.
const DESCRIPTORS_MIN: u64 = 64;
/// Stack size of a thread: paths and small buffers.
const STACK_BYTES: usize = 256 << 10;

/// State that all threads share.
struct Shared {
    table: Arc<Table<Mapping>>,
    report: fn(&str),
    /// Messages that were already reported. A leaf lock: nothing else is done while it is held.
    reported: Mutex<BTreeSet<String>>,
    listeners: AtomicUsize,
    listeners_max: usize,
    is_over: AtomicBool,
}

impl Shared {
    /// Reports a message about a program, once.
    fn report(&self, program: &str, what: &str) {
        let is_new =
            self.reported.lock().is_ok_and(|mut reported| reported.insert(format!("{program} {what}")));
        if is_new {
            (self.report)(&format!("{program} {what}"));
        }
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Supervisor").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Answers programs until it is dropped; programs that were admitted before are answered as long as this process
/// lives.
pub struct Supervisor {
    socket: UnixListener,
    shared: Arc<Shared>,
    door: Option<JoinHandle<()>>,
}

impl Supervisor {
    /// Listens at this path.
    pub fn start(path: &Path, table: Arc<Table<Mapping>>, report: fn(&str)) -> io::Result<Supervisor> {
        let listeners_max = listeners_max(open_files_max()?)?;
        place::can_follow().map_err(io::Error::from_raw_os_error)?;
        let socket = UnixListener::bind(path)?;
        let shared = Arc::new(Shared {
            table,
            report,
            reported: Mutex::default(),
            listeners: AtomicUsize::new(0),
            listeners_max,
            is_over: AtomicBool::new(false),
        });
        let (door, inside) = (socket.try_clone()?, shared.clone());
        let door = spawn(move || {
            for stream in door.incoming() {
                if inside.is_over.load(Ordering::Acquire) {
                    break;
                }
                if let Ok(stream) = stream {
                    let shared = inside.clone();
                    // Without a thread, the gate gets no answer and starts the program unanswered.
                    let _ = spawn(move || gate::admit(&stream, &shared));
                }
            }
        })?;
        Ok(Supervisor { socket, shared, door: Some(door) })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // SAFETY: a descriptor of ours; the thread that waits at it is woken.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(door) = self.door.take() {
            let _ = door.join();
        }
    }
}

/// How many files this process may have open at once.
fn open_files_max() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit.rlim_cur),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many programs can be answered at once under a limit of open files.
fn listeners_max(open_files_max: u64) -> io::Result<usize> {
    if open_files_max < DESCRIPTORS_MIN {
        return Err(io::Error::other(format!(
            "the limit of open files (ulimit -n) is {open_files_max}, but answering their calls needs {DESCRIPTORS_MIN}"
        )));
    }
    let room = (open_files_max - DESCRIPTORS_OWN) / DESCRIPTORS_EACH;
    Ok(LISTENERS_MAX.min(usize::try_from(room).unwrap_or(LISTENERS_MAX)))
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work)
}
