//! Build roots: where one build happens, apart from everything else on the machine.
//!
//! A root is planned as an ordered list of [`Operation`]s that prints and executes: mounts, then the
//! switch into the new root. It is performed by [`sandbox`]: the program starts itself once more as a
//! small single-threaded process, which takes new user, mount, pid, ipc, uts, cgroup and network
//! namespaces, performs the list and runs one command as the child of process 1 of the new namespace.
//!
//! Where the files of a root come from is one [`Form`]: layers below an overlay, a copy of them, or an image on a
//! block device ([`block`]).
//!
//! What must hold: every mount lives in the namespace of the sandbox or of the root's [`Keeper`] alone, and every process of it
//! dies with its process 1, which dies with Kilnyard. So nothing stays mounted and nothing stays
//! running, whoever is killed at whatever moment; what stays is a folder, which the next start removes.
//!
//! The way into the user namespace is the same for root and for an ordinary user: [`IdMap`] says which
//! ids the root's users are outside. Nobody of the root is root outside.
//!
//! What it does not do: watch, measure or end the command (crate `process` does), or know what is built.
//! Known downside: each stage mounts the overlay again, about a millisecond.

pub mod archive;
mod backend;
pub mod block;
mod ids;
mod keeper;
mod operation;
mod plan;
pub mod probe;
pub mod quota;
pub mod sandbox;
mod stat;
pub mod tree;

pub use backend::{Backend, Roots, Scratch};
pub use block::{Device, FileSystem, ImagePlan, Requests};
pub use ids::{IDS_COUNT, IdError, IdMap, Mapper};
pub use keeper::Keeper;
pub use operation::{Access, Content, Flushes, LAYERS_MAX, Operation, Source, base_operations};
pub use plan::{Form, MEMORY, Making, Place, RootPlan, remove_folder};
pub use rustix::fs::FileType;
pub use sandbox::{Nesting, Report, Sandbox, User, View};
pub use stat::ProcessStat;
pub use tree::{Usage, usage, used_bytes};
