//! A repository of packages with lists, and one text that names the lists by digest.
//!
//! ```text
//! packages                                     -> .generations/packages/<number>
//! .generations/packages/<number>/              the public key
//!     Packages/NAME                            hard links to the caller's files
//!     <folder>/<list>                          lists, whose names contain their digests
//!     <folder>/<text>, <text>.asc              the text, with a signature
//!     .listed                                  the paths of all these files
//! .staging/, .lock, kilnyard-archive-keyring.asc   as in other repositories
//! <name>                                       a file for the configuration of clients
//! ```
//!
//! The order of steps and the guarantees are those of the other repositories. A file that only the previous generation
//! listed is linked into the new one, too, for readers who fetched the text before the switch; the next generation drops it.
//! The path of a file is that of one content for ever: a rebuild has another version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::execute::Signed;
use crate::layout::{KEYRING_FILE, LISTED, Series, signature_of};
use crate::name::check_file_name;
use crate::operation::Operation;
use crate::plan::{plan_client_file, plan_key_file};
use crate::pool::check_source;
use crate::state::{self, SeriesState};
use crate::steps::Steps;
use crate::{Checksum, Publication, PublishError, Result, series};

/// A package file to list.
#[derive(Debug, Clone)]
pub struct ListedFile {
    /// The folder in the repository, such as `Packages`.
    pub folder: String,
    /// Its name there.
    pub name: String,
    /// Current path of the file. Read only if the repository does not have the file yet.
    pub file: PathBuf,
    /// The SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// Size of `file` in bytes, checked before it is placed.
    pub size_bytes: u64,
}

/// The lists of all packages.
#[derive(Debug, Clone)]
pub struct ListFiles {
    /// Their folder in the repository.
    pub folder: &'static str,
    /// Name and content of each; a name contains the digest of the content.
    pub lists: Vec<(String, Vec<u8>)>,
    /// The name of the text that names them, and the text.
    pub text: (&'static str, String),
    /// The name of a file at the top of the repository, for the configuration of clients, and its text.
    pub client: (&'static str, String),
}

/// Plans to make the repository list exactly these packages, signed with the key whose armored public half is `public_key`.
///
/// Reads the repository and writes nothing.
///
/// # Errors
/// A name cannot be one, a file is not what it should be, or the repository cannot be read.
pub fn plan(
    repository: &Path,
    files: &[ListedFile],
    lists: ListFiles,
    public_key: &str,
) -> Result<Publication> {
    let series = Series::of_packages();
    let seen = SeriesState::read(repository, &series)?;
    let mut steps = Steps::new(repository);
    series::clear_leftovers(&series, &seen, &mut steps)?;
    plan_key_file(repository, public_key, &mut steps)?;
    let ListFiles { folder, lists, text: (name, text), client } = lists;
    plan_client_file(repository, client.0, &client.1, &mut steps)?;
    let top = Path::new(folder).join(name);
    let current = seen.current.map(|number| series.generation(number));
    let has = |path: &Path, size_bytes: Option<u64>| {
        let current = current.as_ref()?.join(path);
        let file = fs_err::symlink_metadata(repository.join(&current)).ok().filter(|file| file.is_file())?;
        size_bytes.is_none_or(|size| size == file.len()).then_some((current, file.len()))
    };
    let mut wanted: BTreeMap<PathBuf, Option<&ListedFile>> = BTreeMap::new();
    let mut is_unchanged = says(repository, current.as_deref(), &top, &text, public_key)?;
    for file in files {
        check_file_name(&file.name)?;
        let path = Path::new(&file.folder).join(&file.name);
        is_unchanged &= has(&path, Some(file.size_bytes)).is_some();
        if wanted.insert(path, Some(file)).is_some() {
            return Err(PublishError::Input {
                what: "file name",
                value: crate::name::shortened(&file.name),
                reason: "two packages have it",
            });
        }
    }
    for (name, _) in &lists {
        let path = Path::new(folder).join(name);
        is_unchanged &= has(&path, None).is_some();
    }
    let mut present = Vec::new();
    let new_generation = (!is_unchanged).then(|| series::next(&seen));
    match new_generation {
        Some(number) => {
            let staged = series::begin(&series, &mut steps)?;
            let mut listed: Vec<String> = Vec::new();
            for (path, file) in &wanted {
                let to = staged.join(path);
                steps.make_parent(&to)?;
                listed.push(path.display().to_string());
                let Some(file) = file else { continue };
                match has(path, Some(file.size_bytes)) {
                    Some((from, size_bytes)) => {
                        steps.add(Operation::Link { from: from.clone(), to });
                        present.push((from, size_bytes));
                    }
                    None => {
                        check_source(&file.file, file.size_bytes)?;
                        steps.add(Operation::Place {
                            file: file.file.clone(),
                            path: to,
                            size_bytes: file.size_bytes,
                            checksum: Checksum::Sha256(file.sha256.clone()),
                            replaces: false,
                        });
                    }
                }
            }
            for (name, content) in lists {
                let path = Path::new(folder).join(&name);
                listed.push(path.display().to_string());
                let to = staged.join(&path);
                steps.make_parent(&to)?;
                steps.add(Operation::Write { path: to, content });
            }
            // Readers of the current text may still request these.
            for path in listed_by(repository, current.as_deref()) {
                let is_new = !listed.iter().any(|new| Path::new(new) == path);
                if let Some((from, size_bytes)) = has(&path, None).filter(|_| is_new) {
                    let to = staged.join(&path);
                    steps.make_parent(&to)?;
                    steps.add(Operation::Link { from: from.clone(), to });
                    present.push((from, size_bytes));
                }
            }
            let write =
                |path: PathBuf, text: &str| Operation::Write { path, content: text.as_bytes().to_vec() };
            steps.make_parent(&staged.join(&top))?;
            steps.add(write(staged.join(&top), &text));
            steps.add(write(staged.join(LISTED), &(listed.join("\n") + "\n")));
            steps.add(write(staged.join(KEYRING_FILE), public_key));
            steps.add(Operation::Sign { path: staged.join(&top) });
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
        signed: Signed::Lists { text, folder: folder.to_owned() },
        operations: steps.into_operations(),
        present,
        new_generation,
    })
}

/// Whether the current generation has this text, signed with this key.
fn says(repository: &Path, current: Option<&Path>, top: &Path, text: &str, public_key: &str) -> Result<bool> {
    let Some(current) = current.map(|current| repository.join(current)) else { return Ok(false) };
    let is_signed = signature_of(&current.join(top)).is_file();
    Ok(is_signed
        && state::read_text(&current.join(top))?.as_deref() == Some(text)
        && state::read_text(&current.join(KEYRING_FILE))?.as_deref() == Some(public_key))
}

/// The files that a generation listed: plain names, of a folder at least and a file.
fn listed_by(repository: &Path, current: Option<&Path>) -> Vec<PathBuf> {
    let text = current.and_then(|current| fs_err::read_to_string(repository.join(current).join(LISTED)).ok());
    let is_path = |line: &&str| {
        let parts: Vec<&str> = line.split('/').collect();
        parts.len() >= 2 && parts.iter().all(|part| check_file_name(part).is_ok())
    };
    text.unwrap_or_default().lines().filter(is_path).map(PathBuf::from).collect()
}
