//! A tree of empty files, made of what a scan says that make read.

use crate::error::{Context, Kind, Result};
use kilnyard_ecosystem::pkgsrc::kept::Places;
use kilnyard_ecosystem::pkgsrc::scan_file::{ScanFile, Stanza};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What every directory has to fetch: one file, which is there.
pub const SOURCE: &str = "source-1.0.tar.gz";
const SOURCE_BYTES: u64 = 1_000_000;

/// See the module.
pub struct ShamTree {
    /// Where it is.
    pub folder: PathBuf,
    /// Where make saw it, if the scan says.
    pub inside: Option<&'static str>,
    /// What each directory answered.
    pub answers: BTreeMap<String, Vec<u8>>,
    /// The directories that say which files make read for them.
    pub telling: HashSet<String>,
    /// How many files there are.
    pub files: usize,
    /// Directories whose Makefile no other directory reads.
    pub apart: Vec<String>,
}

impl ShamTree {
    /// Makes it. Files outside of it are not made.
    pub fn make(scan: &ScanFile, folder: PathBuf) -> Result<ShamTree> {
        let inside = scan.stanzas.iter().find_map(place_of_tree);
        let mut answers: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut readers: HashMap<String, Reader> = HashMap::new();
        let mut telling = HashSet::new();
        for stanza in &scan.stanzas {
            let answer = answers.entry(stanza.location.to_owned()).or_default();
            answer.extend(stanza.text());
            if !answer.ends_with(b"\n") {
                answer.push(b'\n');
            }
            let read = stanza.get("SCAN_DEPENDS").unwrap_or_default();
            if !read.trim_ascii().is_empty() {
                telling.insert(stanza.location.to_owned());
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
        let is_apart = |location: &&String| {
            let makefile = readers.get(&format!("{location}/Makefile"));
            matches!(makefile, Some(Reader::One(reader)) if reader == *location)
        };
        let apart = answers.keys().filter(is_apart).cloned().collect();
        Ok(ShamTree { folder, inside, files: readers.len(), apart, answers, telling })
    }

    /// Where its files are.
    pub fn places(&self) -> Places {
        // Without a place of its own, no file that is named from / on is of the tree.
        Places { tree: self.folder.clone(), inside: Some(self.inside.unwrap_or("/nowhere")) }
    }

    /// Makes a folder with what has to be fetched.
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

/// Where make saw the tree: make names some files by all of their path, and then the directory is part of it.
fn place_of_tree(stanza: &Stanza) -> Option<&'static str> {
    let read = stanza.get("SCAN_DEPENDS")?;
    let within = format!("/{}/../../", stanza.location);
    let place = read.split_ascii_whitespace().find_map(|file| Some(file.split_once(&within)?.0))?;
    // `Places` is for the one place in a root, which is a constant; so this text lives as long as the program.
    (place.len() > 1 && place.starts_with('/') && !place.contains(".."))
        .then(|| place.to_owned().leak() as &str)
}

/// A file's path below the tree; none where it is outside.
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
    fn files_are_made_below_the_tree_alone() {
        let inside = Some("/usr/pkgsrc");
        let below = |file: &str| below(inside, "a/one", file);
        assert_eq!(below("Makefile").unwrap(), "a/one/Makefile");
        assert_eq!(below("../../mk/./x.mk").unwrap(), "mk/x.mk");
        assert_eq!(below("/usr/pkgsrc/a/one/../../mk/x.mk").unwrap(), "mk/x.mk");
        let outside = ["../../..", "../../../etc/x", "/etc/x", "/usr/pkgsrc2/x", "/usr/pkgsrc/../x", "../.."];
        assert!(outside.iter().all(|file| below(file).is_none()), "{:?}", outside.map(below));
    }

    #[test]
    fn a_tree_has_what_the_scan_names() {
        let text =
            b"PKGNAME=x-1\nPKG_LOCATION=a/x\nSCAN_DEPENDS=Makefile ../b/Makefile /t/a/x/../../mk/y.mk\n\
            PKGNAME=b-1\nPKG_LOCATION=a/b\nSCAN_DEPENDS=Makefile ../../../out /etc/z\n\
            PKGNAME=c-1\nPKG_LOCATION=a/c";
        let folder = tempfile::tempdir().unwrap();
        let tree = ShamTree::make(&ScanFile::parse(text).unwrap(), folder.path().join("tree")).unwrap();
        assert_eq!(tree.inside, Some("/t"));
        for path in ["a/x/Makefile", "a/b/Makefile", "mk/y.mk", "a/c/distinfo"] {
            assert!(tree.folder.join(path).is_file(), "{path}");
        }
        assert!(!folder.path().join("out").exists());
        assert_eq!((tree.files, tree.telling.len()), (3, 2));
        assert_eq!(tree.apart, ["a/x"], "that of a/b is read by a/x, and a/c says nothing");
    }
}
