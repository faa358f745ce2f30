//! The conversation of worker and coordinator, over a network that may delay, drop, repeat and reorder messages.
//!
//! ```text
//! worker                          coordinator
//! Hello            ------------>  Welcome (a session), or Refused
//! Offer            ------------>  Ranks; also Announce, Grant, Revoke, Cancel, Superseded as they are needed
//! Progress         ------------>  Received
//! Built            ------------>  Answer
//! Result           ------------>  Acknowledged, or Superseded
//! Leave            ------------>
//! ```
//!
//! The worker starts every exchange and repeats messages without an answer; the coordinator keeps no timers for
//! messages. It repeats what it pushes (a grant, a cancellation) when an [`Offer`] shows that it did not arrive. Any
//! message may be lost, and any may come twice: a repeat changes nothing and gets the same answer.
//!
//! A message is valid only within its [`Session`], and a message about a build only for its [`Attempt`]. A restarted
//! coordinator knows no sessions: it answers [`ToWorker::Rejoin`], and the worker says hello again, with the builds
//! that it has.

use crate::{Answer, BuildResult, Built, Lease, Progress, Versions};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_schedule::Pressure;
use serde::{Deserialize, Serialize};

/// The random id of one conversation, chosen by the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Session(Attempt);

impl From<Attempt> for Session {
    fn from(id: Attempt) -> Session {
        Session(id)
    }
}

/// The capability of workers that prepare announced builds.
pub const ANNOUNCED: &str = "preparing announced builds";

/// The capability of workers that check stored artifacts.
pub const CHECKS: &str = "checking stored artifacts";

/// A message of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToCoordinator {
    /// The worker introduces itself.
    Hello(Hello),
    /// The builds that it has, and whether it takes more. Renews the leases of these builds.
    Offer(Offer),
    /// Reports on a build.
    Progress(Reports),
    /// The outputs of a build. The worker waits for the answer.
    Built {
        /// See [`Welcome::session`].
        session: Session,
        /// The build, which waits for the [`Answer`].
        attempt: Attempt,
        /// The outputs, as the family's rules read them on the worker.
        built: Built,
    },
    /// The result of a build. The worker keeps it until it is acknowledged or superseded.
    Result {
        /// See [`Welcome::session`].
        session: Session,
        /// The build; its lease may be over.
        attempt: Attempt,
        /// How it ended. Outputs count only if they are those of the [`Answer`].
        result: Box<BuildResult>,
    },
    /// The worker leaves. If this is lost, its silence has the same effect.
    Leave {
        /// See [`Welcome::session`].
        session: Session,
    },
}

impl ToCoordinator {
    /// The session that it belongs to; `None` for a hello.
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

/// A message of a coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToWorker {
    /// The answer to a hello.
    Welcome(Welcome),
    /// The worker cannot take part, and must not ask again.
    Refused {
        /// The process that said hello.
        process: String,
        /// The reason, and a remedy.
        reason: String,
    },
    /// The session is unknown: the coordinator was restarted, or the worker was silent for too long.
    Rejoin {
        /// The unknown session, so that a worker that has a newer one ignores this.
        session: Session,
    },
    /// The worker's builds, the highest rank first: the answer to an offer, sent again whenever the order changes.
    Ranks {
        /// See [`Welcome::session`].
        session: Session,
        /// The number of the last offer.
        offer: u64,
        /// All builds with a rank. Builds that are not in the list come after them.
        builds: Vec<Ranked>,
    },
    /// A build that the worker may get when one of its cores is free. It fetches the inputs and makes the root now; the
    /// build is not the worker's before a grant of the same attempt. Only for workers with the capability [`ANNOUNCED`].
    Announce {
        /// See [`Welcome::session`].
        session: Session,
        /// The lease, as a grant would have it now: its number, slot and rank may be others then.
        lease: Box<Lease>,
    },
    /// A new build of the worker. It starts by rank when a core is free.
    Grant {
        /// See [`Welcome::session`].
        session: Session,
        /// Everything that the build needs.
        lease: Box<Lease>,
    },
    /// A build is taken back unless it has started, or is no longer announced.
    Revoke {
        /// See [`Welcome::session`].
        session: Session,
        /// A build that had not started, as far as the coordinator knows.
        attempt: Attempt,
    },
    /// A build is cancelled. The worker still returns a result.
    Cancel {
        /// See [`Welcome::session`].
        session: Session,
        /// A build that may be running.
        attempt: Attempt,
    },
    /// The answer to reports: all reports with lower numbers have been handled.
    Received {
        /// See [`Welcome::session`].
        session: Session,
        /// The build that was reported on.
        attempt: Attempt,
        /// The number of the next report expected.
        next: u64,
    },
    /// Which outputs are kept, and how they are tested.
    Answer {
        /// See [`Welcome::session`].
        session: Session,
        /// The build, which waits for this.
        attempt: Attempt,
        /// Whether it belongs to the second build of a lease that compares two.
        is_repeated: bool,
        /// Repeated unchanged if the worker asks again.
        answer: Box<Answer>,
    },
    /// A result is recorded. The worker forgets the build.
    Acknowledged {
        /// See [`Welcome::session`].
        session: Session,
        /// The build. Its result is recorded, and its lease is over.
        attempt: Attempt,
    },
    /// A lease is over, or was never the worker's. The worker ends and forgets the build, whose result would not count.
    Superseded {
        /// See [`Welcome::session`].
        session: Session,
        /// The build, which the worker may have forgotten already.
        attempt: Attempt,
        /// A clause for the worker's log.
        reason: String,
    },
}

impl ToWorker {
    /// The session that it belongs to; `None` for an answer to a hello.
    pub fn session(&self) -> Option<Session> {
        match self {
            ToWorker::Welcome(_) | ToWorker::Refused { .. } => None,
            ToWorker::Rejoin { session }
            | ToWorker::Ranks { session, .. }
            | ToWorker::Announce { session, .. }
            | ToWorker::Grant { session, .. }
            | ToWorker::Revoke { session, .. }
            | ToWorker::Cancel { session, .. }
            | ToWorker::Received { session, .. }
            | ToWorker::Answer { session, .. }
            | ToWorker::Acknowledged { session, .. }
            | ToWorker::Superseded { session, .. } => Some(*session),
        }
    }
}

/// A worker introduces itself. Repeated until it is answered; its envelope has the oldest version that the worker
/// speaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The worker's name, which stays the same when it is restarted.
    pub worker: String,
    /// A random string, different for each process.
    pub process: String,
    /// The versions of the protocol that it speaks.
    pub versions: Versions,
    /// The cores of its machine that builds may use; at least 1.
    pub cores: u32,
    /// The speed of a core, relative to the cores that estimates are for.
    pub speed: f64,
    /// Memory for builds, in bytes; absent if unknown.
    pub memory_bytes: Option<u64>,
    /// Disk space for builds, in bytes; absent if unknown.
    pub disk_bytes: Option<u64>,
    /// The kernel and CPU, for records; absent from earlier programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Artifacts that it has from earlier runs, by hash; not all, if there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm: Vec<String>,
    /// The keys of the kept work on its machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

impl Hello {
    /// The most kept work that a worker names.
    pub const KEPT_MAX: usize = 1024;
    /// The most artifacts that a worker names.
    pub const WARM_MAX: usize = 4096;
}

/// The answer to a hello: the worker takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The process that said hello.
    pub process: String,
    /// The session of all later messages.
    pub session: Session,
    /// The version of all later messages.
    pub version: u32,
    /// The number of builds that the worker runs at once.
    pub slots: u32,
    /// The number of cores that the worker shares out among its builds: a few more than it has, since builds wait for
    /// disks.
    pub cores: u32,
    /// Maximum number of cores for one build; absent if unlimited.
    pub jobs_max: Option<u32>,
    /// How long a lease lasts without a message from the worker, in seconds, by the coordinator's clock.
    pub lease_seconds: f64,
}

/// The builds that a worker has, and its capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// See [`Welcome::session`].
    pub session: Session,
    /// Counts up within the session, so that a late offer is ignored.
    pub number: u64,
    /// All builds that the worker has.
    pub held: Vec<Held>,
    /// The number of slots without a build.
    pub slots_free: u32,
    /// Whether processes stall for lack of memory.
    pub pressure: Pressure,
    /// Whether it takes further builds; false while it drains.
    pub takes_more: bool,
    /// The cores that builds of this run may use now, at least 1, if other runs use the machine too; absent if all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

/// A build in the order of rank, with its memory, which limits its cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// A build of the worker, waiting or running.
    pub attempt: Attempt,
    /// The memory that it is expected to use with one core, in bytes.
    pub memory_bytes: u64,
    /// The memory that each further core is expected to add, in bytes.
    pub memory_per_core_bytes: u64,
}

/// A build that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The random id of its lease.
    pub attempt: Attempt,
    /// Decides whether the build can still be revoked.
    pub phase: BuildPhase,
}

/// The progress of a build on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildPhase {
    /// It has not started, and can be revoked.
    Waiting,
    /// It is running, and can only be cancelled.
    Building,
    /// It has a result that is not acknowledged yet.
    Ended,
}

/// Reports on a build, numbered from 0 within an attempt. All that are not acknowledged are sent together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    /// See [`Welcome::session`].
    pub session: Session,
    /// A running build, or one that ended after these reports.
    pub attempt: Attempt,
    /// The number of the first report in the list.
    pub first: u64,
    /// In the order in which they were made; never empty.
    pub reports: Vec<Progress>,
}
