//! The folder of the mirror: complete files under their paths, what is known of each, and those on their way.

use crate::expected::{Expected, Found as Content, Hasher};
use crate::growing::{Follower, Growing};
use crate::pins::Pins;
use crate::route::is_key;
use kilnyard_artifacts::Depot;
use kilnyard_model::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Complete files, below the mirror's folder.
const FILES: &str = "files";
/// What is known of each, under the same paths with an ending that no path has.
const FACTS: &str = "facts";
const FACTS_END: &str = "#.json";
/// Files on their way.
const PARTS: &str = "parts";
/// The most files that stay open.
const OPEN_MAX: usize = 256;
/// How often the use of a file is noted on disk, in seconds: it decides which file is removed first.
const NOTED_EVERY_SECONDS: u64 = 3600;

/// What is known of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its size in bytes.
    #[serde(default)]
    pub size: u64,
    /// Its SHA-256, in hexadecimal.
    #[serde(default)]
    pub sha256: String,
    /// Its SHA-512, if a list has that of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha512: Option<String>,
    /// The encoding in which it is kept and sent: its size is that of this form, its digest that of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Whether the bucket has it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stored: bool,
    /// The origin's name for this content.
    pub etag: Option<String>,
    /// When the origin changed it, as it says so.
    pub last_modified: Option<String>,
    /// The origin's type of it.
    pub content_type: Option<String>,
}

impl Facts {
    /// What is known of content.
    pub fn of(content: Content) -> Facts {
        let Content { sha256, sha512, size } = content;
        Facts { size, sha256, sha512, ..Facts::default() }
    }

    /// The same, for content that no origin has named.
    #[must_use]
    pub fn named(self) -> Facts {
        Facts { etag: Some(format!("\"{}\"", self.sha256)), ..self }
    }

    /// Whether this is one of these contents, as far as is known.
    pub fn may_be(&self, expected: &[Expected]) -> bool {
        let content = Content { sha256: self.sha256.clone(), sha512: self.sha512.clone(), size: self.size };
        // Without its SHA-512, a file from before there was a list is what it was.
        let is_comparable = expected.iter().all(|one| one.is_sha256() || self.sha512.is_some());
        !is_comparable || content.is_one_of(expected)
    }
}

/// A file of the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub key: String,
    /// What is known of it.
    pub facts: Facts,
    /// When it was used last, in seconds since 1970.
    pub used: u64,
    /// Whether it is in the folder; otherwise the bucket alone has it.
    pub is_here: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    keep_bytes: Option<u64>,
    known: Mutex<Known>,
    parts: AtomicU64,
    pins: Pins,
    /// Files that were read lately, open.
    open: Mutex<HashMap<String, Whole>>,
    bucket: Option<Arc<dyn Depot>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Complete files: when each was used last, and its size.
    files: HashMap<String, (u64, u64)>,
    /// The same by age.
    by_age: BTreeSet<(u64, String)>,
    bytes: u64,
    growing: HashMap<String, Arc<Growing>>,
    /// Files that an origin was asked about in the last seconds.
    asked: HashMap<String, Instant>,
}

/// A complete file, opened.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The file.
    pub file: Arc<File>,
    /// What is known of it.
    pub facts: Arc<Facts>,
}

impl Whole {
    /// Whether this is still the file of its name, whole.
    fn is_current(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() > 0 && file.len() == self.facts.size)
    }
}

/// The place of a file that is to be fetched.
#[derive(Debug)]
pub struct Part {
    /// What followers read.
    pub growing: Arc<Growing>,
    path: PathBuf,
    key: String,
}

/// A file as a request finds it.
#[derive(Debug)]
pub enum Found {
    /// It is there.
    Whole(Whole),
    /// It is on its way.
    Growing(Follower),
    /// It is this request's task to fetch it.
    Absent(Part, Follower),
}

impl Cache {
    /// Opens the folder for its server, and makes it if there is none. Files on their way of processes that have ended are removed.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn open(folder: &Path, keep_bytes: Option<u64>) -> io::Result<Cache> {
        let cache = Cache::read(folder, keep_bytes)?;
        for entry in fs_err::read_dir(folder.join(PARTS))? {
            let path = entry?.path();
            let process =
                path.file_name().and_then(|name| name.to_str()?.split('-').next()?.parse::<u32>().ok());
            let is_other = process.is_some_and(|process| {
                process != std::process::id() && Path::new("/proc").join(process.to_string()).exists()
            });
            if !is_other {
                fs_err::remove_file(&path)?;
            }
        }
        Ok(cache)
    }

    /// Opens the folder beside its server.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn read(folder: &Path, keep_bytes: Option<u64>) -> io::Result<Cache> {
        for name in [FILES, FACTS, PARTS] {
            fs_err::create_dir_all(folder.join(name))?;
        }
        let cache = Cache {
            folder: folder.to_owned(),
            keep_bytes,
            known: Mutex::default(),
            parts: AtomicU64::new(0),
            pins: Pins::open(folder)?,
            open: Mutex::default(),
            bucket: None,
        };
        let mut known = Known::default();
        for Listed { key, facts, used, .. } in cache.list()?.into_iter().filter(|listed| listed.is_here) {
            known.insert(key, used, facts.size);
        }
        *cache.known() = known;
        Ok(cache)
    }

    /// The same, with object storage behind it.
    #[must_use]
    pub fn with_bucket(self, bucket: Option<Arc<dyn Depot>>) -> Cache {
        Cache { bucket, ..self }
    }

    /// The object storage behind it.
    pub fn bucket(&self) -> Option<&Arc<dyn Depot>> {
        self.bucket.as_ref()
    }

    /// What is kept whatever its age.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(FILES).join(key)
    }

    fn facts_file(&self, key: &str) -> PathBuf {
        self.folder.join(FACTS).join(format!("{key}{FACTS_END}"))
    }

    /// All complete files.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.join(FACTS)]);
        while let Some(folder) = folders.pop() {
            for entry in fs_err::read_dir(folder)? {
                let entry = entry?;
                let path = entry.path();
                if entry.file_type()?.is_dir() {
                    folders.push(path);
                    continue;
                }
                let key = path.strip_prefix(self.folder.join(FACTS)).ok().and_then(Path::to_str);
                let Some(key) = key.and_then(|key| key.strip_suffix(FACTS_END)) else { continue };
                let Ok(facts) = read_facts(&path) else { continue };
                let used = entry.metadata()?.modified().map_or(0, seconds);
                let is_here = self.file(key).exists();
                if is_here || facts.is_stored {
                    found.push(Listed { key: key.to_owned(), facts, used, is_here });
                }
            }
        }
        Ok(found)
    }

    /// A complete file; none if there is none, or if it is damaged in its size.
    pub fn whole(&self, key: &str) -> Option<Whole> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = open.get(key) {
            if whole.is_current() {
                return Some(whole.clone());
            }
            open.remove(key);
        }
        let facts = Arc::new(read_facts(&self.facts_file(key)).ok()?);
        let (file, _) = fs_err::File::open(self.file(key)).ok()?.into_parts();
        let whole = Whole { file: Arc::new(file), facts };
        if !whole.is_current() {
            return None;
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(key.to_owned(), whole.clone());
        Some(whole)
    }

    /// What is known of a file, here or in the bucket.
    pub fn facts(&self, key: &str) -> Option<Facts> {
        read_facts(&self.facts_file(key)).ok()
    }

    /// Finds a file that is there, or whose content arrives.
    pub fn find_here(&self, key: &str) -> Option<Found> {
        let known = self.known();
        match known.growing.get(key) {
            Some(growing) => growing.has_begun().then(|| Found::Growing(growing.follow())),
            None => self.whole(key).map(Found::Whole),
        }
    }

    /// Finds a file. If it is neither there nor on its way, this request fetches it. One that is there and `must_ask` is on its way, too:
    /// its fetch may find that it is unchanged.
    ///
    /// # Errors
    /// A file for it cannot be made.
    pub fn find(&self, key: &str, must_ask: bool, is_verified_last: bool) -> io::Result<Found> {
        let mut known = self.known();
        if let Some(growing) = known.growing.get(key) {
            return Ok(Found::Growing(growing.follow()));
        }
        if !must_ask && let Some(whole) = self.whole(key) {
            self.note_use(&mut known, key, whole.facts.size);
            return Ok(Found::Whole(whole));
        }
        // Another process may add files beside the server.
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(PARTS).join(format!("{}-{number}", std::process::id()));
        let mut options = fs_err::OpenOptions::new();
        let (file, _) = options.read(true).write(true).create_new(true).open(&path)?.into_parts();
        let growing = Arc::new(Growing::new(file, is_verified_last));
        known.growing.insert(key.to_owned(), growing.clone());
        let follower = growing.follow();
        Ok(Found::Absent(Part { growing, path, key: key.to_owned() }, follower))
    }

    /// Adds a copy of a file under a path. Returns whether the mirror did not have it.
    ///
    /// # Errors
    /// The file cannot be read or kept, is none of these, or the mirror has another one under the path.
    pub fn add(&self, key: &str, from: &Path, expected: &[Expected]) -> io::Result<bool> {
        if !is_key(key) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{key} is not a path of a mirror"),
            ));
        }
        let mut source = fs_err::File::open(from)?;
        let (mut hasher, mut at, mut bytes) = (Hasher::new(true), 0, vec![0; 256 << 10]);
        let part = match self.find(key, false, false)? {
            Found::Absent(part, _) => Some(part),
            Found::Whole(_) | Found::Growing(_) => None,
        };
        let copied = loop {
            let count = match source.read(&mut bytes) {
                Ok(0) => break Ok(()),
                Ok(count) => count,
                Err(error) => break Err(error),
            };
            hasher.update(&bytes[..count]);
            if let Some(part) = &part
                && let Err(error) = part.growing.write(at, &bytes[..count])
            {
                break Err(error);
            }
            at += count as u64;
        };
        let content = hasher.finish();
        let Some(part) = part else {
            copied?;
            let is_same = self.whole(key).is_some_and(|whole| whole.facts.sha256 == content.sha256);
            let other =
                || io::Error::new(io::ErrorKind::AlreadyExists, "the mirror has another file of this name");
            return if is_same { Ok(false) } else { Err(other()) };
        };
        let expects = || match content.is_one_of(expected) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is not the listed one")),
        };
        let kept = copied.and_then(|()| expects()).and_then(|()| part.growing.flush(at));
        let kept = kept.and_then(|()| self.keep(&part, &Facts::of(content.clone()).named()));
        self.forget(&part);
        kept.map(|()| true)
    }

    /// Whether an origin was asked about a file within this time, in seconds.
    pub fn was_asked(&self, key: &str, seconds: u64) -> bool {
        let known = self.known();
        known.asked.get(key).is_some_and(|asked| asked.elapsed().as_secs() < seconds)
    }

    /// Notes that an origin was asked about a file.
    pub fn note_asked(&self, key: &str) {
        let mut known = self.known();
        if known.asked.len() > 10_000 {
            known.asked.clear();
        }
        known.asked.insert(key.to_owned(), Instant::now());
    }

    /// Gives a complete file its name, with what is known of it, and removes what is too much then.
    ///
    /// # Errors
    /// The disk is full, or the folder cannot be written.
    pub fn keep(&self, part: &Part, facts: &Facts) -> io::Result<()> {
        let (file, noted) = (self.file(&part.key), self.facts_file(&part.key));
        for (root, path) in [(FILES, &file), (FACTS, &noted)] {
            self.make_folders(&self.folder.join(root), path)?;
        }
        // What is known of it comes last: without that, it counts as missing.
        let staged = part.path.with_extension("json");
        write_facts(&staged, facts)?;
        let _ = fs_err::remove_file(&noted);
        fs_err::rename(&part.path, &file)?;
        fs_err::rename(&staged, &noted)?;
        let mut known = self.known();
        known.insert(part.key.clone(), now(), facts.size);
        self.remove_oldest(&mut known, &part.key);
        Ok(())
    }

    /// Stores a file in the bucket, unless it has it. It blocks.
    ///
    /// # Errors
    /// The bucket cannot be written.
    pub fn store(&self, key: &str) -> io::Result<()> {
        let (Some(bucket), Some(facts)) = (&self.bucket, self.facts(key)) else { return Ok(()) };
        let Ok(sha256) = Sha256Hex::parse(&facts.sha256) else { return Ok(()) };
        if facts.is_stored || facts.encoding.is_some() {
            return Ok(());
        }
        bucket.deposit(&self.file(key), &sha256, 0.0).map_err(io::Error::other)?;
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let staged = self.folder.join(PARTS).join(format!("{}-{number}.json", std::process::id()));
        let mut known = self.known();
        // Another content may have come in its place meanwhile.
        if self.facts(key).is_some_and(|now| now == facts) {
            write_facts(&staged, &Facts { is_stored: true, ..facts })?;
            fs_err::rename(&staged, self.facts_file(key))?;
        }
        // It may have waited for this alone.
        self.remove_oldest(&mut known, "");
        Ok(())
    }

    /// Makes the folders of a path. A file in their place is no file of an origin, whatever it was answered with, such as a listing:
    /// it would keep out all files below it.
    fn make_folders(&self, root: &Path, path: &Path) -> io::Result<()> {
        let mut folder = root.to_owned();
        let below = path.parent().and_then(|parent| parent.strip_prefix(root).ok());
        for part in below.into_iter().flat_map(Path::components) {
            folder.push(part);
            if folder.is_file()
                && let Some(key) = folder.strip_prefix(root).ok().and_then(Path::to_str)
            {
                self.remove(key)?;
            }
            match fs_err::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the way of a file. Who asks next finds what there is.
    pub fn forget(&self, part: &Part) {
        self.known().growing.remove(&part.key);
        // After `keep`, it has another name.
        let _ = fs_err::remove_file(&part.path);
    }

    /// Removes a file.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, key: &str) -> io::Result<()> {
        self.known().remove(key);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        for path in [self.facts_file(key), self.file(key)] {
            match fs_err::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the least recently used files beyond the size that is kept, and files that nothing is known of. Returns their number.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn collect(&self) -> io::Result<u64> {
        let mut removed = 0;
        let listed = self.list()?.into_iter().filter(|listed| listed.is_here);
        let known: HashSet<String> = listed.map(|listed| listed.key).collect();
        let mut folders = vec![self.folder.join(FILES)];
        while let Some(folder) = folders.pop() {
            for entry in fs_err::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                let path = entry.path();
                let key = path.strip_prefix(self.folder.join(FILES)).ok().and_then(Path::to_str);
                if key.is_none_or(|key| !known.contains(key)) {
                    fs_err::remove_file(&path)?;
                    removed += 1;
                }
            }
        }
        let mut known = self.known();
        let before = known.files.len();
        self.remove_oldest(&mut known, "");
        Ok(removed + (before - known.files.len()) as u64)
    }

    /// Learns what other processes have added and removed, and removes what is too much then.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn update(&self) -> io::Result<()> {
        let listed = self.list()?;
        let mut known = self.known();
        let now: HashSet<&str> =
            listed.iter().filter(|listed| listed.is_here).map(|listed| listed.key.as_str()).collect();
        let gone: Vec<String> =
            known.files.keys().filter(|key| !now.contains(key.as_str())).cloned().collect();
        for key in gone.iter().filter(|key| !self.file(key).exists()) {
            known.remove(key);
        }
        for Listed { key, facts, used, .. } in listed.iter().filter(|listed| listed.is_here) {
            if !known.files.contains_key(key) {
                known.insert(key.clone(), *used, facts.size);
            }
        }
        self.remove_oldest(&mut known, "");
        Ok(())
    }

    /// Reads a file, and says whether it has the digest that is known of it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn verify(&self, listed: &Listed) -> io::Result<bool> {
        let mut file = fs_err::File::open(self.file(&listed.key))?;
        let mut hasher = Hasher::new(false).decoding(listed.facts.encoding.as_deref());
        let mut part = vec![0; 256 << 10];
        loop {
            match file.read(&mut part)? {
                0 => break,
                count => hasher.update(&part[..count]),
            }
        }
        Ok(hasher.finish().sha256 == listed.facts.sha256)
    }

    /// Files and bytes.
    pub fn size(&self) -> (u64, u64) {
        let known = self.known();
        (known.files.len() as u64, known.bytes)
    }

    fn note_use(&self, known: &mut Known, key: &str, size: u64) {
        let now = now();
        // Another process may have added it.
        let used = known.files.get(key).map_or(0, |(used, _)| *used);
        if now.saturating_sub(used) >= NOTED_EVERY_SECONDS {
            known.insert(key.to_owned(), now, size);
            // What fails here makes the file older than it is.
            if let Ok(file) = fs_err::File::open(self.facts_file(key)) {
                let _ = file.into_parts().0.set_modified(UNIX_EPOCH + Duration::from_secs(now));
            }
        }
    }

    fn remove_oldest(&self, known: &mut Known, but: &str) {
        let Some(keep) = self.keep_bytes else { return };
        let pinned = self.pins.pinned();
        let mut kept = Vec::new();
        while known.bytes > keep {
            let Some((_, oldest)) = known.by_age.pop_first() else { break };
            let facts = self.facts(&oldest).unwrap_or_default();
            let is_stored = facts.is_stored;
            // What is encoded is stored nowhere else.
            let is_waiting = self.bucket.is_some() && !is_stored && facts.encoding.is_none();
            if oldest == but || pinned.contains(&oldest) || is_waiting {
                kept.push(oldest);
                continue;
            }
            known.remove(&oldest);
            // Readers that have it open read to its end.
            if !is_stored {
                let _ = fs_err::remove_file(self.facts_file(&oldest));
            }
            let _ = fs_err::remove_file(self.file(&oldest));
        }
        for key in kept {
            let used = known.files.get(&key).map_or(0, |(used, _)| *used);
            known.by_age.insert((used, key));
        }
    }
}

impl Known {
    fn insert(&mut self, key: String, used: u64, size: u64) {
        self.remove(&key);
        self.by_age.insert((used, key.clone()));
        self.files.insert(key, (used, size));
        self.bytes += size;
    }

    fn remove(&mut self, key: &str) {
        if let Some((used, size)) = self.files.remove(key) {
            self.by_age.remove(&(used, key.to_owned()));
            self.bytes -= size;
        }
    }
}

fn write_facts(path: &Path, facts: &Facts) -> io::Result<()> {
    let (mut out, _) = fs_err::File::create(path)?.into_parts();
    io::Write::write_all(&mut out, &serde_json::to_vec(facts)?)?;
    out.sync_all()
}

fn read_facts(path: &Path) -> io::Result<Facts> {
    Ok(serde_json::from_slice(&fs_err::read(path)?)?)
}

/// The time of day, in seconds since 1970.
pub fn now() -> u64 {
    kilnyard_process::time_of_day_seconds() as u64
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
