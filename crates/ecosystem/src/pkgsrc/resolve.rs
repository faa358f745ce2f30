//! Resolves dependencies: chooses exactly one package for each pattern of a package.
//!
//! The rules are those of `pkg_add` and of pbulk's resolver. If a dependency already chosen for the same package
//! matches, it is taken; otherwise the best of all matches ([`PackageName::compare`]). The directory that a
//! dependency names does not affect the choice, but a best match in a different one is reported.
//!
//! # Differences from pbulk
//!
//! 1. A skipped or failed package is not chosen if a buildable one also matches, and a remark reports it.
//!    [`Rules::Pbulk`] chooses it, as pbulk does, and then its dependents are left out.
//! 2. A cycle leaves out its members and their dependents, and names them; pbulk aborts the whole run.
//!
//! Invariant: the outcome depends only on the input and its order. Each pattern is compared once with the few
//! packages that share its prefix, however many packages use it. Known downside: packages that are only
//! *indirectly* left out are still chosen, since a second choice could in turn leave out others.

use super::pattern::{Alternative, PackageName, Pattern, PatternError};
use super::scan_file::{Stanza, is_location};
use kilnyard_model::graph::{Graph, PackageId};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// A package, as input to the resolver.
#[derive(Clone, Copy, Debug)]
pub struct Scanned<'a> {
    /// Name and version of the package.
    pub name: &'a str,
    /// Directory in the tree, such as `mail/mutt`.
    pub location: &'a str,
    /// `pattern:../../category/directory`, separated by blanks.
    pub all_depends: &'a str,
    /// Whether the package allows to be built.
    pub verdict: RecipeVerdict,
}

impl<'a> From<&Stanza<'a>> for Scanned<'a> {
    fn from(stanza: &Stanza<'a>) -> Scanned<'a> {
        let verdict = match (stanza.skip_reason, stanza.fail_reason) {
            ([], []) => RecipeVerdict::Buildable,
            ([], _) => RecipeVerdict::Failed,
            _ => RecipeVerdict::Skipped,
        };
        Scanned { name: stanza.name, location: stanza.location, all_depends: stanza.all_depends, verdict }
    }
}

/// Whether a package's own recipe allows it to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipeVerdict {
    /// The recipe has no objection.
    Buildable,
    /// It is not meant for this platform or configuration (`PKG_SKIP_REASON`).
    Skipped,
    /// It is known to be broken (`PKG_FAIL_REASON`).
    Failed,
    /// A person has to get files first.
    Awaits,
}

/// The rules to resolve by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Kilnyard's rules; the module documentation lists the differences from pbulk's.
    #[default]
    Kilnyard,
    /// pbulk's exact rules, for comparison.
    Pbulk,
}

/// The result for one package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It can be built once its dependencies are.
    Buildable,
    /// Its own recipe says that it cannot or should not be built.
    LeftOut(RecipeVerdict),
    /// Unmet dependencies, with a reason each. The reasons are shared between packages: a hostile or broken tree
    /// has millions of such pairs.
    Unresolved(Vec<Arc<Unmet>>),
    /// It is in a cycle; the path from it back to itself.
    InCycle(Vec<PackageId>),
    /// It depends on a package that is left out.
    Indirect {
        /// The next package on the path to the cause.
        through: PackageId,
        /// The package that is the cause.
        blamed: PackageId,
    },
}

/// An unmet dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// No package matches.
    NoMatch {
        /// The pattern of the dependency.
        pattern: String,
        /// The directory that the dependency names.
        location: String,
        /// The packages in that directory.
        offered: Vec<String>,
    },
    /// A word that is not a dependency.
    NoDependency(String),
    /// A malformed pattern.
    NoPattern(PatternError),
}

impl Unmet {
    /// The text that pbulk's resolver puts into `PKG_FAIL_REASON`, for programs that read its files.
    pub fn fail_reason(&self) -> String {
        let dependency = match self {
            Unmet::NoMatch { pattern, .. } => pattern.clone(),
            Unmet::NoDependency(word) => word.clone(),
            Unmet::NoPattern(error) => error.to_string(),
        };
        format!("\"could not resolve dependency \"{dependency}\"\"")
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmet::NoMatch { pattern, location, offered } => {
                write!(formatter, "nothing matches {pattern}; {location} ")?;
                match &offered[..] {
                    [] => write!(formatter, "offers nothing"),
                    names => write!(formatter, "offers {}", names.join(", ")),
                }
            }
            Unmet::NoDependency(word) => {
                write!(formatter, "`{word}` is not pattern:../../category/directory")
            }
            Unmet::NoPattern(error) => error.fmt(formatter),
        }
    }
}

/// A remark for the maintainer of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The best match is in a different directory than the dependency names.
    Elsewhere {
        /// The package with the dependency.
        package: PackageId,
        /// The pattern of the dependency.
        pattern: String,
        /// The directory that the dependency names.
        location: String,
        /// The chosen package.
        chosen: PackageId,
    },
    /// A better match was not chosen because it is not built.
    PassedOver {
        /// The pattern of the dependency.
        pattern: String,
        /// The chosen package.
        chosen: PackageId,
        /// The package that pbulk would have chosen.
        passed_over: PackageId,
    },
}

/// The result of resolving. The number of a package is its index in the input.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The dependencies of each package, in the order in which they were chosen.
    pub depends: Vec<Vec<PackageId>>,
    /// The outcome for each package.
    pub outcomes: Vec<Resolution>,
    /// Remarks for the maintainer of the tree.
    pub remarks: Vec<Remark>,
}

/// The matches of a pattern, resolved once.
#[derive(Debug, Default)]
struct Match {
    /// All matches, the best first.
    all: Vec<u32>,
    /// The chosen one.
    chosen: Option<u32>,
}

/// A word of `ALL_DEPENDS`, parsed once: many packages share the same words.
#[derive(Clone, Copy, Debug)]
enum Word<'a> {
    Nonsense,
    Dependency {
        pattern: &'a str,
        location: &'a str,
        /// Index of its match.
        matched: u32,
        /// Whether the best match is in a different directory than the dependency names.
        is_elsewhere: bool,
    },
}

struct Resolver<'a> {
    scanned: &'a [Scanned<'a>],
    names: Vec<PackageName<'a>>,
    /// Package numbers, ordered by name.
    by_name: Vec<u32>,
    rules: Rules,
    words: HashMap<&'a str, Word<'a>, foldhash::fast::FixedState>,
    unmet: HashMap<&'a str, Arc<Unmet>, foldhash::fast::FixedState>,
    patterns: HashMap<&'a str, u32, foldhash::fast::FixedState>,
    matches: Vec<Result<Match, PatternError>>,
    /// For each package, the last package that chose it, counted from 1.
    chosen_by: Vec<u32>,
    remarks: Vec<Remark>,
}

/// Resolves all packages.
pub fn resolve(scanned: &[Scanned], rules: Rules) -> Resolved {
    // Names and locations are compared very often, so they are stored side by side here; in the scan they are spread
    // out.
    let texts: String = scanned.iter().flat_map(|package| [package.name, package.location]).collect();
    let mut rest = texts.as_str();
    let mut take = |length: usize| {
        let (text, after) = rest.split_at(length);
        rest = after;
        text
    };
    let compact: Vec<Scanned> = scanned
        .iter()
        .map(|package| Scanned {
            name: take(package.name.len()),
            location: take(package.location.len()),
            ..*package
        })
        .collect();
    resolve_compact(&compact, rules)
}

fn resolve_compact(scanned: &[Scanned], rules: Rules) -> Resolved {
    let names: Vec<PackageName> = scanned.iter().map(|package| PackageName::new(package.name)).collect();
    let mut by_name: Vec<u32> = (0..scanned.len() as u32).collect();
    by_name.sort_unstable_by_key(|number| scanned[*number as usize].name);
    let mut resolver = Resolver {
        scanned,
        names,
        by_name,
        rules,
        words: HashMap::default(),
        unmet: HashMap::default(),
        patterns: HashMap::default(),
        matches: Vec::new(),
        chosen_by: vec![0; scanned.len()],
        remarks: Vec::new(),
    };
    let mut depends = Vec::with_capacity(scanned.len());
    let mut outcomes = Vec::with_capacity(scanned.len());
    for (number, package) in scanned.iter().enumerate() {
        let (chosen, unmet) = resolver.depends_of(number);
        outcomes.push(match package.verdict {
            RecipeVerdict::Buildable if unmet.is_empty() => Resolution::Buildable,
            RecipeVerdict::Buildable => Resolution::Unresolved(unmet),
            verdict => Resolution::LeftOut(verdict),
        });
        depends.push(chosen);
    }
    let mut resolved = Resolved { depends, outcomes, remarks: resolver.remarks };
    let dependents = Dependents::of(&resolved.depends);
    resolved.spread(&dependents);
    if resolved.leave_out_cycles(&dependents) {
        resolved.spread(&dependents);
    }
    resolved
}

/// The dependents of all packages, concatenated; `starts` has the beginning of each package's slice.
struct Dependents {
    starts: Vec<u32>,
    all: Vec<PackageId>,
}

impl Dependents {
    fn of(depends: &[Vec<PackageId>]) -> Dependents {
        let mut starts = vec![0; depends.len() + 1];
        for id in depends.iter().flatten() {
            starts[id.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut all = vec![PackageId(0); depends.iter().map(Vec::len).sum()];
        for (number, chosen) in depends.iter().enumerate() {
            for id in chosen {
                all[next[id.index()] as usize] = PackageId(number as u32);
                next[id.index()] += 1;
            }
        }
        Dependents { starts, all }
    }

    fn on(&self, id: PackageId) -> &[PackageId] {
        &self.all[self.starts[id.index()] as usize..self.starts[id.index() + 1] as usize]
    }
}

/// Splits `pattern:../../category/directory` into its two parts.
pub(super) fn split(word: &str) -> Option<(&str, &str)> {
    let (pattern, location) = word.rsplit_once(':')?;
    let location = location.strip_prefix("../../").unwrap_or(location);
    (!pattern.is_empty() && is_location(location)).then_some((pattern, location))
}

impl<'a> Resolver<'a> {
    fn depends_of(&mut self, number: usize) -> (Vec<PackageId>, Vec<Arc<Unmet>>) {
        let mut chosen: Vec<PackageId> = Vec::new();
        let mut unmet = Vec::new();
        let own = number as u32 + 1;
        for text in self.scanned[number].all_depends.split_ascii_whitespace() {
            let word = self.word(text);
            let Word::Dependency { pattern, location, matched, is_elsewhere } = word else {
                unmet.push(self.unmet(text, word));
                continue;
            };
            let Ok(found) = &self.matches[matched as usize] else {
                unmet.push(self.unmet(text, word));
                continue;
            };
            if found.all.iter().any(|id| self.chosen_by[*id as usize] == own) {
                continue;
            }
            let Some(best) = found.chosen else {
                unmet.push(self.unmet(text, word));
                continue;
            };
            self.chosen_by[best as usize] = own;
            let best = PackageId(best);
            if is_elsewhere {
                self.remarks.push(Remark::Elsewhere {
                    package: PackageId(number as u32),
                    pattern: pattern.to_owned(),
                    location: location.to_owned(),
                    chosen: best,
                });
            }
            chosen.push(best);
        }
        (chosen, unmet)
    }

    fn word(&mut self, text: &'a str) -> Word<'a> {
        if let Some(word) = self.words.get(text) {
            return *word;
        }
        let word = match split(text) {
            None => Word::Nonsense,
            Some((pattern, location)) => {
                let matched = self.match_once(pattern);
                let chosen = self.matches[matched as usize].as_ref().ok().and_then(|found| found.chosen);
                let is_elsewhere = chosen.is_some_and(|id| self.scanned[id as usize].location != location);
                Word::Dependency { pattern, location, matched, is_elsewhere }
            }
        };
        self.words.insert(text, word);
        word
    }

    /// The index of a pattern's match.
    fn match_once(&mut self, pattern: &'a str) -> u32 {
        if let Some(number) = self.patterns.get(pattern) {
            return *number;
        }
        let number = self.matches.len() as u32;
        let found = self.find(pattern);
        self.matches.push(found);
        self.patterns.insert(pattern, number);
        number
    }

    /// The reason why a word of `ALL_DEPENDS` is unmet.
    fn unmet(&mut self, text: &'a str, word: Word<'a>) -> Arc<Unmet> {
        if let Some(unmet) = self.unmet.get(text) {
            return unmet.clone();
        }
        let unmet = Arc::new(match word {
            Word::Nonsense => Unmet::NoDependency(text.to_owned()),
            Word::Dependency { pattern, location, matched, .. } => match &self.matches[matched as usize] {
                Ok(_) => self.nothing(pattern, location),
                Err(error) => Unmet::NoPattern(error.clone()),
            },
        });
        self.unmet.insert(text, unmet.clone());
        unmet
    }

    fn nothing(&self, pattern: &str, location: &str) -> Unmet {
        let there = self.scanned.iter().filter(|package| package.location == location);
        Unmet::NoMatch {
            pattern: pattern.to_owned(),
            location: location.to_owned(),
            offered: there.map(|package| package.name.to_owned()).collect(),
        }
    }

    fn find(&mut self, text: &str) -> Result<Match, PatternError> {
        let pattern = Pattern::parse(text)?;
        let mut all: Vec<u32> =
            pattern.alternatives().iter().flat_map(|alternative| self.candidates(alternative)).collect();
        all.sort_unstable_by(|one, two| {
            self.names[*two as usize].compare(&self.names[*one as usize]).then(one.cmp(two))
        });
        all.dedup();
        let is_buildable =
            |number: &&u32| self.scanned[**number as usize].verdict == RecipeVerdict::Buildable;
        let best = all.first().copied();
        let chosen = match self.rules {
            Rules::Pbulk => best,
            Rules::Kilnyard => all.iter().find(is_buildable).copied().or(best),
        };
        if let (Some(chosen), Some(best)) = (chosen, best)
            && chosen != best
        {
            self.remarks.push(Remark::PassedOver {
                pattern: text.to_owned(),
                chosen: PackageId(chosen),
                passed_over: PackageId(best),
            });
        }
        Ok(Match { all, chosen })
    }

    /// The packages that match one alternative, found among those with its prefix by binary search in the sorted
    /// names.
    fn candidates(&self, alternative: &Alternative) -> Vec<u32> {
        let prefix = alternative.prefix();
        let name = |number: &u32| self.scanned[*number as usize].name;
        let from = self.by_name.partition_point(|number| name(number) < prefix);
        let begins = self.by_name[from..].iter().take_while(|number| name(number).starts_with(prefix));
        begins.filter(|number| alternative.matches(&self.names[**number as usize])).copied().collect()
    }
}

impl Resolved {
    /// The dependency graph, with the packages' full names.
    pub fn graph(&self, scanned: &[Scanned]) -> Graph {
        let mut graph = Graph::new();
        for package in scanned {
            graph.add(package.name);
        }
        for (number, chosen) in self.depends.iter().enumerate() {
            for dependency in chosen {
                graph.depend(PackageId(number as u32), *dependency);
            }
        }
        graph
    }

    fn is_buildable(&self, id: PackageId) -> bool {
        self.outcomes[id.index()] == Resolution::Buildable
    }

    /// Leaves out everything that depends on a package that is left out; the nearest cause is recorded.
    fn spread(&mut self, dependents: &Dependents) {
        let is_cause =
            |outcome: &Resolution| !matches!(outcome, Resolution::Buildable | Resolution::Indirect { .. });
        let causes = self.outcomes.iter().enumerate().filter(|(_, outcome)| is_cause(outcome));
        let mut open: VecDeque<(PackageId, PackageId)> =
            causes.map(|(number, _)| (PackageId(number as u32), PackageId(number as u32))).collect();
        while let Some((id, blamed)) = open.pop_front() {
            for dependent in dependents.on(id) {
                if self.is_buildable(*dependent) {
                    self.outcomes[dependent.index()] = Resolution::Indirect { through: id, blamed };
                    open.push_back((*dependent, blamed));
                }
            }
        }
    }

    /// Leaves out the members of cycles; returns whether there are any.
    fn leave_out_cycles(&mut self, dependents: &Dependents) -> bool {
        // Packages that can be ordered are not in a cycle; few packages remain after that, or none.
        let all = 0..self.depends.len() as u32;
        let mut waits: Vec<usize> = self.depends.iter().map(Vec::len).collect();
        let mut ordered: Vec<PackageId> =
            all.clone().map(PackageId).filter(|id| waits[id.index()] == 0).collect();
        while let Some(id) = ordered.pop() {
            for dependent in dependents.on(id) {
                waits[dependent.index()] -= 1;
                if waits[dependent.index()] == 0 {
                    ordered.push(*dependent);
                }
            }
        }
        let is_left = |id: PackageId| waits[id.index()] > 0 && self.is_buildable(id);
        let left: Vec<PackageId> = all.map(PackageId).filter(|id| is_left(*id)).collect();
        let mut knotted = Vec::new();
        for id in left {
            let inside = |id: PackageId| self.depends[id.index()].iter().copied().filter(|id| is_left(*id));
            if let Some(cycle) = shortest_cycle(id, inside) {
                knotted.push((id, cycle));
            }
        }
        let has_any = !knotted.is_empty();
        for (id, cycle) in knotted {
            self.outcomes[id.index()] = Resolution::InCycle(cycle);
        }
        has_any
    }

    /// The path from a package that is left out to the cause, starting with itself.
    pub fn chain(&self, package: PackageId) -> Vec<PackageId> {
        let mut chain = vec![package];
        let mut last = package;
        while let Resolution::Indirect { through, .. } = &self.outcomes[last.index()] {
            last = *through;
            chain.push(last);
        }
        chain
    }
}

/// The shortest path from a package to itself, including both ends; `None` if there is no such path.
fn shortest_cycle<I: Iterator<Item = PackageId>>(
    start: PackageId,
    depends: impl Fn(PackageId) -> I,
) -> Option<Vec<PackageId>> {
    let mut from: HashMap<PackageId, PackageId> = HashMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(id) = open.pop_front() {
        for dependency in depends(id) {
            if dependency == start {
                let mut way = vec![start];
                let mut last = id;
                while last != start {
                    way.push(last);
                    last = from[&last];
                }
                way.push(start);
                way.reverse();
                return Some(way);
            }
            if let Entry::Vacant(vacant) = from.entry(dependency) {
                vacant.insert(id);
                open.push_back(dependency);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: RecipeVerdict = RecipeVerdict::Buildable;

    fn package<'a>(name: &'a str, location: &'a str, all_depends: &'a str) -> Scanned<'a> {
        Scanned { name, location, all_depends, verdict: FINE }
    }

    fn names<'a>(scanned: &[Scanned<'a>], ids: &[PackageId]) -> Vec<&'a str> {
        ids.iter().map(|id| scanned[id.index()].name).collect()
    }

    #[test]
    fn the_highest_version_is_chosen_unless_an_earlier_choice_matches() {
        let scanned = [
            package("top-1", "a/top", "lib-[0-9]*:../../a/lib lib>=1:../../a/lib"),
            package("strict-1", "a/strict", "lib<2:../../a/lib lib-[0-9]*:../../a/lib"),
            package("lib-1.5", "a/lib", ""),
            package("lib-2.0", "a/lib2", ""),
        ];
        let resolved = resolve(&scanned, Rules::Kilnyard);
        assert_eq!(names(&scanned, &resolved.depends[0]), ["lib-2.0"]);
        assert_eq!(names(&scanned, &resolved.depends[1]), ["lib-1.5"]);
        assert!(resolved.outcomes.iter().all(|outcome| *outcome == Resolution::Buildable));
        let [Remark::Elsewhere { package, location, chosen, .. }] = &resolved.remarks[..] else {
            panic!("{:?}", resolved.remarks)
        };
        assert_eq!((package.0, location.as_str(), chosen.0), (0, "a/lib", 3));
    }

    #[test]
    fn of_equal_versions_the_last_name_is_chosen() {
        let scanned = [
            package("top-1", "a/top", "{mysql,mariadb}-[0-9]*:../../a/mysql"),
            package("mysql-8", "a/mysql", ""),
            package("mariadb-8", "a/mariadb", ""),
        ];
        assert_eq!(names(&scanned, &resolve(&scanned, Rules::Kilnyard).depends[0]), ["mysql-8"]);
    }

    #[test]
    fn a_skipped_package_is_only_chosen_under_pbulks_rules() {
        let scanned = [
            package("top-1", "a/top", "lib-[0-9]*:../../a/lib"),
            Scanned { verdict: RecipeVerdict::Skipped, ..package("lib-2", "a/lib2", "") },
            package("lib-1", "a/lib", ""),
        ];
        let ours = resolve(&scanned, Rules::Kilnyard);
        assert_eq!(names(&scanned, &ours.depends[0]), ["lib-1"]);
        assert_eq!(ours.outcomes[0], Resolution::Buildable);
        assert!(matches!(
            ours.remarks[..],
            [Remark::PassedOver { chosen: PackageId(2), passed_over: PackageId(1), .. }]
        ));
        let theirs = resolve(&scanned, Rules::Pbulk);
        assert_eq!(names(&scanned, &theirs.depends[0]), ["lib-2"]);
        let through = PackageId(1);
        assert_eq!(theirs.outcomes[0], Resolution::Indirect { through, blamed: through });
    }

    #[test]
    fn packages_that_are_left_out_have_the_whole_chain_to_the_cause() {
        let scanned = [
            package("top-1", "a/top", "middle-[0-9]*:../../a/middle"),
            package("middle-1", "a/middle", "base-[0-9]*:../../a/base"),
            package("base-1", "a/base", "gone>=2:../../a/gone nonsense"),
            package("gone-1", "a/gone", ""),
        ];
        let resolved = resolve(&scanned, Rules::Kilnyard);
        assert_eq!(names(&scanned, &resolved.chain(PackageId(0))), ["top-1", "middle-1", "base-1"]);
        let Resolution::Unresolved(unmet) = &resolved.outcomes[2] else { panic!("{:?}", resolved.outcomes) };
        let reasons: Vec<String> = unmet.iter().map(ToString::to_string).collect();
        assert_eq!(
            reasons,
            [
                "nothing matches gone>=2; a/gone offers gone-1",
                "`nonsense` is not pattern:../../category/directory"
            ]
        );
        assert_eq!(resolved.outcomes[3], Resolution::Buildable);
    }

    #[test]
    fn shared_unmet_dependencies_are_stored_once() {
        let names: Vec<String> = (0..1000).map(|number| format!("top{number}-1")).collect();
        let all_depends = "gone>=2:../../a/gone nonsense gone>=[:../../a/gone";
        let scanned: Vec<Scanned> = names.iter().map(|name| package(name, "a/top", all_depends)).collect();
        let resolved = resolve(&scanned, Rules::Kilnyard);
        let mut kept = std::collections::HashSet::new();
        for outcome in &resolved.outcomes {
            let Resolution::Unresolved(unmet) = outcome else { panic!("{outcome:?}") };
            assert_eq!(unmet.len(), 3);
            kept.extend(unmet.iter().map(Arc::as_ptr));
        }
        assert_eq!(kept.len(), 3);
    }

    #[test]
    fn a_cycle_leaves_out_its_members_and_their_dependents() {
        let scanned = [
            package("one-1", "a/one", "two-[0-9]*:../../a/two"),
            package("two-1", "a/two", "three-[0-9]*:../../a/three"),
            package("three-1", "a/three", "one-[0-9]*:../../a/one fine-[0-9]*:../../a/fine"),
            package("needs-1", "a/needs", "two-[0-9]*:../../a/two"),
            package("fine-1", "a/fine", ""),
            package("self-1", "a/self", "self-[0-9]*:../../a/self"),
        ];
        let resolved = resolve(&scanned, Rules::Kilnyard);
        let Resolution::InCycle(cycle) = &resolved.outcomes[0] else { panic!("{:?}", resolved.outcomes) };
        assert_eq!(names(&scanned, cycle), ["one-1", "two-1", "three-1", "one-1"]);
        assert_eq!(
            resolved.outcomes[3],
            Resolution::Indirect { through: PackageId(1), blamed: PackageId(1) }
        );
        assert_eq!(resolved.outcomes[4], Resolution::Buildable);
        assert_eq!(resolved.outcomes[5], Resolution::InCycle(vec![PackageId(5), PackageId(5)]));
    }
}
