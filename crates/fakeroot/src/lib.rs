//! File ownership without privilege: to the programs of a session, files belong to root or to the owner that
//! `chown` gave them, although no process is root.
//!
//! A [`Session`] is a file that each of its processes maps. It starts with the preload library (`preload/`,
//! embedded as [`PRELOAD`]), followed by a table of the inodes that were given an owner, a mode or an attribute
//! that the disk does not have. The dynamic linker maps the table with the library, which consults it around libc's
//! calls. There is no daemon and there are no messages: one bit shows that an inode is unchanged, without a lock.
//! [`launch`] creates a session, runs one command in it, saves the state on request, and removes the session.
//!
//! Programs that make their own system calls (statically linked, written in Go, or with such calls in their text:
//! [`shared::direct`]) are started by a small program, the gate (`gate/`, embedded as [`GATE`]), and the launcher
//! answers their system calls from the same table.
//!
//! A build in a root gets its session from [`Session::make_for_root`], whose folder is bound into the root. It
//! lasts as long as the [`Session`], across all commands of the build.
//!
//! Invariants: a process that is killed at any moment makes no other process wait, and no value is ever half old and
//! half new; a session disappears with its launcher, at the latest when the next session starts.
//!
//! Out of scope: system calls that a library makes without libc, or in code generated at run time; programs of
//! another word size, which are rejected; environments that a program has cleared for another one (`env -i`).
//!
//! Known downsides: killing a launcher ends the session of the processes that it leaves behind: programs that they
//! start then see the real owners, and say so. A process that has only read opens the file again for its first
//! change; where it cannot (the file is gone, a mount hides it, or no descriptor is left), the change fails with a
//! message. A call that the launcher answers takes about 30 times as long, and so does everything that such a program
//! starts. As with any preload library, the program gains no privileges through set-user-id bits.

pub mod launch;
mod session;
pub mod shared;
pub mod state;
mod supervisor;

pub use session::{Session, SessionError};

/// The preload library, as it is written into a session's file.
pub const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libfakeroot-kilnyard.so"));

/// The gate, as it is written into a session's folder.
pub const GATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate"));
