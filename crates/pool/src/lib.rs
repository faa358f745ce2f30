//! Machines on demand. A site's manager of machines (Slurm, Kubernetes, systemd, ssh, a program of the site) starts
//! *pilots*: workers on whole allocations, which join like any other worker.
//!
//! - [`Driver`] is the interface to a manager: start, list, stop, describe.
//! - [`Reconciler`] decides for one pool: `apply(now, event, actions)`, pure. Its module says what holds whatever a manager does.
//! - [`perform`] has a driver do an action, and returns the event that answers it.
//! - [`wanted`] computes how many pilots are worth having; [`nearest_miss`] says why work fits no pool.
//!
//! What must hold: pilots are known by names that the caller chose, and never by what a manager answered, such as the
//! numbers of its jobs. Secrets reach a pilot by standard input or files that only its user can read, and are on no command
//! line. All that a manager says is hostile: it is bounded in size and time, parsed strictly, and shown on one line.
//!
//! What it leaves out: how a worker joins, which work there is, and who may use a pool. It has no thread and no clock of its
//! own, and prints nothing: the caller has a thread for each pool, which may block in a driver.
//!
//! Known downside: pilots are whole allocations, which managers do not grow. Cores move between builds inside of a pilot only.

#![forbid(unsafe_code)]

mod call;
mod command;
mod driver;
mod error;
mod folder;
pub mod kubernetes;
mod launch;
mod name;
mod perform;
pub mod reconcile;
mod slurm;
mod ssh;
mod systemd;
mod text;
mod wanted;

pub use call::Surroundings;
pub use command::CommandDriver;
pub use driver::{Description, Driver, LISTED_MAX, Listed, Listing, PilotState, Place};
pub use error::PoolError;
pub use kubernetes::{KubernetesAccess, KubernetesDriver, KubernetesSettings};
pub use launch::{FILES_MAX, LAUNCH_BYTES_MAX, Launch};
pub use name::{NAME_BYTES_MAX, Names, PART_BYTES_MAX, PREFIX_BYTES_MAX, PilotName};
pub use perform::perform;
pub use reconcile::{Action, Event, Figures, Memory, Reconciler, Terms, Verb, Why};
pub use slurm::{SlurmDriver, SlurmSettings};
pub use ssh::{Limits, Manner, SshDriver, SshHost, SshSettings};
pub use systemd::{SystemdDriver, SystemdSettings, Units};
pub use wanted::{Demand, Machine, Need, Wanted, nearest_miss, wanted};
