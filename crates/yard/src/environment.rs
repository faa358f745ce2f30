//! Variables of the environment, which the program alone reads: a yard gets them as a value.

use std::collections::BTreeMap;

/// Variables by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Of all variables that are set; those that are no text are left out.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        Environment(variables.into_iter().collect())
    }

    /// The value of a variable, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
