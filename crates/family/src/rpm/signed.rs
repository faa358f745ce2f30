//! Signed packages: package files whose main header is signed, as `rpm` and `dnf` verify them with `gpgcheck=1`. They are kept in the
//! yard, so that a package that has not changed is not signed again: another signature would make it another file.

use super::Rpm;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::OutputBounds;
use kilnyard_ecosystem::rpm::{Entry, POOL, PackageFile, SOURCE, Workshop, signature};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::digests::HEADER;
use kilnyard_model::order::Output;
use kilnyard_signer::judge::lists::bytes_of;
use kilnyard_signer::message::{Build, BuildTexts, Built, PackageText};
use kilnyard_store::{OutputRow, Store};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::RefusedPackage;
use kilnyard_yard::signing::Signing;
use kilnyard_yard::yard::{Yard, store_error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

/// The folder of signed packages in the yard. Below it, there is one for each key.
const FOLDER: &str = "signed";
/// The ending of the file that has what is known of a signed package.
const FACTS: &str = "facts";
/// The packages, and the bytes of headers in hexadecimal and of statements, of one question to the signer.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 64 << 20;
/// The digits of a fingerprint that name a folder of the repository.
const DIGITS: usize = 16;

/// A signed package as the lists have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The SHA-256 of the signed file.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its entries.
    pub entry: Entry,
}

/// The packages that are signed with one key. A file with facts is complete and on disk.
#[derive(Debug)]
pub struct SignedPackages {
    folder: PathBuf,
    /// The folder of the files in the repository. A file that gets the signature of another key has another path, since a path has
    /// one content for ever.
    pub pool: String,
}

/// Whether published packages have signatures of their own.
fn signs(yard: &Yard) -> bool {
    yard.config.family.of::<Rpm>().is_some_and(|rpm| rpm.sign_packages)
}

impl SignedPackages {
    /// Those with the key of this fingerprint; `None` if the yard does not sign packages.
    pub fn of(yard: &Yard, fingerprint: &str) -> Option<SignedPackages> {
        let short = fingerprint.get(..DIGITS).unwrap_or(fingerprint).to_ascii_lowercase();
        signs(yard).then(|| SignedPackages {
            folder: yard.path(FOLDER).join(&short),
            pool: format!("{POOL}/{short}"),
        })
    }

    /// The signed file of an output.
    pub fn path(&self, output: &Output) -> PathBuf {
        self.folder.join(&output.sha256)
    }

    /// What is known of the signed file of an output; `None` if there is none.
    pub fn facts(&self, output: &Output) -> Option<Facts> {
        let path = self.path(output);
        let text = std::fs::read(path.with_extension(FACTS)).ok()?;
        let facts: Facts = serde_json::from_slice(&text).ok()?;
        // Another version of Kilnyard may have described it in other words.
        let is_own = signature::masked(&facts.entry.primary) == signature::masked(&output.description);
        let has_size = fs_err::metadata(&path).is_ok_and(|file| file.len() == facts.size_bytes);
        (is_own && has_size).then_some(facts)
    }

    /// The file of an output before it is known to be on disk.
    fn staged(&self, output: &Output) -> PathBuf {
        self.path(output).with_extension("new")
    }

    /// Gives the staged files of outputs their names, once all of them are on disk.
    fn keep(&self, outputs: &[&Output]) -> Result<()> {
        let part = |output: &Output| self.path(output).with_extension("part");
        for output in outputs {
            let failed = || format!("keep the signed package {}", output.file);
            let staged = self.staged(output);
            let file = PackageFile::read(&staged, OutputBounds::WIDEST).context(Kind::Machine, failed())?;
            let entry = Entry::new(&file, &format!("{}/{}", self.pool, output.file));
            // The words of the output's description are those that its worker signed.
            let primary = signature::described_as(&output.description, &entry.primary);
            let facts =
                Facts { sha256: file.sha256, size_bytes: file.size_bytes, entry: Entry { primary, ..entry } };
            let text = serde_json::to_vec(&facts).or_internal("write what is known of a signed package")?;
            fs_err::write(part(output), text).context(Kind::Machine, failed())?;
        }
        let named = || -> io::Result<()> {
            // One flush for all: each takes some milliseconds, and a build may have thousands of packages.
            rustix::fs::syncfs(fs_err::File::open(&self.folder)?)?;
            for output in outputs {
                fs_err::rename(self.staged(output), self.path(output))?;
                fs_err::rename(part(output), self.path(output).with_extension(FACTS))?;
            }
            Ok(())
        };
        named().context(Kind::Machine, "keep signed packages")
    }

    /// Removes the files of all other outputs, and those of other keys.
    fn forget_others(&self, outputs: &[OutputRow]) -> io::Result<()> {
        let needed: HashSet<&str> = outputs.iter().map(|row| row.output.sha256.as_str()).collect();
        for entry in fs_err::read_dir(self.folder.parent().unwrap_or(&self.folder))? {
            let path = entry?.path();
            if path != self.folder {
                fs_err::remove_dir_all(path)?;
            }
        }
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            if !path.file_stem().is_some_and(|name| needed.contains(&*name.to_string_lossy())) {
                fs_err::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Signs the outputs that have no signed file yet. Returns those that the signer refuses.
///
/// # Errors
/// The signer is away or cannot sign, or a file cannot be read or written.
pub fn sign_missing(
    yard: &Yard,
    workshop: &Workshop,
    store: &dyn Store,
    distfiles: &FileStore,
    signing: &Signing,
) -> Result<Vec<RefusedPackage>> {
    let Some(signed) = SignedPackages::of(yard, &signing.fingerprint()) else { return Ok(Vec::new()) };
    fs_err::create_dir_all(&signed.folder).context(Kind::Machine, "make the folder of signed packages")?;
    let mut outputs = store.outputs().map_err(store_error)?;
    outputs.retain(|row| {
        let hash = Sha256Hex::parse(&row.output.sha256);
        let is_there = hash.is_ok_and(|hash| distfiles.size_bytes(&hash) == Some(row.output.size_bytes));
        is_there && workshop.graph().find(&row.package).is_some()
    });
    let mut builds: BTreeMap<&str, Vec<&OutputRow>> = BTreeMap::new();
    for row in &outputs {
        builds.entry(&row.package).or_default().push(row);
    }
    let (mut refused, mut taken) = (Vec::new(), Vec::new());
    let mut batch = Batch::default();
    for (package, of_build) in builds {
        let mut missing = Vec::new();
        for row in &of_build {
            if signed.facts(&row.output).is_some() {
                continue;
            }
            match take_published(yard, &signed, &row.output)? {
                true => taken.push(&row.output),
                false => missing.push(*row),
            }
        }
        if missing.is_empty() {
            continue;
        }
        let statement = store.provenance(package).map_err(store_error)?.map(|found| found.signed);
        let source = of_build.into_iter().find(|row| row.output.architecture == SOURCE);
        for row in missing {
            // The source package of a build says the epoch of the others.
            for row in source.into_iter().chain([row]) {
                batch.add(distfiles, row, statement.as_ref())?;
            }
            if batch.is_full() {
                refused.extend(sign_batch(&signed, distfiles, signing, std::mem::take(&mut batch))?);
            }
        }
    }
    if !batch.rows.is_empty() {
        refused.extend(sign_batch(&signed, distfiles, signing, batch)?);
    }
    signed.keep(&taken)?;
    signed
        .forget_others(&outputs)
        .context(Kind::Machine, "remove signed packages that are no longer needed")?;
    Ok(refused)
}

/// What is asked at once.
#[derive(Default)]
struct Batch<'a> {
    builds: Vec<BuildTexts>,
    /// Their outputs, in the same order.
    rows: Vec<&'a OutputRow>,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn add(
        &mut self,
        distfiles: &FileStore,
        row: &'a OutputRow,
        statement: Option<&kilnyard_model::provenance::Signed>,
    ) -> Result<()> {
        if self.rows.iter().any(|known| known.output.sha256 == row.output.sha256) {
            return Ok(());
        }
        let (text, built) = text_of(distfiles, row)?;
        self.bytes += text.text.len();
        if self.builds.last().is_none_or(|last| last.build.package != row.package) {
            self.bytes += statement.map_or(0, |signed| signed.statement.len());
            let build = Build {
                source: row.package.clone(),
                package: row.package.clone(),
                declared: Vec::new(),
                outputs: Vec::new(),
                statement: statement.cloned(),
            };
            self.builds.push(BuildTexts { build, texts: Vec::new() });
        }
        if let Some(BuildTexts { build, texts }) = self.builds.last_mut() {
            build.declared.push(row.output.name.clone());
            build.outputs.push(built);
            texts.push(text);
        }
        self.rows.push(row);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH || self.bytes >= BATCH_BYTES
    }
}

/// The header of an output, and the output as its build has it.
fn text_of(distfiles: &FileStore, row: &OutputRow) -> Result<(PackageText, Built)> {
    let output = &row.output;
    let path = distfiles.path(&Sha256Hex::parse(&output.sha256).or_internal("read an output")?);
    let header = signature::header_of(&path).context(Kind::Machine, format!("read {}", output.file))?;
    let listed = kilnyard_signer::hash(&header);
    let built =
        Built { sha256: output.sha256.clone(), listed: listed.clone(), header: Some(listed), files: None };
    Ok((PackageText { text: kilnyard_ecosystem::hex(&header), file: output.file.clone() }, built))
}

/// The digest of the header of an output, which is kept with it or read from its file.
pub fn header_of(distfiles: &FileStore, output: &Output) -> io::Result<String> {
    if let Some(kept) = output.digests.get(HEADER) {
        return Ok(kept.clone());
    }
    let hash = Sha256Hex::parse(&output.sha256).map_err(io::Error::other)?;
    signature::header_of(&distfiles.path(&hash)).map(|header| kilnyard_signer::hash(&header))
}

fn sign_batch(
    signed: &SignedPackages,
    distfiles: &FileStore,
    signing: &Signing,
    Batch { builds, rows, .. }: Batch<'_>,
) -> Result<Vec<RefusedPackage>> {
    let (signatures, refusals) = signing.sign_headers(builds).context(Kind::Machine, "sign packages")?;
    if signatures.len() != rows.len() {
        return Err(Error::new(Kind::Machine, "the signer answers with another number of signatures"));
    }
    let mut made = Vec::new();
    for (row, text) in rows.into_iter().zip(signatures) {
        let output = &row.output;
        let Some(text) = text.filter(|_| signed.facts(output).is_none()) else { continue };
        let failed = || format!("sign {}", output.file);
        let packet = bytes_of(&text).ok_or_else(|| Error::new(Kind::Machine, failed()))?;
        let from = distfiles.path(&Sha256Hex::parse(&output.sha256).or_internal("read an output")?);
        signature::sign(&from, &signed.staged(output), &packet).context(Kind::Machine, failed())?;
        made.push(output);
    }
    signed.keep(&made)?;
    Ok(refusals.iter().map(RefusedPackage::of).collect())
}

/// Stages the signed file of an output from the repository, if it is published there with the same key: a second signature of the same
/// header would make another file at the same path. Returns whether it is there.
fn take_published(yard: &Yard, signed: &SignedPackages, output: &Output) -> Result<bool> {
    let failed = "take a signed package from the repository";
    let published = super::publish::packages_folder(yard).join(&signed.pool).join(&output.file);
    if !published.is_file() {
        return Ok(false);
    }
    let plain = signed.path(output).with_extension("plain");
    let plain_digest = match signature::unsign(&published, &plain) {
        // It is damaged.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            None
        }
        found => found.context(Kind::Machine, failed)?,
    };
    let _ = fs_err::remove_file(&plain);
    match plain_digest.is_some_and(|(sha256, _)| sha256 == output.sha256) {
        true => fs_err::copy(&published, signed.staged(output)).context(Kind::Machine, failed).map(|_| true),
        false => Ok(false),
    }
}

/// The digests of the signed files of an output, of any key.
pub fn digests(yard: &Yard, output: &Output) -> Vec<String> {
    let folders = std::fs::read_dir(yard.path(FOLDER)).into_iter().flatten().flatten();
    let facts = folders.filter_map(|folder| {
        let path = folder.path().join(&output.sha256).with_extension(FACTS);
        serde_json::from_slice::<Facts>(&std::fs::read(path).ok()?).ok()
    });
    facts.map(|facts| facts.sha256).collect()
}
