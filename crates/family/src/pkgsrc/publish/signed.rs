//! Signed packages: each is an `ar` archive of the text `+PKG_HASH`, its signature and the package (pkg_admin(1)), which `pkg_add`
//! verifies. They are kept in the yard, so that a package that has not changed is not signed again.

use super::builds::TreeCommits;
use kilnyard_ecosystem::hash_of;
use kilnyard_ecosystem::pkgsrc::signed;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::digests::{BLOCKS, PKG_HASH};
use kilnyard_model::order::Output;
use kilnyard_model::provenance::Signed;
use kilnyard_signer::memory::Name;
use kilnyard_signer::message::{Build, BuildTexts, Built, PackageText};
use kilnyard_store::{OutputRow, Store};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::RefusedPackage;
use kilnyard_yard::signing::Signing;
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// The folder of signed packages in the yard. Below it, there is one for each set of keys.
const FOLDER: &str = "signed";
/// The packages of one question to the signer.
pub const BATCH: usize = 500;
/// The size of a part that is read, in bytes.
const PART_BYTES: usize = 256 << 10;
/// What an archive begins with, and the size of a member's header (ar(5)).
const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;
/// The blocks of file systems.
const ALIGNMENT_BYTES: usize = 4096;
/// The names of the signature in the archive: of OpenPGP, and of X.509.
const SIGNATURES: [&str; 2] = ["+PKG_GPG_SIGNATURE", "+PKG_SIGNATURE"];
/// The name of the text in the archive.
const TEXT: &str = "+PKG_HASH";

/// What is known of a signed package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The size of the archive in bytes.
    pub size_bytes: u64,
    /// The SHA-256 of the signed text, in hexadecimal.
    pub text: String,
}

/// The signed packages of a yard. A file that has its name is complete and on disk.
#[derive(Debug)]
pub struct SignedPackages {
    folder: PathBuf,
}

impl SignedPackages {
    /// Those that these public keys or certificates verify.
    pub fn of(yard: &Yard, public_key: &str) -> SignedPackages {
        SignedPackages { folder: yard.path(FOLDER).join(&hash_of(public_key)[..16]) }
    }

    /// The archive of an output.
    pub fn path(&self, sha256: &str) -> PathBuf {
        self.folder.join(sha256)
    }

    /// What is known of the archive of an output; none if there is none.
    pub fn facts(&self, output: &Output) -> Option<Facts> {
        let path = self.path(&output.sha256);
        let size_bytes = fs_err::metadata(&path).ok()?.len();
        // Outputs of earlier versions have no digest of the text.
        let text = output.digests.get(PKG_HASH).cloned().or_else(|| text_in(&path).ok())?;
        Some(Facts { size_bytes, text })
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
            if !sha256.contains(&*entry.file_name().to_string_lossy()) {
                fs_err::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Signs the outputs that have no signed package yet, and shows the signer the folders that they are from. Returns those that the signer refuses.
///
/// # Errors
/// The signer is away or cannot sign, or a file cannot be read or written.
pub fn sign_missing(
    yard: &Yard,
    store: &dyn Store,
    distfiles: &FileStore,
    signing: &Signing,
    (outputs, commits): (&[OutputRow], &TreeCommits),
) -> Result<Vec<RefusedPackage>> {
    let packages = SignedPackages::of(yard, signing.public_of_packages());
    fs_err::create_dir_all(&packages.folder).context(Kind::Machine, "make the folder of signed packages")?;
    let missing: Vec<&OutputRow> =
        outputs.iter().filter(|row| packages.facts(&row.output).is_none()).collect();
    let refused = std::thread::scope(|scope| {
        // A batch is written while the next one is signed, so that a token is not idle.
        let (sender, batches) = mpsc::sync_channel::<Vec<SignedOutput<'_>>>(1);
        let packages = &packages;
        let writer = scope.spawn(move || {
            batches.into_iter().try_for_each(|batch| write_batch(packages, distfiles, &batch))
        });
        let mut refused = Vec::new();
        let mut sign = || -> Result<()> {
            for batch in missing.chunks(BATCH) {
                let (signed, refusals) = sign_batch(store, distfiles, (signing, commits), batch)?;
                refused.extend(refusals);
                // A writer that ended has failed, and says why.
                if sender.send(signed).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let signed = sign();
        drop(sender);
        let written = writer.join().unwrap_or_else(|_| {
            Err(Error::new(Kind::Internal, "a thread that writes signed packages panicked"))
        });
        written.and(signed).map(|()| refused)
    })?;
    let wanted = outputs.iter().map(|row| row.output.sha256.as_str()).collect();
    packages.keep(&wanted).context(Kind::Machine, "remove signed packages that are no longer needed")?;
    Ok(refused)
}

/// An output, the text that was signed, and its signature.
type SignedOutput<'a> = (&'a OutputRow, String, String);

fn sign_batch<'a>(
    store: &dyn Store,
    distfiles: &FileStore,
    (signing, commits): (&Signing, &TreeCommits),
    batch: &[&'a OutputRow],
) -> Result<(Vec<SignedOutput<'a>>, Vec<RefusedPackage>)> {
    // A store has one user.
    let mut built: Vec<(&OutputRow, Option<Signed>)> = Vec::new();
    for row in batch {
        let found = store.provenance(&row.package).map_err(store_error)?;
        built.push((row, found.map(|found| found.signed)));
    }
    let asked = in_parallel(&built, |(row, statement)| text_of(statement.clone(), distfiles, row))?;
    let name = |row: &&OutputRow| Name { name: row.output.name.clone(), variant: row.output.version.clone() };
    let names: Vec<Name> = batch.iter().map(name).collect();
    let failed = |error| Error::new(Kind::Machine, format!("failed to show the signer the tree: {error}"));
    signing.show_sources(&names, commits).map_err(failed)?;
    let (signatures, refusals) =
        signing.sign_packages(asked.clone()).context(Kind::Machine, "sign packages")?;
    let texts = asked.into_iter().flat_map(|asked| asked.texts);
    let signed = batch.iter().zip(texts).zip(signatures);
    let signed = signed.filter_map(|((row, text), signature)| Some((*row, text.text, signature?)));
    Ok((signed.collect(), refusals.iter().map(RefusedPackage::of).collect()))
}

fn write_batch(packages: &SignedPackages, distfiles: &FileStore, signed: &[SignedOutput<'_>]) -> Result<()> {
    let written = in_parallel(signed, |(row, text, signature)| {
        write(packages, distfiles, row, text, signature).context(Kind::Machine, "write a signed package")
    })?;
    packages.finish(&written).context(Kind::Machine, "write the signed packages")
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

/// The text of an output, with its build. The package itself is read only if the hashes of its blocks were not kept.
fn text_of(statement: Option<Signed>, distfiles: &FileStore, row: &OutputRow) -> Result<BuildTexts> {
    let output = &row.output;
    let name = format!("{}-{}", output.name, output.version);
    let of_blocks = |blocks: &[String]| signed::text(&name, output.size_bytes, blocks);
    let kept = output.digests.get(BLOCKS).map(|kept| of_blocks(&signed::split(kept)));
    // What is kept must be what the digest is of.
    let kept = kept.filter(|text| output.digests.get(PKG_HASH) == Some(&hash_of(text)));
    let text = match kept {
        Some(text) => text,
        None => of_blocks(&read_blocks(distfiles, output)?),
    };
    let source = output.description.lines().find_map(|line| line.strip_prefix("PKGPATH="));
    let built = Built { sha256: output.sha256.clone(), listed: hash_of(&text), header: None, files: None };
    Ok(BuildTexts {
        texts: vec![PackageText { text, file: output.file.clone() }],
        build: Build {
            source: source.unwrap_or_default().to_owned(),
            package: row.package.clone(),
            declared: vec![output.name.clone()],
            outputs: vec![built],
            statement,
        },
    })
}

/// Hashes the blocks of an output.
fn read_blocks(distfiles: &FileStore, output: &Output) -> Result<Vec<String>> {
    let failed = || format!("read {}", output.file);
    let path = distfiles.path(&Sha256Hex::parse(&output.sha256).or_internal("read an output")?);
    let mut reader = signed::HashingBlocks::new(fs_err::File::open(path).context(Kind::Machine, failed())?);
    let mut part = vec![0; PART_BYTES];
    while reader.read(&mut part).context(Kind::Machine, failed())? > 0 {}
    Ok(reader.finish())
}

/// The SHA-256 of the text in an archive, which is its first member.
fn text_in(path: &Path) -> io::Result<String> {
    let mut file = fs_err::File::open(path)?;
    let mut header = [0; MAGIC.len() + HEADER_BYTES];
    file.read_exact(&mut header)?;
    let size = header[MAGIC.len() + 48..MAGIC.len() + 58].trim_ascii();
    let size: u64 = std::str::from_utf8(size)
        .ok()
        .and_then(|size| size.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    let mut text = String::new();
    file.take(size).read_to_string(&mut text)?;
    Ok(hash_of(&text))
}

/// The package in a signed package, written to a file of the same name in `scratch`; none if the file is not signed.
pub fn unpacked(path: &Path, scratch: &Path) -> io::Result<Option<PathBuf>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its archive is damaged");
    let (mut file, _) = fs_err::File::open(path)?.into_parts();
    let mut magic = [0; MAGIC.len()];
    if file.read(&mut magic)? < MAGIC.len() || magic != *MAGIC {
        return Ok(None);
    }
    // The text, its signature, and the package.
    for member in 0..3 {
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        let field = |range: std::ops::Range<usize>| std::str::from_utf8(header[range].trim_ascii()).ok();
        let size: u64 = field(48..58).and_then(|size| size.parse().ok()).ok_or_else(damaged)?;
        let named = field(0..16).and_then(|name| name.strip_prefix("#1/")).map(str::parse::<u64>);
        let named = named.transpose().map_err(|_| damaged())?.unwrap_or(0);
        let content = size.checked_sub(named).ok_or_else(damaged)?;
        io::copy(&mut (&file).take(named), &mut io::sink())?;
        if member == 2 {
            let to = scratch.join(path.file_name().unwrap_or_default());
            let (mut out, _) = fs_err::File::create(&to)?.into_parts();
            return match io::copy(&mut file.take(content), &mut out)? == content {
                true => Ok(Some(to)),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        io::copy(&mut (&file).take(content + size % 2), &mut io::sink())?;
    }
    Err(damaged())
}

/// Writes the archive of an output under a name of its own. Returns it and the final name.
fn write(
    packages: &SignedPackages,
    distfiles: &FileStore,
    row: &OutputRow,
    text: &str,
    signature: &str,
) -> io::Result<(PathBuf, PathBuf)> {
    let output = &row.output;
    let from = distfiles.path(&Sha256Hex::parse(&output.sha256).map_err(io::Error::other)?);
    let path = packages.path(&output.sha256);
    let staged = path.with_extension("new");
    let head = head(text, signature, &output.file, output.size_bytes);
    // The kernel copies between files, where the file system can.
    let (mut out, _) = fs_err::File::create(&staged)?.into_parts();
    out.write_all(&head)?;
    let (from, _) = fs_err::File::open(from)?.into_parts();
    if io::copy(&mut from.take(output.size_bytes), &mut out)? != output.size_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    pad(&mut out, output.size_bytes)?;
    Ok((staged, path))
}

impl SignedPackages {
    /// Gives archives their names, once they are on disk. One flush for all of them is much less work than one for each.
    fn finish(&self, written: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        let folder = fs_err::File::open(&self.folder)?;
        rustix::fs::syncfs(folder.file())?;
        for (staged, path) in written {
            fs_err::rename(staged, path)?;
        }
        folder.sync_all()
    }
}

/// What precedes the package in its archive. The package begins at a multiple of a block, so that a file system can share its blocks
/// with the file that it is copied from (XFS, Btrfs): a signature may have empty lines after its end.
fn head(text: &str, signature: &str, file: &str, size_bytes: u64) -> Vec<u8> {
    let is_x509 = signature.starts_with("-----BEGIN PKCS7-----");
    let with = |lines: usize| {
        let mut head = MAGIC.to_vec();
        member(&mut head, TEXT, text.as_bytes());
        let signature = format!("{signature}{}", "\n".repeat(lines));
        member(&mut head, SIGNATURES[usize::from(is_x509)], signature.as_bytes());
        header(&mut head, file, size_bytes);
        head
    };
    let missing = with(0).len().next_multiple_of(ALIGNMENT_BYTES) - with(0).len();
    // A member is filled up to an even size, so that one line less may be enough.
    let heads = [missing, missing.saturating_sub(1)].map(with);
    heads.into_iter().find(|head| head.len() % ALIGNMENT_BYTES == 0).unwrap_or_else(|| with(0))
}

/// Adds a member of an archive.
fn member(out: &mut Vec<u8>, name: &str, content: &[u8]) {
    header(out, name, content.len() as u64);
    out.extend_from_slice(content);
    // Writing to memory cannot fail.
    let _ = pad(out, content.len() as u64);
}

/// Adds the header of a member in BSD's form: a name of more than 16 bytes precedes the content, filled up to an even size (ar(5)).
fn header(out: &mut Vec<u8>, name: &str, size_bytes: u64) {
    let mut long = String::new();
    if is_long(name) {
        name.clone_into(&mut long);
        long.extend(std::iter::repeat_n('\0', name.len() % 2));
    }
    let short = if long.is_empty() { name.to_owned() } else { format!("#1/{}", long.len()) };
    let whole = size_bytes + long.len() as u64;
    out.extend_from_slice(
        format!("{short:<16}{:<12}{:<6}{:<6}{:<8}{whole:<10}`\n{long}", 0, 0, 0, 100_644).as_bytes(),
    );
}

/// Members begin at even places, and so does what follows their names.
fn pad(out: &mut impl Write, size_bytes: u64) -> io::Result<()> {
    if size_bytes % 2 == 1 { out.write_all(b"\n") } else { Ok(()) }
}

fn is_long(name: &str) -> bool {
    name.len() > 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_begin_at_a_block_whatever_their_names() {
        for file in ["a-1.tgz", "ab-1.tgz", "a-package-with-a-name-1.0.tgz", "a-package-with-names-1.0.tgz"] {
            for lines in 0..3 {
                let signature = format!("-----BEGIN PGP SIGNATURE-----\n{}", "x\n".repeat(lines * 700));
                for odd in ["", "x"] {
                    let head = head("text", &format!("{signature}{odd}"), file, 7);
                    assert_eq!(head.len() % ALIGNMENT_BYTES, 0, "{file} {lines} {odd}");
                }
            }
        }
    }
}
