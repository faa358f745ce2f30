//! What can be asked of a yard (`GET /api/v1/…`): one parameter type for each question, and the [`Facts`] that answer.

use crate::bodies::OWN_YARD;
use crate::requests::Trouble;
use bytes::Bytes;
use kilnyard_schema::Page;
use kilnyard_schema::compare::{Difference, Impact};
use kilnyard_schema::measure::Figures;
use kilnyard_schema::package::{Build, Found, Output, PackageHistory, PackageOfRun, Why};
use kilnyard_schema::run::{Failures, Live, Queued, Run, Status};
use serde::Deserialize;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use utoipa::IntoParams;

/// The most entries of a part of a list.
pub const COUNT_MAX: usize = 1000;

/// A yard, and its target if it has several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The name of the yard.
    pub yard: String,
    /// The name of the target; absent for the only one.
    pub target: Option<String>,
}

impl Default for At {
    fn default() -> At {
        At { yard: OWN_YARD.to_owned(), target: None }
    }
}

/// A file with the text of a log, or with a compressed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The stage whose log it is.
    pub stage: String,
    /// The compressed file (zstd), once its stage has ended.
    pub compressed: Option<PathBuf>,
    /// Whether it is being written.
    pub is_open: bool,
}

/// An event of the feed, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Its number.
    pub seq: u64,
    /// Its type.
    pub kind: String,
    /// The run that it is about.
    pub run: Option<u64>,
    /// The package that it is about.
    pub package: Option<String>,
    /// The event as one line of JSON.
    pub json: Bytes,
}

/// Whom a page is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// Their name; absent without a token or login.
    pub name: Option<String>,
    /// Whether they may ask for something, so that the page has buttons.
    pub may_ask: bool,
}

/// Whether a worker gets builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// It gets no more builds; those in progress continue.
    Drain,
    /// It gets builds, though a user has to approve new workers of its pool.
    Approve,
    /// It gets builds again.
    Resume,
}

/// Answers questions about the yards of a site. The caller has checked who asks. `run` is the last one if it is absent.
///
/// # Errors
/// All of them: [`Trouble::Absent`] if there is no such yard, target, run, package or build.
pub trait Facts: fmt::Debug + Send + Sync + 'static {
    /// All runs, the latest first.
    fn runs(&self, at: &At) -> Result<Vec<Run>, Trouble>;
    /// The state of a run.
    fn status(&self, at: &At, run: Option<u64>) -> Result<Status, Trouble>;
    /// The failures of a run by cause, compared with the run before.
    fn failures(&self, at: &At, run: Option<u64>) -> Result<Failures, Trouble>;
    /// What waits in the current run, for what, and when it is expected to start.
    fn queue(&self, at: &At) -> Result<Vec<Queued>, Trouble>;
    /// The packages of a run.
    fn packages(
        &self,
        at: &At,
        run: Option<u64>,
        filter: &PackageFilter,
    ) -> Result<Page<PackageOfRun>, Trouble>;
    /// The builds of a run, by number.
    fn builds(
        &self,
        at: &At,
        run: Option<u64>,
        after: Option<&str>,
        count: usize,
    ) -> Result<Page<Build>, Trouble>;
    /// The latest builds of a package.
    fn builds_of(&self, at: &At, package: &str, count: usize) -> Result<Vec<Build>, Trouble>;
    /// Why a package is in its state.
    fn why(&self, at: &At, package: &str) -> Result<Why, Trouble>;
    /// The history of a package, and its place in the set.
    fn history(&self, at: &At, package: &str, count: usize) -> Result<PackageHistory, Trouble>;
    /// The difference of two runs.
    fn difference(&self, at: &At, earlier: Option<u64>, later: Option<u64>) -> Result<Difference, Trouble>;
    /// What a change of packages would rebuild.
    fn impact(&self, at: &At, packages: &[String]) -> Result<Impact, Trouble>;
    /// The workers of the site and their state, as `kilnyard workers --json` prints them.
    fn workers(&self, at: &At) -> Result<serde_json::Value, Trouble>;
    /// The files of the repository.
    fn outputs(&self, at: &At) -> Result<Vec<Output>, Trouble>;
    /// Times of the latest runs.
    fn figures(&self, at: &At, runs: usize, package: Option<&str>) -> Result<Figures, Trouble>;
    /// Packages whose names or failures contain a text.
    fn search(&self, at: &At, text: &str, count: usize) -> Result<Vec<Found>, Trouble>;
    /// What only the process of the current run knows.
    fn live(&self, at: &At) -> Result<Live, Trouble>;
    /// The log of a stage of a build; of the telling one if no stage is named.
    fn log(&self, at: &At, log: &LogOf) -> Result<LogFile, Trouble>;
    /// The text of a log, from the byte `offset` on.
    fn log_reader(&self, at: &At, log: &LogOf, offset: u64) -> Result<Box<dyn Read + Send>, Trouble>;
    /// Events with numbers above `after`, in order.
    fn events(&self, at: &At, after: u64, count: usize) -> Result<Vec<FeedEvent>, Trouble>;
    /// A reader of the events of a yard.
    fn follow(&self, at: &At) -> Result<Box<dyn crate::feed::Follow>, Trouble>;
    /// The number of the latest event.
    fn last_event(&self, at: &At) -> Result<u64, Trouble>;
    /// Decides whether a worker of the site gets builds.
    fn hold(&self, worker: &str, hold: Hold, author: &str) -> Result<(), Trouble>;
    /// A page for people, as HTML.
    fn page(&self, at: &At, page: &crate::pages::Wanted, viewer: &Viewer) -> Result<String, Trouble>;
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOf {
    /// The package.
    pub package: String,
    /// The number of its build.
    pub build: u64,
    /// The stage; absent for the one that failed, else the one that is running, else `build`.
    pub stage: Option<String>,
}

/// Which packages of a run are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageFilter {
    /// Only those in one of these states; empty for all.
    pub states: Vec<String>,
    /// Only those whose name contains this.
    pub text: Option<String>,
    /// By what they are ordered.
    pub order: Order,
    /// The end of the part before.
    pub after: Option<String>,
    /// How many at most.
    pub count: usize,
}

/// An order of packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// By name.
    #[default]
    Name,
    /// By the duration of the last build, the longest first.
    Wall,
    /// By CPU time of the last build, the most first.
    Cpu,
    /// By peak memory of the last build, the most first.
    Memory,
    /// By what needs attention, then by name: failed, being built, blocked, built, others.
    State,
}

/// A struct of parameters, with the yard and target that all of them have.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            /// The yard; the site's own by default.
            #[serde(default = "own_yard")]
            pub yard: String,
            /// The target, if the yard has several.
            #[serde(default)]
            pub target: Option<String>,
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $name {
            /// The yard and its target.
            pub fn at(&self) -> At {
                At { yard: self.yard.clone(), target: self.target.clone() }
            }
        }
    };
}

parameters! {
    /// Which yard is asked.
    Here {}
}
parameters! {
    /// Which part of a list is sent.
    Part {
        /// `next` of the part before.
        #[serde(default)]
        cursor: Option<String>,
        /// How many entries at most, up to 1000.
        #[serde(default = "hundred")]
        count: usize,
    }
}
parameters! {
    /// Which packages are sent.
    Packages {
        /// States, separated by commas.
        #[serde(default)]
        state: Option<String>,
        /// A part of the name.
        #[serde(default)]
        name: Option<String>,
        /// The order.
        #[serde(default)]
        #[param(inline)]
        order: Order,
        /// `next` of the part before.
        #[serde(default)]
        cursor: Option<String>,
        /// How many entries at most, up to 1000.
        #[serde(default = "hundred")]
        count: usize,
    }
}
parameters! {
    /// Which runs are compared.
    Compared {
        /// The earlier run; the one before `later` by default.
        #[serde(default)]
        earlier: Option<u64>,
        /// The later run; the last one by default.
        #[serde(default)]
        later: Option<u64>,
    }
}
parameters! {
    /// Which packages would change.
    Changed {
        /// Names, separated by commas.
        packages: String,
    }
}
parameters! {
    /// What times are of.
    Measured {
        /// The number of latest runs.
        #[serde(default = "ten")]
        runs: usize,
        /// Only this package.
        #[serde(default)]
        package: Option<String>,
    }
}
parameters! {
    /// What is searched for.
    Searched {
        /// A part of a name, of a reason or of a line about a failure.
        text: String,
        /// How many at most, up to 1000.
        #[serde(default = "hundred")]
        count: usize,
    }
}
parameters! {
    /// Which part of a log is sent. A `Range` header with one range of bytes does the same.
    LogPart {
        /// The stage; by default the one that failed, else the one that is running, else `build`.
        #[serde(default)]
        stage: Option<String>,
        /// From this byte on; a negative number counts from the end.
        #[serde(default)]
        from: i64,
        /// Whether the answer continues as the log grows, until its stage ends.
        #[serde(default)]
        follow: bool,
    }
}
parameters! {
    /// Which events are sent.
    EventsOf {
        /// Those with higher numbers. By default, the feed begins with what happens next, and a list with the first event that is
        /// there.
        #[serde(default)]
        after: Option<u64>,
        /// How many of a list, up to 10,000.
        #[serde(default = "thousand")]
        count: usize,
        /// How long a list that would be empty waits for events, up to 60 seconds.
        #[serde(default)]
        wait: f64,
        /// Only those of this run.
        #[serde(default)]
        run: Option<u64>,
        /// Only those about this package.
        #[serde(default)]
        package: Option<String>,
        /// Only these types, separated by commas.
        #[serde(default)]
        types: Option<String>,
        /// Whether the feed has samples of builds, too: events without a number, of the type `live`.
        #[serde(default)]
        live: bool,
    }
}

fn own_yard() -> String {
    OWN_YARD.to_owned()
}

fn ten() -> usize {
    10
}

fn hundred() -> usize {
    100
}

fn thousand() -> usize {
    1000
}

impl PackageFilter {
    /// The filter that these parameters describe.
    pub fn of(packages: &Packages) -> PackageFilter {
        PackageFilter {
            states: listed(packages.state.as_deref()),
            text: packages.name.clone().filter(|name| !name.is_empty()),
            order: packages.order,
            after: packages.cursor.clone(),
            count: packages.count.min(COUNT_MAX),
        }
    }
}

/// Words that are separated by commas.
pub fn listed(words: Option<&str>) -> Vec<String> {
    let words = words.unwrap_or("").split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
