//! Pins: those of `[debian] pins`, which concern sources and binary packages, and those among the rules of `packages`,
//! which concern sources.

use super::config::Debian;
use super::rules::{Rule, Selection};
use kilnyard_ecosystem::LeftOut;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::suites::{self, Suites};
use kilnyard_ecosystem::debian::universe::Universe;

/// Applies the pins of a yard; own sources must be among `sources`. Returns the packages whose pin matches nothing,
/// with the reason; they must not be built in another version.
pub fn apply(
    debian: &Debian,
    rules: &[Rule],
    universe: &mut Universe,
    sources: &mut Sources,
    suites: &Suites,
) -> Vec<LeftOut> {
    let mut unmet = suites::apply(&debian.pins(), universe, sources, suites);
    for rule in rules.iter().filter(|rule| !rule.is_exclusion) {
        let Selection::Pinned(pin) = &rule.selection else { continue };
        match suites::pin_source(pin, sources, suites) {
            Ok(()) => drop(unmet.remove(&pin.name)),
            Err(reason) => drop(unmet.insert(pin.name.clone(), reason)),
        }
    }
    unmet.into_iter().map(|(name, explanation)| LeftOut { name, explanation }).collect()
}
