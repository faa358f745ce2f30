//! An empty overlay root: made, used for a single command, and removed.

use super::super::check_interrupt;
use super::clock::Clock;
use crate::error::{Context, Error, Kind, Result};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Flushes, IdMap, Making, Report, RootPlan, Sandbox, User, View};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Number of roots made in sequence. Each takes milliseconds.
const ROOTS: u32 = 41;

/// The cost of each root.
#[derive(Default)]
pub struct Empty {
    /// Time until a command runs in it, including the start of Kilnyard as the sandbox.
    pub ready_seconds: Vec<f64>,
    /// Time from the end of the command until everything is removed.
    pub gone_seconds: Vec<f64>,
    pub cpu_seconds: Vec<f64>,
}

/// Makes and removes roots of these layers, in the same steps as for builds.
pub fn measure(yard: &Path, ids: &IdMap, layers: &[String]) -> Result<Empty> {
    let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
    let mut empty = Empty::default();
    for number in 0..ROOTS {
        check_interrupt()?;
        let plan =
            RootPlan::new(&Path::new("roots").join(format!("empty-{number}")), &layers, &Making::default());
        let clock = Clock::start();
        let keeper = plan.make(yard, ids).context(Kind::Machine, "make an empty root")?;
        let outcome = ready(yard, ids, &plan, &clock);
        let ended = Clock::start();
        let removed = plan.remove(yard, ids, keeper.as_ref()).context(Kind::Machine, "remove an empty root");
        let gone = ended.spent();
        empty.ready_seconds.push(outcome?);
        removed?;
        empty.gone_seconds.push(gone.wall_seconds);
        empty.cpu_seconds.push(clock.spent().cpu_seconds);
    }
    Ok(empty)
}

/// Runs a command that does nothing in a root. Returns the time from the start of making the root until the
/// command ran.
fn ready(yard: &Path, ids: &IdMap, plan: &RootPlan, clock: &Clock) -> Result<f64> {
    let failed = "run a command in an empty root";
    let sandbox = Sandbox {
        view: View::Root(plan.entering(&[])),
        user: User::Root,
        directory: "/".into(),
        has_network: false,
        flushes: Flushes::Discard,
        ..Sandbox::of_machine(yard, ids, Task::Program(vec!["/bin/true".to_owned()]))
    };
    let mut child = sandbox.spawn().context(Kind::Machine, failed)?;
    let mut reports = String::new();
    let mut ready_seconds = None;
    if let Some(errors) = child.stderr.take() {
        let mut errors = BufReader::new(errors);
        while errors.read_line(&mut reports).or_internal(failed)? > 0 {
            let last = reports.lines().last().unwrap_or_default();
            if matches!(serde_json::from_str(last), Ok(Report::Started)) {
                ready_seconds = Some(clock.spent().wall_seconds);
                break;
            }
        }
        errors.read_to_string(&mut reports).or_internal(failed)?;
    }
    child.wait().or_internal(failed)?;
    ready_seconds.ok_or_else(|| {
        let mut error = Error::new(Kind::Machine, format!("failed to {failed}"));
        error.causes.extend(reports.lines().map(str::to_owned));
        error
    })
}
