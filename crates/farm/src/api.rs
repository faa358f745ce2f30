//! The bodies of requests and answers (`/v1`), as JSON.

use serde::{Deserialize, Serialize};

/// The header of answers to requests for messages that identifies the run: random text, absent without a run.
pub const RUN_HEADER: &str = "kilnyard-run";

/// A worker wants to join.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    /// The secret of its token.
    pub secret: String,
    /// The name that it asks for.
    pub name: String,
    /// The public part of its key.
    pub key: String,
}

/// A challenge, and later the worker's proof.
#[derive(Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// Random text.
    pub challenge: String,
}

/// A worker proves that it has its key.
#[derive(Debug, Serialize, Deserialize)]
pub struct Proof {
    /// Its name.
    pub worker: String,
    /// The challenge that it answers.
    pub challenge: String,
    /// The signature.
    pub proof: String,
    /// Its machine, for `kilnyard workers` alone.
    #[serde(default)]
    pub about: About,
}

/// A worker's machine and program, as it describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The cores for builds; 0 if it did not say.
    pub cores: u32,
    /// The memory that was available when it started, in bytes.
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The model of the CPU.
    pub cpu: String,
    /// The processor architecture of its programs.
    pub architecture: String,
    /// The version of Kilnyard.
    pub version: String,
}

impl About {
    /// The longest text of a field, in bytes.
    pub const BYTES_MAX: usize = 256;

    /// Whether a door keeps it.
    pub(crate) fn is_short(&self) -> bool {
        let texts = [&self.kernel, &self.cpu, &self.architecture, &self.version];
        texts.iter().all(|text| text.len() <= About::BYTES_MAX)
    }
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Began {
    /// What later requests of the worker contain.
    pub session: String,
    /// The content codings in which the door takes messages: `zstd`. Empty for a door from before they were added.
    #[serde(default)]
    pub encodings: Vec<String>,
}

/// How long a request for messages may wait.
#[derive(Debug, Serialize, Deserialize)]
pub struct Wait {
    /// Seconds; at most 50 count.
    pub wait: u64,
}

/// A worker has joined.
#[derive(Debug, Serialize, Deserialize)]
pub struct Joined {
    /// Its name.
    pub worker: String,
}

/// The most files that a worker names at once.
pub const BLOBS_MAX: usize = 4096;

/// The files that a worker is about to store for a build.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outputs {
    /// A build that the worker has.
    pub attempt: String,
    /// At most [`BLOBS_MAX`] files.
    pub blobs: Vec<Blob>,
}

/// A file that a worker is about to store.
#[derive(Debug, Serialize, Deserialize)]
pub struct Blob {
    /// The hash of its content, in hexadecimal.
    pub sha256: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

/// The files that the worker has to send. It has stored the others for this build, or its builds read them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Missing {
    /// In the order of the request.
    pub missing: Vec<Arrived>,
}

/// A file of which not everything has arrived.
#[derive(Debug, Serialize, Deserialize)]
pub struct Arrived {
    /// The hash of its content, in hexadecimal.
    pub sha256: String,
    /// The number of bytes that an interrupted upload has left: where to continue.
    pub arrived_bytes: u64,
}

/// For which build a file is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct For {
    /// A build that the worker has.
    pub attempt: String,
    /// The number of bytes of the file that come before the body, which is the rest of it. Absent if the body is all of
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// The reason of a refusal of a part of a log before which another one is missing.
pub const PART_MISSING: &str = "a part of the log before this one is missing";

/// Where a part of a log begins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// The number of bytes before it. Absent for a whole log, compressed.
    pub offset: Option<u64>,
}

/// The body of a refusal.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    /// A clause for the worker's log.
    pub error: String,
    /// If the offset of a part is wrong: the number of bytes of the file that have arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_bytes: Option<u64>,
}
