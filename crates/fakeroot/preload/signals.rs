//! Setting signal handlers: whoever has any may call `chown` or `unlink` in one, and must not while the thread that
//! was interrupted holds a lock of the table. Programs without any, such as `chown` and `rm` themselves, are spared two
//! system calls for each change.

use crate::next::next;
use crate::shared::kernel::expect_handlers;
use core::ffi::{c_int, c_void};

/// "It is ignored", which is no function; nor is what stands before it, "what is done without one".
const SIG_IGN: usize = 1;

fn expect(handler: *mut c_void) {
    if handler.addr() > SIG_IGN {
        expect_handlers();
    }
}

macro_rules! with_actions {
    ($($name:ident)*) => {$(
        /// The handler is the action's first word.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(signal: c_int, action: *const *mut c_void, old: *mut c_void) -> c_int {
            if !action.is_null() {
                // SAFETY: the caller's action.
                expect(unsafe { *action });
            }
            next!($name(signal => c_int, action => *const *mut c_void, old => *mut c_void))
        }
    )*};
}
with_actions! { sigaction __sigaction }

macro_rules! with_handlers {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(signal: c_int, handler: *mut c_void) -> *mut c_void {
            const FAILED: usize = usize::MAX;
            expect(handler);
            next!($name(signal => c_int, handler => *mut c_void) -> *mut c_void,
                or core::ptr::without_provenance_mut(FAILED))
        }
    )*};
}
with_handlers! { signal bsd_signal ssignal sysv_signal __sysv_signal sigset }
