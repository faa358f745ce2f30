//! Layers that lost files: a user or a disk may remove files that every build depends on, and then each build fails
//! in a different way. A manifest is stored next to each layer; a layer that differs from it is made again, in the
//! run that finds it.

use crate::Worker;
use crate::trees::TreeError;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_root::tree::Manifest;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum time between two checks of layers after ordinary package failures: listing a base takes about 50 ms.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// When a worker last checked and replaced layers.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last check; absent before the first.
    checked: Option<Instant>,
    /// When each layer was replaced: a build that began before that used the damaged one.
    replaced: HashMap<String, Instant>,
}

impl Worker {
    /// Returns `failure`, or the machine's failure if a layer that the build has used since `began` is damaged.
    /// Layers are checked after every failure of the machine, and after a package's own failure unless the last check
    /// was recent.
    pub(crate) fn with_damage(&self, layers: &[String], began: Instant, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Cancelled {
            return failure;
        }
        // Held while a layer is made: builds that failed for the same damage wait for it.
        let mut state = self.damage.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |layer: &&String| state.replaced.get(*layer).is_some_and(|at| *at > began);
        if let Some(layer) = layers.iter().find(is_old) {
            return of_machine(&format!("{layer} was damaged and has been unpacked again"), failure);
        }
        let is_recent = state.checked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL);
        if is_recent && failure.kind != FailureKind::Machine {
            return failure;
        }
        let damaged = layers.iter().find_map(|layer| {
            let difference = find_damage(&self.settings.yard, layer)?;
            Some(match self.make_again(layer) {
                Ok(()) => {
                    state.replaced.insert(layer.clone(), Instant::now());
                    format!("{layer} was damaged ({difference}) and has been unpacked again")
                }
                Err(error) => format!(
                    "{layer} is damaged ({difference}) and cannot be unpacked again: {error}; try: kilnyard build"
                ),
            })
        });
        let damaged = damaged.or_else(|| self.layers.drop_damaged(layers));
        state.checked = Some(Instant::now());
        drop(state);
        match damaged {
            Some(damaged) => of_machine(&damaged, failure),
            None => failure,
        }
    }

    fn make_again(&self, layer: &str) -> Result<(), TreeError> {
        self.trees.unpack_again(layer)?;
        // Images may have copied the damage.
        self.layers.drop_images();
        Ok(())
    }
}

/// Replaces a package's failure by one of the machine.
fn of_machine(damaged: &str, failure: Failure) -> Failure {
    let message = format!("{damaged}; first: {}", failure.message);
    Failure { kind: FailureKind::Machine, message, ..failure }
}

fn beside(yard: &Path, layer: &str, what: &str) -> PathBuf {
    yard.join(format!("{layer}.{what}"))
}

/// Writes the manifest of a complete layer, whose files are still in `files`. Both are relative to the yard.
pub(crate) fn write_manifest(yard: &Path, layer: &str, files: &str) -> io::Result<()> {
    let manifest = serde_json::to_vec(&Manifest::of(&yard.join(files))).map_err(io::Error::other)?;
    let part = beside(yard, layer, "manifest.part");
    fs_err::write(&part, manifest)?;
    fs_err::rename(part, beside(yard, layer, "manifest"))?;
    match fs_err::remove_file(beside(yard, layer, "damaged")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether files, relative to the yard, are all of a layer of another folder.
pub(crate) fn has_all(yard: &Path, files: &str, (other, layer): (&Path, &str)) -> bool {
    let text = fs_err::read(beside(other, layer, "manifest"));
    let manifest = text.ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
    manifest.is_some_and(|manifest| manifest.difference(&Manifest::of(&yard.join(files))).is_none())
}

/// How a layer differs from its manifest; `None` if it does not differ or has no manifest. A damaged layer is marked,
/// so that its next use makes it again.
pub fn find_damage(yard: &Path, layer: &str) -> Option<String> {
    let text = fs_err::read(beside(yard, layer, "manifest")).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let difference = manifest.difference(&Manifest::of(&yard.join(layer)))?;
    // If the mark cannot be written, the next check finds the damage again.
    let _ = fs_err::write(beside(yard, layer, "damaged"), &difference);
    Some(difference)
}

/// Whether a layer was marked by [`find_damage`].
pub(crate) fn is_marked_damaged(yard: &Path, layer: &str) -> bool {
    beside(yard, layer, "damaged").exists()
}
