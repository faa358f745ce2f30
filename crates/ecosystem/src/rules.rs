//! The part of a family that a worker needs: stateless rules, made from the facts in an order. A worker has no
//! index, no set, and no outputs but those of its own build.

use crate::{CollectError, Manager, OutputBounds, debian, pkgsrc, rpm};
use kilnyard_model::order::{FamilyOrder, Output};
use std::path::Path;

/// A family's rules on a worker; see the module documentation.
pub trait Rules: Manager {
    /// Reads the packages in a build's output folder, as seen from outside the root. The coordinator decides
    /// whether they may be published ([`crate::Ecosystem::admit`]).
    fn read_outputs(&self, folder: &Path, bounds: OutputBounds) -> Result<Vec<Output>, CollectError>;
}

/// An order that names a family this version of Kilnyard does not have, or lacks a fact that the family's rules
/// need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// This version has no family of that name.
    #[error("this version of Kilnyard does not support the package family {0}")]
    UnknownFamily(String),
    /// The order lacks a fact.
    #[error("the order lacks the fact `{fact}` of its {family} rules")]
    MissingFact {
        /// The order's family.
        family: String,
        /// Name of the missing fact.
        fact: &'static str,
    },
}

/// The rules that an order asks for.
pub fn rules(order: &FamilyOrder) -> Result<Box<dyn Rules>, RulesError> {
    match order.name.as_str() {
        debian::FAMILY => Ok(Box::new(debian::Rules::of(order)?)),
        pkgsrc::FAMILY => Ok(Box::new(pkgsrc::Rules::of(order)?)),
        rpm::FAMILY => Ok(Box::new(rpm::Rules::of(order)?)),
        other => Err(RulesError::UnknownFamily(other.to_owned())),
    }
}

pub(crate) fn fact<'a>(order: &'a FamilyOrder, fact: &'static str) -> Result<&'a str, RulesError> {
    let found = order.facts.get(fact).map(String::as_str);
    found.ok_or_else(|| RulesError::MissingFact { family: order.name.clone(), fact })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_family_or_a_missing_fact_is_named() {
        let order = |name: &str| FamilyOrder { name: name.to_owned(), ..FamilyOrder::default() };
        let error = |name: &str| rules(&order(name)).err().map(|error| error.to_string()).unwrap();
        assert!(error("slackware").contains("does not support the package family slackware"));
        assert!(error(debian::FAMILY).contains("lacks the fact `suffix`"));
        assert!(error(pkgsrc::FAMILY).contains("lacks the fact `"));
    }
}
