//! Signed packages: each is an `ar` archive of the text `+PKG_HASH`, its signature and the package (pkg_admin(1)), which `pkg_add`
//! verifies. They are kept in the yard, so that a package that has not changed is not signed again.

use kilnyard_ecosystem::hash_of;
use kilnyard_ecosystem::pkgsrc::signed;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::provenance::Signed;
use kilnyard_signer::message::{Build, Built, PackageText};
use kilnyard_store::{OutputRow, Store};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::RefusedPackage;
use kilnyard_yard::files::write_whole;
use kilnyard_yard::signing::Signing;
use kilnyard_yard::yard::{Yard, store_error};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};
use std::collections::HashSet;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder of signed packages in the yard. Below it, there is one for each set of keys.
const FOLDER: &str = "signed";
/// The packages of one question to the signer.
pub const BATCH: usize = 500;
/// The size of a part that is copied, in bytes.
const PART_BYTES: usize = 256 << 10;
/// The name of the signature in the archive.
const SIGNATURE: &str = "+PKG_GPG_SIGNATURE";
/// The name of the text in the archive.
const TEXT: &str = "+PKG_HASH";

/// What is known of a signed package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The SHA-512 of the archive, in hexadecimal.
    pub sha512: String,
    /// The size of the archive in bytes.
    pub size_bytes: u64,
    /// The SHA-256 of the signed text, in hexadecimal.
    pub text: String,
}

/// The signed packages of a yard.
#[derive(Debug)]
pub struct SignedPackages {
    folder: PathBuf,
}

impl SignedPackages {
    /// Those that these public keys verify.
    pub fn of(yard: &Yard, public_key: &str) -> SignedPackages {
        SignedPackages { folder: yard.path(FOLDER).join(&hash_of(public_key)[..16]) }
    }

    /// The archive of an output.
    pub fn path(&self, sha256: &str) -> PathBuf {
        self.folder.join(sha256)
    }

    fn facts_path(&self, sha256: &str) -> PathBuf {
        self.folder.join(format!("{sha256}.json"))
    }

    /// What is known of the archive of an output; none if it is missing or incomplete.
    pub fn facts(&self, sha256: &str) -> Option<Facts> {
        let facts: Facts = serde_json::from_slice(&fs_err::read(self.facts_path(sha256)).ok()?).ok()?;
        let size_bytes = fs_err::metadata(self.path(sha256)).ok()?.len();
        (size_bytes == facts.size_bytes).then_some(facts)
    }

    /// Removes the archives of all other outputs, and those of other keys.
    pub fn keep(&self, sha256: &HashSet<&str>) -> io::Result<()> {
        let own = self.folder.file_name();
        for entry in fs_err::read_dir(self.folder.parent().unwrap_or(&self.folder))? {
            let entry = entry?;
            if Some(entry.file_name().as_os_str()) != own {
                fs_err::remove_dir_all(entry.path())?;
            }
        }
        for entry in fs_err::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !sha256.contains(name.strip_suffix(".json").unwrap_or(&name)) {
                fs_err::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Signs the outputs that have no signed package yet. Returns those that the signer refuses.
///
/// # Errors
/// The signer is away or cannot sign, or a file cannot be read or written.
pub fn sign_missing(
    yard: &Yard,
    store: &dyn Store,
    distfiles: &FileStore,
    signing: &Signing,
    outputs: &[OutputRow],
) -> Result<Vec<RefusedPackage>> {
    let packages = SignedPackages::of(yard, signing.public_armored());
    fs_err::create_dir_all(&packages.folder).context(Kind::Machine, "make the folder of signed packages")?;
    let missing: Vec<&OutputRow> =
        outputs.iter().filter(|row| packages.facts(&row.output.sha256).is_none()).collect();
    let mut refused = Vec::new();
    for batch in missing.chunks(BATCH) {
        // A store has one user.
        let mut built: Vec<(&OutputRow, Option<Signed>)> = Vec::new();
        for row in batch {
            let found = store.provenance(&row.package).map_err(store_error)?;
            built.push((row, found.map(|found| found.signed)));
        }
        let texts = in_parallel(&built, |(row, statement)| text_of(statement.clone(), distfiles, row))?;
        let (signatures, refusals) =
            signing.sign_packages(texts.clone()).context(Kind::Machine, "sign packages")?;
        refused.extend(refusals.iter().map(RefusedPackage::of));
        let signed: Vec<(&OutputRow, &PackageText, String)> = batch
            .iter()
            .zip(&texts)
            .zip(signatures)
            .filter_map(|((row, text), signature)| Some((*row, text, signature?)))
            .collect();
        in_parallel(&signed, |(row, text, signature)| {
            write(&packages, distfiles, row, &text.text, signature)
                .context(Kind::Machine, "write a signed package")
        })?;
    }
    let wanted = outputs.iter().map(|row| row.output.sha256.as_str()).collect();
    packages.keep(&wanted).context(Kind::Machine, "remove signed packages that are no longer needed")?;
    Ok(refused)
}

/// Performs work on all items, on a thread for each core. Results are in the order of the items.
fn in_parallel<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> Result<T> + Sync) -> Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(items.len().max(1));
    let next = AtomicUsize::new(0);
    let done = std::thread::scope(|scope| {
        let perform = || {
            let mut done = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place) else { return Ok(done) };
                done.push((place, work(item)?));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(perform)).collect();
        let joined = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Error::new(Kind::Internal, "a thread that signs packages panicked")))
        });
        joined.collect::<Result<Vec<Vec<(usize, T)>>>>()
    })?;
    let mut done: Vec<(usize, T)> = done.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// The text of an output, with its build.
fn text_of(statement: Option<Signed>, distfiles: &FileStore, row: &OutputRow) -> Result<PackageText> {
    let output = &row.output;
    let failed = || format!("read {}", output.file);
    let path = distfiles.path(&Sha256Hex::parse(&output.sha256).or_internal("read an output")?);
    let mut reader = signed::HashingBlocks::new(fs_err::File::open(path).context(Kind::Machine, failed())?);
    let mut part = vec![0; PART_BYTES];
    while reader.read(&mut part).context(Kind::Machine, failed())? > 0 {}
    let name = format!("{}-{}", output.name, output.version);
    let text = signed::text(&name, output.size_bytes, &reader.finish());
    let source = output.description.lines().find_map(|line| line.strip_prefix("PKGPATH="));
    let listed = hash_of(&text);
    let built = Built { sha256: output.sha256.clone(), listed, files: None, signed: None };
    Ok(PackageText {
        text,
        file: output.file.clone(),
        build: Build {
            source: source.unwrap_or_default().to_owned(),
            package: row.package.clone(),
            declared: vec![output.name.clone()],
            outputs: vec![built],
            statement,
        },
    })
}

/// Writes the archive of an output, and then what is known of it.
fn write(
    packages: &SignedPackages,
    distfiles: &FileStore,
    row: &OutputRow,
    text: &str,
    signature: &str,
) -> io::Result<()> {
    let output = &row.output;
    let from = distfiles.path(&Sha256Hex::parse(&output.sha256).map_err(io::Error::other)?);
    let path = packages.path(&output.sha256);
    let staged = path.with_extension("new");
    let mut out =
        Hashing { out: BufWriter::new(fs_err::File::create(&staged)?), hash: Sha512::new(), size_bytes: 0 };
    out.write_all(b"!<arch>\n")?;
    member(&mut out, TEXT, text.len() as u64, &mut text.as_bytes())?;
    member(&mut out, SIGNATURE, signature.len() as u64, &mut signature.as_bytes())?;
    member(&mut out, &output.file, output.size_bytes, &mut fs_err::File::open(from)?)?;
    let Hashing { out, hash, size_bytes } = out;
    out.into_inner()?.sync_all()?;
    let sha512 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    fs_err::rename(&staged, &path)?;
    let facts = Facts { sha512, size_bytes, text: hash_of(text) };
    write_whole(&packages.facts_path(&output.sha256), &serde_json::to_vec(&facts)?)
        .map_err(|error| io::Error::other(error.one_line()))
}

/// Writes a member of an archive in BSD's form: a name of more than 16 bytes precedes the content (ar(5)).
fn member(out: &mut impl Write, name: &str, size_bytes: u64, content: &mut impl Read) -> io::Result<()> {
    let (short, long) = match name.len() > 16 {
        true => (format!("#1/{}", name.len()), name),
        false => (name.to_owned(), ""),
    };
    let whole = size_bytes + long.len() as u64;
    writeln!(out, "{short:<16}{:<12}{:<6}{:<6}{:<8}{whole:<10}`", 0, 0, 0, 100_644)?;
    out.write_all(long.as_bytes())?;
    let copied = io::copy(&mut content.take(size_bytes), out)?;
    if copied != size_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if whole % 2 == 1 {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A writer that hashes what passes.
struct Hashing<W> {
    out: W,
    hash: Sha512,
    size_bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size_bytes += count as u64;
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
