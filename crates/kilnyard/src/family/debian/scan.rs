//! The index of the archive: fetched, verified, kept in the yard.
//!
//! `index/index.json` names the files that are valid together; it is replaced as a whole after they are
//! there. So a scan that is killed leaves the index before it.

use crate::config::Debian;
use crate::error::{Context, Error, Kind, Result};
use crate::family::Scanned;
use crate::files::write_whole;
use crate::mirror::{RELEASE_BYTES_MAX, client, unreachable_mirror};
use crate::yard::Yard;
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_mirror::{Client, Condition, Fetched, Sha256Hex, Wanted};
use kilnyard_sign::Keyring;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;

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

/// Brings the index up to date. `say` is told what is done.
pub fn scan(yard: &Yard, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<Scanned> {
    let debian = yard.config.debian()?;
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
        let update = Update { yard, debian, client: &client, keyring: &keyring, cancel, say, suite };
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

struct Update<'a> {
    yard: &'a Yard,
    debian: &'a Debian,
    client: &'a Client,
    keyring: &'a Keyring,
    cancel: &'a AtomicBool,
    say: &'a dyn Fn(&str),
    suite: &'a str,
}

impl Update<'_> {
    /// The new index of the suite; none where the one that is there is right.
    fn run(&self, known: Option<&KeptSuite>) -> Result<Option<KeptSuite>> {
        let debian = self.debian;
        let mirrors = debian.mirror.all();
        let wanted =
            format!("{} {} {}", mirrors.join(" "), debian.components.join(" "), self.debian.architecture());
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
        let architecture = self.debian.architecture();
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
        let mirrors = self.debian.mirror.all();
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
