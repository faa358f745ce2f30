//! SIGINT, SIGTERM and SIGHUP: handlers only count them; the program reacts where that is safe.

pub use kilnyard_yard::interrupt::{cancel, count};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of signals that end the program at once.
const IMPATIENT: u32 = 3;

static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Whether the first signal was SIGTERM, with which a machine ends its services: if another machine can continue a run, it
/// does. Ctrl-C interrupts the run.
pub fn is_handover() -> bool {
    TERMINATED.load(Ordering::Relaxed)
}

extern "C" fn received(signal: libc::c_int) {
    if signal == libc::SIGTERM && count() == 0 {
        TERMINATED.store(true, Ordering::Relaxed);
    }
    if kilnyard_yard::interrupt::note() >= IMPATIENT {
        crate::run::view::restore_echo();
        // SAFETY: _exit is async-signal-safe. Child processes die with this one.
        unsafe { libc::_exit(130) }
    }
}

/// Counts SIGINT, SIGTERM and SIGHUP from now on.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero action is valid; the handler only touches atomics and may interrupt anything.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = received as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
