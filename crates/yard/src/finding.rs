//! What an examination of this machine found, and what helps.

use crate::remedy::Remedy;

/// Something that a build needs, and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was examined.
    pub name: &'static str,
    /// Whether it is as it must be.
    pub is_ok: bool,
    /// What was found.
    pub text: String,
    /// What helps, if something has to.
    pub help: Option<Remedy>,
    /// Packages of this machine's system that are missing.
    pub packages: Vec<&'static str>,
}

impl Finding {
    /// A finding without a remedy.
    pub fn new(name: &'static str, is_ok: bool, text: impl Into<String>) -> Finding {
        Finding { name, is_ok, text: text.into(), help: None, packages: Vec::new() }
    }

    /// With what helps.
    pub fn help(self, help: impl Into<Remedy>) -> Finding {
        Finding { help: Some(help.into()), ..self }
    }
}
