//! The binary packages available to a build, as a universe of the solver.
//!
//! The texts of the archive's `Packages` are kept unchanged, and a binary package is a few offsets into them. A
//! package's requirements are computed when the solver first asks for them: a build needs about a hundred of the
//! 63,000 packages of a release. The set's outputs are added next to the archive's packages and replaced as builds
//! end; computed requirements are then discarded.
//!
//! Rules: Policy 7.4 and 7.6 for conflicts (a package never conflicts with itself through its own `Provides`), 7.5
//! for virtual packages (only a versioned `Provides` satisfies a versioned relation),
//! <https://wiki.ubuntu.com/MultiarchSpec> for qualifiers.

mod multiarch;

use super::deb822::{self, Stanza};
use super::relation::{self, Atom, Context, Qualifier, RelationError};
use super::suites::{PIN, Provenance};
use super::version;
use kilnyard_model::solver::{Candidate, Requirements};
use smallvec::SmallVec;
use std::cmp;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The origin of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A package of the archive.
    Archive,
    /// An output of the set's package with this number.
    Set(u32),
    /// A request, not a package.
    Request,
}

/// Limit on packages and the names that they provide, together. Each takes about 200 bytes of memory but as little
/// as four bytes of the index; all of Debian's suites have 400,000.
const ENTRIES_MAX: usize = 4 << 20;

/// An index that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// A text is too long for the 32-bit offsets into it.
    #[error("an index file has {bytes} bytes, above the limit of {}", u32::MAX)]
    Text {
        /// Length of the text.
        bytes: usize,
    },
    /// Too many packages and provided names, each of which takes memory.
    #[error("the index has more than {max} packages and names that they provide")]
    Entries {
        /// Largest accepted number of entries.
        max: usize,
    },
    /// Too many sources, each of which takes memory.
    #[error("the index has more than {max} source packages")]
    Sources {
        /// Largest accepted number of sources.
        max: usize,
    },
}

/// A slice of one of the texts.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    text: u32,
    start: u32,
    len: u32,
}

/// Stanzas of packages, and where they come from.
#[derive(Clone, Debug)]
struct Text {
    text: Arc<str>,
    from: Provenance,
}

impl Text {
    /// A text that is not from an archive.
    fn ours(text: Arc<str>) -> Text {
        Text { text, from: Provenance::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultiArch {
    No,
    Same,
    Foreign,
    Allowed,
}

#[derive(Clone, Debug)]
struct Binary {
    name: u32,
    origin: Origin,
    is_removed: bool,
    /// Whether a pin names it.
    is_preferred: bool,
    is_essential: bool,
    /// Whether it is for the host of a cross build.
    is_host: bool,
    multi_arch: MultiArch,
    stanza: Span,
    version: Span,
    pre_depends: Span,
    depends: Span,
    conflicts: Span,
    breaks: Span,
    provides: Span,
}

/// The indexed fields of a package, in the order in which `add_stanza` destructures them.
const FIELDS: [&str; 10] = [
    "Package",
    "Version",
    "Architecture",
    "Essential",
    "Multi-Arch",
    "Pre-Depends",
    "Depends",
    "Conflicts",
    "Breaks",
    "Provides",
];

/// A request: relations that must all hold, and relations that must not.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Relation fields that must hold, such as the value of `Build-Depends`.
    pub needs: Vec<String>,
    /// Relation fields that must not match any chosen package, such as the value of `Build-Conflicts`.
    pub excludes: Vec<String>,
    /// Build profiles of this request, in place of those of the universe; absent if it has none of its own.
    pub profiles: Option<Vec<String>>,
}

/// The available packages; see the module documentation.
#[derive(Debug)]
pub struct Universe {
    context: Context,
    texts: Vec<Text>,
    /// The highest pin of all texts, which the set's outputs have too.
    pin_max: i32,
    /// Whether a text has a pin below the default.
    has_low_pins: bool,
    /// Shared by clones until one of them gets a package with a new name.
    names: Arc<HashMap<Box<str>, u32>>,
    /// The names of packages of the host of a cross build, by number.
    qualified: Arc<HashMap<u32, Box<str>>>,
    /// The packages of each name, most of which have one.
    real: Vec<SmallVec<[Candidate; 2]>>,
    providers: Vec<Vec<(Candidate, Span)>>,
    binaries: Vec<Binary>,
    requirements: Vec<OnceLock<Requirements>>,
    /// Number of packages added, plus the names that they provide.
    entries: usize,
    /// The packages whose requirements were computed since they were last discarded.
    computed: Mutex<Vec<Candidate>>,
}

impl Clone for Universe {
    /// The clone has the same packages but computes their requirements anew.
    fn clone(&self) -> Universe {
        Universe {
            context: self.context.clone(),
            texts: self.texts.clone(),
            pin_max: self.pin_max,
            has_low_pins: self.has_low_pins,
            names: self.names.clone(),
            qualified: self.qualified.clone(),
            real: self.real.clone(),
            providers: self.providers.clone(),
            binaries: self.binaries.clone(),
            requirements: self.requirements.iter().map(|_| OnceLock::new()).collect(),
            entries: self.entries,
            computed: Mutex::default(),
        }
    }
}

impl Universe {
    /// A universe without packages.
    pub fn new(context: Context) -> Universe {
        Universe {
            context,
            texts: Vec::new(),
            pin_max: PIN,
            has_low_pins: false,
            names: Arc::default(),
            qualified: Arc::default(),
            real: Vec::new(),
            providers: Vec::new(),
            binaries: Vec::new(),
            requirements: Vec::new(),
            entries: 0,
            computed: Mutex::default(),
        }
    }

    /// The architecture and profiles for which relations are evaluated.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Number of candidates, including requests and removed packages.
    pub fn len(&self) -> usize {
        self.binaries.len()
    }

    /// Whether there are no candidates at all.
    pub fn is_empty(&self) -> bool {
        self.binaries.is_empty()
    }

    /// Adds every package of a `Packages` text. Stanzas without a valid name and version, and packages of other
    /// architectures, are skipped: they can never be chosen. After an error, part of the text has been added.
    pub fn add_packages(&mut self, text: Arc<str>, origin: Origin) -> Result<(), TooLarge> {
        self.add_texts(text, origin, Provenance::default())
    }

    /// Adds every package of a `Packages` text of an archive, as [`Universe::add_packages`] does.
    pub fn add_packages_from(&mut self, text: Arc<str>, from: Provenance) -> Result<(), TooLarge> {
        self.pin_max = self.pin_max.max(from.pin);
        self.has_low_pins |= from.pin < PIN;
        self.add_texts(text, Origin::Archive, from)
    }

    fn add_texts(&mut self, text: Arc<str>, origin: Origin, from: Provenance) -> Result<(), TooLarge> {
        if text.len() > u32::MAX as usize {
            return Err(TooLarge::Text { bytes: text.len() });
        }
        let number = self.texts.len() as u32;
        self.texts.push(Text { text: text.clone(), from });
        for stanza in deb822::stanzas(&text) {
            self.add_stanza(number, &text, stanza, origin);
            if self.entries > ENTRIES_MAX {
                return Err(TooLarge::Entries { max: ENTRIES_MAX });
            }
        }
        Ok(())
    }

    /// Adds one package from its stanza; `None` if it was skipped as [`Universe::add_packages`] does.
    pub fn add_package(&mut self, stanza: &str, origin: Origin) -> Option<Candidate> {
        let text: Arc<str> = Arc::from(stanza);
        let number = self.texts.len() as u32;
        self.texts.push(Text::ours(text.clone()));
        self.forget();
        self.add_stanza(number, &text, Stanza::new(&text), origin)
    }

    /// Removes a candidate: it is never chosen again.
    pub fn remove(&mut self, candidate: Candidate) {
        self.binaries[candidate.index()].is_removed = true;
        let name = self.binaries[candidate.index()].name as usize;
        self.real[name].retain(|other| *other != candidate);
        let provides = self.text(self.binaries[candidate.index()].provides).to_owned();
        let context = Context::new(&self.context.architecture);
        let is_host = self.binaries[candidate.index()].is_host;
        for provided in relation::clauses(&provides, &context).flatten().flatten() {
            if let Some(name) = self.names.get(&*self.known_as(provided.name, is_host)) {
                self.providers[*name as usize].retain(|(other, _)| *other != candidate);
            }
        }
        self.forget();
    }

    /// Adds a request. Its relations are parsed immediately, so malformed ones fail here.
    pub fn request(&mut self, request: &Request) -> Result<Candidate, RelationError> {
        let candidate = Candidate(self.binaries.len() as u32);
        let mut context = self.context.clone();
        if let Some(profiles) = &request.profiles {
            context.profiles.clone_from(profiles);
        }
        let mut clauses = Vec::new();
        let mut needs = Vec::new();
        for field in &request.needs {
            self.resolve_clauses(field, &context, true, &mut clauses)?;
            for clause in relation::clauses(field, &context).flatten() {
                needs.push(clause.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "));
            }
        }
        let mut conflicts = Vec::new();
        for field in &request.excludes {
            self.resolve_conflicts(field, &context, candidate, &mut conflicts)?;
        }
        // Keeps the relations that apply to this request, so that explanations can show its clauses later.
        let text: Arc<str> = Arc::from(needs.join(", "));
        let depends = Span { text: self.texts.len() as u32, start: 0, len: text.len() as u32 };
        self.texts.push(Text::ours(text));
        let name = self.intern("");
        let none = Span { text: depends.text, start: 0, len: 0 };
        self.binaries.push(Binary {
            name,
            origin: Origin::Request,
            is_removed: false,
            is_preferred: false,
            is_essential: false,
            is_host: false,
            multi_arch: MultiArch::No,
            stanza: none,
            version: none,
            pre_depends: none,
            depends,
            conflicts: none,
            breaks: none,
            provides: none,
        });
        self.requirements.push(OnceLock::from(Requirements::new(&clauses, conflicts)));
        Ok(candidate)
    }

    /// Removes the candidates with this number and above; they must be requests.
    pub fn truncate(&mut self, len: usize) {
        debug_assert!(self.binaries[len..].iter().all(|b| b.origin == Origin::Request));
        self.binaries.truncate(len);
        self.requirements.truncate(len);
    }

    /// Discards the computed requirements, apart from those of requests.
    fn forget(&mut self) {
        for candidate in self.computed.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.requirements[candidate.index()].take();
        }
    }

    fn add_stanza(&mut self, number: u32, text: &str, stanza: Stanza, origin: Origin) -> Option<Candidate> {
        let base = text.as_ptr() as usize;
        let span = |piece: &str| Span {
            text: number,
            start: (piece.as_ptr() as usize - base) as u32,
            len: piece.len() as u32,
        };
        let none = Span { text: number, start: 0, len: 0 };
        // If a field occurs twice, in any case, the first one counts, as everywhere else (`Stanza::get`). Otherwise
        // a package could be found under a different name than the one shown.
        let mut values = [None; FIELDS.len()];
        for (field, value) in stanza.fields() {
            if let Some(number) = FIELDS.iter().position(|known| known.eq_ignore_ascii_case(field)) {
                values[number].get_or_insert(value);
            }
        }
        let [
            name,
            own_version,
            architecture,
            essential,
            multi_arch,
            pre_depends,
            depends,
            conflicts,
            breaks,
            provides,
        ] = values;
        let (name, own_version) = (name.unwrap_or(""), own_version.unwrap_or(""));
        let is_host = self.side(architecture)?;
        if !relation::is_name(name) || !version::is_valid(own_version) {
            return None;
        }
        let place = |value: Option<&str>| value.map_or(none, span);
        let candidate = Candidate(self.binaries.len() as u32);
        let binary = Binary {
            name: self.intern_on(name, is_host),
            origin,
            is_removed: false,
            is_preferred: false,
            is_essential: essential == Some("yes") && !is_host,
            is_host,
            multi_arch: match multi_arch {
                Some("same") => MultiArch::Same,
                Some("foreign") => MultiArch::Foreign,
                Some("allowed") => MultiArch::Allowed,
                _ => MultiArch::No,
            },
            stanza: span(stanza.text()),
            version: span(own_version),
            pre_depends: place(pre_depends),
            depends: place(depends),
            conflicts: place(conflicts),
            breaks: place(breaks),
            provides: place(provides),
        };
        let rank = self.rank_of(origin, number);
        let position = self.real[binary.name as usize].partition_point(|other| {
            let by_version = || version::compare(self.version(*other), own_version);
            self.rank(*other).cmp(&rank).then_with(by_version) != cmp::Ordering::Less
        });
        self.real[binary.name as usize].insert(position, candidate);
        if let Some(field) = provides {
            let context = Context::new(&self.context.architecture);
            for clause in relation::clauses(field, &context).flatten() {
                for provided in clause {
                    self.entries += 1;
                    if self.entries > ENTRIES_MAX {
                        break;
                    }
                    let at = provided.version.map_or(none, |(_, version)| span(version));
                    let name = self.intern_on(provided.name, is_host) as usize;
                    self.providers[name].push((candidate, at));
                }
            }
        }
        self.entries += 1;
        self.binaries.push(binary);
        self.requirements.push(OnceLock::new());
        Some(candidate)
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.real.len() as u32;
        Arc::make_mut(&mut self.names).insert(name.into(), number);
        self.real.push(SmallVec::new());
        self.providers.push(Vec::new());
        number
    }

    /// The number of a name on one side of a cross build.
    fn intern_on(&mut self, name: &str, is_host: bool) -> u32 {
        if !is_host {
            return self.intern(name);
        }
        let known_as = self.known_as(name, true);
        let number = self.intern(&known_as);
        if !self.qualified.contains_key(&number) {
            Arc::make_mut(&mut self.qualified).insert(number, known_as.into());
        }
        number
    }

    fn text(&self, span: Span) -> &str {
        &self.texts[span.text as usize].text[span.start as usize..][..span.len as usize]
    }

    /// The name of a package, followed by a colon and its architecture if it is for the host of a cross build; empty
    /// for a request.
    pub fn name(&self, candidate: Candidate) -> &str {
        let binary = &self.binaries[candidate.index()];
        if let Some(qualified) = self.qualified.get(&binary.name).filter(|_| binary.is_host) {
            return qualified;
        }
        let stanza = Stanza::new(self.text(self.binaries[candidate.index()].stanza));
        stanza.get("Package").unwrap_or("")
    }

    /// The name of a package without its architecture; empty for a request.
    pub fn package(&self, candidate: Candidate) -> &str {
        Stanza::new(self.text(self.binaries[candidate.index()].stanza)).get("Package").unwrap_or("")
    }

    /// The version of a package; empty for a request.
    pub fn version(&self, candidate: Candidate) -> &str {
        self.text(self.binaries[candidate.index()].version)
    }

    /// The stanza of a package, unchanged from its `Packages`.
    pub fn stanza(&self, candidate: Candidate) -> Stanza<'_> {
        Stanza::new(self.text(self.binaries[candidate.index()].stanza))
    }

    /// Whether a candidate is from the archive, the set or a request.
    pub fn origin(&self, candidate: Candidate) -> Origin {
        self.binaries[candidate.index()].origin
    }

    /// Where a package of the archive comes from; that of the main archive for any other candidate.
    pub fn provenance(&self, candidate: Candidate) -> Provenance {
        self.texts[self.binaries[candidate.index()].stanza.text as usize].from
    }

    /// The pin of a candidate.
    fn rank(&self, candidate: Candidate) -> i32 {
        let binary = &self.binaries[candidate.index()];
        if binary.is_preferred { self.pin_max } else { self.rank_of(binary.origin, binary.stanza.text) }
    }

    fn rank_of(&self, origin: Origin, text: u32) -> i32 {
        match origin {
            Origin::Archive => self.texts[text as usize].from.pin,
            Origin::Set(_) | Origin::Request => self.pin_max,
        }
    }

    /// Gives candidates of an archive the highest pin.
    pub(super) fn prefer(&mut self, candidates: &[Candidate]) {
        for candidate in candidates {
            self.binaries[candidate.index()].is_preferred = true;
        }
        self.forget();
    }

    /// Removes the packages with a negative pin.
    pub(super) fn remove_negative(&mut self) {
        if self.has_low_pins {
            let negative: Vec<Candidate> = self.packages().filter(|one| self.rank(*one) < 0).collect();
            negative.into_iter().for_each(|one| self.remove(one));
        }
    }

    /// Whether a package has the field `Essential: yes`.
    pub fn is_essential(&self, candidate: Candidate) -> bool {
        self.binaries[candidate.index()].is_essential
    }

    /// A number for a package's name: candidates with the same number are versions of one package.
    pub fn name_number(&self, candidate: Candidate) -> u32 {
        self.binaries[candidate.index()].name
    }

    /// The candidates of this name, highest pin first, then latest version first.
    pub fn named(&self, name: &str) -> &[Candidate] {
        self.names.get(name).map_or(&[], |number| &self.real[*number as usize])
    }

    /// The packages that provide this name, without real packages of the name.
    pub fn providers(&self, name: &str) -> impl Iterator<Item = Candidate> {
        let number = self.names.get(name).copied();
        number.into_iter().flat_map(|n| self.providers[n as usize].iter().map(|(c, _)| *c))
    }

    /// Every package that is not a request and was not removed.
    pub fn packages(&self) -> impl Iterator<Item = Candidate> {
        self.binaries.iter().enumerate().filter_map(|(index, binary)| {
            (!binary.is_removed && binary.origin != Origin::Request).then_some(Candidate(index as u32))
        })
    }

    /// The requirements of a candidate, computed on first use.
    pub fn requirements(&self, candidate: Candidate) -> &Requirements {
        self.requirements[candidate.index()].get_or_init(|| {
            self.computed.lock().unwrap_or_else(PoisonError::into_inner).push(candidate);
            let binary = &self.binaries[candidate.index()];
            let mut clauses = Vec::new();
            for span in [binary.pre_depends, binary.depends] {
                if self.resolve_clauses(self.text(span), &self.context, binary.is_host, &mut clauses).is_err()
                {
                    // A malformed relation can never be satisfied.
                    clauses.push(Vec::new());
                }
            }
            let mut conflicts = Vec::new();
            for span in [binary.conflicts, binary.breaks] {
                // A malformed conflict excludes nothing; apt also ignores it.
                let _ = self.resolve_conflicts(self.text(span), &self.context, candidate, &mut conflicts);
            }
            let same_name = &self.real[binary.name as usize];
            conflicts.extend(same_name.iter().copied().filter(|other| *other != candidate));
            conflicts.extend(self.apart_from(candidate));
            conflicts.sort_unstable();
            conflicts.dedup();
            Requirements::new(&clauses, conflicts)
        })
    }

    /// The text of each clause of a candidate, in the order of its requirements.
    pub fn clause_texts(&self, candidate: Candidate) -> Vec<String> {
        let binary = &self.binaries[candidate.index()];
        let mut texts = Vec::new();
        for span in [binary.pre_depends, binary.depends] {
            for clause in relation::clauses(self.text(span), &self.context).flatten() {
                texts.push(clause.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "));
            }
        }
        texts
    }

    fn resolve_clauses(
        &self,
        field: &str,
        context: &Context,
        is_host: bool,
        clauses: &mut Vec<Vec<Candidate>>,
    ) -> Result<(), RelationError> {
        for clause in relation::clauses(field, context) {
            let mut candidates = Vec::with_capacity(2);
            for atom in clause? {
                self.matching_from(is_host, &atom, &mut candidates);
            }
            if self.has_low_pins {
                // Packages with a low pin come after every other alternative.
                candidates.sort_by_key(|one| cmp::Reverse(self.rank(*one).min(PIN)));
            }
            clauses.push(candidates);
        }
        Ok(())
    }

    fn resolve_conflicts(
        &self,
        field: &str,
        context: &Context,
        own: Candidate,
        conflicts: &mut Vec<Candidate>,
    ) -> Result<(), RelationError> {
        let start = conflicts.len();
        for clause in relation::clauses(field, context) {
            for atom in clause? {
                self.excluded_by(&atom, conflicts);
            }
        }
        // Neither does the same package for another architecture exclude it.
        let is_same = |other: Candidate| {
            other == own || (self.context.build.is_some() && self.package(other) == self.package(own))
        };
        let mut index = start;
        while index < conflicts.len() {
            if is_same(conflicts[index]) {
                conflicts.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Appends the candidates of the build machine that satisfy an atom: real packages in the order of
    /// [`Universe::named`], then providers.
    pub fn matching(&self, atom: &Atom, candidates: &mut Vec<Candidate>) {
        let allows = |candidate: Candidate| match atom.qualifier {
            Qualifier::None | Qualifier::Native => true,
            Qualifier::Any => self.binaries[candidate.index()].multi_arch == MultiArch::Allowed,
            Qualifier::Architecture(architecture) => architecture == self.context.architecture,
        };
        self.accepted(atom, &allows, candidates);
    }

    /// Appends the candidates of an atom's name and version that `allows` accepts.
    fn accepted(&self, atom: &Atom, allows: &dyn Fn(Candidate) -> bool, candidates: &mut Vec<Candidate>) {
        let Some(number) = self.names.get(atom.name) else { return };
        let accepts = |version: &str| {
            atom.version.is_none_or(|(operator, wanted)| operator.accepts(version::compare(version, wanted)))
        };
        for candidate in &self.real[*number as usize] {
            if accepts(self.version(*candidate)) && allows(*candidate) && !candidates.contains(candidate) {
                candidates.push(*candidate);
            }
        }
        for (candidate, version) in &self.providers[*number as usize] {
            let is_met = atom.version.is_none() || (version.len > 0 && accepts(self.text(*version)));
            if is_met && allows(*candidate) && !candidates.contains(candidate) {
                candidates.push(*candidate);
            }
        }
    }
}

/// A universe as one request sees it: the packages that may be chosen, and those that are preferred because they
/// are already installed.
pub struct View<'u> {
    universe: &'u Universe,
    allowed: &'u dyn Fn(Candidate) -> bool,
    favoured: &'u dyn Fn(Candidate) -> bool,
}

impl<'u> View<'u> {
    /// A view that allows everything and prefers nothing.
    pub fn whole(universe: &'u Universe) -> View<'u> {
        View { universe, allowed: &|_| true, favoured: &|_| false }
    }

    /// A view of the candidates that `allowed` accepts; those that `favoured` accepts are tried first.
    pub fn new(
        universe: &'u Universe,
        allowed: &'u dyn Fn(Candidate) -> bool,
        favoured: &'u dyn Fn(Candidate) -> bool,
    ) -> View<'u> {
        View { universe, allowed, favoured }
    }
}

impl kilnyard_model::solver::Universe for View<'_> {
    fn len(&self) -> usize {
        self.universe.len()
    }
    fn requirements(&self, candidate: Candidate) -> &Requirements {
        self.universe.requirements(candidate)
    }
    fn is_allowed(&self, candidate: Candidate) -> bool {
        (self.allowed)(candidate)
    }
    fn is_favoured(&self, candidate: Candidate) -> bool {
        (self.favoured)(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_index_is_limited() {
        let mut universe = Universe::new(Context::new("amd64"));
        let names: Vec<String> = (0..ENTRIES_MAX).map(|number| format!("{number:x}a")).collect();
        let text = format!("Package: aa\nVersion: 1\nProvides: {}\n", names.join(","));
        assert_eq!(
            universe.add_packages(text.into(), Origin::Archive),
            Err(TooLarge::Entries { max: ENTRIES_MAX })
        );
        assert!(universe.names.len() <= ENTRIES_MAX + 1);
    }

    #[test]
    fn packages_with_invalid_versions_are_skipped() {
        let mut universe = Universe::new(Context::new("amd64"));
        for version in ["1\u{1b}[2J", "1\n 2", "", "-1", "1 2", "é"] {
            assert_eq!(
                universe.add_package(&format!("Package: aa\nVersion: {version}\n"), Origin::Archive),
                None,
                "{version:?}"
            );
        }
        assert!(universe.add_package("Package: aa\nVersion: 1:2.3+b1~x-4\n", Origin::Archive).is_some());
    }

    #[test]
    fn the_first_of_two_equal_fields_counts_regardless_of_case() {
        let mut universe = Universe::new(Context::new("amd64"));
        let text = "package: a\nPackage: b\nVersion: 1\nVersion: 2\nArchitecture: all\nArchitecture: i386\n";
        let candidate = universe.add_package(text, Origin::Archive).unwrap();
        assert_eq!((universe.name(candidate), universe.version(candidate)), ("a", "1"));
        assert_eq!((universe.named("a"), universe.named("b")), (&[candidate][..], &[][..]));
    }
}
