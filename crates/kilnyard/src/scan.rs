//! The index of the archive: fetched, verified, kept in the yard.
//!
//! `index/index.json` names the files that are valid together; it is replaced as a whole after they are
//! there. So a scan that is killed leaves the index before it.

use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_mirror::{Client, Condition, Fetched, Limits, Sha256Hex, Wanted};
use kilnyard_sign::Keyring;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The largest `InRelease` that is taken; Debian's have 150 kB.
const RELEASE_BYTES_MAX: u64 = 16 << 20;
/// The largest unpacked index that is taken; Debian's have 50 MB. Offsets into it are 32 bits wide.
const INDEX_BYTES_MAX: u64 = 2 << 30;

/// What is kept of an index.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct Kept {
    suites: Vec<KeptSuite>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
struct KeptSuite {
    suite: String,
    /// What the files were asked for: a change of these asks again.
    wanted: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// SHA-256 of the verified `InRelease`.
    release: String,
    date: String,
    packages: Vec<String>,
    sources: Vec<String>,
}

/// The index of a yard.
#[derive(Debug)]
pub struct Index {
    /// A hash of all that it was read from.
    pub identity: String,
    kept: Kept,
}

/// An index as the archive has it, unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// Each `Packages`.
    pub packages: Vec<String>,
    /// Each `Sources`.
    pub sources: Vec<String>,
}

/// What a scan did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Suites whose index is new.
    pub changed: Vec<String>,
    /// Suites whose index is the one that was there.
    pub unchanged: Vec<String>,
}

/// Brings the index up to date. `say` is told what is done.
pub fn scan(yard: &Yard, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<Scanned> {
    let debian = &yard.config.debian;
    let keyring = Keyring::read(&debian.keyring).map_err(|error| {
        Err::<(), _>(error)
            .context(Kind::Machine, "read the keyring of the archive")
            .unwrap_err()
            .hint("as root: apt-get install debian-archive-keyring")
    })?;
    let client = client(yard);
    let before = read_kept(yard).unwrap_or_default();
    let mut scanned = Scanned { changed: Vec::new(), unchanged: Vec::new() };
    let mut kept = Kept::default();
    let suites = std::iter::once(&debian.release).chain(&debian.suites);
    for suite in suites {
        let known = before.suites.iter().find(|kept| kept.suite == *suite);
        let update = Update { yard, client: &client, keyring: &keyring, cancel, say, suite };
        match update.run(known)? {
            Some(new) => {
                scanned.changed.push(suite.clone());
                kept.suites.push(new);
            }
            None => {
                scanned.unchanged.push(suite.clone());
                kept.suites.extend(known.cloned());
            }
        }
    }
    if kept != before {
        let text = serde_json::to_vec_pretty(&kept).or_internal("write the index")?;
        write_whole(&yard.path("index/index.json"), &text)?;
        remove_others(yard, &kept);
    }
    Ok(scanned)
}

/// Asks the mirror for the release; the address that answered.
pub fn ask(yard: &Yard, cancel: &AtomicBool) -> Result<String> {
    let debian = &yard.config.debian;
    let urls: Vec<String> =
        debian.mirror.all().iter().map(|m| format!("{m}/dists/{}/InRelease", debian.release)).collect();
    let name = format!("the Release file of {}", debian.release);
    let asked = client(yard).fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, None, cancel);
    asked.map_err(|error| unreachable_mirror(error, &debian.release))?;
    Ok(debian.mirror.all().join(" or "))
}

/// A client with the yard's limits and the environment's proxy, which this floor alone reads.
pub fn client(yard: &Yard) -> Client {
    let limits = limits(yard);
    let uses_http = yard.config.debian.mirror.all().iter().any(|mirror| mirror.starts_with("http:"));
    let names: &[&str] =
        if uses_http { &["http_proxy", "HTTP_PROXY"] } else { &["https_proxy", "HTTPS_PROXY"] };
    let proxy = names.iter().find_map(|name| std::env::var(name).ok()).filter(|proxy| !proxy.is_empty());
    proxy
        .and_then(|proxy| Client::with_proxy(limits.clone(), &proxy).ok())
        .unwrap_or_else(|| Client::new(limits))
}

fn limits(yard: &Yard) -> Limits {
    Limits { speed_min_bytes_per_second: yard.config.build.mirror_bytes_per_second_min, ..Limits::default() }
}

struct Update<'a> {
    yard: &'a Yard,
    client: &'a Client,
    keyring: &'a Keyring,
    cancel: &'a AtomicBool,
    say: &'a dyn Fn(&str),
    suite: &'a str,
}

impl Update<'_> {
    /// The new index of the suite; none where the one that is there is right.
    fn run(&self, known: Option<&KeptSuite>) -> Result<Option<KeptSuite>> {
        let debian = &self.yard.config.debian;
        let mirrors = debian.mirror.all();
        let wanted = format!(
            "{} {} {}",
            mirrors.join(" "),
            debian.components.join(" "),
            self.yard.config.architecture()
        );
        let known = known.filter(|known| known.wanted == wanted);
        let condition = known
            .map(|known| Condition { etag: known.etag.clone(), last_modified: known.last_modified.clone() });
        let urls: Vec<String> =
            mirrors.iter().map(|m| format!("{m}/dists/{}/InRelease", self.suite)).collect();
        let name = format!("the Release file of {}", self.suite);
        let fetched = self
            .client
            .fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, condition.as_ref(), self.cancel)
            .map_err(|error| unreachable_mirror(error, self.suite))?;
        let Fetched::Body { bytes, etag, last_modified, .. } = fetched else { return Ok(None) };
        let release = Sha256Hex::of(&bytes).as_str().to_owned();
        if known.is_some_and(|known| known.release == release) {
            return Ok(None);
        }
        let verified = self
            .keyring
            .verify_clearsigned(&bytes)
            .context(Kind::Machine, format!("verify {name} from {}", mirrors.join(", ")))?;
        let text = String::from_utf8(verified.text).context(Kind::Machine, format!("read {name}"))?;
        let stanza = Stanza::new(&text);
        self.check(stanza, known)?;
        let mut kept = KeptSuite {
            suite: self.suite.to_owned(),
            wanted,
            etag,
            last_modified,
            release,
            date: stanza.get("Date").unwrap_or("").to_owned(),
            packages: Vec::new(),
            sources: Vec::new(),
        };
        let architecture = self.yard.config.architecture();
        for component in &debian.components {
            let packages = format!("{component}/binary-{architecture}/Packages");
            kept.packages.push(self.file(stanza, &packages)?);
            kept.sources.push(self.file(stanza, &format!("{component}/source/Sources"))?);
        }
        Ok(Some(kept))
    }

    /// A mirror must not give another release, nor an older state than was seen.
    fn check(&self, release: Stanza, known: Option<&KeptSuite>) -> Result<()> {
        let name = self.suite.rsplit('/').next().unwrap_or(self.suite);
        let names = [release.get("Codename"), release.get("Suite")];
        if !names.contains(&Some(name)) && !names.contains(&Some(self.suite)) {
            let is = names.into_iter().flatten().collect::<Vec<_>>().join(" or ");
            return Err(Error::new(
                Kind::Machine,
                format!("the mirror gives {is} where {} was asked", self.suite),
            ));
        }
        let date = |text: &str| jiff::fmt::rfc2822::parse(&text.replace("UTC", "+0000")).ok();
        let now = jiff::Zoned::now();
        if let Some(until) = release.get("Valid-Until").and_then(date)
            && until < now
        {
            let message = format!("the Release file of {} was valid until {until} only", self.suite);
            return Err(Error::new(Kind::Machine, message)
                .hint("another mirror, or a look at this machine's clock: date -u"));
        }
        let dates = (release.get("Date").and_then(date), known.and_then(|known| date(&known.date)));
        if let (Some(new), Some(old)) = dates
            && new < old
        {
            let message = format!("the mirror gives {} of {new}, and {old} was seen before", self.suite);
            return Err(Error::new(Kind::Machine, message).hint("another mirror, or kilnyard clean --index"));
        }
        Ok(())
    }

    /// Fetches an index file, checks it, and keeps it compressed in our own way; its name in `index`.
    fn file(&self, release: Stanza, path: &str) -> Result<String> {
        let list = release.get("SHA256").unwrap_or("");
        let entry = |path: &str| {
            list.lines().find_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [hash, size, name] = words[..] else { return None };
                (name == path).then(|| Some((Sha256Hex::parse(hash).ok()?, size.parse::<u64>().ok()?)))?
            })
        };
        let plain = entry(path);
        let (suffix, (sha256, size_bytes)) = [".xz", ".gz", ""]
            .into_iter()
            .find_map(|suffix| Some((suffix, entry(&format!("{path}{suffix}"))?)))
            .ok_or_else(|| {
                let message = format!("the Release file of {} lists no {path}", self.suite);
                Error::usage(message).hint("components and architecture in kilnyard.toml")
            })?;
        let stem = format!("{}-{}", self.suite, path).replace('/', "-");
        let name = format!("{stem}-{}.zst", &sha256.as_str()[..16]);
        let target = self.yard.path("index").join(&name);
        if target.exists() {
            return Ok(name);
        }
        (self.say)(&format!("fetching {path} of {} ({:.1} MB)", self.suite, size_bytes as f64 / 1e6));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mirrors = self.yard.config.debian.mirror.all();
        let by_hash = release.get("Acquire-By-Hash") == Some("yes");
        let mut urls = Vec::new();
        for mirror in &mirrors {
            let base = format!("{mirror}/dists/{}", self.suite);
            if by_hash {
                urls.push(format!("{base}/{folder}/by-hash/SHA256/{sha256}"));
            }
            urls.push(format!("{base}/{path}{suffix}"));
        }
        let fetched = self.yard.path("index").join(format!("{stem}{suffix}"));
        let wanted = Wanted { urls, sha256, size_bytes, name: format!("{path}{suffix} of {}", self.suite) };
        self.client
            .fetch_checked(&wanted, &fetched, &|_| {}, self.cancel)
            .map_err(|error| unreachable_mirror(error, self.suite))?;
        let failed = format!("unpack {path}{suffix} of {}", self.suite);
        let bytes = unpack(&fetched, suffix).context(Kind::Machine, &failed)?;
        if plain.as_ref().is_some_and(|(hash, _)| *hash != Sha256Hex::of(&bytes)) {
            return Err(Error::new(
                Kind::Machine,
                format!("{path} of {} is not what its Release file says", self.suite),
            ));
        }
        // Names and relations are ASCII; a maintainer's name in another encoding must not stop anything.
        let text = String::from_utf8_lossy(&bytes);
        let packed = zstd::encode_all(text.as_bytes(), 1).or_internal(&failed)?;
        write_whole(&target, &packed)?;
        let _ = fs_err::remove_file(&fetched);
        Ok(name)
    }
}

fn unreachable_mirror(error: kilnyard_mirror::FetchError, suite: &str) -> Error {
    if matches!(error, kilnyard_mirror::FetchError::Cancelled { .. }) {
        return Error::new(Kind::Interrupted, "interrupted; what was fetched so far is kept");
    }
    let failed =
        Err::<(), _>(error).context(Kind::Machine, format!("read {suite} from the mirror")).unwrap_err();
    if !failed.hints.is_empty() {
        // It is this machine's fault, and said so.
        return failed;
    }
    failed
        .hint("kilnyard doctor, which asks the mirror of kilnyard.toml")
        .hint("kilnyard build --no-scan, which does without")
}

fn unpack(path: &Path, suffix: &str) -> std::io::Result<Vec<u8>> {
    let file = fs_err::File::open(path)?;
    let mut bytes = Vec::new();
    let count = match suffix {
        ".xz" => {
            liblzma::read::XzDecoder::new_multi_decoder(file).take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?
        }
        ".gz" => flate2::read::MultiGzDecoder::new(file).take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?,
        _ => file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?,
    };
    if count as u64 == INDEX_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {INDEX_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// Writes a file so that it is there whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = path.with_extension("part");
    let written = fs_err::File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs_err::rename(&part, path)
    });
    written.context(Kind::Machine, format!("write {}", path.display()))
}

fn read_kept(yard: &Yard) -> Option<Kept> {
    serde_json::from_slice(&fs_err::read(yard.path("index/index.json")).ok()?).ok()
}

fn remove_others(yard: &Yard, kept: &Kept) {
    let names: Vec<&String> = kept.suites.iter().flat_map(|s| s.packages.iter().chain(&s.sources)).collect();
    for entry in fs_err::read_dir(yard.path("index")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "index.json" && !names.contains(&&name) {
            // What stays is removed by the next scan.
            let _ = fs_err::remove_file(entry.path());
        }
    }
}

impl Index {
    /// The index as the last scan left it; cheap, nothing is read yet.
    pub fn open(yard: &Yard) -> Result<Index> {
        let kept = read_kept(yard).ok_or_else(|| {
            Error::usage(format!("the yard {} was not scanned yet", yard.folder.display()))
                .hint("kilnyard scan")
        })?;
        let releases: Vec<&str> = kept.suites.iter().map(|suite| suite.release.as_str()).collect();
        let wanted: Vec<&str> = kept.suites.iter().map(|suite| suite.wanted.as_str()).collect();
        let identity = Sha256Hex::of(format!("{releases:?} {wanted:?}").as_bytes()).as_str().to_owned();
        Ok(Index { identity, kept })
    }

    /// The texts of the index.
    pub fn texts(&self, yard: &Yard) -> Result<Texts> {
        let read = |names: fn(&KeptSuite) -> &Vec<String>| {
            self.kept.suites.iter().flat_map(names).map(|name| read_text(yard, name)).collect::<Result<_>>()
        };
        Ok(Texts { packages: read(|suite| &suite.packages)?, sources: read(|suite| &suite.sources)? })
    }

    /// Reads binary and source packages.
    pub fn read(&self, yard: &Yard, universe: &mut Universe, sources: &mut Sources) -> Result<()> {
        for suite in &self.kept.suites {
            for name in &suite.packages {
                universe.add_packages(read_text(yard, name)?.into(), Origin::Archive);
            }
            for name in &suite.sources {
                sources.add(read_text(yard, name)?.into());
            }
        }
        Ok(())
    }
}

fn read_text(yard: &Yard, name: &str) -> Result<String> {
    let path = yard.path("index").join(name);
    let read = fs_err::File::open(&path).and_then(|file| {
        let mut text = String::new();
        zstd::Decoder::new(file)?.read_to_string(&mut text)?;
        Ok(text)
    });
    read.context(Kind::Machine, format!("read the index {name}"))
        .map_err(|error| error.hint("kilnyard clean --index && kilnyard scan"))
}
