//! `kilnyard.toml`: what a person says of a yard.

pub mod edit;
pub mod limits;
mod roots;

use roots::Root;

use crate::error::{Error, Result};
use crate::family::{Entry, Family};
use kilnyard_coordinator::RetryPolicy;
use kilnyard_model::result::FailureKind;
use kilnyard_process::{LimitRules, LogLimits};
use kilnyard_root::Roots;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The whole file, as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    packages: Packages,
    packages_file: Option<PathBuf>,
    #[serde(default)]
    root: Root,
    #[serde(default)]
    build: Build,
    #[serde(default)]
    limits: limits::Limits,
    #[serde(default)]
    retry: BTreeMap<FailureKind, u32>,
    #[serde(default)]
    repository: Repository,
    /// Tables of families, which read them themselves; and what is misspelt.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// What every yard's configuration may have.
const KEYS: [&str; 8] =
    ["packages", "packages-file", "root", "build", "limits", "retry", "repository", "a family's table"];

/// Layers of dependencies of a few hundred packages take some gigabytes.
const LAYERS_BYTES: u64 = 20 << 30;

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What to build.
    pub packages: Packages,
    /// A file with more of them, one a line.
    pub packages_file: Option<PathBuf>,
    /// The package family, with what is its own.
    pub family: Arc<dyn Family>,
    /// How roots are made.
    pub roots: Roots,
    /// How builds are done.
    pub build: Build,
    /// What one build may take.
    pub limits_of_builds: limits::Limits,
    /// What is tried again.
    pub retries: RetryPolicy,
    /// What the repository says of itself.
    pub repository: Repository,
}

/// Which packages.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Packages {
    /// These: sources by name or as paths of `.dsc` files; directories and categories of a tree.
    Some(Vec<String>),
    /// `"all"`: every source of the release, every directory of the tree.
    All(All),
}

/// The word `all`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub enum All {
    /// Everything there is.
    #[serde(rename = "all")]
    All,
}

/// The word for everything there is.
pub const ALL: &str = "all";

impl Default for Packages {
    fn default() -> Self {
        Packages::Some(Vec::new())
    }
}

/// The table `build`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Build {
    /// Builds at once; as many as keep the cores busy where it is absent.
    pub slots: Option<u32>,
    /// Cores of one build; all where it is absent.
    pub jobs: Option<u32>,
    /// Packages that come before all others, with all that they wait for; the last one first of all.
    pub first: Vec<String>,
    /// Memory of all builds together; what the machine has where it is absent.
    pub memory: Option<Size>,
    /// How builds find their jobserver.
    pub jobserver: Jobserver,
    /// Whether outputs are installed and removed in a clean root.
    pub test: bool,
    /// How much layers of dependencies may take on the disk; with 0, the package manager installs all of them
    /// in each root.
    pub layers: Room,
    /// Whether work folders may be in memory, where a build is expected to be small enough.
    pub work_in_memory: bool,
    /// The longest that one command of a stage may run.
    pub wall_minutes_max: f64,
    /// The CPU time that it may use in any case. Only a configured value also limits a stage that was never seen.
    pub cpu_minutes_min: Option<f64>,
    /// The longest that it may do nothing at all, in any case.
    pub hung_minutes_min: f64,
    /// The longest that it may print nothing, in any case.
    pub silent_minutes_min: f64,
    /// What `silent-minutes-min` was called; it is read to say so.
    idle_minutes_max: Option<f64>,
    /// How many processes and threads it may have at once.
    pub processes_max: u32,
    /// How much of a log is kept.
    pub log_mebibytes_max: u64,
    /// How many roots of failed builds are kept for `kilnyard shell`.
    pub failed_roots_max: usize,
    /// Packages whose builds may make user namespaces, which all others are refused.
    pub namespaces: Vec<String>,
    /// The slowest download that is put up with.
    pub mirror_bytes_per_second_min: u64,
}

/// The default of `cpu-minutes-min`.
const CPU_MINUTES_MIN: f64 = 120.0;

impl Default for Build {
    fn default() -> Self {
        Build {
            slots: None,
            jobs: None,
            first: Vec::new(),
            memory: None,
            jobserver: Jobserver::Pipe,
            test: true,
            layers: Room(LAYERS_BYTES),
            work_in_memory: true,
            wall_minutes_max: 12.0 * 60.0,
            cpu_minutes_min: None,
            hung_minutes_min: 10.0,
            silent_minutes_min: 60.0,
            idle_minutes_max: None,
            processes_max: 4096,
            log_mebibytes_max: 32,
            failed_roots_max: 10,
            namespaces: Vec::new(),
            mirror_bytes_per_second_min: 10_000,
        }
    }
}

/// From what limits of each command follow, by these two tables.
pub(crate) fn rules(build: &Build, limits: &limits::Limits) -> LimitRules {
    limits.rules(LimitRules {
        wall_seconds_max: build.wall_minutes_max * 60.0,
        cpu_seconds_min: build.cpu_minutes_min.unwrap_or(CPU_MINUTES_MIN) * 60.0,
        cpu_seconds_unknown_max: build.cpu_minutes_min.map(|minutes| minutes * 60.0),
        hung_seconds_min: build.hung_minutes_min * 60.0,
        silent_seconds_min: build.silent_minutes_min * 60.0,
        processes_max: build.processes_max,
        memory_bytes_min: 0,
        memory_bytes_max: None,
        written_bytes_min: 0,
        open_files_max: 0,
    })
}

/// How builds find their jobserver.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Jobserver {
    /// As two descriptors, which every make understands.
    #[default]
    Pipe,
    /// By its path, for make from 4.4 on.
    Fifo,
    /// They have none, and cores follow rank by their weights alone.
    Off,
}

/// A size in bytes, or in K, M, G or T of 1024 each: `64G`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Size, String> {
        text.parse()
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let wrong = || format!("`{text}` is not a size, such as 64G");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = text[digits.len()..].to_ascii_uppercase();
        let shift = match unit.trim_end_matches("IB").trim_end_matches('B') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Size).ok_or_else(wrong)
    }
}

/// A [`Size`] that may be `0`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Room(pub u64);

impl TryFrom<String> for Room {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Room, String> {
        if text == "0" { Ok(Room(0)) } else { text.parse::<Size>().map(|size| Room(size.0)) }
    }
}

/// The table `repository`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Repository {
    /// `Origin` and `Label` of the `Release` file.
    pub origin: String,
}

impl Build {
    fn check(&self) -> std::result::Result<(), String> {
        if self.slots == Some(0) || self.jobs == Some(0) {
            return Err("slots and jobs must be at least 1".to_owned());
        }
        if let Some(minutes) = self.idle_minutes_max {
            return Err(format!(
                "idle-minutes-max is called silent-minutes-min now, and is the least that is allowed: a stage that is known \
                 to be silent for longer is given ten times that; write silent-minutes-min = {minutes}"
            ));
        }
        let minutes = [
            ("wall-minutes-max", self.wall_minutes_max),
            ("cpu-minutes-min", self.cpu_minutes_min.unwrap_or(CPU_MINUTES_MIN)),
            ("hung-minutes-min", self.hung_minutes_min),
            ("silent-minutes-min", self.silent_minutes_min),
        ];
        for (key, value) in minutes {
            check_minutes(key, value)?;
        }
        if self.processes_max < PROCESSES_MIN {
            return Err(format!("processes-max is {}, and {PROCESSES_MIN} is the least", self.processes_max));
        }
        let bounded = [
            ("slots", self.slots.unwrap_or(1).into(), SLOTS_MAX),
            ("jobs", self.jobs.unwrap_or(1).into(), JOBS_MAX),
            ("log-mebibytes-max", self.log_mebibytes_max, LOG_MEBIBYTES_MAX),
        ];
        match bounded.into_iter().find(|(_, value, max)| value > max) {
            Some((key, value, max)) => Err(format!("{key} is {value}, and {max} is the most")),
            None => Ok(()),
        }
    }
}

/// The lines of a template that are the same in every yard.
pub const COMMON_TEMPLATE: &str = r#"[root]
# backend = "overlay"              # or "tmpfs", "copy", "block"; see docs/roots.md
# scratch = "disk"                 # of an overlay; or "memory"
# flushes = "discard"              # or "keep", for packages that test whether they reach the disk
# file-system = "ext4"             # of a block device; or "xfs", "erofs"
# room = "20G"                     # that a root may write there; taken when it is written
# requests = "forget"              # to a block device; or "log", beside the logs of the build

[build]
# slots = 2                        # builds at once, at most; as many as keep the cores busy
# jobs = 2                         # cores of one build, at most; all
# first = []                       # packages that come before all others, with what they need
# memory = "8G"                    # of all builds together; what the machine has
# jobserver = "pipe"               # or "fifo", for make from 4.4 on, or "off"
# test = true                      # install and remove outputs in a clean root
# layers = "20G"                   # dependencies, installed once for all builds
# work-in-memory = true            # small work folders, where the family has them apart
# wall-minutes-max = 720
# cpu-minutes-min = 120            # or ten times what the stage took before; if set, a first build's limit too
# hung-minutes-min = 10            # nothing at all happens; or ten times the longest before
# silent-minutes-min = 60          # nothing is printed; or ten times the longest before
# processes-max = 4096             # processes and threads of a stage at once
# log-mebibytes-max = 32
# failed-roots-max = 10            # kept for `kilnyard shell`
# namespaces = []                  # packages whose tests make user namespaces (docs/security.md)
# mirror-bytes-per-second-min = 10000

[limits]                           # of one build; in [limits.packages.NAME] those of one package
# disk = "32G"                     # written to its root; or four times what it wrote before
# memory = "6G"                    # of its processes; or four times what they held before; 7/8 of [build] memory
# open-files = 16384               # of one process at once
# unpacked = "20G"                 # what one output unpacks to
# unpacked-files = 1000000         # and how many files that are

[retry]                            # how often failures of a kind are tried again (docs/monitor.md)
# memory = 1                       # alone, with its files on the disk
# disk = 1                         # alone
# signal = 1                       # after a pause
# network = 2                      # after a pause
# machine = 2                      # at once
# lost = 3                         # at once

[repository]
# origin = "Kilnyard"
"#;

/// Words as a list of TOML, one a line.
pub fn list_of(words: &[String]) -> String {
    words.iter().map(|word| format!("  {},\n", quoted(word))).collect()
}

/// A text as a string of TOML.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

impl Default for Repository {
    fn default() -> Self {
        Repository { origin: "Kilnyard".to_owned() }
    }
}

/// Each slot is a thread; no machine has as many cores.
const SLOTS_MAX: u64 = 4096;
/// The largest number of processes that build systems take without wrapping.
const JOBS_MAX: u64 = 4096;
/// A year: what is more is as good as no limit.
const MINUTES_MAX: f64 = 366.0 * 24.0 * 60.0;
/// A second: what is less would end everything.
const MINUTES_MIN: f64 = 1.0 / 60.0;
/// Even a small `make -j` has some processes and threads.
const PROCESSES_MIN: u32 = 64;
/// A tebibyte: no disk should be filled by one log.
const LOG_MEBIBYTES_MAX: u64 = 1 << 20;

/// An error if a limit in minutes is out of bounds.
pub fn check_minutes(key: &str, value: f64) -> std::result::Result<(), String> {
    // What is no number is not within the bounds either.
    match (MINUTES_MIN..=MINUTES_MAX).contains(&value) {
        true => Ok(()),
        false => Err(format!(
            "{key} is {value}, and must be at least {MINUTES_MIN} (one second) and at most {MINUTES_MAX}"
        )),
    }
}

/// A limit in minutes that [`check_minutes`] accepts, in whole seconds.
pub fn seconds_of(minutes: f64) -> u64 {
    (minutes * 60.0).round() as u64
}

impl Config {
    /// Reads a configuration of one of these families; errors say where they are.
    pub fn parse(text: &str, path: &Path, families: &[&'static dyn Entry]) -> Result<Config> {
        let unreadable = |error: toml::de::Error| {
            let mut wrong = Error::usage(format!("{} is not right", path.display()));
            wrong.causes = error.to_string().lines().map(str::to_owned).collect();
            wrong
        };
        let file: File = toml::from_str(text).map_err(unreadable)?;
        let wrong = |reason| Error::usage(format!("{}: {reason}", path.display()));
        let is_of = |key: &String| families.iter().any(|entry| entry.name() == key);
        if let Some(unknown) = file.others.keys().find(|key| !is_of(key)) {
            return Err(wrong(unknown_key(text, unknown)));
        }
        let tables = |entries: &mut dyn Iterator<Item = &&'static dyn Entry>| {
            entries.map(|entry| format!("[{}]", entry.name())).collect::<Vec<_>>()
        };
        let named: Vec<&&'static dyn Entry> =
            families.iter().filter(|entry| file.others.contains_key(entry.name())).collect();
        let entry = match named[..] {
            [entry] => entry,
            [] => {
                let all = tables(&mut families.iter()).join(" or ");
                return Err(wrong(format!("it has no table of a family: {all}")));
            }
            _ => {
                let names = tables(&mut named.into_iter()).join(" and ");
                return Err(wrong(format!("it has several families, {names}: a yard has one")));
            }
        };
        let family = entry.read(text).map_err(unreadable)?;
        let (packages, packages_file) = (file.packages, file.packages_file);
        let retries = RetryPolicy::with(&file.retry).map_err(|reason| wrong(format!("retry: {reason}")))?;
        let config = Config {
            packages,
            packages_file,
            family,
            roots: file.root.roots(),
            build: file.build,
            limits_of_builds: file.limits,
            retries,
            repository: file.repository,
        };
        config.check().map_err(wrong)?;
        Ok(config)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.packages == Packages::All(All::All) && self.packages_file.is_some() {
            return Err("packages = \"all\" leaves nothing for packages-file to add: remove one of the two"
                .to_owned());
        }
        self.family.check()?;
        self.limits_of_builds.check()?;
        self.build.check()
    }

    /// From what limits of each command follow; how much memory there is is not the configuration's to say.
    pub fn limits(&self) -> LimitRules {
        rules(&self.build, &self.limits_of_builds)
    }

    /// Limits of each log.
    pub fn log_limits(&self) -> LogLimits {
        LogLimits { head_bytes_max: self.build.log_mebibytes_max << 20, ..LogLimits::default() }
    }

    /// The names, `.dsc` files, directories or categories that are asked for, from the configuration and its file; none
    /// for all.
    pub fn package_names(&self, yard: &Path) -> Result<Option<Vec<String>>> {
        let mut names = match &self.packages {
            Packages::All(All::All) => return Ok(None),
            Packages::Some(names) => names.clone(),
        };
        if let Some(file) = &self.packages_file {
            let path = yard.join(file);
            let text = fs_err::read_to_string(&path)
                .map_err(|error| Error::usage(format!("packages-file: {error}")))?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
            names.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        }
        for name in &names {
            if name == ALL {
                return Err(Error::usage("`all` stands among the names of packages")
                    .hint("packages = \"all\" in kilnyard.toml, without brackets, for all that there are"));
            }
            self.family.check_name(name)?;
        }
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(Some(names))
    }

    /// What is to be said where no package is asked for.
    pub fn lack(&self, yard: &Path) -> Result<Option<&'static str>> {
        let is_empty = self.package_names(yard)?.is_some_and(|names| names.is_empty());
        Ok(is_empty.then_some(
            "kilnyard.toml asks for no package: write packages = [\"NAME\"], or packages = \"all\"",
        ))
    }
}

/// What is said of a key that no configuration has, with its line.
fn unknown_key(text: &str, key: &str) -> String {
    let document = toml_edit::Document::parse(text).ok();
    let found = document.as_ref().and_then(|document| document.get_key_value(key));
    let start = found.and_then(|(key, item)| item.span().or(key.span())).map(|span| span.start);
    let line = start.map_or(String::new(), |start| {
        format!("line {}: ", text[..start].bytes().filter(|byte| *byte == b'\n').count() + 1)
    });
    format!("{line}unknown key `{key}`, expected one of {}", KEYS.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_nonsense_is_not() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(size("64G"), Ok(64 << 30));
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("7"), Ok(7));
        for text in ["", "G", "0", "-1G", "1.5G", "64X", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
