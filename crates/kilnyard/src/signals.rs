//! Ctrl-C and its kin: counted, and looked at where it is safe to act.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);
static CANCEL: AtomicBool = AtomicBool::new(false);

/// How many signals it takes to end the program at once.
const IMPATIENT: u32 = 3;

extern "C" fn received(_signal: libc::c_int) {
    CANCEL.store(true, Ordering::Relaxed);
    if COUNT.fetch_add(1, Ordering::Relaxed) + 1 >= IMPATIENT {
        crate::run::view::restore_echo();
        // SAFETY: _exit may be called in a signal handler. What is below dies with this process.
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

/// How many have come.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Set when the first one comes.
pub fn cancel() -> &'static AtomicBool {
    &CANCEL
}
