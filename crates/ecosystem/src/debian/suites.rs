//! Suites of archives, and pins: they decide which version of a package counts if several suites have one.
//!
//! As in apt (apt_preferences(5)), each suite has a priority, its pin: the version with the highest pin counts, or,
//! of several with the same pin, the latest. There are no installed packages here, so the bands of apt come down to
//! three: from [`PIN`] on, versions are ordinary; below it, a version is chosen only if no ordinary one satisfies the
//! dependency; a negative one is never chosen. A [`Pin`] names the version of one package, and precedes all of these.
//! Own sources precede pins.

use super::relation;
use super::source::Sources;
use super::universe::{Origin, Universe};
use super::version;
use kilnyard_model::solver::Candidate;
use std::collections::BTreeMap;

/// The pin of the main archive, and apt's default.
pub const PIN: i32 = 500;

/// The largest absolute value of a pin; apt's pins are 16 bits wide.
pub const PIN_MAX: i32 = i16::MAX as i32;

/// The number of a suite in [`Suites`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SuiteId(pub u16);

impl SuiteId {
    /// The sources of the yard's owner, which are in no archive.
    pub const OWN: SuiteId = SuiteId(u16::MAX);
}

/// Where an index file comes from, and how its packages rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The suite.
    pub suite: SuiteId,
    /// Its pin.
    pub pin: i32,
}

impl Default for Provenance {
    /// The first suite of the main archive.
    fn default() -> Provenance {
        Provenance { suite: SuiteId::default(), pin: PIN }
    }
}

impl Provenance {
    /// One of the user's own sources, which precede every archive.
    pub const OWN: Provenance = Provenance { suite: SuiteId::OWN, pin: i32::MAX };
}

/// A suite of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The archive's name; empty for the main archive.
    pub archive: String,
    /// The suite's name.
    pub suite: String,
    /// The priority of its packages.
    pub pin: i32,
    /// Base addresses of the archive, tried in order.
    pub mirrors: Vec<String>,
}

/// The suites that packages come from; the main archive's are among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suites(Vec<Suite>);

impl Suites {
    /// Adds a suite.
    pub fn add(&mut self, suite: Suite) -> Provenance {
        let number = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        let provenance = Provenance { suite: SuiteId(number), pin: suite.pin };
        self.0.push(suite);
        provenance
    }

    /// A suite by its number; absent for own sources.
    pub fn get(&self, id: SuiteId) -> Option<&Suite> {
        self.0.get(usize::from(id.0))
    }

    /// Every suite, in the order in which they were added.
    pub fn all(&self) -> &[Suite] {
        &self.0
    }

    /// The name of a suite in messages and in pins: its own, or that of its archive if several archives have a suite
    /// of this name.
    pub fn name(&self, id: SuiteId) -> &str {
        let Some(suite) = self.get(id) else { return "own" };
        let is_shared = self.0.iter().filter(|other| other.suite == suite.suite).count() > 1;
        if is_shared && !suite.archive.is_empty() { &suite.archive } else { &suite.suite }
    }

    /// Whether a suite, or its archive, has this name.
    fn is_named(&self, id: SuiteId, name: &str) -> bool {
        self.get(id).is_some_and(|suite| suite.suite == name || suite.archive == name)
    }
}

/// How a pin selects the version of a package.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Exactly this version.
    Version(String),
    /// The version of the suite or archive with this name.
    From(String),
}

/// The version of one package: `hello=2.10-3`, `linux/bookworm-backports`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// Name of a source or binary package.
    pub name: String,
    /// The version.
    pub choice: Choice,
}

impl Pin {
    /// Parses a pin; absent if the text is not one.
    pub fn parse(text: &str) -> Option<Pin> {
        let at = text.find(['=', '/'])?;
        let (name, rest) = (&text[..at], &text[at + 1..]);
        let choice = match text.as_bytes()[at] {
            b'=' => version::is_valid(rest).then(|| Choice::Version(rest.to_owned())),
            _ => is_suite_name(rest).then(|| Choice::From(rest.to_owned())),
        };
        relation::is_name(name).then_some(Pin { name: name.to_owned(), choice: choice? })
    }

    /// Whether it selects this version from this suite.
    fn accepts(&self, version: &str, suite: SuiteId, suites: &Suites) -> bool {
        match &self.choice {
            Choice::Version(wanted) => version::compare(version, wanted).is_eq(),
            Choice::From(name) => suites.is_named(suite, name),
        }
    }

    /// Whether it selects this version of a binary package: the archive's own rebuilds (`+b1`) count.
    fn accepts_binary(&self, version: &str, suite: SuiteId, suites: &Suites) -> bool {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let plain = version.rsplit_once("+b").filter(|(_, digits)| is_number(digits)).map(|(plain, _)| plain);
        self.accepts(version, suite, suites) || plain.is_some_and(|plain| self.accepts(plain, suite, suites))
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.choice {
            Choice::Version(version) => write!(f, "{}={version}", self.name),
            Choice::From(suite) => write!(f, "{}/{suite}", self.name),
        }
    }
}

/// Whether a text can be the name of a suite: it is part of addresses and of file names.
pub fn is_suite_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b'+');
    !text.is_empty() && text.bytes().all(is_plain) && !text.contains("..") && !text.starts_with(['/', '-'])
}

/// Makes the pinned version of a source the one that counts.
///
/// # Errors
/// No archive has that version; the reason lists the available ones. One of the user's own sources stays,
/// without an error.
pub fn pin_source(pin: &Pin, sources: &mut Sources, suites: &Suites) -> Result<(), String> {
    if sources.suite(&pin.name) == Some(SuiteId::OWN) {
        return Ok(());
    }
    if sources.choose(&pin.name, &|version, suite| pin.accepts(version, suite, suites)) {
        return Ok(());
    }
    Err(unmet(pin, sources.versions(&pin.name), suites))
}

/// Leaves only the pinned versions of a binary package. If there is none, it returns false and changes nothing.
pub fn pin_binary(pin: &Pin, universe: &mut Universe, suites: &Suites) -> bool {
    let archived = universe.named(&pin.name).iter().copied();
    let archived: Vec<Candidate> = archived.filter(|one| universe.origin(*one) == Origin::Archive).collect();
    let accepts =
        |one: &Candidate| pin.accepts_binary(universe.version(*one), universe.provenance(*one).suite, suites);
    let (meant, others): (Vec<Candidate>, Vec<Candidate>) = archived.into_iter().partition(accepts);
    if !meant.is_empty() {
        universe.prefer(&meant);
        others.into_iter().for_each(|other| universe.remove(other));
    }
    !meant.is_empty()
}

/// Applies pins to sources and to binary packages, which may have the same name. Returns those that match nothing, by
/// the name of their package, with the reason.
pub fn apply(
    pins: &[Pin],
    universe: &mut Universe,
    sources: &mut Sources,
    suites: &Suites,
) -> BTreeMap<String, String> {
    let mut unmet = BTreeMap::new();
    for pin in pins {
        let is_met = pin_binary(pin, universe, suites);
        if let (Err(reason), false) = (pin_source(pin, sources, suites), is_met) {
            unmet.insert(pin.name.clone(), reason);
        }
    }
    universe.remove_negative();
    unmet
}

fn unmet(pin: &Pin, versions: Vec<(&str, SuiteId)>, suites: &Suites) -> String {
    let Pin { name, choice } = pin;
    if let Choice::From(from) = choice
        && !suites.0.iter().any(|suite| suite.suite == *from || suite.archive == *from)
    {
        let known: Vec<&str> = (0..suites.0.len()).map(|n| suites.name(SuiteId(n as u16))).collect();
        return format!(
            "{pin}: no suite or archive in kilnyard.toml is named {from}, only {}",
            known.join(", ")
        );
    }
    let known: Vec<String> =
        versions.iter().map(|(version, suite)| format!("{version} ({})", suites.name(*suite))).collect();
    let wanted = match choice {
        Choice::Version(version) => format!("no archive has version {version} of {name}"),
        Choice::From(from) => format!("{from} has no {name}"),
    };
    match known.is_empty() {
        true => format!("{wanted}; there is no other version"),
        false => format!("{wanted}; available: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::relation::Context;
    use kilnyard_model::solver::Solver;
    use proptest::prelude::*;

    fn suite(archive: &str, suite: &str, pin: i32) -> Suite {
        Suite { archive: archive.into(), suite: suite.into(), pin, mirrors: Vec::new() }
    }

    struct World {
        universe: Universe,
        sources: Sources,
        suites: Suites,
    }

    /// Each package is (suite, name, version, fields); sources and binary packages are the same.
    fn world(suites_given: &[Suite], packages: &[(usize, &str, &str, &str)]) -> World {
        let mut world = World {
            universe: Universe::new(Context::new("amd64")),
            sources: Sources::default(),
            suites: Suites::default(),
        };
        for (number, given) in suites_given.iter().enumerate() {
            let from = world.suites.add(given.clone());
            let of = packages.iter().filter(|(suite, ..)| *suite == number);
            let text: String = of
                .map(|(_, name, version, more)| format!("Package: {name}\nVersion: {version}\n{more}\n\n"))
                .collect();
            world.universe.add_packages_from(text.clone().into(), from).unwrap();
            world.sources.add_from(text.into(), from).unwrap();
        }
        world
    }

    impl World {
        /// The versions that the solver chooses for a request, with their names.
        fn solve(&mut self, needs: &str) -> Vec<String> {
            let request =
                crate::debian::universe::Request { needs: vec![needs.into()], ..Default::default() };
            let root = self.universe.request(&request).unwrap();
            let view = crate::debian::universe::View::whole(&self.universe);
            let Ok(chosen) = Solver::new(&view).solve(root) else { return Vec::new() };
            let mut names: Vec<String> = chosen
                .iter()
                .filter(|one| **one != root)
                .map(|one| format!("{}={}", self.universe.name(*one), self.universe.version(*one)))
                .collect();
            names.sort();
            names
        }

        fn pin(&mut self, pins: &[&str]) -> BTreeMap<String, String> {
            let pins: Vec<Pin> = pins.iter().map(|text| Pin::parse(text).unwrap()).collect();
            apply(&pins, &mut self.universe, &mut self.sources, &self.suites)
        }

        fn source(&self, name: &str) -> Option<&str> {
            self.sources.get(name).map(|source| source.version())
        }
    }

    #[test]
    fn pins_are_parsed_and_printed() {
        for text in ["hello=2.10-3", "linux/bookworm-backports", "g++=4:12.2.0-3", "a0/b/updates"] {
            assert_eq!(Pin::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["hello", "hello=", "=1", "/x", "hello/", "hello/../x", "hello/-x", "hello=1 2", "h=", "hello=-"]
        {
            assert_eq!(Pin::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_higher_pin_wins_over_a_higher_version() {
        let suites = [suite("", "stable", 500), suite("vendor", "stable", 600), suite("next", "next", 100)];
        let packages =
            [(0, "tool", "2", ""), (1, "tool", "1", ""), (2, "tool", "3", ""), (2, "only", "1", "")];
        let mut world = world(&suites, &packages);
        world.pin(&[]);
        assert_eq!((world.source("tool"), world.source("only")), (Some("1"), Some("1")));
        assert_eq!(world.solve("tool"), ["tool=1"]);
        // A version with a low pin is used if there is no other.
        assert_eq!(world.solve("tool (>= 3)"), ["tool=3"]);
        assert_eq!(world.solve("only"), ["only=1"]);
    }

    #[test]
    fn a_low_pin_comes_after_every_other_alternative() {
        let suites = [suite("", "stable", 500), suite("next", "next", 100)];
        let packages = [(0, "a", "1", ""), (0, "b", "1", ""), (1, "a", "2", "")];
        let mut world = world(&suites, &packages);
        world.pin(&[]);
        assert_eq!(world.solve("a (>= 2) | b"), ["b=1"]);
        assert_eq!(world.solve("a (>= 2)"), ["a=2"]);
    }

    #[test]
    fn a_negative_pin_is_never_chosen_unless_named() {
        let suites = [suite("", "stable", 500), suite("odd", "odd", -1)];
        let packages =
            [(0, "a", "1", ""), (1, "a", "2", ""), (1, "b", "2", ""), (1, "c", "2", "Provides: d\n")];
        let mut one = world(&suites, &packages);
        one.pin(&[]);
        assert_eq!((one.source("a"), one.source("b")), (Some("1"), None));
        assert!(one.solve("a (>= 2)").is_empty() && one.solve("b").is_empty() && one.solve("d").is_empty());
        let mut named = world(&suites, &packages);
        assert!(named.pin(&["b/odd", "a=2"]).is_empty());
        assert_eq!((named.source("a"), named.source("b")), (Some("2"), Some("2")));
        assert_eq!(named.solve("a, b"), ["a=2", "b=2"]);
        assert!(named.solve("c").is_empty());
    }

    #[test]
    fn pins_choose_exactly_and_list_the_available_versions() {
        let suites = [suite("", "stable", 500), suite("bpo", "stable-backports", 100)];
        let packages = [(0, "a", "1-1", ""), (1, "a", "2-1", ""), (0, "b", "1-1+b2", "")];
        let mut one = world(&suites, &packages);
        assert!(one.pin(&["a/bpo", "b=1-1"]).is_empty());
        assert_eq!(one.source("a"), Some("2-1"));
        assert_eq!(one.solve("a, b"), ["a=2-1", "b=1-1+b2"]);
        let mut wrong = world(&suites, &packages);
        let unmet = wrong.pin(&["a=3", "b/nowhere", "c/stable"]);
        assert_eq!(
            unmet["a"],
            "no archive has version 3 of a; available: 1-1 (stable), 2-1 (stable-backports)"
        );
        assert!(unmet["b"].contains("no suite or archive in kilnyard.toml is named nowhere"), "{unmet:?}");
        assert_eq!(unmet["c"], "stable has no c; there is no other version");
        // A pin that matches nothing changes nothing.
        assert_eq!(wrong.solve("a"), ["a=1-1"]);
    }

    #[test]
    fn own_sources_beat_archives_and_pins() {
        let suites = [suite("", "stable", 500), suite("vendor", "vendor", 990)];
        let mut world = world(&suites, &[(0, "a", "1", ""), (1, "a", "2", "")]);
        world.sources.put("Package: a\nVersion: 0.5\n".into()).unwrap();
        assert!(world.pin(&["a=2"]).is_empty());
        assert_eq!(world.source("a"), Some("0.5"));
        assert_eq!(world.sources.suite("a"), Some(SuiteId::OWN));
    }

    proptest! {
        /// The latest of the versions with the highest pin counts, in whatever order suites and versions are added.
        #[test]
        fn the_choice_does_not_depend_on_the_order(
            given in prop::collection::vec((0..5_usize, 1..9_u32), 1..12),
            pins in prop::collection::vec(-2..4_i32, 5),
        ) {
            let suites: Vec<Suite> =
                pins.iter().enumerate().map(|(n, pin)| suite(&format!("a{n}"), "s", pin * 300 + 1)).collect();
            let versions: Vec<(usize, String)> = given.iter().map(|(n, v)| (*n, v.to_string())).collect();
            let packages: Vec<(usize, &str, &str, &str)> =
                versions.iter().map(|(n, v)| (*n, "p", v.as_str(), "")).collect();
            let expected = given
                .iter()
                .filter(|(n, _)| suites[*n].pin >= 0)
                .max_by_key(|(n, v)| (suites[*n].pin, *v))
                .map(|(_, v)| v.to_string());
            let mut world = world(&suites, &packages);
            world.pin(&[]);
            prop_assert_eq!(world.source("p"), expected.as_deref());
            let solved = world.solve("p");
            let expected: Vec<String> = expected.iter().map(|version| format!("p={version}")).collect();
            prop_assert_eq!(solved, expected);
        }

        /// Any pin that parses prints as the same pin, and contains no path.
        #[test]
        fn pins_survive_printing(text in "[a-z0-9=/.+~:-]{0,24}") {
            if let Some(pin) = Pin::parse(&text) {
                prop_assert_eq!(Pin::parse(&pin.to_string()), Some(pin));
                prop_assert!(!text.contains("../"));
            }
        }
    }
}
