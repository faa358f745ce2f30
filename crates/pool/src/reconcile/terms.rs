//! What the reconciler of a pool is given, what happens to it, and what it wants done.

use crate::{Listing, PilotName};

/// The rules of a pool. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Pilots that are kept even if there is nothing to do.
    pub least: u32,
    /// The most pilots that may exist at once, including those that are being started or ended.
    pub most: u32,
    /// How long a pilot is idle before it is given back, and how long there are more pilots than wanted before busy ones are
    /// drained.
    pub idle_seconds: f64,
    /// How long a running pilot may take until its worker has joined.
    pub start_seconds_max: f64,
    /// How long a pilot may be queued by its manager.
    pub queue_seconds_max: f64,
    /// How long a worker may be disconnected until its pilot counts as lost.
    pub away_seconds_max: f64,
    /// How old the picture can be that the manager's list shows. What a list does not show counts as gone only if the list was
    /// requested at least this long after the start was answered.
    pub settle_seconds: f64,
    /// How long no pilot is started after the first failed start; it is doubled with each further one.
    pub backoff_seconds: f64,
    /// The longest such time.
    pub backoff_seconds_max: f64,
    /// The time between two lists of the manager.
    pub list_seconds: f64,
    /// The most starts that are requested at once; halved with each failed start.
    pub starts_at_once_max: u32,
    /// What pilots are started with, as [`Names`](crate::Names) has it: pilots of another form are replaced.
    pub form: String,
}

impl Terms {
    /// Usual times, for a pool of this size.
    pub fn new(least: u32, most: u32, form: &str) -> Terms {
        Terms {
            least,
            most,
            idle_seconds: 300.0,
            start_seconds_max: 300.0,
            queue_seconds_max: 24.0 * 3600.0,
            away_seconds_max: 300.0,
            settle_seconds: 10.0,
            backoff_seconds: 10.0,
            backoff_seconds_max: 900.0,
            list_seconds: 10.0,
            starts_at_once_max: 16,
            form: form.to_owned(),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// How many pilots are wanted, and why.
    Wanted {
        /// The number; it is kept between `least` and `most`.
        count: u32,
        /// For the user.
        reason: String,
    },
    /// The manager's answer to [`Action::List`].
    Listed(Listing),
    /// The manager acknowledged a start.
    Started(PilotName),
    /// The manager acknowledged that it ends a pilot.
    Stopped(PilotName),
    /// The manager did not do something, or did not answer.
    Failed {
        /// What.
        verb: Verb,
        /// Why.
        reason: String,
    },
    /// The worker of a pilot is connected, and has no build.
    Joined(PilotName),
    /// The worker of a pilot is not connected any more.
    Left(PilotName),
    /// The worker of a pilot has no build any more.
    Idle(PilotName),
    /// The worker of a pilot has a build. Also after a join, if it has kept one.
    Busy(PilotName),
    /// The answer to [`Action::Drain`]: the worker of this pilot has no build, and gets none any more. Also after the join of a
    /// worker that an earlier process had drained.
    Drained(PilotName),
    /// The manager will take the pilot's machine away soon.
    Reclaimed(PilotName),
    /// The rules have changed.
    Terms(Terms),
    /// Time has passed.
    Tick,
}

/// A request to the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Start this pilot.
    Start(PilotName),
    /// Stop this pilot.
    Stop(PilotName),
    /// List.
    List,
}

/// Something to do. Each is answered by an event, whatever happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start a pilot with this name; [`Event::Started`] or [`Event::Failed`] answers. If the caller records names for
    /// [`Memory::Names`], it does so before.
    Start(PilotName),
    /// Give the worker of this pilot no builds any more, whether it has joined or not. [`Event::Drained`] answers once it has
    /// none: at once for a worker that is not known. It stays so for good, even if the worker joins later or again.
    Drain(PilotName, Why),
    /// Let the worker leave, and have the manager end the pilot. [`Event::Stopped`] or [`Event::Failed`] answers.
    Stop(PilotName),
    /// List the pilots. [`Event::Listed`] or [`Event::Failed`] answers.
    List,
}

/// Why a pilot is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// There are more pilots than wanted.
    Surplus,
    /// It was started with something else than pilots are now.
    Drifted,
    /// Its machine is taken away, or it is being ended by its manager.
    Reclaimed,
    /// It was queued too long.
    Queued,
    /// It ran, but its worker did not join, or did not come back.
    Lost,
    /// Its manager has it more than once.
    Duplicate,
}

/// What is known of pilots that an earlier process started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Nothing is recorded. No pilot is started until the manager's list shows what an earlier process may have started:
    /// `settle_seconds` later.
    Nothing,
    /// All names that were started and were not gone: pilots can be started at once.
    Names(Vec<PilotName>),
}
