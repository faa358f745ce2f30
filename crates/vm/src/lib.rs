//! Sandboxes in virtual machines.
//!
//! A [`Machine`] is a virtual machine for one root. Its process 1 is this program, which runs the sandboxes that it is sent
//! with the code that runs them on the machine itself: namespaces, mounts, ids, limits, census and portraits of hangs are
//! the same, and so are outputs. What a sandbox promises holds within the machine; the machine is another wall around it.
//!
//! QEMU runs the machine, with KVM where that boots a kernel within a limit, else by emulation. The kernel is one of
//! Debian's ([`Kernel`]). The initial file system has this program, the libraries that it uses, and the modules that are
//! needed, in their order. Exactly the folders that the root's sandboxes name are shared, by virtiofs: a folder that a
//! sandbox only reads cannot be written by the guest, whatever its kernel does.
//!
//! Host and guest exchange frames over a serial port. Nothing of the guest is trusted more than the output of a build:
//! frames are bounded, the host keeps the time limit of a command, and a guest that breaks the protocol is ended.
//!
//! Invariant: QEMU and virtiofsd die with this process, and leave no file but those in the folder of the root.
//!
//! A machine with another processor has `kilnyard-guest` as process 1, which does the same and is compiled for that processor.
//!
//! virtiofsd has to make files of all ids of a root. For an ordinary user, it and QEMU run in a user namespace with those ids.
//! Layers may be an [`Image`] instead of folders: a read-only disk over NBD. Out of scope: disks that a guest writes to, whose
//! files this machine would have to read by a file system of the guest.

mod console;
mod disk;
mod emulator;
mod frame;
mod guest;
mod image;
mod initial;
mod kernel;
mod machine;
mod processor;
mod share;
mod users;

pub use console::{Console, become_console_if_asked};
pub use disk::Image;
pub use emulator::{Accelerator, BOOTS_WITHIN, MissingRequirement, accelerator, missing_requirement};
pub use guest::become_guest_if_started_as_process_1;
pub use initial::check_program;
pub use kernel::{Kernel, KernelError};
pub use machine::{Machine, MachineError, Shape};
