//! The tables `[package.NAME]`: settings of single packages.
//!
//! NAME is a package or a shell pattern. All tables that match a package apply, in the order of the file: a key of a
//! later table replaces that of an earlier one, variables and kinds of failures one by one. Some keys change what is
//! built ([`Options`]), and are part of the package's key; the rest ([`PackageSettings`]) is not.
//!
//! `[limits.packages.NAME]`, the form of earlier versions, counts as a table before all others.

mod values;

pub use values::Expected;
use values::{KeptFolder, Note, VariableName, VariableValue, Word};

use super::limits::{Limits, check_open_files};
use super::roots::{MachineWord, Root, check_machine};
use super::{JOBS_MAX, PROCESSES_MIN, Size, check_minutes, quoted, seconds_of};
use crate::error::{Context, Error, Kind, Result};
use crate::family::Family;
use kilnyard_coordinator::RetryPolicy;
use kilnyard_ecosystem::{NamePattern, OptionRules, Options};
use kilnyard_model::order::{BuildOrder, BuildTerms, MachineTerms, Processor};
use kilnyard_model::result::{FailureKind, STALLING_TRAPS_PER_SECOND};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The bounds of `priority`.
const PRIORITY_MAX: i32 = 100;
/// Maximum number of tables in a yard. Each is compared with each package of a release.
const TABLES_MAX: usize = 1000;
/// Maximum number of folders that one package keeps.
const KEPT_FOLDERS_MAX: usize = 32;
/// Maximum size of one table's settings of make.
const SETTINGS_BYTES_MAX: u64 = 64 << 10;

/// One table, as parsed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Table {
    checks: Option<bool>,
    autopkgtest: Option<bool>,
    profiles: Option<Vec<Word>>,
    options: Option<Vec<Word>>,
    environment: BTreeMap<VariableName, VariableValue>,
    network: Option<bool>,
    cross: Option<bool>,
    mk_conf: Option<String>,
    mk_conf_file: Option<PathBuf>,
    keep: Option<Vec<KeptFolder>>,
    wall_minutes_max: Option<f64>,
    cpu_minutes_min: Option<f64>,
    hung_minutes_min: Option<f64>,
    silent_minutes_min: Option<f64>,
    memory: Option<Size>,
    disk: Option<Size>,
    open_files: Option<u32>,
    processes_max: Option<u32>,
    jobs: Option<u32>,
    machine: Option<MachineWord>,
    machine_cores: Option<u32>,
    machine_memory: Option<Size>,
    priority: Option<i32>,
    retries: BTreeMap<FailureKind, u32>,
    expected: Option<Expected>,
    because: Option<Note>,
    note: Option<Note>,
}

/// The tables of a file, in order.
#[derive(Default)]
pub(super) struct Tables(Vec<(String, Table)>);

impl<'de> Deserialize<'de> for Tables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Tables, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Tables;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tables [package.NAME]")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Tables, M::Error> {
                let mut tables = Tables::default();
                while let Some(entry) = map.next_entry()? {
                    tables.0.push(entry);
                }
                Ok(tables)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The settings of a package that do not change what is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageSettings {
    /// Its limits and cores. Network access is one of its [`Options`], from which its order is made.
    pub terms: BuildTerms,
    /// It is built earlier than packages with a lower one; 0 unless set.
    pub priority: i32,
    /// The retries that differ from the table `retry`, by kind of failure.
    pub retries: BTreeMap<FailureKind, u32>,
    /// Present if its build is expected to fail.
    pub expected_failure: Option<ExpectedFailure>,
    /// A note of the yard's owner, for the report.
    pub note: Option<String>,
    /// Whether its build has network access.
    pub has_network: bool,
    /// Whether the yard's owner decided where its commands run.
    pub is_machine_set: bool,
}

impl PackageSettings {
    /// Whether the traps of earlier builds keep it to one core.
    pub fn is_confined(&self) -> bool {
        self.terms.machine.is_some_and(|machine| machine.is_optional)
    }

    /// With what the traps of earlier builds demand: what stalls all cores that it runs on gets one alone, in a virtual machine
    /// where there are any, unless the yard's owner decided otherwise.
    pub fn confined(self, traps_per_second: f64) -> PackageSettings {
        if self.is_machine_set || traps_per_second < STALLING_TRAPS_PER_SECOND {
            return self;
        }
        let machine = MachineTerms {
            cores: 1,
            memory_bytes: MachineTerms::MEMORY_BYTES,
            is_optional: true,
            processor: None,
        };
        let memory_bytes = self.terms.memory_bytes_min.unwrap_or(0).max(machine.memory_bytes);
        let machine = Some(MachineTerms { memory_bytes, ..machine });
        PackageSettings { terms: BuildTerms { jobs_max: Some(1), machine, ..self.terms }, ..self }
    }
}

/// The expectation that a build fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedFailure {
    /// Why, in the words of the yard's owner.
    pub because: Option<String>,
}

/// All tables of a yard, checked.
#[derive(Clone, Debug, Default)]
pub struct PackageTables {
    /// Those of `[limits.packages]` come first.
    tables: Vec<(NamePattern, Table)>,
    /// How many of them are from `[limits.packages]`.
    former: usize,
    /// What holds for all packages.
    usual: Table,
    /// The processor of virtual machines, if it is another one than this machine's.
    processor: Option<Processor>,
}

impl PackageTables {
    /// Checks the tables of a file with this text. The error begins with the line of the table at fault.
    pub(super) fn new(
        text: &str,
        tables: Tables,
        limits: &Limits,
        retries: &RetryPolicy,
        family: &dyn Family,
    ) -> std::result::Result<PackageTables, String> {
        let mut all = PackageTables::default();
        for (name, own) in limits.packages() {
            let (disk, memory, open_files) = (own.disk, own.memory, own.open_files);
            let table = Table { disk, memory, open_files, ..Table::default() };
            let pattern =
                NamePattern::parse(name).map_err(|reason| format!("limits.packages: `{name}` {reason}"))?;
            all.tables.push((pattern, table));
        }
        all.former = all.tables.len();
        if tables.0.len() > TABLES_MAX {
            return Err(format!(
                "there are {} tables [package.NAME]; the maximum is {TABLES_MAX}",
                tables.0.len()
            ));
        }
        for (name, table) in tables.0 {
            let named = |reason: &str| {
                let line = line_of(text, &name).map_or(String::new(), |line| format!("line {line}: "));
                format!("{line}{}: {reason}", header(&name))
            };
            let pattern = NamePattern::parse(&name).map_err(|reason| named(&format!("the name {reason}")))?;
            table.check(retries).map_err(|reason| named(&reason))?;
            // Only the presence of a file matters here, not its content.
            let settings = table.mk_conf_file.as_ref().map(|_| String::new()).or(table.mk_conf.clone());
            family.check_package(&pattern, &table.options(settings)).map_err(|reason| named(&reason))?;
            all.tables.push((pattern, table));
        }
        Ok(all)
    }

    /// Has all packages built in virtual machines, unless their tables say otherwise.
    pub(super) fn in_machines(self, root: &Root, processor: Option<Processor>) -> PackageTables {
        let (machine, machine_cores, machine_memory) = root.machine();
        let usual = Table { machine, machine_cores, machine_memory, ..Table::default() };
        PackageTables { usual, processor, ..self }
    }

    /// The virtual machine for what belongs to no package, such as a base root, if there is one.
    pub fn usual_machine(&self) -> Option<MachineTerms> {
        self.in_machine(self.usual.clone().settings()).terms.machine
    }

    fn in_machine(&self, mut settings: PackageSettings) -> PackageSettings {
        if let Some(machine) = &mut settings.terms.machine {
            machine.processor = self.processor;
        }
        settings
    }

    /// The settings of a package.
    pub fn settings_of(&self, package: &str) -> PackageSettings {
        let mut all = self.usual.clone();
        for (_, table) in self.tables.iter().filter(|(pattern, _)| pattern.matches(package)) {
            all.override_by(table);
        }
        self.in_machine(all.settings())
    }

    /// The rules for what changes a build. Reads the files that tables name, relative to the yard.
    pub fn option_rules(&self, yard: &Path) -> Result<OptionRules> {
        let rule = |(pattern, table): &(NamePattern, Table)| {
            let settings = match &table.mk_conf_file {
                Some(file) => Some(read_settings(&yard.join(file)).map_err(|mut error| {
                    error.message =
                        format!("mk-conf-file of {}: {}", header(pattern.as_str()), error.message);
                    error
                })?),
                None => table.mk_conf.clone(),
            };
            Ok((pattern.clone(), table.options(settings)))
        };
        Ok(OptionRules::new(self.tables.iter().map(rule).collect::<Result<_>>()?))
    }

    /// A note for each table that matches none of these packages.
    pub fn unused<'a>(&self, packages: impl Iterator<Item = &'a str>) -> Vec<String> {
        let own = &self.tables[self.former..];
        let mut is_used = vec![false; own.len()];
        if !own.is_empty() {
            for package in packages {
                for ((pattern, _), is_used) in own.iter().zip(&mut is_used) {
                    *is_used |= pattern.matches(package);
                }
            }
        }
        let unused = own.iter().zip(is_used).filter(|(_, is_used)| !is_used);
        let note = |pattern: &NamePattern| {
            format!("{} in kilnyard.toml matches no package of the set", header(pattern.as_str()))
        };
        unused.map(|((pattern, _), _)| note(pattern)).collect()
    }

    /// Adds the limits and cores of a package to the terms of its order. `traps` are those of the last builds of packages, a second.
    pub fn complete(&self, order: &mut BuildOrder, traps: &HashMap<String, f64>) {
        let has_network = order.terms.has_network;
        let traps = traps.get(&order.package).copied().unwrap_or(0.0);
        let settings = self.settings_of(&order.package).confined(traps);
        order.terms = BuildTerms { has_network, ..settings.terms };
    }

    /// Whether any package is to be cross-built.
    pub fn has_cross(&self) -> bool {
        self.tables.iter().any(|(_, table)| table.cross == Some(true))
    }

    /// Whether the declared tests of any package are to be run.
    pub fn has_autopkgtest(&self) -> bool {
        self.tables.iter().any(|(_, table)| table.autopkgtest == Some(true))
    }

    /// Whether any package is built in a virtual machine.
    pub fn has_machines(&self) -> bool {
        let mut all = self.tables.iter().map(|(_, table)| table).chain([&self.usual]);
        all.any(|table| table.machine == Some(MachineWord::Vm))
    }

    /// Whether there are no tables at all.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

impl Table {
    fn check(&self, retries: &RetryPolicy) -> std::result::Result<(), String> {
        let minutes = [
            ("wall-minutes-max", self.wall_minutes_max),
            ("cpu-minutes-min", self.cpu_minutes_min),
            ("hung-minutes-min", self.hung_minutes_min),
            ("silent-minutes-min", self.silent_minutes_min),
        ];
        for (key, value) in minutes {
            value.map_or(Ok(()), |value| check_minutes(key, value))?;
        }
        self.open_files.map_or(Ok(()), |count| check_open_files("", count))?;
        if let Some(count) = self.processes_max.filter(|count| *count < PROCESSES_MIN) {
            return Err(format!("processes-max is {count}, but must be at least {PROCESSES_MIN}"));
        }
        if let Some(jobs) = self.jobs.filter(|jobs| !(1..=JOBS_MAX).contains(&u64::from(*jobs))) {
            return Err(format!("jobs is {jobs}, but must be from 1 to {JOBS_MAX}"));
        }
        let is_priority = |priority: &i32| (-PRIORITY_MAX..=PRIORITY_MAX).contains(priority);
        if let Some(priority) = self.priority.filter(|priority| !is_priority(priority)) {
            return Err(format!(
                "priority is {priority}, but must be from -{PRIORITY_MAX} to {PRIORITY_MAX}"
            ));
        }
        check_machine(self.machine_cores, self.machine_memory)?;
        retries.and(&self.retries).map_err(|reason| format!("retries: {reason}"))?;
        check_kept(self.keep.as_deref().unwrap_or_default())?;
        if self.because.is_some() && self.expected != Some(Expected::Failure) {
            return Err("because needs expected = \"failure\", which it explains".to_owned());
        }
        if self.mk_conf.is_some() && self.mk_conf_file.is_some() {
            return Err("mk-conf and mk-conf-file exclude each other".to_owned());
        }
        let is_too_long = |text: &String| text.len() as u64 > SETTINGS_BYTES_MAX;
        if self.mk_conf.as_ref().is_some_and(is_too_long) {
            return Err(format!("mk-conf has more than {SETTINGS_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// Replaces every key that `later` has.
    fn override_by(&mut self, later: &Table) {
        fn put<T: Clone>(own: &mut Option<T>, later: &Option<T>) {
            if later.is_some() {
                own.clone_from(later);
            }
        }
        put(&mut self.network, &later.network);
        put(&mut self.wall_minutes_max, &later.wall_minutes_max);
        put(&mut self.cpu_minutes_min, &later.cpu_minutes_min);
        put(&mut self.hung_minutes_min, &later.hung_minutes_min);
        put(&mut self.silent_minutes_min, &later.silent_minutes_min);
        put(&mut self.memory, &later.memory);
        put(&mut self.disk, &later.disk);
        put(&mut self.open_files, &later.open_files);
        put(&mut self.processes_max, &later.processes_max);
        put(&mut self.jobs, &later.jobs);
        put(&mut self.machine, &later.machine);
        put(&mut self.machine_cores, &later.machine_cores);
        put(&mut self.machine_memory, &later.machine_memory);
        put(&mut self.priority, &later.priority);
        put(&mut self.expected, &later.expected);
        put(&mut self.because, &later.because);
        put(&mut self.note, &later.note);
        self.retries.extend(&later.retries);
    }

    fn settings(self) -> PackageSettings {
        let text = |note: Option<Note>| note.map(|note| note.0).filter(|text| !text.is_empty());
        let seconds = |minutes: Option<f64>| minutes.map(seconds_of);
        let bytes = |size: Option<Size>| size.map(|size| size.0);
        let because = text(self.because);
        let machine = (self.machine == Some(MachineWord::Vm)).then(|| MachineTerms {
            cores: self.machine_cores.unwrap_or(MachineTerms::CORES),
            memory_bytes: bytes(self.machine_memory).unwrap_or(MachineTerms::MEMORY_BYTES),
            is_optional: false,
            processor: None,
        });
        // Its builds never take more cores than their machine has.
        let jobs_max = match machine {
            Some(machine) => Some(self.jobs.map_or(machine.cores, |jobs| jobs.min(machine.cores))),
            None => self.jobs,
        };
        PackageSettings {
            terms: BuildTerms {
                has_network: false,
                jobs_max,
                wall_seconds_max: seconds(self.wall_minutes_max),
                cpu_seconds_min: seconds(self.cpu_minutes_min),
                hung_seconds_min: seconds(self.hung_minutes_min),
                silent_seconds_min: seconds(self.silent_minutes_min),
                memory_bytes_min: bytes(self.memory),
                written_bytes_min: bytes(self.disk),
                open_files_max: self.open_files,
                processes_max: self.processes_max,
                machine,
            },
            priority: self.priority.unwrap_or(0),
            retries: self.retries,
            expected_failure: (self.expected == Some(Expected::Failure))
                .then_some(ExpectedFailure { because }),
            note: text(self.note),
            has_network: self.network == Some(true),
            is_machine_set: self.machine.is_some(),
        }
    }

    /// The options that change the build, with these settings of make.
    fn options(&self, mk_conf: Option<String>) -> Options {
        let words = |words: &Option<Vec<Word>>| {
            words.as_ref().map(|words| words.iter().map(|word| word.0.clone()).collect())
        };
        let variables = self.environment.iter();
        Options {
            checks: self.checks,
            autopkgtest: self.autopkgtest,
            profiles: words(&self.profiles),
            words: words(&self.options),
            environment: variables.map(|(name, value)| (name.0.clone(), value.0.clone())).collect(),
            network: self.network,
            cross: self.cross,
            mk_conf,
            keep: self.keep.as_ref().map(|all| all.iter().map(|folder| folder.0.clone()).collect()),
        }
    }
}

/// Checks that kept folders are few, and that none is in another.
fn check_kept(folders: &[KeptFolder]) -> std::result::Result<(), String> {
    if folders.len() > KEPT_FOLDERS_MAX {
        return Err(format!("keep has {} folders; the maximum is {KEPT_FOLDERS_MAX}", folders.len()));
    }
    for (at, folder) in folders.iter().enumerate() {
        let is_within = |other: &KeptFolder| Path::new(&folder.0).starts_with(&other.0);
        if let Some((_, other)) =
            folders.iter().enumerate().find(|(place, other)| *place != at && is_within(other))
        {
            return Err(format!("keep has {} within {}; the outer folder is enough", folder.0, other.0));
        }
    }
    Ok(())
}

/// Reads the settings of make in a file.
fn read_settings(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let file = fs_err::File::open(path);
    file.and_then(|file| file.take(SETTINGS_BYTES_MAX + 1).read_to_end(&mut bytes))
        .context(Kind::Usage, "read it")?;
    if bytes.len() as u64 > SETTINGS_BYTES_MAX {
        return Err(Error::usage(format!("{} has more than {SETTINGS_BYTES_MAX} bytes", path.display())));
    }
    String::from_utf8(bytes).map_err(|_| Error::usage(format!("{} is not UTF-8", path.display())))
}

/// The header of a table, as in the file.
fn header(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if is_bare { format!("[package.{name}]") } else { format!("[package.{}]", quoted(name)) }
}

/// The line of a table, from 1.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let document = toml_edit::Document::parse(text).ok()?;
    let tables = document.get("package")?.as_table_like()?;
    let (key, item) = tables.get_key_value(name)?;
    let start = item.span().or(key.span())?.start;
    Some(text[..start].bytes().filter(|byte| *byte == b'\n').count() + 1)
}
