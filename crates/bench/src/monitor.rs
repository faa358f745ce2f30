//! The monitor's cost during a parallel build, as a share of one core.
//!
//! The build is a loop of compilations (or of small programs if there is no compiler), with as many parallel
//! processes as the machine has cores, in a root made of the machine's own `/usr`. The monitor's cost is the
//! CPU time of process 1 of the sandbox, which collects the figures, and of Kilnyard itself, which reads output
//! and reports and is notified of forks.

use super::figures::{Report, Series, Unit};
use super::scratch::Scratch;
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::interrupt;
use crate::yard::own_ids;
use kilnyard_process::{CommandOutcome, End, Limits, has_birth_events, run};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{
    Access, Flushes, IdMap, Making, Nesting, Operation, RootPlan, Sandbox, User, View, probe,
};
use serde_json::{Map, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Duration of each build.
const SECONDS: u32 = 10;
/// Number of additional processes in the second kind of build, which only wait.
const WAITING: u32 = 500;
/// Maximum cost of the monitor.
const SHARE_MAX: f64 = 0.005;

/// `$1` parallel compilers for `$2` seconds, while `$3` processes wait.
const SCRIPT: &str = r#"
printf '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts("a"); return 0; }\n' > /tmp/x.c
if cc -c /tmp/x.c -o /dev/null 2> /dev/null; then
  work() { cc -O2 -c /tmp/x.c -o /tmp/x.$1.o; }
else
  work() { seq 1 3000 | sort -n > /tmp/x.$1; }
fi
waiting=0
while [ $waiting -lt $3 ]; do sleep $2 & waiting=$((waiting + 1)); done
end=$(($(date +%s) + $2))
worker=0
while [ $worker -lt $1 ]; do
  while [ $(date +%s) -lt $end ]; do work $worker; echo worked; done &
  worker=$((worker + 1))
done
wait
"#;

/// Runs the benchmark.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let pairs = trial.pairs;
    let ids = own_ids();
    let scratch = Scratch::within(trial.temporary, Some(ids.clone()))?;
    prepare(&scratch, &ids)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let (mut few, mut many) = (Vec::new(), Vec::new());
    let (mut created, mut keeper) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        super::check_interrupt()?;
        let (share, outcome) = build(&scratch, &ids, cores, 0)?;
        few.push(share);
        keeper.push(outcome.keeper_seconds / outcome.wall_seconds);
        created.push(outcome.created as f64 / outcome.wall_seconds);
        many.push(build(&scratch, &ids, cores, WAITING)?.0);
    }
    let few = Series::new("share_of_core", "during a parallel build", Unit::Percent, few);
    let is_met = few.median() < SHARE_MAX;
    let mut facts = Map::new();
    facts.insert("has_birth_events".to_owned(), json!(has_birth_events()));
    let reports = if has_birth_events() { "reports" } else { "does not report" };
    Ok(Report {
        name: "monitor",
        series: vec![
            few,
            Series::new("share_of_core_keeper", "part of process 1 of the sandbox", Unit::Percent, keeper),
            Series::new(
                "share_of_core_many",
                format!("with {WAITING} more waiting processes"),
                Unit::Percent,
                many,
            ),
            Series::new("processes_per_second", "processes started per second", Unit::Ratio, created),
        ],
        facts,
        notes: vec![format!(
            "{cores} parallel compilers for {SECONDS} s each; the kernel {reports} forks here"
        )],
        target: format!("less than {} % of one core during a parallel build", SHARE_MAX * 100.0),
        is_met: Some(is_met),
    })
}

fn prepare(scratch: &Scratch, ids: &IdMap) -> Result<()> {
    let failed = "make a root for the benchmark";
    let open = |path: &Path| fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755));
    open(&scratch.path("")).context(Kind::Machine, failed)?;
    let folders = ["usr", "proc", "sys", "dev", "run", "tmp"].map(|part| format!("base/{part}"));
    for folder in ["base".to_owned(), "root".to_owned()].iter().chain(&folders) {
        fs_err::create_dir(scratch.path(folder)).context(Kind::Machine, failed)?;
        probe::give_to_root(&scratch.path(folder), ids).context(Kind::Machine, failed)?;
    }
    for part in ["upper", "work", "merged"] {
        let path = scratch.path("root").join(part);
        fs_err::create_dir(&path).context(Kind::Machine, failed)?;
        probe::give_to_root(&path, ids).context(Kind::Machine, failed)?;
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        symlink(format!("usr/{link}"), scratch.path("base").join(link)).context(Kind::Machine, failed)?;
    }
    Ok(())
}

/// Runs a build. Returns the share of one core that the monitor used, and the outcome.
fn build(scratch: &Scratch, ids: &IdMap, cores: u32, waiting: u32) -> Result<(f64, CommandOutcome)> {
    let plan = RootPlan::new(Path::new("root"), &["base".into()], &Making::default());
    let mut operations = plan.entering(&[]);
    let usr =
        Operation::Bind { source: "/usr".into(), target: "root/merged/usr".into(), access: Access::Read };
    operations.insert(1, usr);
    let numbers = [cores, SECONDS, waiting].map(|number| number.to_string());
    let arguments = ["/bin/sh", "-c", SCRIPT, "sh"].map(str::to_owned).into_iter().chain(numbers);
    let sandbox = Sandbox {
        folder: scratch.path(""),
        ids: ids.clone(),
        keeper: None,
        view: View::Root(operations),
        user: User::Root,
        task: Task::Program(arguments.collect()),
        directory: "/tmp".into(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        is_interactive: false,
        has_network: false,
        flushes: Flushes::Discard,
        nesting: Nesting::Refused,
    };
    let limits = Limits::of_wall(f64::from(SECONDS) * 10.0);
    let before = own_cpu_seconds();
    let outcome = run(&sandbox, &mut std::io::sink(), limits, interrupt::cancel(), None, &mut |_| {});
    let own = own_cpu_seconds() - before;
    match outcome.end {
        End::Exit(0) => Ok(((own + outcome.keeper_seconds) / outcome.wall_seconds, outcome)),
        End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted; all temporary files are removed")),
        end => Err(Error::new(Kind::Machine, format!("the build to be monitored failed: {end:?}"))),
    }
}

/// User and system time of all threads of this process, without child processes.
fn own_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
