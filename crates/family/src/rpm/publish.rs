//! The repository of an RPM yard: all packages with lists, signed with the yard's key, for dnf and similar tools.

use super::Rpm;
use super::signed::{self, Facts, SignedPackages};
use kilnyard_ecosystem::rpm::universe::Package;
use kilnyard_ecosystem::rpm::{
    Entry, Lists, POOL, PackageFile, SOURCE, Settings, Workshop, described, listed_name, output_of,
    repository, signature,
};
use kilnyard_ecosystem::{Ecosystem, OutputBounds};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::order::{Key, Output};
use kilnyard_publish::{KEYRING_FILE, ListFiles, ListedFile, SignerError, plan_lists};
use kilnyard_signer::client::{Builds, Sources};
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{Build, Built, Evidence};
use kilnyard_store::{Current, OutputRow, Store};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::family::{PublicationTerms, Recovered, ToPublish, broken_output_note};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::words::encoded;
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The repository, below that of the yard.
const FOLDER: &str = "packages";
/// Sets up dnf, at the top of the yard's repository.
const CLIENT_FILE: &str = "kilnyard.repo";
/// Entries of packages by the SHA-256 of their files, so that no file is read again.
const KEPT: &str = "state/entries";

/// The repository of packages.
pub fn packages_folder(yard: &Yard) -> PathBuf {
    yard.repository().join(FOLDER)
}

/// The published lists; none before the first publication.
fn published(yard: &Yard) -> Result<Option<Lists>> {
    let folder = yard.repository().join(FOLDER).join(repository::FOLDER);
    let top = match fs_err::read_to_string(folder.join(repository::TOP)) {
        Ok(top) => top,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(Kind::Machine, "read the repository's lists"),
    };
    let lists = Lists::read(&top, &mut |name| std::fs::read(folder.join(name)));
    lists.map(Some).context(Kind::Machine, "read the repository's lists")
}

/// The published entries, by the name and architecture of their packages.
fn entries_by_name(yard: &Yard) -> Result<HashMap<(String, String), String>> {
    let lists = published(yard)?.unwrap_or_default();
    let named = |entry: &str| {
        let package = described(entry)?;
        Some(((listed_name(&package), package.architecture.to_string()), entry.to_owned()))
    };
    Ok(lists.entries().filter_map(named).collect())
}

/// The highest number of a rebuild in the yard's repository, by source and version of its recipe.
pub fn revisions(yard: &Yard, settings: &Settings) -> Result<HashMap<(String, String), u32>> {
    let mut highest: HashMap<(String, String), u32> = HashMap::new();
    let lists = published(yard)?.unwrap_or_default();
    for package in lists.entries().filter_map(described) {
        // The source package has the name and the version of the source.
        if &*package.architecture != SOURCE {
            continue;
        }
        let Some((recipe, number)) = settings.split(&package.evr.to_string()) else { continue };
        let known = highest.entry((package.name.to_string(), recipe)).or_default();
        *known = number.max(*known);
    }
    Ok(highest)
}

/// Plans the publication of all current outputs of the set.
pub fn make<'a>(
    yard: &Yard,
    store: &'a dyn Store,
    workshop: &Workshop,
    distfiles: &'a FileStore,
    terms: &PublicationTerms,
) -> Result<ToPublish<'a>> {
    // Packages that left the set are withdrawn; packages of the set that could not be built stay published.
    let left_out: HashSet<&str> = workshop.left_out().iter().map(|left| left.name.as_str()).collect();
    let is_in_set = |name: &str| workshop.graph().find(name).is_some() || left_out.contains(name);
    let mut outputs = store.outputs().map_err(store_error)?;
    outputs.retain(|row| is_in_set(&row.package));
    outputs.sort_by(|one, other| one.output.file.cmp(&other.output.file));
    let signed = SignedPackages::of(yard, &terms.fingerprint);
    let (mut entries, mut files, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = None;
    for row in &outputs {
        let output = &row.output;
        let hash = Sha256Hex::parse(&output.sha256).or_internal("read an output")?;
        let is_withheld = terms.withholds(output, &output.architecture);
        let is_there = distfiles.size_bytes(&hash) == Some(output.size_bytes);
        let found = match &signed {
            _ if !is_there || is_withheld => None,
            Some(signed) => signed.facts(output).map(|facts| {
                let Facts { sha256, size_bytes, entry } = facts;
                let (folder, file) = (signed.pool.clone(), signed.path(output));
                (entry, ListedFile { folder, name: output.file.clone(), file, sha256, size_bytes })
            }),
            None => entry(yard, output, &distfiles.path(&hash)).map(|entry| {
                let (sha256, size_bytes) = (output.sha256.clone(), output.size_bytes);
                let (folder, file) = (POOL.to_owned(), distfiles.path(&hash));
                (entry, ListedFile { folder, name: output.file.clone(), file, sha256, size_bytes })
            }),
        };
        if let Some((entry, file)) = found {
            entries.push(entry);
            files.push(file);
            continue;
        }
        // What is published stays in its place. Most publications need none of these lists.
        let published = match &before {
            Some(known) => known,
            None => before.insert(entries_by_name(yard)?),
        };
        let stays = published.get(&(output.name.clone(), output.architecture.clone()));
        let stays = stays.and_then(|entry| published_file(yard, entry));
        // What is there and not signed was refused.
        if !is_withheld && !is_there {
            let file = stays.as_ref().map(|(_, file)| file.name.as_str());
            remarks.push(broken_output_note(output, &row.package, file));
        }
        if let Some((entry, file)) = stays {
            entries.push(entry);
            files.push(file);
        }
    }
    forget_others(yard, &outputs);
    let packages = entries.len() as u64;
    let lists = Lists::new(&entries);
    let (lists, top) = lists.files().context(Kind::Machine, "compress the lists")?;
    let lists = ListFiles {
        folder: repository::FOLDER,
        lists: lists.into_iter().map(|list| (list.name, list.content)).collect(),
        text: (repository::TOP, top),
        client: (CLIENT_FILE, client_file(&yard.repository(), signed.is_some())),
    };
    let at = yard.repository();
    let planned = plan_lists(&at, &files, lists, &terms.public_key);
    Ok(ToPublish {
        publication: planned.context(Kind::Machine, "plan the repository")?,
        builds: Box::new(SourceBuilds { store, distfiles, outputs, signed }),
        packages,
        remarks,
        line_for: "dnf",
        line: format!("cp {} /etc/yum.repos.d/", at.join(CLIENT_FILE).display()),
    })
}

/// The file for `/etc/yum.repos.d` (dnf.conf(5), "repo options").
fn client_file(repository: &Path, has_signed_packages: bool) -> String {
    // A space would begin another address.
    let at = encoded(&repository.to_string_lossy());
    format!(
        "# For other machines, replace file://{at} by the address of the server that has this folder.\n\
         [kilnyard]\nname=Kilnyard\nbaseurl=file://{at}/{FOLDER}\nrepo_gpgcheck=1\ngpgcheck={}\ngpgkey=file://{at}/{KEYRING_FILE}\n",
        u8::from(has_signed_packages)
    )
}

/// The entry of an output, which is read from its file once.
fn entry(yard: &Yard, output: &Output, path: &Path) -> Option<Entry> {
    let kept = yard.path(KEPT).join(&output.sha256);
    let known = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice::<Entry>(&text).ok());
    if let Some(entry) = known.filter(|entry| entry.primary == output.description) {
        return Some(entry);
    }
    let file = PackageFile::read(path, OutputBounds::WIDEST).ok()?;
    let entry = Entry::new(&file, &format!("{POOL}/{}", output.file));
    // Another version of Kilnyard may have described it in other words; those are signed.
    let entry = Entry { primary: output.description.clone(), ..entry };
    let text = serde_json::to_vec(&entry).ok()?;
    // Without it, the file is read again.
    let _ = fs_err::create_dir_all(yard.path(KEPT))
        .map_err(drop)
        .and_then(|()| write_whole(&kept, &text).map_err(drop));
    Some(entry)
}

/// Removes the kept entries of files that are no output any more.
fn forget_others(yard: &Yard, outputs: &[OutputRow]) {
    let needed: HashSet<&str> = outputs.iter().map(|row| row.output.sha256.as_str()).collect();
    for entry in std::fs::read_dir(yard.path(KEPT)).into_iter().flatten().flatten() {
        if !needed.contains(&*entry.file_name().to_string_lossy()) {
            let _ = fs_err::remove_file(entry.path());
        }
    }
}

/// The entry and the file of a published package; `None` if the file is damaged.
fn published_file(yard: &Yard, entry: &str) -> Option<(Entry, ListedFile)> {
    let package = described(entry)?;
    let path: PathBuf = yard.repository().join(FOLDER).join(&*package.location);
    let file = PackageFile::read(&path, OutputBounds::WIDEST).ok()?;
    if *file.sha256 != *package.digest {
        return None;
    }
    let made = Entry::new(&file, &package.location);
    let folder = package.location.rsplit_once('/').map_or("", |(folder, _)| folder);
    let listed = ListedFile {
        folder: folder.to_owned(),
        name: path.file_name()?.to_str()?.to_owned(),
        file: path,
        sha256: file.sha256,
        size_bytes: file.size_bytes,
    };
    Some((Entry { primary: entry.to_owned(), ..made }, listed))
}

/// Finds packages of the repository that the store does not have, and puts their files back into the distfiles.
pub fn recover(yard: &Yard, rpm: &Rpm, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
    let settings = super::set::settings(yard, rpm)?;
    let mut recovered = Recovered::default();
    let lists = published(yard)?.unwrap_or_default();
    let scratch = tempfile::tempdir_in(yard.path("state")).context(Kind::Machine, "make a folder")?;
    let mut of_source: BTreeMap<String, Vec<Output>> = BTreeMap::new();
    for package in lists.entries().filter_map(described) {
        let (path, output) = match built(yard, &package, scratch.path()) {
            Ok(found) => found,
            Err(why) => {
                recovered.remarks.push(format!("{} is lost: {why}", package.location));
                continue;
            }
        };
        if let Err(error) = distfiles.insert(&path) {
            recovered.remarks.push(format!("{} is lost: {error}", package.location));
            continue;
        }
        let source = match &*package.architecture == SOURCE {
            true => package.name.to_string(),
            false => package.source.rsplitn(3, '-').last().unwrap_or_default().to_owned(),
        };
        of_source.entry(source).or_default().push(output);
    }
    for (package, outputs) in of_source {
        let known = store.current(&package).map_err(store_error)?;
        let is_known = |output: &Output| {
            known
                .as_ref()
                .is_some_and(|known| known.outputs.iter().any(|other| other.sha256 == output.sha256))
        };
        if outputs.iter().all(is_known) {
            continue;
        }
        let version =
            outputs.iter().find(|output| output.architecture == SOURCE).map(|output| &output.version);
        let split = version.and_then(|version| settings.split(version));
        let (recipe_version, revision) = split.unwrap_or_default();
        recovered.packages.push(Current {
            package,
            build: 0,
            recipe_version,
            revision,
            key: Key { digest: String::new(), lines: Vec::new() },
            outputs,
        });
    }
    Ok(recovered)
}

/// A published package as it was built, without its signature: its file, which may be in `scratch`, and what it says.
fn built(yard: &Yard, package: &Package, scratch: &Path) -> std::result::Result<(PathBuf, Output), String> {
    let path = packages_folder(yard).join(&*package.location);
    let file = PackageFile::read(&path, OutputBounds::WIDEST).map_err(|error| error.to_string())?;
    if *file.sha256 != *package.digest {
        return Err("it is another file than the list says".to_owned());
    }
    let plain = scratch.join(path.file_name().unwrap_or_default());
    let path = match signature::unsign(&path, &plain).map_err(|error| error.to_string())? {
        Some(_) => plain,
        None => path,
    };
    let output = output_of(&path, OutputBounds::WIDEST).map_err(|error| error.0)?;
    Ok((path, output))
}

/// The builds that packages of the repository are from, for the signer.
struct SourceBuilds<'a> {
    store: &'a dyn Store,
    distfiles: &'a FileStore,
    outputs: Vec<OutputRow>,
    signed: Option<SignedPackages>,
}

impl Sources for SourceBuilds<'_> {
    fn keys(&self, _packages: &[Name]) -> std::result::Result<Vec<String>, SignerError> {
        Ok(Vec::new())
    }

    fn shown(&self, _key: &str) -> std::result::Result<Option<Evidence>, SignerError> {
        Ok(None)
    }
}

impl Builds for SourceBuilds<'_> {
    fn of(&self, packages: &[Name]) -> std::result::Result<Vec<Build>, SignerError> {
        let wanted: HashSet<(&str, &str)> =
            packages.iter().map(|name| (name.name.as_str(), name.variant.as_str())).collect();
        let is_wanted =
            |row: &&OutputRow| wanted.contains(&(row.output.name.as_str(), row.output.architecture.as_str()));
        let mut sources: Vec<&str> =
            self.outputs.iter().filter(is_wanted).map(|row| row.package.as_str()).collect();
        sources.sort_unstable();
        sources.dedup();
        sources.into_iter().map(|source| self.build(source, &wanted)).collect()
    }
}

impl SourceBuilds<'_> {
    /// A build, with the files of those outputs that are asked for.
    fn build(&self, source: &str, wanted: &HashSet<(&str, &str)>) -> std::result::Result<Build, SignerError> {
        let rows: Vec<&OutputRow> = self.outputs.iter().filter(|row| row.package == source).collect();
        let mut outputs = Vec::new();
        for row in &rows {
            let output = &row.output;
            let files = match wanted.contains(&(output.name.as_str(), output.architecture.as_str())) {
                true => {
                    let path = self.distfiles.path(&Sha256Hex::parse(&output.sha256)?);
                    Some(PackageFile::read(&path, OutputBounds::WIDEST)?.files())
                }
                false => None,
            };
            let facts = self.signed.as_ref().and_then(|signed| signed.facts(output));
            let header = facts.as_ref().map(|_| signed::header_of(self.distfiles, output)).transpose()?;
            let listed = facts.map_or_else(|| output.sha256.clone(), |facts| facts.sha256);
            outputs.push(Built { sha256: output.sha256.clone(), listed, header, files });
        }
        Ok(Build {
            source: source.to_owned(),
            package: source.to_owned(),
            declared: rows.iter().map(|row| row.output.name.clone()).collect(),
            outputs,
            statement: self.store.provenance(source)?.map(|found| found.signed),
        })
    }
}
