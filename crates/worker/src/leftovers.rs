//! Removes folders of the yard. A folder that cannot be removed is set aside, so that it never blocks a later build.

use crate::RootFolder;
use kilnyard_root::{IdMap, remove_folder};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where folders are set aside, relative to the yard. It belongs to the user who runs Kilnyard.
pub const LEFT_OVER: &str = "roots/left-over";

/// How many names are tried when a folder is set aside.
const NAMES_MAX: u32 = 10_000;

/// A folder that could not be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOver {
    /// Its current path, relative to the yard.
    pub place: PathBuf,
    /// Why it could not be removed.
    pub reason: String,
}

impl fmt::Display for LeftOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be removed and was set aside: {}", self.place.display(), self.reason)
    }
}

/// Removes the remains of interrupted builds, but not the kept roots of failed ones. Returns the folders that were
/// set aside. No worker may be running in the yard.
pub fn sweep(yard: &Path, ids: &IdMap) -> io::Result<Vec<LeftOver>> {
    fs_err::create_dir_all(yard.join("roots"))?;
    let mut left = Vec::new();
    for entry in fs_err::read_dir(yard.join("roots"))? {
        let folder = Path::new("roots").join(entry?.file_name());
        let is_kept = folder.to_string_lossy().starts_with("roots/failed-");
        if !is_kept && folder != Path::new(LEFT_OVER) {
            left.extend(remove_or_set_aside(yard, &folder, ids));
        }
    }
    Ok(left)
}

/// The sorted names of all folders that were set aside and still exist.
pub fn set_aside_before(yard: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(yard.join(LEFT_OVER)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl RootFolder {
    /// Removes the root, or sets it aside. Unlike [`RootFolder::remove`], this never fails because of a build's files.
    pub fn remove_or_set_aside(&self) -> Option<LeftOver> {
        self.end_holding();
        remove_or_set_aside(self.yard(), &self.plan().folder, self.ids())
    }
}

/// Removes a folder, or sets it aside; `folder` is relative to the yard.
pub fn remove_or_set_aside(yard: &Path, folder: &Path, ids: &IdMap) -> Option<LeftOver> {
    let error = remove_folder(yard, folder, ids).err()?;
    let reason = causes(&error);
    match set_aside(yard, folder) {
        Ok(place) => Some(LeftOver { place, reason }),
        Err(error) => Some(LeftOver {
            place: folder.to_owned(),
            reason: format!("{reason}; failed to move it: {error}"),
        }),
    }
}

fn set_aside(yard: &Path, folder: &Path) -> io::Result<PathBuf> {
    let aside = Path::new(LEFT_OVER);
    fs_err::create_dir_all(yard.join(aside))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    for number in 1..=NAMES_MAX {
        let place = aside.join(format!("{name}.{number}"));
        if yard.join(&place).symlink_metadata().is_ok() {
            continue;
        }
        return fs_err::rename(yard.join(folder), yard.join(&place)).map(|()| place);
    }
    Err(io::Error::other(format!("all names for it in {} are taken", aside.display())))
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
