//! Files of sources that are not next to their spec file, and are downloaded.
//!
//! The file `sources` of dist-git names them with digests: a line is `SHA512 (NAME) = DIGEST`. They come from the lookaside cache of
//! the distribution, if the yard has one, or else from the address in the spec file. What has no strong digest is not downloaded.

use super::Rpm;
use kilnyard_ecosystem::rpm::Recipe;
use kilnyard_ecosystem::rpm::recipe::SourceFile;
use kilnyard_mirror::{Client, FileStore, Sha256Hex};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The name of the list of files.
pub const LIST: &str = "sources";
/// The longest list, and the largest file: more than any source has.
const LIST_BYTES_MAX: u64 = 1 << 20;
const FILE_BYTES_MAX: u64 = 16 << 30;
/// How long a file may take: one that is slower would keep all others waiting.
const DOWNLOADED_WITHIN: Duration = Duration::from_secs(1800);
/// How often that is checked, and whether the scan is cancelled.
const STEP: Duration = Duration::from_millis(100);
/// The ending of a file that is being downloaded.
const PART: &str = "download";
/// What is known of files that were downloaded.
const RECORD: &str = "index/sources.json";

/// A digest that a list has, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Sha256(String),
    Sha512(String),
}

impl Expected {
    /// A digest as a line names it; an error is a clause.
    fn parse(kind: &str, text: &str) -> std::result::Result<Expected, String> {
        let digits = match kind.to_ascii_uppercase().as_str() {
            "SHA256" => 64,
            "SHA512" => 128,
            _ => return Err(format!("{kind} is no digest that protects it: SHA512 or SHA256")),
        };
        let text = text.to_ascii_lowercase();
        if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("its {kind} has not {digits} hexadecimal digits"));
        }
        Ok(if digits == 64 { Expected::Sha256(text) } else { Expected::Sha512(text) })
    }

    /// The names of the kind in lists, and in addresses.
    fn kind(&self) -> &'static str {
        match self {
            Expected::Sha256(_) => "sha256",
            Expected::Sha512(_) => "sha512",
        }
    }

    fn text(&self) -> &str {
        match self {
            Expected::Sha256(text) | Expected::Sha512(text) => text,
        }
    }
}

/// The digests of a list, by the name of the file.
fn read_list(text: &str) -> BTreeMap<String, std::result::Result<Expected, String>> {
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts = line.split_once(" (").and_then(|(kind, rest)| {
            let (name, digest) = rest.rsplit_once(") = ")?;
            Some((kind, name, digest.trim()))
        });
        match (parts, line.split_once("  ")) {
            (Some((kind, name, digest)), _) => {
                found.insert(name.to_owned(), Expected::parse(kind, digest));
            }
            // The first form of the list had MD5 only.
            (None, Some((_, name))) => {
                found.insert(name.trim().to_owned(), Expected::parse("MD5", ""));
            }
            (None, None) => {}
        }
    }
    found
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    sha256: String,
    size_bytes: u64,
}

/// Why a file of a source is missing. Each reason is a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It stays missing until the source changes.
    Lasting(String),
    /// The network may be back at the next scan.
    Network(String),
}

/// Downloads into a yard.
pub struct Downloads<'a> {
    pub yard: &'a Yard,
    pub rpm: &'a Rpm,
    pub distfiles: &'a FileStore,
    pub client: &'a Client,
    pub cancel: &'a AtomicBool,
    pub say: &'a dyn Fn(&str),
}

impl Downloads<'_> {
    /// Removes what a killed process left of downloads.
    pub fn tidy(&self) -> io::Result<()> {
        let folder = self.yard.path("index");
        let entries = match fs_err::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == PART) {
                fs_err::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Gets a file that a recipe lists. `folder` has its spec file.
    ///
    /// # Errors
    /// The inner error says why the source cannot be built; the outer one is of this machine.
    pub fn get(
        &self,
        recipe: &Recipe,
        folder: &Path,
        name: &str,
    ) -> Result<std::result::Result<SourceFile, Lack>> {
        let lacks = |why: String| Ok(Err(Lack::Lasting(why)));
        let spec = &recipe.spec;
        let expected = match list_of(folder) {
            Ok(mut list) => list.remove(name),
            Err(error) => return lacks(format!("{LIST} next to {spec} cannot be read: {error}")),
        };
        let expected = match expected {
            Some(Ok(expected)) => expected,
            Some(Err(why)) => return lacks(format!("{name} is not downloaded: {why}")),
            None => {
                return lacks(format!("{name} is not next to {spec}, and no file `{LIST}` has its digest"));
            }
        };
        let lookaside = self.rpm.lookaside.as_deref().map(|form| filled(form, &recipe.name, name, &expected));
        let urls: Vec<String> =
            lookaside.into_iter().chain(recipe.address_of(name).map(str::to_owned)).collect();
        if urls.is_empty() {
            return lacks(format!("{name} is not next to {spec}, which has no address of it"));
        }
        let mut record = self.record();
        let key = format!("{}:{}", expected.kind(), expected.text());
        let file = |known: &Known| SourceFile {
            name: name.to_owned(),
            sha256: known.sha256.clone(),
            size_bytes: known.size_bytes,
            urls: urls.clone(),
        };
        if let Some(known) = record.get(&key)
            && let Ok(hash) = Sha256Hex::parse(&known.sha256)
            && self.distfiles.size_bytes(&hash) == Some(known.size_bytes)
        {
            return Ok(Ok(file(known)));
        }
        (self.say)(&format!("fetching {name} of {}", recipe.name));
        let failed = "keep a downloaded source";
        let part = self.yard.path("index").join(expected.text()).with_extension(PART);
        fs_err::create_dir_all(self.yard.path("index")).context(Kind::Machine, failed)?;
        let accepts = |path: &Path| match digest_of(path, &expected) {
            Ok(found) if found == expected.text() => Ok(()),
            Ok(found) => {
                Err(format!("its {} is {found}, not {}", expected.kind().to_uppercase(), expected.text()))
            }
            Err(error) => Err(format!("it cannot be read: {error}")),
        };
        let is_late = AtomicBool::new(false);
        let fetched = within(DOWNLOADED_WITHIN, self.cancel, &is_late, &mut |cancel| {
            self.client.fetch_accepted(name, &urls, FILE_BYTES_MAX, &part, &accepts, cancel)
        });
        match fetched {
            Ok(()) => {}
            Err(_) if is_late.load(Ordering::Relaxed) => {
                let minutes = DOWNLOADED_WITHIN.as_secs() / 60;
                return Ok(Err(Lack::Network(format!("{name} was not downloaded within {minutes} minutes"))));
            }
            Err(error) if error.is_cancelled() || error.is_disk_full() => {
                return Err(error).context(Kind::Machine, format!("fetch {name}"));
            }
            Err(error) => return Ok(Err(Lack::Network(error.to_string()))),
        }
        let inserted = self.distfiles.insert(&part);
        // It is in the store now, or the error says why not.
        let _ = fs_err::remove_file(&part);
        let (sha256, size_bytes) = inserted.context(Kind::Machine, failed)?;
        let known = Known { sha256: sha256.as_str().to_owned(), size_bytes };
        let file = file(&known);
        record.insert(key, known);
        let text = serde_json::to_vec_pretty(&record).or_internal("write the record of sources")?;
        write_whole(&self.yard.path(RECORD), &text)?;
        Ok(Ok(file))
    }

    fn record(&self) -> BTreeMap<String, Known> {
        let text = fs_err::read(self.yard.path(RECORD)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

/// Does something that can be cancelled: on request, or when it takes too long.
fn within<T>(
    time: Duration,
    cancel: &AtomicBool,
    is_late: &AtomicBool,
    action: &mut dyn FnMut(&AtomicBool) -> T,
) -> T {
    let (until, own) = (Instant::now() + time, AtomicBool::new(false));
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let own = &own;
        scope.spawn(move || {
            // It is over when the sender is gone.
            while is_done.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                let is_over = Instant::now() > until;
                is_late.fetch_or(is_over, Ordering::Relaxed);
                own.fetch_or(is_over || cancel.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        let taken = action(own);
        drop(done);
        taken
    })
}

/// The text of the list in a folder; empty if there is none.
pub fn list_text(folder: &Path) -> io::Result<String> {
    let path = folder.join(LIST);
    if !path.is_file() {
        return Ok(String::new());
    }
    let mut text = String::new();
    fs_err::File::open(path)?.take(LIST_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LIST_BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {LIST_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

fn list_of(folder: &Path) -> io::Result<BTreeMap<String, std::result::Result<Expected, String>>> {
    list_text(folder).map(|text| read_list(&text))
}

/// The address of a file in a lookaside cache.
fn filled(form: &str, package: &str, file: &str, expected: &Expected) -> String {
    form.replace("{name}", package)
        .replace("{file}", file)
        .replace("{type}", expected.kind())
        .replace("{digest}", expected.text())
}

/// Whether a text is the form of addresses of a lookaside cache; an error says what is wrong.
pub fn check_lookaside(form: &str) -> std::result::Result<(), String> {
    if !form.starts_with("https://") && !form.starts_with("http://") {
        return Err(format!("lookaside: `{form}` is no address with https or http"));
    }
    match form.contains("{file}") {
        true => Ok(()),
        false => Err(format!("lookaside: `{form}` has no {{file}}, which stands for the name of the file")),
    }
}

fn digest_of(path: &Path, like: &Expected) -> io::Result<String> {
    match like {
        Expected::Sha256(_) => hash_file::<sha2::Sha256>(path),
        Expected::Sha512(_) => hash_file::<sha2::Sha512>(path),
    }
    .map(|(digest, _)| digest)
}

/// The digest of a file in hexadecimal, and its size.
pub fn hash_file<Hash: sha2::Digest>(path: &Path) -> io::Result<(String, u64)> {
    let mut file = fs_err::File::open(path)?;
    let mut hash = Hash::new();
    let (mut bytes, mut part) = (0, vec![0; 256 << 10]);
    loop {
        match file.read(&mut part)? {
            0 => break,
            count => {
                hash.update(&part[..count]);
                bytes += count as u64;
            }
        }
    }
    Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended() {
        let (cancel, is_late) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut wait = |own: &AtomicBool| {
            while !own.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        within(Duration::ZERO, &cancel, &is_late, &mut wait);
        assert!(is_late.load(Ordering::Relaxed));
        let (cancel, is_late) = (AtomicBool::new(true), AtomicBool::new(false));
        within(Duration::from_secs(3600), &cancel, &is_late, &mut wait);
        assert!(!is_late.load(Ordering::Relaxed));
    }

    #[test]
    fn lists_are_read() {
        let (long, short) = ("A".repeat(128), "b".repeat(64));
        let text = format!(
            "SHA512 (one (x).tar.gz) = {long}\nSHA256 (two) = {short}\n\n# no\nMD5 (three) = x\n\
             d41d8cd98f00b204e9800998ecf8427e  four\nSHA512 (five) = {short}\nnonsense\n"
        );
        let list = read_list(&text);
        assert_eq!(list["one (x).tar.gz"], Ok(Expected::Sha512("a".repeat(128))));
        assert_eq!(list["two"], Ok(Expected::Sha256(short)));
        for (name, why) in
            [("three", "MD5 is no digest"), ("four", "MD5"), ("five", "128 hexadecimal digits")]
        {
            assert!(list[name].as_ref().unwrap_err().contains(why), "{name}");
        }
        assert_eq!(list.len(), 5);
    }

    #[test]
    fn addresses_of_a_lookaside_cache_are_filled_in() {
        let expected = Expected::Sha256("ab".to_owned());
        let form = "https://example.org/{name}/{file}/{type}/{digest}/{file}";
        assert_eq!(filled(form, "zlib", "a.gz", &expected), "https://example.org/zlib/a.gz/sha256/ab/a.gz");
        assert!(check_lookaside(form).is_ok());
        assert!(check_lookaside("file:///x/{file}").is_err() && check_lookaside("https://x/{name}").is_err());
    }
}
