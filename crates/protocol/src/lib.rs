//! What coordinator and worker say to each other.
//!
//! A worker gets a [`Lease`], reports [`Progress`], sends what it has [`Built`] and gets an [`Answer`], and returns a [`BuildResult`]. All of
//! it is sent as JSON in an envelope with a version ([`encode`], [`decode`]), on one machine too. How these pass between the two,
//! over a network that loses and repeats them, is the conversation of [`ToCoordinator`] and [`ToWorker`].

mod talk;
mod wire;

pub use talk::{Held, Hello, Offer, Ranked, Reports, Session, Standing, ToCoordinator, ToWorker, Welcome};
pub use wire::{MESSAGE_BYTES_MAX, Opened, VERSION, Versions, WireError, decode, encode, encode_as, open};

use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Output, Stage, TestOrder};
use kilnyard_model::result::{Failure, StageResult, StageSeen};
use kilnyard_schedule::Files;
use serde::{Deserialize, Serialize};

/// A worker's time-limited right to one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The build's number in the yard.
    pub build: u64,
    /// Its random id: what a worker says counts for this one alone.
    pub attempt: Attempt,
    /// The longest path from its start to the end of the run, in seconds: of several, the worker starts the longest first.
    #[serde(default)]
    pub rank_seconds: f64,
    /// The run's number in the yard.
    pub run: u64,
    /// The slot of the worker.
    pub slot: u32,
    /// Where its files lie, as far as they may be in memory.
    pub files: Files,
    /// What it is expected to write in all, into memory or to the disk.
    pub written_bytes: u64,
    /// What is built.
    pub order: BuildOrder,
    /// What its stages took before.
    pub seen: Vec<StageSeen>,
    /// Whether it is built twice, to compare the bytes.
    pub checks_reproducible: bool,
}

/// What the stages of a build made, before any of it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// The build's number.
    pub build: u64,
    /// What was found in the folder of outputs.
    pub outputs: Vec<Output>,
    /// Whether it is the second build of a lease that compares two: it is not tried.
    pub is_repeated: bool,
}

/// What becomes of what was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Why none of it may be published, if so.
    pub refused: Option<String>,
    /// The outputs that are kept.
    pub outputs: Vec<Output>,
    /// What is not kept, and why: a sentence each, for the log.
    pub notes: Vec<String>,
    /// How they are tried.
    pub test: Test,
}

/// How the outputs of a build are tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Not at all.
    Skip,
    /// In a clean root.
    Run(Box<TestOrder>),
    /// They cannot be installed; the explanation.
    Impossible(String),
}

/// How a build goes. Any of these renews the lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// A stage began.
    StageBegan(Stage),
    /// A stage ended.
    StageEnded(Box<StageResult>),
    /// It can use this many cores from now on; at least 1.
    Wants(u32),
    /// What the build's processes hold now.
    Sample {
        /// How many there are.
        processes: u32,
        /// How many of them run, or could run if they had a core.
        runnable: u32,
        /// Their memory.
        memory_bytes: u64,
    },
}

/// What became of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildResult {
    /// The build's number.
    pub build: u64,
    /// The outputs, or why there are none.
    pub outcome: Result<Vec<Output>, Failure>,
    /// Whether a second build gave the same bytes, where that was asked.
    pub is_reproducible: Option<bool>,
}
