//! The page of a run through the events of eight hours, replayed in minutes: the memory of the server. A browser that has the
//! page open meanwhile (`soak/pages`) shows its own.

use super::{PACKAGES, Server, begin_run, save_plan};
use crate::error::Result;
use crate::figures::{Report, Series, Unit};
use crate::queries::build_records;
use crate::scratch::Scratch;
use crate::yard::store_error;
use crate::{BenchOptions, Trial, check_interrupt, synthetic};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_process::now_seconds;
use kilnyard_store::{Holder, Record};
use serde_json::{Map, json};
use std::time::{Duration, Instant};

/// Builds in progress at a time.
const SLOTS: usize = 64;
/// The most decisions that are written at once, as a run on a busy machine does.
const AT_ONCE: usize = 32;
/// How much the server may grow after the first half, when it has most of what it keeps of a run.
const GROWTH_MAX: f64 = 1.25;
/// How often the memory is read.
const READINGS: usize = 20;

/// Replays a run in a yard of its own.
pub fn measure(options: &BenchOptions, trial: &Trial<'_>) -> Result<Report> {
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = super::open_yard(&scratch, trial)?;
    let mut store = yard.store()?;
    store.lead(&Holder::named("benchmark")).map_err(store_error)?;
    // A run whose process holds no lock was killed.
    let _lock = yard.lock()?;
    let run = begin_run(&mut *store, 0..0, 0)?;
    save_plan(&mut *store)?;
    let server = Server::start(&yard)?;
    let whole = Duration::from_secs(u64::from(options.seconds));
    let address = server.address;
    trial.say(format_args!("replaying a run for {} s: http://{address}/runs/{run}", options.seconds));
    super::ask(address, &format!("/runs/{run}"))?;

    let (began, cpu) = (Instant::now(), server.cpu_seconds()?);
    let (mut memory, mut events) = (Vec::new(), 0);
    let mut records = Vec::new();
    // The last steps end what is in progress.
    let steps = PACKAGES + SLOTS;
    for step in 0..steps {
        check_interrupt()?;
        let at_seconds = now_seconds();
        let decided = |number: usize, state: PackageState, reason: Reason| Record::Package {
            run,
            name: synthetic::name(number),
            state,
            reason,
            blamed: None,
            at_seconds,
        };
        let records_of = |number: usize| {
            build_records(run, number as u64 + 1, number, at_seconds, end_of(number)).into_iter()
        };
        if step < PACKAGES {
            records.push(decided(step, PackageState::Building, Reason::FirstBuild));
            records.extend(records_of(step).take(1));
        }
        if let Some(ended) = step.checked_sub(SLOTS) {
            records.extend(records_of(ended).skip(1));
            records.push(decided(
                ended,
                end_of(ended),
                crate::queries::package_row(ended, end_of(ended)).reason,
            ));
        }
        if step % AT_ONCE == AT_ONCE - 1 || step + 1 == steps {
            events += records.len();
            store.record(&records).map_err(store_error)?;
            records.clear();
            let next = whole.mul_f64((step + 1) as f64 / steps as f64);
            std::thread::sleep(next.saturating_sub(began.elapsed()));
        }
        if (step + 1) * READINGS / steps > memory.len() {
            memory.push(server.memory_bytes()? as f64);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let core = (server.cpu_seconds()? - cpu) / seconds;
    let (half, end) = (memory[READINGS / 2 - 1], memory[READINGS - 1]);
    let mut facts = Map::new();
    facts.insert("events".to_owned(), json!(events));
    facts.insert("seconds".to_owned(), json!(seconds));
    facts.insert("memory_bytes".to_owned(), json!(memory));
    facts.insert("server_cores".to_owned(), json!(core));
    let mut report = Report {
        name: "serve-replay",
        series: vec![Series::new("server_memory_bytes", "the server's memory", Unit::Bytes, memory)],
        facts,
        notes: vec![format!(
            "{events} records in {seconds:.0} s; the server used {:.0} % of a core, and its memory grew by {:.0} % in the second half",
            core * 100.0,
            (end / half - 1.0) * 100.0
        )],
        target: format!("memory grows by less than {:.0} % in the second half", (GROWTH_MAX - 1.0) * 100.0),
        is_met: Some(true),
    };
    report.judge(end <= half * GROWTH_MAX, "flat memory");
    Ok(report)
}

/// How a build ends.
fn end_of(number: usize) -> PackageState {
    if number.is_multiple_of(100) { PackageState::Failed } else { PackageState::Built }
}
