//! What helps: a text in which commands of ours and packages of this machine are known as what they are.

use crate::host;
use crate::words;
use std::fmt;

/// See the module. Rendered, its commands reach the yard of this process, whatever folder a person types them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The arguments of this program.
    Command(String),
    /// Packages of this machine's system.
    Packages(Vec<&'static str>),
}

impl Remedy {
    /// A command of ours, by its arguments.
    pub fn command(arguments: impl Into<String>) -> Remedy {
        Remedy(vec![Part::Command(arguments.into())])
    }

    /// Packages that this machine lacks.
    pub fn packages(packages: &[&'static str]) -> Remedy {
        Remedy(vec![Part::Packages(packages.to_vec())])
    }

    /// With this text behind it.
    pub fn then(mut self, text: impl Into<String>) -> Remedy {
        self.0.push(Part::Text(text.into()));
        self
    }

    /// With a command of ours behind it.
    pub fn then_command(mut self, arguments: impl Into<String>) -> Remedy {
        self.0.push(Part::Command(arguments.into()));
        self
    }

    /// With packages of this machine behind it.
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
