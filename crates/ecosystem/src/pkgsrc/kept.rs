//! What a scan found, kept so that the next one asks only the directories that could say something else now.
//!
//! The answer of a directory is kept with the files that make read for it (`SCAN_DEPENDS`), each with the hash of
//! its content, and under one hash of everything else that it depends on (the program, its environment, the
//! system). It is right as long as all of these are the same. A file whose size, time and number are the same is
//! taken to have the same content, unless it was written at the time of the scan itself.
//!
//! The file is a journal: what is found is added at its end, so that a scan that is killed goes on where it was.
//! A record that was not written whole is dropped with all after it, even where a disk that lost power has put something
//! else in its place. Text, a record a line:
//!
//! ```text
//! kilnyard-scan 2 FACTS
//! file SHA256 SIZE MTIME_NANOSECONDS INODE PATH
//! scan CRC32 BYTES LOCATION    and so many bytes of stanzas
//! ```

use super::scan_file::ScanFile;
use crate::hex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first words of the file.
const BEGINNING: &str = "kilnyard-scan 2 ";

/// What tells stanzas that were written whole.
fn checksum(stanzas: &[u8]) -> String {
    let mut sum = flate2::Crc::new();
    sum.update(stanzas);
    format!("{:08x}", sum.sum())
}

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileFacts {
    sha256: String,
    size_bytes: u64,
    modified_nanoseconds: i128,
    inode: u64,
}

fn modified_nanoseconds(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// See the module.
#[derive(Debug, Default)]
pub struct Kept {
    files: HashMap<String, FileFacts>,
    stanzas: HashMap<String, Vec<u8>>,
}

impl Kept {
    /// Reads what is kept; nothing where the facts were others, or there is nothing.
    pub fn read(path: &Path, facts: &str) -> io::Result<Kept> {
        let mut kept = Kept::default();
        let bytes = match fs_err::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(kept),
            other => other?,
        };
        let mut rest = match bytes.strip_prefix(format!("{BEGINNING}{facts}\n").as_bytes()) {
            Some(rest) => rest,
            None => return Ok(kept),
        };
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let Ok(line) = std::str::from_utf8(&rest[..end]) else { break };
            rest = &rest[end + 1..];
            let mut words = line.splitn(6, ' ');
            match words.next() {
                Some("file") => {
                    let (Some(sha256), Some(size), Some(modified), Some(inode), Some(path)) =
                        (words.next(), words.next(), words.next(), words.next(), words.next())
                    else {
                        break;
                    };
                    let (Ok(size_bytes), Ok(modified_nanoseconds), Ok(inode)) =
                        (size.parse(), modified.parse(), inode.parse())
                    else {
                        break;
                    };
                    let facts =
                        FileFacts { sha256: sha256.to_owned(), size_bytes, modified_nanoseconds, inode };
                    kept.files.insert(path.to_owned(), facts);
                }
                Some("scan") => {
                    let (Some(sum), Some(bytes), Some(location)) = (words.next(), words.next(), words.next())
                    else {
                        break;
                    };
                    let Some((stanzas, after)) =
                        bytes.parse().ok().and_then(|count| rest.split_at_checked(count))
                    else {
                        break;
                    };
                    if sum != checksum(stanzas) {
                        break;
                    }
                    kept.stanzas.insert(location.to_owned(), stanzas.to_vec());
                    rest = after;
                }
                _ => break,
            }
        }
        Ok(kept)
    }

    /// The kept answers that are still right, by location. Each file is looked at once.
    pub fn current(mut self, places: &Places) -> HashMap<String, Vec<u8>> {
        let mut looked_at: HashMap<String, bool> = HashMap::new();
        let mut is_same = |path: &str| match looked_at.get(path) {
            Some(is_same) => *is_same,
            None => {
                let is_same = match places.find(path) {
                    Some(place) => self.files.get(path).is_some_and(|facts| facts.hold(&place)),
                    None => true,
                };
                looked_at.insert(path.to_owned(), is_same);
                is_same
            }
        };
        let mut current = HashMap::new();
        for (location, stanzas) in self.stanzas.drain() {
            let is_right = each_file(&location, &stanzas, &mut |path| is_same(&path)) == Some(true);
            if is_right {
                current.insert(location, stanzas);
            }
        }
        current
    }
}

impl FileFacts {
    fn of(path: &Path) -> io::Result<FileFacts> {
        let metadata = fs_err::metadata(path)?;
        let bytes = fs_err::read(path)?;
        Ok(FileFacts {
            sha256: hex(&Sha256::digest(&bytes)),
            size_bytes: bytes.len() as u64,
            modified_nanoseconds: modified_nanoseconds(&metadata),
            inode: metadata.ino(),
        })
    }

    /// Whether the file is the same still: by its content where its time or number is another.
    fn hold(&self, path: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(path) else { return false };
        if metadata.len() != self.size_bytes {
            return false;
        }
        let is_untouched =
            modified_nanoseconds(&metadata) == self.modified_nanoseconds && metadata.ino() == self.inode;
        is_untouched || FileFacts::of(path).is_ok_and(|now| now.sha256 == self.sha256)
    }
}

/// Calls for each file that make read for a location, as long as the answer is true; the last answer. None where
/// the stanzas name no file: then nothing is known of what they depend on.
fn each_file(location: &str, stanzas: &[u8], each: &mut dyn FnMut(Cow<str>) -> bool) -> Option<bool> {
    let mut answer = None;
    for line in stanzas.split(|byte| *byte == b'\n') {
        let Some(files) = line.strip_prefix(b"SCAN_DEPENDS=") else { continue };
        let Ok(files) = std::str::from_utf8(files) else { return Some(false) };
        for file in files.split_ascii_whitespace() {
            if !each(normal(location, file)) {
                return Some(false);
            }
            answer = Some(true);
        }
    }
    answer
}

/// A path as seen from the tree, without steps back where that is possible.
pub(super) fn normal<'a>(location: &str, file: &'a str) -> Cow<'a, str> {
    if let Some(of_tree) = file.strip_prefix("../../")
        && !of_tree.contains("..")
    {
        return Cow::Borrowed(of_tree);
    }
    let is_absolute = file.starts_with('/');
    if is_absolute && !file.contains("/../") {
        return Cow::Borrowed(file);
    }
    let mut parts: Vec<&str> = if is_absolute { Vec::new() } else { location.split('/').collect() };
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    Cow::Owned(if is_absolute { format!("/{joined}") } else { joined })
}

/// Where the files are that make read.
#[derive(Clone, Debug)]
pub struct Places {
    /// The tree.
    pub tree: PathBuf,
    /// Where make saw it, if that was in a root: then files outside of it are of the root's layers, which do not
    /// change.
    pub inside: Option<&'static str>,
}

impl Places {
    /// Where a file is, by its path relative to the tree or from / on; none where it is of a layer.
    fn find(&self, path: &str) -> Option<PathBuf> {
        match self.inside {
            Some(inside) if path.starts_with('/') => {
                let below = path.strip_prefix(inside)?.strip_prefix('/')?;
                Some(self.tree.join(below))
            }
            _ => Some(self.tree.join(path)),
        }
    }
}

/// Adds to what is kept.
#[derive(Debug)]
pub struct Journal {
    file: fs_err::File,
    places: Places,
    known: HashSet<String>,
    /// Files that were written later than this may have changed while they were read.
    began_nanoseconds: i128,
}

impl Journal {
    /// Begins a new journal with answers that are right; it takes the place of the old one at once.
    pub fn begin(
        path: &Path,
        places: &Places,
        facts: &str,
        current: &HashMap<String, Vec<u8>>,
        began_nanoseconds: i128,
    ) -> io::Result<Journal> {
        let part = path.with_extension("part");
        let mut file = fs_err::File::create(&part)?;
        file.write_all(format!("{BEGINNING}{facts}\n").as_bytes())?;
        let mut journal = Journal { file, places: places.clone(), known: HashSet::new(), began_nanoseconds };
        let mut locations: Vec<&String> = current.keys().collect();
        locations.sort_unstable();
        for location in locations {
            journal.add(location, &current[location])?;
        }
        journal.file.sync_all()?;
        fs_err::rename(&part, path)?;
        Ok(journal)
    }

    /// Adds an answer. One that read a file which is changing, or is gone, is not kept.
    pub fn add(&mut self, location: &str, stanzas: &[u8]) -> io::Result<()> {
        let mut record = Vec::new();
        let mut added = Vec::new();
        let is_known = each_file(location, stanzas, &mut |path| {
            if self.known.contains(path.as_ref()) || added.iter().any(|other| *other == path) {
                return true;
            }
            let Some(place) = self.places.find(&path) else { return true };
            let Ok(facts) = FileFacts::of(&place) else { return false };
            if facts.modified_nanoseconds >= self.began_nanoseconds {
                return false;
            }
            let FileFacts { sha256, size_bytes, modified_nanoseconds, inode } = facts;
            record.extend(
                format!("file {sha256} {size_bytes} {modified_nanoseconds} {inode} {path}\n").into_bytes(),
            );
            added.push(path.into_owned());
            true
        });
        if is_known == Some(true) {
            record.extend(format!("scan {} {} {location}\n", checksum(stanzas), stanzas.len()).into_bytes());
            record.extend(stanzas);
            self.known.extend(added);
            self.file.write_all(&record)?;
        }
        Ok(())
    }
}

/// The locations that a directory's packages depend on.
pub fn depended_on(stanzas: &[u8]) -> Vec<String> {
    let Ok(file) = ScanFile::parse(stanzas) else { return Vec::new() };
    let words = file.stanzas.iter().flat_map(|stanza| stanza.all_depends.split_ascii_whitespace());
    let mut locations: Vec<String> =
        words.filter_map(|word| Some(super::resolve::split(word)?.1.to_owned())).collect();
    locations.sort_unstable();
    locations.dedup();
    locations
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: i128 = i128::MAX;

    struct Fixture {
        folder: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            for path in ["mk", "a/one", "a/two"] {
                std::fs::create_dir_all(folder.path().join(path)).unwrap();
            }
            let fixture = Fixture { folder };
            for path in ["mk/x.mk", "a/one/Makefile", "a/two/Makefile"] {
                fixture.write(path, path);
            }
            fixture
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::write(self.folder.path().join(path), text).unwrap();
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("kept")
        }

        fn places(&self) -> Places {
            Places { tree: self.folder.path().to_owned(), inside: None }
        }

        fn begin(&self, began: i128) -> Journal {
            Journal::begin(&self.path(), &self.places(), "facts", &HashMap::new(), began).unwrap()
        }

        fn current(&self) -> Vec<String> {
            let kept = Kept::read(&self.path(), "facts").unwrap();
            let mut locations: Vec<String> = kept.current(&self.places()).into_keys().collect();
            locations.sort();
            locations
        }
    }

    fn stanza(location: &str, files: &str) -> Vec<u8> {
        format!("PKGNAME=x-1\nPKG_LOCATION={location}\nSCAN_DEPENDS={files}\n").into_bytes()
    }

    fn filled() -> Fixture {
        let fixture = Fixture::new();
        let mut journal = fixture.begin(BEGAN);
        journal.add("a/one", &stanza("a/one", "../../mk/x.mk Makefile ../../a/one/../two/Makefile")).unwrap();
        journal.add("a/two", &stanza("a/two", "Makefile")).unwrap();
        fixture
    }

    #[test]
    fn an_answer_is_right_as_long_as_every_file_is_the_same() {
        let fixture = filled();
        assert_eq!(fixture.current(), ["a/one", "a/two"]);
        fixture.write("mk/x.mk", "changed");
        assert_eq!(fixture.current(), ["a/two"]);
        fixture.write("mk/x.mk", "mk/x.mk");
        assert_eq!(fixture.current(), ["a/one", "a/two"], "the same content at another time");
        std::fs::remove_file(fixture.folder.path().join("a/two/Makefile")).unwrap();
        assert_eq!(fixture.current(), [] as [&str; 0]);
    }

    #[test]
    fn other_facts_ask_again() {
        let fixture = filled();
        assert!(Kept::read(&fixture.path(), "others").unwrap().stanzas.is_empty());
    }

    #[test]
    fn what_names_no_file_or_one_that_is_being_written_is_not_kept() {
        let fixture = Fixture::new();
        let mut journal = fixture.begin(0);
        journal.add("a/one", &stanza("a/one", "Makefile")).unwrap();
        drop(journal);
        let mut journal = fixture.begin(BEGAN);
        journal.add("a/two", b"PKGNAME=x-1\nPKG_LOCATION=a/two\n").unwrap();
        assert_eq!(fixture.current(), [] as [&str; 0]);
    }

    #[test]
    fn a_journal_that_was_cut_anywhere_keeps_what_is_whole() {
        let fixture = filled();
        let bytes = std::fs::read(fixture.path()).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(fixture.path(), &bytes[..length]).unwrap();
            let found = fixture.current();
            assert!(
                found.len() < 2 && found.iter().all(|location| location == "a/one"),
                "{length}: {found:?}"
            );
            // A disk that lost power may have anything where the rest should be.
            let rest = bytes[length..].iter().map(|byte| if *byte == 0 { 1 } else { 0 });
            let torn: Vec<u8> = bytes[..length].iter().copied().chain(rest).collect();
            std::fs::write(fixture.path(), torn).unwrap();
            assert_eq!(fixture.current(), found, "{length}");
        }
    }

    #[test]
    fn dependencies_lead_to_other_directories() {
        let stanzas =
            b"PKGNAME=x-1\nPKG_LOCATION=a/x\nALL_DEPENDS=b>=1:../../c/b d-[0-9]*:../../c/d b<2:../../c/b\n";
        assert_eq!(depended_on(stanzas), ["c/b", "c/d"]);
    }
}
