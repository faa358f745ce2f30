//! What a scan found, kept so that the next one asks only the directories that could say something else now.
//!
//! The answer of a directory is kept with the files that make read for it (`SCAN_DEPENDS`), each with the hash of
//! its content, and under one hash of everything else that it depends on (the program, its environment, the
//! system). It is valid as long as all of these are the same. A file whose size, time and number are the same is
//! taken to have the same content, unless it was written at the time of the scan itself. Where make asked another
//! directory for its options, the files count that it read there (`asked`).
//!
//! The file is a journal: what is found is added at its end, so that a killed scan resumes.
//! A record that was not written whole is dropped with all after it, even where a disk that lost power has put something
//! else in its place. Text, a record a line:
//!
//! ```text
//! kilnyard-scan 3 FACTS
//! file SHA256 SIZE MTIME_NANOSECONDS INODE PATH    or "absent 0 0 0" and PATH, where there is none
//! asked CRC32 DIRECTORY PATH...                    what who reads its buildlink3.mk reads besides
//! scan CRC32 BYTES LOCATION                        and this many bytes of stanzas
//! ```

mod asked;
mod fact;
mod journal;

pub use fact::Places;
pub use journal::Journal;

use super::scan_file::ScanFile;
use fact::Fact;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// The first words of the file.
const BEGINNING: &str = "kilnyard-scan 3 ";

/// What tells a record that was written whole.
fn checksum(bytes: &[u8]) -> String {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    format!("{:08x}", sum.sum())
}

/// See the module.
#[derive(Debug, Default)]
pub struct Kept {
    facts: HashMap<String, Fact>,
    /// The files that are read where a directory is asked for its options.
    asked: HashMap<String, Vec<String>>,
    stanzas: HashMap<String, Vec<u8>>,
}

/// What of it is still valid.
#[derive(Debug, Default)]
pub struct Current {
    /// Answers by location.
    pub stanzas: HashMap<String, Vec<u8>>,
    /// What is known of files.
    facts: HashMap<String, Fact>,
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
            match kept.take(line, &rest[end + 1..]) {
                Some(after) => rest = after,
                None => break,
            }
        }
        Ok(kept)
    }

    /// Takes one record, whose content may go on after its line; what comes after it, or none if it is not whole.
    fn take<'a>(&mut self, line: &str, rest: &'a [u8]) -> Option<&'a [u8]> {
        let (kind, record) = line.split_once(' ')?;
        match kind {
            "file" => {
                let (path, fact) = Fact::read(record)?;
                self.facts.insert(path.to_owned(), fact);
                Some(rest)
            }
            "asked" => {
                let (sum, list) = record.split_once(' ')?;
                let mut words = list.split(' ').map(str::to_owned);
                let folder = words.next().filter(|_| sum == checksum(list.as_bytes()))?;
                self.asked.insert(folder, words.collect());
                Some(rest)
            }
            "scan" => {
                let mut words = record.splitn(3, ' ');
                let (sum, count, location) = (words.next()?, words.next()?, words.next()?);
                let (stanzas, after) = rest.split_at_checked(count.parse().ok()?)?;
                if sum != checksum(stanzas) {
                    return None;
                }
                self.stanzas.insert(location.to_owned(), stanzas.to_vec());
                Some(after)
            }
            _ => None,
        }
    }

    /// The kept answers that are still valid. Each file is checked once.
    pub fn current(mut self, places: &Places) -> Current {
        let stanzas = std::mem::take(&mut self.stanzas);
        let mut look = Look { kept: &self, places, files: HashMap::new(), folders: HashMap::new() };
        let stanzas = stanzas
            .into_iter()
            .filter(|(location, stanzas)| {
                each_file(location, stanzas, &mut |path| look.is_same(&path) && look.says_the_same(&path))
                    == Some(true)
            })
            .collect();
        let facts = look.files.into_iter().filter_map(|(path, fact)| Some((path, fact.known()?))).collect();
        Current { stanzas, facts }
    }
}

/// What is so now of what was kept.
struct Look<'a> {
    kept: &'a Kept,
    places: &'a Places,
    files: HashMap<String, Now>,
    /// Whether the directories that are asked for options would say the same.
    folders: HashMap<String, bool>,
}

/// What is known of a file now.
enum Now {
    /// It is of a layer, which does not change.
    OfLayer,
    /// It is as it was.
    Same(Fact),
    /// It is another one, or nothing was known of it.
    Other,
}

impl Now {
    fn known(self) -> Option<Fact> {
        match self {
            Now::Same(fact) => Some(fact),
            Now::OfLayer | Now::Other => None,
        }
    }
}

impl Look<'_> {
    fn is_same(&mut self, path: &str) -> bool {
        if let Some(now) = self.files.get(path) {
            return !matches!(now, Now::Other);
        }
        let now = match self.places.find(path) {
            None => Now::OfLayer,
            Some(place) => {
                let still = self.kept.facts.get(path).and_then(|fact| fact.still(&place));
                still.map_or(Now::Other, Now::Same)
            }
        };
        let is_same = !matches!(now, Now::Other);
        self.files.insert(path.to_owned(), now);
        is_same
    }

    /// Whether a directory that is asked since this file is read would say the same.
    fn says_the_same(&mut self, path: &str) -> bool {
        let Some(folder) = asked::folder(self.places, path) else { return true };
        if let Some(says_the_same) = self.folders.get(folder) {
            return *says_the_same;
        }
        let kept = self.kept;
        let says_the_same =
            kept.asked.get(folder).is_none_or(|files| files.iter().all(|file| self.is_same(file)));
        self.folders.insert(folder.to_owned(), says_the_same);
        says_the_same
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
    use std::path::PathBuf;

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
            Journal::begin(&self.path(), &self.places(), "facts", &Current::default(), began).unwrap()
        }

        fn current(&self) -> Vec<String> {
            let kept = Kept::read(&self.path(), "facts").unwrap();
            let mut locations: Vec<String> = kept.current(&self.places()).stanzas.into_keys().collect();
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
    fn an_answer_is_valid_as_long_as_every_file_is_the_same() {
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
    fn what_another_directory_is_asked_counts() {
        let fixture = Fixture::new();
        fixture.write("a/two/buildlink3.mk", ".include \"../../mk/pkg-build-options.mk\"\n");
        let journal = |files: &str| {
            let mut journal = fixture.begin(BEGAN);
            journal.add("a/one", &stanza("a/one", files)).unwrap();
        };
        journal("Makefile ../../a/two/buildlink3.mk");
        assert_eq!(fixture.current(), ["a/one"]);
        fixture.write("a/two/options.mk", "");
        assert_eq!(fixture.current(), [""; 0], "a file that was not there");
        journal("Makefile ../../a/two/buildlink3.mk");
        assert_eq!(fixture.current(), ["a/one"]);
        fixture.write("a/two/options.mk", "changed");
        assert_eq!(fixture.current(), [""; 0]);
        journal("Makefile");
        fixture.write("a/two/options.mk", "changed again");
        assert_eq!(fixture.current(), ["a/one"], "it did not ask there");
    }

    #[test]
    fn what_is_still_valid_is_not_read_again() {
        let fixture = filled();
        let read = || Kept::read(&fixture.path(), "facts").unwrap().current(&fixture.places());
        let before = read();
        let times = std::fs::metadata(fixture.folder.path().join("mk/x.mk")).unwrap().modified().unwrap();
        // Another content under the same facts would be seen by who reads the file.
        fixture.write("mk/x.mk", "MK/X.MK");
        let file = std::fs::File::open(fixture.folder.path().join("mk/x.mk")).unwrap();
        file.set_modified(times).unwrap();
        Journal::begin(&fixture.path(), &fixture.places(), "facts", &before, BEGAN).unwrap();
        assert_eq!(read().facts, before.facts);
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
