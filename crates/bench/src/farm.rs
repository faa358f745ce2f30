//! A farm of hundreds of workers: the leader, the protocol and the packages are real, the builds are not.
//!
//! `kilnyard serve` and `kilnyard build --elsewhere` run in a yard of two thousand small source packages. The workers are
//! threads of a few processes: each joins with a token and a key of its own, speaks the protocol over TLS, and stores real
//! packages of 4 KiB, but its builds only wait. Their times are one tenth of those of real ones. The run is compared with
//! a simulation of the same graph, times and machines.
//!
//! Known downside: leader and workers share this machine, whose cores should not be busy.

mod sources;
pub mod worker;

use crate::child;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::scratch::Scratch;
use crate::yard::{CONFIG, Yard, store_error};
use crate::{Trial, interrupt, sham};
use kilnyard_farm::identity::Identity;
use kilnyard_farm::roster::{Roster, Terms};
use kilnyard_schedule::{Limits, Machine, Scheduler, simulate};
use kilnyard_store::Store;
use serde_json::{Map, json};
use sources::Sources;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use worker::{Farm, Granted};

/// Number of packages.
const PACKAGES: usize = 2000;
/// Number of workers.
const WORKERS: usize = 300;
/// Slots of each worker.
const SLOTS: u32 = 16;
/// Number of processes that the workers share.
const PROCESSES: usize = 3;
/// The longest time until the door listens, or a process ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `/proc` says of a process: its CPU time in seconds, and its peak memory in bytes.
fn usage(process: u32) -> (f64, u64) {
    let stat = fs_err::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    // Fields 14 and 15 of proc_pid_stat(5); the state, field 3, comes first here.
    // SAFETY: it reads a constant of the system.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let status = fs_err::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let kibibytes: u64 = peak.and_then(|text| text.parse().ok()).unwrap_or(0);
    ((ticks(11) + ticks(12)) / hertz, kibibytes << 10)
}

/// Runs the benchmark in a copy of this yard, which needs a base root.
pub fn measure(yard: &Yard, trial: &Trial<'_>) -> Result<Report> {
    yard.config.family.check_scanned(yard)?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids))?;
    let own = scratch.beside(yard, yard.config.clone())?;
    let sources = Sources::new(PACKAGES);
    sources.write(&own.path("own")).context(Kind::Machine, "write the sources of the benchmark")?;
    configure(&own)?;
    let log = |name: &str| File::create(own.path(&format!("logs/{name}"))).or_internal("write a log");
    let start = |arguments: &[&str], name: &str| -> Result<Running> {
        let mut command: Command = child::this_program(&own.folder, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log(name)?);
        Ok(Running(command.spawn().context(Kind::Machine, format!("run kilnyard {}", arguments[0]))?))
    };
    let door = start(&["serve", "--listen", "127.0.0.1:0"], "serve")?;
    let address = address(&own.path("logs/serve"))?;
    let farm = farm(&own, &address, &sources)?;
    trial.say(format_args!("{WORKERS} workers join, with {SLOTS} slots each"));
    let granted = own.path("granted");
    let mut workers = Vec::new();
    for (part, members) in farm.members.chunks(WORKERS.div_ceil(PROCESSES)).enumerate() {
        let part_path = own.path(&format!("state/part-{part}.json"));
        let of_part =
            Farm { members: members.to_vec(), granted: granted.join(part.to_string()), ..farm.clone() };
        fs_err::create_dir_all(&granted).or_internal("make a folder for what workers report")?;
        let text = serde_json::to_string(&of_part).or_internal("describe the farm")?;
        fs_err::write(&part_path, text).or_internal("describe the farm")?;
        let path = part_path.display().to_string();
        workers.push(start(&["bench", "farm", "--workers-of", &path], &format!("workers-{part}"))?);
    }
    let joined = || Roster::open(&own.path("state/farm")).and_then(|roster| roster.members());
    until("the workers have joined", || joined().is_ok_and(|members| members.len() == WORKERS))?;
    let (door_before, began) = (usage(door.0.id()).0, Instant::now());
    let mut build = start(&["build", "--elsewhere", "--no-publish", "--no-scan"], "build")?;
    let (mut cpu_seconds, mut memory_bytes) = (0.0, 0);
    let status = loop {
        crate::check_interrupt()?;
        if let Some(status) = build.0.try_wait().or_internal("wait for the build")? {
            break status;
        }
        let (build_cpu, build_memory) = usage(build.0.id());
        let (door_cpu, door_memory) = usage(door.0.id());
        cpu_seconds = build_cpu + door_cpu - door_before;
        // Both are peaks already; a process that ends meanwhile has none.
        memory_bytes = memory_bytes.max(build_memory + door_memory);
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        let said = fs_err::read_to_string(own.path("logs/build")).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.is_empty()).unwrap_or_default().to_owned();
        let mut error = Error::new(Kind::Internal, format!("the build of the benchmark ended with {status}"));
        error.causes.push(last);
        return Err(error);
    }
    let wall_seconds = began.elapsed().as_secs_f64();
    drop((workers, door));
    let granted = Granted::read(&granted).or_internal("read what the workers reported")?;
    let rows = own.store()?.builds_in(1).map_err(store_error)?;
    let first = rows.iter().map(|row| row.started_seconds).fold(f64::INFINITY, f64::min);
    let last = rows.iter().filter_map(|row| row.ended_seconds).fold(0.0, f64::max);
    let makespan_seconds = last - first;
    let simulated_seconds = simulated(&sources)?;
    let mut delays = sources.delays(&granted);
    delays.sort_by(f64::total_cmp);
    let at =
        |share: f64| delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
    let cores = cpu_seconds / wall_seconds;
    let series = |key: &str, label: &str, unit, value| Series::new(key, label, unit, vec![value]);
    let figures = vec![
        series("leader_cores", "the leader's cores (build and serve)", Unit::Ratio, cores),
        series("leader_memory_bytes", "their memory", Unit::Bytes, memory_bytes as f64),
        series(
            "assignment_p50_seconds",
            "from the last dependency's result to the lease, median",
            Unit::Seconds,
            at(0.5),
        ),
        series("assignment_p99_seconds", "the same, 99 of 100", Unit::Seconds, at(0.99)),
        series(
            "makespan_seconds",
            "the run, from the first to the last build",
            Unit::Seconds,
            makespan_seconds,
        ),
        series("simulated_seconds", "the same, simulated", Unit::Seconds, simulated_seconds),
    ];
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    facts.insert("workers".to_owned(), json!(WORKERS));
    facts.insert("builds".to_owned(), json!(rows.len()));
    let ratio = makespan_seconds / simulated_seconds;
    let notes = vec![
        format!(
            "{} builds of {PACKAGES} packages by {WORKERS} workers; {:.2} of the simulation",
            rows.len(),
            ratio
        ),
        "workers and leader share this machine".to_owned(),
    ];
    let target =
        "half a core and 300 MB; assignment in 10 ms; the run within 5 % of the simulation".to_owned();
    let is_met = cores <= 0.5 && memory_bytes <= 300_000_000 && at(0.5) <= 0.01 && ratio <= 1.05;
    Ok(Report { name: "farm", series: figures, facts, notes, target, is_met: Some(is_met) })
}

/// Replaces the packages of the yard, and leaves out tests of outputs.
fn configure(own: &Yard) -> Result<()> {
    let failed = "configure the yard of the benchmark";
    let text = fs_err::read_to_string(own.path(CONFIG)).context(Kind::Machine, failed)?;
    let (before, rest) = text.split_once("packages = [").unwrap_or((&text, "]"));
    let after = rest.split_once(']').map_or("", |(_, after)| after);
    let text = format!("{before}packages = [\"{}\"]{after}", sham::RULE);
    let text = text.replace("# test = true", "test = false");
    fs_err::write(own.path(CONFIG), text).context(Kind::Machine, failed)
}

/// The address at which the door listens, as it says itself.
fn address(log: &Path) -> Result<String> {
    let said = || fs_err::read_to_string(log).unwrap_or_default();
    until("the door listens", || said().contains("Ctrl-C"))?;
    let address = said().split("connect to ").nth(1).and_then(|rest| rest.lines().next().map(str::to_owned));
    address.ok_or_else(|| Error::new(Kind::Internal, "kilnyard serve does not say where it listens"))
}

fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        crate::check_interrupt()?;
        if began.elapsed() > PATIENCE {
            return Err(Error::new(Kind::Internal, format!("timed out: {what}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The workers of the benchmark, each with a token.
fn farm(own: &Yard, address: &str, sources: &Sources) -> Result<Farm> {
    let folder = own.path("state/farm");
    let failed = "make tokens for the workers";
    let identity = Identity::open(&folder).context(Kind::Machine, failed)?;
    let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
    let now = crate::words::now_seconds() as u64;
    let member = |number: usize| -> Result<(String, String)> {
        let token =
            roster.issue(identity.fingerprint(), Terms::default(), now).context(Kind::Machine, failed)?;
        Ok((format!("worker-{number:03}"), token.to_string()))
    };
    Ok(Farm {
        url: format!("https://{address}"),
        folder: own.path("state/workers"),
        slots: SLOTS,
        seconds: sources.seconds_by_name(),
        granted: own.path("granted"),
        members: (0..WORKERS).map(member).collect::<Result<_>>()?,
    })
}

/// The time of the run by the scheduler's own rules, without any delay.
fn simulated(sources: &Sources) -> Result<f64> {
    let failed = "simulate the benchmark";
    let (graph, works) = (sources.graph(), sources.works());
    let machines = vec![Machine::of_cores(SLOTS); WORKERS];
    let scheduler = Scheduler::new(graph.clone(), works.clone(), machines.clone(), Limits::default());
    let mut scheduler = scheduler.or_internal(failed)?;
    Ok(simulate(&graph, &works, &machines, &mut scheduler).or_internal(failed)?.makespan_seconds)
}
