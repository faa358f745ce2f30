//! What may be signed: a generation is judged by its text, by the packages that are new in it, by what was signed before,
//! and by the policy.

pub mod checksums;
pub mod lists;
pub mod release;
mod source;

use crate::account;
use crate::change;
use crate::hash;
use crate::memory::{Known, Memory, MemoryError, Name, Remembered};
use crate::message::{Build, BuildTexts, Built, Form, Generation, Refusal, Rule};
use crate::policy::{Policy, Repository, Worker, matches};
use crate::statement::Statement;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most bytes of all indexes of a generation.
const INDEXES_BYTES_MAX: usize = 1 << 30;
/// The most refusals of an answer. A coordinator whose every package is refused has one fault, not thousands.
const REFUSALS_MAX: usize = 200;

/// Architectures of packages that are for any.
const FOR_ALL: [&str; 2] = ["all", "noarch"];

/// What packages that are signed one by one are remembered under, apart from the series of a repository.
pub const SIGNED_PACKAGES: &str = "+PKG_HASH";

/// A package of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name and architecture.
    pub name: Name,
    /// Its version.
    pub version: String,
    /// The source that it says it is from.
    pub source: String,
    /// The version of that source.
    pub source_version: String,
    /// The name of its file.
    pub file: String,
    /// The digest of its file, as the index names it.
    pub listed: String,
    /// Whether that is the digest of the text which its own signature signs.
    pub has_signature: bool,
    /// The SHA-256 of its entry, without what the index adds about its file.
    pub entry: String,
    /// The packages whose files it may take, or that it cannot be installed with.
    pub yields_to: Vec<String>,
    /// The paths of its files by a list of all, as [`Built::files`] has them; absent if there is no such list.
    pub files: Option<Vec<String>>,
    /// What further lists have of it, as text; empty if there are none.
    pub rest: String,
}

impl Package {
    /// The SHA-256 of its entries in all lists, by which a change of one is noticed.
    fn remembered_entry(&self) -> String {
        match self.rest.is_empty() {
            true => self.entry.clone(),
            false => hash(format!("{}\n{}", self.entry, self.rest).as_bytes()),
        }
    }

    /// Its name for people.
    pub fn shown(&self) -> String {
        let Name { name, variant } = &self.name;
        match *variant == self.version {
            true => format!("{name}-{variant}"),
            false => format!("{name} {} ({variant})", self.version),
        }
    }
}

/// A text that is well-formed, with everything that it names.
#[derive(Debug, Default)]
pub struct Read {
    /// The date of the text, in seconds since 1970; the signer's time if it has none.
    pub date: i64,
    /// All packages, in any order.
    pub packages: Vec<Package>,
    /// The digests of compressed forms and other derived files, by path.
    pub derived: BTreeMap<String, String>,
}

/// A generation whose text and indexes are what they must be.
#[derive(Debug)]
pub struct Prepared {
    series: String,
    form: Form,
    /// The texts of its indexes, by path.
    pub indexes: Texts,
    /// What the text names.
    pub read: Read,
    /// The packages that are new, by their place in `read`: one for each name.
    new: Vec<usize>,
}

/// A generation that is judged.
#[derive(Debug, Default)]
pub struct Judged {
    /// Why it is not signed: the first reasons. Empty if it is.
    pub refusals: Vec<Refusal>,
    /// All packages that are refused.
    pub refused: HashSet<Name>,
    /// The sources that no archive or tree has, and that a person approved: name and version.
    pub approved_sources: HashSet<(String, String)>,
    /// The packages that are new, with the hashes of the paths of their files.
    pub packages: Vec<Remembered>,
    /// The same for the account.
    pub explained: Vec<account::Package>,
}

/// Why a generation is not judged.
#[derive(Debug)]
pub enum Fault {
    /// The text, its indexes or the policy are against it.
    Refused(Rule, String),
    /// The memory cannot be read.
    Memory(MemoryError),
}

impl From<MemoryError> for Fault {
    fn from(error: MemoryError) -> Fault {
        Fault::Memory(error)
    }
}

/// The texts of indexes, by path.
type Texts = BTreeMap<String, String>;

/// Where a judgement happens.
#[derive(Clone, Copy, Debug)]
pub struct Court<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The name of the repository.
    pub name: &'a str,
    /// What the policy says of the repository.
    pub repository: &'a Repository,
    /// What was signed before.
    pub memory: &'a Memory,
    /// Why an index or a commit was not accepted; none if all were.
    pub doubt: Option<&'a str>,
    /// The signer's time, in seconds since 1970.
    pub now: i64,
}

impl Court<'_> {
    fn check_policy(&self, series: &str) -> Result<(), Fault> {
        let in_last_hour = self.memory.signatures_since(self.now - 3600)?;
        match self.repository.refuses(series, self.now, in_last_hour) {
            Some((rule, reason)) => Err(Fault::Refused(rule, reason)),
            None => Ok(()),
        }
    }

    /// Checks what depends on the time: hours, rate, and the date of a text.
    ///
    /// # Errors
    /// It is not signed now.
    pub fn check_time(&self, generation: &Generation, date: i64) -> Result<(), Fault> {
        self.check_policy(&generation.series)?;
        match self.fault_of_date(generation, date)? {
            Some(reason) => Err(Fault::Refused(Rule::Text, reason)),
            None => Ok(()),
        }
    }

    /// Makes the indexes of a generation, and finds what is new. One that is `adopted` was signed before: only its form is
    /// judged, and nothing in it is new.
    ///
    /// # Errors
    /// The generation is not signed, whatever its packages are.
    pub fn prepare(&self, generation: &Generation, is_adopted: bool) -> Result<Prepared, Fault> {
        let series = &generation.series;
        if !is_adopted {
            self.check_policy(series)?;
        }
        let (indexes, shown) = self.texts(generation)?;
        let read = match generation.form {
            Form::Release => release::read(generation, &indexes, &shown),
            Form::Checksums => checksums::read(generation, &indexes, &shown, self.now),
            Form::Lists => lists::read(generation, &indexes, self.now),
        };
        let read = read.map_err(|reason| Fault::Refused(Rule::Text, reason))?;
        let mut new = Vec::new();
        if !is_adopted {
            if let Some(reason) = self.fault_of_date(generation, read.date)? {
                return Err(Fault::Refused(Rule::Text, reason));
            }
            let mut listed: HashMap<&Name, &Package> = HashMap::new();
            for (place, package) in read.packages.iter().enumerate() {
                // An architecture-independent package is in the index of each architecture.
                if let Some(first) = listed.insert(&package.name, package) {
                    if first != package {
                        let reason = format!("{} is there twice, and differs", package.name.name);
                        return Err(Fault::Refused(Rule::Text, reason));
                    }
                    continue;
                }
                let known = self.memory.known(self.name, series, &package.name)?;
                let is_same = |known: Known| {
                    known.listed == package.listed
                        && known.version == package.version
                        && known.entry == package.remembered_entry()
                        && !known.is_gone
                };
                if !known.is_some_and(is_same) {
                    new.push(place);
                }
            }
        }
        Ok(Prepared { series: series.clone(), form: generation.form, indexes, read, new })
    }

    /// Makes the texts of all indexes. Returns them and what is remembered of the series.
    fn texts(&self, generation: &Generation) -> Result<(Texts, BTreeMap<String, String>), Fault> {
        let refused = |reason: String| Fault::Refused(Rule::Text, reason);
        let shown = self.memory.shown(self.name, &generation.series)?;
        let mut texts = Texts::new();
        let mut left = INDEXES_BYTES_MAX;
        for change in &generation.indexes {
            let path = &change.path;
            let base = match &change.base {
                None => String::new(),
                Some(base) if shown.get(path) == Some(base) => self
                    .memory
                    .body(base)?
                    .ok_or_else(|| refused(format!("the signer does not remember the text of {path}")))?,
                Some(_) => return Err(refused(format!("{path} changes a text that was not signed last"))),
            };
            let text = change::apply(&base, &change.edits, left)
                .map_err(|reason| refused(format!("the change of {path} is none: {reason}")))?;
            left = left.saturating_sub(text.len());
            if texts.insert(path.clone(), text).is_some() {
                return Err(refused(format!("{path} occurs twice")));
            }
        }
        Ok((texts, shown))
    }

    fn fault_of_date(&self, generation: &Generation, date: i64) -> Result<Option<String>, MemoryError> {
        let most = self.repository.clock_seconds_max;
        let difference = date.saturating_sub(self.now);
        if difference.abs() > most {
            let side = if difference < 0 { "behind" } else { "ahead of" };
            return Ok(Some(format!(
                "the date of the text is {} s {side} the signer's clock, and {most} s are allowed: one of the clocks is wrong",
                difference.abs()
            )));
        }
        let last = self.memory.date(self.name, &generation.series)?;
        Ok(last.filter(|last| *last > date).map(|last| {
            format!("the date of the text is {} s before that of the last one", last.saturating_sub(date))
        }))
    }

    /// Judges packages of a pkgsrc tree, each by the text of its blocks, or of RPM, each by its header.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn judge_texts(&self, form: Form, asked: &[BuildTexts]) -> Result<Judged, Fault> {
        self.check_policy(checksums::SERIES)?;
        let (mut packages, mut names) = (Vec::new(), HashSet::new());
        for BuildTexts { build, texts } in asked {
            if build.outputs.len() != texts.len() {
                let reason = format!("the build of {} has another number of packages", build.package);
                return Err(Fault::Refused(Rule::Text, reason));
            }
            for (text, built) in texts.iter().zip(&build.outputs) {
                let package = match form {
                    Form::Lists => lists::package_of(text, built),
                    _ => checksums::package_of(text, &build.source),
                };
                let package = package.map_err(|reason| Fault::Refused(Rule::Text, reason))?;
                if !names.insert(package.name.clone()) {
                    let reason = format!("{} occurs twice", package.name.name);
                    return Err(Fault::Refused(Rule::Text, reason));
                }
                packages.push(package);
            }
        }
        lists::add_epochs(&mut packages);
        let builds = asked.iter().map(|asked| &asked.build);
        let new = (0..packages.len()).collect();
        let read = Read { date: self.now, packages, ..Read::default() };
        let prepared =
            Prepared { series: SIGNED_PACKAGES.to_owned(), form, indexes: Texts::new(), read, new };
        Ok(self.judge(&prepared, builds)?)
    }

    /// Judges the new packages of a generation by the builds that they are from.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn judge<'b>(
        &self,
        prepared: &Prepared,
        builds: impl Iterator<Item = &'b Build>,
    ) -> Result<Judged, MemoryError> {
        let series = &prepared.series;
        // A statement has all outputs of its build, of which there may be thousands: each is read once.
        let builds: Vec<(&Build, Option<Result<Statement, String>>)> =
            builds.map(|build| (build, build.statement.as_ref().map(Statement::read))).collect();
        let mut by_digest: HashMap<&str, Found<'_>> = HashMap::new();
        for (build, statement) in &builds {
            let found = |built| Found { build, built, statement: statement.as_ref() };
            by_digest.extend(build.outputs.iter().map(|built| (built.listed.as_str(), found(built))));
        }
        let (mut new, mut faults) = (BTreeMap::new(), Vec::new());
        for package in prepared.new_packages() {
            let found = by_digest.get(package.listed.as_str()).copied();
            for (rule, reason) in self.faults(prepared, package, found)? {
                faults.push((package, rule, reason));
            }
            if let Some(found) = found {
                new.insert(&package.name, (package, found));
            }
        }
        if !new.is_empty() {
            let files = self.memory.files(self.name, series)?;
            find_taken_files(&new, files, &prepared.read.packages, &mut faults);
        }
        let mut judged = Judged::default();
        for (package, rule, reason) in faults {
            let name = &package.name;
            let id = rule.is_approvable().then(|| {
                let fields = [
                    self.name,
                    series,
                    &name.name,
                    &name.variant,
                    &package.version,
                    &package.source,
                    &package.listed,
                ];
                hash(format!("{rule:?}\n{}\n{reason}", fields.join("\n")).as_bytes())[..16].to_owned()
            });
            if let Some(id) = &id
                && self.memory.approved(id)?.is_some()
            {
                if rule == Rule::Source {
                    judged.approved_sources.insert((package.source.clone(), package.source_version.clone()));
                }
                continue;
            }
            let reason = format!("{}: {reason}", package.shown());
            judged.refused.insert(name.clone());
            judged.refusals.push(Refusal {
                id,
                package: Some(name.name.clone()),
                variant: Some(name.variant.clone()),
                rule,
                reason,
            });
        }
        self.judge_sources(prepared, &mut judged)?;
        judged.refusals.truncate(REFUSALS_MAX);
        for package in prepared.new_packages() {
            let name = &package.name;
            let found = new.get(name).map(|(_, found)| *found);
            let signed = found.and_then(|found| found.build.statement.as_ref());
            let statement = found.and_then(|found| found.statement?.as_ref().ok());
            judged.explained.push(account::Package {
                name: name.name.clone(),
                variant: name.variant.clone(),
                version: package.version.clone(),
                listed: package.listed.clone(),
                source: package.source.clone(),
                attempt: statement.and_then(Statement::attempt),
                worker: signed.map(|signed| signed.key.clone()),
            });
            let files = found.filter(|found| found.built.files.is_some());
            let files = files.map(|found| files_of(package, found.built).collect());
            judged.packages.push(known_of(package, files));
        }
        Ok(judged)
    }

    /// What is wrong with a new package.
    fn faults(
        &self,
        prepared: &Prepared,
        package: &Package,
        found: Option<Found<'_>>,
    ) -> Result<Vec<(Rule, String)>, MemoryError> {
        let (series, name) = (&prepared.series, &package.name.name);
        let mut faults = Vec::new();
        if !matches(&self.repository.names, name) {
            faults.push((Rule::Policy, "the policy does not allow the name".to_owned()));
        }
        match found {
            None => {
                faults.push((Rule::NoBuild, "no build explains it".to_owned()));
                if self.repository.workers_only {
                    faults.push((Rule::Worker, "no worker signed it".to_owned()));
                }
                faults.extend(self.fault_of_core(package, None));
            }
            Some(found) => {
                let Found { build, built, statement } = found;
                if build.source != package.source {
                    let reason = format!(
                        "it says it is from {}, and the build was of {}",
                        package.source, build.source
                    );
                    faults.push((Rule::NoBuild, reason));
                }
                // A package of a tree may be one of several of its directory.
                let of_source = build.package.strip_prefix(&build.source);
                if !of_source.is_some_and(|rest| {
                    rest.is_empty() || prepared.form == Form::Checksums && rest.starts_with(':')
                }) {
                    let reason =
                        format!("it is from {}, and the order was for {}", build.source, build.package);
                    faults.push((Rule::NoBuild, reason));
                }
                faults.extend(self.fault_of_digest(prepared, package, built)?);
                if package.files.is_some() && package.files != built.files {
                    let reason = "the list of all files has others than its build made".to_owned();
                    faults.push((Rule::Worker, reason));
                }
                let statement = statement.and_then(|statement| statement.as_ref().ok());
                faults.extend(self.fault_of_source(package, build, statement)?);
                faults.extend(self.faults_of_worker(package, found));
            }
        }
        if self.memory.is_replaced(self.name, series, &package.name, &package.listed)? {
            faults.push((Rule::Replayed, "this content was signed before, and replaced".to_owned()));
        } else {
            let has_signature = found.is_some_and(|found| found.built.header.is_some());
            faults.extend(self.faults_of_version(prepared, package, has_signature)?);
        }
        let owners = self.memory.owners(self.name, series, name)?;
        if let Some(owner) = owners.first().filter(|_| !owners.contains(&package.source)) {
            faults.push((Rule::OtherOwner, format!("the name belongs to the source {owner}")));
        }
        if matches(&self.repository.approve, name) {
            faults.push((Rule::Approval, "the policy asks for an approval of each new version".to_owned()));
        } else if self.repository.approve_new_names && owners.is_empty() {
            faults.push((Rule::Approval, "the policy asks for an approval of new names".to_owned()));
        }
        Ok(faults)
    }

    /// What is wrong with a core package, by its worker.
    fn fault_of_core(&self, package: &Package, worker: Option<(&str, &Worker)>) -> Option<(Rule, String)> {
        let is_core = matches(&self.repository.core, &package.name.name);
        (is_core && !worker.is_some_and(|(_, worker)| worker.core)).then(|| {
            let reason = match worker {
                Some((worker, _)) => format!("it is a core package, and {worker} may not build these"),
                None => "it is a core package, and no worker that may build these has signed it".to_owned(),
            };
            (Rule::Core, reason)
        })
    }

    /// What is wrong with the digests of a build, which depend on what is signed.
    fn fault_of_digest(
        &self,
        prepared: &Prepared,
        package: &Package,
        built: &Built,
    ) -> Result<Option<(Rule, String)>, MemoryError> {
        let fault = |reason: &str| Ok(Some((Rule::Worker, reason.to_owned())));
        // What is signed now was not signed before.
        if prepared.series == SIGNED_PACKAGES {
            return Ok(None);
        }
        let signed = match (prepared.form, &built.header) {
            (Form::Lists, Some(header)) => header,
            (Form::Checksums, None) if package.has_signature => &built.listed,
            (Form::Checksums, None) => return Ok(None),
            _ if built.listed == built.sha256 && built.header.is_none() => return Ok(None),
            _ => return fault("its digests differ"),
        };
        let known = self.memory.known(self.name, SIGNED_PACKAGES, &package.name)?;
        match known.is_some_and(|known| known.listed == *signed && known.version == package.version) {
            true => Ok(None),
            false => fault("its own signature was not made here"),
        }
    }

    /// What is wrong with the version of a package. A package of RPM that has a signature may get that of another key: its content is
    /// that of its header, of which there is one for each version.
    fn faults_of_version(
        &self,
        prepared: &Prepared,
        package: &Package,
        has_signature: bool,
    ) -> Result<Vec<(Rule, String)>, MemoryError> {
        let (series, form) = (&prepared.series, prepared.form);
        let known = self.memory.known(self.name, series, &package.name)?;
        let before = match (&known, form) {
            // Packages of all machines and of one replace each other.
            (_, Form::Release | Form::Lists) => {
                let versions = self.memory.versions(self.name, series, &package.name.name)?;
                let variant = &package.name.variant;
                let is_one = |other: &str| {
                    other == variant || [other, variant].iter().any(|one| FOR_ALL.contains(one))
                };
                versions
                    .into_iter()
                    .filter(|(_, other, _)| is_one(other))
                    .map(|(version, ..)| version)
                    .collect()
            }
            // A version that is there already may be made again, together with others of its source.
            (Some(_), Form::Checksums) => Vec::new(),
            (None, Form::Checksums) => {
                let versions = self.memory.versions(self.name, series, &package.name.name)?;
                let is_own = |source: &str| source == package.source;
                versions
                    .into_iter()
                    .filter(|(.., source)| is_own(source))
                    .map(|(version, ..)| version)
                    .collect()
            }
        };
        let before: Vec<String> = before;
        let highest = before.iter().max_by(|left, right| compare(form, left, right));
        if let Some(highest) = highest.filter(|highest| compare(form, &package.version, highest).is_lt()) {
            return Ok(vec![(Rule::VersionBelow, format!("{highest} was signed before"))]);
        }
        let is_resigned = has_signature && *series != SIGNED_PACKAGES;
        let is_other = form != Form::Checksums
            && !is_resigned
            && known.is_some_and(|known| {
                compare(form, &known.version, &package.version).is_eq() && known.listed != package.listed
            });
        let reason = "this version was signed before, with another content".to_owned();
        Ok(is_other.then_some((Rule::OtherContent, reason)).into_iter().collect())
    }

    /// What is wrong with who built a package.
    fn faults_of_worker(&self, package: &Package, found: Found<'_>) -> Vec<(Rule, String)> {
        let (mut faults, Found { build, built, statement }) = (Vec::new(), found);
        let worker = match &build.statement {
            None if self.repository.workers_only => {
                faults.push((Rule::Worker, "no worker signed it".to_owned()));
                None
            }
            None => None,
            Some(signed) => {
                let checked = match statement {
                    Some(Ok(statement)) => {
                        statement.check(build, package, built, self.repository.workers_only)
                    }
                    Some(Err(reason)) => Err(reason.clone()),
                    None => Err("its worker signed nothing".to_owned()),
                };
                faults.extend(checked.err().map(|reason| (Rule::Worker, reason)));
                let worker = self.policy.worker_of(&signed.key);
                if worker.is_none() && (self.repository.workers_only || !self.policy.worker.is_empty()) {
                    let key = signed.key.get(..16).unwrap_or_default();
                    faults
                        .push((Rule::Worker, format!("the worker with the key {key}… is not approved here")));
                }
                worker
            }
        };
        faults.extend(self.fault_of_core(package, worker));
        faults
    }
}

/// The build that an output is from.
#[derive(Clone, Copy)]
struct Found<'b> {
    build: &'b Build,
    built: &'b Built,
    /// What its worker signed, or why that counts for nothing; absent if no worker signed anything.
    statement: Option<&'b Result<Statement, String>>,
}

/// Finds files of new packages that other packages had before, and still have.
fn find_taken_files<'p>(
    new: &BTreeMap<&'p Name, (&'p Package, Found<'_>)>,
    mut owners: HashMap<u64, Vec<Name>>,
    packages: &[Package],
    faults: &mut Vec<(&'p Package, Rule, String)>,
) {
    let all: HashMap<&Name, &Package> = packages.iter().map(|package| (&package.name, package)).collect();
    for names in owners.values_mut() {
        names.retain(|name| all.contains_key(name));
    }
    let has: HashMap<&Name, HashSet<u64>> = new
        .iter()
        .map(|(name, (package, found))| (*name, files_of(package, found.built).collect()))
        .collect();
    for (name, (package, Found { built, .. })) in new {
        let mut reported = HashSet::new();
        for (path, file) in built.files.iter().flatten().zip(files_of(package, built)) {
            for other in owners.get(&file).into_iter().flatten() {
                let still_has = has.get(other).is_none_or(|files| files.contains(&file));
                let is_allowed = other.name == name.name
                    || package.yields_to.contains(&other.name)
                    || all.get(other).is_some_and(|other| other.yields_to.contains(&name.name));
                if still_has && !is_allowed && reported.insert(&other.name) {
                    let reason = format!("it takes over {path} of {} without saying so", other.name);
                    faults.push((package, Rule::FileTakenOver, reason));
                }
            }
        }
    }
}

/// The files of a package as they are remembered. Those of the installer's packages are apart from those of installed systems.
fn files_of<'a>(package: &'a Package, built: &'a Built) -> impl Iterator<Item = u64> + 'a {
    let world = if package.file.ends_with(".udeb") { "udeb " } else { "" };
    built.files.iter().flatten().map(move |path| short_hash(&format!("{world}{}", merged(path))))
}

/// The path of a file where `/bin` and others are links to folders of `/usr`.
fn merged(path: &str) -> String {
    let is_merged =
        ["bin/", "sbin/", "lib/", "lib32/", "lib64/", "libx32/"].iter().any(|top| path.starts_with(top));
    if is_merged { format!("usr/{path}") } else { path.to_owned() }
}

fn known_of(package: &Package, files: Option<Vec<u64>>) -> Remembered {
    let entry = package.remembered_entry();
    let Package { name, version, source, listed, .. } = package.clone();
    (name, Known { version, source, listed, entry, is_gone: false }, files)
}

impl Prepared {
    /// The packages that are new.
    pub fn new_packages(&self) -> impl Iterator<Item = &Package> {
        self.new.iter().map(|place| &self.read.packages[*place])
    }

    /// All packages as they are remembered, without what is known of their files.
    pub fn all(&self) -> Vec<Remembered> {
        self.read.packages.iter().map(|package| known_of(package, None)).collect()
    }
}

/// Whether a source that declares these names may make a package: debhelper makes packages of debugging symbols unasked.
fn is_declared(declared: &[String], name: &str) -> bool {
    let is = |name: &str| declared.iter().any(|declared| is_name(declared, name));
    is(name) || name.strip_suffix("-dbgsym").is_some_and(is)
}

/// Whether a name is the declared one, in which a `#` stands for digits.
fn is_name(declared: &str, name: &str) -> bool {
    let Some((before, after)) = declared.split_once('#') else { return declared == name };
    let middle = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    middle.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn compare(form: Form, left: &str, right: &str) -> Ordering {
    match form {
        Form::Release => release::compare(left, right),
        Form::Checksums => checksums::compare(left, right),
        Form::Lists => lists::compare(left, right),
    }
}

/// The first eight bytes of the SHA-256 of a path: enough to tell the files of a repository apart, and short.
fn short_hash(path: &str) -> u64 {
    u64::from_str_radix(&hash(path.as_bytes())[..16], 16).unwrap_or_default()
}
