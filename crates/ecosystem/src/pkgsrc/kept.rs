//! The results of a scan, kept so that the next scan only queries directories whose result may have changed.
//!
//! The result of a directory is kept with the files that make read for it (`SCAN_DEPENDS`), each with the hash of
//! its content, and under one hash of everything else that it depends on (the program, its environment, the
//! system). It is valid as long as all of these are unchanged. A file with the same size, modification time and
//! inode number is assumed to have the same content, unless it was written during the scan itself. If make asked
//! another directory for its options, the files that it read there count as well (`asked`).
//!
//! The file is a journal: results are appended, so a killed scan resumes. An incomplete record is dropped with
//! everything after it, even if a disk that lost power put something else in its place. It is text, one record per
//! line:
//!
//! ```text
//! kilnyard-scan 3 FACTS
//! settings CRC32 RULES                             if directories have settings of their own (`ScanSettings`)
//! file SHA256 SIZE MTIME_NANOSECONDS INODE PATH    or "absent 0 0 0" and PATH of a missing file
//! asked CRC32 DIRECTORY PATH...                    more files read by users of its buildlink3.mk
//! scan CRC32 BYTES LOCATION                        followed by this many bytes of stanzas
//! ```

mod asked;
mod fact;
mod journal;

pub use fact::Places;
pub use journal::Journal;

use super::own_settings::ScanSettings;
use super::scan_file::ScanFile;
use fact::Fact;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// The first words of the file, with the version of its format.
const BEGINNING: &str = "kilnyard-scan 3 ";

/// Detects records that were not written completely.
fn checksum(bytes: &[u8]) -> String {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    format!("{:08x}", sum.sum())
}

/// The kept results of a scan; see the module documentation.
#[derive(Debug, Default)]
pub struct KeptScan {
    facts: HashMap<String, Fact>,
    /// The files that are read when a directory is asked for its options.
    asked: HashMap<String, Vec<String>>,
    /// The settings of single directories under which these results were made.
    settings: ScanSettings,
    stanzas: HashMap<String, Vec<u8>>,
}

/// The kept results that are still valid.
#[derive(Debug, Default)]
pub struct Current {
    /// Stanzas by location.
    pub stanzas: HashMap<String, Vec<u8>>,
    /// Facts about unchanged files.
    facts: HashMap<String, Fact>,
}

impl KeptScan {
    /// Reads the kept results; empty if `facts` differs or the file does not exist.
    pub fn read(path: &Path, facts: &str) -> io::Result<KeptScan> {
        let mut kept = KeptScan::default();
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

    /// Parses one record, whose content may continue after its line; returns the remaining bytes, or `None` if the
    /// record is incomplete.
    fn take<'a>(&mut self, line: &str, rest: &'a [u8]) -> Option<&'a [u8]> {
        let (kind, record) = line.split_once(' ')?;
        match kind {
            "file" => {
                let (path, fact) = Fact::read(record)?;
                self.facts.insert(path.to_owned(), fact);
                Some(rest)
            }
            "settings" => {
                let (sum, line) = record.split_once(' ')?;
                self.settings = ScanSettings::parse(line).filter(|_| sum == checksum(line.as_bytes()))?;
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

    /// The kept results that are still valid under these settings of single directories. Each file is checked once.
    pub fn current(mut self, places: &Places, settings: &ScanSettings) -> Current {
        let stanzas = std::mem::take(&mut self.stanzas);
        let (files, folders) = Default::default();
        let mut check = Check { kept: &self, places, settings, files, folders };
        let stanzas = stanzas
            .into_iter()
            .filter(|(location, stanzas)| {
                self.settings.are_same(settings, location)
                    && each_file(location, stanzas, &mut |path| {
                        check.is_same(&path) && check.has_same_options(&path)
                    }) == Some(true)
            })
            .collect();
        let facts = check.files.into_iter().filter_map(|(path, fact)| Some((path, fact.known()?))).collect();
        Current { stanzas, facts }
    }
}

/// Compares kept facts with the current files.
struct Check<'a> {
    kept: &'a KeptScan,
    places: &'a Places,
    settings: &'a ScanSettings,
    files: HashMap<String, Now>,
    /// Whether each directory that is asked for options would give the same result.
    folders: HashMap<String, bool>,
}

/// The current state of a file.
enum Now {
    /// It belongs to a layer, which does not change.
    OfLayer,
    /// It is unchanged.
    Same(Fact),
    /// It has changed, or was not recorded.
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

impl Check<'_> {
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

    /// Whether the directory that make asks after reading this file would give the same result.
    fn has_same_options(&mut self, path: &str) -> bool {
        let Some(folder) = asked::folder(self.places, path) else { return true };
        if let Some(has_same_options) = self.folders.get(folder) {
            return *has_same_options;
        }
        let kept = self.kept;
        let has_same_options = kept.asked.get(folder).is_none_or(|files| {
            kept.settings.are_same(self.settings, folder) && files.iter().all(|file| self.is_same(file))
        });
        self.folders.insert(folder.to_owned(), has_same_options);
        has_same_options
    }
}

/// Calls `each` for every file that make read for a location, as long as it returns true, and returns its last
/// result. `None` if the stanzas name no file: then their dependencies are unknown.
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

/// A path relative to the tree, without `..` if possible.
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
            self.begin_under(&ScanSettings::default(), began)
        }

        fn begin_under(&self, settings: &ScanSettings, began: i128) -> Journal {
            let current = Current::default();
            Journal::begin(&self.path(), &self.places(), "facts", settings, &current, began).unwrap()
        }

        fn current(&self) -> Vec<String> {
            self.current_under(&ScanSettings::default())
        }

        fn current_under(&self, settings: &ScanSettings) -> Vec<String> {
            let kept = KeptScan::read(&self.path(), "facts").unwrap();
            let current = kept.current(&self.places(), settings);
            let mut locations: Vec<String> = current.stanzas.into_keys().collect();
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
    fn a_result_is_valid_as_long_as_every_file_is_unchanged() {
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
    fn files_of_directories_asked_for_options_count() {
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
    fn settings_of_a_directory_count_for_it_and_for_those_that_ask_it() {
        let fixture = Fixture::new();
        fixture.write("a/two/buildlink3.mk", ".include \"../../mk/pkg-build-options.mk\"\n");
        std::fs::create_dir_all(fixture.folder.path().join("a/three")).unwrap();
        fixture.write("a/three/Makefile", "");
        let settings = |line: &str| ScanSettings::parse(line).unwrap();
        let (before, after) = (settings("aa a/two\tbb x/*"), settings("cc a/two\tbb x/*"));
        let mut journal = fixture.begin_under(&before, BEGAN);
        journal.add("a/one", &stanza("a/one", "Makefile ../../a/two/buildlink3.mk")).unwrap();
        journal.add("a/two", &stanza("a/two", "Makefile")).unwrap();
        journal.add("a/three", &stanza("a/three", "Makefile")).unwrap();
        assert_eq!(fixture.current_under(&before), ["a/one", "a/three", "a/two"]);
        assert_eq!(fixture.current_under(&after), ["a/three"]);
        assert_eq!(fixture.current(), ["a/three"], "settings that were removed");
        // A damaged record is dropped with all that follows.
        let bytes = std::fs::read(fixture.path()).unwrap();
        std::fs::write(fixture.path(), String::from_utf8(bytes).unwrap().replace("aa a/two", "ab a/two"))
            .unwrap();
        assert_eq!(fixture.current_under(&settings("ab a/two\tbb x/*")), [""; 0]);
    }

    #[test]
    fn unchanged_files_are_not_read_again() {
        let fixture = filled();
        let none = ScanSettings::default();
        let read = || KeptScan::read(&fixture.path(), "facts").unwrap().current(&fixture.places(), &none);
        let before = read();
        let times = std::fs::metadata(fixture.folder.path().join("mk/x.mk")).unwrap().modified().unwrap();
        // Reading the file would reveal different content with the same size and time.
        fixture.write("mk/x.mk", "MK/X.MK");
        let file = std::fs::File::open(fixture.folder.path().join("mk/x.mk")).unwrap();
        file.set_modified(times).unwrap();
        Journal::begin(&fixture.path(), &fixture.places(), "facts", &none, &before, BEGAN).unwrap();
        assert_eq!(read().facts, before.facts);
    }

    #[test]
    fn other_facts_invalidate_everything() {
        let fixture = filled();
        assert!(KeptScan::read(&fixture.path(), "others").unwrap().stanzas.is_empty());
    }

    #[test]
    fn results_without_files_or_with_files_being_written_are_not_kept() {
        let fixture = Fixture::new();
        let mut journal = fixture.begin(0);
        journal.add("a/one", &stanza("a/one", "Makefile")).unwrap();
        drop(journal);
        let mut journal = fixture.begin(BEGAN);
        journal.add("a/two", b"PKGNAME=x-1\nPKG_LOCATION=a/two\n").unwrap();
        assert_eq!(fixture.current(), [] as [&str; 0]);
    }

    #[test]
    fn a_truncated_journal_keeps_its_complete_records() {
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
