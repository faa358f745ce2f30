//! Git repositories with a `debian` folder, or with folders that have one, as sources of a set: rules
//! `git:PATH-OR-URL[#REF][#REF:FOLDER]`.
//!
//! A scan fetches a repository into the yard's own copy, resolves the reference to a commit, and makes a source
//! package of it, once for each commit. Everything after the scan sees a `.dsc` like that of any other own source.
//! `index/git` has the source packages (`NAME/COMMIT`, `NAME/COMMIT-TREE` for one folder of several) and `record.json`, the
//! result of each rule. The commit of a folder is the last one that changed it, so that other commits change nothing about its source.

mod pack;

use super::config::Debian;
use super::rules::{Rule, Selection};
pub use crate::git::shown;
use crate::git::{CommitFolder, Copy, Failed, TreeCommit, commits_between, copies, name_of};
use kilnyard_ecosystem::git::GitAddress;
use kilnyard_store::RunCommit;
use kilnyard_yard::commits::Change;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::Yard;
use pack::Pack;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The name of the folder in `index`.
pub const NAME: &str = "git";
/// The folder of everything here.
const FOLDER: &str = "index/git";

/// The files that declare a source, for the signer.
const DECLARED_IN: [&str; 2] = ["debian/control", "debian/changelog"];

/// The results of the rules, by the name of the repository and the reference. An address is not used, since it may
/// contain a password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    rules: BTreeMap<String, Found>,
    /// What rules for all folders of one found, likewise.
    #[serde(default)]
    folders: BTreeMap<String, Folders>,
}

/// The folders that a rule for all of them stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Folders {
    commit: String,
    folders: Vec<String>,
}

/// The result of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The commit; empty if the rule was never resolved.
    pub commit: String,
    /// The id of the folder's tree in the commit, if the rule names a folder.
    #[serde(default)]
    tree: String,
    /// Name of the package; a guess until it is known.
    pub name: String,
    /// The `.dsc`, relative to the yard; empty if there is none.
    dsc: String,
    /// Why there is no source package of the rule's current commit.
    pub problem: Option<String>,
}

fn key(yard: &Yard, rule: &GitAddress) -> String {
    let folder = rule.folder.as_ref().map_or(String::new(), |folder| format!(":{folder}"));
    format!("{}#{}{folder}", name_of(&yard.home, rule), rule.reference.as_deref().unwrap_or(""))
}

fn read(yard: &Yard) -> Record {
    let bytes = fs_err::read(yard.path(FOLDER).join("record.json")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// The git rules among these, each once.
fn git_rules(rules: &[Rule]) -> Vec<&GitAddress> {
    let mut seen = BTreeSet::new();
    let named = rules.iter().filter(|rule| !rule.is_exclusion).filter_map(|rule| match &rule.selection {
        Selection::Git(rule) => Some(rule),
        _ => None,
    });
    named.filter(|rule| seen.insert(rule.to_string())).collect()
}

/// The rules that each of these stands for, one for each folder, according to the last scan.
fn single_rules(yard: &Yard, rules: &[Rule], record: &Record) -> Vec<GitAddress> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for rule in git_rules(rules) {
        match record.folders.get(&key(yard, rule)).filter(|_| rule.folders_in().is_some()) {
            Some(found) => all.extend(found.folders.iter().map(|folder| rule.at(folder))),
            None => all.push(rule.clone()),
        }
    }
    all.retain(|rule| seen.insert(rule.to_string()));
    all
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
    if git_rules(rules).is_empty() {
        return Vec::new();
    }
    let record = read(yard);
    let source = |rule: &GitAddress| {
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
    single_rules(yard, rules, &record).iter().map(source).collect()
}

/// The commits of the git rules, according to the last scan, by the names of their sources.
pub fn commits(yard: &Yard, rules: &[Rule]) -> BTreeMap<String, CommitFolder> {
    let located = located(yard, rules).into_iter();
    located.map(|(_, found, folder)| (found.name, folder)).collect()
}

/// The git rules with a commit, each with its result and the folder of its source.
pub fn located(yard: &Yard, rules: &[Rule]) -> Vec<(String, Found, CommitFolder)> {
    if git_rules(rules).is_empty() {
        return Vec::new();
    }
    let record = read(yard);
    let commit = |rule: GitAddress| {
        let found = record.rules.get(&key(yard, &rule)).filter(|found| !found.commit.is_empty())?.clone();
        let git = Copy::folder(yard, &rule);
        let path = rule.folder.clone().unwrap_or_default();
        Some((
            shown(&rule),
            found.clone(),
            CommitFolder { git, commit: found.commit, path, declared_in: &DECLARED_IN },
        ))
    };
    single_rules(yard, rules, &record).into_iter().filter_map(commit).collect()
}

/// See [`kilnyard_yard::family::Family::changes`].
pub fn changes(
    yard: &Yard,
    rules: &[Rule],
    earlier: &[RunCommit],
    later: &[RunCommit],
    package: Option<&str>,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (source, found, CommitFolder { git, path, .. }) in located(yard, rules) {
        let of = |commits: &[RunCommit]| {
            commits.iter().find(|commit| commit.source == source).map(|commit| commit.commit.clone())
        };
        let is_other = package.is_some_and(|package| package != found.name);
        let (Some(from), Some(commit), false) = (of(earlier), of(later), is_other) else { continue };
        let place = TreeCommit { git, commit, folder: path };
        if from != place.commit {
            // A repository that has lost the commits does not hide those of the others.
            changes.extend(commits_between(&place, &source, &from, &[]).unwrap_or_default());
        }
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.date_seconds));
    Ok(changes)
}

/// A scan of the repositories of rules.
struct Scan<'a> {
    yard: &'a Yard,
    debian: &'a Debian,
    /// The commits that a lock names, by shown rule.
    locked: &'a BTreeMap<String, String>,
    before: Record,
    cancel: &'a AtomicBool,
    say: &'a dyn Fn(&str),
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
    let scan = Scan { yard, debian, locked, before: read(yard), cancel, say };
    let mut record = Record::default();
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for rule in &rules {
        let found = match scan.scan(rule, &mut record) {
            Ok(found) => found,
            Err(Failed::Cancelled) => {
                return Err(Error::new(Kind::Interrupted, "interrupted while fetching"));
            }
            Err(Failed::Reason(problem)) => scan.all_unusable(rule, &problem, &mut record),
        };
        for (rule, found) in found {
            if let Some(problem) = &found.problem {
                say(&format!("{}: {problem}", shown(&rule)));
            }
            let is_same = scan.before.rules.get(&key(yard, &rule)) == Some(&found);
            (if is_same { &mut unchanged } else { &mut changed }).push(shown(&rule));
            record.rules.insert(key(yard, &rule), found);
        }
    }
    if record != scan.before {
        let failed = "write the record of git repositories";
        fs_err::create_dir_all(yard.path(FOLDER)).context(Kind::Machine, failed)?;
        let text = serde_json::to_vec_pretty(&record).or_internal(failed)?;
        write_whole(&yard.path(FOLDER).join("record.json"), &text)?;
        remove_others(yard, &rules, &record);
    }
    Ok((changed, unchanged))
}

impl Scan<'_> {
    /// The results of a rule: of each folder, if it stands for several.
    fn scan(
        &self,
        rule: &GitAddress,
        record: &mut Record,
    ) -> std::result::Result<Vec<(GitAddress, Found)>, Failed> {
        let copy = Copy::open(self.yard, rule, self.cancel)?;
        let known = key(self.yard, rule);
        let Some(above) = rule.folders_in() else {
            let known = self.before.rules.get(&known).map(|known| known.commit.as_str());
            let commit = match self.locked.get(&shown(rule)) {
                Some(locked) => self.locked(&copy, rule, locked)?,
                None => self.fetched(&copy, rule, known)?,
            };
            return Ok(vec![(rule.clone(), self.scan_one(rule, &copy, &commit, None)?)]);
        };
        let beginning = shown(rule);
        let beginning = beginning.trim_end_matches('*');
        let locked: Vec<(&str, &String)> = self
            .locked
            .iter()
            .filter_map(|(shown, commit)| Some((shown.strip_prefix(beginning)?, commit)))
            .collect();
        let join = |name: &str| if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        let mut found = Vec::new();
        let mut one = |folder: &str, commit: std::result::Result<String, Failed>, tree: Option<&str>| {
            let rule = rule.at(folder);
            let scanned = match commit.and_then(|commit| self.scan_one(&rule, &copy, &commit, tree)) {
                Ok(scanned) => scanned,
                Err(Failed::Cancelled) => return Err(Failed::Cancelled),
                // A folder that cannot be used does not affect the others.
                Err(Failed::Reason(problem)) => self.unusable(&rule, problem),
            };
            found.push((rule, scanned));
            Ok(())
        };
        let before = self.before.folders.get(&known);
        let folders = if locked.is_empty() {
            let commit = self.fetched(&copy, rule, before.map(|known| known.commit.as_str()))?;
            let with_source = copy.folders_with(&commit, above, "debian/changelog")?;
            if with_source.is_empty() {
                return Err(format!("{} has no folder with debian/changelog", shown(rule)).into());
            }
            for (folder, tree) in &with_source {
                one(folder, Ok(commit.clone()), Some(tree))?;
            }
            Folders { commit, folders: with_source.into_iter().map(|(folder, _)| folder).collect() }
        } else {
            for (name, commit) in &locked {
                one(&join(name), self.locked(&copy, rule, commit), None)?;
            }
            let folders = locked.iter().map(|(name, _)| join(name)).collect();
            Folders { commit: before.map(|known| known.commit.clone()).unwrap_or_default(), folders }
        };
        record.folders.insert(known, folders);
        Ok(found)
    }

    /// The results of a rule that cannot be used: the folders that it stood for are known, so that their packages stay published.
    fn all_unusable(
        &self,
        rule: &GitAddress,
        problem: &str,
        record: &mut Record,
    ) -> Vec<(GitAddress, Found)> {
        let unusable = |rule: GitAddress| {
            let found = self.unusable(&rule, problem.to_owned());
            (rule, found)
        };
        let known = key(self.yard, rule);
        match self.before.folders.get(&known).filter(|_| rule.folders_in().is_some()) {
            Some(before) => {
                record.folders.insert(known, before.clone());
                before.folders.iter().map(|folder| unusable(rule.at(folder))).collect()
            }
            None => vec![unusable(rule.clone())],
        }
    }

    /// The result of a rule that cannot be used.
    fn unusable(&self, rule: &GitAddress, problem: String) -> Found {
        let known = self.before.rules.get(&key(self.yard, rule));
        Found {
            name: known.map_or(rule.presumed(), |known| &known.name).to_owned(),
            commit: known.map(|known| known.commit.clone()).unwrap_or_default(),
            problem: Some(problem),
            ..Found::default()
        }
    }

    /// A commit that the lock names.
    fn locked(
        &self,
        copy: &Copy<'_>,
        rule: &GitAddress,
        commit: &str,
    ) -> std::result::Result<String, Failed> {
        if !copy.has(commit) {
            copy.fetch(&self.yard.home, rule)?;
        }
        copy.commit(commit)
            .ok_or_else(|| format!("it has no commit {commit}, which kilnyard.lock names").into())
    }

    /// The commit that a rule names now, or the last known one, if its server cannot be reached.
    fn fetched(
        &self,
        copy: &Copy<'_>,
        rule: &GitAddress,
        known: Option<&str>,
    ) -> std::result::Result<String, Failed> {
        match copy.fetch(&self.yard.home, rule) {
            Ok(()) => copy.resolve(rule),
            // The package stays when its server is unreachable.
            Err(Failed::Reason(reason)) => match known.filter(|known| copy.has(known)) {
                Some(known) => {
                    (self.say)(&format!("warning: {}: {reason}; using its last commit", shown(rule)));
                    Ok(known.to_owned())
                }
                None => Err(reason.into()),
            },
            Err(Failed::Cancelled) => Err(Failed::Cancelled),
        }
    }

    /// The source of one folder in a commit of its repository; `known_tree` is that of the folder, if it is known.
    fn scan_one(
        &self,
        rule: &GitAddress,
        copy: &Copy<'_>,
        commit: &str,
        known_tree: Option<&str>,
    ) -> std::result::Result<Found, Failed> {
        let known = self.before.rules.get(&key(self.yard, rule));
        let (mut commit, mut tree) = (commit.to_owned(), String::new());
        if let Some(folder) = &rule.folder {
            let found = known_tree.map(str::to_owned).or_else(|| copy.tree(&commit, folder));
            tree = found.ok_or_else(|| format!("it has no folder {folder}"))?;
            let is_same = |known: &&Found| known.tree == tree && !known.commit.is_empty();
            commit = match known.filter(is_same) {
                Some(known) => known.commit.clone(),
                None => copy.last_change(&commit, folder)?,
            };
        }
        let is_made = |known: &&Found| {
            known.commit == commit && known.problem.is_none() && self.yard.path(&known.dsc).is_file()
        };
        if let Some(known) = known.filter(is_made) {
            return Ok(known.clone());
        }
        let pack =
            Pack { yard: self.yard, debian: self.debian, rule, copy, commit: &commit, cancel: self.cancel };
        let changelog = pack.changelog()?;
        (self.say)(&format!(
            "{}: making {} {} from commit {commit}",
            shown(rule),
            changelog.source,
            changelog.version
        ));
        let name = name_of(&self.yard.home, rule);
        let made = made_name(&commit, &tree);
        let folder = format!("{FOLDER}/{name}/{made}");
        let dsc = pack.make(&changelog, &self.yard.path(&folder))?;
        let file = dsc.file_name().unwrap_or_default().to_string_lossy();
        Ok(Found { commit, tree, name: changelog.source, dsc: format!("{folder}/{file}"), problem: None })
    }
}

/// The name of the folder of a source package.
fn made_name(commit: &str, tree: &str) -> String {
    if tree.is_empty() { commit.to_owned() } else { format!("{commit}-{tree}") }
}

/// Removes source packages that no rule needs, and copies.
fn remove_others(yard: &Yard, rules: &[&GitAddress], record: &Record) {
    let names: BTreeSet<String> = rules.iter().map(|rule| name_of(&yard.home, rule)).collect();
    let made: BTreeSet<String> =
        record.rules.values().map(|found| made_name(&found.commit, &found.tree)).collect();
    let has_copies = yard.folder == yard.home && copies(yard) == yard.path(FOLDER);
    for entry in fs_err::read_dir(yard.path(FOLDER)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_dir() {
            continue;
        }
        let is_copy = name.ends_with(".git");
        // Copies may be those of other targets, too.
        if is_copy && !has_copies {
            continue;
        }
        if !names.contains(name.trim_end_matches(".git")) {
            // A later scan removes what is left.
            let _ = fs_err::remove_dir_all(entry.path());
            continue;
        }
        if is_copy {
            continue;
        }
        for source in fs_err::read_dir(entry.path()).into_iter().flatten().flatten() {
            if !made.contains(&*source.file_name().to_string_lossy()) {
                let _ = fs_err::remove_dir_all(source.path());
            }
        }
    }
}
