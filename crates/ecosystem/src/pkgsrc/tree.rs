//! Scans a pkgsrc tree with its own make: the list of its directories, and the packages of each (pkgsrc guide,
//! "Directory layout"; `mk/pbulk/pbulk-index.mk`).

use super::scan_file::{ScanFile, is_location};
use kilnyard_process::{CaptureEnd, CaptureLimits, Captured, capture};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Lines of make's output that an error shows.
const SHOWN_LINES_MAX: usize = 12;
/// Runs make in the directories of a tree, several in parallel.
pub trait Make: Sync {
    /// Runs make in a directory of the tree ("" is the tree itself) until it exits or reaches its time limit.
    fn run(&self, directory: &str, arguments: &[&str], cancel: &AtomicBool) -> io::Result<Captured>;

    /// The time limit of one run.
    fn time_limit(&self) -> TimeLimit;

    /// The program's name in messages.
    fn name(&self) -> String;
}

/// Time limit of one run of make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// Longest allowed wall time.
    pub seconds_max: u64,
    /// The name of the setting, for messages.
    pub setting: &'static str,
}

/// Runs make directly on the machine, outside any root.
#[derive(Clone, Debug)]
pub struct MachineMake {
    /// The tree's folder.
    pub folder: PathBuf,
    /// The make program, such as `bmake`.
    pub make: PathBuf,
    /// The folder in which make caches build options. Without it, the time for some directories grows exponentially
    /// with the depth of their dependencies.
    pub option_cache: PathBuf,
    /// Time limit of one run.
    pub time_limit: TimeLimit,
}

impl MachineMake {
    /// The complete environment of make: the result must not depend on the caller's.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PATH", "/usr/pkg/sbin:/usr/pkg/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME", "/nonexistent".to_owned()),
            ("LC_ALL", "C".to_owned()),
            ("BATCH", "1".to_owned()),
            (OPTION_CACHE_VARIABLE, self.option_cache.display().to_string()),
        ]
    }
}

impl Make for MachineMake {
    fn run(&self, directory: &str, arguments: &[&str], cancel: &AtomicBool) -> io::Result<Captured> {
        let mut command = Command::new(&self.make);
        command.args(arguments).current_dir(self.folder.join(directory)).env_clear();
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        let (wall_seconds_max, output_bytes_max) = (self.time_limit.seconds_max, OUTPUT_BYTES_MAX);
        capture(command, CaptureLimits { wall_seconds_max, output_bytes_max }, cancel)
    }

    fn time_limit(&self) -> TimeLimit {
        self.time_limit
    }

    fn name(&self) -> String {
        self.make.display().to_string()
    }
}

/// The variable that names make's option cache (`mk/pkg-build-options.mk`).
pub const OPTION_CACHE_VARIABLE: &str = "PBULK_CACHE_DIRECTORY";

/// Default time limit of one run of make, in minutes: the slowest directory of the tree of 2014 takes 30 s of CPU.
pub const MINUTES_MAX: f64 = 15.0;

/// Limit on the output of one run of make: the largest directory of 2026 prints 12 packages in half a megabyte.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// A tree, and the make that scans it.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    /// The way to run make.
    pub make: &'a dyn Make,
}

/// The reason why a directory could not be scanned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// make failed.
    #[error("{what} failed with exit code {code}: {said}")]
    Make {
        /// The command that failed.
        what: String,
        /// make's exit code.
        code: i32,
        /// The last lines of its output.
        said: String,
    },
    /// make reached its time limit.
    #[error("{what} did not finish within {} s ({})", .limit.seconds_max, .limit.setting)]
    TooLong {
        /// The command that was stopped.
        what: String,
        /// The time limit, with its setting.
        limit: TimeLimit,
    },
    /// make printed something unexpected.
    #[error("{what} printed unexpected output: {reason}")]
    Output {
        /// The command that printed it.
        what: String,
        /// The fault in the output.
        reason: String,
    },
    /// make could not be started.
    #[error("{what} could not be started: {reason}")]
    Start {
        /// The command that was not started.
        what: String,
        /// The system's error.
        reason: String,
    },
    /// The scan was cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

impl Tree<'_> {
    fn ask(&self, relative: &str, arguments: &[&str], cancel: &AtomicBool) -> Result<Vec<u8>, TreeError> {
        let what = || format!("{} {} in {relative:?}", self.make.name(), arguments.join(" "));
        let captured = (self.make)
            .run(relative, arguments, cancel)
            .map_err(|error| TreeError::Start { what: what(), reason: error.to_string() })?;
        match captured.end {
            CaptureEnd::Exit(0) => Ok(captured.output),
            CaptureEnd::Exit(code) => {
                Err(TreeError::Make { what: what(), code, said: last_lines(&captured) })
            }
            CaptureEnd::WallLimit => Err(TreeError::TooLong { what: what(), limit: self.make.time_limit() }),
            CaptureEnd::OutputLimit => {
                let reason = format!("it has more than {OUTPUT_BYTES_MAX} bytes");
                Err(TreeError::Output { what: what(), reason })
            }
            CaptureEnd::Cancelled => Err(TreeError::Cancelled),
        }
    }

    /// All locations that the tree lists, in its order. `jobs` categories are queried at a time.
    pub fn locations(&self, jobs: u32, cancel: &AtomicBool) -> Result<Vec<String>, TreeError> {
        let categories = self.subdirectories("", cancel)?;
        Ok(self.locations_of(&categories, jobs, cancel)?.concat())
    }

    /// The locations that the Makefile of each category lists, in its order. `jobs` categories are queried at a
    /// time.
    pub fn locations_of(
        &self,
        categories: &[String],
        jobs: u32,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<String>>, TreeError> {
        let answers: Vec<OnceLock<Result<Vec<String>, TreeError>>> =
            categories.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..(jobs as usize).clamp(1, categories.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(category) = categories.get(number) else { return };
                        let answer = self.subdirectories(category, cancel);
                        if answer.is_err() {
                            // A category that cannot be listed ends the scan: no more are queried.
                            next.store(categories.len(), Ordering::Relaxed);
                        }
                        // Each number is handed out once.
                        let _ = answers[number].set(answer);
                    }
                });
            }
        });
        let mut listed = Vec::new();
        for (category, answer) in categories.iter().zip(answers) {
            // A category lacks an answer only after an error, which is returned instead.
            let Some(directories) = answer.into_inner().transpose()? else { continue };
            listed.push(directories.into_iter().map(|directory| format!("{category}/{directory}")).collect());
        }
        Ok(listed)
    }

    fn subdirectories(&self, relative: &str, cancel: &AtomicBool) -> Result<Vec<String>, TreeError> {
        let arguments = ["show-subdir-var", "VARNAME=SUBDIR"];
        let output = self.ask(relative, &arguments, cancel)?;
        let text = String::from_utf8_lossy(&output).into_owned();
        let names = text.split_ascii_whitespace().map(|name| {
            // Rejects names that are not a valid location.
            match is_location(&format!("category/{name}")) {
                true => Ok(name.to_owned()),
                false => Err(TreeError::Output {
                    what: format!("{} {} in {relative:?}", self.make.name(), arguments.join(" ")),
                    reason: format!("`{name}` is not a directory"),
                }),
            }
        });
        names.collect()
    }

    /// The packages of a directory: stanzas of a scan file, each with its location.
    pub fn index(&self, location: &str, cancel: &AtomicBool) -> Result<Vec<u8>, TreeError> {
        let output = self.ask(location, &["pbulk-index"], cancel)?;
        let mut stanzas = Vec::with_capacity(output.len() + 64);
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            stanzas.extend(line);
            if !line.ends_with(b"\n") {
                stanzas.push(b'\n');
            }
            if line.starts_with(b"PKGNAME=") {
                stanzas.extend(format!("PKG_LOCATION={location}\n").into_bytes());
            }
        }
        ScanFile::parse(&stanzas).map_err(|error| TreeError::Output {
            what: format!("{} pbulk-index in {location:?}", self.make.name()),
            reason: error.to_string(),
        })?;
        Ok(stanzas)
    }
}

fn last_lines(captured: &Captured) -> String {
    let text =
        String::from_utf8_lossy(if captured.errors.is_empty() { &captured.output } else { &captured.errors });
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..];
    kilnyard_model::text::lines(&shown.join("\n"))
}
