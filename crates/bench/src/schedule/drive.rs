//! Runs real builds as a scheduler decides.

use super::projects::Projects;
use crate::error::{Context, Error, Kind, Result};
use crate::interrupt;
use kilnyard_model::graph::PackageId;
use kilnyard_process::jobserver::Style;
use kilnyard_schedule::policies::Workers;
use kilnyard_schedule::{Action, Event, Machine, MachineId, Outcome, Policy, Scheduler};
use kilnyard_worker::Cores;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval of checks for ended builds.
const PAUSE: Duration = Duration::from_millis(2);
/// Interval of samples of core demand, as in a run.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);

/// Decides which builds start, and with how many cores.
pub enum Decider {
    /// Cores follow rank.
    ByRank(Box<Scheduler>),
    /// A build keeps the number of jobs that it started with.
    Fixed(Box<Workers>),
}

impl Decider {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        match self {
            Decider::ByRank(scheduler) => scheduler.apply(now_seconds, event, actions),
            Decider::Fixed(workers) => workers.apply(now_seconds, event, actions),
        }
    }
}

/// The result of building a set.
pub struct Driven {
    pub wall_seconds: f64,
    /// How busy the cores were while packages were ready but not started. Absent if the kernel does not count
    /// it.
    pub busy_share: Option<f64>,
}

struct Drive<'a> {
    projects: &'a Projects,
    cores: Cores,
    decider: Decider,
    began: Instant,
    jobservers: &'a Path,
    children: BTreeMap<PackageId, Child>,
    /// CPU time of ended builds. Absent if the kernel does not count it.
    used_seconds: Option<f64>,
}

/// Builds all projects.
pub fn drive(projects: &Projects, cores: u32, decider: Decider, jobservers: &Path) -> Result<Driven> {
    fs_err::create_dir_all(jobservers).context(Kind::Machine, "create a folder for jobservers")?;
    let mut drive = Drive {
        projects,
        cores: Cores::new("bench", Machine::of_cores(cores).oversubscribed().cores),
        decider,
        began: Instant::now(),
        jobservers,
        children: BTreeMap::new(),
        used_seconds: Some(0.0),
    };
    let outcome = drive.run(cores);
    let wall_seconds = drive.began.elapsed().as_secs_f64();
    for child in drive.children.values_mut() {
        // Each build has its own process group, so this also kills the processes that it started.
        if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.wait();
    }
    Ok(Driven { wall_seconds, busy_share: outcome? })
}

impl Drive<'_> {
    /// Runs all builds. Returns the share of the cores that was busy while work was ready.
    fn run(&mut self, cores: u32) -> Result<Option<f64>> {
        let mut left = self.projects.graph.len();
        let mut sampled = Instant::now();
        let (mut busy_seconds, mut ready_seconds, mut is_ready) = (0.0, 0.0, false);
        let mut used_before = 0.0;
        self.apply(Event::Begin)?;
        while left > 0 {
            if interrupt::count() > 0 {
                return Err(Error::new(Kind::Interrupted, "interrupted; all temporary files are removed"));
            }
            std::thread::sleep(PAUSE);
            let mut ended = Vec::new();
            for (package, child) in &mut self.children {
                if let Some(status) = child.try_wait().or_internal("wait for a build")? {
                    ended.push((*package, status.success()));
                }
            }
            for (package, is_good) in ended {
                if !is_good {
                    let name = self.projects.graph.name(package);
                    return Err(Error::new(Kind::Internal, format!("the synthetic project {name} failed")));
                }
                left -= 1;
                self.children.remove(&package);
                let used = self.cores.cpu_seconds(package.index() as u64);
                self.used_seconds = self.used_seconds.zip(used).map(|(all, own)| all + own);
                self.cores.end(package.index() as u64).or_internal("take cores back")?;
                let core_seconds = self.projects.works[package.index()].core_seconds();
                let outcome = Outcome::Built { core_seconds };
                self.apply(Event::Ended { package, outcome })?;
            }
            if sampled.elapsed() < SAMPLE_INTERVAL {
                continue;
            }
            let passed = sampled.elapsed().as_secs_f64();
            sampled = Instant::now();
            if let Some(used) = self.used_now() {
                if is_ready {
                    busy_seconds += used - used_before;
                    ready_seconds += passed;
                }
                used_before = used;
            }
            is_ready = matches!(&self.decider, Decider::ByRank(scheduler) if scheduler.ready() > 0);
            let now_seconds = self.began.elapsed().as_secs_f64();
            for (build, cores) in self.cores.sample(now_seconds).or_internal("sample the builds")? {
                let package = PackageId(build as u32);
                self.apply(Event::Wants { package, cores })?;
            }
        }
        let share = busy_seconds / (ready_seconds * f64::from(cores));
        Ok(Some(share).filter(|share| self.used_seconds.is_some() && share.is_finite()))
    }

    /// CPU time of all builds so far.
    fn used_now(&self) -> Option<f64> {
        let of = |package: &PackageId| self.cores.cpu_seconds(package.index() as u64);
        self.children.keys().try_fold(self.used_seconds?, |all, package| Some(all + of(package)?))
    }

    fn apply(&mut self, event: Event) -> Result<()> {
        let mut actions = Vec::new();
        self.decider.apply(self.began.elapsed().as_secs_f64(), event, &mut actions);
        for action in actions {
            // Changes of cores are applied together, below.
            if let Action::Start { package, cores, .. } = action {
                self.start(package, cores)?;
            }
        }
        if let Decider::ByRank(scheduler) = &self.decider {
            let running = scheduler.running(MachineId(0));
            let order: Vec<(u64, u32)> =
                running.map(|(package, cores)| (package.index() as u64, cores)).collect();
            self.cores.allot(&order).or_internal("distribute the cores")?;
        }
        Ok(())
    }

    fn start(&mut self, package: PackageId, cores: u32) -> Result<()> {
        let build = package.index() as u64;
        let uses_ninja = self.projects.uses_ninja(package);
        let style = match (&self.decider, uses_ninja) {
            (Decider::Fixed(_), _) => None,
            (Decider::ByRank(_), true) => Some(Style::Named(self.jobservers.join(build.to_string()))),
            (Decider::ByRank(_), false) => Some(Style::Inherited),
        };
        // The shell waits until it is in its control group: processes started outside would stay there,
        // unweighed and uncounted.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r _ && exec \"$@\" </dev/null", "sh"]);
        command.arg(if uses_ninja { "ninja" } else { "make" });
        if style.is_none() {
            command.arg(format!("-j{cores}"));
        }
        command.current_dir(self.projects.folder_of(package));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        command.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("CARGO_MAKEFLAGS");
        let share = self.cores.begin(build, style);
        self.cores.hand_to(build, &mut command);
        let mut child = command.spawn().context(Kind::Machine, "start make or ninja")?;
        // A build without a weight still works.
        let _ = share.membership.enter(child.id());
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
        self.children.insert(package, child);
        written.unwrap_or(Ok(())).context(Kind::Machine, "start make or ninja")
    }
}
