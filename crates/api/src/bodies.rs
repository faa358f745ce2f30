//! The bodies of requests and answers, and their parameters.

use kilnyard_model::scope::Scope;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};

/// The name of the site's own yard.
pub const OWN_YARD: &str = ".";

/// Who makes requests.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Who {
    /// The name that is the author of requests; absent without a token or login.
    pub name: Option<String>,
    /// What is allowed.
    #[schema(value_type = Vec<String>)]
    pub scopes: BTreeSet<Scope>,
    /// The yards that it is allowed in; absent for all.
    pub yards: Option<BTreeSet<String>>,
}

/// A yard of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Yard {
    /// Its name; `.` is the site's own.
    pub name: String,
    /// Its targets; a yard without targets has one without a name.
    pub targets: Vec<Target>,
    /// Why it cannot be read, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A target of a yard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// Its name; absent if the yard has no targets.
    pub name: Option<String>,
    /// The number of its last run; absent if there was none.
    pub run: Option<u64>,
    /// `running`, `finished`, `interrupted` or `killed`.
    pub state: Option<String>,
}

/// Asks a run for something.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The yard; the site's own by default.
    #[serde(default = "own_yard")]
    pub yard: String,
    /// The target, if the yard has several.
    #[serde(default)]
    pub target: Option<String>,
    /// What for.
    pub request: Kind,
    /// The packages.
    pub packages: Vec<String>,
}

/// What a run is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// To build failed packages again.
    Retry,
    /// To leave packages out.
    Skip,
    /// To build packages and their dependencies first.
    Bump,
}

/// A request was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Asked {
    /// The run that will do it; absent if it is the next one.
    pub run: Option<u64>,
}

/// Decides whether a worker gets builds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The name of a worker of the site.
    pub worker: String,
    /// What is decided.
    pub change: crate::queries::Hold,
}

/// Which requests are listed.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// The yard; the site's own by default.
    #[serde(default = "own_yard")]
    pub yard: String,
    /// The target, if the yard has several.
    #[serde(default)]
    pub target: Option<String>,
    /// How many of the latest ones at most: up to 1000.
    #[serde(default = "listed")]
    pub count: u32,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Made {
    /// The number of its event.
    pub seq: u64,
    /// When, in seconds since 1970.
    pub at_seconds: f64,
    /// What for.
    pub request: String,
    /// The package.
    pub package: Option<String>,
    /// Who made it; absent if a program of an older version recorded it.
    pub author: Option<String>,
}

/// The body of a refusal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// Why.
    pub error: String,
}

fn own_yard() -> String {
    OWN_YARD.to_owned()
}

fn listed() -> u32 {
    100
}
