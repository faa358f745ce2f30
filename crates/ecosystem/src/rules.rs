//! What a worker needs of a family: rules without a state, made from what an order says. A worker has no index, no set and
//! no outputs but those of its build.

use crate::{CollectError, Manager, OutputBounds, debian, pkgsrc};
use kilnyard_model::order::{FamilyOrder, Output};
use std::path::Path;

/// See the module.
pub trait Rules: Manager {
    /// Reads the packages in the folder of a build's outputs, as seen from outside the root. Whether they may be
    /// published is the coordinator's to decide ([`crate::Ecosystem::admit`]).
    fn read_outputs(&self, folder: &Path, bounds: OutputBounds) -> Result<Vec<Output>, CollectError>;
}

/// An order is of a family that this version of Kilnyard does not have, or lacks a fact that its rules need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// There is no family of this name.
    #[error("this version of Kilnyard builds no packages of the family {0}")]
    UnknownFamily(String),
    /// A fact is missing.
    #[error("the order does not say the {fact} of its {family} rules")]
    MissingFact {
        /// The family.
        family: String,
        /// The fact's name.
        fact: &'static str,
    },
}

/// The rules that an order asks for.
pub fn rules(order: &FamilyOrder) -> Result<Box<dyn Rules>, RulesError> {
    match order.name.as_str() {
        debian::FAMILY => Ok(Box::new(debian::Rules::of(order)?)),
        pkgsrc::FAMILY => Ok(Box::new(pkgsrc::Rules::of(order)?)),
        other => Err(RulesError::UnknownFamily(other.to_owned())),
    }
}

/// A fact of an order.
pub(crate) fn fact<'a>(order: &'a FamilyOrder, fact: &'static str) -> Result<&'a str, RulesError> {
    let found = order.facts.get(fact).map(String::as_str);
    found.ok_or_else(|| RulesError::MissingFact { family: order.name.clone(), fact })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_another_family_or_version_is_named() {
        let order = |name: &str| FamilyOrder { name: name.to_owned(), ..FamilyOrder::default() };
        let error = |name: &str| rules(&order(name)).err().map(|error| error.to_string()).unwrap();
        assert!(error("slackware").contains("no packages of the family slackware"));
        assert!(error(debian::FAMILY).contains("does not say the suffix"));
        assert!(error(pkgsrc::FAMILY).contains("does not say the "));
    }
}
