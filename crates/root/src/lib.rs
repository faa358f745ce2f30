//! Build roots: each build runs in one, isolated from the rest of the machine.
//!
//! The plan of a root is an ordered list of [`Operation`]s that prints and executes: mounts, then the
//! switch into the new root. [`sandbox`] performs it: the program starts itself again as a small
//! single-threaded process, which creates new user, mount, pid, ipc, uts, cgroup and network
//! namespaces, performs the list, and runs one command as the child of process 1 of the new namespace.
//!
//! A root gets its files in one [`Form`]: layers below an overlay, a copy of them, or an image on a
//! block device ([`block`]).
//!
//! Invariants: every mount exists only in the namespace of the sandbox or of the root's [`Keeper`], and every process
//! of the root dies with its process 1, which dies with Kilnyard. Nothing stays mounted and nothing stays running, no
//! matter which process is killed, or when; only a folder is left, which the next start removes.
//!
//! Root and ordinary users enter the user namespace in the same way: [`IdMap`] maps the root's ids to ids
//! outside. No user of the root is root outside.
//!
//! Out of scope: watching, measuring and ending the command (the crate `process` does), and knowledge of the package
//! being built. Known downside: each stage mounts the overlay again, which takes about a millisecond.

pub mod archive;
mod backend;
pub mod block;
mod confinement;
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
pub use block::{Device, FileSystem, ImagePlan, Requests, Server, TREE};
pub use confinement::{Confined, Confinement, confine};
pub use ids::{IDS_COUNT, IdError, IdMap, Mapper};
pub use keeper::Keeper;
pub use operation::{Access, Content, Flushes, LAYERS_MAX, Operation, Source, base_operations};
pub use plan::{Form, MEMORY, Making, Place, RootPlan, SHARED, remove_folder};
pub use rustix::fs::FileType;
pub use sandbox::{Nesting, Report, Sandbox, User, View};
pub use stat::ProcessStat;
pub use tree::{Usage, usage, used_bytes};
