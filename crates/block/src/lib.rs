//! Copy-on-write block devices that write to memory first, with a file behind it.
//!
//! A [`Disk`] shows a base image that is never changed. What is written lies in memory up to a limit; beyond it, blocks
//! that were not used lately move to an unnamed file. Blocks that are discarded give their place back in both.
//!
//! A device is served by a process of its own ([`Service`]), by one of three fronts: a file in a FUSE mount, which
//! the kernel attaches as a loop device; an NBD export, for virtual machines and for `nbd.ko`; and a block device of the
//! kernel itself, where it has ublk. The kernel needs the process to write back what it wants to evict, so it locks its
//! memory and asks not to be throttled as others are (`PR_SET_IO_FLUSHER`).
//!
//! Invariants: memory never exceeds the limit; a block that was written is read as it was written last, wherever it
//! lies; no input of a client reaches anything but its own device. The device is not durable: it ends with its process,
//! and so does everything that was written.
//!
//! Out of scope: several devices in one process, TLS, clients on other machines (nbdkit serves those).

mod counters;
mod disk;
mod front;
mod memory;
mod requests;
mod service;
mod spill;

pub use counters::Counters;
pub use disk::{BLOCK_BYTES, Disk, Extent, MEMORY_BYTES_MIN, Options};
pub use front::nbd;
pub use requests::{Kind, Request, RequestError, Requests, Summary};
pub use service::{Front, Service, become_server_if_asked};
