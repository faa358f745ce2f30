//! The checksums of distfiles: `SHA512 (NAME) = …` and `Size (NAME) = …`, as in distinfo and as `sha512sum --tag` prints them.
//!
//! A tree of recipes has them in `CATEGORY/PACKAGE/distinfo`: which packages a file serves is then known, too. They are read
//! again when a file is not among them, at most once a minute: the tree may have changed.

use crate::expected::{Expected, FileDigest};
use kilnyard_model::sha256::Sha256Hex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The file of a package in a tree.
const DISTINFO: &str = "distinfo";
/// How often they are read again at most.
const READ_EVERY: Duration = Duration::from_secs(60);
/// The largest file of checksums, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// What is known of a distfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distfile {
    /// The contents that lists have for it: several if packages disagree.
    pub expected: Vec<Expected>,
    /// The packages that use it, as their paths in a tree.
    pub packages: BTreeSet<String>,
}

/// All distfiles, by their paths below the folder of distfiles.
pub type Distfiles = HashMap<String, Distfile>;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Checksums {
    sources: Vec<PathBuf>,
    read: Mutex<Option<(Instant, Arc<Distfiles>)>>,
}

impl Checksums {
    /// Those of these files and trees. They are read when they are needed first.
    pub fn new(sources: Vec<PathBuf>) -> Checksums {
        Checksums { sources, read: Mutex::default() }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// What is known of a distfile, by its path below the folder of distfiles. It blocks while lists are read.
    ///
    /// # Errors
    /// A list cannot be read.
    pub fn find(&self, name: &str) -> io::Result<Option<Distfile>> {
        if self.sources.is_empty() {
            return Ok(None);
        }
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, known)) = &*read {
            match known.get(name) {
                Some(found) => return Ok(Some(found.clone())),
                None if at.elapsed() < READ_EVERY => return Ok(None),
                None => {}
            }
        }
        let all = Arc::new(self.read_all()?);
        let found = all.get(name).cloned();
        *read = Some((Instant::now(), all));
        Ok(found)
    }

    /// Everything that is known, read again.
    ///
    /// # Errors
    /// A list cannot be read.
    pub fn all(&self) -> io::Result<Arc<Distfiles>> {
        let all = Arc::new(self.read_all()?);
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), all.clone()));
        Ok(all)
    }

    fn read_all(&self) -> io::Result<Distfiles> {
        let mut all = HashMap::new();
        for source in &self.sources {
            if !fs_err::metadata(source)?.is_dir() {
                add(&mut all, &read(source)?, None);
                continue;
            }
            for category in folders(source)? {
                for package in folders(&source.join(&category))? {
                    let path = source.join(&category).join(&package).join(DISTINFO);
                    match read(&path) {
                        Ok(text) => add(&mut all, &text, Some(&format!("{category}/{package}"))),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(all)
    }
}

fn folders(of: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(of)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string().ok().filter(|name| !name.starts_with('.')));
        }
    }
    Ok(names)
}

fn read(path: &Path) -> io::Result<String> {
    let size = fs_err::metadata(path)?.len();
    if size > BYTES_MAX {
        return Err(io::Error::other(format!("{} is too large for a list of checksums", path.display())));
    }
    Ok(String::from_utf8_lossy(&fs_err::read(path)?).into_owned())
}

/// Adds the files of a list. Lines of another form, and other algorithms, say nothing here.
fn add(all: &mut Distfiles, text: &str, package: Option<&str>) {
    let mut listed: HashMap<&str, (Option<FileDigest>, Option<u64>)> = HashMap::new();
    for line in text.lines() {
        // A name may have parentheses.
        let Some((start, value)) = line.rsplit_once(") = ") else { continue };
        let Some((algorithm, name)) = start.split_once(" (") else { continue };
        let value = value.trim();
        let known = listed.entry(name).or_default();
        match algorithm {
            "SHA512" => known.0 = FileDigest::sha512(value).or(known.0.take()),
            "SHA256" if known.0.is_none() => known.0 = Sha256Hex::parse(value).ok().map(FileDigest::Sha256),
            "Size" => known.1 = value.strip_suffix(" bytes").unwrap_or(value).parse().ok(),
            _ => {}
        }
    }
    for (name, (digest, size)) in listed {
        // The checksums of a package's patches are for no distfile: only these have a size.
        let Some(digest) = digest.filter(|_| package.is_none() || size.is_some()) else { continue };
        let distfile = all.entry(name.to_owned()).or_default();
        let expected = Expected { digest, size };
        if !distfile.expected.contains(&expected) {
            distfile.expected.push(expected);
        }
        distfile.packages.extend(package.map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_trees_are_read_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        let (one, two, list) = ("1".repeat(128), "2".repeat(128), "3".repeat(64));
        put(
            "tree/devel/a/distinfo",
            &format!(
                "$NetBSD$\n\nSHA512 (sub/x (1).tgz) = {one}\nSize (sub/x (1).tgz) = 12 bytes\nSHA1 (patch-aa) = 77\n"
            ),
        );
        put(
            "tree/net/b/distinfo",
            &format!("SHA512 (sub/x (1).tgz) = {two}\nSize (sub/x (1).tgz) = 13 bytes\n"),
        );
        put("tree/net/b/Makefile", "");
        put("tree/README", "");
        put("list", &format!("SHA256 (y.zip) = {list}\nnothing\n"));
        let sources = vec![folder.path().join("tree"), folder.path().join("list")];
        let checksums = Checksums::new(sources);
        let found = checksums.find("sub/x (1).tgz").unwrap().unwrap();
        let mut expected = found.expected;
        expected.sort_by_key(|expected| expected.size);
        assert_eq!(expected[0], Expected { digest: FileDigest::Sha512(one), size: Some(12) });
        assert_eq!(expected[1], Expected { digest: FileDigest::Sha512(two), size: Some(13) });
        assert_eq!(found.packages.into_iter().collect::<Vec<_>>(), ["devel/a", "net/b"]);
        assert_eq!(checksums.find("y.zip").unwrap().unwrap().expected[0].size, None);
        assert_eq!(checksums.find("patch-aa").unwrap(), None);
        // What is new in the tree is seen when all of it is read, or after a minute.
        put("tree/net/c/distinfo", &format!("SHA512 (z) = {}\nSize (z) = 1 bytes\n", "4".repeat(128)));
        assert_eq!(checksums.find("z").unwrap(), None);
        assert!(checksums.all().unwrap().contains_key("z"));
        assert!(checksums.find("z").unwrap().is_some());
        fs_err::remove_file(folder.path().join("list")).unwrap();
        assert!(checksums.all().is_err());
    }
}
