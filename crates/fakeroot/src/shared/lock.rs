//! A lock in shared memory that the kernel releases when its holder dies.
//!
//! When a thread dies, the kernel checks the thread's list of robust futexes, and the one futex that the thread was
//! about to take or release (`list_op_pending`, see the kernel's document robust-futex-ABI). libc has registered such a
//! list for every thread; we put our lock into that pending field while we hold it. This needs no check whether the
//! holder is alive, cannot confuse a process id with a reused one, and works across process-id namespaces. A thread
//! without a list (a child of vfork, another libc) temporarily registers one of ours.
//!
//! Invariants: a thread holds one lock at a time, and takes no robust mutex of libc while it holds one.
//!
//! Known downside: if threads of two process-id namespaces share a session, a thread that is killed while it waits
//! for a thread with the same number releases that thread's lock.

use super::kernel::{self, call, number};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// A thread sleeps on the lock.
const WAITERS: u32 = 0x8000_0000;
/// The holder died; set by the kernel.
const OWNER_DIED: u32 = 0x4000_0000;
/// The holder's thread id.
const THREAD: u32 = 0x3fff_ffff;

/// The kernel's `struct robust_list_head`.
#[repr(C)]
#[derive(Debug)]
struct Head {
    first: usize,
    futex_offset: isize,
    pending: usize,
}

/// A lock that is held, released on drop.
#[derive(Debug)]
pub struct Held<'a> {
    word: &'a AtomicU32,
    list: *mut Head,
}

/// Takes a lock, and calls `work` while holding it. Signals are blocked: a handler may itself call `chown` or
/// `unlink`, and would wait for the lock of the thread that it interrupted.
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

/// The last thread that asked for its list, and the list, so that it need not ask the kernel at each change. A
/// child has another thread id than the process it was copied from, and asks again: libc registers its list again
/// after fork, but not after vfork.
static LAST_THREAD: AtomicU32 = AtomicU32::new(0);
static LAST_LIST: AtomicUsize = AtomicUsize::new(0);
/// In place of a thread id: a thread is writing both.
const WRITING: u32 = u32::MAX;

fn registered_list(thread: u32) -> *mut Head {
    let last = LAST_THREAD.load(Acquire);
    if last == thread {
        let list = LAST_LIST.load(Acquire);
        // Only this thread writes its own id there.
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
    // SAFETY: the kernel writes both, and both outlive the call.
    unsafe { call(number::GET_ROBUST_LIST, [0, &raw mut list as usize, &raw mut bytes as usize, 0, 0, 0]) };
    list
}

fn register(list: *mut Head) {
    // SAFETY: the kernel reads the list when this thread dies; the list is unregistered before it is dropped.
    unsafe { call(number::SET_ROBUST_LIST, [list as usize, size_of::<Head>(), 0, 0, 0, 0]) };
}

fn take(word: &AtomicU32, list: *mut Head, thread: u32) -> Held<'_> {
    // SAFETY: the list belongs to this thread; only the kernel and this thread use it.
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
            // Free, or its holder died: every step of a change leaves the table usable.
            value = now;
            continue;
        }
        if value & WAITERS == 0 && word.compare_exchange(value, value | WAITERS, Relaxed, Relaxed).is_err() {
            value = 0;
            continue;
        }
        kernel::wait(word, value | WAITERS);
        // Other threads may sleep as well; a woken thread cannot know.
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
