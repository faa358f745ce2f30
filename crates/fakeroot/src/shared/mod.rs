//! What the launcher and the preload library have in common, each compiled with this same source: the layout
//! of the session file, the table in it, and the rules of ownership.
//!
//! Nothing here uses `std` or libc: the preload library is loaded into every program of a session, and what
//! it needs from others is paid at every exec. So there is one description of the memory and one
//! implementation of its protocol.
//!
//! - [`abi`]: structures of libc and the kernel;
//! - [`layout`]: where in the file what stands;
//! - [`memory`]: the words of the file as the table sees them, a trait;
//! - [`table`]: find without a lock, change and remove under a stripe's lock;
//! - [`attributes`]: extended attributes, as immutable lists that an entry points to;
//! - [`ownership`]: what a call does to an entry and what a file then looks like; pure;
//! - [`identity`]: who a process believes to be, and may become; pure;
//! - [`operations`]: the rules applied to the table;
//! - [`mapping`], [`lock`], [`kernel`]: the file in memory, the lock that outlives its holder, system calls;
//! - [`program`], [`direct`]: what kind of program a file is, from its first bytes and its text;
//! - [`watched`]: the system calls that are answered for programs without the library.

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
