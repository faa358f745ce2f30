//! The messages between coordinator and worker.
//!
//! A worker receives a [`Lease`], reports [`Progress`], sends what it [`Built`], receives an [`Answer`], and returns
//! a [`BuildResult`]. These are parts of the conversation of [`ToCoordinator`] and [`ToWorker`], whose messages a
//! network may lose and repeat. They are sent as JSON in a versioned envelope ([`encode`], [`decode`]), on one
//! machine too.

mod talk;
mod wire;

pub use talk::{
    ANNOUNCED, BuildPhase, CHECKS, Held, Hello, Offer, Ranked, Reports, Session, ToCoordinator, ToWorker,
    Welcome,
};
pub use wire::{MESSAGE_BYTES_MAX, Opened, VERSION, Versions, WireError, decode, encode, encode_as, open};

use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Output, Stage, TestOrder};
use kilnyard_model::provenance::Signed;
use kilnyard_model::result::{Failure, StageResult, StageSeen};
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_schedule::Files;
use serde::{Deserialize, Serialize};

/// The right to perform one build, for a limited time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The build's number in the yard.
    pub build: u64,
    /// Its random id. Messages about the build have it.
    pub attempt: Attempt,
    /// The longest path from its start to the end of the run, in seconds. The worker starts the build with the
    /// longest path first.
    #[serde(default)]
    pub rank_seconds: f64,
    /// The run's number in the yard.
    pub run: u64,
    /// The slot of the worker.
    pub slot: u32,
    /// Whether its work folder may be in memory.
    pub files: Files,
    /// The bytes that it is expected to write, to memory or disk.
    pub written_bytes: u64,
    /// How to build.
    pub order: BuildOrder,
    /// The highest values of its stages in earlier builds.
    pub seen: Vec<StageSeen>,
    /// Whether it is built twice, to compare the results byte by byte.
    pub checks_reproducible: bool,
    /// Outputs of another worker, which are tested in place of a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_test: Option<Box<TestOnly>>,
    /// Whether it is a command whose output is the result, in place of a build.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_captured: bool,
    /// Stored artifacts that the worker reads, in place of a build; the result is which of them are intact. Only workers
    /// with the capability [`CHECKS`] get such a lease.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_check: Vec<Sha256Hex>,
}

impl Lease {
    /// Whether its result is the output of a command or check, and no package.
    pub fn is_no_build(&self) -> bool {
        self.is_captured || !self.to_check.is_empty()
    }
}

/// Outputs of another worker, and how they are tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestOnly {
    /// The result, if the test succeeds.
    pub outputs: Vec<Output>,
    /// The test.
    pub order: TestOrder,
}

/// The outputs of a build, before any of them is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// The build's number.
    pub build: u64,
    /// The contents of the output folder.
    pub outputs: Vec<Output>,
    /// Whether it is the second build of a lease that compares two. Its outputs are not tested.
    pub is_repeated: bool,
}

/// Which outputs are kept, and how they are tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Why none may be published; absent if they may.
    pub refused: Option<String>,
    /// The outputs that are kept.
    pub outputs: Vec<Output>,
    /// Why the others are not kept: a sentence each, for the log.
    pub notes: Vec<String>,
    /// How they are tested.
    pub test: Test,
    /// What the package requires in addition to its recipe, as its family writes it: its build found out, and is repeated with
    /// that. Then no output is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<Vec<String>>,
}

impl Answer {
    /// The answer about outputs of which none may be published.
    pub fn refuse(reason: String) -> Answer {
        Answer {
            refused: Some(reason),
            outputs: Vec::new(),
            notes: Vec::new(),
            test: Test::Skip,
            requires: None,
        }
    }

    /// The answer about outputs that are all kept, and not tested.
    pub fn keep(outputs: Vec<Output>) -> Answer {
        Answer { refused: None, outputs, notes: Vec::new(), test: Test::Skip, requires: None }
    }
}

/// How the outputs of a build are tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Not at all.
    Skip,
    /// In a clean root.
    Run(Box<TestOrder>),
    /// They cannot be installed, for this reason.
    Impossible(String),
}

/// A report on a running build. Any report renews the lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// A stage began.
    StageBegan(Stage),
    /// A stage ended.
    StageEnded(Box<StageResult>),
    /// The number of cores that it can use changed; at least 1.
    Wants(u32),
    /// A sample of the build's processes.
    Sample {
        /// Their number.
        processes: u32,
        /// The number that is running or runnable.
        runnable: u32,
        /// Their memory, in bytes.
        memory_bytes: u64,
    },
}

/// The result of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildResult {
    /// The build's number.
    pub build: u64,
    /// The outputs, or why there are none.
    pub outcome: Result<Vec<Output>, Failure>,
    /// Whether a second build gave the same bytes; absent if there was none.
    pub is_reproducible: Option<bool>,
    /// The worker's signature of the outputs and of what they were built from. A worker on another machine leaves out the
    /// statement, which follows from the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Signed>,
}
