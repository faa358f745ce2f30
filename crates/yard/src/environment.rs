//! Environment variables. Only the program reads them; a yard receives them as a value.

use std::collections::BTreeMap;

/// Environment variables by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Collects the variables that are set. The caller leaves out those that are not UTF-8.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        Environment(variables.into_iter().collect())
    }

    /// Returns the value of a variable, if set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
