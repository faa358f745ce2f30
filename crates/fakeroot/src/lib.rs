//! Ownership without privilege: programs see files that belong to root, and to whom they gave them, without being
//! root.
//!
//! A [`Session`] is a file that every process of it maps: a table of the inodes that were given an owner, a mode or
//! an attribute that the disk does not have, behind the preload library (`preload/`, carried in [`PRELOAD`]), which asks
//! it around libc's calls, and with which the dynamic linker maps it. There is no daemon and no message: an inode that
//! nobody changed is told by one bit, without a lock. [`launch`] makes a session, runs one command in it, saves the state
//! if asked, and removes the session.
//! Programs that make system calls of their own (without a dynamic linker, of Go, or with such calls in their text:
//! [`shared::direct`]) are started by a small program, the gate (`gate/`, carried in [`GATE`]), and the launcher answers
//! their system calls from the same table.
//!
//! A build in a root has a session that was made by [`Session::make_for_root`], whose folder is bound into the root. It
//! lasts as long as the [`Session`], over all commands of the build.
//!
//! What must hold: a process that is killed at any moment makes nobody wait, and no value is ever half of one
//! and half of another; a session is gone when its launcher is, at the latest when the next one begins.
//!
//! What it does not do: see system calls that a library makes without libc, or code that was written at run time;
//! serve programs of another word length, which are refused; put itself back into an environment that a program has
//! emptied for another one (`env -i`).
//!
//! Known downsides: a launcher that is killed takes the session from processes that it leaves behind: programs that
//! they start then see real owners, and say so. Who has looked only opens the file again to change something; where it
//! cannot (it is gone, or hidden by a mount, or there is no descriptor left), the change fails, and is told. What is
//! answered by the launcher is answered some 30 times slower, and so is all that such a program starts; it gains no
//! privileges by set-user-id bits, which no preload library leaves it either.

pub mod launch;
mod session;
pub mod shared;
pub mod state;
mod supervisor;

pub use session::{Session, SessionError};

/// The preload library, as it is written beside a session.
pub const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libfakeroot-kilnyard.so"));

/// The gate, as it is written beside a session.
pub const GATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate"));
