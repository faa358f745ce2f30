//! How the kernel shares CPU time among the builds of this machine: in rank order.
//!
//! A jobserver gives cores to those who ask it. What ignores it, or is started with a fixed number of jobs, is kept
//! behind builds of higher rank by the kernel: each build is in a control group, whose weight follows the rank, or, where
//! there are none, has a nice level that does. Weights act only where there are more who want to run than CPUs: a build
//! of low rank has all that the others leave.
//!
//! [`Weights::find`] takes the best way that works here, by trying it: control groups of version 2 where the group that
//! Kilnyard was started in is its own, of version 1 where it may make some, and nice levels otherwise. Nobody has to have
//! any privilege for builds to go on: what cannot be set is told by [`Weights::first_error`], and that is all.
//!
//! The owner of [`Weights`] calls [`Weights::begin`], [`Weights::order`] and [`Weights::end`], and [`Weights::settle`] now
//! and then. The thread that runs a build has a [`Membership`], and lets the outer process of each sandbox enter before
//! that one starts others, so that all below it is in the group too.
//!
//! Known downsides: the processes of one build share evenly among themselves whatever they do. Without control
//! groups and privilege, a process that fell in rank cannot rise again (see [`Way::NiceLevels`]).

mod group;
mod namespace;
mod nice;
mod scale;
mod version1;
mod version2;

use crate::groups::folder;
use group::Groups;
use nice::{Means, Nice};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::jobserver::BuildNumber;

/// A kind of way, to choose among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Control groups of version 2.
    GroupsVersion2,
    /// Control groups of version 1.
    GroupsVersion1,
    /// Nice levels.
    Nice,
}

impl Kind {
    /// All of them, the best first.
    pub const ALL: [Kind; 3] = [Kind::GroupsVersion2, Kind::GroupsVersion1, Kind::Nice];

    fn words(self) -> &'static str {
        match self {
            Kind::GroupsVersion2 => "control groups of version 2",
            Kind::GroupsVersion1 => "control groups of version 1",
            Kind::Nice => "nice levels",
        }
    }
}

/// The way that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A control group of version 2 for each build, in this folder.
    GroupsVersion2(PathBuf),
    /// A control group of version 1 for each build, in this folder.
    GroupsVersion1(PathBuf),
    /// Nice levels of the sessions of each build's commands.
    NiceSessions,
    /// Nice levels of each build's processes.
    NiceLevels {
        /// Whether they can be lowered. Otherwise a build that rises in rank gets its level when its next command starts,
        /// and those of higher number go further down meanwhile.
        can_lower: bool,
    },
    /// The kernel shares evenly among all processes, or among all sessions.
    Nothing,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::GroupsVersion2(folder) => {
                write!(f, "control groups of version 2 (cpu.weight) in {}", folder.display())
            }
            Way::GroupsVersion1(folder) => {
                write!(f, "control groups of version 1 (cpu.shares) in {}", folder.display())
            }
            Way::NiceSessions => f.write_str("nice levels of sessions"),
            Way::NiceLevels { can_lower: true } => f.write_str("nice levels of processes"),
            Way::NiceLevels { can_lower: false } => f.write_str(
                "nice levels of processes, which this user can raise and not lower: \
                 a build that comes up in rank gets more CPU time with its next command",
            ),
            Way::Nothing => f.write_str("none: all processes share the CPUs evenly"),
        }
    }
}

#[derive(Debug)]
enum Tool {
    Groups {
        groups: Groups,
        /// Dropped after the groups, in the order of the fields: they go before Kilnyard leaves its own.
        _supervisor: Option<version2::Supervisor>,
    },
    Nice(Nice),
    Nothing,
}

/// See the module. Dropping it removes all that it made, as far as no process is in it any more.
#[derive(Debug)]
pub struct Weights {
    tool: Tool,
    way: Way,
    in_the_way: Vec<String>,
    first_error: Option<String>,
}

impl Weights {
    /// Takes the best way that works for this process. `owner` names whose builds they are, such as one yard: groups that an
    /// owner of the same name left when it was killed are removed. Where Kilnyard is alone in a delegated group of
    /// version 2, this moves it, and all processes it has started, into a child of that.
    pub fn find(owner: &str) -> Weights {
        Weights::find_among(owner, &Kind::ALL)
    }

    /// Like [`Weights::find`], but takes only these, the first that works.
    pub fn find_among(owner: &str, kinds: &[Kind]) -> Weights {
        let mut in_the_way = Vec::new();
        for kind in kinds {
            match try_one(*kind, owner) {
                Ok((tool, way)) => return Weights { tool, way, in_the_way, first_error: None },
                Err(reason) => in_the_way.push(format!("{}: {reason}", kind.words())),
            }
        }
        Weights { tool: Tool::Nothing, way: Way::Nothing, in_the_way, first_error: None }
    }

    /// The way that is used.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Why no better way is used: a line for each that was tried.
    pub fn in_the_way(&self) -> &[String] {
        &self.in_the_way
    }

    /// The first thing that went wrong since, if anything.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Begins a build, with less CPU time than all that [`Weights::order`] has named. What its processes enter.
    pub fn begin(&mut self, build: BuildNumber) -> Membership {
        let entry = match &mut self.tool {
            Tool::Groups { groups, .. } => match groups.begin(build) {
                Ok(folders) => {
                    Entry::Groups { folders, are_version2: matches!(self.way, Way::GroupsVersion2(_)) }
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

    /// Says in which order builds get CPU time, the first first. Those that are not named have the least. Only
    /// what changed is written.
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

    /// Does what could not be done at once: removes groups whose last process has ended, and gives sessions that
    /// are new their level. To be called about once a second.
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

    /// The CPU seconds that all processes of a build have used, also those that nobody has waited for. None where no
    /// group counts them.
    pub fn cpu_seconds(&self, build: BuildNumber) -> Option<f64> {
        match &self.tool {
            Tool::Groups { groups, .. } => groups.cpu_seconds(build),
            Tool::Nice(_) | Tool::Nothing => None,
        }
    }

    /// Ends a build. Its group is removed, now or when its last process has ended.
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

fn try_one(kind: Kind, owner: &str) -> Result<(Tool, Way), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    match kind {
        Kind::GroupsVersion2 => version2::find(owner, cpus).map(|(groups, supervisor)| {
            let way = Way::GroupsVersion2(groups.folder().to_owned());
            (Tool::Groups { groups, _supervisor: Some(supervisor) }, way)
        }),
        Kind::GroupsVersion1 => version1::find(owner, cpus).map(|groups| {
            let way = Way::GroupsVersion1(groups.folder().to_owned());
            (Tool::Groups { groups, _supervisor: None }, way)
        }),
        Kind::Nice => Nice::find().map(|nice| {
            let way = match nice.means() {
                Means::Sessions => Way::NiceSessions,
                Means::Processes { can_lower } => Way::NiceLevels { can_lower },
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

/// How processes become a build's, for the thread that starts them.
#[derive(Clone, Debug)]
pub struct Membership(Entry);

impl Membership {
    /// The groups that a sandbox of the build is to be begun in.
    pub(crate) fn groups(&self) -> kilnyard_root::sandbox::Groups {
        let (version_1, version_2) = match &self.0 {
            Entry::Groups { folders, are_version2: false } => (folders.to_vec(), None),
            Entry::Groups { folders, are_version2: true } => (Vec::new(), folders.first().cloned()),
            Entry::Nice(_) | Entry::Nothing => (Vec::new(), None),
        };
        kilnyard_root::sandbox::Groups { version_1, version_2 }
    }

    /// Gives a process its nice level, where that is the way: one that was just started by this one, has not started others,
    /// and waits, such as the outer process of a sandbox before it has read its description.
    pub(crate) fn level(&self, pid: u32) -> io::Result<()> {
        match &self.0 {
            Entry::Nice(entry) => entry.enter(pid),
            Entry::Groups { .. } | Entry::Nothing => Ok(()),
        }
    }

    /// Lets a process enter that was started in no group: one that was just started by this one, has not started others, and
    /// waits. What it starts from now on belongs to the build. The build can go on without, when this fails: where the build
    /// has ended, or the process is gone. To move a process takes the kernel some ten milliseconds.
    pub fn enter(&self, pid: u32) -> io::Result<()> {
        match &self.0 {
            // Each of them: what is not counted may still be weighed.
            Entry::Groups { folders, .. } => {
                folders.iter().map(|folder| folder::enter(folder, pid)).fold(Ok(()), io::Result::and)
            }
            Entry::Nice(_) | Entry::Nothing => self.level(pid),
        }
    }

    /// The group of version 2, which may have others in it: who is in one of those is in this one.
    pub(crate) fn group(&self) -> Option<&Path> {
        match &self.0 {
            Entry::Groups { folders, are_version2: true } => folders.first().map(PathBuf::as_path),
            Entry::Groups { .. } | Entry::Nice(_) | Entry::Nothing => None,
        }
    }
}
