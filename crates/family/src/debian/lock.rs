//! `kilnyard lock`: writes `kilnyard.lock`, which records the inputs of a set, so that a run can be repeated from
//! them.
//!
//! The lock names the index of each suite, with the hashes of its files, and each source with its version and the
//! hash of its `.dsc`. While it exists, scans fetch no newer indexes: they only make sure that the yard has the files
//! that it names. The same indexes, rules and own sources give the same set. A run with other rules or own sources
//! rewrites the lock, as cargo does; with `build --locked`, it fails.
//!
//! Known downside: the packages of one index are locked together.

mod file;

pub use file::{Lock, LockedFile, LockedIndex, NAME, RELEASE, kept_name, read};

use super::autopkgtest;
use super::scan::Index;
use super::{Debian, SourceSet, TITLE, archives, base, git, scan, set};
use clap::Args;
use file::LockedSource;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::debian::Workshop;
use kilnyard_yard::error::{Error, Kind, Result};
use kilnyard_yard::family::{Scanned, Set};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::mirror::open_files;
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use kilnyard_yard::{interrupt, words};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// The maximum number of differences that a message lists.
const DIFFERENCES_SHOWN: usize = 10;

/// Arguments of `lock`.
#[derive(Debug, Args)]
pub struct Options {
    /// Lock the newest indexes and commits instead of the locked ones.
    #[arg(long)]
    update: bool,
    /// With --update: only these packages, which must be from git repositories or own .dsc files.
    #[arg(value_name = "PACKAGE", requires = "update")]
    packages: Vec<String>,
}

/// What a scan uses of the lock.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The lock; absent if everything is to be renewed.
    lock: Option<Lock>,
    /// Packages whose commits are renewed anyway.
    renewed: Vec<String>,
}

impl Kept {
    /// All of the yard's lock, if it has one.
    pub fn all(yard: &Yard) -> Result<Kept> {
        Ok(Kept { lock: read(yard)?, renewed: Vec::new() })
    }

    /// The locked index of a suite.
    pub fn index(&self, archive: &str, suite: &str) -> Option<&LockedIndex> {
        let indexes = self.lock.iter().flat_map(|lock| &lock.index);
        indexes.into_iter().find(|index| index.archive == archive && index.suite.as_str() == suite)
    }

    /// The locked commits of git rules.
    pub fn commits(&self) -> BTreeMap<String, String> {
        let sources = self.lock.iter().flat_map(|lock| &lock.source);
        let kept = sources.filter(|source| !self.renewed.contains(&source.name));
        kept.filter_map(|source| Some((source.from.clone(), source.commit.clone()?))).collect()
    }
}

/// Scans with the kept part of the lock.
pub fn scan(
    yard: &Yard,
    debian: &Debian,
    kept: &Kept,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Scanned> {
    let mut scanned = scan::scan(yard, debian, kept, cancel, say)?;
    let (changed, unchanged) = git::scan(yard, debian, &set::rules(yard)?, &kept.commits(), cancel, say)?;
    scanned.changed.extend(changed);
    scanned.unchanged.extend(unchanged);
    autopkgtest::fetch(yard, debian, cancel, say)?;
    Ok(scanned)
}

/// Performs `kilnyard lock`.
pub fn run(yard: &Yard, options: &Options, program: &dyn Program) -> Result<ExitCode> {
    let debian = yard.config.family.require::<Debian>(TITLE)?;
    program.catch_signals();
    let _lock = yard.lock()?;
    let before = read(yard)?;
    let kept = match (options.update, options.packages.is_empty()) {
        (false, _) => Kept { lock: before.clone(), renewed: Vec::new() },
        (true, true) => Kept::default(),
        (true, false) => {
            renewable(before.as_ref(), &options.packages)?;
            Kept { lock: before.clone(), renewed: options.packages.clone() }
        }
    };
    scan(yard, debian, &kept, interrupt::cancel(), &|text| program.say(text))?;
    let made = base::find(yard, &debian.root()).unwrap_or_default();
    let workshop = set::resolve(yard, debian, made, &open_files(yard)?)?;
    let now = of_set(yard, debian, &workshop)?;
    let differences = before.as_ref().map(|before| before.differences(&now));
    if differences.as_ref().is_some_and(Vec::is_empty) {
        say!(program, "{NAME} is up to date: {}", counts(&now));
        return Ok(ExitCode::SUCCESS);
    }
    write(yard, &now)?;
    scan::remove_unlocked(yard);
    for line in shown(&differences.unwrap_or_default()) {
        say!(program, "{line}");
    }
    say!(program, "wrote {}: {}", yard.path(NAME).display(), counts(&now));
    Ok(ExitCode::SUCCESS)
}

/// Rejects packages that cannot be renewed alone.
fn renewable(before: Option<&Lock>, packages: &[String]) -> Result<()> {
    let Some(before) = before else {
        return Err(Error::usage(format!("there is no {NAME} to update")).hint(Remedy::command("lock")));
    };
    for name in packages {
        let Some(source) = before.source.iter().find(|source| source.name == *name) else {
            return Err(Error::usage(format!("{NAME} has no package {name}")));
        };
        if !source.is_own() {
            let message = format!("{name} is from {}, whose packages are locked together", source.from);
            return Err(Error::usage(message)
                .hint(Remedy::command("lock --update").then(", which renews the indexes of all suites")));
        }
    }
    Ok(())
}

fn counts(lock: &Lock) -> String {
    let indexes = match lock.index.len() {
        1 => "1 index".to_owned(),
        count => format!("{count} indexes"),
    };
    format!("{}, {indexes}", words::count(lock.source.len() as u64, "source"))
}

fn shown(differences: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = differences.iter().take(DIFFERENCES_SHOWN).cloned().collect();
    if let Some(more) = differences.len().checked_sub(DIFFERENCES_SHOWN).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Compares a resolved set with the lock, if there is one. If they differ, the lock is rewritten, or, with
/// `is_strict`, that is an error.
pub fn check(yard: &Yard, debian: &Debian, set: &Set, is_strict: bool, say: &dyn Fn(&str)) -> Result<()> {
    let Some(before) = read(yard)? else {
        return match is_strict {
            true => Err(Error::usage(format!("--locked needs {NAME}, which does not exist"))
                .hint(Remedy::command("lock").then(", which writes it"))),
            false => Ok(()),
        };
    };
    let Some(resolved) = set.of::<SourceSet>() else { return Ok(()) };
    let now = of_set(yard, debian, &resolved.workshop)?;
    let architectures = debian.architectures();
    for wanted in archives::wanted(debian) {
        let is_of =
            |index: &&LockedIndex| index.archive == wanted.archive && index.suite.as_str() == wanted.suite;
        let locked = before.index.iter().find(is_of).filter(|index| index.serves(&wanted, &architectures));
        if locked.is_some_and(|locked| now.index.iter().find(is_of) != Some(locked)) {
            let message = format!("the yard's index of {} is not the one that {NAME} names", wanted.shown());
            return Err(Error::usage(message).hint(Remedy::command("scan")));
        }
    }
    let differences = before.differences(&now);
    if differences.is_empty() {
        // The base is made after the first lock was written.
        return if now.base.is_some() && before.base.is_none() && !is_strict {
            write(yard, &now)
        } else {
            Ok(())
        };
    }
    if is_strict {
        let mut error = Error::usage(format!("{NAME} would have to change, and --locked forbids it"));
        error.causes = shown(&differences);
        return Err(error.hint(Remedy::command("lock").then(", which rewrites it")));
    }
    write(yard, &now)?;
    say(&format!("note: {NAME} was updated:"));
    shown(&differences).iter().for_each(|line| say(&format!("  {line}")));
    Ok(())
}

fn write(yard: &Yard, lock: &Lock) -> Result<()> {
    write_whole(&yard.path(NAME), lock.to_text()?.as_bytes())
}

/// The lock of a resolved set.
fn of_set(yard: &Yard, debian: &Debian, workshop: &Workshop) -> Result<Lock> {
    let commits: BTreeMap<String, (String, String)> = git::sources(yard, &set::rules(yard)?)
        .into_iter()
        .map(|source| (source.found.name, (source.rule, source.found.commit)))
        .collect();
    let mut sources = Vec::new();
    for id in workshop.graph().packages().filter(|id| !workshop.is_test(*id)) {
        let source = workshop.source(id);
        let own = workshop.is_own(id).then(|| commits.get(source.name())).flatten();
        let dsc = source.files().unwrap_or_default().into_iter().find(|file| file.name.ends_with(".dsc"));
        sources.push(LockedSource {
            name: source.name().to_owned(),
            version: source.version().to_owned(),
            from: own.map_or_else(|| workshop.suite_name(id).to_owned(), |(rule, _)| rule.clone()),
            commit: own.map(|(_, commit)| commit.clone()),
            dsc: dsc.and_then(|dsc| dsc.sha256.parse().ok()),
        });
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let base = base::find(yard, &debian.root()).map(|base| base.digest);
    let base = base.and_then(|digest| digest.parse().ok());
    Ok(Lock { version: file::VERSION, base, index: Index::open(yard)?.locked()?, source: sources })
}

/// The names of index files that `kilnyard clean` keeps: those of the lock that can be read.
pub fn kept_files(yard: &Yard) -> Vec<String> {
    let lock = read(yard).ok().flatten().unwrap_or_default();
    let names = lock.index.iter().flat_map(LockedIndex::kept_names);
    let mut kept: Vec<String> = names.filter(|name| scan::is_intact(yard, name)).collect();
    // A branch may have lost the commit since.
    kept.extend(lock.source.iter().any(|source| source.commit.is_some()).then(|| git::NAME.to_owned()));
    kept
}

/// The error for a locked index file that neither the yard nor a mirror has.
pub fn missing(index: &LockedIndex, file: &LockedFile, error: Error) -> Error {
    let mut missing = Error::new(
        if error.kind == Kind::Interrupted { Kind::Interrupted } else { Kind::Machine },
        format!(
            "{NAME} names {} of {} ({}), but the yard no longer has it",
            file.path, index.suite, index.date
        ),
    );
    missing.causes = std::iter::once(error.message).chain(error.causes).collect();
    missing
        .hint("a mirror that keeps earlier states, such as snapshot.debian.org")
        .hint(Remedy::command("lock --update").then(", which locks the newest index"))
}
