//! The cores of this machine: the jobserver and CPU weight of each build, and its demand.
//!
//! The owner begins and ends builds here, passes on the allotment, and calls [`Cores::sample`] several times a second,
//! which returns changes in demand and collects revoked tokens. A build without a token cannot show that it could use
//! one. It is therefore offered, in turn with others like it, the free cores and one core more than the machine has; a
//! token that it does not take returns immediately.
//!
//! Builds that ignore their jobserver, or have none, are measured by their processes, and limited by their weight.

use kilnyard_process::jobserver::{Broker, Style};
use kilnyard_process::weight::{Membership, Weights};
use kilnyard_schedule::{CoreSample, Demand};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// A build, by its number.
type Number = u64;

/// How often new processes get their weight if control groups are not available, in seconds.
const WEIGHED_EVERY_SECONDS: f64 = 1.0;

/// What the commands of a build need to take part.
#[derive(Clone, Debug)]
pub struct Share {
    /// Gives the build's processes their CPU weight.
    pub membership: Membership,
    /// The path of its jobserver; absent if it has none.
    pub jobserver: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Build {
    demand: Demand,
    /// The number of running or runnable processes in the last sample.
    runnable: u32,
    wants: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Cores {
    cores: u32,
    broker: Broker,
    weights: Weights,
    builds: BTreeMap<Number, Build>,
    /// The builds with cores, the highest rank first.
    order: Vec<Number>,
    /// The number of offers so far, so that builds take turns.
    offers: usize,
    weighed_seconds: f64,
}

impl Cores {
    /// Shares `cores` among the builds of one owner. The owner's name finds the control groups that a killed process
    /// left.
    pub fn new(owner: &str, cores: u32) -> Cores {
        let weights = Weights::find(owner);
        let (builds, order) = Default::default();
        Cores { cores, broker: Broker::new(cores), weights, builds, order, offers: 0, weighed_seconds: 0.0 }
    }

    /// Begins a build, with a jobserver if `jobserver` is given.
    pub fn begin(&mut self, build: Number, jobserver: Option<Style>) -> Share {
        self.builds.insert(build, Build { wants: 1, ..Build::default() });
        let path = match &jobserver {
            Some(Style::Named(path)) => Some(path.clone()),
            _ => None,
        };
        // If the pipe cannot be made, the build has only its weight.
        let is_there = jobserver.is_some_and(|style| self.broker.begin(build, style).is_ok());
        Share { membership: self.weights.begin(build), jobserver: path.filter(|_| is_there) }
    }

    /// Passes the jobserver to a command of this build, for commands without a root.
    pub fn hand_to(&self, build: Number, command: &mut Command) {
        self.broker.hand_to(build, command);
    }

    /// The CPU time of a build so far in seconds, if the kernel counts it.
    pub fn cpu_seconds(&self, build: Number) -> Option<f64> {
        self.weights.cpu_seconds(build)
    }

    /// Ends a build, whose processes must have ended.
    pub fn end(&mut self, build: Number) -> io::Result<()> {
        self.builds.remove(&build);
        self.order.retain(|other| *other != build);
        self.weights.end(build);
        self.broker.end(build)
    }

    /// Handles the beginning of a stage.
    pub fn stage_began(&mut self, build: Number) {
        if let Some(build) = self.builds.get_mut(&build) {
            build.demand.forget();
            build.runnable = 0;
        }
    }

    /// Handles a sample of a build's processes.
    pub fn counted(&mut self, build: Number, runnable: u32) {
        if let Some(build) = self.builds.get_mut(&build) {
            build.runnable = runnable;
        }
    }

    /// Sets the cores of each build, the highest rank first.
    pub fn allot(&mut self, cores: &[(Number, u32)]) -> io::Result<()> {
        self.order = cores.iter().map(|(build, _)| *build).collect();
        self.weights.order(&self.order);
        self.broker.allot(cores)
    }

    /// Samples all builds. Returns those whose demand changed, with the number of cores that they could use.
    pub fn sample(&mut self, now_seconds: f64) -> io::Result<Vec<(Number, u32)>> {
        let mut changes = Vec::new();
        for (number, build) in &mut self.builds {
            let sample = CoreSample {
                tokens: self.broker.tokens(*number),
                held: self.broker.held(*number)?,
                runnable: build.runnable,
            };
            let wants = build.demand.sample(now_seconds, sample, self.cores);
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

    /// Offers a token to builds that have none. A build that takes it could use it.
    fn offer(&mut self) -> io::Result<()> {
        let has_none = |build: &&Number| self.broker.tokens(**build) == 0 && self.builds.contains_key(*build);
        let silent: Vec<Number> = self.order.iter().filter(has_none).copied().collect();
        // One core too many does little harm, and without it a busy machine would never see the demand.
        let room = (self.cores + 1).saturating_sub(self.broker.cores_out()).max(self.broker.cores_free());
        let count = silent.len().min(room as usize);
        for offer in 0..count {
            self.broker.probe(silent[(self.offers + offer) % silent.len()])?;
        }
        self.offers = self.offers.wrapping_add(count);
        Ok(())
    }
}
