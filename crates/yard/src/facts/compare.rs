//! The difference of two runs.

use super::picture::{Picture, run_of};
use super::status::commit;
use crate::commits;
use crate::error::{Error, Result};
use crate::remedy::Remedy;
use crate::yard::{Yard, store_error};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_schema::compare::{Difference, Larger, NewVersion, OtherState, Slower};
use kilnyard_store::{BuildRow, PackageRow, Store};
use std::collections::BTreeMap;

/// The factor and difference from which a build counts as slower; less is noise.
const SLOWER_FACTOR: f64 = 1.25;
const SLOWER_SECONDS: f64 = 2.0;
/// The factor and difference from which a build counts as using more memory.
const LARGER_FACTOR: f64 = 1.25;
const LARGER_BYTES: u64 = 16 << 20;

/// The result of a package in a run.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    version: String,
    state: PackageState,
    reason: Reason,
    cpu_seconds: Option<f64>,
    memory_peak_bytes: u64,
}

/// The difference of two runs: by default of the last one and the one before it.
///
/// # Errors
/// There are no such runs, or the store cannot be read.
pub fn difference(
    yard: &Yard,
    store: &dyn Store,
    earlier: Option<u64>,
    later: Option<u64>,
) -> Result<Difference> {
    let runs = store.runs().map_err(store_error)?;
    let number = |given: Option<u64>, back: usize| match given {
        Some(number) => run_of(store, number).map(|run| run.number),
        None => runs.get(back).map(|run| run.number).ok_or_else(|| {
            Error::usage("there are no two runs to compare yet").hint(Remedy::command("history"))
        }),
    };
    let later = number(later, 0)?;
    // A run that is named is compared with the one before it.
    let back = runs.iter().position(|run| run.number == later).map_or(1, |place| place + 1);
    let earlier = number(earlier, back)?;
    let later = Picture::read(store, later)?;
    difference_from(yard, store, earlier, &later)
}

/// The difference of a run that is in memory from an earlier one.
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub fn difference_from(yard: &Yard, store: &dyn Store, earlier: u64, later: &Picture) -> Result<Difference> {
    let earlier_run = run_of(store, earlier)?;
    let (earlier_commits, later_commits) = (&earlier_run.commits, &later.run.commits);
    Ok(Difference {
        earlier,
        later: later.run.number,
        earlier_commits: earlier_commits.iter().map(commit).collect(),
        later_commits: later_commits.iter().map(commit).collect(),
        changes: commits::between(yard, earlier_commits, later_commits, None),
        ..compare(&earlier_figures(store, earlier, later)?, &figures(later))
    })
}

/// The number of builds from which all of a run are read: that is faster than one by one.
const BUILDS_EACH_MAX: usize = 1000;

/// The results of the earlier run, with the builds of those packages that the later one built.
fn earlier_figures(store: &dyn Store, run: u64, later: &Picture) -> Result<BTreeMap<String, Figures>> {
    let rows = store.packages(run).map_err(store_error)?;
    let built = (0..later.rows.len()).filter(|place| later.last_build(*place).is_some());
    let built: Vec<&str> = built.map(|place| later.rows[place].name.as_str()).collect();
    let mut builds: BTreeMap<String, BuildRow> = BTreeMap::new();
    if built.len() <= BUILDS_EACH_MAX {
        for name in built {
            let found = store.builds_of(name, BUILDS_OF_MAX).map_err(store_error)?;
            builds.extend(found.into_iter().find(|build| build.run == run).map(|b| (name.to_owned(), b)));
        }
    } else {
        // The latest of a package comes last.
        let all = store.builds_in(run).map_err(store_error)?;
        builds.extend(all.into_iter().map(|build| (build.package.clone(), build)));
    }
    let figures = |row: PackageRow| (row.name.clone(), Figures::of(&row, builds.get(&row.name)));
    Ok(rows.into_iter().map(figures).collect())
}

/// The builds of a package among which that of the earlier run is looked for.
const BUILDS_OF_MAX: usize = 200;

fn figures(picture: &Picture) -> BTreeMap<String, Figures> {
    let rows = picture.rows.iter().enumerate();
    rows.map(|(place, row)| (row.name.clone(), Figures::of(row, picture.last_build(place)))).collect()
}

impl Figures {
    fn of(row: &PackageRow, build: Option<&BuildRow>) -> Figures {
        let build = build.filter(|_| row.state.has_outputs());
        let stages = || build.iter().flat_map(|build| &build.stages);
        Figures {
            version: row.version.clone(),
            state: row.state,
            reason: row.reason.clone(),
            cpu_seconds: build.map(|_| stages().map(|stage| stage.cpu_seconds).sum()),
            memory_peak_bytes: stages().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0),
        }
    }
}

fn compare(earlier: &BTreeMap<String, Figures>, later: &BTreeMap<String, Figures>) -> Difference {
    let mut difference = Difference::default();
    let is_bad = |figures: &Figures| {
        matches!(figures.state, PackageState::Failed | PackageState::Blocked | PackageState::LeftOut)
    };
    for (name, now) in later {
        let before = earlier.get(name);
        if is_bad(now) && !before.is_some_and(is_bad) {
            difference.newly_failing.push((name.clone(), now.reason.to_string()));
        }
        let Some(before) = before else {
            difference.only_later.push(name.clone());
            continue;
        };
        if before.version != now.version {
            difference.new_versions.push(NewVersion {
                package: name.clone(),
                earlier_version: before.version.clone(),
                later_version: now.version.clone(),
            });
        }
        if is_bad(before) && is_bad(now) && before.state != now.state {
            difference.otherwise_failing.push(OtherState {
                package: name.clone(),
                earlier_state: before.state.to_string(),
                later_state: now.state.to_string(),
                reason: now.reason.to_string(),
            });
        }
        if is_bad(before) && now.state.has_outputs() {
            difference.newly_fixed.push(name.clone());
        }
        if let (Some(was), Some(is)) = (before.cpu_seconds, now.cpu_seconds) {
            if is > was * SLOWER_FACTOR && is - was > SLOWER_SECONDS {
                difference.slower.push(Slower {
                    package: name.clone(),
                    earlier_cpu_seconds: was,
                    later_cpu_seconds: is,
                });
            }
            let (was, is) = (before.memory_peak_bytes, now.memory_peak_bytes);
            if is as f64 > was as f64 * LARGER_FACTOR && is - was > LARGER_BYTES {
                difference.larger.push(Larger {
                    package: name.clone(),
                    earlier_memory_peak_bytes: was,
                    later_memory_peak_bytes: is,
                });
            }
        }
    }
    let is_gone = |name: &&String| !later.contains_key(*name);
    difference.only_earlier = earlier.keys().filter(is_gone).cloned().collect();
    let slower_by = |slower: &Slower| slower.later_cpu_seconds - slower.earlier_cpu_seconds;
    difference.slower.sort_by(|one, other| slower_by(other).total_cmp(&slower_by(one)));
    let larger_by = |larger: &Larger| larger.later_memory_peak_bytes - larger.earlier_memory_peak_bytes;
    difference.larger.sort_by_key(|larger| std::cmp::Reverse(larger_by(larger)));
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(state: PackageState, cpu_seconds: f64, memory_peak_bytes: u64) -> Figures {
        Figures {
            version: "1".into(),
            state,
            reason: Reason::impossible("r"),
            cpu_seconds: Some(cpu_seconds),
            memory_peak_bytes,
        }
    }

    #[test]
    fn only_changes_that_matter_are_shown() {
        use PackageState::{Blocked, Built, Failed, UpToDate};
        let earlier = BTreeMap::from([
            ("broke".into(), figures(Built, 5.0, 0)),
            ("fixed".into(), figures(Blocked, 0.0, 0)),
            ("grew".into(), figures(Built, 10.0, 100 << 20)),
            ("noise".into(), figures(Built, 1.0, 1 << 20)),
            ("still".into(), figures(Failed, 1.0, 0)),
        ]);
        let later = BTreeMap::from([
            ("broke".into(), figures(Failed, 5.0, 0)),
            ("fixed".into(), figures(UpToDate, 0.0, 0)),
            ("grew".into(), figures(Built, 20.0, 200 << 20)),
            ("noise".into(), figures(Built, 2.0, 2 << 20)),
            ("still".into(), figures(Failed, 1.0, 0)),
            ("new".into(), figures(Failed, 1.0, 0)),
        ]);
        let difference = compare(&earlier, &later);
        assert_eq!(
            difference.newly_failing.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
            ["broke", "new"]
        );
        assert_eq!(difference.newly_fixed, ["fixed"]);
        let slower =
            Slower { package: "grew".to_owned(), earlier_cpu_seconds: 10.0, later_cpu_seconds: 20.0 };
        assert_eq!(difference.slower, [slower]);
        assert_eq!(difference.larger.len(), 1);
    }
}
