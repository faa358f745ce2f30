//! Shares CPU time among the builds of this machine in rank order.
//!
//! A jobserver gives cores to the builds that ask it. The kernel keeps builds that ignore the jobserver, or start
//! with a fixed number of jobs, behind builds of higher rank: each build is in a control group whose weight follows
//! the rank, or, without control groups, has a nice level that does. Weights matter only when more threads want to
//! run than there are CPUs: a build of low rank gets all the time that the others leave.
//!
//! [`Weights::find`] tries the mechanisms and takes the best one that works: cgroup v2 if the group that Kilnyard was
//! started in is its own, cgroup v1 if it may create groups there, and nice levels otherwise. No privilege is
//! required: builds run even if a weight cannot be set, and [`Weights::first_error`] reports why.
//!
//! The owner of [`Weights`] calls [`Weights::begin`], [`Weights::order`] and [`Weights::end`], and
//! [`Weights::settle`] now and then. The thread that runs a build has a [`Membership`]. It makes the outer process of
//! each sandbox enter before that process starts others, so that all its descendants are in the group too.
//!
//! Known downsides: the processes of one build share its time evenly, whatever they do. Without control groups and
//! privilege, a process that fell in rank cannot rise again (see [`Mechanism::NiceLevels`]).

mod group;
mod namespace;
mod nice;
mod scale;
mod version1;
mod version2;

use crate::groups::folder;
use group::Groups;
use nice::{Nice, Scope};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::jobserver::BuildNumber;

/// A mechanism to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cgroup v2.
    GroupsVersion2,
    /// Cgroup v1.
    GroupsVersion1,
    /// Nice levels, for which no privilege is needed.
    Nice,
}

impl Kind {
    /// All mechanisms, the best first.
    pub const ALL: [Kind; 3] = [Kind::GroupsVersion2, Kind::GroupsVersion1, Kind::Nice];

    fn words(self) -> &'static str {
        match self {
            Kind::GroupsVersion2 => "cgroup v2",
            Kind::GroupsVersion1 => "cgroup v1",
            Kind::Nice => "nice levels",
        }
    }
}

/// The mechanism in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// A cgroup v2 for each build, in this folder.
    GroupsVersion2(PathBuf),
    /// A cgroup v1 for each build, in this folder.
    GroupsVersion1(PathBuf),
    /// Nice levels of sessions: each command of a build is a session.
    NiceSessions,
    /// Nice levels of each build's processes.
    NiceLevels {
        /// Whether this user may lower them. If not, a build that rises in rank gets its level with its next command,
        /// and meanwhile the builds ranked below it are lowered further.
        can_lower: bool,
    },
    /// No mechanism works: the kernel shares evenly among all processes, or among all sessions.
    Nothing,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mechanism::GroupsVersion2(folder) => {
                write!(f, "cgroup v2 (cpu.weight) in {}", folder.display())
            }
            Mechanism::GroupsVersion1(folder) => {
                write!(f, "cgroup v1 (cpu.shares) in {}", folder.display())
            }
            Mechanism::NiceSessions => f.write_str("nice levels of sessions"),
            Mechanism::NiceLevels { can_lower: true } => f.write_str("nice levels of processes"),
            Mechanism::NiceLevels { can_lower: false } => f.write_str(
                "nice levels of processes, which this user may raise but not lower: \
                 a build that rises in rank gets more CPU time with its next command",
            ),
            Mechanism::Nothing => f.write_str("none: all processes share the CPUs evenly"),
        }
    }
}

#[derive(Debug)]
enum Tool {
    Groups {
        groups: Groups,
        /// Fields drop in order: the groups of builds are removed before Kilnyard leaves its own.
        _supervisor: Option<version2::Supervisor>,
    },
    Nice(Nice),
    Nothing,
}

/// See the module documentation. Dropping it removes all groups that it made, except those that still have processes.
#[derive(Debug)]
pub struct Weights {
    tool: Tool,
    way: Mechanism,
    obstacles: Vec<String>,
    first_error: Option<String>,
}

impl Weights {
    /// Takes the best mechanism that works for this process. `owner` names the owner of the builds, such as a yard;
    /// groups left behind by a killed owner of the same name are removed. If Kilnyard is alone in a delegated cgroup
    /// v2, this moves it and all processes it has started into a child of that group.
    pub fn find(owner: &str) -> Weights {
        Weights::find_among(owner, &Kind::ALL)
    }

    /// Like [`Weights::find`], but takes the first of these mechanisms that works.
    pub fn find_among(owner: &str, kinds: &[Kind]) -> Weights {
        let mut obstacles = Vec::new();
        for kind in kinds {
            match try_one(*kind, owner) {
                Ok((tool, way)) => return Weights { tool, way, obstacles, first_error: None },
                Err(reason) => obstacles.push(format!("{}: {reason}", kind.words())),
            }
        }
        Weights { tool: Tool::Nothing, way: Mechanism::Nothing, obstacles, first_error: None }
    }

    /// The mechanism in use.
    pub fn mechanism(&self) -> &Mechanism {
        &self.way
    }

    /// Why no better mechanism is used, with one line for each that failed.
    pub fn obstacles(&self) -> &[String] {
        &self.obstacles
    }

    /// The first error since then, if any.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Begins a build, ranked below all builds that [`Weights::order`] has named. Its processes enter the result.
    pub fn begin(&mut self, build: BuildNumber) -> Membership {
        let entry = match &mut self.tool {
            Tool::Groups { groups, .. } => match groups.begin(build) {
                Ok(folders) => {
                    Entry::Groups { folders, are_version2: matches!(self.way, Mechanism::GroupsVersion2(_)) }
                }
                Err(error) => {
                    self.keep("make the control group of a build", Err(error));
                    Entry::Nothing
                }
            },
            Tool::Nice(nice) => Entry::Nice(nice.begin(build)),
            Tool::Nothing => Entry::Nothing,
        };
        Membership(entry)
    }

    /// Sets the order in which builds get CPU time, highest rank first. Builds that are not named get the least. Only
    /// changes are written.
    pub fn order(&mut self, builds: &[BuildNumber]) {
        let outcome = match &mut self.tool {
            Tool::Groups { groups, .. } => {
                groups.remove_lingering();
                groups.order(builds)
            }
            Tool::Nice(nice) => nice.order(builds),
            Tool::Nothing => Ok(()),
        };
        self.keep("set the CPU weight of a build", outcome);
    }

    /// Finishes what could not be done immediately: removes groups whose last process has ended, and gives new sessions
    /// their level. Call it about once a second.
    pub fn settle(&mut self) {
        let outcome = match &mut self.tool {
            Tool::Groups { groups, .. } => {
                groups.remove_lingering();
                Ok(())
            }
            Tool::Nice(nice) => nice.settle(),
            Tool::Nothing => Ok(()),
        };
        self.keep("set the CPU weight of a build", outcome);
    }

    /// CPU seconds used by all processes of a build, including those that were never waited for. `None` if no group
    /// counts them.
    pub fn cpu_seconds(&self, build: BuildNumber) -> Option<f64> {
        match &self.tool {
            Tool::Groups { groups, .. } => groups.cpu_seconds(build),
            Tool::Nice(_) | Tool::Nothing => None,
        }
    }

    /// Ends a build. Its group is removed now, or once its last process has ended.
    pub fn end(&mut self, build: BuildNumber) {
        match &mut self.tool {
            Tool::Groups { groups, .. } => groups.end(build),
            Tool::Nice(nice) => nice.end(build),
            Tool::Nothing => {}
        }
    }

    fn keep(&mut self, step: &str, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.first_error.get_or_insert_with(|| format!("failed to {step}: {error}"));
        }
    }
}

fn try_one(kind: Kind, owner: &str) -> Result<(Tool, Mechanism), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    match kind {
        Kind::GroupsVersion2 => version2::find(owner, cpus).map(|(groups, supervisor)| {
            let way = Mechanism::GroupsVersion2(groups.folder().to_owned());
            (Tool::Groups { groups, _supervisor: Some(supervisor) }, way)
        }),
        Kind::GroupsVersion1 => version1::find(owner, cpus).map(|groups| {
            let way = Mechanism::GroupsVersion1(groups.folder().to_owned());
            (Tool::Groups { groups, _supervisor: None }, way)
        }),
        Kind::Nice => Nice::find().map(|nice| {
            let way = match nice.scope() {
                Scope::Sessions => Mechanism::NiceSessions,
                Scope::Processes { can_lower } => Mechanism::NiceLevels { can_lower },
            };
            (Tool::Nice(nice), way)
        }),
    }
}

#[derive(Clone, Debug)]
enum Entry {
    Groups { folders: Arc<[PathBuf]>, are_version2: bool },
    Nice(nice::Entry),
    Nothing,
}

/// Makes processes part of a build, for the thread that starts them.
#[derive(Clone, Debug)]
pub struct Membership(Entry);

impl Membership {
    /// The groups to start a sandbox of the build in.
    pub(crate) fn groups(&self) -> kilnyard_root::sandbox::Groups {
        let (version_1, version_2) = match &self.0 {
            Entry::Groups { folders, are_version2: false } => (folders.to_vec(), None),
            Entry::Groups { folders, are_version2: true } => (Vec::new(), folders.first().cloned()),
            Entry::Nice(_) | Entry::Nothing => (Vec::new(), None),
        };
        kilnyard_root::sandbox::Groups { version_1, version_2 }
    }

    /// Sets the nice level of a process, where nice levels are the mechanism. The process must be a waiting child of
    /// this one that has not started others, such as the outer process of a sandbox before it has read its
    /// description.
    pub(crate) fn level(&self, pid: u32) -> io::Result<()> {
        match &self.0 {
            Entry::Nice(entry) => entry.enter(pid),
            Entry::Groups { .. } | Entry::Nothing => Ok(()),
        }
    }

    /// Moves a process that was started outside the group into it. The process must be a waiting child of this one
    /// that has not started others; all that it starts from now on belongs to the build. This fails if the build has
    /// ended or the process is gone; the build can run without it. A move takes the kernel some ten milliseconds.
    pub fn enter(&self, pid: u32) -> io::Result<()> {
        match &self.0 {
            // Try all of them: a process that is not counted may still be weighted.
            Entry::Groups { folders, .. } => {
                folders.iter().map(|folder| folder::enter(folder, pid)).fold(Ok(()), io::Result::and)
            }
            Entry::Nice(_) | Entry::Nothing => self.level(pid),
        }
    }

    /// The cgroup v2 of the build. It may have children, whose processes are in this group too.
    pub(crate) fn group(&self) -> Option<&Path> {
        match &self.0 {
            Entry::Groups { folders, are_version2: true } => folders.first().map(PathBuf::as_path),
            Entry::Groups { .. } | Entry::Nice(_) | Entry::Nothing => None,
        }
    }
}
