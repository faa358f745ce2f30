//! The index: the metadata of the repositories, verified and kept in the yard.
//!
//! `index/index.json` names the files that are valid together. It is replaced atomically after they are complete, so a
//! killed scan leaves the previous index. Lists of all files are fetched only if a relation names a file that no package
//! has in its repository's first list.

use super::config::{Rpm, SOURCES};
use super::keys::Keys;
use kilnyard_ecosystem::rpm::metadata::{Listed, MetadataError, filelists, groups, primary, repomd};
use kilnyard_ecosystem::rpm::universe::{Package, Universe};
use kilnyard_ecosystem::{Compression, decompress};
use kilnyard_mirror::{Client, Condition, Fetched, Sha256Hex, Wanted, without_password};
use kilnyard_model::solver::Candidate;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::Scanned;
use kilnyard_yard::files::write_whole;
use kilnyard_yard::mirror::client;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;

/// The largest `repomd.xml`: real ones have some kilobytes.
const REPOMD_BYTES_MAX: u64 = 4 << 20;
/// The largest file of metadata, as it is stored. Fedora's largest has 60 MB.
const PACKED_BYTES_MAX: u64 = 512 << 20;
/// The largest list of packages, unpacked, which is kept in memory: twice Fedora's.
const PRIMARY_BYTES_MAX: u64 = 512 << 20;
/// The largest list of files, unpacked, of which only wanted ones are kept: twice Fedora's.
const FILELISTS_BYTES_MAX: u64 = 2 << 30;

/// The content of `index/index.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct IndexFile {
    repositories: Vec<IndexRepository>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct IndexRepository {
    /// A hash of the address and the keys, which may contain a password.
    wanted: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// SHA-256 of the verified `repomd.xml`.
    repomd: String,
    primary: File,
    filelists: Option<File>,
    /// The groups of packages.
    #[serde(default)]
    groups: Option<File>,
    /// Whether the files that only the full list has are kept.
    has_files: bool,
}

/// A file of metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    location: String,
    sha256: String,
    size_bytes: u64,
}

impl File {
    /// A file that `list`, the `repomd.xml` of a repository, has as `what`.
    fn of(listed: &Listed, list: &str, what: &str) -> Result<File> {
        let problem = |text: String| Error::new(Kind::Machine, format!("{list} lists {what} {text}"));
        let size_bytes = listed.size_bytes.ok_or_else(|| problem("without its size".to_owned()))?;
        if size_bytes > PACKED_BYTES_MAX {
            return Err(problem(format!("with {size_bytes} bytes, above the limit of {PACKED_BYTES_MAX}")));
        }
        let file = File { location: listed.location.clone(), sha256: listed.sha256.clone(), size_bytes };
        match file.compression() {
            Some(_) => Ok(file),
            None => Err(problem(format!("as {}, whose compression is not supported", listed.location))
                .hint("createrepo_c --general-compress-type=gz")),
        }
    }

    fn compression(&self) -> Option<Compression> {
        let name = self.location.rsplit('/').next().unwrap_or_default();
        Compression::of_suffix(name.split_once(".xml")?.1)
    }

    /// The name in `index`.
    fn name(&self) -> String {
        format!("{}.metadata", self.sha256)
    }
}

/// The index that a yard's last scan left.
#[derive(Debug)]
pub struct Index(IndexFile);

/// The packages of an index.
#[derive(Debug, Default)]
pub struct Packages {
    /// Those that can be installed, finished.
    pub universe: Universe,
    /// The sources.
    pub sources: Vec<Package>,
    /// Number of packages of other architectures.
    pub others: usize,
    /// The groups of packages.
    pub groups: Groups,
}

/// The names of the packages of each group.
pub type Groups = BTreeMap<String, Vec<String>>;

/// Brings the index up to date; `say` receives progress lines.
pub fn scan(yard: &Yard, rpm: &Rpm, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<Scanned> {
    let client = client(yard);
    let before = read_kept(yard).unwrap_or_default();
    let keys = Keys::read(rpm)?;
    let mut scanned = Scanned::default();
    let mut kept = IndexFile::default();
    for address in rpm.addresses() {
        let update = Update { yard, client: &client, address: &address, keys: &keys, cancel, say };
        let wanted = keys.wanted(&address);
        let known = before.repositories.iter().find(|known| known.wanted == wanted);
        let new = update.run(known, wanted)?;
        let is_new = known.is_none_or(|known| known.repomd != new.repomd);
        let list = if is_new { &mut scanned.changed } else { &mut scanned.unchanged };
        list.push(without_password(&address));
        kept.repositories.push(new);
    }
    // Which files relations name is known only with all repositories.
    let needs_files = !Index(kept.clone()).first(yard, rpm)?.0.universe.wanted_files().is_empty();
    for (address, repository) in rpm.addresses().iter().zip(&mut kept.repositories) {
        repository.has_files = needs_files && repository.filelists.is_some();
        if let Some(file) = repository.filelists.as_ref().filter(|_| needs_files) {
            Update { yard, client: &client, address, keys: &keys, cancel, say }.fetch(file)?;
        }
    }
    if kept != before {
        let text = serde_json::to_vec_pretty(&kept).or_internal("write the index")?;
        write_whole(&yard.path("index/index.json"), &text)?;
        remove_others(yard, &kept);
    }
    Ok(scanned)
}

/// The file with the groups of packages: of several forms, one that can be read.
fn groups_of(list: &str, files: &BTreeMap<String, Listed>) -> Result<Option<File>> {
    let of_form = |name: &str| files.get(name).and_then(|listed| File::of(listed, list, "comps.xml").ok());
    Ok(of_form("group_xz")
        .or_else(|| of_form("group_gz"))
        .or_else(|| of_form("group_zst"))
        .or_else(|| of_form("group")))
}

struct Update<'a> {
    yard: &'a Yard,
    client: &'a Client,
    address: &'a str,
    keys: &'a Keys,
    cancel: &'a AtomicBool,
    say: &'a dyn Fn(&str),
}

impl Update<'_> {
    fn run(&self, known: Option<&IndexRepository>, wanted: String) -> Result<IndexRepository> {
        let shown = without_password(self.address);
        let is_whole = |known: &&IndexRepository| self.yard.path("index").join(known.primary.name()).exists();
        let known = known.filter(is_whole);
        let condition = known
            .map(|known| Condition { etag: known.etag.clone(), last_modified: known.last_modified.clone() });
        let name = format!("repomd.xml of {shown}");
        let urls = [format!("{}/repodata/repomd.xml", self.address)];
        let fetched = self
            .client
            .fetch_bytes(&name, &urls, REPOMD_BYTES_MAX, condition.as_ref(), self.cancel)
            .context(Kind::Machine, format!("read the repository {shown}"))
            .map_err(|error| {
                error.hint("repositories in kilnyard.toml: each is the folder that has repodata")
            })?;
        let (bytes, etag, last_modified) = match (fetched, known) {
            (Fetched::Body { bytes, etag, last_modified, .. }, _) => (bytes, etag, last_modified),
            (Fetched::NotModified, Some(known)) => return Ok(known.clone()),
            // The request had no condition, so a correct server cannot answer "not modified".
            (Fetched::NotModified, None) => {
                return Err(Error::new(Kind::Machine, format!("{shown} did not send repomd.xml")));
            }
        };
        let digest = Sha256Hex::of(&bytes).as_str().to_owned();
        if let Some(known) = known.filter(|known| known.repomd == digest) {
            return Ok(IndexRepository { etag, last_modified, ..known.clone() });
        }
        self.verify(&name, &urls[0], &bytes)?;
        let files = repomd(&mut &bytes[..]).context(Kind::Machine, format!("read {name}"))?;
        if files.contains_key("modules") {
            return Err(Error::new(
                Kind::Machine,
                format!("the repository {shown} has modules, several streams of one package, which are not supported"),
            )
            .hint("a repository without modules, in kilnyard.toml"));
        }
        let lacks = || {
            Error::new(Kind::Machine, format!("{name} lists no primary.xml with a SHA-256"))
                .hint("createrepo_c --checksum sha256")
        };
        let repository = IndexRepository {
            wanted,
            etag,
            last_modified,
            repomd: digest,
            primary: File::of(files.get("primary").ok_or_else(lacks)?, &name, "primary.xml")?,
            filelists: files
                .get("filelists")
                .map(|listed| File::of(listed, &name, "filelists.xml"))
                .transpose()?,
            groups: groups_of(&name, &files)?,
            has_files: false,
        };
        self.fetch(&repository.primary)?;
        if let Some(groups) = &repository.groups {
            self.fetch(groups)?;
        }
        Ok(repository)
    }

    fn verify(&self, name: &str, url: &str, bytes: &[u8]) -> Result<()> {
        if !self.keys.sign_metadata {
            return Ok(());
        }
        let what = format!("the signature of {name}");
        let urls = [format!("{url}.asc")];
        let fetched = self
            .client
            .fetch_bytes(&what, &urls, REPOMD_BYTES_MAX, None, self.cancel)
            .context(Kind::Machine, format!("fetch {what}"))?;
        let Fetched::Body { bytes: signature, .. } = fetched else {
            return Err(Error::new(Kind::Machine, format!("there is no {what}")));
        };
        self.keys.verify(bytes, &[signature]).context(Kind::Machine, format!("verify {name}")).map_err(
            |error: Error| {
                error.hint("keys in kilnyard.toml, which names the files with the keys of the repositories")
            },
        )
    }

    fn fetch(&self, file: &File) -> Result<()> {
        let target = self.yard.path("index").join(file.name());
        if target.exists() {
            return Ok(());
        }
        let shown = without_password(self.address);
        let name = format!("{} of {shown}", file.location);
        (self.say)(&format!("fetching {name}"));
        let sha256 = Sha256Hex::parse(&file.sha256).or_internal("read a digest")?;
        let urls = vec![format!("{}/{}", self.address, file.location)];
        let wanted = Wanted { urls, sha256, size_bytes: file.size_bytes, name: name.clone() };
        self.client
            .fetch_checked(&wanted, &target, &|_| (), self.cancel)
            .context(Kind::Machine, format!("fetch {name}"))
    }
}

impl Index {
    /// Opens the index of the last scan. This is cheap: the files are not read yet.
    pub fn open(yard: &Yard) -> Result<Index> {
        read_kept(yard).map(Index).ok_or_else(|| {
            Error::usage(format!("the yard {} has not been scanned yet", yard.folder.display()))
                .hint(Remedy::command("scan"))
        })
    }

    /// A hash that changes whenever the index changes.
    pub fn identity(&self) -> String {
        let digests: Vec<&str> = self.0.repositories.iter().map(|one| one.repomd.as_str()).collect();
        Sha256Hex::of(digests.join(" ").as_bytes()).as_str().to_owned()
    }

    /// Reads all packages.
    pub fn read(&self, yard: &Yard, rpm: &Rpm) -> Result<Packages> {
        let (mut packages, digests) = self.first(yard, rpm)?;
        let universe = &mut packages.universe;
        let wanted = universe.wanted_files();
        for repository in self.0.repositories.iter().filter(|repository| repository.has_files) {
            let Some(file) = &repository.filelists else { continue };
            read(yard, file, FILELISTS_BYTES_MAX, &mut |input| {
                filelists(input, &wanted, &mut |digest, path| match digests.get(digest) {
                    Some(candidate) => universe.add_file(*candidate, path).map_err(failed),
                    None => Ok(()),
                })
            })?;
        }
        universe.finish();
        for file in self.0.repositories.iter().filter_map(|repository| repository.groups.as_ref()) {
            read(yard, file, PRIMARY_BYTES_MAX, &mut |input| {
                for (id, names) in groups(input)? {
                    packages.groups.entry(id).or_default().extend(names);
                }
                Ok(())
            })?;
        }
        Ok(packages)
    }

    /// Reads what the first lists say, and packages by digest. The universe is not finished.
    fn first(&self, yard: &Yard, rpm: &Rpm) -> Result<(Packages, HashMap<Box<str>, Candidate>)> {
        let (mut packages, mut digests) = (Packages::default(), HashMap::new());
        for (number, repository) in self.0.repositories.iter().enumerate() {
            read(yard, &repository.primary, PRIMARY_BYTES_MAX, &mut |input| {
                primary(input, &mut |mut package| {
                    package.repository = number as u32;
                    if SOURCES.contains(&&*package.architecture) {
                        packages.sources.push(package);
                    } else if rpm.installs(&package.architecture) {
                        let digest = package.digest.clone();
                        digests.insert(digest, packages.universe.add(package).map_err(failed)?);
                    } else {
                        packages.others += 1;
                    }
                    Ok(())
                })
            })?;
        }
        Ok((packages, digests))
    }
}

fn failed(error: impl std::fmt::Display) -> MetadataError {
    MetadataError(error.to_string())
}

fn read(
    yard: &Yard,
    file: &File,
    bytes_max: u64,
    parse: &mut dyn FnMut(&mut dyn std::io::Read) -> std::result::Result<(), MetadataError>,
) -> Result<()> {
    let path = yard.path("index").join(file.name());
    let what = format!("read {}", file.location);
    let mut packed = fs_err::File::open(&path).context(Kind::Machine, what.clone())?;
    let compression = file.compression().unwrap_or(Compression::None);
    let mut input = decompress(&mut packed, compression, bytes_max).context(Kind::Machine, what.clone())?;
    parse(&mut input).context(Kind::Machine, what)
}

fn read_kept(yard: &Yard) -> Option<IndexFile> {
    serde_json::from_slice(&fs_err::read(yard.path("index/index.json")).ok()?).ok()
}

fn remove_others(yard: &Yard, kept: &IndexFile) {
    let files = kept
        .repositories
        .iter()
        .flat_map(|one| std::iter::once(&one.primary).chain(&one.filelists).chain(&one.groups));
    let names: BTreeSet<String> = files.map(File::name).collect();
    for entry in fs_err::read_dir(yard.path("index")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".metadata") && !names.contains(&name) {
            // A file that remains is removed by the next scan.
            let _ = fs_err::remove_file(entry.path());
        }
    }
}
