//! Updates one suite of an archive: verifies its `InRelease`, then fetches and keeps its index files.

use super::IndexSuite;
use super::release::{Dates, Refused, parse};
use super::text::{INDEX_BYTES_MAX, keep};
use crate::debian::archives::WantedSuite;
use crate::debian::lock::{self, LockedFile, LockedIndex, kept_name};
use crate::debian::mirror::{Asked, RELEASE_BYTES_MAX, unreachable_mirror};
use jiff::Timestamp;
use kilnyard_ecosystem::debian::deb822::{self, Stanza};
use kilnyard_mirror::{Client, Condition, Fetched, Sha256Hex, Wanted};
use kilnyard_model::foreign::Foreign;
use kilnyard_sign::Keyring;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::words::now_seconds;
use kilnyard_yard::yard::Yard;
use std::sync::atomic::AtomicBool;

/// The inputs for updating one suite.
pub struct Update<'a> {
    pub yard: &'a Yard,
    /// The suite, and the archive that it belongs to.
    pub wanted: &'a WantedSuite<'a>,
    pub architectures: &'a [String],
    pub client: &'a Client,
    /// The keys of this archive alone.
    pub keyring: &'a Keyring,
    pub cancel: &'a AtomicBool,
    pub say: &'a dyn Fn(&str),
    /// The `Date` of the latest accepted `Release` file of this suite, whatever the mirror and the components were
    /// then.
    pub seen: Option<&'a str>,
}

impl Update<'_> {
    /// Returns the new index of the suite; `None` if `known` is still valid.
    pub fn run(&self, known: Option<&IndexSuite>) -> Result<Option<IndexSuite>> {
        let mirrors = self.wanted.mirror.all();
        let wanted = self.identity()?;
        // An index of an earlier version lacks the hashes of its files.
        let known = known.filter(|known| !known.files.is_empty());
        let known = known.filter(|known| known.wanted == wanted);
        // One of a version that did not keep the Release file is fetched again.
        let has_release = |known: &&IndexSuite| {
            known.release_name().is_some_and(|name| self.yard.path("index").join(name).exists())
        };
        let known = known.filter(has_release);
        let condition = known
            .map(|known| Condition { etag: known.etag.clone(), last_modified: known.last_modified.clone() });
        let urls: Vec<String> =
            mirrors.iter().map(|m| format!("{m}/dists/{}/InRelease", self.wanted.suite)).collect();
        let name = format!("the Release file of {}", self.wanted.suite);
        let fetched = self
            .client
            .fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, condition.as_ref(), self.cancel)
            .map_err(|error| unreachable_mirror(error, self.yard, Asked::Suite(self.wanted.suite)))?;
        let (bytes, etag, last_modified) = match (fetched, known) {
            (Fetched::Body { bytes, etag, last_modified, .. }, _) => (bytes, etag, last_modified),
            (Fetched::NotModified, Some(known)) => return self.unchanged(known),
            // The request had no condition, so a correct mirror cannot answer "not modified".
            (Fetched::NotModified, None) => {
                return Err(Error::new(Kind::Machine, format!("the mirror did not send {name}"))
                    .hint("another mirror in kilnyard.toml"));
            }
        };
        let release = Sha256Hex::of(&bytes).as_str().to_owned();
        if let Some(known) = known.filter(|known| known.release == release) {
            return self.unchanged(known);
        }
        let verified = self
            .keyring
            .verify_clearsigned(&bytes)
            .context(Kind::Machine, format!("verify {name} from {}", self.wanted.mirror.shown()))
            .map_err(|error| {
                error.hint(match self.wanted.archive {
                    "" => "keyring in kilnyard.toml, which names the keys of the archive",
                    _ => "key in the table [[archive]] of kilnyard.toml: no other key is accepted for this archive",
                })
            })?;
        let text = deb822::text_of(verified.text);
        let stanza = Stanza::new(&text);
        self.check(stanza)?;
        let date = |field| stanza.get(field).map(str::to_owned);
        let mut kept = IndexSuite {
            archive: self.wanted.archive.to_owned(),
            suite: self.wanted.suite.to_owned(),
            wanted,
            etag,
            last_modified,
            release,
            date: date("Date").unwrap_or_default(),
            valid_until: date("Valid-Until"),
            offered_pin: offered_pin(stanza),
            packages: Vec::new(),
            sources: Vec::new(),
            files: Vec::new(),
        };
        if let Some(name) = kept.release_name() {
            let packed = zstd::encode_all(&bytes[..], 0).or_internal("compress a Release file")?;
            write_whole(&self.yard.path("index").join(name), &packed)?;
        }
        for path in self.wanted.paths(self.architectures) {
            let (name, file) = self.file(stanza, &path)?;
            (if path.ends_with("/Packages") { &mut kept.packages } else { &mut kept.sources }).push(name);
            kept.files.push(file);
        }
        Ok(Some(kept))
    }

    /// A hash of the request. Only a hash is stored: an address may contain a password, and other users can read the
    /// index.
    fn identity(&self) -> Result<String> {
        let mirrors = self.wanted.mirror.all();
        let mut wanted = format!("{mirrors:?} {:?} {}", self.wanted.components, self.architectures.join(" "));
        if !self.wanted.archive.is_empty() {
            // What another key has verified must be verified again.
            let key = fs_err::read(self.wanted.key).context(Kind::Machine, "read the archive's key")?;
            wanted.push_str(Sha256Hex::of(&key).as_str());
        }
        Ok(Sha256Hex::of(wanted.as_bytes()).as_str().to_owned())
    }

    /// The index that a lock names, and whether any of its files had to be fetched. `known` is the same one, if the
    /// yard has it.
    pub fn locked(&self, index: &LockedIndex, known: Option<&IndexSuite>) -> Result<(IndexSuite, bool)> {
        let mut new = known.cloned().unwrap_or_else(|| IndexSuite {
            archive: index.archive.clone(),
            suite: index.suite.as_str().to_owned(),
            release: index.release.sha256().as_str().to_owned(),
            date: index.date.clone(),
            offered_pin: index.offered_pin,
            ..IndexSuite::default()
        });
        new.wanted = self.identity()?;
        new.files.clone_from(&index.files);
        (new.packages, new.sources) = (Vec::new(), Vec::new());
        let mut has_fetched = false;
        for file in &index.files {
            let (path, suffix) = file.path.parts();
            let name = index.kept_name(file);
            if !self.yard.path("index").join(&name).exists() {
                let entry = (file.sha256.sha256().clone(), file.size);
                self.fetch(path, suffix, entry, None, true)
                    .map_err(|error| lock::missing(index, file, error))?;
                has_fetched = true;
            }
            (if path.ends_with("/Packages") { &mut new.packages } else { &mut new.sources }).push(name);
        }
        Ok((new, has_fetched))
    }

    /// The `Release` file is unchanged, but it may have expired since.
    fn unchanged(&self, known: &IndexSuite) -> Result<Option<IndexSuite>> {
        if let (Some(date), valid_until) = (parse(&known.date), known.valid_until.as_deref().and_then(parse))
        {
            self.judge(Dates { date, valid_until }.check_expiry(now()))?;
        }
        Ok(None)
    }

    /// Rejects another suite, a state older than one seen before, and an expired one.
    fn check(&self, release: Stanza) -> Result<()> {
        let name = self.wanted.suite.rsplit('/').next().unwrap_or(self.wanted.suite);
        let names = [release.get("Codename"), release.get("Suite")];
        if !names.contains(&Some(name)) && !names.contains(&Some(self.wanted.suite)) {
            let names = names.into_iter().flatten().map(|name| Foreign(name).to_string());
            let given = names.collect::<Vec<_>>().join(" or ");
            let message = format!("the mirror sent {given} instead of {}", self.wanted.suite);
            return Err(Error::new(Kind::Machine, message)
                .hint("release, suites and mirror in kilnyard.toml; use the codename of a release"));
        }
        self.judge(Dates::of(release).and_then(|dates| dates.check(self.seen.and_then(parse), now())))
    }

    /// Turns the verdict on the dates into an error with a hint, or into a warning if the configuration allows it.
    fn judge(&self, judged: std::result::Result<(), Refused>) -> Result<()> {
        let Err(refused) = judged else { return Ok(()) };
        let message = format!("the Release file of {} {refused}", self.wanted.suite);
        let error = Error::new(Kind::Machine, message);
        Err(match refused {
            Refused::Expired { .. } if !self.wanted.check_valid_until => {
                (self.say)(&format!(
                    "warning: {}: newer packages, including security fixes, may be withheld \
                     (check-valid-until = false in kilnyard.toml)",
                    error.message
                ));
                return Ok(());
            }
            Refused::Expired { .. } => error.hint("another mirror, or this machine's clock: date -u").hint(
                "check-valid-until = false in kilnyard.toml, for a snapshot or a mirror frozen on purpose",
            ),
            Refused::Older { .. } => error.hint(
                Remedy::from("another mirror; or, to accept the older state on purpose, ")
                    .then_command("clean --index")
                    .then(", which removes the dates seen before"),
            ),
            Refused::Ahead { .. } => error.hint("this machine's clock: date -u; or another mirror"),
            Refused::NoDate | Refused::NotADate { .. } => error.hint("another mirror in kilnyard.toml"),
        })
    }

    /// Fetches an index file, verifies it, and stores it with our own compression. Returns its name in `index`.
    fn file(&self, release: Stanza, path: &str) -> Result<(String, LockedFile)> {
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
                let message = format!("the Release file of {} lists no {path}", self.wanted.suite);
                Error::usage(message).hint("components and architecture in kilnyard.toml")
            })?;
        let largest = size_bytes.max(plain.as_ref().map_or(0, |(_, bytes)| *bytes));
        if largest > INDEX_BYTES_MAX {
            let message = format!(
                "{path} of {} has {largest} bytes; the limit is {INDEX_BYTES_MAX}",
                self.wanted.suite
            );
            return Err(Error::new(Kind::Machine, message).hint("another mirror, or fewer components"));
        }
        let by_hash = release.get("Acquire-By-Hash") == Some("yes");
        let file = LockedFile {
            path: format!("{path}{suffix}").try_into().map_err(Error::usage)?,
            sha256: sha256.as_str().parse().map_err(Error::usage)?,
            size: size_bytes,
        };
        let plain = plain.as_ref().map(|(hash, _)| hash);
        Ok((self.fetch(path, suffix, (sha256, size_bytes), plain, by_hash)?, file))
    }

    /// Fetches an index file with this hash and size, unless the yard has it. Returns its name in `index`. `plain` is
    /// the hash of the file without its compression.
    fn fetch(
        &self,
        path: &str,
        suffix: &str,
        (sha256, size_bytes): (Sha256Hex, u64),
        plain: Option<&Sha256Hex>,
        by_hash: bool,
    ) -> Result<String> {
        let name = kept_name(self.wanted.archive, self.wanted.suite, path, &sha256);
        let target = self.yard.path("index").join(&name);
        if target.exists() {
            return Ok(name);
        }
        (self.say)(&format!("fetching {path} of {} ({:.1} MB)", self.wanted.suite, size_bytes as f64 / 1e6));
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mirrors = self.wanted.mirror.all();
        let mut urls = Vec::new();
        for mirror in &mirrors {
            let base = format!("{mirror}/dists/{}", self.wanted.suite);
            if by_hash {
                urls.push(format!("{base}/{folder}/by-hash/SHA256/{sha256}"));
            }
            urls.push(format!("{base}/{path}{suffix}"));
        }
        let fetched = self.yard.path("index").join(format!("{name}{suffix}"));
        let shown = format!("{path}{suffix} of {}", self.wanted.suite);
        let wanted = Wanted { urls, sha256, size_bytes, name: shown.clone() };
        self.client
            .fetch_checked(&wanted, &fetched, &|_| {}, self.cancel)
            .map_err(|error| unreachable_mirror(error, self.yard, Asked::File(self.wanted.suite)))?;
        let kept = keep(&fetched, suffix, plain, &target);
        // Remove it after a failure, too: on a full disk it would keep the disk full.
        let _ = fs_err::remove_file(&fetched);
        kept.map_err(|error| Error { message: format!("failed to unpack {shown}"), ..error })?;
        Ok(name)
    }
}

/// The pin that a `Release` file asks for, as apt_preferences(5) documents; absent for an ordinary suite.
fn offered_pin(release: Stanza) -> Option<i32> {
    let is_set = |field| release.get(field).is_some_and(|value| value.eq_ignore_ascii_case("yes"));
    is_set("NotAutomatic").then(|| if is_set("ButAutomaticUpgrades") { 100 } else { 1 })
}

/// The current time, to the second.
fn now() -> Timestamp {
    // The clock of a running machine is within the range of a timestamp.
    Timestamp::from_second(now_seconds() as i64).unwrap_or(Timestamp::MAX)
}
