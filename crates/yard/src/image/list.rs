//! Lists the files of a yard.

use super::{Entry, Image, SECRET_BYTES_MAX, SMALL_BYTES_MAX, is_users};
use crate::config::store::without_stores;
use crate::tries::TRIES;
use crate::yard::store::OWN_STORE;
use crate::yard::{CONFIG, TARGETS, Yard};
use kilnyard_artifacts::hash_of;
use kilnyard_mirror::Sha256Hex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use toml_edit::DocumentMut;

/// Folders of a yard that are not part of its image: each machine has its own.
const OWN: [&str; 11] = [
    "distfiles",
    "layers",
    "logs",
    "report",
    "roots",
    "kept",
    "tools",
    "signed",
    TRIES,
    "lost+found",
    ".git",
];
/// The folder of layers, and that of the packed ones in it.
const LAYERS: &str = "layers";
const ARCHIVES: &str = "archives";
/// The parts of a repository that belong to one machine.
const OWN_OF_REPOSITORY: [&str; 2] = [".staging", ".lock"];
/// The files and folders of `state` that are part of the image. All but the account are secret.
const STATE: [&str; 5] = [
    "state/signer/policy.toml",
    "state/signer/keys",
    ACCOUNT,
    "state/farm/door.pem",
    "state/farm/measured.json",
];
/// The account of what was signed, which may be large and is no secret.
const ACCOUNT: &str = "state/signer/account";
/// A file of the user that was written less than this long ago may be written further.
const SETTLED_AFTER: Duration = Duration::from_secs(4);

/// What identifies the content of a file, as long as only its owner writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    inode: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl Facts {
    fn of(metadata: &Metadata) -> Facts {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Facts { inode: metadata.ino(), size_bytes: metadata.len(), changed }
    }
}

/// Lists files, and remembers the hashes of those that it has read.
#[derive(Debug, Default)]
pub(super) struct Lister {
    hashes: HashMap<PathBuf, (Facts, Sha256Hex)>,
    /// What changes with the yard: without a change, the list is the same.
    before: BTreeMap<String, Facts>,
    /// The same, of the list that was made last, and of the last one that was sent.
    pending: BTreeMap<String, Facts>,
    listed: BTreeMap<String, Facts>,
}

/// The content of the files that are documents, by hash.
pub(super) type Contents = HashMap<String, Vec<u8>>;

impl Lister {
    /// The files of a yard, and the contents of those that are documents. None if something has changed since the last call,
    /// since a program may be about to write more; and if nothing has changed since the last list. A file that is being
    /// written is listed as in the image that was `sent`.
    pub(super) fn list(
        &mut self,
        yard: &Yard,
        sent: Option<&Image>,
    ) -> io::Result<Option<(Image, Contents)>> {
        let mut found = BTreeMap::new();
        let secrets = own_files(yard);
        for entry in sorted(&yard.home)? {
            let (name, path) = entry;
            let is_own =
                OWN.contains(&name.as_str()) || ["state", "repository", TARGETS].contains(&name.as_str());
            if !is_own && !secrets.contains(&path) {
                walk(&path, &name, &mut found)?;
            }
        }
        for name in STATE {
            walk(&yard.home.join(name), name, &mut found)?;
        }
        layers(&yard.home, "", &mut found)?;
        for target in yard
            .targets()
            .map_err(|error| io::Error::other(error.one_line()))?
            .iter()
            .filter(|target| target.folder != yard.home)
        {
            let name = target.target_name.as_deref().unwrap_or_default();
            let within = format!("{TARGETS}/{name}/");
            for (name, path) in sorted(&target.folder)? {
                if !OWN.contains(&name.as_str()) && name != "state" {
                    walk(&path, &format!("{within}{name}"), &mut found)?;
                }
            }
            // Each target has a store of its own, of which the machine that takes over has not heard.
            walk(&target.folder.join(OWN_STORE), &format!("{within}{OWN_STORE}"), &mut found)?;
            layers(&target.folder, &within, &mut found)?;
        }
        for (name, path) in sorted(&yard.repository())? {
            if !OWN_OF_REPOSITORY.contains(&name.as_str()) {
                walk(&path, &format!("repository/{name}"), &mut found)?;
            }
        }
        found.retain(|_, (path, _)| !secrets.contains(path));
        // A file of the user that is being written, such as a log, is not part of it yet.
        let mut written = Vec::new();
        found.retain(|name, (_, metadata)| {
            let is_settled = !is_users(name) || is_settled(metadata);
            if !is_settled {
                written.push(name.clone());
            }
            is_settled
        });
        let earlier = |name: &String| Some((name.clone(), sent?.0.get(name)?.clone()));
        let earlier: Vec<(String, Entry)> = written.iter().filter_map(earlier).collect();
        if !found.contains_key(CONFIG) && !earlier.iter().any(|(name, _)| name == CONFIG) {
            return Ok(None);
        }
        let facts: BTreeMap<String, Facts> =
            found.iter().map(|(name, (_, metadata))| (name.clone(), Facts::of(metadata))).collect();
        let is_changing = std::mem::replace(&mut self.before, facts.clone()) != facts;
        if is_changing || facts == self.listed {
            return Ok(None);
        }
        let (mut image, mut contents) = (Image::default(), Contents::new());
        for (name, (path, metadata)) in &found {
            let entry = match metadata.is_symlink() {
                true => {
                    let Some(to) = fs_err::read_link(path)?.to_str().map(str::to_owned) else { continue };
                    Entry::Link(to)
                }
                false => self.file(name, path, metadata, &mut contents)?,
            };
            image.0.insert(name.clone(), entry);
        }
        let paths: HashSet<&PathBuf> = found.values().map(|(path, _)| path).collect();
        self.hashes.retain(|path, _| paths.contains(path));
        image.0.extend(earlier);
        self.pending = facts;
        Ok(Some((image, contents)))
    }

    /// The last list was sent.
    pub(super) fn sent(&mut self) {
        self.listed = std::mem::take(&mut self.pending);
    }

    fn file(
        &mut self,
        name: &str,
        path: &Path,
        metadata: &Metadata,
        contents: &mut Contents,
    ) -> io::Result<Entry> {
        let (size_bytes, mode) = (metadata.len(), metadata.mode() & 0o777);
        let is_secret = name.starts_with("state/") && name != ACCOUNT;
        let modified = metadata.modified().ok().filter(|_| is_users(name));
        let modified = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map(|since| (since.as_secs(), since.subsec_nanos()));
        if is_secret && size_bytes > SECRET_BYTES_MAX {
            return Err(io::Error::other(format!("{name} is too large")));
        }
        // What others may not read here is in no folder or bucket either.
        let is_private = mode & 0o004 == 0 && size_bytes <= SECRET_BYTES_MAX;
        // Published packages are outputs and sources, which are artifacts.
        let is_small = size_bytes <= SMALL_BYTES_MAX && !name.starts_with("repository/pool/");
        if is_secret || is_private || is_small || name == CONFIG {
            let mut content = fs_err::read(path)?;
            if name == CONFIG {
                // Each machine says for itself how it reaches the stores. What is not TOML would keep the passwords.
                let text = String::from_utf8_lossy(&content);
                text.parse::<DocumentMut>().map_err(io::Error::other)?;
                content = without_stores(&text).into_bytes();
            }
            let (sha256, size_bytes) = (Sha256Hex::of(&content).to_string(), content.len() as u64);
            contents.insert(sha256.clone(), content);
            return Ok(Entry::File { sha256, size_bytes, mode, modified, is_document: true });
        }
        let facts = Facts::of(metadata);
        let sha256 = match self.hashes.get(path).filter(|(known, _)| *known == facts) {
            Some((_, hash)) => hash.clone(),
            None => {
                let (hash, _) = hash_of(&mut fs_err::File::open(path)?)?;
                self.hashes.insert(path.to_owned(), (facts, hash.clone()));
                hash
            }
        };
        Ok(Entry::File { sha256: sha256.to_string(), size_bytes, mode, modified, is_document: false })
    }
}

/// The files with which this machine reaches the stores.
fn own_files(yard: &Yard) -> Vec<PathBuf> {
    let (store, artifacts) = (&yard.config.store, &yard.config.artifacts);
    let files =
        [&store.password_file, &store.certificates, &artifacts.credentials_file, &artifacts.certificates];
    files.into_iter().flatten().map(|file| yard.home.join(file)).collect()
}

/// Whether nothing has written to a file for a while.
fn is_settled(metadata: &Metadata) -> bool {
    metadata.is_symlink()
        || metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETTLED_AFTER))
}

/// The entries of a folder whose names are text, in their order; none if there is no such folder.
fn sorted(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs_err::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Adds what base roots are made of, so that all machines have the same ones; each unpacks them itself. `within` begins the
/// names.
fn layers(folder: &Path, within: &str, found: &mut BTreeMap<String, (PathBuf, Metadata)>) -> io::Result<()> {
    for (name, path) in sorted(&folder.join(LAYERS))? {
        if name == ARCHIVES || (name.ends_with(".json") && path.is_file()) {
            walk(&path, &format!("{within}{LAYERS}/{name}"), found)?;
        }
    }
    Ok(())
}

/// What a copy of a yard on the same machine needs, apart from its records, keys, distfiles and repository: files and folders by
/// name. `folder` is that of the yard, or of one of its targets.
pub(crate) fn files_to_copy(yard: &Yard, folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let secrets = own_files(yard);
    let is_part =
        |name: &str| !OWN.contains(&name) && !["state", "repository", TARGETS, CONFIG].contains(&name);
    let mut found = sorted(folder)?;
    found.retain(|(name, path)| is_part(name) && !secrets.contains(path));
    for (name, path) in sorted(&folder.join(LAYERS))? {
        if name == ARCHIVES || (name.ends_with(".json") && path.is_file()) {
            found.push((format!("{LAYERS}/{name}"), path));
        }
    }
    Ok(found)
}

/// Adds a file, or all files of a folder.
fn walk(path: &Path, name: &str, found: &mut BTreeMap<String, (PathBuf, Metadata)>) -> io::Result<()> {
    let metadata = match fs_err::symlink_metadata(path) {
        // It may be removed meanwhile; the next list shows that.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if metadata.is_dir() {
        for (entry, path) in sorted(path)? {
            walk(&path, &format!("{name}/{entry}"), found)?;
        }
    } else if metadata.is_file() || metadata.is_symlink() {
        found.insert(name.to_owned(), (path.to_owned(), metadata));
    }
    Ok(())
}
