//! Setting signal handlers. A handler may call `chown` or `unlink`, and must not do so while the thread that it
//! interrupted holds a lock of the table. Programs without handlers, such as `chown` and `rm` themselves, save two
//! system calls for each change.

use crate::next::next;
use crate::shared::kernel::expect_handlers;
use core::ffi::{c_int, c_void};

/// The value of SIG_IGN, which is not a function; neither is the smaller SIG_DFL.
const SIG_IGN: usize = 1;

fn expect(handler: *mut c_void) {
    if handler.addr() > SIG_IGN {
        expect_handlers();
    }
}

macro_rules! with_actions {
    ($($name:ident)*) => {$(
        /// The handler is the first word of the action.
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
