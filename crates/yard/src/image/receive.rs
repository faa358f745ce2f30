//! Receives the image of a yard.

use super::{Admitted, CONTENT, DOCUMENT, Entry, Image, LIST_BYTES_MAX, is_inside};
use crate::config::artifacts::ArtifactsTable;
use crate::config::store::{StoreTable, TABLES};
use crate::error::{Context, Error, Kind, Result};
use crate::yard::artifacts::depot_of;
use crate::yard::store::{address_of, note_store};
use crate::yard::{CONFIG, store_error};
use kilnyard_mirror::{FileStore, Limits, Sha256Hex, Wanted};
use kilnyard_store_postgres::{Document, Documents};
use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};
use toml_edit::DocumentMut;

/// Reads after "failed to".
const RECEIVING: &str = "receive the image of the yard";
/// The image that was received last.
const KEPT: &str = "state/image.json";

/// What was received.
#[derive(Debug, Default)]
pub struct Received {
    version: u64,
}

/// A received configuration with the tables of this machine's own one.
fn with_own_stores(received: &str, own: &str) -> String {
    let (Ok(mut document), Ok(own)) = (received.parse::<DocumentMut>(), own.parse::<DocumentMut>()) else {
        return received.to_owned();
    };
    for table in TABLES {
        if let Some(item) = own.get(table) {
            document.insert(table, item.clone());
        }
    }
    document.to_string()
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
    if Received::default().receive_with(folder, own, &documents, &distfiles, cancel)? {
        Admitted::default().share(folder, &documents)?;
        return note_store(folder, documents.farm());
    }
    let message = "the store has no image of a yard yet: no other machine serves it";
    Err(Error::new(Kind::Machine, message)
        .hint("kilnyard serve, in the yard on its machine, with these two stores in kilnyard.toml"))
}

impl Received {
    /// Receives the image if it has changed. Returns whether it has.
    ///
    /// # Errors
    /// The image names a path outside of the yard, or a store or the disk cannot be used.
    pub fn receive(
        &mut self,
        folder: &Path,
        documents: &Documents,
        distfiles: &FileStore,
        cancel: &AtomicBool,
    ) -> Result<bool> {
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
    ) -> Result<bool> {
        let known = documents.documents().map_err(store_error)?;
        let version = known.iter().find(|(name, _)| name == DOCUMENT).map(|(_, version)| *version);
        if version.is_none_or(|version| version == self.version) {
            return Ok(false);
        }
        let Some(Document { version, content }) = documents.document(DOCUMENT).map_err(store_error)? else {
            return Ok(false);
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
        let receiving = Receiving { folder, own, documents, distfiles, cancel };
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
        for path in before.0.keys().filter(|path| !image.0.contains_key(*path)) {
            match fs_err::remove_file(folder.join(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).context(Kind::Machine, RECEIVING);
                }
                _ => {}
            }
        }
        let text = serde_json::to_vec(&image).or_internal(RECEIVING)?;
        fs_err::create_dir_all(folder.join("state")).context(Kind::Machine, RECEIVING)?;
        write(&folder.join(KEPT), &text, 0o600).context(Kind::Machine, RECEIVING)?;
        self.version = version;
        Ok(true)
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

fn is_there(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok()
}

struct Receiving<'a> {
    folder: &'a Path,
    own: &'a str,
    documents: &'a Documents,
    distfiles: &'a FileStore,
    cancel: &'a AtomicBool,
}

impl Receiving<'_> {
    fn take(&self, path: &str, entry: &Entry) -> Result<()> {
        let to = self.folder.join(path);
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent).context(Kind::Machine, RECEIVING)?;
        }
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
                    true => with_own_stores(&String::from_utf8_lossy(&content), self.own).into_bytes(),
                    false => content,
                };
                let written = write(&to, &content, *mode).and_then(|()| set_modified(&to, *modified));
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
    use crate::config::store::without_stores;

    #[test]
    fn a_machine_keeps_the_tables_with_which_it_reaches_the_stores() {
        let leader = "packages = [\"a\"] # all\n[store]\nurl = \"postgres://a/b\"\n[artifacts]\nurl = \"s3://c\"\n[farm]\n";
        let sent = without_stores(leader);
        assert_eq!(sent, "packages = [\"a\"] # all\n[farm]\n");
        let own =
            "[store]\nurl = \"postgres://x/b\"\npassword-file = \"p\"\n[artifacts]\nurl = \"file:///y\"\n";
        let text = with_own_stores(&sent, own);
        assert!(text.starts_with("packages = [\"a\"] # all\n[farm]\n"), "{text}");
        assert!(
            text.contains("postgres://x/b") && text.contains("file:///y") && text.contains("\"p\""),
            "{text}"
        );
        assert_eq!(without_stores(&text), sent);
    }

    #[test]
    fn images_name_files_of_the_yard_alone() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "a/./../../b", "."] {
            assert!(!is_inside(path), "{path}");
        }
        assert!(is_inside("a/b") && is_inside("repository/.generations/x/1"));
    }
}
