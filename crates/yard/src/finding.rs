//! Results of the checks that `kilnyard doctor` and others make of this machine.

use crate::remedy::Remedy;

/// Something that builds need, and whether this machine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub name: &'static str,
    /// Whether the check passed.
    pub is_ok: bool,
    /// The result, for users.
    pub text: String,
    /// How to fix it. Absent if nothing needs fixing.
    pub help: Option<Remedy>,
    /// This machine's packages that are missing.
    pub packages: Vec<&'static str>,
}

impl Finding {
    /// A finding without a remedy.
    pub fn new(name: &'static str, is_ok: bool, text: impl Into<String>) -> Finding {
        Finding { name, is_ok, text: text.into(), help: None, packages: Vec::new() }
    }

    /// Adds a remedy.
    pub fn help(self, help: impl Into<Remedy>) -> Finding {
        Finding { help: Some(help.into()), ..self }
    }
}
