//! Records whether the user wants this process to end. The program's signal handler calls [`note`]; long
//! operations check [`cancel`] where it is safe to stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);
static CANCEL: AtomicBool = AtomicBool::new(false);

/// Records a signal and returns how many there have been. Safe to call in a signal handler.
pub fn note() -> u32 {
    CANCEL.store(true, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed) + 1
}

/// Number of signals so far.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Set by the first signal.
pub fn cancel() -> &'static AtomicBool {
    &CANCEL
}
