//! Whose rows are whose: the farm, the yard in it, and what the yard builds for.
//!
//! A store on one machine has one farm and one yard, which get their ids when the store is made. The ids are of use as soon as
//! rows of several yards meet in one database, or on one screen.

use crate::random_id::random_id;
use crate::target::Target;
use serde::{Deserialize, Serialize};

random_id! {
    /// The id of a farm: of all yards that share machines.
    FarmId
}

random_id! {
    /// The id of a yard. It stays when the yard is moved, copied to another machine or restored from a backup.
    YardId
}

/// What every row belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The farm.
    pub farm: FarmId,
    /// The yard.
    pub yard: YardId,
    /// What it builds for.
    pub target: Target,
}
