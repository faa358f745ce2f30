//! The repository of an RPM yard: all packages with lists, signed with the yard's key, for dnf and similar tools.

use super::Rpm;
use kilnyard_ecosystem::rpm::{
    Entry, Lists, POOL, PackageFile, SOURCE, Settings, Workshop, described, listed_name, output_of,
    repository,
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
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The repository, below that of the yard.
const FOLDER: &str = "packages";
/// Entries of packages by the SHA-256 of their files, so that no file is read again.
const KEPT: &str = "state/entries";

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
    let published = published(yard)?.unwrap_or_default();
    let by_name: HashMap<(String, String), &str> = published
        .entries()
        .filter_map(|entry| {
            let package = described(entry)?;
            Some(((listed_name(&package), package.architecture.to_string()), entry))
        })
        .collect();
    let (mut entries, mut files, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    for row in &outputs {
        let output = &row.output;
        let hash = Sha256Hex::parse(&output.sha256).or_internal("read an output")?;
        let is_withheld = terms.withholds(output, &output.architecture);
        let entry = match distfiles.size_bytes(&hash) == Some(output.size_bytes) && !is_withheld {
            true => entry(yard, output, &distfiles.path(&hash)),
            false => None,
        };
        if let Some(entry) = entry {
            files.push(ListedFile {
                folder: POOL,
                name: output.file.clone(),
                file: distfiles.path(&hash),
                sha256: output.sha256.clone(),
                size_bytes: output.size_bytes,
            });
            entries.push(entry);
            continue;
        }
        // What is published stays in its place.
        let stays = by_name.get(&(output.name.clone(), output.architecture.clone()));
        let stays = stays.and_then(|entry| published_file(yard, entry));
        if !is_withheld {
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
    };
    let at = yard.repository();
    let planned = plan_lists(&at, &files, lists, &terms.public_key);
    Ok(ToPublish {
        publication: planned.context(Kind::Machine, "plan the repository")?,
        builds: Box::new(SourceBuilds { store, distfiles, outputs }),
        packages,
        remarks,
        line_for: "a file in /etc/yum.repos.d",
        line: format!(
            "[kilnyard]\n  name=Kilnyard\n  baseurl=file://{0}/{FOLDER}\n  repo_gpgcheck=1\n  gpgcheck=0\n  \
             gpgkey=file://{0}/{KEYRING_FILE}",
            at.display()
        ),
    })
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
    let output =
        output_of(&path, OutputBounds::WIDEST).ok().filter(|output| *output.sha256 == *package.digest)?;
    let file = PackageFile::read(&path, OutputBounds::WIDEST).ok()?;
    let made = Entry::new(&file, &package.location);
    let listed = ListedFile {
        folder: POOL,
        name: output.file,
        file: path,
        sha256: output.sha256,
        size_bytes: output.size_bytes,
    };
    Some((Entry { primary: entry.to_owned(), ..made }, listed))
}

/// Finds packages of the repository that the store does not have, and puts their files back into the distfiles.
pub fn recover(yard: &Yard, rpm: &Rpm, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
    let settings = super::set::settings(yard, rpm)?;
    let mut recovered = Recovered::default();
    let lists = published(yard)?.unwrap_or_default();
    let mut of_source: BTreeMap<String, Vec<Output>> = BTreeMap::new();
    for package in lists.entries().filter_map(described) {
        let path = yard.repository().join(FOLDER).join(&*package.location);
        let output = match output_of(&path, OutputBounds::WIDEST) {
            Ok(output) if *output.sha256 == *package.digest => output,
            Ok(_) => {
                recovered
                    .remarks
                    .push(format!("{} is lost: it is another file than the list says", package.location));
                continue;
            }
            Err(error) => {
                recovered.remarks.push(format!("{} is lost: {error}", package.location));
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

/// The builds that packages of the repository are from, for the signer.
struct SourceBuilds<'a> {
    store: &'a dyn Store,
    distfiles: &'a FileStore,
    outputs: Vec<OutputRow>,
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
            outputs.push(Built { sha256: output.sha256.clone(), listed: output.sha256.clone(), files });
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
