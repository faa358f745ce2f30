//! What to build next and with how many cores: the longest remaining path first. Pure.
//!
//! A package's [`rank`](ranks) is the longest path of estimated seconds from its start to the end of the
//! run, over all that waits for it (the critical path rule of list scheduling: Graham 1969, Adam, Chandy
//! and Dickson 1974). Cores follow rank too: a build has many while the path can use them, and gives them to
//! others while it cannot.
//!
//! From the bottom:
//!
//! - [`work`] is a model of what a build takes, from what earlier ones took ([`estimate`]) or from a prior
//!   ([`prior_seconds`]);
//! - [`rank`](mod@rank) has the ranks, how they follow their estimates, and the [`Bound`] that no schedule can beat;
//! - [`Queue`] hands out the ready package of the highest rank; what a person bumped comes before all else;
//! - [`Demand`] tells how many cores a real build could use;
//! - [`Scheduler`] decides: `apply(now, event, &mut actions)`, for one machine or several, within their memory;
//! - [`simulate`] plays a run through in simulated time, with the scheduler or with one of the [`policies`] of
//!   other builders.
//!
//! Which cores a build has follows from the ranks by one rule, [`share_out`]: the scheduler uses it to foresee, and each machine
//! to decide, since no message is as fast as a build that turns parallel.
//!
//! What must hold: nothing here reads a clock, touches the system, or knows a package family; the same events give
//! the same actions.

mod demand;
mod event;
mod machine;
mod noise;
pub mod policies;
mod queue;
pub mod rank;
mod scheduler;
mod simulate;
pub mod work;

pub use demand::{Demand, Look};
pub use event::{Action, COMING_SECONDS_MAX, Event, Files, Outcome, Policy, Pressure};
pub use machine::{Machine, MachineId};
pub use noise::noisy;
pub use queue::Queue;
pub use rank::{Bound, Ranks, path, ranks};
pub use scheduler::{Limits, OVERTAKEN_SECONDS_MAX, ScheduleError, Scheduler, Sharer, Sharing, share_out};
pub use simulate::{Built, Busy, Simulated, SimulationError, simulate};
pub use work::{Basis, Measured, Step, Work, estimate, prior_seconds};
