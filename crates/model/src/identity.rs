//! The ids of farms and yards, which say what the rows of a store belong to.
//!
//! A store on one machine has one farm and one yard, which get their ids when the store is made. The ids distinguish
//! rows of several yards in one database, or on one screen.

use crate::random_id::random_id;
use crate::target::Target;
use serde::{Deserialize, Serialize};

random_id! {
    /// The id of a farm, which is a group of yards that share machines.
    FarmId
}

random_id! {
    /// The id of a yard. It stays the same when the yard is moved, copied to another machine or restored from a backup.
    YardId
}

/// The farm, yard and target that rows of a store belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The farm of the yard.
    pub farm: FarmId,
    /// Unique across all farms.
    pub yard: YardId,
    /// The target that the yard builds for.
    pub target: Target,
}
