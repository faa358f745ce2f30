//! Real builds of a yard's set, by this machine alone or by worker processes on it.
//!
//! They happen in a yard beside the given one, with its index, base root and files, so that its store and repository stay as
//! they are. A first run, which is not counted, fetches what is missing. All later runs build the same packages again, as
//! `kilnyard build --force` does, with the layers that earlier runs have made.
//!
//! Known downsides: a worker on the machine of its yard has a copy of the base root and of all layers. Own sources that the
//! configuration names relative to the yard are not found.

use super::processes::{Door, Ending, Running, build_failed, start, until};
use crate::child::{children_cpu_seconds, this_program_alone};
use crate::config::edit::{self, OnConflict, Setting};
use crate::demo::link_files;
use crate::error::{Context, Error, Kind, Result};
use crate::scratch::Scratch;
use crate::yard::{CONFIG, Lock, Yard, store_error};
use crate::{Trial, interrupt};
use kilnyard_farm::identity::Identity;
use kilnyard_farm::roster::{Roster, Terms};
use kilnyard_worker::{ARCHIVES, KERNELS};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

const READ: &str = "read the configuration of the benchmark's yard";

/// A yard whose set is built again and again.
pub struct Subject {
    /// The benchmark's own yard.
    pub own: Yard,
    /// The packages of its set.
    pub packages: Vec<String>,
    /// Its configuration, as it was.
    config: String,
    // Removed last.
    _scratch: Scratch,
    _lock: Lock,
}

/// A worker process on this machine.
#[derive(Clone, Debug)]
pub struct Place {
    pub name: &'static str,
    /// The processors that it may use, by the kernel's numbers, one for each of its cores. Empty: all.
    pub processors: Vec<usize>,
    /// How its roots are made, as `kilnyard worker --roots` has it.
    pub roots: &'static str,
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Of `kilnyard build`, from its start to its end.
    pub wall_seconds: f64,
    /// From the beginning of the first build to the end of the last one.
    pub makespan_seconds: f64,
    /// User and system time of all of Kilnyard's processes and of builds. What `serve` and workers used before the run began
    /// is not included.
    pub cpu_seconds: f64,
}

/// The processors that this process may use, by the kernel's numbers.
pub fn processors() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context(Kind::Machine, "find the processors of this machine")?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect())
}

impl Subject {
    /// Makes the yard, and builds the set for the first time.
    pub fn prepare(yard: &Yard, trial: &Trial<'_>) -> Result<Subject> {
        yard.config.family.check_scanned(yard)?;
        let lock = yard.lock()?;
        let ids = yard.ids();
        yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
        let scratch = Scratch::within(&yard.folder, Some(ids))?;
        let own = scratch.beside(yard, yard.config.clone())?;
        link_files(&yard.path("distfiles"), &own.path("distfiles"))?;
        // Workers get the base root from its archive.
        link_files(&yard.path(ARCHIVES), &own.path(ARCHIVES))?;
        let config = fs_err::read_to_string(own.path(CONFIG)).context(Kind::Machine, READ)?;
        let mut subject = Subject { own, packages: Vec::new(), config, _scratch: scratch, _lock: lock };
        trial.say("a first run fetches what is missing; it is not counted");
        subject.alone()?;
        let built: BTreeSet<String> =
            subject.last_builds()?.into_iter().map(|(package, ..)| package).collect();
        subject.packages = built.into_iter().collect();
        match subject.packages.is_empty() {
            true => Err(Error::usage("the set of this yard has no packages to build")),
            false => Ok(subject),
        }
    }

    /// Lets later runs build in virtual machines of this many cores, or as the yard does.
    pub fn in_machines(&self, cores: Option<u32>) -> Result<()> {
        let failed = "change the configuration of the benchmark's yard";
        let text = match cores {
            Some(cores) => {
                let settings = [("machine", Setting::Text("vm")), ("cores", Setting::Number(cores))];
                let edited = edit::set(&self.config, "root", &settings, OnConflict::Replace);
                edited.map_err(|refusal| Error::usage(format!("failed to {failed}: {refusal}")))?.text
            }
            None => self.config.clone(),
        };
        fs_err::write(self.own.path(CONFIG), text).context(Kind::Machine, failed)
    }

    /// Builds on this machine, without a farm.
    pub fn alone(&self) -> Result<Taken> {
        let before = children_cpu_seconds();
        let wall_seconds = self.build(&[])?;
        let cpu_seconds = children_cpu_seconds() - before;
        Ok(Taken { wall_seconds, cpu_seconds, makespan_seconds: self.makespan_seconds()? })
    }

    /// Builds by worker processes, which are started before and ended after it.
    pub fn by(&self, places: &[Place]) -> Result<Taken> {
        let before = children_cpu_seconds();
        let door = Door::open(&self.own)?;
        let workers: Vec<Running> =
            places.iter().map(|place| self.worker(place, &door.url)).collect::<Result<_>>()?;
        let used = |running: &Running| running.used().cpu_seconds + running.used().children_seconds;
        let started_seconds = used(&door.running) + workers.iter().map(used).sum::<f64>();
        let wall_seconds = self.build(&["--elsewhere"])?;
        // Waits for them, so that they are among the children.
        drop(workers);
        drop(door);
        let cpu_seconds = children_cpu_seconds() - before - started_seconds;
        Ok(Taken { wall_seconds, cpu_seconds, makespan_seconds: self.makespan_seconds()? })
    }

    /// Runs `kilnyard build`, and returns how long it took.
    fn build(&self, more: &[&str]) -> Result<f64> {
        let mut arguments = vec!["build", "--no-scan", "--json"];
        arguments.extend(more);
        if !self.packages.is_empty() {
            arguments.push("--force");
            arguments.extend(self.packages.iter().map(String::as_str));
        }
        let began = Instant::now();
        let status = start(&self.own, &arguments, "build", Ending::Asked)?.wait()?;
        match status.code() {
            Some(0) => Ok(began.elapsed().as_secs_f64()),
            Some(code) if code == Kind::Packages as i32 => {
                Err(Error::new(Kind::Packages, "the benchmark needs a set that builds: packages of this yard do not")
                    .hint("`kilnyard build` says why; the benchmark finds sources of this machine by absolute paths only"))
            }
            _ => Err(build_failed(&self.own, "build", status)),
        }
    }

    /// Starts a worker. The first time, it joins.
    fn worker(&self, place: &Place, url: &str) -> Result<Running> {
        let failed = "start a worker of the benchmark";
        let folder: PathBuf = self.own.path("workers").join(place.name);
        let mut command = this_program_alone(&["worker", "--join", url, "--name", place.name, "--folder"]);
        command.arg(folder.join("worker"));
        let kernels = self.own.path(KERNELS);
        if kernels.exists() && !folder.join("worker").join(KERNELS).exists() {
            link_files(&kernels, &folder.join("worker").join(KERNELS))?;
        }
        if !folder.join("token").exists() {
            fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
            let token = folder.join("token");
            fs_err::write(&token, self.token()?).context(Kind::Machine, failed)?;
            command.arg("--token-file").arg(token);
        }
        let mut set = CpuSet::new();
        place.processors.iter().for_each(|number| set.set(*number));
        if !place.processors.is_empty() {
            command.args(["--cores", &place.processors.len().to_string()]);
        }
        command.args(["--roots", place.roots]);
        let log = folder.join("log");
        // A process gets the processors of the thread that starts it.
        let started = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if !place.processors.is_empty() {
                    sched_setaffinity(None, &set).context(Kind::Machine, failed)?;
                }
                Running::start(command, &log, Ending::Asked)
            });
            thread.join().unwrap_or_else(|_| Err(Error::new(Kind::Internal, failed)))
        });
        let mut worker = started?;
        let said = || fs_err::read_to_string(&log).unwrap_or_default();
        until("a worker is ready", || said().contains("waits for builds"))?;
        match worker.status()? {
            None => Ok(worker),
            Some(status) => Err(Error::new(Kind::Internal, format!("{failed}: it ended with {status}"))),
        }
    }

    /// A token for one more worker.
    fn token(&self) -> Result<String> {
        let failed = "make a token for a worker";
        let folder = self.own.path("state/farm");
        let identity = Identity::open(&folder).context(Kind::Machine, failed)?;
        let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
        let now = crate::words::now_seconds() as u64;
        let token = roster.issue(identity.fingerprint(), Terms::default(), now);
        Ok(token.context(Kind::Machine, failed)?.to_string())
    }

    /// The package, beginning and end of each build of the last run.
    fn last_builds(&self) -> Result<Vec<(String, f64, f64)>> {
        let store = self.own.store()?;
        let Some(run) = store.last_run().map_err(store_error)? else { return Ok(Vec::new()) };
        let rows = store.builds_in(run.number).map_err(store_error)?;
        let builds = rows.into_iter();
        Ok(builds.filter_map(|row| Some((row.package, row.started_seconds, row.ended_seconds?))).collect())
    }

    fn makespan_seconds(&self) -> Result<f64> {
        let builds = self.last_builds()?;
        let first = builds.iter().map(|(_, started, _)| *started).fold(f64::INFINITY, f64::min);
        Ok(builds.iter().map(|(_, _, ended)| *ended).fold(first, f64::max) - first)
    }
}
