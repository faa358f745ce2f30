//! The table `try`.

use serde::Deserialize;

/// The table `try`: builds of proposed changes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Tries {
    /// After how many days a try is removed.
    pub keep_days: u32,
    /// The most tries of one author.
    pub most: u32,
    /// The CPU time that the tries of one author may use within any 24 hours, in core-hours; absent if it is not bounded.
    pub core_hours_per_day: Option<f64>,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries { keep_days: 7, most: 5, core_hours_per_day: None }
    }
}
