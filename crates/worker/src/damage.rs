//! Layers that lost files: a person or a disk may remove a part of what every build stands on, and each build fails in another
//! way then. A layer has a manifest beside it; one that differs is made anew, in the run that finds it.

use crate::Worker;
use crate::trees::TreeError;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_root::tree::Manifest;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The pause between two checks of layers where packages fail by themselves: listing a base takes some 50 ms.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// What a worker knows of damage.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When layers were checked the last time.
    checked: Option<Instant>,
    /// When layers were replaced: what began before stood on a damaged one.
    replaced: HashMap<String, Instant>,
}

impl Worker {
    /// A failure, with the damage of the layers that its build stood on since `began`. They are checked after the first failure
    /// of a package's own in a while, and after each that is not its own.
    pub(crate) fn with_damage(&self, layers: &[String], began: Instant, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Cancelled {
            return failure;
        }
        // Held while a layer is made: builds that failed by the same damage wait for it.
        let mut state = self.damage.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |layer: &&String| state.replaced.get(*layer).is_some_and(|at| *at > began);
        if let Some(layer) = layers.iter().find(is_old) {
            return of_machine(&format!("{layer} was damaged and is made anew"), failure);
        }
        let is_recent = state.checked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL);
        if is_recent && failure.kind != FailureKind::Machine {
            return failure;
        }
        let damaged = layers.iter().find_map(|layer| {
            let difference = find_damage(&self.settings.yard, layer)?;
            Some(match self.make_anew(layer) {
                Ok(()) => {
                    state.replaced.insert(layer.clone(), Instant::now());
                    format!("{layer} was damaged ({difference}) and is made anew")
                }
                Err(error) => format!(
                    "{layer} is damaged ({difference}) and could not be made anew: {error}; try: kilnyard build"
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

    fn make_anew(&self, layer: &str) -> Result<(), TreeError> {
        self.trees.unpack_again(layer)?;
        // They may show what was damaged.
        self.layers.drop_images();
        Ok(())
    }
}

/// The machine's failure in the place of the package's.
fn of_machine(damaged: &str, failure: Failure) -> Failure {
    let message = format!("{damaged}; first: {}", failure.message);
    Failure { kind: FailureKind::Machine, message, ..failure }
}

fn beside(yard: &Path, layer: &str, what: &str) -> PathBuf {
    yard.join(format!("{layer}.{what}"))
}

/// Writes the manifest of a layer that is whole; `files` is where it is now. Both are relative to the yard.
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

/// How a layer differs from its manifest; none where it does not, or has none. One that does is marked, so that the next
/// search for the layer makes it anew.
pub fn find_damage(yard: &Path, layer: &str) -> Option<String> {
    let text = fs_err::read(beside(yard, layer, "manifest")).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let difference = manifest.difference(&Manifest::of(&yard.join(layer)))?;
    // Without the mark it is found again by the next who looks.
    let _ = fs_err::write(beside(yard, layer, "damaged"), &difference);
    Some(difference)
}

/// Whether a layer was found damaged.
pub(crate) fn is_marked_damaged(yard: &Path, layer: &str) -> bool {
    beside(yard, layer, "damaged").exists()
}
