//! `kilnyard.toml`: the configuration of a yard.

pub mod artifacts;
pub mod demand;
pub mod edit;
pub mod farm;
pub mod git;
pub mod limits;
pub mod mirror;
pub mod notify;
mod outputs;
pub mod packages;
pub mod people;
pub mod report;
mod roots;
pub mod signer;
pub mod site;
pub mod store;
pub mod targets;
mod tries;

pub use tries::Tries;

use outputs::Isolation;
pub use outputs::OutputTests;
use roots::Root;
use targets::TargetConfig;

use crate::error::{Error, Result};
use crate::family::{Family, FamilyEntry};
use kilnyard_coordinator::RetryPolicy;
use kilnyard_model::graph::Against;
use kilnyard_model::result::FailureKind;
use kilnyard_process::{LimitRules, LogLimits};
use kilnyard_root::Roots;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The whole file, as parsed.
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
    package: packages::Tables,
    #[serde(default)]
    repository: Repository,
    #[serde(default)]
    farm: farm::Farm,
    #[serde(default)]
    people: people::People,
    #[serde(default)]
    notify: Vec<notify::Notify>,
    #[serde(default)]
    report: report::ReportTable,
    #[serde(default)]
    signer: Option<signer::SignerTable>,
    #[serde(default)]
    mirror: mirror::MirrorTable,
    #[serde(default)]
    git: git::GitTable,
    #[serde(default)]
    store: store::StoreTable,
    #[serde(default)]
    artifacts: artifacts::ArtifactsTable,
    #[serde(default, rename = "try")]
    tries: Tries,
    /// Tables of families, which parse them, and unknown keys.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// The top-level keys, for the error about an unknown one.
const KEYS: [&str; 20] = [
    "packages",
    "packages-file",
    "package",
    "root",
    "build",
    "limits",
    "retry",
    "repository",
    "farm",
    "people",
    "notify",
    "report",
    "signer",
    "git",
    "mirror",
    "store",
    "artifacts",
    "try",
    "target",
    "a family's table",
];

/// Dependency layers of a few hundred packages take several gigabytes.
const LAYERS_BYTES: u64 = 20 << 30;
/// Kept work of a large package takes several gigabytes.
const KEPT_BYTES: u64 = 20 << 30;

/// A parsed and checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The packages to build, without those of `packages_file`.
    pub packages: Packages,
    /// A file with more packages, one per line, relative to the yard.
    pub packages_file: Option<PathBuf>,
    /// The package family with its own settings.
    pub family: Arc<dyn Family>,
    /// How roots are made.
    pub roots: Roots,
    /// Settings of builds.
    pub build: Build,
    /// What a single build may use.
    pub limits_of_builds: limits::Limits,
    /// How often each kind of failure is retried.
    pub retries: RetryPolicy,
    /// The settings of single packages.
    pub tables: packages::PackageTables,
    /// What the repository states about itself.
    pub repository: Repository,
    /// Workers on other machines.
    pub farm: farm::Farm,
    /// Who may ask for what over the network.
    pub people: people::People,
    /// Who is notified of what.
    pub notify: Vec<notify::Notify>,
    /// How long reports are kept.
    pub report: report::ReportTable,
    /// The signer, if it is on another machine.
    pub signer: Option<signer::SignerTable>,
    /// Repositories of git.
    pub git: git::GitTable,
    /// The mirror of the site.
    pub mirror: mirror::MirrorTable,
    /// Where the yard's records are.
    pub store: store::StoreTable,
    /// Where outputs are kept for other machines.
    pub artifacts: artifacts::ArtifactsTable,
    /// Builds of proposed changes.
    pub tries: Tries,
    /// The targets of the yard. If there are none, the yard itself is the only one.
    pub targets: Vec<TargetConfig>,
}

/// The packages to build.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Packages {
    /// A list: sources by name or as paths of `.dsc` files; directories and categories of a tree.
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

/// The word `all`, as a user types it.
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
    /// Maximum number of parallel builds. If absent, as many as keep the cores busy.
    pub slots: Option<u32>,
    /// Maximum number of cores per build. If absent, all cores.
    pub jobs: Option<u32>,
    /// Packages to build before all others, with everything that they wait for. The last one of the list comes
    /// first.
    pub first: Vec<String>,
    /// Memory for all builds together. If absent, the memory of the machine.
    pub memory: Option<Size>,
    /// How builds find their jobserver.
    pub jobserver: Jobserver,
    /// Which dependencies come from the set.
    pub against: Against,
    /// Whether packages that a rebuild would not change come from the archive. If absent, they do in a set with own
    /// sources.
    pub reuse: Option<Reuse>,
    /// Maximum number of builds of a package on a cut cycle: 2 if its second build is to use the set's own packages.
    pub passes: u32,
    /// Whether to install and remove outputs in a clean root, and when.
    pub test: OutputTests,
    /// Disk space for dependency layers. If 0, the package manager installs all dependencies in each root.
    pub layers: Room,
    /// Disk space for kept work of packages that have some. If 0, nothing is kept.
    pub kept: Room,
    /// Whether the work folder of a build that is expected to be small enough may be in memory.
    pub work_in_memory: bool,
    /// Maximum wall time of one command of a stage.
    pub wall_minutes_max: f64,
    /// CPU time that a command may always use. Only a configured value also limits a stage that has not run
    /// before.
    pub cpu_minutes_min: Option<f64>,
    /// How long a command may always do nothing at all.
    pub hung_minutes_min: f64,
    /// How long a command may always print nothing.
    pub silent_minutes_min: f64,
    /// The former name of `silent-minutes-min`, parsed to report the new one.
    idle_minutes_max: Option<f64>,
    /// Maximum number of processes and threads of a command at one time.
    pub processes_max: u32,
    /// How much of a log's beginning is kept. Of the rest, only the end is.
    pub log_mebibytes_max: u64,
    /// Number of failed builds whose roots are kept for `kilnyard shell`.
    pub failed_roots_max: usize,
    /// Packages whose builds may create user namespaces; others may not.
    pub namespaces: Vec<String>,
    /// The wall around builds: if present, all of them run in virtual machines, each in one of its own.
    isolation: Option<Isolation>,
    /// A mirror that sends less is abandoned.
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
            against: Against::default(),
            reuse: None,
            passes: 1,
            test: OutputTests::default(),
            layers: Room(LAYERS_BYTES),
            kept: Room(KEPT_BYTES),
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
            isolation: None,
            mirror_bytes_per_second_min: 10_000,
        }
    }
}

/// The rules from which the limits of each command follow, according to these two tables.
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

/// Which packages of the set come from the archive instead of being built.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// Those that a wide rule selects, and that depend on no package that is built.
    Archive,
    /// None.
    Never,
}

/// How builds find their jobserver.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Jobserver {
    /// As two file descriptors, which every make understands.
    #[default]
    Pipe,
    /// As a path, for make 4.4 or later.
    Fifo,
    /// No jobserver: only CPU weights make cores follow rank.
    Off,
}

/// A size in bytes, optionally with a suffix K, M, G or T (powers of 1024), such as `64G`.
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
    /// Whether builds publish. If absent, they do, unless everything is built against the archive.
    pub publish: Option<bool>,
}

impl Build {
    fn check(&self) -> std::result::Result<(), String> {
        if self.slots == Some(0) || self.jobs == Some(0) || self.passes == 0 {
            return Err("slots, jobs and passes must be at least 1".to_owned());
        }
        if let Some(minutes) = self.idle_minutes_max {
            return Err(format!(
                "idle-minutes-max is now silent-minutes-min, and is the minimum that is always allowed: a stage with longer \
                 recorded silences may be silent ten times as long; write silent-minutes-min = {minutes}"
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
            return Err(format!(
                "processes-max is {}, but must be at least {PROCESSES_MIN}",
                self.processes_max
            ));
        }
        let bounded = [
            ("slots", self.slots.unwrap_or(1).into(), SLOTS_MAX),
            ("jobs", self.jobs.unwrap_or(1).into(), JOBS_MAX),
            ("passes", self.passes.into(), PASSES_MAX),
            ("log-mebibytes-max", self.log_mebibytes_max, LOG_MEBIBYTES_MAX),
        ];
        match bounded.into_iter().find(|(_, value, max)| value > max) {
            Some((key, value, max)) => Err(format!("{key} is {value}, but must be at most {max}")),
            None => Ok(()),
        }
    }
}

/// The part of the template that is the same in every yard.
pub const COMMON_TEMPLATE: &str = r#"[root]
# backend = "overlay"              # or "tmpfs", "copy", "block"; see docs/roots.md
# scratch = "disk"                 # where an overlay keeps changes; or "memory"
# flushes = "discard"              # or "keep", for packages that test whether data reaches the disk
# file-system = "ext4"             # on a block device; or "xfs", "erofs"
# room = "20G"                     # minimum space for a root's writes on a block device
# server = "kilnyard"              # of a block device: memory first, the disk behind it; or "ublk", "nbdkit"
# machine = "vm"                   # builds run in virtual machines; see docs/machines.md
# cores = 1                        # of such a machine, and the most that its build uses
# memory = "2G"                    # of such a machine
# requests = "forget"              # of a block device; or "log", which records them with the build's logs

[build]
# slots = 2                        # maximum number of parallel builds; default: as many as keep the cores busy
# jobs = 2                         # maximum number of cores per build; default: all
# first = []                       # packages to build before all others, with their dependencies
# memory = "8G"                    # for all builds together; default: the machine's memory
# jobserver = "pipe"               # or "fifo", for make 4.4 or later, or "off"
# against = "set"                  # or "ancestors", "archive"; see docs/sets.md
# reuse = "archive"                # packages that depend on none of your own sources; or "never"
# passes = 1                       # 2 builds packages whose cycle was cut again, with the set's packages
# test = true                      # install and remove outputs in a clean root; "apart": as a job of its own
# layers = "20G"                   # dependencies, installed once for all builds
# kept = "20G"                     # work of packages with `keep`, for their next builds
# work-in-memory = true            # keep small work folders in memory, where the family has separate ones
# wall-minutes-max = 720
# cpu-minutes-min = 120            # or ten times the stage's recorded time; if set, also limits a first build
# hung-minutes-min = 10            # without any activity; or ten times the longest recorded pause
# silent-minutes-min = 60          # without output; or ten times the longest recorded silence
# processes-max = 4096             # processes and threads of a stage at one time
# log-mebibytes-max = 32
# failed-roots-max = 10            # kept for `kilnyard shell`
# isolation = "vm"                 # every build in a virtual machine of its own, for its safety's sake
# namespaces = []                  # packages whose tests create user namespaces (docs/security.md)
# mirror-bytes-per-second-min = 10000

[limits]                           # per build; [package.NAME] may have others
# disk = "32G"                     # bytes written to its root; or four times the recorded amount
# memory = "6G"                    # of its processes; or four times the recorded peak; default: 7/8 of [build] memory
# open-files = 16384               # per process
# unpacked = "20G"                 # unpacked size of one output
# unpacked-files = 1000000         # files in one output

[retry]                            # retries for each kind of failure (docs/monitor.md)
# memory = 1                       # alone, with its files on disk
# disk = 1                         # alone
# signal = 1                       # after a pause
# network = 2                      # after a pause
# machine = 2                      # at once
# lost = 3                         # at once

[repository]
# origin = "Kilnyard"
# publish = true                   # default: unless against = "archive"

[farm]                             # workers on other machines (docs/farm.md)
# approve = "automatically"        # or "by-hand": workers that join wait for `kilnyard workers approve`
# verify = 0.0                     # the share of packages that another pool builds again, such as 0.05
# client-certificates = false      # or true: TLS connections of workers must show the key that they joined with
# mirror = "http://mirror.example:3142"  # at which workers read files of builds; also for a pool
# [farm.pool.NAME] has approve, roles, trusted and mirror, for workers that are trusted alike.

[people]                           # who may ask for what over the network (docs/people.md)
# anonymous = []                   # or ["read"]: everyone who reaches `kilnyard serve --api` may see pages, runs and requests
# origins = []                     # origins whose pages may ask the API, with tokens of their own
# certificate = "FILE"             # of the server, as PEM; needed if other machines reach it without a proxy
# key = "FILE"                     # the certificate's private key
# [people.proxy] and [people.user.NAME] are for a proxy that logs people in.
# [[notify]] sends mail, calls webhooks or runs commands when something happens (docs/notify.md).
# [report] says how long reports are kept (docs/reports.md).
# [signer] has the name of a signer on another machine (docs/signing.md).

[mirror]                           # the mirror of the site, which is asked first (docs/mirror.md)
# url = "http://mirror.example:3142"
# token-file = "FILE"              # for uploads of distfiles that packages were fetched from elsewhere
# listen = "0.0.0.0:3142"          # `kilnyard serve` has a mirror within
# keep = "200G"                    # which keeps the least recently used files up to this size
# distfiles = ["https://distfiles.example"]  # and fetches distfiles there

[git]                              # repositories of git, as trees and sources
# copies = "FOLDER"                # where copies of them are kept; yards of a user may share it

[try]                              # builds of proposed changes (docs/tries.md)
# keep-days = 7                    # after which a try is removed
# most = 5                         # tries of one author
# core-hours-per-day = 20          # CPU time of all tries of one author within 24 hours; default: not bounded

[artifacts]                        # where outputs are kept for other machines (docs/farm.md)
# url = "s3://bucket/prefix"       # or "file:///FOLDER", of a file system that they share; default: in the yard alone
# endpoint = "https://s3.example"  # the address of the server; default: the provider's
# region = "eu-central-1"          # of the bucket
# credentials-file = "FILE"        # key-id and secret, as TOML
# certificates = "FILE"            # who signed the server's certificate; default: public authorities
# direct = false                   # true: workers reach the bucket too, and store outputs there themselves
# keep-days = 90                   # for which `kilnyard artifacts clean` keeps what nothing names any more

[store]                            # where runs, builds and outputs are recorded (docs/store.md)
# url = "postgres://kiln@db.example/farm"   # a PostgreSQL database; default: a file in the yard
# password-file = "FILE"           # its password, if the URL has none
# certificates = "FILE"            # who signed the server's certificate; default: public authorities
# schema = "kilnyard"              # for several yards in one database

# [package.NAME] and [package."PATTERN*"] have settings of single packages: checks, environment, network, kept work,
# limits, jobs, priority, retries, whether a failure is expected, and a note for the report (docs/packages.md).
"#;

/// Formats words as the lines of a TOML array, one word per line.
pub fn list_of(words: &[String]) -> String {
    words.iter().map(|word| format!("  {},\n", quoted(word))).collect()
}

/// Formats a text as a TOML string.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

impl Default for Repository {
    fn default() -> Self {
        Repository { origin: "Kilnyard".to_owned(), publish: None }
    }
}

/// Each slot is a thread, and no machine has as many cores.
const SLOTS_MAX: u64 = 4096;
/// The largest number of jobs that build systems accept without overflow.
const JOBS_MAX: u64 = 4096;
/// After a second pass, only versions and times change.
const PASSES_MAX: u64 = 2;
/// A year. A longer limit is as good as none.
const MINUTES_MAX: f64 = 366.0 * 24.0 * 60.0;
/// A second. A shorter limit would end every command.
const MINUTES_MIN: f64 = 1.0 / 60.0;
/// Even a small `make -j` has several processes and threads.
const PROCESSES_MIN: u32 = 64;
/// A tebibyte. A log must not fill any disk.
const LOG_MEBIBYTES_MAX: u64 = 1 << 20;

/// Fails if a limit in minutes is out of bounds.
pub fn check_minutes(key: &str, value: f64) -> std::result::Result<(), String> {
    // NaN is not within the bounds either.
    match (MINUTES_MIN..=MINUTES_MAX).contains(&value) {
        true => Ok(()),
        false => {
            Err(format!("{key} is {value}, but must be from {MINUTES_MIN} (one second) to {MINUTES_MAX}"))
        }
    }
}

/// Converts a limit that [`check_minutes`] accepts to whole seconds.
pub fn seconds_of(minutes: f64) -> u64 {
    (minutes * 60.0).round() as u64
}

impl Config {
    /// Parses a configuration with the table of one of these families, and its targets. Errors name the place in the
    /// file.
    pub fn parse(text: &str, path: &Path, families: &[&'static dyn FamilyEntry]) -> Result<Config> {
        let unreadable = |error: toml::de::Error| {
            let mut wrong = Error::usage(format!("invalid {}", path.display()));
            wrong.causes = error.to_string().lines().map(str::to_owned).collect();
            wrong
        };
        let mut config = Config::parse_one(text, path, families, &unreadable)?;
        config.targets = targets::parse(text, path, families)?;
        Ok(config)
    }

    /// Parses a configuration without its targets. `unreadable` converts an error of the parser.
    fn parse_one(
        text: &str,
        path: &Path,
        families: &[&'static dyn FamilyEntry],
        unreadable: &dyn Fn(toml::de::Error) -> Error,
    ) -> Result<Config> {
        let file: File = toml::from_str(text).map_err(unreadable)?;
        let wrong = |reason| Error::usage(format!("{}: {reason}", path.display()));
        let has_more = |entry: &&'static dyn FamilyEntry, key: &str| entry.more_tables().contains(&key);
        let is_of = |key: &String| {
            let is_of_family = |entry| has_more(entry, key) || entry.name() == key;
            key == targets::TABLE || families.iter().any(is_of_family)
        };
        if let Some(unknown) = file.others.keys().find(|key| !is_of(key)) {
            return Err(wrong(unknown_key(text, unknown)));
        }
        let tables = |entries: &mut dyn Iterator<Item = &&'static dyn FamilyEntry>| {
            entries.map(|entry| format!("[{}]", entry.name())).collect::<Vec<_>>()
        };
        let named: Vec<&&'static dyn FamilyEntry> =
            families.iter().filter(|entry| file.others.contains_key(entry.name())).collect();
        let entry = match named[..] {
            [entry] => entry,
            [] => {
                let all = tables(&mut families.iter()).join(" or ");
                return Err(wrong(format!("no family's table, expected {all}")));
            }
            _ => {
                let names = tables(&mut named.into_iter()).join(" and ");
                return Err(wrong(format!(
                    "the tables {names} belong to different families, and a yard has only one"
                )));
            }
        };
        let others = file.others.keys().filter(|key| *key != entry.name() && *key != targets::TABLE);
        if let Some(foreign) = others.into_iter().find(|key| !has_more(entry, key)) {
            let owners = tables(&mut families.iter().filter(|entry| has_more(entry, foreign))).join(" or ");
            return Err(wrong(format!(
                "the table [[{foreign}]] belongs to {owners}, but this is a yard of [{}]",
                entry.name()
            )));
        }
        let family = entry.read(text).map_err(unreadable)?;
        let (packages, packages_file) = (file.packages, file.packages_file);
        let retries = RetryPolicy::with(&file.retry).map_err(|reason| wrong(format!("retry: {reason}")))?;
        let tables = packages::PackageTables::new(text, file.package, &file.limits, &retries, &*family)
            .map_err(wrong)?;
        file.root.check().map_err(wrong)?;
        let isolated = file.build.isolation == Some(Isolation::Vm);
        let root = if isolated { file.root.clone().isolated() } else { file.root.clone() };
        let family = family.crossing().filter(|_| tables.has_cross()).unwrap_or(family);
        // Packages that are cross-built are built on this machine's processor.
        let family = family.emulated().filter(|_| root.is_in_machine()).unwrap_or(family);
        let tables = tables.in_machines(&root, family.processor());
        let config = Config {
            packages,
            packages_file,
            family,
            roots: file.root.roots(),
            build: file.build,
            limits_of_builds: file.limits,
            retries,
            tables,
            repository: file.repository,
            farm: file.farm,
            people: file.people,
            notify: file.notify,
            report: file.report,
            signer: file.signer,
            mirror: file.mirror,
            git: file.git,
            store: file.store,
            artifacts: file.artifacts,
            tries: file.tries,
            targets: Vec::new(),
        };
        config.check().map_err(wrong)?;
        Ok(config)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.packages == Packages::All(All::All) && self.packages_file.is_some() {
            return Err(
                "packages = \"all\" leaves nothing for packages-file to add; remove one of them".to_owned()
            );
        }
        self.family.check()?;
        self.check_against()?;
        self.limits_of_builds.check()?;
        self.farm.check()?;
        self.people.check(&self.farm.yards.keys().map(String::as_str).collect())?;
        self.notify.iter().try_for_each(notify::Notify::check)?;
        notify::Notify::check_titles(&self.notify)?;
        site::check_quota("try", self.tries.core_hours_per_day)?;
        self.store.check()?;
        self.artifacts.check()?;
        self.mirror.check()?;
        self.build.check()
    }

    /// The settings of a package that do not change what is built.
    pub fn settings_of(&self, package: &str) -> packages::PackageSettings {
        self.tables.settings_of(package)
    }

    /// Whether a package is expected to fail.
    pub fn expects_failure(&self, package: &str) -> bool {
        self.settings_of(package).expected_failure.is_some()
    }

    /// The rules from which the limits of each command follow. The caller knows how much memory there is.
    pub fn limits(&self) -> LimitRules {
        rules(&self.build, &self.limits_of_builds)
    }

    /// Fails if packages of the family cannot be built against what is configured.
    pub fn check_against(&self) -> std::result::Result<(), String> {
        match self.family.builds_against().contains(&self.build.against) {
            true => Ok(()),
            false => Err(format!(
                "against: a {} package is always built against the packages of the set",
                self.family.title()
            )),
        }
    }

    /// Whether builds publish the repository.
    pub fn publishes(&self) -> bool {
        self.repository.publish.unwrap_or(self.build.against != Against::Archive)
    }

    /// Size limits of each log.
    pub fn log_limits(&self) -> LogLimits {
        LogLimits { head_bytes_max: self.build.log_mebibytes_max << 20, ..LogLimits::default() }
    }

    /// The requested names, `.dsc` files, directories or categories, from the configuration and from
    /// `packages-file`. Absent if everything is requested.
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
            self.family.check_name(name)?;
        }
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(Some(names))
    }

    /// A note for a configuration that requests no package; absent if it requests any.
    pub fn no_packages_note(&self, yard: &Path) -> Result<Option<&'static str>> {
        let is_empty = self.package_names(yard)?.is_some_and(|names| names.is_empty());
        Ok(is_empty
            .then_some("kilnyard.toml names no packages: write packages = [\"NAME\"], or packages = \"all\""))
    }
}

/// The error for an unknown key, with its line.
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
    fn valid_sizes_are_parsed_and_invalid_ones_rejected() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(size("64G"), Ok(64 << 30));
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("7"), Ok(7));
        for text in ["", "G", "0", "-1G", "1.5G", "64X", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
