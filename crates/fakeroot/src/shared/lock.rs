//! A lock in shared memory that is given up by the kernel when its holder dies.
//!
//! The kernel looks, when a thread dies, at the thread's list of robust futexes and at the one futex that it
//! was about to take or to give up (`list_op_pending`, see robust_futex(7)). libc has registered such a list
//! for every thread; we put our lock into that pending field while we hold it. So there is no liveness check,
//! no process id that may have been used again, and it works over process-id namespaces. A thread without a list
//! (a child of vfork, another libc) gets one of our own for the time.
//!
//! What must hold: a thread holds one lock at a time, and takes no robust mutex of libc meanwhile.
//!
//! Known downside: where the threads of two process-id namespaces share a session, one that is killed while it waits
//! for a thread of its own number gives that thread's lock up.

use super::kernel::{self, call, number};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Somebody sleeps on the lock.
const WAITERS: u32 = 0x8000_0000;
/// The holder died; the kernel sets it.
const OWNER_DIED: u32 = 0x4000_0000;
/// The holder's thread number.
const THREAD: u32 = 0x3fff_ffff;

/// The kernel's `struct robust_list_head`.
#[repr(C)]
#[derive(Debug)]
struct Head {
    first: usize,
    futex_offset: isize,
    pending: usize,
}

/// A lock that is held.
#[derive(Debug)]
pub struct Held<'a> {
    word: &'a AtomicU32,
    list: *mut Head,
}

/// Takes a lock, and calls `work` while it is held. Signals wait: a handler may call `chown` or `unlink` itself, and
/// would wait for the lock of the thread that it interrupted.
pub fn with<R>(word: &AtomicU32, work: impl FnOnce() -> R) -> R {
    kernel::without_signals(|| with_list(word, work))
}

fn with_list<R>(word: &AtomicU32, work: impl FnOnce() -> R) -> R {
    let mut own = Head { first: 0, futex_offset: 0, pending: 0 };
    let thread = kernel::thread();
    let registered = registered_list(thread);
    let list = if registered.is_null() {
        // An empty list points to itself.
        own.first = &raw const own as usize;
        register(&raw mut own);
        &raw mut own
    } else {
        registered
    };
    let held = take(word, list, thread);
    let result = work();
    drop(held);
    if registered.is_null() {
        register(core::ptr::null_mut());
    }
    result
}

/// The thread that asked for its list last, and the list, so that it need not ask the kernel for each change. A
/// child has another number than whom it has this from, and asks anew: libc registers its list again after fork, and
/// nobody does after vfork.
static LAST_THREAD: AtomicU32 = AtomicU32::new(0);
static LAST_LIST: AtomicUsize = AtomicUsize::new(0);
/// In place of a thread: somebody writes both.
const WRITING: u32 = u32::MAX;

fn registered_list(thread: u32) -> *mut Head {
    let last = LAST_THREAD.load(Acquire);
    if last == thread {
        let list = LAST_LIST.load(Acquire);
        // Nobody but this thread writes its number there.
        if LAST_THREAD.load(Relaxed) == thread {
            return list as *mut Head;
        }
    }
    let list = ask_for_list();
    let is_ours = !list.is_null()
        && last != WRITING
        && LAST_THREAD.compare_exchange(last, WRITING, Acquire, Relaxed).is_ok();
    if is_ours {
        LAST_LIST.store(list as usize, Release);
        LAST_THREAD.store(thread, Release);
    }
    list
}

fn ask_for_list() -> *mut Head {
    let mut list: *mut Head = core::ptr::null_mut();
    let mut bytes = 0usize;
    // SAFETY: both are written by the kernel and live here.
    unsafe { call(number::GET_ROBUST_LIST, [0, &raw mut list as usize, &raw mut bytes as usize, 0, 0, 0]) };
    list
}

fn register(list: *mut Head) {
    // SAFETY: the kernel looks at the list when this thread dies; it is unregistered before it goes away.
    unsafe { call(number::SET_ROBUST_LIST, [list as usize, size_of::<Head>(), 0, 0, 0, 0]) };
}

fn take(word: &AtomicU32, list: *mut Head, thread: u32) -> Held<'_> {
    // SAFETY: the list is this thread's, and the kernel and this thread alone use it.
    unsafe {
        let entry = (word.as_ptr() as isize - (*list).futex_offset) as usize;
        (&raw mut (*list).pending).write_volatile(entry);
    }
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    let mut mine = thread;
    let mut value = 0;
    while let Err(now) = word.compare_exchange(value, (value & WAITERS) | mine, Acquire, Relaxed) {
        value = now;
        if value & THREAD == 0 || value & OWNER_DIED != 0 {
            // Free, or its holder died: every change leaves the table usable at each of its steps.
            value = now;
            continue;
        }
        if value & WAITERS == 0 && word.compare_exchange(value, value | WAITERS, Relaxed, Relaxed).is_err() {
            value = 0;
            continue;
        }
        kernel::wait(word, value | WAITERS);
        // Others may sleep as well; whoever has slept does not know.
        mine = thread | WAITERS;
        value = 0;
    }
    Held { word, list }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.word.swap(0, Release) & WAITERS != 0 {
            kernel::wake(self.word);
        }
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        // SAFETY: as in `take`.
        unsafe { (&raw mut (*self.list).pending).write_volatile(0) };
    }
}
