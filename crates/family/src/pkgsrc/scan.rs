//! The index of a pkgsrc yard: the tree's directories describe their packages; make runs in a root.
//!
//! `index/scan` is the journal of answers, so that the next scan repeats only directories that changed.
//! `index/index.json` and the scan file that it names are the index, which is replaced as a whole at the end of a
//! scan.

use super::asking::{
    Helped, ScanResult, Work, began_nanoseconds, check_categories, expand, locations, locations_of_categories,
};
use super::awaited;
use super::helped_make::HelpedMake;
use super::root_make::RootMake;
use super::set::settings;
use crate::debian::base;
use crate::git::WorkTree;
use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::pkgsrc::awaited::{Awaited, awaited as find_awaited};
use kilnyard_ecosystem::pkgsrc::kept::{Journal, KeptScan, Places};
use kilnyard_ecosystem::pkgsrc::recipe_files::of_tree;
use kilnyard_ecosystem::pkgsrc::scan_file::{ScanFile, is_category};
use kilnyard_ecosystem::pkgsrc::stages::TREE;
use kilnyard_ecosystem::pkgsrc::tree::{Make, Tree};
use kilnyard_ecosystem::pkgsrc::{Scan, ScanSettings, Settings};
use kilnyard_mirror::Sha256Hex;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::{Family, Scanned};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::helpers::Helpers;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::shape::Shape;
use kilnyard_yard::unpack;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The content of `index/index.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Index {
    /// Name of the scan file in `index`.
    file: String,
    /// SHA-256 of the scan.
    pub identity: String,
    /// The requested directories and categories; absent for the whole tree.
    wanted: Option<Vec<String>>,
    /// The directories of each requested category.
    #[serde(default)]
    categories: BTreeMap<String, Vec<String>>,
    /// Directories that could not be scanned, and their errors.
    pub failed: Vec<(String, String)>,
    /// Folders of the tree from which make read files.
    folders: Vec<String>,
    /// Files that a person has to get.
    #[serde(default)]
    awaited: Vec<Awaited>,
}

/// Brings the index up to date.
pub fn scan(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    helpers: &dyn Helpers,
    cancel: &AtomicBool,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Scanned> {
    if let Some(address) = &pkgsrc.git {
        WorkTree { yard, address }.update(cancel, say)?;
    }
    if !pkgsrc.tree.join("mk").is_dir() {
        return Err(Error::usage(format!("{} is not a pkgsrc tree: it has no mk", pkgsrc.shown()))
            .hint("tree in kilnyard.toml: the folder that contains mk and the categories"));
    }
    let wanted = yard.config.package_names(&yard.home)?;
    check_categories(&pkgsrc.tree, wanted.as_deref().unwrap_or_default())?;
    let ids = yard.ids();
    pkgsrc.ensure_layers(yard, &ids, cancel, say)?;
    let settings = settings(yard, pkgsrc, &base::find(yard, &pkgsrc.root).unwrap_or_default())?;
    let is_missing = |location: &&String| !pkgsrc.tree.join(location).is_dir();
    let missing: Vec<String> = wanted.iter().flatten().filter(is_missing).cloned().collect();
    if let (Some(first), true) = (missing.first(), wanted.as_ref().is_some_and(|w| w.len() == missing.len()))
    {
        return Err(Error::usage(format!("{first} is not a directory of {}", pkgsrc.tree.display()))
            .hint("packages in kilnyard.toml: directories such as mail/mutt"));
    }
    let cores = Shape::of(yard).machine.cores;
    let make = RootMake::new(yard, pkgsrc, &settings, &ids, cores)?;
    let there = wanted.as_ref().map(|wanted| {
        wanted.iter().filter(|location| !missing.contains(location)).cloned().collect::<Vec<_>>()
    });
    let helped = HelpedMake::new(helpers, &settings, make.time_limit());
    let helped = Helped { tree: Tree { make: &helped }, helpers };
    let asked = ask((yard, pkgsrc), &settings, &make, helped, there.as_deref(), cores, say);
    make.remove(yard, &ids);
    keep(yard, pkgsrc, (wanted, missing), asked?, say)
}

/// Scans the directory of a package again. See [`kilnyard_yard::family::Family::rescan`].
pub fn rescan(yard: &Yard, pkgsrc: &Pkgsrc, package: &str, cancel: &AtomicBool) -> Result<Vec<u8>> {
    let location = package.split_once(':').map_or(package, |(location, _)| location);
    let (ids, base) = (yard.ids(), base::find(yard, &pkgsrc.root).unwrap_or_default());
    let make = RootMake::new(yard, pkgsrc, &settings(yard, pkgsrc, &base)?, &ids, 1)?;
    let said = Tree { make: &make }.index(location, cancel);
    make.remove(yard, &ids);
    said.context(Kind::Packages, format!("scan {location}"))
}

/// The result of scanning the tree.
struct Asked {
    /// All locations, in the order of the scan file.
    order: Vec<String>,
    /// The locations of each requested category.
    categories: BTreeMap<String, Vec<String>>,
    found: ScanResult,
}

/// Scans these directories and categories of the tree, or all of it.
fn ask(
    (yard, pkgsrc): (&Yard, &Pkgsrc),
    settings: &Settings,
    make: &RootMake,
    helped: Helped<'_>,
    wanted: Option<&[String]>,
    jobs: u32,
    say: &dyn Fn(&str),
) -> Result<Asked> {
    let began = began_nanoseconds();
    let Settings { layers_digest, make: program, prefix, architecture, mk_conf, .. } = settings;
    let text = format!("{layers_digest} {program} {prefix} {architecture} {mk_conf}");
    let facts = Sha256Hex::of(text.as_bytes()).as_str().to_owned();
    let places = Places { tree: pkgsrc.tree.clone(), inside: Some(TREE) };
    let path = yard.path("index/scan");
    let failed = "keep the results of the scan";
    let own = ScanSettings::of(&settings.packages);
    let kept = KeptScan::read(&path, &facts).context(Kind::Machine, failed)?.current(&places, &own);
    let journal = Journal::begin(&path, &places, &facts, &own, &kept, began);
    let mut journal = journal.context(Kind::Machine, failed)?;
    let tree = Tree { make };
    let mut categories = BTreeMap::new();
    let first = match wanted {
        Some(wanted) => {
            categories = locations_of_categories(&tree, wanted, jobs)?;
            expand(wanted, &categories)
        }
        None => {
            say(&format!("listing the categories of {}", pkgsrc.tree.display()));
            locations(&tree, jobs)?
        }
    };
    let mut work = Work::new(tree, &pkgsrc.tree, kept.stanzas, wanted.is_some()).helped_by(helped);
    let mut order = work.scan(first, jobs, &mut journal, failed, say)?;
    if wanted.is_some() {
        order.sort_unstable();
    }
    Ok(Asked { order, categories, found: work.found })
}

/// Writes the index. `missing` are requested directories that do not exist: they are left out, and the rest is built.
fn keep(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    (wanted, missing): (Option<Vec<String>>, Vec<String>),
    Asked { order, categories, found }: Asked,
    say: &dyn Fn(&str),
) -> Result<Scanned> {
    let asked = order.len() as u64 - found.reused;
    let stanzas: Vec<u8> =
        order.iter().filter_map(|location| found.stanzas.get(location)).flatten().copied().collect();
    let mut failed: Vec<(String, String)> =
        found.failed.into_iter().map(|(location, error)| (location, error.to_string())).collect();
    let absent = format!("not a directory of {}", pkgsrc.tree.display());
    failed.extend(missing.into_iter().map(|location| (location, absent.clone())));
    let elsewhere = match found.elsewhere {
        0 => String::new(),
        count => format!(" ({count} on other machines)"),
    };
    say(&format!(
        "{} directories: {asked} scanned{elsewhere}, {} unchanged, {} failed",
        order.len(),
        found.reused,
        failed.len()
    ));
    if let (true, Some((location, error))) = (stanzas.is_empty(), failed.first()) {
        // If every directory failed, the old index is better than none.
        let mut nothing = Error::new(Kind::Packages, "no directory of the tree could be scanned");
        nothing.causes.push(format!("{location}: {error}"));
        return Err(nothing.hint("checking mk-conf and the kit, if they are new; the old index is kept"));
    }
    // Recipes that were not asked again are what they were, if these are the same ones.
    let before = Index::open(yard).ok().filter(|index| asked == 0 && index.identity == identity_of(&stanzas));
    let known = before.map(|index| index.awaited);
    put(yard, pkgsrc, (wanted, categories), &order, &stanzas, (failed, known), say)
}

/// Imports a scan file as the index.
pub fn import(yard: &Yard, pkgsrc: &Pkgsrc, text: Vec<u8>) -> Result<Scanned> {
    // Replace the other machine's path of the tree by the one in our roots, so that files of the tree are recognized.
    let elsewhere = tree_of(&ScanFile::parse(&text).context(Kind::Usage, "read the scan")?);
    let text = match elsewhere {
        Some(elsewhere) => replaced(&text, format!("{elsewhere}/").as_bytes(), format!("{TREE}/").as_bytes()),
        None => text,
    };
    let file = ScanFile::parse(&text).context(Kind::Usage, "read the scan")?;
    let mut order: Vec<String> = file.stanzas.iter().map(|stanza| stanza.location.to_owned()).collect();
    order.sort_unstable();
    order.dedup();
    let wanted = yard.config.package_names(&yard.home)?;
    let names = wanted.as_deref().unwrap_or_default();
    check_categories(&pkgsrc.tree, names)?;
    // make does not run here: a category has the directories that occur in the file.
    let of_category = |category: &String| {
        let is_of = |location: &&String| location.split_once('/').is_some_and(|(first, _)| first == category);
        (category.clone(), order.iter().filter(is_of).cloned().collect())
    };
    let categories = names.iter().filter(|name| is_category(name)).map(of_category).collect();
    put(yard, pkgsrc, (wanted, categories), &order, &text, (Vec::new(), None), &|_| ())
}

/// Replaces all occurrences of `words` by `others`.
fn replaced(text: &[u8], words: &[u8], others: &[u8]) -> Vec<u8> {
    let mut new = Vec::with_capacity(text.len());
    let mut start = 0;
    for found in memchr::memmem::find_iter(text, words) {
        new.extend(&text[start..found]);
        new.extend(others);
        start = found + words.len();
    }
    new.extend(&text[start..]);
    new
}

/// The hash of a scan.
fn identity_of(stanzas: &[u8]) -> String {
    Sha256Hex::of(stanzas).as_str().to_owned()
}

/// Writes these stanzas as the index, unless nothing changed.
fn put(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    (wanted, categories): (Option<Vec<String>>, BTreeMap<String, Vec<String>>),
    order: &[String],
    stanzas: &[u8],
    (failed, awaited): (Vec<(String, String)>, Option<Vec<Awaited>>),
    say: &dyn Fn(&str),
) -> Result<Scanned> {
    let before = Index::open(yard).unwrap_or_default();
    let identity = identity_of(stanzas);
    let file = format!("scan-{}.zst", &identity[..16]);
    let folders = read_folders(order, stanzas).into_iter().collect();
    let awaited = match awaited {
        Some(awaited) => awaited,
        None => find_awaited(&pkgsrc.tree, &ScanFile::parse(stanzas).context(Kind::Usage, "read the scan")?),
    };
    awaited::take(yard, pkgsrc, &awaited, say);
    let index = Index { file, identity, wanted, categories, failed, folders, awaited };
    let names = vec![pkgsrc.shown()];
    // If the scan file was removed, it is written again.
    if index == before && yard.path("index").join(&index.file).is_file() {
        return Ok(Scanned { unchanged: names, ..Scanned::default() });
    }
    let packed = zstd::encode_all(stanzas, 1).or_internal("pack the scan")?;
    write_whole(&yard.path("index").join(&index.file), &packed)?;
    let text = serde_json::to_vec_pretty(&index).or_internal("write the index")?;
    write_whole(&yard.path("index/index.json"), &text)?;
    if before.file != index.file && !before.file.is_empty() {
        // A file that remains is removed with the index.
        let _ = fs_err::remove_file(yard.path("index").join(before.file));
    }
    Ok(Scanned { changed: names, ..Scanned::default() })
}

/// Folders of the tree from which files were read: those of the scanned packages, top-level ones such as `mk`, and
/// those of other packages.
fn read_folders(order: &[String], stanzas: &[u8]) -> BTreeSet<String> {
    let mut folders: BTreeSet<String> = order.iter().cloned().collect();
    // Nearly all files that a package reads belong to the infrastructure, and were seen before with the same path.
    let mut seen = HashSet::new();
    let mut location = "";
    for line in stanzas.split(|byte| *byte == b'\n') {
        if let Some(value) = line.strip_prefix(b"PKG_LOCATION=") {
            location = std::str::from_utf8(value).unwrap_or("");
        }
        let Some(files) = line.strip_prefix(b"SCAN_DEPENDS=") else { continue };
        for file in files.split(u8::is_ascii_whitespace) {
            // Only these paths name the same file for every package.
            if file.starts_with(b"../../") && !seen.insert(file) {
                continue;
            }
            let Some(path) = std::str::from_utf8(file).ok().and_then(|file| of_tree(location, file)) else {
                continue;
            };
            let mut parts = path.splitn(3, '/');
            match (parts.next(), parts.next(), parts.next()) {
                (Some("mk"), ..) => folders.insert("mk".to_owned()),
                (Some(category), Some(directory), Some(_)) => {
                    folders.insert(format!("{category}/{directory}"))
                }
                _ => false,
            };
        }
    }
    folders
}

/// The path of the tree on the machine of the scan, found from a file in a package's own directory.
fn tree_of(file: &ScanFile) -> Option<String> {
    file.stanzas.iter().find_map(|stanza| {
        let inside = format!("/{}/", stanza.location);
        let read = stanza.get("SCAN_DEPENDS")?;
        let tree =
            read.split_ascii_whitespace().find_map(|path| Some(path.split_once(&inside)?.0.to_owned()));
        tree.filter(|tree| tree.starts_with('/') && tree != TREE)
    })
}

impl Index {
    /// Opens the index of the last scan. This is cheap: the scan file is not read yet.
    pub fn open(yard: &Yard) -> Result<Index> {
        let read = fs_err::read(yard.path("index/index.json")).ok();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(|| {
            Error::usage(format!("the yard {} has not been scanned yet", yard.folder.display()))
                .hint(Remedy::command("scan"))
        })
    }

    /// The state of the index and of the tree's files, as text to be hashed. No file contents are read.
    pub fn inputs(&self, pkgsrc: &Pkgsrc) -> String {
        let fingerprint = fingerprint(&pkgsrc.tree, &self.folders);
        let missing = awaited::missing(pkgsrc, &self.awaited);
        format!("{} {:?} {:?} {missing:?} {fingerprint}", self.identity, self.failed, self.categories)
    }

    /// Replaces categories in `names` by their directories, as the last scan found them.
    pub fn expand(&self, names: &[String]) -> Vec<String> {
        expand(names, &self.categories)
    }

    /// Reads the scan file.
    pub fn read(self, yard: &Yard, pkgsrc: &Pkgsrc) -> Result<Scan> {
        let path = yard.path("index").join(&self.file);
        let text =
            unpack::read(&path).context(Kind::Machine, format!("read the index {}", self.file)).map_err(
                |error| error.hint(Remedy::command("clean --index").then(" && ").then_command("scan")),
            )?;
        Ok(Scan { text, failed: self.failed, awaited: awaited::missing(pkgsrc, &self.awaited) })
    }
}

/// A hash of the files in a tree's folders: their paths, sizes, times and inodes, not their contents.
fn fingerprint(tree: &Path, folders: &[String]) -> String {
    let mut text = String::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| tree.join(folder)).collect();
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs_err::symlink_metadata(&path) else { continue };
        let (size, seconds, nanoseconds) = (metadata.size(), metadata.mtime(), metadata.mtime_nsec());
        text.push_str(&format!("{} {size} {seconds} {nanoseconds} {}\n", path.display(), metadata.ino()));
        if metadata.is_dir() {
            open.extend(fs_err::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    Sha256Hex::of(text.as_bytes()).as_str().to_owned()
}
