//! The ways to make roots that are compared.

use kilnyard_process::pressure;
use kilnyard_root::{Backend, Device, Flushes, Form, IdMap, Making, Roots, Scratch, probe};
use std::path::Path;

/// Share of the free memory that a root in memory may use, as a divisor. The same as for builds.
const PART_OF_MEMORY: u64 = 2;
/// Size of the in-memory file system for the trial.
const PROBED_BYTES: u64 = 1 << 20;

/// A way to make roots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    pub roots: Roots,
    /// Whether it is only included for comparison.
    pub is_for_comparison: bool,
}

/// All ways, the plainest first. The last one shows what discarding flushes saves.
pub fn all(flushes: Flushes, device: Device) -> Vec<Variant> {
    let variant = |backend, scratch| Variant {
        roots: Roots { backend, scratch, flushes, device },
        is_for_comparison: false,
    };
    let mut variants = vec![
        variant(Backend::Overlay, Scratch::Disk),
        variant(Backend::Overlay, Scratch::Memory),
        variant(Backend::Tmpfs, Scratch::Disk),
        variant(Backend::Copy, Scratch::Disk),
        variant(Backend::Block, Scratch::Disk),
    ];
    if flushes == Flushes::Discard {
        let roots = Roots { flushes: Flushes::Keep, ..variants[0].roots };
        variants.push(Variant { roots, is_for_comparison: true });
    }
    variants
}

impl Variant {
    /// The name in tables.
    pub fn label(&self) -> String {
        let kept = if self.is_for_comparison { ", flushes kept" } else { "" };
        format!("{}{kept}", self.roots)
    }

    /// The name in JSON.
    pub fn key(&self) -> String {
        let words = self.label().replace(", ", " ");
        words.replace(' ', "_")
    }

    /// Whether its roots can use layers of dependencies.
    pub fn is_layered(&self) -> bool {
        self.roots.on_disk().form == Form::Overlay
    }

    /// How to make its roots if the whole build is in memory, as far as this way permits that.
    pub fn making(&self) -> Making {
        self.made_with(pressure::available_bytes().unwrap_or(0) / PART_OF_MEMORY)
    }

    fn made_with(&self, bytes: u64) -> Making {
        match self.roots.is_in_memory() {
            true => self.roots.in_memory(bytes),
            false => self.roots.of_build(),
        }
    }

    /// Makes and removes a small root. The error says why this machine cannot make it.
    pub fn try_for_real(&self, folder: &Path, ids: &IdMap) -> Result<(), String> {
        let tried = probe::try_root(folder, ids, &self.made_with(PROBED_BYTES));
        tried.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_own_name_and_form() {
        let variants = all(Flushes::Discard, Device::default());
        let keys: Vec<String> = variants.iter().map(Variant::key).collect();
        let expected =
            ["overlay", "overlay_scratch_in_memory", "tmpfs", "copy", "block", "overlay_flushes_kept"];
        assert_eq!(keys, expected);
        let forms: Vec<Form> = variants.iter().map(|variant| variant.made_with(1).form).collect();
        let device = Form::Image(Device { memory_bytes_max: 1, ..Device::default() });
        assert_eq!(forms, [Form::Overlay, Form::Overlay, Form::Copy, Form::Copy, device, Form::Overlay]);
        // If flushes are kept anyway, there is nothing to compare.
        assert!(all(Flushes::Keep, Device::default()).iter().all(|variant| !variant.is_for_comparison));
    }
}
