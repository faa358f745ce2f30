//! Tries: builds of proposed changes, each in a yard of its own below the folder `tries`, with a repository of its own.
//!
//! A try begins as a copy of the yard: its configuration, index, base roots, files and records. What a change does not affect
//! is up to date there, and what it affects is built. Nothing of a try gets into the yard.

use crate::config::store::without_stores;
use crate::error::{Context, Error, Kind, Result};
use crate::image::files_to_copy;
use crate::init;
use crate::yard::{CONFIG, TARGETS, Yard};
use kilnyard_root::remove_folder;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

/// The folder of tries.
pub const TRIES: &str = "tries";
/// The description of a try, in its folder.
const NOTE: &str = "state/try.json";
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// What a try is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Who wanted it.
    pub author: String,
    /// The changes, as they were given.
    pub changes: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub made_seconds: f64,
    /// When it may be removed.
    pub ends_seconds: f64,
}

/// A try that exists.
#[derive(Clone, Debug)]
pub struct Try {
    /// Its name among the tries of the yard.
    pub name: String,
    /// The folder of its yard.
    pub folder: PathBuf,
    /// What it is for.
    pub note: Note,
}

/// Whether this can name a try: small letters, digits and dashes.
pub fn is_try_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with('-')
}

/// The tries of a yard, by name.
///
/// # Errors
/// Their folder cannot be read.
pub fn all(yard: &Yard) -> Result<Vec<Try>> {
    let mut found = Vec::new();
    let entries = match fs_err::read_dir(yard.home.join(TRIES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.context(Kind::Machine, "list the tries")?,
    };
    for entry in entries {
        let entry = entry.context(Kind::Machine, "list the tries")?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let note = fs_err::read(entry.path().join(NOTE)).ok();
        let note = note.and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(note) = note.filter(|_| is_try_name(&name)) {
            found.push(Try { name, folder: entry.path(), note });
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Makes a try with these changes, which the family of the yard understands. Returns its folder.
///
/// # Errors
/// There is a try of this name, the changes cannot be applied, or the disk cannot be used.
pub fn make(yard: &Yard, name: &str, note: &Note) -> Result<PathBuf> {
    if !is_try_name(name) {
        let message = format!("{name:?} cannot name a try: small letters, digits and dashes");
        return Err(Error::usage(message));
    }
    let tries = yard.home.join(TRIES);
    fs_err::create_dir_all(&tries).context(Kind::Machine, "make the try")?;
    let folder = tries.join(name);
    // Another process may make one of the same name at this moment.
    match fs_err::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::usage(format!("there is a try {name} already"))
                .hint("--name NAME, or kilnyard try --remove NAME"));
        }
        made => made.context(Kind::Machine, "make the try")?,
    }
    let made = Yard::make_folders(&folder).and_then(|()| fill(yard, &folder, note));
    made.map(|()| folder.clone()).inspect_err(|_| {
        // What stays can be removed by its name.
        let _ = remove(&folder);
    })
}

/// The folder of the try of this name, if there is one: also of one that was killed while it was made, which has no note.
pub fn folder_of(yard: &Yard, name: &str) -> Option<PathBuf> {
    let folder = yard.home.join(TRIES).join(name);
    (is_try_name(name) && folder.is_dir()).then_some(folder)
}

/// Removes the folder of a try, with the files of its roots.
///
/// # Errors
/// The disk cannot be used.
pub fn remove(folder: &Path) -> Result<()> {
    let failed = || format!("remove {}", folder.display());
    let _ = fs_err::remove_file(folder.join(NOTE));
    // They belong to the ids of roots.
    let targets = match fs_err::read_dir(folder.join(TARGETS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => {
            let entries: io::Result<Vec<_>> = entries.and_then(Iterator::collect);
            entries.context(Kind::Machine, failed())?.iter().map(fs_err::DirEntry::path).collect()
        }
    };
    for folder in std::iter::once(folder).chain(targets.iter().map(PathBuf::as_path)) {
        let ids = Yard::ids_of(folder);
        for name in ["layers", "roots", "kept"] {
            if folder.join(name).exists() {
                remove_folder(folder, Path::new(name), &ids).context(Kind::Machine, failed())?;
            }
        }
    }
    fs_err::remove_dir_all(folder).context(Kind::Machine, failed())
}

fn fill(yard: &Yard, folder: &Path, note: &Note) -> Result<()> {
    let failed = "copy the yard for the try";
    copy_files(yard, &yard.home, folder)?;
    for target in yard.targets()? {
        let to = match &target.target_name {
            None => folder.to_owned(),
            Some(name) => {
                let to = folder.join(TARGETS).join(name);
                fs_err::create_dir_all(&to).context(Kind::Machine, failed)?;
                Yard::make_folders(&to)?;
                copy_files(&target, &target.folder, &to)?;
                to
            }
        };
        // The records first: a run may be in progress, and has files before it records them.
        target.back_up_to(&to.join("state/kilnyard.db"))?;
        link_all(&target.path("distfiles"), &to.join("distfiles")).context(Kind::Machine, failed)?;
    }
    let text = fs_err::read_to_string(yard.home.join(CONFIG)).context(Kind::Machine, failed)?;
    let text = yard.config.family.tried(folder, &note.changes, &without_stores(&text))?;
    fs_err::write(folder.join(CONFIG), text).context(Kind::Machine, failed)?;
    // Nothing of a try is signed by the yard.
    init::make_key(folder)?;
    let note = serde_json::to_string(note).or_internal(failed)?;
    fs_err::write(folder.join(NOTE), note).context(Kind::Machine, failed)
}

/// Copies the files of a yard or target that are in this folder.
fn copy_files(yard: &Yard, from: &Path, to: &Path) -> Result<()> {
    let failed = "copy the yard for the try";
    for (name, path) in files_to_copy(yard, from).context(Kind::Machine, failed)? {
        let to = to.join(&name);
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent).context(Kind::Machine, failed)?;
        }
        copy(&path, &to)?;
    }
    Ok(())
}

/// Copies a file or folder, with its times: by them, runs notice changes. Where the file system can, no data are copied.
///
/// # Errors
/// `cp` is missing or fails.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto", "-T", "--"]).arg(from).arg(to);
    perform(&mut command, &format!("copy {}", from.display()))
}

/// Applies a patch to a folder, as `patch -p1` does. What it does not fit changes nothing that counts: the try is not made.
///
/// # Errors
/// `patch` is missing, or the patch does not fit.
pub fn apply_patch(patch: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("patch");
    command.args(["-p1", "--batch", "--forward", "--no-backup-if-mismatch", "-d"]).arg(folder);
    command.arg("-i").arg(patch);
    perform(&mut command, &format!("apply {}", patch.display()))
}

/// Runs a command with no environment of the caller. `what` reads after "failed to".
fn perform(command: &mut Command, what: &str) -> Result<()> {
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    let ended = command.output().context(Kind::Machine, what.to_owned())?;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let mut error = Error::new(Kind::Usage, format!("failed to {what}"));
            let said = [ended.stdout, ended.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let lines =
                said.trim().lines().map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>());
            error.causes.push(lines.collect::<Vec<_>>().join("; "));
            Err(error)
        }
    }
}

/// Links all files of a folder: distfiles are never written again.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    fs_err::create_dir_all(to)?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if entry.file_type()?.is_dir() {
            link_all(&path, &target)?;
        } else if let Err(error) = fs_err::hard_link(&path, &target)
            && !is_gone(&error)
        {
            // Another file system, or one without links.
            fs_err::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// A configuration whose set has these packages too.
///
/// # Errors
/// It is not TOML.
pub fn with_packages(text: &str, further: &[String]) -> Result<String> {
    let mut document = text.parse::<DocumentMut>().context(Kind::Usage, "read the configuration")?;
    add_packages(&mut document, further);
    // Those of a target replace them.
    let targets = document.get_mut("target").and_then(Item::as_array_of_tables_mut);
    for target in targets.into_iter().flat_map(ArrayOfTables::iter_mut) {
        if target.contains_key("packages") || target.contains_key("packages-file") {
            add_packages(target, further);
        }
    }
    Ok(document.to_string())
}

/// Adds these to the packages of a table.
fn add_packages(table: &mut Table, further: &[String]) {
    let mut packages = match table.get("packages").and_then(Item::as_value) {
        Some(Value::Array(packages)) => packages.clone(),
        Some(one) => {
            let mut one = one.clone();
            one.decor_mut().clear();
            Array::from_iter([one])
        }
        None => Array::new(),
    };
    packages.extend(further);
    table.insert("packages", value(packages));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["1", "fix-zlib", "a"] {
            assert!(is_try_name(name), "{name}");
        }
        for name in ["", "-a", "A", "a/b", "..", "a.making", "a b", &"a".repeat(41)] {
            assert!(!is_try_name(name), "{name}");
        }
    }

    #[test]
    fn further_packages_follow_those_of_the_configuration() {
        let further = ["x.dsc".to_owned()];
        let with = |text: &str| with_packages(text, &further).unwrap();
        assert_eq!(with("packages = [\"a\"]\n[build]\n"), "packages = [\"a\", \"x.dsc\"]\n[build]\n");
        assert_eq!(with("packages = \"all\"\n"), "packages = [\"all\", \"x.dsc\"]\n");
        assert_eq!(with(""), "packages = [\"x.dsc\"]\n");
        assert_eq!(
            with("packages = [\"a\"]\n[[target]]\n[[target]]\npackages = [\"b\"]\n"),
            "packages = [\"a\", \"x.dsc\"]\n[[target]]\n[[target]]\npackages = [\"b\", \"x.dsc\"]\n"
        );
        assert!(with_packages("packages =", &further).is_err());
    }
}
