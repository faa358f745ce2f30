//! A pkgsrc tree, asked by its own make: which directories there are, and what each says of its packages
//! (pkgsrc guide, "Directory layout"; `mk/pbulk/pbulk-index.mk`).

use super::scan_file::{ScanFile, is_location};
use kilnyard_process::{CaptureEnd, CaptureLimits, Captured, capture};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How much of what a directory said is told when its scan fails.
const TOLD_LINES_MAX: usize = 12;
/// Runs make in the directories of a tree, several in parallel.
pub trait Make: Sync {
    /// Runs make in a directory of the tree (the tree itself is "") to its end, or to its limit of time.
    fn run(&self, directory: &str, arguments: &[&str], cancel: &AtomicBool) -> io::Result<Captured>;

    /// The limit of time of one run.
    fn time_limit(&self) -> TimeLimit;

    /// The program, as messages call it.
    fn name(&self) -> String;
}

/// How long one run of make may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// The longest.
    pub seconds_max: u64,
    /// The setting that says so, as messages name it.
    pub setting: &'static str,
}

/// make, run on the machine itself.
#[derive(Clone, Debug)]
pub struct MachineMake {
    /// The tree's folder.
    pub folder: PathBuf,
    /// The make program, such as `bmake`.
    pub make: PathBuf,
    /// The folder in which make keeps what it worked out of build options. Without one, the time for some
    /// directories grows exponentially with the depth of their dependencies.
    pub option_cache: PathBuf,
    /// How long one run may take.
    pub time_limit: TimeLimit,
}

impl MachineMake {
    /// The variables that make is started with, and nothing else: an answer must not depend on who asks.
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

/// How many minutes one run of make may take by default: the slowest directory of the tree of 2014 takes 30 s of CPU.
pub const MINUTES_MAX: f64 = 15.0;

/// How much one run of make may print: the largest directory of 2026 says 12 packages in half a megabyte.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// A tree and who asks it.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    /// Who runs make.
    pub make: &'a dyn Make,
}

/// Why a directory could not be scanned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// make ended badly.
    #[error("{what} ended with {code}: {said}")]
    Make {
        /// The command.
        what: String,
        /// Its exit code.
        code: i32,
        /// The last lines of what it printed.
        said: String,
    },
    /// It took too long.
    #[error("{what} was not done after {} s ({})", .limit.seconds_max, .limit.setting)]
    TooLong {
        /// The command.
        what: String,
        /// The limit.
        limit: TimeLimit,
    },
    /// What it printed is not what was asked for.
    #[error("{what} printed something else than asked: {reason}")]
    Output {
        /// The command.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// It could not be started.
    #[error("{what} could not be started: {reason}")]
    Start {
        /// The command.
        what: String,
        /// Why not.
        reason: String,
    },
    /// It was cancelled.
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

    /// All locations that the tree lists, in its order. `jobs` categories are asked at once.
    pub fn locations(&self, jobs: u32, cancel: &AtomicBool) -> Result<Vec<String>, TreeError> {
        let categories = self.subdirectories("", cancel)?;
        Ok(self.locations_of(&categories, jobs, cancel)?.concat())
    }

    /// The locations that the Makefile of each category lists, in its order. `jobs` categories are asked at once.
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
                            // One that cannot be listed ends it: no more are asked.
                            next.store(categories.len(), Ordering::Relaxed);
                        }
                        // Each number is given out once.
                        let _ = answers[number].set(answer);
                    }
                });
            }
        });
        let mut listed = Vec::new();
        for (category, answer) in categories.iter().zip(answers) {
            // None is left out but behind an error; that is told instead.
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
            // A directory that is known by its location must be one.
            match is_location(&format!("category/{name}")) {
                true => Ok(name.to_owned()),
                false => Err(TreeError::Output {
                    what: format!("{} {} in {relative:?}", self.make.name(), arguments.join(" ")),
                    reason: format!("`{name}` is no directory"),
                }),
            }
        });
        names.collect()
    }

    /// What a directory says of its packages: stanzas of a scan file, each with its location.
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
    let told = &lines[lines.len().saturating_sub(TOLD_LINES_MAX)..];
    kilnyard_model::text::lines(&told.join("\n"))
}
