//! Remedies: advice that distinguishes Kilnyard's commands and this machine's packages from plain text.

use crate::host;
use crate::words;
use std::fmt;

/// Advice for an error. Its commands are rendered so that they reach the yard of this process from any folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// Arguments of Kilnyard.
    Command(String),
    /// Packages to install on this machine.
    Packages(Vec<&'static str>),
}

impl Remedy {
    /// A Kilnyard command, given by its arguments.
    pub fn command(arguments: impl Into<String>) -> Remedy {
        Remedy(vec![Part::Command(arguments.into())])
    }

    /// Packages to install on this machine.
    pub fn packages(packages: &[&'static str]) -> Remedy {
        Remedy(vec![Part::Packages(packages.to_vec())])
    }

    /// Appends text.
    pub fn then(mut self, text: impl Into<String>) -> Remedy {
        self.0.push(Part::Text(text.into()));
        self
    }

    /// Appends a Kilnyard command.
    pub fn then_command(mut self, arguments: impl Into<String>) -> Remedy {
        self.0.push(Part::Command(arguments.into()));
        self
    }

    /// Appends packages to install on this machine.
    pub fn then_packages(mut self, packages: &[&'static str]) -> Remedy {
        self.0.push(Part::Packages(packages.to_vec()));
        self
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Remedy {
        Remedy(vec![Part::Text(text.to_owned())])
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Remedy {
        Remedy(vec![Part::Text(text)])
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Command(arguments) => f.write_str(&words::command(arguments)),
            Part::Packages(packages) => f.write_str(&host::remedy(packages)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_one_line_of_its_parts() {
        let remedy = Remedy::command("clean --index").then(" && ").then_command("scan").then("; or ");
        let remedy = remedy.then_packages(&["a", "b"]);
        let expected = format!("kilnyard clean --index && kilnyard scan; or {}", host::remedy(&["a", "b"]));
        assert_eq!(remedy.to_string(), expected);
        assert_eq!(Remedy::from("wait"), Remedy::from("wait".to_owned()));
    }
}
