//! Decides which selected sources are built, and which packages come from the archive instead.
//!
//! A set that adds own sources to a release is rarely meant to rebuild the release. With `reuse = "archive"`, the
//! default in such a set, a source that only wide rules select is built if it depends on one of the user's own or on
//! an explicitly named one, by the packages that its build installs beyond the base root, or through another source
//! that does. A rebuild of any other source would have the same inputs as the archive's build.

use super::select::Selected;
use kilnyard_ecosystem::debian::Settings;
use kilnyard_ecosystem::debian::dependents::{Reach, dependents};
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_yard::config::Reuse;
use std::collections::HashSet;

/// The division of a selection.
#[derive(Debug, Default)]
pub struct Division {
    /// The sources to build.
    pub built: Vec<String>,
    /// The sources whose packages come from the archive.
    pub reused: Vec<String>,
    /// One sentence with the numbers, if any source is reused.
    pub remark: Option<String>,
}

/// Divides a selection. `own` has the names of the sources of this machine, and is absent if no rule asks for any. A
/// rule whose files are missing counts, so that a typing error does not rebuild a release.
pub fn divide(
    selected: &Selected,
    own: Option<&HashSet<String>>,
    reuse: Option<Reuse>,
    settings: &Settings,
    universe: &mut Universe,
    sources: &Sources,
) -> Division {
    let is_own = |name: &String| own.is_some_and(|own| own.contains(name));
    let all = selected.names.clone();
    let reuses = reuse.map_or(own.is_some(), |reuse| reuse == Reuse::Archive);
    if !reuses || all.iter().all(|name| selected.explicit.contains(name)) {
        return Division { built: all, ..Division::default() };
    }
    let changed: Vec<String> = all.iter().filter(|name| selected.explicit.contains(*name)).cloned().collect();
    let affected = dependents(&changed, &all, Reach::Rebuilds, settings, universe, sources);
    let affected: HashSet<&String> = affected.iter().collect();
    let is_built = |name: &&String| selected.explicit.contains(*name) || affected.contains(name);
    let (built, reused): (Vec<&String>, Vec<&String>) = all.iter().partition(is_built);
    let owns = changed.iter().filter(|name| is_own(name)).count();
    let remark = format!(
        "{} of {} sources are built: {owns} own, {} named, {} that depend on them; the archive's packages of the other {} \
         are used as they are (reuse = \"never\" builds all)",
        built.len(),
        all.len(),
        changed.len() - owns,
        affected.len(),
        reused.len(),
    );
    Division {
        built: built.into_iter().cloned().collect(),
        reused: reused.into_iter().cloned().collect(),
        remark: Some(remark),
    }
}
