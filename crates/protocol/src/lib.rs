//! What coordinator and worker say to each other.
//!
//! A worker asks for a build, gets a [`Lease`], tells how it goes, and returns a [`BuildResult`]. All of it
//! is data that can be sent: on one machine it goes through a channel, and nothing in it assumes so.

use kilnyard_model::order::{BuildOrder, Output, Stage};
use kilnyard_model::result::{Failure, StageResult, StageSeen};
use kilnyard_schedule::Files;
use serde::{Deserialize, Serialize};

/// A worker's time-limited right to one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The build's number in the yard.
    pub build: u64,
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

/// How a build goes. Any of these renews the lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// A stage began.
    StageBegan(Stage),
    /// A stage ended.
    StageEnded(Box<StageResult>),
    /// It goes on, and there is nothing else to say.
    Alive,
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
