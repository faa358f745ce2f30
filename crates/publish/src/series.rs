//! What all series of generations have in common: what is left over goes, a new one is staged, gets its number and its
//! readers, and the oldest go.

use std::path::PathBuf;

use crate::Result;
use crate::layout::{self, GENERATIONS_KEPT, STAGING, Series};
use crate::operation::Operation;
use crate::state::Seen;
use crate::steps::Steps;

/// The name of the new generation while it is unfinished.
const STAGED_GENERATION: &str = "generation";

/// Plans to clear what a broken attempt left.
///
/// A generation above the current one was finished but never switched to. A new one takes its number, and must be the
/// same whether or not the broken attempt came that far.
pub(crate) fn clear_leftovers(series: &Series, seen: &Seen, steps: &mut Steps<'_>) -> Result<()> {
    if seen.has_leftovers {
        steps.add(Operation::ClearStaging);
    }
    let is_leftover = |number: &&u64| seen.current.is_none_or(|current| **number > current);
    seen.generations
        .iter()
        .filter(is_leftover)
        .try_for_each(|number| steps.remove_tree(series.generation(*number)))
}

/// The generations that were switched to and are still there, newest first.
pub(crate) fn kept(seen: &Seen) -> Vec<u64> {
    seen.generations.iter().copied().filter(|number| Some(*number) <= seen.current).rev().collect()
}

/// The number of the next generation.
pub(crate) fn next(seen: &Seen) -> u64 {
    seen.current.map_or(1, |current| current.saturating_add(1))
}

/// Plans the directories of a new generation; says where it is staged.
pub(crate) fn begin(series: &Series, steps: &mut Steps<'_>) -> Result<PathBuf> {
    steps.make_directory(STAGING.into())?;
    steps.make_directory(series.generations())?;
    steps.make_directory(series.folder_of_link())?;
    Ok(layout::staged(STAGED_GENERATION))
}

/// Plans to give the staged generation its number and its readers. All that it names is on the disk before it gets its
/// name, and it has its name before the switch.
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

/// Plans to remove what is too old, beside `new_count` new generations.
pub(crate) fn retire(series: &Series, seen: &Seen, new_count: usize, steps: &mut Steps<'_>) -> Result<()> {
    kept(seen)
        .into_iter()
        .skip(GENERATIONS_KEPT - new_count)
        .try_for_each(|number| steps.remove_tree(series.generation(number)))
}
