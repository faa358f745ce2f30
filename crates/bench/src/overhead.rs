//! Kilnyard's own cost for a package.
//!
//! A pair is a whole build of the package in the usual way (order, a known set of dependencies, root,
//! unpacking, build, collecting, publishing, report), and only the unpack and build commands, in a root where
//! the package manager installed the dependencies once. The difference is Kilnyard's own cost. It includes the
//! sandboxes and their sampling, since the commands alone are measured from inside their sandbox. Reading the
//! index and planning happens once for any number of packages and is shown separately, and so is a first build,
//! which makes the layers. If a [`Peer`] is given, each pair also has a build by it; what it uses in addition
//! to the commands alone is its own cost.

use super::child::all_cpu_seconds;
use super::figures::{Report, Series, Summary, Unit, ratios};
use super::scratch::Scratch;
use super::subject::{self, Subject};
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::plan::{self, Forced};
use crate::yard::{Yard, store_error};
use crate::{interrupt, mirror, report};
use kilnyard_model::order::{Account, BuildOrder, CommandOrder, Stage};
use kilnyard_store::RunState;
use kilnyard_worker::RootFolder;
use serde_json::{Map, json};
use std::sync::Arc;

/// Maximum CPU time of Kilnyard's own.
const OWN_CPU_SECONDS_MAX: f64 = 0.3;
/// Minimum ratio of a peer's own cost to Kilnyard's.
const PEER_RATIO_MIN: f64 = 3.0;

/// Another builder, for comparison.
pub trait Peer {
    /// The builder's name.
    fn name(&self) -> &'static str;

    /// Prepares to build an order whose files are in the yard.
    fn prepare(&self, scratch: &Scratch, yard: &Yard, order: &BuildOrder) -> Result<Box<dyn PeerBuild>>;
}

/// A prepared build by a peer, which can be repeated.
pub trait PeerBuild: Send + Sync {
    /// Runs a whole build and returns its CPU time.
    fn cpu_seconds(&self) -> Result<f64>;
}

/// Prints the CPU time of the command that follows and of its descendants, on a line that starts with
/// [`TIMED`].
const TIME: &str = r#"TIMEFORMAT="kilnyard-bench-cpu-seconds %3U %3S"; time "$@""#;
const TIMED: &str = "kilnyard-bench-cpu-seconds ";

/// CPU time of a whole build, in seconds.
struct Whole {
    plan: f64,
    all: f64,
    depends: f64,
    /// CPU time of its stages inside their sandboxes.
    stages: f64,
}

/// Runs the benchmark with this package, and with a peer if given.
pub fn measure(yard: &Yard, package: &str, trial: &Trial<'_>, peer: Option<&dyn Peer>) -> Result<Report> {
    let pairs = trial.pairs;
    yard.config.family.check_scanned(yard)?;
    let _lock = yard.lock()?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids))?;
    let own = subject::scratch_yard(&scratch, yard, package)?;
    let bench = Bench { trial, yard: own, package: package.to_owned() };
    let Subject { order, .. } = Subject::prepare(&bench.yard, yard, package)?;
    let other = peer.map(|peer| peer.prepare(&scratch, &bench.yard, &order)).transpose()?;
    let bare = bench.bare_root(&order)?;
    let first = bench.whole()?;
    let (mut wholes, mut bares, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        wholes.push(bench.whole()?);
        bares.push(bench.bare(&bare, &order)?);
        if let Some(other) = &other {
            others.push(other.cpu_seconds()?);
        }
        trial.say(format_args!("pair {pair} of {pairs} measured"));
    }
    Ok(make_report((package, &order), &first, &wholes, bares, (peer.map_or("", Peer::name), others)))
}

fn make_report(
    (package, order): (&str, &BuildOrder),
    first: &Whole,
    wholes: &[Whole],
    bares: Vec<f64>,
    (name, others): (&str, Vec<f64>),
) -> Report {
    let of = |value: fn(&Whole) -> f64| wholes.iter().map(value).collect::<Vec<f64>>();
    let all = of(|whole| whole.all);
    let over =
        |wholes: &[f64]| wholes.iter().zip(&bares).map(|(whole, bare)| whole - bare).collect::<Vec<f64>>();
    let (own, own_of_peer) = (over(&all), over(&others));
    let ratio = ratios(&all, &bares);
    let seconds = |key: &str, label: &str, values| Series::new(key, label, Unit::Seconds, values);
    let own = seconds("own_cpu_seconds", "Kilnyard's own cost", own);
    let own_of_peer = seconds(&format!("{name}_own_cpu_seconds"), &format!("{name}'s own cost"), own_of_peer);
    // A difference that noise made negative is smaller than any fraction of the peer's.
    let is_less = others.is_empty() || own_of_peer.median() >= PEER_RATIO_MIN * own.median();
    let is_met = own.median() <= OWN_CPU_SECONDS_MAX && is_less;
    let mut notes = vec![format!("CPU time, building {package} {}", order.version)];
    notes.extend(doubt(&own.values));
    let mut series = vec![
        seconds("whole_cpu_seconds", "the whole build, with a known set of dependencies", all),
        seconds("bare_cpu_seconds", "only its commands", bares),
        own,
        Series::new("ratio", "the whole build / only its commands", Unit::Ratio, ratio),
        seconds(
            "outside_cpu_seconds",
            "part outside sandboxes, from the same build",
            of(|whole| whole.all - whole.stages),
        ),
        seconds("depends_cpu_seconds", "part for dependencies", of(|whole| whole.depends)),
        seconds(
            "first_depends_cpu_seconds",
            "dependencies of a first build, not counted",
            vec![first.depends],
        ),
        seconds("plan_cpu_seconds", "reading the index and planning, once per run", of(|w| w.plan)),
    ];
    let mut target = format!("at most {OWN_CPU_SECONDS_MAX} s of CPU time of Kilnyard's own for a package");
    if !others.is_empty() {
        let whole = seconds(&format!("{name}_cpu_seconds"), &format!("the whole build by {name}"), others);
        series.extend([whole, own_of_peer]);
        target.push_str(&format!(", and {name}'s own cost at least {PEER_RATIO_MIN} times as much"));
    }
    let mut facts = Map::new();
    facts.insert("package".to_owned(), json!(package));
    facts.insert("version".to_owned(), json!(order.version));
    facts.insert("inputs".to_owned(), json!(order.root.inputs.len()));
    Report { name: "overhead", series, facts, notes, target, is_met: Some(is_met) }
}

/// A note if the pairs differ too much to be meaningful. The CPU time of a build varies, more so on a busy
/// machine, and the difference of two builds has the noise of both.
fn doubt(own: &[f64]) -> Option<String> {
    let Summary { median, min, max } = Summary::of(own)?;
    let is_unsure = min <= OWN_CPU_SECONDS_MAX && max > OWN_CPU_SECONDS_MAX;
    let is_noise = median < 0.0 || max - min > OWN_CPU_SECONDS_MAX;
    (is_unsure || is_noise).then(|| {
        format!(
            "the builds differ by more than Kilnyard's own cost ({min:.2} to {max:.2} s): use more --pairs or a \
             quieter machine"
        )
    })
}

struct Bench<'a> {
    trial: &'a Trial<'a>,
    yard: Yard,
    package: String,
}

impl Bench<'_> {
    /// Runs a whole build, in a yard in which nothing has been built.
    fn whole(&self) -> Result<Whole> {
        super::check_interrupt()?;
        subject::forget(&self.yard)?;
        let started = all_cpu_seconds();
        let mut store = self.yard.store()?;
        let distfiles = Arc::new(mirror::open_files(&self.yard)?);
        let planned = plan::make(&self.yard, &distfiles, &mut *store, &Forced::Nothing)?;
        let set = planned.set.clone();
        let before = all_cpu_seconds();
        let state =
            self.trial.runner.run(&self.yard, &mut *store, planned, distfiles.clone(), &mut |_| false)?;
        let published = set.publish(&self.yard, &*store, &distfiles)?;
        report::write(&self.yard, &*store, (&*set.ecosystem()).into(), published.done().as_ref())?;
        let all = all_cpu_seconds() - before;
        if state != RunState::Finished {
            return Err(Error::new(Kind::Interrupted, "interrupted; all temporary files are removed"));
        }
        let builds = store.builds_of(&self.package, 1).map_err(store_error)?;
        let build = builds
            .first()
            .ok_or_else(|| Error::new(Kind::Internal, format!("{} was not built", self.package)))?;
        if let Some(failure) = &build.failure {
            let mut failed = Error::new(Kind::Packages, format!("failed to build {}", self.package));
            failed.causes.push(failure.message.clone());
            failed.causes.extend(failure.lines.iter().cloned());
            return Err(failed);
        }
        let of = |is: fn(Stage) -> bool| -> f64 {
            build.stages.iter().filter(|result| is(result.stage)).map(|result| result.cpu_seconds).sum()
        };
        let (depends, stages) = (of(|stage| stage == Stage::Depends), of(|_| true));
        Ok(Whole { plan: before - started, all, depends, stages })
    }

    /// Makes a root with the inputs and the dependencies.
    fn bare_root(&self, order: &BuildOrder) -> Result<RootFolder> {
        let failed = "make the root for comparison";
        // At its start, a run removes all roots except those of failed builds.
        let name = "failed-bench-bare";
        let local = crate::worker::local(&self.yard, &order.root, true)?;
        let root = RootFolder::create(
            &self.yard.folder,
            name,
            &self.yard.ids(),
            &local.layers,
            &self.yard.config.roots.on_disk(),
        );
        let root = root.context(Kind::Machine, failed)?.of_root_order(&order.root, &local);
        subject::provide(&self.yard, &root, order)?;
        for command in &subject::installing(order)? {
            subject::perform(&self.yard, &root, command)?;
        }
        Ok(root)
    }

    /// Runs only the order's own commands. Returns their CPU time.
    fn bare(&self, root: &RootFolder, order: &BuildOrder) -> Result<f64> {
        let mut cpu_seconds = 0.0;
        for command in order.stages.iter().flat_map(|stage| &stage.commands) {
            let mut timed = command.clone();
            timed.arguments = ["/bin/bash", "-c", TIME, "bash"].map(str::to_owned).into();
            timed.arguments.extend(command.arguments.iter().cloned());
            let log = subject::perform(&self.yard, root, &timed)?;
            cpu_seconds += timed_seconds(&log)
                .ok_or_else(|| Error::new(Kind::Internal, "the shell printed no time for a command"))?;
        }
        let work = order.work.as_ref().map(|work| work.inside.clone());
        let folders = [order.output_folder.clone()].into_iter().chain(work);
        let ending = ["-mindepth", "1", "-delete"].map(str::to_owned);
        let clean = CommandOrder {
            arguments: ["/usr/bin/find".to_owned()].into_iter().chain(folders).chain(ending).collect(),
            account: Account::Builder,
            directory: "/".to_owned(),
            environment: Vec::new(),
        };
        subject::perform(&self.yard, root, &clean)?;
        Ok(cpu_seconds)
    }
}

/// User and system time, from the last line of a timed command's log.
fn timed_seconds(log: &str) -> Option<f64> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix(TIMED))?;
    line.split_whitespace().map(|word| word.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_noted() {
        assert_eq!(doubt(&[0.2, 0.3, 0.25]), None);
        assert_eq!(doubt(&[1.2, 1.3]), None);
        for noisy in [&[-0.6][..], &[0.5, 1.2], &[-0.6, 0.2, 0.8]] {
            assert!(doubt(noisy).is_some(), "{noisy:?}");
        }
    }

    #[test]
    fn a_timed_command_prints_its_cpu_time() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo kilnyard-bench-cpu-seconds 9 9";
        let output = std::process::Command::new("/bin/bash")
            .args(["-c", TIME, "bash", "/bin/sh", "-c", script])
            .output();
        let Ok(output) = output else {
            println!("skipped: a_timed_command_prints_its_cpu_time: /bin/bash is not installed");
            return;
        };
        let log = [output.stdout, output.stderr].concat();
        let seconds = timed_seconds(&String::from_utf8(log).unwrap()).unwrap();
        assert!(seconds > 0.0 && seconds < 18.0, "{seconds}");
        assert_eq!(timed_seconds("no such line"), None);
        assert_eq!(timed_seconds("kilnyard-bench-cpu-seconds 1.250 x"), None);
    }
}
