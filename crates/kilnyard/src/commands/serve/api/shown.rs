//! Makes the pages for people.

use super::Yards;
use super::opened::Opened;
use crate::words::now_seconds;
use kilnyard_api::bodies::OWN_YARD;
use kilnyard_api::pages::{Wanted, base};
use kilnyard_api::queries::{At, Facts, Order, PackageFilter, Viewer};
use kilnyard_api::requests::Trouble;
use kilnyard_model::result::PackageState;
use kilnyard_schema::package::Build;
use kilnyard_web::{Button, Chosen, LogText, Now, Place, Shell};
use kilnyard_yard::facts::packages;
use kilnyard_yard::report::{name_of, of_picture};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The builds that the page of a package lists.
const BUILDS_MAX: usize = 50;
/// The runs that figures are of.
const FIGURES_RUNS: usize = 10;
/// The results that a search shows.
const FOUND_MAX: usize = 200;
/// The most bytes at the end of a log that a page shows.
const LOG_BYTES_MAX: usize = 1 << 20;
/// How old the part of a page that changes may be.
const NOW_AGE: Duration = Duration::from_millis(1500);
/// The causes for which a failure is shown in full.
const EXAMPLES_MAX: usize = 20;

/// What a person may ask for from the page of a package in a state.
fn buttons(state: &str, is_running: bool) -> Vec<Button> {
    let retry = Button { request: "retry", text: "Retry" };
    let skip = Button { request: "skip", text: "Skip" };
    let bump = Button { request: "bump", text: "Build first" };
    match PackageState::parse(state) {
        Some(PackageState::Failed) => vec![retry],
        Some(PackageState::Waiting | PackageState::Ready) if is_running => vec![bump, skip],
        Some(PackageState::Building) if is_running => vec![skip],
        _ => Vec::new(),
    }
}

pub(super) fn page(yards: &Yards, at: &At, page: &Wanted, viewer: &Viewer) -> Result<String, Trouble> {
    let now_seconds = now_seconds();
    let title = yards.with(at, |opened| Ok(name_of(&opened.yard)))?;
    let place = Place::Server { base: base(at), parameters: parameters(at) };
    let shell = |run: Option<u64>| Shell {
        place: place.clone(),
        title: title.clone(),
        run,
        viewer: viewer.name.clone(),
    };
    match page {
        Wanted::Start | Wanted::Run(None) if yards.with(at, |opened| opened.last_run())?.is_none() => {
            Ok(kilnyard_web::runs(&shell(None), &[], now_seconds))
        }
        Wanted::Start | Wanted::Run(None) => yards.with(at, |opened| {
            let run = opened.run_number(None)?;
            opened.run_page(&shell(Some(run)), run, at, now_seconds)
        }),
        Wanted::Run(Some(run)) => {
            yards.with(at, |opened| opened.run_page(&shell(Some(*run)), *run, at, now_seconds))
        }
        Wanted::Now(run) => yards.with(at, |opened| {
            let run = opened.run_number(*run)?;
            opened.now_part(&shell(Some(run)), run, at, now_seconds)
        }),
        Wanted::Failures(run) => yards.with(at, |opened| {
            let failures = opened.failures(*run)?;
            let picture = opened.picture(*run)?;
            let example = |cause: &kilnyard_schema::run::Cause| -> Option<Build> {
                let places = cause.packages.iter().filter_map(|name| picture.place(name));
                places.filter_map(|place| picture.last_build(place)).map(packages::build).next()
            };
            let shown: Vec<Build> = failures.causes.iter().take(EXAMPLES_MAX).filter_map(example).collect();
            Ok(kilnyard_web::failures(&shell(Some(failures.run)), &failures, &shown))
        }),
        Wanted::Packages(run, filter) => yards.with(at, |opened| {
            let page = opened.packages(*run, filter)?;
            let picture = opened.picture(*run)?;
            let (run, counts): (u64, BTreeMap<String, u64>) = (picture.run.number, picture.counts());
            Ok(kilnyard_web::packages(&shell(Some(run)), run, &chosen(filter), &counts, &page))
        }),
        Wanted::Queue => yards.with(at, |opened| {
            let (run, outlook) = (opened.last_run()?, opened.outlook()?);
            Ok(kilnyard_web::queue(&shell(run), &outlook.queue, now_seconds))
        }),
        Wanted::Package(name) => {
            let why = yards.why(at, name)?;
            yards.with(at, |opened| {
                let history = opened.history(name, BUILDS_MAX)?;
                let (run, is_running) = (opened.last_run()?, opened.yard.is_locked());
                let buttons = if viewer.may_ask { buttons(&why.state, is_running) } else { Vec::new() };
                let of = (at.yard.as_str(), at.target.as_deref().unwrap_or(""));
                Ok(kilnyard_web::package(&shell(run), &why, &history, (of, &buttons), now_seconds))
            })
        }
        Wanted::Log(log) => {
            let (build, found, file) = yards.log_file(at, log)?;
            let (bytes, lines_before, size) = file.end(LOG_BYTES_MAX).map_err(super::opened::refused_read)?;
            let (skipped, mut shown) = last_lines(&bytes);
            let mut end_bytes = size;
            if found.is_open {
                // An unfinished line is sent when it is whole.
                let whole = shown.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                end_bytes -= (shown.len() - whole) as u64;
                shown = &shown[..whole];
            }
            let text = String::from_utf8_lossy(shown);
            let text = kilnyard_model::foreign::log(&text);
            let failure = build.failure.as_ref().filter(|failure| failure.stage == found.stage);
            let shown = LogText {
                package: &log.package,
                build: log.build,
                stage: found.stage.as_str(),
                first_line: lines_before + skipped + 1,
                text: &text,
                end_bytes,
                telling_line: failure.and_then(|failure| failure.line_number),
                is_open: found.is_open,
            };
            Ok(kilnyard_web::log(&shell(Some(build.run)), shown))
        }
        Wanted::Compare(earlier, later) => {
            let difference = yards.difference(at, *earlier, *later)?;
            let runs = yards.runs(at)?;
            Ok(kilnyard_web::compare(&shell(Some(difference.later)), &difference, &runs))
        }
        Wanted::Workers => {
            let workers = yards.workers(at)?;
            yards.with(at, |opened| {
                let run = opened.last_run()?;
                let mut builds: BTreeMap<String, u64> = BTreeMap::new();
                if let (Some(_), true) = (run, opened.yard.is_locked()) {
                    for build in opened.status(None, &at.yard)?.building {
                        *builds.entry(build.worker.unwrap_or_else(crate::run::host_name)).or_default() += 1;
                    }
                }
                let builds: Vec<(String, u64)> = builds.into_iter().collect();
                Ok(kilnyard_web::workers(&shell(run), &workers, &builds))
            })
        }
        Wanted::Figures => {
            let figures = yards.figures(at, FIGURES_RUNS, None)?;
            let run = yards.with(at, |opened| opened.last_run())?;
            Ok(kilnyard_web::figures(&shell(run), &figures))
        }
        Wanted::Search(text) => {
            let found = yards.search(at, text, FOUND_MAX)?;
            let run = yards.with(at, |opened| opened.last_run())?;
            Ok(kilnyard_web::search(&shell(run), text, &found))
        }
        Wanted::Runs => {
            let runs = yards.runs(at)?;
            Ok(kilnyard_web::runs(&shell(runs.first().map(|run| run.run)), &runs, now_seconds))
        }
    }
}

impl Opened {
    /// The part of a run's page that changes. All who keep the page open ask for it at about the same time, so that it is made once
    /// for them.
    fn now_part(&mut self, shell: &Shell, run: u64, at: &At, now_seconds: f64) -> Result<String, Trouble> {
        if let Some((made, of, text)) = &self.now
            && *of == run
            && made.elapsed() < NOW_AGE
        {
            return Ok(text.clone());
        }
        let status = self.status(Some(run), &at.yard)?;
        let (outlook, failures) = (self.outlook()?, self.failures(Some(run))?);
        let seq = self.loaded()?.seq;
        let now = Now { status: &status, queue: &outlook.queue, causes: &failures.causes, now_seconds, seq };
        let text = kilnyard_web::now(shell, &now);
        self.now = Some((Instant::now(), run, text.clone()));
        Ok(text)
    }

    fn run_page(&mut self, shell: &Shell, run: u64, at: &At, now_seconds: f64) -> Result<String, Trouble> {
        let status = self.status(Some(run), &at.yard)?;
        let is_running = status.state == "running";
        let (outlook, causes) = match is_running {
            true => (self.outlook()?, self.failures(Some(run))?.causes),
            false => (Arc::default(), Vec::new()),
        };
        self.load(Some(run))?;
        let mut report = of_picture(&self.yard, self.loaded()?);
        if status.state == "killed" {
            report.state = kilnyard_web::RunState::Interrupted;
        }
        let now = Now {
            status: &status,
            queue: &outlook.queue,
            causes: &causes,
            now_seconds,
            seq: self.loaded()?.seq,
        };
        Ok(kilnyard_web::run(shell, &report, is_running.then_some(&now)))
    }
}

/// The parameters that name a yard to the API.
fn parameters(at: &At) -> String {
    let yard = (at.yard != OWN_YARD).then(|| format!("yard={}", at.yard));
    let target = at.target.as_ref().map(|target| format!("target={target}"));
    yard.into_iter().chain(target).collect::<Vec<String>>().join("&")
}

fn chosen(filter: &PackageFilter) -> Chosen {
    let order = match filter.order {
        Order::Name => "",
        Order::Wall => "wall",
        Order::Cpu => "cpu",
        Order::Memory => "memory",
        Order::State => "state",
    };
    Chosen {
        states: filter.states.join(","),
        text: filter.text.clone().unwrap_or_default(),
        order: order.to_owned(),
    }
}

/// The last lines of a text that a page shows, and the number of those before them.
fn last_lines(bytes: &[u8]) -> (u64, &[u8]) {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    let skipped = ends.clone().count().saturating_sub(kilnyard_web::LOG_LINES_MAX);
    match skipped.checked_sub(1).and_then(|last| ends.clone().nth(last)) {
        Some(end) => (skipped as u64, &bytes[end + 1..]),
        None => (0, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_shown() {
        assert_eq!(last_lines(b"a\nb\n"), (0, &b"a\nb\n"[..]));
        let many: Vec<u8> = (1..=6000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
        let (skipped, shown) = last_lines(&many);
        assert_eq!((skipped, shown.starts_with(b"1001\n")), (1000, true));
        assert_eq!(last_lines(b"").0, 0);
    }
}
