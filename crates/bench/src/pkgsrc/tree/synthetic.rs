//! A tree of empty files: those that make reads according to a scan.

use crate::error::{Context, Kind, Result};
use kilnyard_ecosystem::pkgsrc::kept::Places;
use kilnyard_ecosystem::pkgsrc::scan_file::{ScanFile, Stanza};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The only file that each directory has to fetch. It already exists.
pub const SOURCE: &str = "source-1.0.tar.gz";
const SOURCE_BYTES: u64 = 1_000_000;

/// A tree with the files that a scan names.
pub struct SyntheticTree {
    /// The tree's folder.
    pub folder: PathBuf,
    /// The path of the tree as make saw it, if the scan shows it.
    pub inside: Option<&'static str>,
    /// The answer of each directory.
    pub answers: BTreeMap<String, Vec<u8>>,
    /// Directories that list the files that make reads for them.
    pub listing: HashSet<String>,
    /// Number of files.
    pub files: usize,
    /// Directories whose Makefile no other directory reads.
    pub unshared: Vec<String>,
}

impl SyntheticTree {
    /// Creates the tree. Files outside it are not created.
    pub fn make(scan: &ScanFile, folder: PathBuf) -> Result<SyntheticTree> {
        let inside = scan.stanzas.iter().find_map(place_of_tree);
        let mut answers: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut readers: HashMap<String, Reader> = HashMap::new();
        let mut listing = HashSet::new();
        for stanza in &scan.stanzas {
            let answer = answers.entry(stanza.location.to_owned()).or_default();
            answer.extend(stanza.text());
            if !answer.ends_with(b"\n") {
                answer.push(b'\n');
            }
            let read = stanza.get("SCAN_DEPENDS").unwrap_or_default();
            if !read.trim_ascii().is_empty() {
                listing.insert(stanza.location.to_owned());
            }
            for path in read.split_ascii_whitespace().filter_map(|file| below(inside, stanza.location, file))
            {
                match readers.get_mut(&path) {
                    Some(Reader::One(location)) if location == stanza.location => {}
                    Some(reader) => *reader = Reader::Several,
                    None => {
                        readers.insert(path, Reader::One(stanza.location.to_owned()));
                    }
                }
            }
        }
        for path in readers.keys() {
            write(&folder.join(path), "")?;
        }
        for location in answers.keys() {
            let text = format!("$NetBSD$\n\nSize ({SOURCE}) = {SOURCE_BYTES} bytes\n");
            write(&folder.join(location).join("distinfo"), &text)?;
        }
        let is_unshared = |location: &&String| {
            let makefile = readers.get(&format!("{location}/Makefile"));
            matches!(makefile, Some(Reader::One(reader)) if reader == *location)
        };
        let unshared = answers.keys().filter(is_unshared).cloned().collect();
        Ok(SyntheticTree { folder, inside, files: readers.len(), unshared, answers, listing })
    }

    /// The paths of the tree outside and inside roots.
    pub fn places(&self) -> Places {
        // If the scan does not show the path, no absolute file name is part of the tree.
        Places { tree: self.folder.clone(), inside: Some(self.inside.unwrap_or("/nowhere")) }
    }

    /// Creates a folder with the files to fetch.
    pub fn make_distfiles(folder: &Path) -> Result<()> {
        let failed = "make a distfile";
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
        let file = fs_err::File::create(folder.join(SOURCE)).context(Kind::Machine, failed)?;
        file.set_len(SOURCE_BYTES).context(Kind::Machine, failed)
    }
}

/// The directories that read a file.
enum Reader {
    One(String),
    Several,
}

/// The path of the tree as make saw it. make names some files by their full path, which then includes the
/// directory.
fn place_of_tree(stanza: &Stanza) -> Option<&'static str> {
    let read = stanza.get("SCAN_DEPENDS")?;
    let within = format!("/{}/../../", stanza.location);
    let place = read.split_ascii_whitespace().find_map(|file| Some(file.split_once(&within)?.0))?;
    // `Places` requires a static string, since roots use a constant; so this text is never freed.
    (place.len() > 1 && place.starts_with('/') && !place.contains(".."))
        .then(|| place.to_owned().leak() as &str)
}

/// A file's path relative to the tree. Absent if the file is outside.
fn below(inside: Option<&str>, location: &str, file: &str) -> Option<String> {
    let file = match file.starts_with('/') {
        true => file.strip_prefix(inside?)?.strip_prefix('/')?.to_owned(),
        false => format!("{location}/{file}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = "make the files of the tree";
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
    }
    fs_err::write(path, text).context(Kind::Machine, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_only_created_below_the_tree() {
        let inside = Some("/usr/pkgsrc");
        let below = |file: &str| below(inside, "a/one", file);
        assert_eq!(below("Makefile").unwrap(), "a/one/Makefile");
        assert_eq!(below("../../mk/./x.mk").unwrap(), "mk/x.mk");
        assert_eq!(below("/usr/pkgsrc/a/one/../../mk/x.mk").unwrap(), "mk/x.mk");
        let outside = ["../../..", "../../../etc/x", "/etc/x", "/usr/pkgsrc2/x", "/usr/pkgsrc/../x", "../.."];
        assert!(outside.iter().all(|file| below(file).is_none()), "{:?}", outside.map(below));
    }

    #[test]
    fn a_tree_has_the_files_that_the_scan_names() {
        let text =
            b"PKGNAME=x-1\nPKG_LOCATION=a/x\nSCAN_DEPENDS=Makefile ../b/Makefile /t/a/x/../../mk/y.mk\n\
            PKGNAME=b-1\nPKG_LOCATION=a/b\nSCAN_DEPENDS=Makefile ../../../out /etc/z\n\
            PKGNAME=c-1\nPKG_LOCATION=a/c";
        let folder = tempfile::tempdir().unwrap();
        let tree = SyntheticTree::make(&ScanFile::parse(text).unwrap(), folder.path().join("tree")).unwrap();
        assert_eq!(tree.inside, Some("/t"));
        for path in ["a/x/Makefile", "a/b/Makefile", "mk/y.mk", "a/c/distinfo"] {
            assert!(tree.folder.join(path).is_file(), "{path}");
        }
        assert!(!folder.path().join("out").exists());
        assert_eq!((tree.files, tree.listing.len()), (3, 2));
        assert_eq!(tree.unshared, ["a/x"], "a/x reads the Makefile of a/b, and a/c lists no files");
    }
}
