//! Receives the image of a yard.

use super::{Admitted, CONTENT, DOCUMENT, Entry, Image, LIST_BYTES_MAX, is_inside, is_users};
use crate::config::artifacts::ArtifactsTable;
use crate::config::store::{StoreTable, TABLES, without_stores};
use crate::error::{Context, Error, Kind, Result};
use crate::yard::artifacts::depot_of;
use crate::yard::store::{address_of, note_store};
use crate::yard::{CONFIG, store_error};
use kilnyard_mirror::{FileStore, Limits, Sha256Hex, Wanted};
use kilnyard_store_postgres::{Document, Documents};
use std::collections::HashSet;
use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};
use toml_edit::DocumentMut;

/// Reads after "failed to".
const RECEIVING: &str = "receive the image of the yard";
/// The folder of files that the user has changed here, and that others have replaced.
pub const REPLACED: &str = "state/replaced";
/// Begins the paths of files that no plan is made from.
const RESULTS: [&str; 2] = ["state/", "repository/"];
/// The image that was received last.
const KEPT: &str = "state/image.json";

/// What an image has changed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: there is no new image.
    Nothing,
    /// What a plan is not made from: the repository, or what was measured.
    Results,
    /// What a plan is made from: the configuration, the index, files of the user.
    Inputs,
}

/// What was received.
#[derive(Debug, Default)]
pub struct Received {
    version: u64,
}

/// A received configuration with the tables of this machine's own one.
///
/// # Errors
/// One of them is not TOML: without the tables, this machine would build alone.
fn with_own_stores(received: &str, own: &str) -> Result<String> {
    let parsed = |text: &str| text.parse::<DocumentMut>();
    let mut document = parsed(received).context(Kind::Machine, "read the configuration of the image")?;
    let own = parsed(own).context(Kind::Usage, "read the tables [store] and [artifacts] of this machine")?;
    for table in TABLES {
        if let Some(item) = own.get(table) {
            document.insert(table, item.clone());
        }
    }
    Ok(document.to_string())
}

/// Makes a yard in an empty folder from the image in these stores. `own` has their tables for its configuration.
///
/// # Errors
/// There is no image, or a store or the disk cannot be used.
pub fn begin(
    folder: &Path,
    (store, artifacts): (&StoreTable, &ArtifactsTable),
    own: &str,
    cancel: &AtomicBool,
) -> Result<()> {
    let address = address_of(store, folder, None)?.ok_or_else(|| Error::usage("there is no database"))?;
    let depot = depot_of(artifacts, folder)?.ok_or_else(|| Error::usage("there is no store of artifacts"))?;
    let documents = Documents::open(&address).map_err(store_error)?;
    let distfiles = FileStore::open(&folder.join("distfiles"), Limits::default())
        .context(Kind::Machine, RECEIVING)?
        .with_depot(depot);
    if Received::default().receive_with(folder, own, &documents, &distfiles, cancel)? != Change::Nothing {
        Admitted::default().share(folder, &documents)?;
        return note_store(folder, documents.farm());
    }
    let message = "the store has no image of a yard yet: no other machine serves it";
    Err(Error::new(Kind::Machine, message)
        .hint("kilnyard serve, in the yard on its machine, with these two stores in kilnyard.toml"))
}

impl Received {
    /// Receives the image if it has changed.
    ///
    /// # Errors
    /// The image names a path outside of the yard, or a store or the disk cannot be used.
    pub fn receive(
        &mut self,
        folder: &Path,
        documents: &Documents,
        distfiles: &FileStore,
        cancel: &AtomicBool,
    ) -> Result<Change> {
        let own = fs_err::read_to_string(folder.join(CONFIG)).context(Kind::Machine, RECEIVING)?;
        self.receive_with(folder, &own, documents, distfiles, cancel)
    }

    fn receive_with(
        &mut self,
        folder: &Path,
        own: &str,
        documents: &Documents,
        distfiles: &FileStore,
        cancel: &AtomicBool,
    ) -> Result<Change> {
        let known = documents.documents().map_err(store_error)?;
        let version = known.iter().find(|(name, _)| name == DOCUMENT).map(|(_, version)| *version);
        if version.is_none_or(|version| version == self.version) {
            return Ok(Change::Nothing);
        }
        let Some(Document { version, content }) = documents.document(DOCUMENT).map_err(store_error)? else {
            return Ok(Change::Nothing);
        };
        let image = decoded(&content).context(Kind::Machine, RECEIVING)?;
        if let Some(path) = image.0.keys().find(|path| !is_inside(path)) {
            let message = format!("failed to {RECEIVING}: it names {path:?}, which is not in a yard");
            return Err(Error::new(Kind::Machine, message));
        }
        let before: Image = match fs_err::read(folder.join(KEPT)) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(_) => Image::default(),
        };
        let receiving = Receiving { folder, own, documents, distfiles, cancel, before: &before };
        let gone = || before.0.keys().filter(|path| !image.0.contains_key(*path));
        // What is in the way of a folder, or where one was: first.
        let folders: HashSet<&str> = image.0.keys().flat_map(|path| parents(path)).collect();
        for path in gone() {
            let is_in_the_way =
                folders.contains(path.as_str()) || parents(path).any(|parent| image.0.contains_key(parent));
            if is_in_the_way {
                receiving.remove(path)?;
            }
        }
        // The configuration after what it names, and links last of all.
        let is_late = |path: &str, entry: &Entry| match entry {
            Entry::Link(_) => 2,
            Entry::File { .. } => u8::from(path == CONFIG),
        };
        for turn in 0..3 {
            for (path, entry) in image.0.iter().filter(|(path, entry)| is_late(path, entry) == turn) {
                if before.0.get(path) != Some(entry) || !is_there(&folder.join(path)) || path == CONFIG {
                    receiving.take(path, entry)?;
                }
            }
        }
        for path in gone() {
            receiving.remove(path)?;
        }
        let text = serde_json::to_vec(&image).or_internal(RECEIVING)?;
        fs_err::create_dir_all(folder.join("state")).context(Kind::Machine, RECEIVING)?;
        write(&folder.join(KEPT), &text, 0o600).context(Kind::Machine, RECEIVING)?;
        self.version = version;
        let is_input = |path: &str| !RESULTS.iter().any(|part| path.starts_with(part));
        let mut changed =
            image.0.iter().filter(|(path, entry)| before.0.get(*path) != Some(*entry)).map(|(path, _)| path);
        let has_input = changed.any(|path| is_input(path)) || gone().any(|path| is_input(path));
        Ok(if has_input { Change::Inputs } else { Change::Results })
    }
}

/// The artifacts that the image names.
///
/// # Errors
/// The database or the image cannot be read.
pub(crate) fn needed(documents: &Documents) -> Result<Vec<Sha256Hex>> {
    let Some(document) = documents.document(DOCUMENT).map_err(store_error)? else { return Ok(Vec::new()) };
    let image = decoded(&document.content).context(Kind::Machine, RECEIVING)?;
    let hashes = image.0.into_values().filter_map(|entry| match entry {
        Entry::File { sha256, is_document: false, .. } => Sha256Hex::parse(&sha256).ok(),
        _ => None,
    });
    Ok(hashes.collect())
}

fn decoded(packed: &[u8]) -> io::Result<Image> {
    let mut text = Vec::new();
    zstd::Decoder::new(packed)?.take(LIST_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The folders that a path is in, the innermost first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|(parent, _)| parent), |path| {
        path.rsplit_once('/').map(|(parent, _)| parent)
    })
}

fn is_there(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok()
}

fn elsewhere(path: &str, link: &str) -> Error {
    let message =
        format!("failed to {RECEIVING}: {link} is a link here, and {path} is in a folder of that name");
    Error::new(Kind::Machine, message).hint("remove the link")
}

struct Receiving<'a> {
    folder: &'a Path,
    own: &'a str,
    documents: &'a Documents,
    distfiles: &'a FileStore,
    cancel: &'a AtomicBool,
    /// The image as it was received before.
    before: &'a Image,
}

impl Receiving<'_> {
    /// Removes a file or link, and the folders that are empty then.
    fn remove(&self, path: &str) -> Result<()> {
        if let Some(link) = self.linked_parent(path) {
            return Err(elsewhere(path, link));
        }
        match fs_err::remove_file(self.folder.join(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(Kind::Machine, RECEIVING);
            }
            _ => {}
        }
        for parent in parents(path) {
            // Others have files, or are in use.
            if std::fs::remove_dir(self.folder.join(parent)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The first folder of a path that is a link here: what is written below it would be elsewhere.
    fn linked_parent<'p>(&self, path: &'p str) -> Option<&'p str> {
        let is_link = |path: &&str| {
            fs_err::symlink_metadata(self.folder.join(path)).is_ok_and(|facts| facts.is_symlink())
        };
        parents(path).filter(is_link).last()
    }

    /// Keeps a file that the user has changed here: it is moved to `state/replaced`.
    fn set_aside(&self, path: &str, entry: &Entry) -> Result<()> {
        let to = self.folder.join(path);
        if !is_users(path) || !to.is_file() {
            return Ok(());
        }
        let mut content = fs_err::read(&to).context(Kind::Machine, RECEIVING)?;
        if path == CONFIG {
            content = without_stores(&String::from_utf8_lossy(&content)).into_bytes();
        }
        let found = Sha256Hex::of(&content);
        let is = |entry: Option<&Entry>| match entry {
            Some(Entry::File { sha256, .. }) => sha256 == found.as_str(),
            _ => false,
        };
        if is(Some(entry)) || is(self.before.0.get(path)) {
            return Ok(());
        }
        let aside = self.folder.join(REPLACED);
        fs_err::create_dir_all(&aside).context(Kind::Machine, RECEIVING)?;
        let name = format!("{}-{}", path.replace('/', "_"), &found.as_str()[..8]);
        fs_err::copy(&to, aside.join(name)).context(Kind::Machine, RECEIVING).map(drop)
    }

    fn take(&self, path: &str, entry: &Entry) -> Result<()> {
        let to = self.folder.join(path);
        if let Some(link) = self.linked_parent(path) {
            return Err(elsewhere(path, link));
        }
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent).context(Kind::Machine, RECEIVING)?;
        }
        self.set_aside(path, entry)?;
        match entry {
            Entry::Link(target) => {
                let new = to.with_file_name(format!(".{}.new", file_name(&to)));
                let _ = fs_err::remove_file(&new);
                let made = fs_err::os::unix::fs::symlink(target, &new);
                made.and_then(|()| fs_err::rename(&new, &to)).context(Kind::Machine, RECEIVING)
            }
            Entry::File { sha256, mode, modified, is_document: true, .. } => {
                let found = self.documents.document(&format!("{CONTENT}{sha256}")).map_err(store_error)?;
                let content = found.map(|document| document.content).unwrap_or_default();
                if Sha256Hex::of(&content).as_str() != sha256 {
                    // It was replaced meanwhile: the next image has it.
                    let message = format!("failed to {RECEIVING}: the content of {path} is not there");
                    return Err(Error::new(Kind::Machine, message));
                }
                let content = match path == CONFIG {
                    true => with_own_stores(&String::from_utf8_lossy(&content), self.own)?.into_bytes(),
                    false => content,
                };
                // It may have a password of this machine.
                let mode = if path == CONFIG { mode & 0o600 } else { *mode };
                let written = write(&to, &content, mode).and_then(|()| set_modified(&to, *modified));
                written.context(Kind::Machine, RECEIVING)
            }
            Entry::File { sha256, size_bytes, mode, modified, .. } => {
                let hash = Sha256Hex::parse(sha256).context(Kind::Machine, RECEIVING)?;
                let (size_bytes, name) = (*size_bytes, path.to_owned());
                let wanted = Wanted { urls: Vec::new(), sha256: hash, size_bytes, name };
                let from = self.distfiles.ensure(&wanted, &|_| {}, self.cancel);
                let from = from.context(Kind::Machine, RECEIVING)?;
                let placed = self.place(&from, &to, path, *mode);
                placed.and_then(|()| set_modified(&to, *modified)).context(Kind::Machine, RECEIVING)
            }
        }
    }

    /// Links a file of the pool, as publications do, and copies any other.
    fn place(&self, from: &Path, to: &Path, path: &str, mode: u32) -> io::Result<()> {
        let new = to.with_file_name(format!(".{}.new", file_name(to)));
        let _ = fs_err::remove_file(&new);
        let is_linked = path.starts_with("repository/pool/") && fs_err::hard_link(from, &new).is_ok();
        if !is_linked {
            fs_err::copy(from, &new)?;
            fs_err::set_permissions(&new, Permissions::from_mode(mode & 0o777))?;
            fs_err::File::open(&new)?.sync_all()?;
        }
        fs_err::rename(new, to)
    }
}

fn set_modified(path: &Path, modified: Option<(u64, u32)>) -> io::Result<()> {
    let Some((seconds, nanoseconds)) = modified else { return Ok(()) };
    // A time in the distant future is not one.
    let Some(at) = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds.min(999_999_999))) else {
        return Ok(());
    };
    std::fs::File::open(path)?.set_modified(at)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Replaces a file at once.
pub(super) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let new = path.with_file_name(format!(".{}.new", file_name(path)));
    let _ = fs_err::remove_file(&new);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode & 0o777))?;
    file.sync_all()?;
    fs_err::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_keeps_the_tables_with_which_it_reaches_the_stores() {
        let leader = "packages = [\"a\"] # all\n[store]\nurl = \"postgres://a/b\"\n[artifacts]\nurl = \"s3://c\"\n[farm]\n";
        let sent = without_stores(leader);
        assert_eq!(sent, "packages = [\"a\"] # all\n[farm]\n");
        let own =
            "[store]\nurl = \"postgres://x/b\"\npassword-file = \"p\"\n[artifacts]\nurl = \"file:///y\"\n";
        let text = with_own_stores(&sent, own).unwrap();
        assert!(text.starts_with("packages = [\"a\"] # all\n[farm]\n"), "{text}");
        assert!(
            text.contains("postgres://x/b") && text.contains("file:///y") && text.contains("\"p\""),
            "{text}"
        );
        assert_eq!(without_stores(&text), sent);
        assert!(with_own_stores("packages = [", own).is_err() && with_own_stores(&sent, "[store").is_err());
    }

    #[test]
    fn images_name_files_of_the_yard_alone() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "a/./../../b", "."] {
            assert!(!is_inside(path), "{path}");
        }
        assert!(is_inside("a/b") && is_inside("repository/.generations/x/1"));
    }
}
