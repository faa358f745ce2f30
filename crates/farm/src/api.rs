//! The bodies of requests and answers (`/v1`), as JSON.

use serde::{Deserialize, Serialize};

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
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Began {
    /// What later requests of the worker contain.
    pub session: String,
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

/// For which build a file is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct For {
    /// A build that the worker has.
    pub attempt: String,
}

/// The body of a refusal.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    /// A clause for the worker's log.
    pub error: String,
}
