//! Steps that all series of generations share: clear leftovers, stage a new generation, give it its number and
//! switch readers to it, remove the oldest.

use std::path::PathBuf;

use crate::Result;
use crate::layout::{self, GENERATIONS_KEPT, STAGING, Series};
use crate::operation::Operation;
use crate::state::SeriesState;
use crate::steps::Steps;

/// Staging name of an unfinished generation.
const STAGED_GENERATION: &str = "generation";

/// Plans to clear the leftovers of an interrupted attempt.
///
/// A generation above the current one was finished but never switched to. Its number is used again, and the new
/// generation must be the same whether or not the interrupted attempt came that far.
pub(crate) fn clear_leftovers(series: &Series, seen: &SeriesState, steps: &mut Steps<'_>) -> Result<()> {
    if seen.has_leftovers {
        steps.add(Operation::ClearStaging);
    }
    let is_leftover = |number: &&u64| seen.current.is_none_or(|current| **number > current);
    seen.generations
        .iter()
        .filter(is_leftover)
        .try_for_each(|number| steps.remove_tree(series.generation(*number)))
}

/// The remaining generations that were switched to, newest first.
pub(crate) fn kept(seen: &SeriesState) -> Vec<u64> {
    seen.generations.iter().copied().filter(|number| Some(*number) <= seen.current).rev().collect()
}

/// The number of the next generation.
pub(crate) fn next(seen: &SeriesState) -> u64 {
    seen.current.map_or(1, |current| current.saturating_add(1))
}

/// Plans the directories of a new generation. Returns the path under which it is staged.
pub(crate) fn begin(series: &Series, steps: &mut Steps<'_>) -> Result<PathBuf> {
    steps.make_directory(STAGING.into())?;
    steps.make_directory(series.generations())?;
    steps.make_directory(series.folder_of_link())?;
    Ok(layout::staged(STAGED_GENERATION))
}

/// Plans to give the staged generation its number and to switch readers to it. Everything that it names is on
/// disk before it gets its final name, and it has its final name before the switch.
pub(crate) fn switch(series: &Series, number: u64, steps: &mut Steps<'_>) {
    steps.sync();
    let from = layout::staged(STAGED_GENERATION);
    steps.add(Operation::Move { from, to: series.generation(number) });
    steps.touch(series.generations());
    steps.sync();
    let (link, target) = (series.link().to_owned(), series.link_target(number));
    steps.add(Operation::Switch { link, target });
    steps.touch(series.folder_of_link());
    steps.sync();
}

/// Plans to remove generations that are too old once there are `new_count` new ones.
pub(crate) fn retire(
    series: &Series,
    seen: &SeriesState,
    new_count: usize,
    steps: &mut Steps<'_>,
) -> Result<()> {
    kept(seen)
        .into_iter()
        .skip(GENERATIONS_KEPT - new_count)
        .try_for_each(|number| steps.remove_tree(series.generation(number)))
}
