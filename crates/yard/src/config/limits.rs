//! The table `limits`: how much of the machine a single build may use.

use super::Size;
use kilnyard_ecosystem::OutputBounds;
use kilnyard_process::LimitRules;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Compilers and linkers with many inputs have thousands of files open.
const OPEN_FILES: u32 = 16_384;
/// A shell, a compiler and a make with a jobserver need several dozen.
const OPEN_FILES_MIN: u32 = 64;
/// The default of fs.nr_open, the most that Linux allows even to processes of root.
const OPEN_FILES_MAX: u32 = 1 << 20;
/// Most builds write less than 2 GiB; browsers write about 30 GiB.
const DISK_BYTES: u64 = 32 << 30;
/// Twice the size of the largest real packages.
const UNPACKED_BYTES: u64 = 20 << 30;
/// Five times the file count of the package with the most files. Archives with more files are not read.
const UNPACKED_FILES: u64 = 1_000_000;

/// Limits of all builds, and of packages that have their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    disk: Size,
    memory: Option<Size>,
    open_files: u32,
    unpacked: Size,
    unpacked_files: u64,
    /// The former place of the limits of single packages.
    packages: BTreeMap<String, Own>,
}

/// Limits of one package, in place of the general ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Own {
    pub(super) disk: Option<Size>,
    pub(super) memory: Option<Size>,
    pub(super) open_files: Option<u32>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            disk: Size(DISK_BYTES),
            memory: None,
            open_files: OPEN_FILES,
            unpacked: Size(UNPACKED_BYTES),
            unpacked_files: UNPACKED_FILES,
            packages: BTreeMap::new(),
        }
    }
}

/// Fails if a number of open files is out of bounds. `of` follows the key.
pub(super) fn check_open_files(of: &str, count: u32) -> Result<(), String> {
    match (OPEN_FILES_MIN..=OPEN_FILES_MAX).contains(&count) {
        true => Ok(()),
        false => {
            Err(format!("open-files{of} is {count}, but must be from {OPEN_FILES_MIN} to {OPEN_FILES_MAX}"))
        }
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), String> {
        let widest = OutputBounds::WIDEST;
        let own = self.packages.iter().filter_map(|(name, own)| Some((name.as_str(), own.open_files?)));
        for (name, count) in own.chain([("", self.open_files)]) {
            let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
            check_open_files(&of, count).map_err(|reason| format!("limits: {reason}"))?;
        }
        if self.unpacked.0 > widest.unpacked_bytes_max {
            return Err(format!("limits: unpacked must be at most {}G", widest.unpacked_bytes_max >> 30));
        }
        if !(1..=widest.files_max as u64).contains(&self.unpacked_files) {
            return Err(format!("limits: unpacked-files must be from 1 to {}", widest.files_max));
        }
        Ok(())
    }

    /// Adds these limits to those of the table `build`.
    pub(super) fn rules(&self, rules: LimitRules) -> LimitRules {
        LimitRules {
            memory_bytes_min: self.memory.map_or(u64::MAX, |size| size.0),
            written_bytes_min: self.disk.0,
            open_files_max: self.open_files,
            ..rules
        }
    }

    /// The limits of single packages, in their former place.
    pub(super) fn packages(&self) -> impl Iterator<Item = (&str, Own)> {
        self.packages.iter().map(|(name, own)| (name.as_str(), *own))
    }

    /// Bounds on the unpacked outputs of a package.
    pub fn output_bounds(&self) -> OutputBounds {
        OutputBounds { unpacked_bytes_max: self.unpacked.0, files_max: self.unpacked_files as usize }
    }
}
