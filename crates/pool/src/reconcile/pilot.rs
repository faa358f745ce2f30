//! One pilot, as three parties see it: its manager, its worker, and the reconciler.

use super::terms::Why;

/// A pilot that exists or may exist.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pilot {
    /// When the manager answered the request to start it; none until then. Only then can a list show that it is gone.
    pub answered_seconds: Option<f64>,
    /// The manager said that it did not start it, which may be wrong.
    pub start_failed: bool,
    /// Started or listed since this process began, so that the driver knows where it is.
    pub is_known_to_driver: bool,
    pub sight: Sight,
    /// How often the manager has it.
    pub copies: u32,
    pub worker: Worker,
    pub end: End,
    pub is_reclaimed: bool,
    /// Its worker has joined at least once.
    pub has_joined: bool,
}

/// What the last list says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// Not in a list yet, or not any more.
    Unlisted,
    Queued {
        since_seconds: f64,
    },
    Running {
        since_seconds: f64,
    },
    Ending,
    /// Its part of the manager does not answer.
    Unknown {
        since_seconds: f64,
    },
}

/// What its worker last said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Worker {
    /// It never joined.
    Never,
    Idle {
        since_seconds: f64,
    },
    Busy,
    /// It joined, and is not connected.
    Away {
        since_seconds: f64,
    },
}

/// How far its end is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// It is to be kept.
    Kept,
    /// Its worker gets no builds, but may have some.
    Draining(Why),
    /// The manager was asked to stop it.
    Stopping {
        asked_seconds: f64,
        /// How often it was asked.
        times: u32,
        /// The last request was answered.
        is_answered: bool,
    },
}

impl Pilot {
    /// One that was just requested.
    pub fn requested() -> Pilot {
        Pilot {
            answered_seconds: None,
            start_failed: false,
            is_known_to_driver: true,
            sight: Sight::Unlisted,
            copies: 1,
            worker: Worker::Never,
            end: End::Kept,
            is_reclaimed: false,
            has_joined: false,
        }
    }

    /// One that another process started.
    pub fn found(now_seconds: f64) -> Pilot {
        Pilot { answered_seconds: Some(now_seconds), is_known_to_driver: false, ..Pilot::requested() }
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.worker, Worker::Idle { .. } | Worker::Busy)
    }

    /// Whether it works, or is expected to.
    pub fn counts(&self) -> bool {
        let is_seen = self.is_connected()
            || match self.sight {
                Sight::Unlisted => !self.start_failed,
                Sight::Queued { .. } | Sight::Running { .. } => true,
                Sight::Ending | Sight::Unknown { .. } => false,
            };
        self.end == End::Kept && !self.is_reclaimed && is_seen
    }

    /// Which is given up first if there are more than wanted: those that cost least to lose. Pilots with the same number are
    /// ordered by how long they are idle.
    pub fn worth(&self) -> (u32, f64) {
        match (self.worker, self.sight) {
            (Worker::Never, Sight::Queued { since_seconds }) => (0, -since_seconds),
            (Worker::Never, _) => (1, 0.0),
            (Worker::Away { since_seconds }, _) => (2, since_seconds),
            (Worker::Idle { since_seconds }, _) => (3, since_seconds),
            (Worker::Busy, _) => (4, 0.0),
        }
    }
}
