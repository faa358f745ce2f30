//! Whether the person who started this process wants it to end. The program's handler of signals notes it here; what takes
//! long checks it where it is safe to end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);
static CANCEL: AtomicBool = AtomicBool::new(false);

/// Notes a signal, and returns how many there have been. It may be called in a handler of signals.
pub fn note() -> u32 {
    CANCEL.store(true, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed) + 1
}

/// How many have come.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Set when the first one comes.
pub fn cancel() -> &'static AtomicBool {
    &CANCEL
}
