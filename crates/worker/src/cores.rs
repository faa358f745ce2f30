//! Who has which cores of this machine now: the jobserver and the weight of each build, and what it could use.
//!
//! Whoever owns this begins and ends builds here, passes on what the coordinator allots, and calls [`Cores::look`] some
//! times a second: that says how many cores each build could use from now on, and settles what was taken back meanwhile.
//! A build that has no token cannot show that it could use one. So free cores, and one beyond those that there are, are
//! offered to such builds in turn; what nobody takes comes back at once.
//!
//! Builds that ignore their jobserver, or have none, are seen by their processes, and kept behind others by their weight.

use kilnyard_process::jobserver::{Broker, Style};
use kilnyard_process::weight::{Membership, Weights};
use kilnyard_schedule::{Demand, Look};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// A build, by its number.
type Number = u64;

/// How often weights are given to processes that are new, where there are no groups for them.
const WEIGHED_EVERY_SECONDS: f64 = 1.0;

/// What the commands of a build need of it.
#[derive(Clone, Debug)]
pub struct Share {
    /// The weight of its processes.
    pub membership: Membership,
    /// Where its jobserver is; none where it has none.
    pub jobserver: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Build {
    demand: Demand,
    /// Processes that ran or could run when they were last counted.
    runnable: u32,
    wants: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Cores {
    cores: u32,
    broker: Broker,
    weights: Weights,
    builds: BTreeMap<Number, Build>,
    /// The builds that were allotted cores, the highest rank first.
    order: Vec<Number>,
    /// How many offers were made, so that each build gets its turn.
    offers: usize,
    /// When weights were brought up to date last.
    weighed_seconds: f64,
}

impl Cores {
    /// So many cores of this machine, for builds of one owner, whose name tells what it left behind when it was killed.
    pub fn new(owner: &str, cores: u32) -> Cores {
        let weights = Weights::find(owner);
        let (builds, order) = Default::default();
        Cores { cores, broker: Broker::new(cores), weights, builds, order, offers: 0, weighed_seconds: 0.0 }
    }

    /// A build begins, with a jobserver of this style if it is to have one.
    pub fn begin(&mut self, build: Number, jobserver: Option<Style>) -> Share {
        self.builds.insert(build, Build { wants: 1, ..Build::default() });
        let path = match &jobserver {
            Some(Style::Named(path)) => Some(path.clone()),
            _ => None,
        };
        // Without a pipe it goes on, with its weight alone.
        let is_there = jobserver.is_some_and(|style| self.broker.begin(build, style).is_ok());
        Share { membership: self.weights.begin(build), jobserver: path.filter(|_| is_there) }
    }

    /// Lets a command, which must be of this build, know its jobserver; for commands without a root.
    pub fn hand_to(&self, build: Number, command: &mut Command) {
        self.broker.hand_to(build, command);
    }

    /// The CPU time of a build so far, where the kernel tells.
    pub fn cpu_seconds(&self, build: Number) -> Option<f64> {
        self.weights.cpu_seconds(build)
    }

    /// A build ended, with all its processes.
    pub fn end(&mut self, build: Number) -> io::Result<()> {
        self.builds.remove(&build);
        self.order.retain(|other| *other != build);
        self.weights.end(build);
        self.broker.end(build)
    }

    /// A build is in another stage.
    pub fn stage_began(&mut self, build: Number) {
        if let Some(build) = self.builds.get_mut(&build) {
            build.demand.forget();
            build.runnable = 0;
        }
    }

    /// The processes of a build were counted.
    pub fn counted(&mut self, build: Number, runnable: u32) {
        if let Some(build) = self.builds.get_mut(&build) {
            build.runnable = runnable;
        }
    }

    /// From now on these builds have so many cores, the highest rank first.
    pub fn allot(&mut self, cores: &[(Number, u32)]) -> io::Result<()> {
        self.order = cores.iter().map(|(build, _)| *build).collect();
        self.weights.order(&self.order);
        self.broker.allot(cores)
    }

    /// Looks at all builds; those that could use another number of cores than before, with that number.
    pub fn look(&mut self, now_seconds: f64) -> io::Result<Vec<(Number, u32)>> {
        let mut changes = Vec::new();
        for (number, build) in &mut self.builds {
            let look = Look {
                tokens: self.broker.tokens(*number),
                held: self.broker.held(*number)?,
                runnable: build.runnable,
            };
            let wants = build.demand.look(now_seconds, look, self.cores);
            if wants != build.wants {
                build.wants = wants;
                changes.push((*number, wants));
            }
        }
        self.broker.settle()?;
        if now_seconds - self.weighed_seconds >= WEIGHED_EVERY_SECONDS {
            self.weighed_seconds = now_seconds;
            self.weights.settle();
        }
        self.offer()?;
        Ok(changes)
    }

    /// Offers a token to builds that have none: whether they take it tells whether they could use it.
    fn offer(&mut self) -> io::Result<()> {
        let has_none = |build: &&Number| self.broker.tokens(**build) == 0 && self.builds.contains_key(*build);
        let silent: Vec<Number> = self.order.iter().filter(has_none).copied().collect();
        // One core too many does little harm, and without it a busy machine would never learn of a demand.
        let room = (self.cores + 1).saturating_sub(self.broker.cores_out()).max(self.broker.cores_free());
        let count = silent.len().min(room as usize);
        for offer in 0..count {
            self.broker.probe(silent[(self.offers + offer) % silent.len()])?;
        }
        self.offers = self.offers.wrapping_add(count);
        Ok(())
    }
}
