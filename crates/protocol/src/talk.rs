//! The conversation of a worker with its coordinator, as messages that a network may delay, drop, repeat and reorder.
//!
//! ```text
//! worker                          coordinator
//! Hello            ------------>  Welcome (a session), or Refused
//! Offer            ------------>  Ranks; also Grant, Revoke, Cancel, Superseded as they are needed
//! Progress         ------------>  Heard
//! Built            ------------>  Answer
//! Result           ------------>  Acknowledged, or Superseded
//! Leave            ------------>
//! ```
//!
//! The worker begins everything and repeats what was not answered; the coordinator keeps no timers for messages. What it
//! pushes (a grant, a cancellation) is said again for each [`Offer`] which shows that it did not arrive. So each message may be
//! lost, and each may come twice: a repeat changes nothing and gets the same answer.
//!
//! A message counts within its [`Session`] alone, and what is said of a build counts for its [`Attempt`] alone. A coordinator that was
//! started again knows no sessions: it says [`ToWorker::Again`], and the worker says hello anew, with the builds that it has.

use crate::{Answer, BuildResult, Built, Lease, Progress, Versions};
use kilnyard_model::attempt::Attempt;
use kilnyard_schedule::Pressure;
use serde::{Deserialize, Serialize};

/// The random id of one conversation, which the coordinator gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Session(Attempt);

impl From<Attempt> for Session {
    fn from(id: Attempt) -> Session {
        Session(id)
    }
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToCoordinator {
    /// It is there.
    Hello(Hello),
    /// What it has, and whether it takes more. Renews all leases that it names.
    Offer(Offer),
    /// How a build goes.
    Progress(Reports),
    /// What the stages of a build made; the worker waits for the answer.
    Built {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
        /// What was made.
        built: Built,
    },
    /// What became of a build. The worker keeps it until it is acknowledged or superseded.
    Result {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
        /// What became of it.
        result: Box<BuildResult>,
    },
    /// The worker has nothing left to say and leaves. If this is lost, its silence says the same.
    Leave {
        /// The session.
        session: Session,
    },
}

impl ToCoordinator {
    /// The session that it belongs to; none of a hello.
    pub fn session(&self) -> Option<Session> {
        match self {
            ToCoordinator::Hello(_) => None,
            ToCoordinator::Offer(Offer { session, .. })
            | ToCoordinator::Progress(Reports { session, .. })
            | ToCoordinator::Built { session, .. }
            | ToCoordinator::Result { session, .. }
            | ToCoordinator::Leave { session } => Some(*session),
        }
    }
}

/// What a coordinator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToWorker {
    /// The answer to a hello.
    Welcome(Welcome),
    /// The worker cannot take part; it does not ask again.
    Refused {
        /// The process that said hello.
        process: String,
        /// Why, and what helps.
        reason: String,
    },
    /// The session is not known: the coordinator was started again, or had not heard from the worker for too long.
    Again {
        /// The session.
        session: Session,
    },
    /// The worker's builds, the highest rank first: the answer to an offer, and said again whenever the order is another one.
    Ranks {
        /// The session.
        session: Session,
        /// The number of the last offer.
        offer: u64,
        /// The builds.
        builds: Vec<Ranked>,
    },
    /// A build is the worker's from now on: it starts by rank when a core is free.
    Grant {
        /// The session.
        session: Session,
        /// All that it takes to build.
        lease: Box<Lease>,
    },
    /// A build is the worker's no more, unless it has started.
    Revoke {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
    },
    /// A build is to end; its result is still waited for.
    Cancel {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
    },
    /// The answer to reports: those with lower numbers need not be said again.
    Heard {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
        /// The number of the next one.
        next: u64,
    },
    /// What becomes of what was built.
    Answer {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
        /// Whether it is about the second build of a lease that compares two.
        is_repeated: bool,
        /// The answer.
        answer: Box<Answer>,
    },
    /// A result is recorded; the worker forgets the build.
    Acknowledged {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
    },
    /// A build is not the worker's: its lease is over, and its result does not count. The worker ends and forgets it.
    Superseded {
        /// The session.
        session: Session,
        /// The build.
        attempt: Attempt,
        /// Why.
        reason: String,
    },
}

impl ToWorker {
    /// The session that it belongs to; none of an answer to a hello.
    pub fn session(&self) -> Option<Session> {
        match self {
            ToWorker::Welcome(_) | ToWorker::Refused { .. } => None,
            ToWorker::Again { session }
            | ToWorker::Ranks { session, .. }
            | ToWorker::Grant { session, .. }
            | ToWorker::Revoke { session, .. }
            | ToWorker::Cancel { session, .. }
            | ToWorker::Heard { session, .. }
            | ToWorker::Answer { session, .. }
            | ToWorker::Acknowledged { session, .. }
            | ToWorker::Superseded { session, .. } => Some(*session),
        }
    }
}

/// A worker is there. Said until it is answered; it is sent in an envelope of the oldest version that the worker speaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The worker's name, which stays when its process is started again.
    pub worker: String,
    /// A random text that is another one for each process.
    pub process: String,
    /// The versions that it speaks.
    pub versions: Versions,
    /// Its cores; at least 1.
    pub cores: u32,
    /// How fast a core is beside the one that estimates were taken on, which has 1.
    pub speed: f64,
    /// Memory that builds may have, in bytes; absent where it is not known.
    pub memory_bytes: Option<u64>,
    /// Room on its disk that builds may have, in bytes; absent where it is not known.
    pub disk_bytes: Option<u64>,
}

/// A worker takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The process that said hello.
    pub process: String,
    /// What all that follows belongs to.
    pub session: Session,
    /// The version that both speak.
    pub version: u32,
    /// The number of builds that the worker performs at once.
    pub slots: u32,
    /// The cores that the worker shares out among its builds: a few more than it has, since builds wait for disks.
    pub cores: u32,
    /// The most cores of one build; absent where there is no bound.
    pub jobs_max: Option<u32>,
    /// How long a lease lasts without a word from the worker, on the coordinator's clock, in seconds.
    pub lease_seconds: f64,
}

/// What a worker has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The session.
    pub session: Session,
    /// Counts up within the session: an older one that comes late says nothing.
    pub number: u64,
    /// All builds that the worker has.
    pub held: Vec<Held>,
    /// Slots without a build.
    pub slots_free: u32,
    /// Whether processes stall for want of memory.
    pub pressure: Pressure,
    /// Whether it takes further builds: not when it drains.
    pub takes_more: bool,
}

/// A build in the order of rank, with what decides how many cores it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// The build.
    pub attempt: Attempt,
    /// What it is expected to hold of memory with one core.
    pub memory_bytes: u64,
    /// What it is expected to hold for each further one.
    pub memory_per_core_bytes: u64,
}

/// A build that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The build.
    pub attempt: Attempt,
    /// How far it is.
    pub standing: Standing,
}

/// How far a build is on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It has not started, and can be revoked.
    Waiting,
    /// It is being built.
    Building,
    /// It has a result, which is not acknowledged yet.
    Ended,
}

/// How a build goes. Reports are numbered from 0 within an attempt; all that were not acknowledged are said together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    /// The session.
    pub session: Session,
    /// The build.
    pub attempt: Attempt,
    /// The number of the first one.
    pub first: u64,
    /// The reports.
    pub reports: Vec<Progress>,
}
