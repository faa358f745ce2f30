//! Lines for logs and pipes: one for each decided package, and the relevant log lines of failures.

use super::{RELOADING, Snapshot, View, ViewEvent, difference_line, quarantine_line, request_line};
use crate::causes::{COUNTED, Report, Reported};
use crate::words;
use kilnyard_model::foreign;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_store::RunState;
use std::io::Write;
use std::time::{Duration, Instant};

/// After this long without output, a line lists the running builds.
const QUIET_MAX: Duration = Duration::from_secs(60);

/// See the module documentation.
pub struct Plain {
    out: Box<dyn Write>,
    spoken: Instant,
    /// The build that ended last. The state of its package follows.
    ended: Option<Ended>,
    reported: Reported,
}

#[derive(Debug)]
struct Ended {
    package: String,
    /// Version, duration, and whether the build is reproducible.
    summary: String,
    /// The relevant log lines of a failure.
    lines: Vec<String>,
}

impl Plain {
    /// Lines on this output.
    pub fn new(out: Box<dyn Write>) -> Plain {
        Plain { out, spoken: Instant::now(), ended: None, reported: Reported::default() }
    }
}

impl Plain {
    fn say(&mut self, text: &str) {
        self.spoken = Instant::now();
        // Without a reader the run continues.
        let _ = writeln!(self.out, "{}", foreign::text(text));
    }
}

impl Plain {
    fn decided(&mut self, package: &str, state: PackageState, reason: &Reason, snapshot: &Snapshot) {
        let ended = self.ended.take().filter(|ended| ended.package == package);
        let (done, total) = snapshot.done();
        match state {
            // There may be thousands of these: the count is enough.
            PackageState::Building | PackageState::UpToDate => {}
            PackageState::Waiting | PackageState::Ready if ended.is_none() => {}
            PackageState::Waiting | PackageState::Ready => self.say(&format!("{package}: {reason}")),
            PackageState::Failed => {
                let report = self.reported.next(reason);
                if report == Report::Counted {
                    return;
                }
                self.say(&format!("[{done}/{total}] FAILED {package}: {reason}"));
                if report == Report::Last {
                    self.say(COUNTED);
                }
                for line in ended.into_iter().flat_map(|ended| ended.lines) {
                    self.say(&format!("    {line}"));
                }
            }
            _ => {
                let summary = ended.map_or(String::new(), |ended| ended.summary);
                self.say(&format!("[{done}/{total}] {state} {package}{summary}: {}", reason.first_line()));
            }
        }
    }
}

impl View for Plain {
    fn see(&mut self, seen: &ViewEvent, snapshot: &Snapshot) {
        match seen {
            ViewEvent::Began => {
                let (done, total) = snapshot.done();
                let verb = if snapshot.is_resumed { "resuming run" } else { "run" };
                self.say(&format!(
                    "{verb} {}: {}, {} in parallel, {} expected",
                    snapshot.run,
                    words::count(total - done, "package"),
                    snapshot.slots,
                    words::duration(snapshot.expected_seconds)
                ));
            }
            ViewEvent::State { package, state, reason } => self.decided(package, *state, reason, snapshot),
            ViewEvent::BuildEnded(build, end) => {
                let took = words::duration(build.started.elapsed().as_secs_f64());
                let reproducible = match end.is_reproducible {
                    Some(true) => "; built twice with the same bytes",
                    Some(false) => "; built twice with DIFFERENT bytes",
                    None => "",
                };
                let lines = end.failure.map_or(Vec::new(), |failure| failure.lines.clone());
                let summary = format!(" {} in {took}{reproducible}", build.version);
                self.ended = Some(Ended { package: build.package.clone(), summary, lines });
            }
            ViewEvent::Asked(request) => {
                self.say(&request_line(request));
            }
            ViewEvent::Refused { request, reason } => {
                self.say(&format!("cannot {} {}: {reason}", request.kind.as_str(), request.package));
            }
            ViewEvent::Quarantined { worker, reason } => self.say(&quarantine_line(worker, reason)),
            ViewEvent::Differs { package, message } => self.say(&difference_line(package, message)),
            ViewEvent::DiskFull => self.say("the disk is full; waiting for free space"),
            ViewEvent::Reloading => self.say(RELOADING),
            ViewEvent::Stopping => self.say("stopping: builds are being cancelled; finished work is kept"),
            ViewEvent::Ended(RunState::Interrupted) => {
                self.say("interrupted; the same command resumes it");
            }
            ViewEvent::Ended(_) | ViewEvent::Decided(_) => {}
        }
    }

    fn tick(&mut self, snapshot: &Snapshot) {
        if self.spoken.elapsed() >= QUIET_MAX {
            let builds: Vec<String> = snapshot
                .builds
                .iter()
                .map(|build| {
                    let stage = build.stage.map_or("starting", |stage| stage.as_str());
                    let since = words::duration(build.started.elapsed().as_secs_f64());
                    format!("{} ({stage}, {since})", build.package)
                })
                .collect();
            let what = if builds.is_empty() { "fetching".to_owned() } else { builds.join(", ") };
            self.say(&format!("running: {what}"));
        }
    }
}
