//! A worker's process: the shipped agent, and builds that take time.

use crate::random::Random;
use kilnyard_agent::{Action, Agent, Event};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::result::{Failure, FailureKind, Measures, StageResult};
use kilnyard_protocol::{BuildResult, Built, Hello, Lease, Progress, ToCoordinator, ToWorker, Versions};
use kilnyard_schedule::Pressure;
use std::collections::{BTreeMap, BTreeSet};

/// A build in a worker's process.
#[derive(Clone, Debug)]
struct Building {
    build: u64,
    package: String,
    /// The outputs of another worker, if it tests them.
    to_test: Option<Vec<Output>>,
    outcome: Option<FailureKind>,
    is_cancelled: bool,
    /// Incremented whenever the next step changes.
    step: u64,
}

/// A step of a build, due some time later.
#[derive(Clone, Debug)]
pub struct Due {
    pub after_seconds: f64,
    pub attempt: Attempt,
    pub number: u64,
    pub step: Step,
}

/// The next step of a build.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Prepared,
    Wants,
    StageEnds,
    Builds,
    Ends,
}

/// The output of a worker's process.
#[derive(Debug, Default)]
pub struct Done {
    pub sent: Vec<ToCoordinator>,
    pub due: Vec<Due>,
    pub begun: Vec<Attempt>,
    /// The worker left.
    pub is_over: bool,
    /// A violation, if there was one.
    pub complaint: Option<String>,
}

/// The fates of builds.
#[derive(Clone, Copy, Debug)]
pub struct Fates {
    pub build_seconds_max: f64,
    pub failures_per_mille: u64,
}

/// See the module documentation.
pub struct Process {
    agent: Agent,
    slots: u32,
    cores: u32,
    building: BTreeMap<Attempt, Building>,
    fates: Fates,
    /// Whether it tests what it builds.
    tests: bool,
    /// The announced builds that it prepares.
    preparing: BTreeSet<Attempt>,
}

/// The outputs of a build, which name their attempt.
pub fn outputs(package: &str, attempt: Attempt) -> Vec<Output> {
    vec![Output {
        name: package.to_owned(),
        version: "1".into(),
        architecture: "any".into(),
        file: package.to_owned(),
        sha256: String::new(),
        size_bytes: 1,
        content: attempt.to_string(),
        description: String::new(),
        digests: Default::default(),
    }]
}

impl Process {
    pub fn new(worker: usize, life: u64, cores: u32, fates: Fates, tests: bool) -> Process {
        let hello = Hello {
            worker: name(worker),
            process: format!("{worker}-{life}"),
            versions: Versions::OURS,
            cores,
            speed: 1.0,
            memory_bytes: None,
            disk_bytes: None,
            host: None,
            warm: Vec::new(),
            kept: Vec::new(),
        };
        Process {
            agent: Agent::new(hello),
            slots: 0,
            cores: 0,
            building: BTreeMap::new(),
            fates,
            tests,
            preparing: BTreeSet::new(),
        }
    }

    pub fn apply(&mut self, now_seconds: f64, event: Event, random: &mut Random) -> Done {
        let mut done = Done::default();
        if let Event::Received(message) = &event
            && let ToWorker::Welcome(welcome) = &**message
        {
            self.slots = welcome.slots;
            self.cores = welcome.cores;
        }
        let mut actions = Vec::new();
        self.agent.apply(now_seconds, event, &mut actions);
        for action in actions {
            match action {
                Action::Send(message) => done.sent.push(message),
                Action::Prepare(lease) => {
                    let attempt = lease.attempt;
                    if self.building.contains_key(&attempt) || !self.preparing.insert(attempt) {
                        done.complaint = Some(format!("{attempt} is prepared twice, or too late"));
                    }
                    let after_seconds = random.seconds(30.0);
                    done.due.push(Due { after_seconds, attempt, number: 0, step: Step::Prepared });
                }
                Action::Abandon(attempt) => {
                    if !self.preparing.contains(&attempt) {
                        done.complaint = Some(format!("{attempt} is abandoned, but not prepared"));
                    }
                    let after_seconds = random.seconds(1.0);
                    done.due.push(Due { after_seconds, attempt, number: 0, step: Step::Prepared });
                }
                Action::Begin(lease) => self.begin(&lease, random, &mut done),
                Action::Cancel(attempt) => {
                    if let Some(building) = self.building.get_mut(&attempt) {
                        building.is_cancelled = true;
                        self.next(attempt, Step::Ends, 5.0, random, &mut done);
                    }
                }
                Action::Answer { attempt, answer } => {
                    let Some(building) = self.building.get_mut(&attempt) else { continue };
                    if answer.refused.is_some() {
                        building.outcome = Some(FailureKind::Outputs);
                    }
                    self.next(attempt, Step::Ends, 20.0, random, &mut done);
                }
                Action::Deliver(attempt) => {
                    done.complaint =
                        Some(format!("{attempt} is delivered again, but no coordinator changed"));
                }
                Action::Allot(cores) => {
                    let sum: u32 = cores.iter().map(|(_, cores)| cores).sum();
                    if sum > self.cores || cores.len() != self.building.len() {
                        done.complaint = Some(format!("{cores:?} of {} cores", self.cores));
                    }
                }
                Action::Leave(reason) => {
                    done.is_over = true;
                    if let Some(reason) = reason {
                        done.complaint = Some(format!("a worker was refused: {reason}"));
                    }
                }
            }
        }
        if self.building.len() > self.slots as usize {
            done.complaint = Some(format!("{} builds in {} slots", self.building.len(), self.slots));
        }
        done
    }

    fn begin(&mut self, lease: &Lease, random: &mut Random, done: &mut Done) {
        let attempt = lease.attempt;
        done.begun.push(attempt);
        let kinds = [FailureKind::Machine, FailureKind::Signal, FailureKind::Memory, FailureKind::Command];
        let fails = random.happens(self.fates.failures_per_mille);
        let outcome = fails.then(|| kinds[random.below(4) as usize]);
        let (build, package) = (lease.build, lease.order.package.clone());
        let to_test = lease.to_test.as_ref().map(|to_test| to_test.outputs.clone());
        if to_test.is_some() && !self.tests {
            done.complaint = Some("a worker that only builds got a test".to_owned());
        }
        let building = Building { build, package, to_test, outcome, is_cancelled: false, step: 0 };
        self.building.insert(attempt, building);
        self.next(attempt, Step::Wants, self.fates.build_seconds_max / 2.0, random, done);
    }

    fn next(&mut self, attempt: Attempt, step: Step, seconds_max: f64, random: &mut Random, done: &mut Done) {
        if let Some(building) = self.building.get_mut(&attempt) {
            building.step += 1;
            let (after_seconds, number) = (random.seconds(seconds_max), building.step);
            done.due.push(Due { after_seconds, attempt, number, step });
        }
    }

    /// A step of a build is due.
    pub fn step(&mut self, now_seconds: f64, due: &Due, random: &mut Random) -> Done {
        let attempt = due.attempt;
        if matches!(due.step, Step::Prepared) {
            self.preparing.remove(&attempt);
            return self.apply(now_seconds, Event::Prepared(attempt), random);
        }
        let Some(building) = self.building.get(&attempt).filter(|building| building.step == due.number)
        else {
            return Done::default();
        };
        let (build, package) = (building.build, building.package.clone());
        let to_test = building.to_test.clone();
        let report = |progress| Event::Reported { attempt, progress };
        let mut done = match due.step {
            Step::Prepared => Done::default(),
            Step::Wants => {
                let cores = 1 + random.below(4) as u32;
                self.apply(now_seconds, report(Progress::Wants(cores)), random)
            }
            Step::StageEnds => {
                let kind = if to_test.is_some() { Stage::Test } else { Stage::Build };
                let stage = Box::new(stage(kind, due.after_seconds));
                self.apply(now_seconds, report(Progress::StageEnded(stage)), random)
            }
            Step::Builds if building.outcome.is_none() && to_test.is_none() => {
                let outputs = outputs(&package, attempt);
                let built = Built { build, outputs, is_repeated: false };
                return self.apply(now_seconds, Event::Built { attempt, built }, random);
            }
            Step::Builds => Done::default(),
            Step::Ends => {
                let kind =
                    if building.is_cancelled { Some(FailureKind::Cancelled) } else { building.outcome };
                let made = || to_test.unwrap_or_else(|| outputs(&package, attempt));
                let outcome = kind.map_or_else(|| Ok(made()), |kind| Err(failure(kind)));
                self.building.remove(&attempt);
                let result =
                    Box::new(BuildResult { build, outcome, is_reproducible: None, provenance: None });
                return self.apply(now_seconds, Event::Ended { attempt, result }, random);
            }
        };
        let (step, seconds_max) = match due.step {
            Step::Wants => (Step::StageEnds, self.fates.build_seconds_max / 2.0),
            Step::StageEnds => (Step::Builds, 2.0),
            Step::Builds | Step::Ends | Step::Prepared => (Step::Ends, 1.0),
        };
        self.next(attempt, step, seconds_max, random, &mut done);
        done
    }

    /// A random pressure of the machine.
    pub fn pressure(random: &mut Random) -> Event {
        Event::Pressure([Pressure::Low, Pressure::High][random.below(2) as usize])
    }
}

pub fn name(worker: usize) -> String {
    format!("kiln-{worker}")
}

fn stage(stage: Stage, wall_seconds: f64) -> StageResult {
    StageResult {
        stage,
        started_seconds: 0.0,
        wall_seconds,
        cpu_seconds: wall_seconds,
        memory_peak_bytes: 0,
        work_bytes: None,
        disk_bytes: None,
        parallel_seconds: None,
        is_ok: true,
        log: None,
        log_sha256: None,
        left_behind: Vec::new(),
        measures: Measures::default(),
    }
}

pub fn failure(kind: FailureKind) -> Failure {
    Failure { stage: Stage::Build, kind, message: "no".into(), line_number: None, lines: Vec::new() }
}
