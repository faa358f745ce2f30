//! Calm lines for logs and pipes: one for each package that is decided, and failures with their lines.

use super::{Seen, Snapshot, View};
use crate::words;
use kilnyard_model::result::PackageState;
use kilnyard_store::RunState;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often a line says that builds are going on when nothing else is said.
const QUIET_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct Plain {
    spoken: Instant,
}

impl Default for Plain {
    fn default() -> Self {
        Plain { spoken: Instant::now() }
    }
}

impl Plain {
    fn say(&mut self, text: &str) {
        self.spoken = Instant::now();
        // Nobody reads any more: the run goes on.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

impl View for Plain {
    fn see(&mut self, seen: &Seen, snapshot: &Snapshot) {
        match seen {
            Seen::Began => {
                let (done, total) = snapshot.done();
                let verb = if snapshot.is_resumed { "going on with" } else { "run" };
                self.say(&format!(
                    "{verb} {}: {} to look at, {} at once, {} expected",
                    snapshot.run,
                    words::count(total - done, "package"),
                    snapshot.slots,
                    words::duration(snapshot.expected_seconds)
                ));
            }
            Seen::State { package, state, reason } => {
                let is_told =
                    !matches!(state, PackageState::Waiting | PackageState::Ready | PackageState::Building);
                if is_told && *state != PackageState::Failed {
                    let (done, total) = snapshot.done();
                    let first = reason.lines().next().unwrap_or("");
                    self.say(&format!("[{done}/{total}] {state} {package}: {first}"));
                } else if *state == PackageState::Failed {
                    let (done, total) = snapshot.done();
                    self.say(&format!("[{done}/{total}] FAILED {package}: {reason}"));
                }
            }
            Seen::BuildEnded(build, result) => {
                let Err(failure) = &result.outcome else {
                    let took = words::duration(build.started.elapsed().as_secs_f64());
                    let reproducible = match result.is_reproducible {
                        Some(true) => "; built twice with the same bytes",
                        Some(false) => "; built twice with DIFFERENT bytes",
                        None => "",
                    };
                    return self
                        .say(&format!("built {} {} in {took}{reproducible}", build.package, build.version));
                };
                for line in &failure.lines {
                    self.say(&format!("    {line}"));
                }
            }
            Seen::Asked(request) => {
                self.say(&format!("somebody asked to {} {}", request.kind.as_str(), request.package));
            }
            Seen::Refused { request, reason } => {
                self.say(&format!("cannot {} {}: {reason}", request.kind.as_str(), request.package));
            }
            Seen::Stopping => self.say("stopping: builds are being cancelled; what is done is kept"),
            Seen::Ended(RunState::Interrupted) => {
                self.say("interrupted; kilnyard build goes on with it");
            }
            Seen::Ended(_) | Seen::StageBegan(..) | Seen::StageEnded(..) => {}
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
            self.say(&format!("still at it: {what}"));
        }
    }
}
