//! The packages of repositories, as a universe of the solver.
//!
//! A capability is a name that packages provide: their own names, what they list, and their files. A requirement without
//! a range is met by every provider, one with a range also by those that provide the name without a version. Obsoletes
//! name packages, not what they provide. Only one version of a name is installed. Requirements for `rpmlib(…)` are about
//! rpm itself, and are left out; so are weak dependencies.
//!
//! Rich relations become clauses (`normal`). That a package must not be installed is a candidate of its own,
//! which conflicts with it: the solver's clauses have no negation.
//!
//! Use: add all packages, then [`Universe::finish`], then requests. Packages may come and go later; then
//! [`Universe::finish`] comes before the next request again.

use super::normal::{self, Clause, Literal, Normal, Providers};
use super::relation::{Capability, Relation, RelationError};
use super::version::{Evr, Range};
use crate::explain::Described;
use kilnyard_model::solver::{Candidate, Requirements};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;

/// The most packages and capabilities together, each of which takes some hundred bytes: Fedora has 70,000 packages with 1,500,000.
const ENTRIES_MAX: usize = 6 << 20;
/// The most literals of the rich relations of all packages, and of one package or request: those of real ones have some thousands.
const LITERALS_MAX: usize = 8 << 20;
const OWN_LITERALS_MAX: usize = 1 << 20;
/// What a clause takes beyond its literals, in literals: it has the text of its relation.
const CLAUSE: usize = 32;
/// What rpm itself provides.
const OF_RPM: &str = "rpmlib(";

/// An index that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the repositories have more than {ENTRIES_MAX} packages and names that they provide")]
pub struct TooMany;

/// A package as a repository describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// The name.
    pub name: Box<str>,
    /// The version.
    pub evr: Evr,
    /// Its architecture; `noarch` for any, `src` for a source.
    pub architecture: Box<str>,
    /// The digest by which other files of the repository name it.
    pub digest: Box<str>,
    /// The file, relative to the repository.
    pub location: Box<str>,
    /// The size of the file.
    pub size_bytes: u64,
    /// The file name of the source package that it was built from; empty if it is one itself.
    pub source: Box<str>,
    /// The number of its repository, in the order of the configuration.
    pub repository: u32,
    /// What must be installed.
    pub requires: Vec<Entry>,
    /// What it provides apart from its files.
    pub provides: Vec<Capability>,
    /// What must not be installed.
    pub conflicts: Vec<Entry>,
    /// The packages that it replaces.
    pub obsoletes: Vec<Capability>,
    /// The files that the repository's first list has.
    pub files: Vec<Box<str>>,
}

/// A relation in a repository, which may be malformed: it cannot be met then, and excludes nothing.
pub type Entry = Result<Relation, RelationError>;

#[derive(Clone, Debug)]
enum Kind {
    Package(Box<Package>),
    /// Of a package that was removed.
    Gone,
    /// Holds while another candidate is not installed.
    Absent(Candidate),
    /// A request, with the text of its clauses.
    Request(Vec<String>),
}

/// What must be installed (a text and its alternatives), and what must not.
#[derive(Clone, Debug, Default)]
struct Demands {
    clauses: Vec<(String, Vec<Candidate>)>,
    conflicts: Vec<Candidate>,
    /// What they have of what rich relations multiply to.
    literals: usize,
}

/// The available packages; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Universe {
    kinds: Vec<Kind>,
    names: HashMap<Box<str>, u32>,
    /// The packages of each name, the newest first.
    real: Vec<Vec<Candidate>>,
    /// The packages that provide each name, and in which range.
    providers: Vec<Vec<(Candidate, Option<Range>)>>,
    /// Of the rich relations of packages.
    rich: HashMap<Candidate, Demands>,
    absent: HashMap<Candidate, Candidate>,
    requirements: Vec<OnceLock<Requirements>>,
    entries: usize,
    /// Of all rich relations of packages.
    literals: usize,
    /// Whether packages came or went since rich relations were resolved.
    is_dirty: bool,
}

impl Package {
    /// How much it counts.
    fn entries(&self) -> usize {
        1 + self.provides.len()
            + self.files.len()
            + self.requires.len()
            + self.conflicts.len()
            + self.obsoletes.len()
    }
}

impl Universe {
    /// A universe without packages.
    pub fn new() -> Universe {
        Universe::default()
    }

    /// Number of candidates of all kinds.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are no candidates at all.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Adds a package.
    ///
    /// # Errors
    /// There are more than any distribution has.
    pub fn add(&mut self, package: Package) -> Result<Candidate, TooMany> {
        let entries = self.entries + package.entries();
        if entries > ENTRIES_MAX {
            return Err(TooMany);
        }
        self.entries = entries;
        let candidate = self.push(Kind::Absent(Candidate(0)));
        let own = self.number(&package.name);
        let at = self.real[own].partition_point(|other| {
            self.package(*other).is_some_and(|other| other.evr.compare(&package.evr).is_ge())
        });
        self.real[own].insert(at, candidate);
        self.providers[own].push((candidate, Some(Range::exactly(package.evr.clone()))));
        for Capability { name, range } in &package.provides {
            let number = self.number(name);
            self.provide(number, candidate, range.clone());
        }
        for file in &package.files {
            let number = self.number(file);
            self.provide(number, candidate, None);
        }
        self.kinds[candidate.index()] = Kind::Package(Box::new(package));
        self.is_dirty = true;
        Ok(candidate)
    }

    /// Removes a package. No other candidate gets its number.
    pub fn remove(&mut self, candidate: Candidate) {
        let Some(package) = self.package(candidate) else { return };
        let entries = package.entries();
        let provides = package.provides.iter().map(|one| &one.name);
        let names: HashSet<Box<str>> =
            provides.chain(&package.files).chain([&package.name]).cloned().collect();
        for number in names.iter().filter_map(|name| self.names.get(name)) {
            self.real[*number as usize].retain(|other| *other != candidate);
            self.providers[*number as usize].retain(|(other, _)| *other != candidate);
        }
        self.kinds[candidate.index()] = Kind::Gone;
        self.entries -= entries;
        self.is_dirty = true;
    }

    /// Drops the requests that were added since there were this many candidates, with what they brought.
    pub fn truncate(&mut self, len: usize) {
        self.kinds.truncate(len);
        self.requirements.truncate(len);
        self.absent.retain(|_, absent| absent.index() < len);
    }

    /// Adds a file to a package, from the repository's full lists.
    ///
    /// # Errors
    /// There are more than any distribution has.
    pub fn add_file(&mut self, candidate: Candidate, path: &str) -> Result<(), TooMany> {
        if self.entries >= ENTRIES_MAX {
            return Err(TooMany);
        }
        self.entries += 1;
        let number = self.number(path);
        self.provide(number, candidate, None);
        self.is_dirty = true;
        Ok(())
    }

    /// The files that relations name, and no package has in its first list.
    pub fn wanted_files(&self) -> HashSet<String> {
        let mut wanted = HashSet::new();
        let mut want = |name: &str| {
            let is_known =
                self.names.get(name).is_some_and(|number| !self.providers[*number as usize].is_empty());
            if name.starts_with('/') && !is_known {
                wanted.insert(name.to_owned());
            }
        };
        for kind in &self.kinds {
            if let Kind::Package(package) = kind {
                let relations = package.requires.iter().chain(&package.conflicts).flatten();
                relations.for_each(|relation| each_name(relation, &mut want));
            }
        }
        wanted
    }

    /// Resolves rich relations, after packages and files were added or removed.
    pub fn finish(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        self.rich.clear();
        self.literals = 0;
        for (kind, requirements) in self.kinds.iter().zip(&mut self.requirements) {
            if matches!(kind, Kind::Package(_)) {
                *requirements = OnceLock::new();
            }
        }
        for index in 0..self.kinds.len() {
            let Kind::Package(package) = &self.kinds[index] else { continue };
            if package.is_rich() {
                let (requires, conflicts) = (package.requires.clone(), package.conflicts.clone());
                let candidate = Candidate(index as u32);
                let demands = self.demands(Some(candidate), &requires, &conflicts);
                self.literals += demands.literals;
                self.rich.insert(candidate, demands);
            }
        }
    }

    /// Adds a request: what must be installed, and what must not.
    ///
    /// # Errors
    /// A relation is malformed.
    pub fn request(&mut self, requires: &[Entry], conflicts: &[Entry]) -> Result<Candidate, RelationError> {
        if let Some(Err(error)) = requires.iter().find(|entry| entry.is_err()) {
            return Err(error.clone());
        }
        let Demands { clauses, conflicts, .. } = self.demands(None, requires, conflicts);
        let (texts, clauses): (Vec<_>, Vec<_>) = clauses.into_iter().unzip();
        let candidate = self.push(Kind::Request(texts));
        self.requirements[candidate.index()] = OnceLock::from(Requirements::new(&clauses, conflicts));
        Ok(candidate)
    }

    /// The description of a package; absent for other candidates.
    pub fn package(&self, candidate: Candidate) -> Option<&Package> {
        match &self.kinds[candidate.index()] {
            Kind::Package(package) => Some(package),
            _ => None,
        }
    }

    /// All packages.
    pub fn packages(&self) -> impl Iterator<Item = (Candidate, &Package)> {
        self.kinds.iter().enumerate().filter_map(|(index, kind)| match kind {
            Kind::Package(package) => Some((Candidate(index as u32), &**package)),
            _ => None,
        })
    }

    /// The packages of this name, the newest first.
    pub fn named(&self, name: &str) -> &[Candidate] {
        self.names.get(name).map_or(&[], |number| &self.real[*number as usize])
    }

    /// The packages that provide a capability: those of the name first, then by name, of each the newest first. `None` for what
    /// rpm itself provides.
    pub fn providing(&self, capability: &Capability) -> Option<Vec<Candidate>> {
        if capability.name.starts_with(OF_RPM) {
            return None;
        }
        let Some(number) = self.names.get(&capability.name) else { return Some(Vec::new()) };
        let meets = |provided: &Option<Range>| match (&capability.range, provided) {
            (Some(wanted), Some(provided)) => wanted.meets(provided),
            _ => true,
        };
        let met = self.providers[*number as usize].iter().filter(|(_, range)| meets(range));
        let mut found: Vec<Candidate> = met.map(|(candidate, _)| *candidate).collect();
        self.order(&capability.name, &mut found);
        Some(found)
    }

    fn order(&self, name: &str, candidates: &mut Vec<Candidate>) {
        let key = |candidate: &Candidate| {
            let own = self.package(*candidate).map_or("", |package| &package.name);
            let rank = self.named(own).iter().position(|other| other == candidate);
            (own != name, own, rank, Reverse(*candidate))
        };
        if candidates.len() > 1 {
            candidates.sort_by(|one, other| key(one).cmp(&key(other)));
            candidates.dedup();
            self.put_obsoleted_last(candidates);
        }
    }

    /// What another alternative replaces is only chosen if that one cannot be (libsolv's `prune_obsoleted`).
    fn put_obsoleted_last(&self, candidates: &mut [Candidate]) {
        let packages: Vec<&Package> = candidates.iter().filter_map(|one| self.package(*one)).collect();
        let obsoletes: Vec<&Capability> = packages.iter().flat_map(|package| &package.obsoletes).collect();
        if obsoletes.is_empty() {
            return;
        }
        let replaces = |package: &Package| {
            let own = Range::exactly(package.evr.clone());
            let meets = |one: &&Capability| {
                one.name == package.name && one.range.as_ref().is_none_or(|range| range.meets(&own))
            };
            packages
                .iter()
                .any(|other| other.name != package.name && other.obsoletes.iter().any(|one| meets(&one)))
        };
        // A stable sort.
        candidates.sort_by_cached_key(|one| self.package(*one).is_some_and(replaces));
    }

    fn push(&mut self, kind: Kind) -> Candidate {
        let candidate = Candidate(self.kinds.len() as u32);
        self.kinds.push(kind);
        self.requirements.push(OnceLock::new());
        candidate
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number as usize;
        }
        let number = self.real.len();
        self.names.insert(name.into(), number as u32);
        self.real.push(Vec::new());
        self.providers.push(Vec::new());
        number
    }

    fn provide(&mut self, number: usize, candidate: Candidate, range: Option<Range>) {
        let known = &mut self.providers[number];
        // A package lists its own name, too.
        let own = known.iter().rev().take_while(|(other, _)| *other == candidate);
        if own.into_iter().all(|(_, other)| *other != range) {
            known.push((candidate, range));
        }
    }

    /// The demands of rich relations; of a request, those of all.
    fn demands(&mut self, own: Option<Candidate>, requires: &[Entry], conflicts: &[Entry]) -> Demands {
        let mut demands = Demands::default();
        let mut seen = HashSet::new();
        for entry in requires {
            let Ok(relation) = entry else {
                demands.clauses.push(("something unreadable".to_owned(), Vec::new()));
                continue;
            };
            if own.is_some() && !is_rich(relation) || !seen.insert(relation.to_string()) {
                continue;
            }
            let normal = normal::required(relation, &*self);
            // What a relation names comes before what provides it.
            let name = match relation {
                Relation::Plain(capability) => &*capability.name,
                _ => "",
            };
            self.demand(normal, (name, &relation.to_string()), own, &mut demands);
        }
        // A malformed conflict excludes nothing.
        for relation in conflicts.iter().flatten() {
            match own {
                Some(own) if is_rich(relation) => {
                    let normal = normal::excluded(relation, own, &*self);
                    self.demand(normal, ("", &format!("the absence of {relation}")), Some(own), &mut demands);
                }
                Some(_) => {}
                None => {
                    let normal = normal::excluded(relation, Candidate(u32::MAX), &*self);
                    self.demand(normal, ("", &format!("the absence of {relation}")), None, &mut demands);
                }
            }
        }
        demands
    }

    fn demand(
        &mut self,
        normal: Result<Normal, normal::TooLarge>,
        named: (&str, &str),
        own: Option<Candidate>,
        demands: &mut Demands,
    ) {
        let clauses = match normal {
            Ok(Normal::Always) => return,
            // What is too large for any real package is not met.
            Ok(Normal::Never) | Err(normal::TooLarge) => vec![Vec::new()],
            Ok(Normal::Clauses(clauses)) => {
                let all =
                    clauses.iter().map(|clause| clause.len() + CLAUSE).sum::<usize>() + demands.literals;
                match all > OWN_LITERALS_MAX || own.is_some() && self.literals + all > LITERALS_MAX {
                    // One that is not met is enough.
                    true => vec![Vec::new()],
                    false => {
                        demands.literals = all;
                        clauses
                    }
                }
            }
        };
        for clause in clauses {
            self.demand_clause(&clause, named, own, demands);
        }
    }

    /// Adds a clause, with the name that its alternatives are of, if it is of one, and its text.
    fn demand_clause(
        &mut self,
        clause: &Clause,
        (name, text): (&str, &str),
        own: Option<Candidate>,
        demands: &mut Demands,
    ) {
        // It holds whenever the package is installed.
        if own.is_some_and(|own| clause.contains(&Literal::Installed(own))) {
            return;
        }
        let mut present = Vec::new();
        let mut absent = Vec::new();
        for literal in clause {
            match literal {
                Literal::Installed(candidate) => present.push(*candidate),
                // A package is never absent where it is installed.
                Literal::Absent(candidate) if Some(*candidate) == own => {}
                Literal::Absent(candidate) => absent.push(*candidate),
            }
        }
        if let ([], [one]) = (&present[..], &absent[..]) {
            demands.conflicts.push(*one);
            return;
        }
        self.order(name, &mut present);
        present.extend(absent.into_iter().map(|one| self.absent(one)).collect::<Vec<_>>());
        demands.clauses.push((text.to_owned(), present));
    }

    /// The candidate that holds while a package is not installed.
    fn absent(&mut self, candidate: Candidate) -> Candidate {
        if let Some(known) = self.absent.get(&candidate) {
            return *known;
        }
        let absent = self.push(Kind::Absent(candidate));
        self.absent.insert(candidate, absent);
        absent
    }

    /// The requirements of a candidate, computed on first use.
    pub fn requirements(&self, candidate: Candidate) -> &Requirements {
        self.requirements[candidate.index()].get_or_init(|| match &self.kinds[candidate.index()] {
            Kind::Request(_) | Kind::Gone => Requirements::default(),
            Kind::Absent(other) => Requirements::new::<Vec<Candidate>>(&[], vec![*other]),
            Kind::Package(package) => {
                let clauses: Vec<Vec<Candidate>> =
                    self.clauses(candidate, package).into_iter().map(|(_, clause)| clause).collect();
                Requirements::new(&clauses, self.conflicts(candidate, package))
            }
        })
    }

    fn clauses(&self, candidate: Candidate, package: &Package) -> Vec<(String, Vec<Candidate>)> {
        let mut clauses = Vec::new();
        for relation in &package.requires {
            match relation {
                Ok(Relation::Plain(capability)) => {
                    let Some(found) = self.providing(capability) else { continue };
                    if !found.contains(&candidate) {
                        clauses.push((capability.to_string(), found));
                    }
                }
                Ok(_) => {}
                Err(error) if !package.is_rich() => {
                    clauses.push((format!("something unreadable: {error}"), Vec::new()));
                }
                Err(_) => {}
            }
        }
        if let Some(demands) = self.rich.get(&candidate) {
            clauses.extend(demands.clauses.iter().cloned());
        }
        clauses
    }

    fn conflicts(&self, candidate: Candidate, package: &Package) -> Vec<Candidate> {
        let mut conflicts: BTreeSet<Candidate> = self.named(&package.name).iter().copied().collect();
        for relation in package.conflicts.iter().flatten() {
            if let Relation::Plain(capability) = relation {
                conflicts.extend(self.providing(capability).unwrap_or_default());
            }
        }
        for Capability { name, range } in &package.obsoletes {
            let is_meant = |other: &&Candidate| {
                let version = self.package(**other).map(|other| Range::exactly(other.evr.clone()));
                range.as_ref().is_none_or(|range| version.is_some_and(|version| range.meets(&version)))
            };
            conflicts.extend(self.named(name).iter().filter(is_meant));
        }
        conflicts.extend(self.rich.get(&candidate).into_iter().flat_map(|demands| &demands.conflicts));
        conflicts.remove(&candidate);
        conflicts.into_iter().collect()
    }
}

impl Package {
    /// Whether a relation is not plain.
    fn is_rich(&self) -> bool {
        self.requires.iter().chain(&self.conflicts).flatten().any(is_rich)
    }
}

fn is_rich(relation: &Relation) -> bool {
    !matches!(relation, Relation::Plain(_))
}

fn each_name(relation: &Relation, take: &mut dyn FnMut(&str)) {
    match relation {
        Relation::Plain(capability) => take(&capability.name),
        Relation::And(sides) | Relation::Or(sides) | Relation::With(sides) | Relation::Without(sides) => {
            sides.iter().for_each(|side| each_name(side, take));
        }
        Relation::If(sides, otherwise) | Relation::Unless(sides, otherwise) => {
            sides.iter().chain(otherwise.as_deref()).for_each(|side| each_name(side, take));
        }
    }
}

impl Providers for Universe {
    fn of(&self, relation: &Relation) -> Option<Vec<Candidate>> {
        match relation {
            Relation::Plain(capability) => self.providing(capability),
            Relation::With(sides) => {
                let (Some(one), Some(other)) = (self.of(&sides[0]), self.of(&sides[1])) else {
                    return Some(Vec::new());
                };
                let other: HashSet<Candidate> = other.into_iter().collect();
                Some(one.into_iter().filter(|candidate| other.contains(candidate)).collect())
            }
            Relation::Without(sides) => {
                let one = self.of(&sides[0])?;
                let other: HashSet<Candidate> = self.of(&sides[1]).unwrap_or_default().into_iter().collect();
                Some(one.into_iter().filter(|candidate| !other.contains(candidate)).collect())
            }
            // Below `with` and `without`, the packages that may be meant.
            Relation::And(sides) | Relation::Or(sides) => {
                let one = self.of(&sides[0])?;
                Some(one.into_iter().chain(self.of(&sides[1])?).collect())
            }
            Relation::If(sides, otherwise) | Relation::Unless(sides, otherwise) => {
                let mut all = self.of(&sides[0])?;
                if let Some(otherwise) = otherwise {
                    all.extend(self.of(otherwise)?);
                }
                Some(all)
            }
        }
    }
}

impl kilnyard_model::solver::Universe for Universe {
    fn len(&self) -> usize {
        self.kinds.len()
    }

    fn requirements(&self, candidate: Candidate) -> &Requirements {
        Universe::requirements(self, candidate)
    }
}

/// The candidates of a universe that a request may choose.
pub struct View<'u> {
    /// The universe.
    pub universe: &'u Universe,
    /// Whether a candidate may be chosen.
    pub is_allowed: &'u dyn Fn(Candidate) -> bool,
    /// Whether it is tried before the alternatives.
    pub is_favoured: &'u dyn Fn(Candidate) -> bool,
}

impl kilnyard_model::solver::Universe for View<'_> {
    fn len(&self) -> usize {
        self.universe.len()
    }

    fn requirements(&self, candidate: Candidate) -> &Requirements {
        self.universe.requirements(candidate)
    }

    fn is_allowed(&self, candidate: Candidate) -> bool {
        // What is not a package is a part of a relation.
        self.universe.package(candidate).is_none() || (self.is_allowed)(candidate)
    }

    fn is_favoured(&self, candidate: Candidate) -> bool {
        self.universe.package(candidate).is_some() && (self.is_favoured)(candidate)
    }
}

impl Described for Universe {
    fn label(&self, candidate: Candidate) -> String {
        match &self.kinds[candidate.index()] {
            Kind::Package(package) => format!("{} {}", package.name, package.evr),
            Kind::Absent(other) => format!("leaving out {}", self.label(*other)),
            Kind::Request(_) => "the request".to_owned(),
            Kind::Gone => "a package that was removed".to_owned(),
        }
    }

    fn root_label(&self, root: Candidate, asker: &str) -> String {
        match self.kinds[root.index()] {
            Kind::Request(_) => format!("{asker} (source)"),
            _ => self.label(root),
        }
    }

    fn exclusion(&self, one: Candidate, other: Candidate) -> Option<String> {
        let needed = |absent: Candidate| {
            Some(format!("{} is needed, and would have to be left out", self.label(absent)))
        };
        let (first, second) = match [one, other].map(|candidate| &self.kinds[candidate.index()]) {
            [Kind::Absent(absent), _] | [_, Kind::Absent(absent)] => return needed(*absent),
            [Kind::Package(first), Kind::Package(second)] => (first, second),
            _ => return None,
        };
        let (label, other) = (self.label(one), self.label(other));
        if first.name == second.name {
            return Some(format!("{label} and {other} are two of one name"));
        }
        [(first, second, &label, &other), (second, first, &other, &label)].into_iter().find_map(
            |(package, gone, label, other)| {
                let replaces = package.obsoletes.iter().any(|capability| capability.name == gone.name);
                replaces.then(|| format!("{label} obsoletes {other}"))
            },
        )
    }

    fn clause_texts(&self, candidate: Candidate) -> Vec<String> {
        match &self.kinds[candidate.index()] {
            Kind::Package(package) => {
                self.clauses(candidate, package).into_iter().map(|(text, _)| text).collect()
            }
            Kind::Absent(_) | Kind::Gone => Vec::new(),
            Kind::Request(texts) => texts.clone(),
        }
    }

    fn availability(&self, clause: &str) -> Vec<String> {
        let Ok(relation) = Relation::parse(clause) else { return Vec::new() };
        let mut lines = Vec::new();
        each_name(&relation, &mut |name| {
            let number = self.names.get(name).map(|number| *number as usize);
            let providers = number.map_or(&[][..], |number| &self.providers[number]);
            let newest = providers.iter().max_by(|one, other| match (&one.1, &other.1) {
                (Some(one), Some(other)) => one.evr.compare(&other.evr),
                (one, other) => one.is_some().cmp(&other.is_some()),
            });
            let line = match newest {
                None => format!("{name} is provided by no package"),
                Some((candidate, range)) => match self.package(*candidate) {
                    Some(package) if &*package.name == name => {
                        format!("{name} {} is available, but does not satisfy {relation}", package.evr)
                    }
                    _ => format!(
                        "{} provides {}, which does not satisfy {relation}",
                        self.label(*candidate),
                        Capability { name: name.into(), range: range.clone() }
                    ),
                },
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::solver::Solver;

    fn package(name: &str, version: &str, provides: &[&str]) -> Package {
        let capability = |text: &&str| match Relation::parse(text) {
            Ok(Relation::Plain(capability)) => capability,
            other => panic!("{other:?}"),
        };
        Package {
            name: name.into(),
            evr: Evr::parse(version),
            provides: provides.iter().map(capability).collect(),
            ..Package::default()
        }
    }

    /// The names of what is installed for a requirement.
    fn installed(universe: &mut Universe, requires: &str) -> Vec<String> {
        universe.finish();
        let root = universe.request(&[Relation::parse(requires)], &[]).unwrap();
        let universe = &*universe;
        let chosen = Solver::new(universe).solve(root).unwrap();
        chosen.iter().filter_map(|one| Some(universe.package(*one)?.name.to_string())).collect()
    }

    #[test]
    fn what_an_alternative_replaces_is_not_chosen() {
        let mut universe = Universe::new();
        universe.add(package("foo", "1", &[])).unwrap();
        let renamed = package("bar", "2", &["foo = 2"]);
        let obsoletes = package("", "", &["foo < 2"]).provides;
        universe.add(Package { obsoletes, ..renamed.clone() }).unwrap();
        assert_eq!(installed(&mut universe, "foo"), ["bar"]);
        // Not of this version.
        let mut universe = Universe::new();
        universe.add(package("foo", "1", &[])).unwrap();
        let obsoletes = package("", "", &["foo < 1"]).provides;
        universe.add(Package { obsoletes, ..renamed }).unwrap();
        assert_eq!(installed(&mut universe, "foo"), ["foo"]);
    }

    #[test]
    fn removed_packages_make_room() {
        let mut universe = Universe::new();
        let many: Vec<Box<str>> = vec!["".into(); ENTRIES_MAX / 2];
        let large = || Package { files: many.clone(), ..package("large", "1", &[]) };
        for _ in 0..3 {
            let candidate = universe.add(large()).unwrap();
            universe.remove(candidate);
        }
        universe.add(large()).unwrap();
        assert_eq!(universe.add(large()), Err(TooMany));
        // What was refused takes no room.
        universe.add(package("small", "1", &[])).unwrap();
    }

    #[test]
    fn relations_are_bounded_together() {
        let mut universe = Universe::new();
        for number in 0..200 {
            universe.add(package(&format!("p{number}"), "1", &["a"])).unwrap();
            universe.add(package(&format!("q{number}"), "1", &["x"])).unwrap();
        }
        let requires = |count: usize| -> Vec<Entry> {
            let relation = |number| Relation::parse(&format!("((a if x) or b{number})"));
            (0..count).map(relation).collect()
        };
        for number in 0..100 {
            let one = package(&format!("hostile{number}"), "1", &[]);
            universe.add(Package { requires: requires(10), ..one }).unwrap();
        }
        universe.finish();
        assert!(universe.literals <= LITERALS_MAX, "{}", universe.literals);
        // A request of its own, and the same relation many times.
        let root = universe.request(&requires(100), &[]).unwrap();
        assert!(Solver::new(&universe).solve(root).is_err());
        let same: Vec<Entry> = requires(1).into_iter().cycle().take(100_000).collect();
        let root = universe.request(&same, &[]).unwrap();
        assert!(Solver::new(&universe).solve(root).is_ok());
    }
}
