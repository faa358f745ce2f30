//! A pkgsrc repository: a folder of binary packages with the indexes that `pkg_add`, `pkgin` and other tools
//! read.
//!
//! ```text
//! packages                                     -> .generations/packages/<number>
//! .generations/packages/<number>/              the public key
//!     All/NAME.tgz                             hard links to the caller's files
//!     All/pkg_summary.gz, pkg_summary.zst      one stanza per package (pkg_summary(5)), sorted by name
//!     All/index                                the same stanzas, to look up one package ([`crate::LookUp`], by name)
//!     All/SHA512, SHA512.gz, SHA512.asc        checksums of the packages and of these indexes, with a signature
//! .staging/, .lock, kilnyard-archive-keyring.asc   as in an apt repository, which may be in the same folder
//! ```
//!
//! [`plan`] decides and [`Publication::execute`] carries out, in the same order and with the same guarantees as
//! for an apt repository (see the crate's documentation). Readers of `packages` see either the complete old or
//! the complete new generation, whenever and however a publication ends. If the packages are equal, nothing is
//! written or signed.
//!
//! There is no pool: the format fixes the paths, and a rebuilt package has the same name but different bytes. Each
//! generation therefore has all of its files, as hard links to the caller's files or, if the checksum is the same, to
//! those of the previous generation. A file that only the previous generation listed is also linked into the new one,
//! unlisted, for readers who fetched the indexes before the switch. The next generation drops it.
//!
//! # Known downside
//!
//! A reader who fetched the index before a switch may get the new file of a rebuilt package, since requests
//! name only the file. `FILE_SIZE` or `SHA512` reveal this, and the reader has to fetch the index again.

mod checksums;
mod current;
mod indexes;
mod published;
pub(crate) mod signed;
mod summary;

pub use indexes::{NAMES as INDEXES_OF_SUMMARY, of_summary as indexes_of_summary};
pub use published::PublishedPackages;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::execute::Signed;
use crate::layout::{ALL, CHECKSUMS, CHECKSUMS_PACKED, KEYRING_FILE, Series};
use crate::operation::Operation;
use crate::plan::plan_key_file;
use crate::pool::check_source;
use crate::state::SeriesState;
use crate::steps::Steps;
use crate::{Checksum, Publication, PublishError, Result, compress, series};
use checksums::Checksums;
use current::Current;
use indexes::Origin;

/// A binary package to list.
#[derive(Debug, Clone)]
pub struct PackageEntry {
    /// `PKGNAME`: the name with the version.
    pub name: String,
    /// File name in the repository: `PKGNAME` with an extension such as `.tgz`.
    pub file_name: String,
    /// Current path of the file. Read only if the repository does not have the file yet.
    pub file: PathBuf,
    /// The SHA-512 of the content, or that of the text which the signature of a signed package signs.
    pub checksum: Checksum,
    /// Size of `file` in bytes, checked before it is placed.
    pub size_bytes: u64,
    /// Its stanza in the summary (pkg_summary(5)), without `FILE_NAME` and `FILE_SIZE`.
    pub summary: String,
}

/// Plans to make the pkgsrc repository in `repository` list exactly these packages, signed with the key whose
/// armored public half is `public_key`. The caller leaves out packages that may not be published.
///
/// Reads the repository and writes nothing. The order of the entries does not affect the indexes. Files in
/// `withheld` are not even kept for readers of the current indexes.
pub fn plan(
    repository: &Path,
    entries: &[PackageEntry],
    withheld: &HashSet<String>,
    public_key: &str,
) -> Result<Publication> {
    let series = Series::of_packages();
    let stanzas = summary::stanzas(entries)?;
    let seen = SeriesState::read(repository, &series)?;
    let mut steps = Steps::new(repository);
    series::clear_leftovers(&series, &seen, &mut steps)?;
    let current = seen.current.map(|number| Current::read(repository, &series, number)).transpose()?;
    plan_key_file(repository, public_key, &mut steps)?;

    let indexes = indexes::make(repository, &stanzas, current.as_ref())?;
    let mut checksums = Checksums::default();
    for entry in entries {
        checksums.insert(&entry.file_name, entry.checksum.clone());
    }
    for index in &indexes {
        checksums.insert(index.name, index.checksum.clone());
    }
    let checksums = checksums.render();

    let files = Files::decide(repository, entries, withheld, current.as_ref())?;
    let is_unchanged = files.missing.is_empty()
        && indexes.iter().all(|index| matches!(index.origin, Origin::Current(_)))
        && current.as_ref().is_some_and(|current| current.says(&checksums, public_key));
    let mut present = Vec::new();
    let new_generation = (!is_unchanged).then(|| series::next(&seen));
    match new_generation {
        Some(number) => {
            let staged = series::begin(&series, &mut steps)?;
            let all = staged.join(ALL);
            steps.make_parent(&all.join(CHECKSUMS))?;
            present = files.plan(&all, &mut steps);
            for index in indexes {
                let path = all.join(index.name);
                steps.add(match index.origin {
                    Origin::New(content) => Operation::Write { path, content },
                    Origin::Current(from) => Operation::Link { from, to: path },
                });
            }
            let packed = compress::gzip(checksums.as_bytes())
                .map_err(|source| PublishError::Compress { index: CHECKSUMS_PACKED.to_owned(), source })?;
            let text = checksums.as_bytes().to_vec();
            let key = public_key.as_bytes().to_vec();
            steps.add(Operation::Write { path: all.join(CHECKSUMS_PACKED), content: packed });
            steps.add(Operation::Write { path: all.join(CHECKSUMS), content: text });
            steps.add(Operation::Write { path: staged.join(KEYRING_FILE), content: key });
            steps.add(Operation::Sign { path: all.join(CHECKSUMS) });
            steps.touch(staged);
            series::switch(&series, number, &mut steps);
        }
        None => steps.sync(),
    }
    series::retire(&series, &seen, usize::from(!is_unchanged), &mut steps)?;

    Ok(Publication {
        repository: repository.to_owned(),
        series,
        seen,
        public_key: public_key.to_owned(),
        signed: Signed::Checksums(checksums),
        operations: steps.into_operations(),
        present,
        new_generation,
    })
}

/// The sources of a new generation's package files.
#[derive(Default)]
struct Files<'a> {
    /// Files to link from the current generation.
    linked: Vec<Linked>,
    /// Files to take from the caller.
    missing: Vec<&'a PackageEntry>,
}

struct Linked {
    name: String,
    from: PathBuf,
    size_bytes: u64,
}

impl<'a> Files<'a> {
    fn decide(
        repository: &Path,
        entries: &'a [PackageEntry],
        withheld: &HashSet<String>,
        current: Option<&Current>,
    ) -> Result<Self> {
        let mut files = Self::default();
        let Some(current) = current else {
            entries.iter().try_for_each(|entry| files.miss(entry))?;
            return Ok(files);
        };
        let size_bytes = |path: &Path| {
            let file = fs_err::symlink_metadata(repository.join(path)).ok()?;
            file.is_file().then_some(file.len())
        };
        let mut listed: BTreeMap<&str, &Checksum> = current.packages().collect();
        for entry in entries {
            let is_same = listed.remove(entry.file_name.as_str()) == Some(&entry.checksum);
            let from = current.path(&entry.file_name);
            let is_same = is_same && size_bytes(&from) == Some(entry.size_bytes);
            // A signed package is listed by what is signed, and not by its signature.
            let is_same = is_same
                && (!matches!(entry.checksum, Checksum::PkgHash(_))
                    || signed::have_one_signature(&repository.join(&from), &entry.file));
            match is_same {
                true => files.link(&entry.file_name, from, entry.size_bytes),
                false => files.miss(entry)?,
            }
        }
        // Readers of the current indexes may still request these.
        for name in listed.into_keys().filter(|name| !withheld.contains(*name)) {
            let from = current.path(name);
            if let Some(size_bytes) = size_bytes(&from) {
                files.link(name, from, size_bytes);
            }
        }
        Ok(files)
    }

    fn link(&mut self, name: &str, from: PathBuf, size_bytes: u64) {
        self.linked.push(Linked { name: name.to_owned(), from, size_bytes });
    }

    fn miss(&mut self, entry: &'a PackageEntry) -> Result<()> {
        check_source(&entry.file, entry.size_bytes)?;
        self.missing.push(entry);
        Ok(())
    }

    /// Plans to put all files into `all`. Returns the files of the current generation that the plan relies on.
    fn plan(self, all: &Path, steps: &mut Steps<'_>) -> Vec<(PathBuf, u64)> {
        for entry in self.missing {
            steps.add(Operation::Place {
                file: entry.file.clone(),
                path: all.join(&entry.file_name),
                size_bytes: entry.size_bytes,
                checksum: entry.checksum.clone(),
                replaces: false,
            });
        }
        let link = |Linked { name, from, size_bytes }| {
            steps.add(Operation::Link { from: from.clone(), to: all.join(name) });
            (from, size_bytes)
        };
        self.linked.into_iter().map(link).collect()
    }
}
