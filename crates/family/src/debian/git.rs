//! Git repositories with a `debian` folder, as sources of a set: rules `git:PATH-OR-URL[#REF]`.
//!
//! A scan fetches a repository into the yard's own copy, resolves the reference to a commit, and makes a source
//! package of it, once for each commit. Everything after the scan sees a `.dsc` like that of any other own source.
//! `index/git` has the copies (`NAME.git`), the source packages (`NAME/COMMIT`) and `record.json`, the result of each
//! rule.

mod commit;
mod pack;
mod repository;

use super::config::Debian;
use super::rules::{Rule, Selection};
pub use commit::{CommitFolder, head};
use kilnyard_ecosystem::debian::packaging::GitRule;
use kilnyard_mirror::without_password;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::Yard;
use pack::Pack;
use repository::{Copy, Failed, name_of};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The name of the folder in `index`.
pub const NAME: &str = "git";
/// The folder of everything here.
const FOLDER: &str = "index/git";

/// The results of the rules, by the name of the repository and the reference. An address is not used, since it may
/// contain a password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    rules: BTreeMap<String, Found>,
}

/// The result of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The commit; empty if the rule was never resolved.
    pub commit: String,
    /// Name of the package; a guess until it is known.
    pub name: String,
    /// The `.dsc`, relative to the yard; empty if there is none.
    dsc: String,
    /// Why there is no source package of the rule's current commit.
    pub problem: Option<String>,
}

fn key(yard: &Yard, rule: &GitRule) -> String {
    format!("{}#{}", name_of(&yard.home, rule), rule.reference.as_deref().unwrap_or(""))
}

fn read(yard: &Yard) -> Record {
    let bytes = fs_err::read(yard.path(FOLDER).join("record.json")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// The git rules among these, each once.
fn git_rules(rules: &[Rule]) -> Vec<&GitRule> {
    let mut seen = BTreeSet::new();
    let named = rules.iter().filter(|rule| !rule.is_exclusion).filter_map(|rule| match &rule.selection {
        Selection::Git(rule) => Some(rule),
        _ => None,
    });
    named.filter(|rule| seen.insert(rule.to_string())).collect()
}

/// A rule as messages show it, without a password.
pub fn shown(rule: &GitRule) -> String {
    without_password(&rule.to_string())
}

/// A source package from a git repository.
pub struct GitSource {
    /// The rule, without a password.
    pub rule: String,
    /// The rule's result.
    pub found: Found,
    /// Its `.dsc`, or why there is none.
    pub dsc: std::result::Result<PathBuf, String>,
}

/// The sources of the git rules, according to the last scan.
pub fn sources(yard: &Yard, rules: &[Rule]) -> Vec<GitSource> {
    let rules = git_rules(rules);
    let record = if rules.is_empty() { Record::default() } else { read(yard) };
    let source = |rule: &GitRule| {
        let unknown = || Found {
            name: rule.presumed().to_owned(),
            problem: Some("the repository has not been fetched yet: kilnyard scan".to_owned()),
            ..Found::default()
        };
        let found = record.rules.get(&key(yard, rule)).cloned().unwrap_or_else(unknown);
        let dsc = match &found.problem {
            Some(problem) => Err(problem.clone()),
            None => Ok(yard.path(&found.dsc)),
        };
        GitSource { rule: shown(rule), found, dsc }
    };
    rules.into_iter().map(source).collect()
}

/// The commits of the git rules, according to the last scan, by the names of their sources.
pub fn commits(yard: &Yard, rules: &[Rule]) -> BTreeMap<String, CommitFolder> {
    let rules = git_rules(rules);
    let record = if rules.is_empty() { Record::default() } else { read(yard) };
    let commit = |rule: &&GitRule| {
        let found = record.rules.get(&key(yard, rule)).filter(|found| !found.commit.is_empty())?;
        let git = yard.path(FOLDER).join(format!("{}.git", name_of(&yard.home, rule)));
        let folder = CommitFolder { git, commit: found.commit.clone(), path: String::new() };
        Some((found.name.clone(), folder))
    };
    rules.iter().filter_map(commit).collect()
}

/// Fetches the repositories of the rules and makes their source packages. `locked` has the commits that a lock names,
/// by [`shown`] rule. Returns the rules that resolve to a different commit than before, and those that do not.
///
/// # Errors
/// The user interrupted the scan, or the record cannot be written. A repository that cannot be used is recorded with
/// the reason.
pub fn scan(
    yard: &Yard,
    debian: &Debian,
    rules: &[Rule],
    locked: &BTreeMap<String, String>,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(Vec<String>, Vec<String>)> {
    let rules = git_rules(rules);
    let before = read(yard);
    let mut record = Record::default();
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for rule in &rules {
        let key = key(yard, rule);
        let known = before.rules.get(&key);
        let commit = locked.get(&shown(rule)).map(String::as_str);
        let found = match scan_one(yard, debian, rule, commit, known, cancel, say) {
            Ok(found) => found,
            Err(Failed::Cancelled) => {
                return Err(Error::new(Kind::Interrupted, "interrupted while fetching"));
            }
            Err(Failed::Reason(problem)) => Found {
                name: known.map_or(rule.presumed(), |known| &known.name).to_owned(),
                commit: known.map(|known| known.commit.clone()).unwrap_or_default(),
                dsc: String::new(),
                problem: Some(problem),
            },
        };
        if let Some(problem) = &found.problem {
            say(&format!("{}: {problem}", shown(rule)));
        }
        let is_same = known == Some(&found);
        (if is_same { &mut unchanged } else { &mut changed }).push(shown(rule));
        record.rules.insert(key, found);
    }
    if record != before {
        let failed = "write the record of git repositories";
        fs_err::create_dir_all(yard.path(FOLDER)).context(Kind::Machine, failed)?;
        let text = serde_json::to_vec_pretty(&record).or_internal(failed)?;
        write_whole(&yard.path(FOLDER).join("record.json"), &text)?;
        remove_others(yard, &rules, &record);
    }
    Ok((changed, unchanged))
}

fn scan_one(
    yard: &Yard,
    debian: &Debian,
    rule: &GitRule,
    locked: Option<&str>,
    known: Option<&Found>,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> std::result::Result<Found, Failed> {
    let name = name_of(&yard.home, rule);
    let copy = Copy::open(yard.path(FOLDER).join(format!("{name}.git")), cancel)?;
    let commit = match locked {
        Some(commit) => {
            if !copy.has(commit) {
                copy.fetch(&yard.home, rule)?;
            }
            copy.commit(commit)
                .ok_or_else(|| format!("it has no commit {commit}, which kilnyard.lock names"))?
        }
        None => match copy.fetch(&yard.home, rule) {
            Ok(()) => copy.resolve(rule)?,
            // The package stays when its server is unreachable.
            Err(Failed::Reason(reason)) => match known.filter(|known| copy.has(&known.commit)) {
                Some(known) => {
                    say(&format!("warning: {}: {reason}; using its last commit", shown(rule)));
                    known.commit.clone()
                }
                None => return Err(reason.into()),
            },
            Err(Failed::Cancelled) => return Err(Failed::Cancelled),
        },
    };
    let is_made =
        |known: &&Found| known.commit == commit && known.problem.is_none() && yard.path(&known.dsc).is_file();
    if let Some(known) = known.filter(is_made) {
        return Ok(known.clone());
    }
    let pack = Pack { yard, debian, rule, copy: &copy, commit: &commit, cancel };
    let changelog = pack.changelog()?;
    say(&format!("{}: making {} {} from commit {commit}", shown(rule), changelog.source, changelog.version));
    let folder = format!("{FOLDER}/{name}/{commit}");
    let dsc = pack.make(&changelog, &yard.path(&folder))?;
    let file = dsc.file_name().unwrap_or_default().to_string_lossy();
    Ok(Found { commit, name: changelog.source, dsc: format!("{folder}/{file}"), problem: None })
}

/// Removes copies and source packages that no rule needs.
fn remove_others(yard: &Yard, rules: &[&GitRule], record: &Record) {
    let names: BTreeSet<String> = rules.iter().map(|rule| name_of(&yard.home, rule)).collect();
    let commits: BTreeSet<&str> = record.rules.values().map(|found| found.commit.as_str()).collect();
    for entry in fs_err::read_dir(yard.path(FOLDER)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_dir() {
            continue;
        }
        if !names.contains(name.trim_end_matches(".git")) {
            // A later scan removes what is left.
            let _ = fs_err::remove_dir_all(entry.path());
            continue;
        }
        if name.ends_with(".git") {
            continue;
        }
        for made in fs_err::read_dir(entry.path()).into_iter().flatten().flatten() {
            if !commits.contains(&*made.file_name().to_string_lossy()) {
                let _ = fs_err::remove_dir_all(made.path());
            }
        }
    }
}
