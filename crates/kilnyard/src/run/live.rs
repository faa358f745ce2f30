//! Writes what only the process of a run knows for other processes on its machine, once a second: the stages that are
//! running, and samples of their processes.

use super::view::Snapshot;
use crate::words::now_seconds;
use crate::yard::Yard;
use kilnyard_schema::run::{Live, LiveBuild, Sample};
use kilnyard_yard::facts::live;
use std::time::{Duration, Instant};

/// How often it is written.
const EVERY: Duration = Duration::from_secs(1);

/// See the module documentation. What was written is removed when this is dropped.
pub struct LiveFile {
    yard: Yard,
    written: Option<Instant>,
}

impl LiveFile {
    /// Nothing is written yet.
    pub fn new(yard: &Yard) -> LiveFile {
        LiveFile { yard: yard.clone(), written: None }
    }

    /// Writes the builds of a run, unless that was a moment ago.
    pub fn write(&mut self, snapshot: &Snapshot) {
        if self.written.is_some_and(|written| written.elapsed() < EVERY) {
            return;
        }
        self.written = Some(Instant::now());
        let at_seconds = now_seconds();
        let builds = snapshot.builds.iter().map(|seen| LiveBuild {
            build: seen.build,
            package: seen.package.clone(),
            stage: seen.stage.map(|stage| stage.to_string()),
            stage_started_seconds: at_seconds - seen.stage_started.elapsed().as_secs_f64(),
            sample: Sample {
                cores: seen.cores,
                memory_bytes: seen.memory_bytes,
                processes: seen.processes.0,
                runnable: seen.processes.1,
            },
        });
        live::write(&self.yard, &Live { run: snapshot.run, at_seconds, builds: builds.collect() });
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        live::remove(&self.yard);
    }
}
