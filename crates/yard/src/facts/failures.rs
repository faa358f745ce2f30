//! The failures of a run, by cause, compared with the run before.

use super::picture::Picture;
use crate::causes::by_cause;
use crate::error::Result;
use crate::yard::{Yard, store_error};
use kilnyard_model::result::PackageState;
use kilnyard_schema::run::{Blocked, Cause, Failures};
use kilnyard_store::{Number, PackageRow, Store};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The failures of a run.
///
/// # Errors
/// The store cannot be read.
pub fn failures(yard: &Yard, store: &dyn Store, picture: &Picture) -> Result<Failures> {
    let is_expected = |name: &str| yard.config.expects_failure(name);
    let failed: Vec<&PackageRow> = picture.in_state(&[PackageState::Failed]).map(|(_, row)| row).collect();
    let (as_expected, unexpected): (Vec<&PackageRow>, Vec<&PackageRow>) =
        failed.into_iter().partition(|row| is_expected(&row.name));
    let mut blocked: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for (_, row) in picture.in_state(&[PackageState::Blocked]) {
        blocked.entry(row.blamed.clone()).or_default().push(row.name.clone());
    }
    let family = &yard.config.family;
    let causes = by_cause(unexpected.iter().map(|row| (row.name.as_str(), &row.reason)), family.causes());
    let causes = causes.into_iter().map(|cause| {
        let blocks = |name: &&str| blocked.get(&Some((*name).to_owned())).map_or(0, Vec::len) as u64;
        Cause {
            blocks: cause.names.iter().map(blocks).sum(),
            next_step: cause.remedy(&**family).map(|remedy| remedy.to_string()),
            packages: cause.names.iter().map(|name| (*name).to_owned()).collect(),
            title: cause.title,
        }
    });
    let causes = causes.collect();
    let earlier = run_before(store, picture.run.number)?;
    let failed_before: HashSet<String> = match earlier {
        None => HashSet::new(),
        Some(run) => {
            let rows = store.packages_in_state(run, PackageState::Failed).map_err(store_error)?;
            rows.into_iter().map(|row| row.name).filter(|name| !is_expected(name)).collect()
        }
    };
    let (still_failing, newly_failing): (Vec<String>, Vec<String>) =
        unexpected.iter().map(|row| row.name.clone()).partition(|name| failed_before.contains(name));
    let is_fixed =
        |name: &String| picture.place(name).is_some_and(|place| picture.rows[place].state.has_outputs());
    let mut fixed: Vec<String> = failed_before.into_iter().filter(is_fixed).collect();
    fixed.sort_unstable();
    let mut blocked: Vec<Blocked> =
        blocked.into_iter().map(|(culprit, packages)| Blocked { culprit, packages }).collect();
    blocked.sort_by_key(|blocked| (blocked.culprit.is_none(), Reverse(blocked.packages.len())));
    Ok(Failures {
        run: picture.run.number,
        earlier,
        causes,
        newly_failing,
        still_failing,
        fixed,
        as_expected: as_expected.iter().map(|row| row.name.clone()).collect(),
        blocked,
    })
}

/// The number of the run before this one; absent for the first.
///
/// # Errors
/// The store cannot be read.
pub fn run_before(store: &dyn Store, run: Number) -> Result<Option<Number>> {
    let runs = store.runs().map_err(store_error)?;
    Ok(runs.iter().map(|row| row.number).filter(|number| *number < run).max())
}
