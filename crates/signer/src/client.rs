//! The coordinator's side: asks a signer over a pair of streams.

use crate::change;
use crate::hash;
use crate::judge::checksums::SUMMARY;
use crate::judge::{lists, release};
use crate::memory::Name;
use crate::message::{
    self, Answer, Ask, Build, BuildTexts, Change, Evidence, Form, Generation, KeyState, Question, Refusal,
    VERSION,
};
use kilnyard_publish::{Signatures, SignedText, ToSign};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The file of a pkgsrc generation that has its summary.
const SUMMARY_FILE: &str = "pkg_summary.zst";

/// What vouches for the sources that packages are from.
pub trait Sources {
    /// What it is asked for by: the indexes of archives if no packages are named, else the commits that these packages are from.
    ///
    /// # Errors
    /// An index or a repository cannot be read.
    fn keys(&self, packages: &[Name]) -> Result<Vec<String>, kilnyard_publish::SignerError>;

    /// What has this key; none if a signature of it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn shown(&self, key: &str) -> Result<Option<Evidence>, kilnyard_publish::SignerError>;
}

/// Finds the builds that packages are from.
pub trait Builds: Sources {
    /// The builds of these packages. A package without one is left out.
    ///
    /// # Errors
    /// The store or a file cannot be read.
    fn of(&self, packages: &[Name]) -> Result<Vec<Build>, kilnyard_publish::SignerError>;
}

/// A conversation with a signer.
pub struct Client {
    from: Box<dyn Read + Send>,
    to: Box<dyn Write + Send>,
    repository: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("repository", &self.repository).finish_non_exhaustive()
    }
}

/// Why a signer did not sign.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is away, or does not answer as it must.
    #[error("the signer is away: {0}")]
    Away(#[from] io::Error),
    /// It refused.
    #[error("{}", list(.0))]
    Refused(Vec<Refusal>),
    /// It could not.
    #[error("{0}")]
    Failed(String),
    /// A file of the generation cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl ClientError {
    /// The packages that the signer refuses, if that is all: without them, it signs.
    pub fn refused_packages(&self) -> Option<Vec<&Refusal>> {
        match self {
            ClientError::Refused(refusals) if refusals.iter().all(|refusal| refusal.package.is_some()) => {
                Some(refusals.iter().collect())
            }
            _ => None,
        }
    }
}

fn list(refusals: &[Refusal]) -> String {
    let mut text = "the signer refuses".to_owned();
    for refusal in refusals {
        text.push_str("\n  ");
        text.push_str(&refusal.reason);
        if let Some(id) = &refusal.id {
            text.push_str(&format!(" [{id}]"));
        }
    }
    text
}

impl Client {
    /// Talks to the signer behind these streams about a repository of its policy.
    pub fn new(
        from: impl Read + Send + 'static,
        to: impl Write + Send + 'static,
        repository: &str,
    ) -> Client {
        Client { from: Box::new(from), to: Box::new(to), repository: repository.to_owned() }
    }

    /// Asks one question.
    ///
    /// # Errors
    /// The signer is away.
    pub fn ask(&mut self, ask: Ask) -> Result<Answer, ClientError> {
        let question = Question { version: VERSION, repository: self.repository.clone(), ask };
        let written = message::write(&mut self.to, &question);
        // An end that is gone may have said why.
        let answer = message::read(&mut self.from)?;
        written?;
        Ok(answer.ok_or_else(|| io::Error::other("it ended"))?)
    }

    /// The certificates of the repository's keys, armored, the state of each key, and the certificates of the X.509 key that signs
    /// packages, if there is one.
    ///
    /// # Errors
    /// The signer is away, refuses, or has no key that can be used.
    pub fn keys(&mut self) -> Result<(String, Vec<KeyState>, Option<String>), ClientError> {
        match self.ask(Ask::Keys)? {
            Answer::Keys { trouble: Some(trouble), .. } => Err(ClientError::Failed(trouble)),
            Answer::Keys { armored, keys, packages, .. } => Ok((armored, keys, packages)),
            other => Err(unexpected(other)),
        }
    }

    /// The state of each key, whether it can sign or not.
    ///
    /// # Errors
    /// The signer is away, or refuses.
    pub fn states(&mut self) -> Result<Vec<KeyState>, ClientError> {
        match self.ask(Ask::Keys)? {
            Answer::Keys { keys, .. } => Ok(keys),
            other => Err(unexpected(other)),
        }
    }

    /// Signs a `.dsc` or `.changes` file: its cleartext-signed form.
    ///
    /// # Errors
    /// The signer is away, refuses, or has no key that can be used.
    pub fn sign_document(&mut self, text: &str) -> Result<String, ClientError> {
        match self.ask(Ask::Document { text: text.to_owned() })? {
            Answer::Signed { clear: Some(clear), .. } => Ok(clear),
            other => Err(unexpected(other)),
        }
    }

    /// Signs packages of a pkgsrc tree: a signature of each text, in their order, and why some are refused.
    ///
    /// # Errors
    /// The signer is away, refuses all of them, or has no key that can be used.
    pub fn sign_packages(
        &mut self,
        builds: Vec<BuildTexts>,
    ) -> Result<(Vec<Option<String>>, Vec<Refusal>), ClientError> {
        match self.ask(Ask::Packages { builds })? {
            Answer::Packages { signatures, refusals } => Ok((signatures, refusals)),
            other => Err(unexpected(other)),
        }
    }

    /// Signs packages of RPM by their headers: see [`Ask::Headers`].
    ///
    /// # Errors
    /// The signer is away, refuses all of them, or has no key that can be used.
    pub fn sign_headers(
        &mut self,
        builds: Vec<BuildTexts>,
    ) -> Result<(Vec<Option<String>>, Vec<Refusal>), ClientError> {
        match self.ask(Ask::Headers { builds })? {
            Answer::Packages { signatures, refusals } => Ok((signatures, refusals)),
            other => Err(unexpected(other)),
        }
    }

    /// Signs a generation.
    ///
    /// # Errors
    /// The signer is away, refuses, or has no key that can be used; a file of the generation or a build cannot be read.
    pub fn sign(
        &mut self,
        to_sign: &ToSign<'_>,
        builds: &dyn Builds,
    ) -> Result<Signatures, kilnyard_publish::SignerError> {
        let (form, text) = match to_sign.text {
            SignedText::Release(text) => (Form::Release, text),
            SignedText::Checksums(text) => (Form::Checksums, text),
            SignedText::Lists(text) => (Form::Lists, text),
        };
        let new = indexes(form, text, to_sign.folder)?;
        let mut shown = self.memory(to_sign.series)?;
        if shown.is_empty() && self.adopt(form, to_sign)? {
            shown = self.memory(to_sign.series)?;
        }
        let generation = Generation {
            series: to_sign.series.to_owned(),
            form,
            text: text.to_owned(),
            indexes: changes(new, &shown, to_sign),
        };
        self.show_sources(&[], builds)?;
        let mut answer = self.ask(Ask::Generation(generation))?;
        if let Answer::Wanted { packages } = answer {
            let name = |(name, variant)| Name { name, variant };
            let packages: Vec<Name> = packages.into_iter().map(name).collect();
            self.show_sources(&packages, builds)?;
            answer = self.ask(Ask::Builds { builds: builds.of(&packages)? })?;
        }
        match answer {
            Answer::Signed { clear, detached } => Ok(Signatures { clear, detached }),
            other => Err(unexpected(other).into()),
        }
    }

    /// Shows what vouches for the sources of packages, as far as the signer has not seen it; without packages, the indexes of
    /// archives.
    ///
    /// # Errors
    /// The signer is away, or something cannot be read.
    pub fn show_sources(
        &mut self,
        packages: &[Name],
        sources: &(impl Sources + ?Sized),
    ) -> Result<(), kilnyard_publish::SignerError> {
        let keys = sources.keys(packages)?;
        if keys.is_empty() {
            return Ok(());
        }
        let Answer::Evidence { wanted } = self.ask(Ask::Evidence { keys })? else { return Ok(()) };
        for key in wanted {
            if let Some(evidence) = sources.shown(&key)? {
                // What the signer makes of it is in its judgement of the packages.
                self.ask(Ask::Sources(evidence))?;
            }
        }
        Ok(())
    }

    fn memory(&mut self, series: &str) -> Result<BTreeMap<String, String>, ClientError> {
        match self.ask(Ask::Memory { series: series.to_owned() })? {
            Answer::Memory { indexes } => Ok(indexes),
            other => Err(unexpected(other)),
        }
    }

    /// Offers the current generation to a signer that remembers none. Returns whether there is one that it took: it is
    /// what the same key signed before.
    fn adopt(&mut self, form: Form, to_sign: &ToSign<'_>) -> Result<bool, ClientError> {
        let Some(folder) = to_sign.previous.first() else { return Ok(false) };
        let (text, signature) = match form {
            Form::Release => ("Release", "Release.gpg"),
            Form::Checksums => ("SHA512", "SHA512.asc"),
            Form::Lists => (lists::FILES[0], lists::FILES[1]),
        };
        // A generation that is damaged cannot be adopted.
        let (Ok(text), Ok(signature)) = (read(&folder.join(text)), read(&folder.join(signature))) else {
            return Ok(false);
        };
        let Ok(texts) = indexes(form, &text, folder) else { return Ok(false) };
        let whole = |(path, text)| Change { path, base: None, edits: vec![message::Edit::Add(text)] };
        let indexes = texts.into_iter().map(whole).collect();
        let generation = Generation { series: to_sign.series.to_owned(), form, text, indexes };
        match self.ask(Ask::Adopt { generation, signature })? {
            Answer::Adopted => Ok(true),
            Answer::Refused { .. } => Ok(false),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused { refusals } => ClientError::Refused(refusals),
        Answer::Failed { reason } => ClientError::Failed(reason),
        _ => ClientError::Away(io::Error::other("it answers another question")),
    }
}

/// The texts of the indexes in a generation, by path.
fn indexes(form: Form, text: &str, folder: &Path) -> Result<BTreeMap<String, String>, ClientError> {
    if form == Form::Checksums {
        let path = folder.join(SUMMARY_FILE);
        let unpacked = fs_err::File::open(&path).and_then(zstd::decode_all);
        let text = unpacked.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|source| ClientError::File { path, source })?;
        return Ok(BTreeMap::from([(SUMMARY.to_owned(), text)]));
    }
    if form == Form::Lists {
        let failed = |source| ClientError::File { path: folder.to_owned(), source };
        return lists::texts(text, folder).map_err(failed);
    }
    let texts = release::indexes_of(text).map(|path| Ok((path.to_owned(), read(&folder.join(path))?)));
    texts.collect()
}

fn read(path: &Path) -> Result<String, ClientError> {
    fs_err::read_to_string(path).map_err(|source| ClientError::File { path: path.to_owned(), source })
}

/// New indexes as changes of those that the signer remembers, as far as these are still there.
fn changes(
    new: BTreeMap<String, String>,
    shown: &BTreeMap<String, String>,
    to_sign: &ToSign<'_>,
) -> Vec<Change> {
    let change = |(path, text): (String, String)| {
        let remembered = shown.get(&path);
        if remembered == Some(&hash(text.as_bytes())) {
            let count = change::stanzas(&text).count() as u32;
            return Change { base: remembered.cloned(), edits: vec![message::Edit::Keep(count)], path };
        }
        let base = remembered.and_then(|sha256| {
            to_sign.previous.iter().find_map(|folder| {
                let text = match to_sign.text {
                    SignedText::Release(_) => read(&folder.join(&path)).ok()?,
                    SignedText::Checksums(_) => indexes(Form::Checksums, "", folder).ok()?.remove(&path)?,
                    SignedText::Lists(_) => {
                        let text = read(&folder.join(lists::FILES[0])).ok()?;
                        indexes(Form::Lists, &text, folder).ok()?.remove(&path)?
                    }
                };
                (hash(text.as_bytes()) == *sha256).then_some(text)
            })
        });
        match base {
            Some(base) => Change { base: remembered.cloned(), edits: change::between(&base, &text), path },
            None => Change { base: None, edits: vec![message::Edit::Add(text)], path },
        }
    };
    new.into_iter().map(change).collect()
}
