//! Code that the launcher and the preload library share, each compiled from this same source: the layout of the
//! session file, its table, and the rules of ownership.
//!
//! Nothing here uses `std` or libc: the preload library is loaded into every program of a session, and each
//! dependency costs time at every exec. Sharing the source also means one description of the memory and one
//! implementation of its protocol.
//!
//! - [`abi`]: structures of libc and the kernel;
//! - [`layout`]: where the parts of the file are;
//! - [`memory`]: the words of the file as the table sees them, a trait;
//! - [`table`]: lookup without a lock, change and removal under a stripe's lock;
//! - [`attributes`]: extended attributes, as immutable lists that an entry points to;
//! - [`ownership`]: how a call changes an entry and how the file then appears; pure;
//! - [`identity`]: the ids that a process appears to have, and may assume; pure;
//! - [`operations`]: the rules applied to the table;
//! - [`mapping`], [`lock`], [`kernel`]: the file in memory, the lock that outlives its holder, system calls;
//! - [`program`], [`direct`]: what kind of program a file is, from its first bytes and its text;
//! - [`watched`]: the system calls that the launcher answers for programs without the library.

pub mod abi;
pub mod attributes;
pub mod direct;
pub mod identity;
pub mod kernel;
pub mod layout;
pub mod lock;
pub mod mapping;
pub mod memory;
pub mod operations;
pub mod ownership;
pub mod program;
pub mod table;
pub mod watched;
