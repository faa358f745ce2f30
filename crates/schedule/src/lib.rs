//! Decides what to build next and with how many cores: the longest remaining path first. Pure.
//!
//! A package's [`rank`](ranks) is the longest path of estimated seconds from its start to the end of the run, through
//! all packages that wait for it (the critical path rule of list scheduling: Graham 1969, Adam, Chandy and Dickson
//! 1974). Cores follow rank too: a build gets many cores while the path can use them, and leaves them to others while
//! it cannot.
//!
//! From the bottom up:
//!
//! - [`work`] models what a build takes, from what earlier builds took ([`estimate`]) or from a prior;
//! - [`rank`](mod@rank) computes ranks, and updates them as estimates change; [`Bound`] is the time that no schedule
//!   can beat;
//! - [`Queue`] hands out the ready package of the highest [priority](effective_priorities) and rank, with bumped
//!   packages before all others;
//! - [`Demand`] determines how many cores a real build could use;
//! - [`Scheduler`] decides: `apply(now, event, &mut actions)`, for one or several machines, within their memory;
//! - [`Shares`] divides a machine among the yards of a farm; [`Yards`] does so for simulated machines;
//! - [`simulate`] plays a run in simulated time, with the scheduler or with one of the [`policies`] of other
//!   builders.
//!
//! One rule, [`share_out`], derives the cores of each build from the ranks. The scheduler uses it to plan ahead, and
//! each machine uses it to decide, since a message would arrive too late when a build turns parallel.
//!
//! Invariants: nothing here reads a clock, touches the system, or knows a package family; the same events give the
//! same actions.

mod bound;
mod demand;
mod event;
mod kept;
mod machine;
mod noise;
pub mod policies;
mod priority;
mod queue;
pub mod rank;
mod scheduler;
mod shares;
mod simulate;
mod speed;
mod stalls;
mod transfer;
pub mod work;
mod yards;

pub use bound::Bound;
pub use demand::{CoreSample, Demand};
pub use event::{Action, EXPECTED_SECONDS_MAX, Event, Files, Outcome, Policy, Pressure};
pub use machine::{Class, Classes, Machine, MachineId};
pub use noise::noisy;
pub use priority::effective_priorities;
pub use queue::Queue;
pub use rank::{Ranks, path, ranks};
pub use scheduler::{
    Backlog, Limits, Needs, OVERTAKEN_SECONDS_MAX, ScheduleError, Scheduler, Sharer, Sharing, share_out,
};
pub use shares::{LEAST_SHARE, Shares, Usage};
pub use simulate::{
    Built, Busy, Conditions, Farm, Inputs, Simulated, SimulationError, Supply, simulate, simulate_farm,
    simulate_under,
};
pub use stalls::Stalling;
pub use transfer::Needed;
pub use work::{Basis, Measured, Step, Work, estimate};
pub use yards::{Provided, Received, Together, YardPolicy, Yards};
