//! The inputs of a build: from a store of artifacts to the worker's folder, and how often that is tried.

use crate::error::{Context, Error, Kind};
use crate::lease as export;
use kilnyard_artifacts::{ArtifactError, Artifacts, Storage, copy};
use kilnyard_farm::client::ClientError;
use kilnyard_mirror::{FetchError, FileStore, Wanted};
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::{FolderContent, Input, RootOrder, TreePatch};
use kilnyard_model::result::FailureKind;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_worker::{TreeError, Trees, Worker};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often something is tried whose failure a repetition probably does not change.
const DOUBTFUL_TRIES_MAX: u32 = 3;

/// Why a file did not arrive, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection, or a server that cannot answer now: time may help.
    Connection,
    /// A server refuses it.
    Refused,
    /// What arrived is not what was asked for.
    Content,
    /// There is no space for it on this machine.
    Disk,
    /// This machine failed otherwise.
    Machine,
    /// It was cancelled.
    Cancelled,
}

impl Cause {
    /// How a build fails for it.
    pub fn kind(self) -> FailureKind {
        match self {
            Cause::Connection => FailureKind::Network,
            Cause::Refused | Cause::Content => FailureKind::Fetch,
            Cause::Disk => FailureKind::Disk,
            Cause::Machine => FailureKind::Machine,
            Cause::Cancelled => FailureKind::Cancelled,
        }
    }

    /// How often it is tried again at most; absent if that is for the caller to bound.
    fn tries_max(self) -> Option<u32> {
        match self {
            Cause::Connection => None,
            Cause::Content | Cause::Disk | Cause::Machine => Some(DOUBTFUL_TRIES_MAX),
            Cause::Refused | Cause::Cancelled => Some(1),
        }
    }

    fn of_file(error: &io::Error) -> Cause {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::Disk,
            _ => Cause::Machine,
        }
    }
}

impl From<&ClientError> for Cause {
    fn from(error: &ClientError) -> Cause {
        match error {
            ClientError::Damaged(_) => Cause::Content,
            ClientError::File(error) => Cause::of_file(error),
            ClientError::Connection(_)
            | ClientError::Failed(_)
            | ClientError::Older { .. }
            | ClientError::Elsewhere { .. } => Cause::Connection,
            ClientError::Refused(_)
            | ClientError::OtherDoor
            | ClientError::Address(_)
            | ClientError::Mirror(_) => Cause::Refused,
        }
    }
}

impl From<&ArtifactError> for Cause {
    fn from(error: &ArtifactError) -> Cause {
        match error {
            ArtifactError::Missing(_) => Cause::Refused,
            ArtifactError::Differs { .. } | ArtifactError::Size { .. } => Cause::Content,
            ArtifactError::Io { source, .. } => match ClientError::behind(source) {
                Some(error) => error.into(),
                None => Cause::of_file(source),
            },
        }
    }
}

impl From<&TreeError> for Cause {
    fn from(error: &TreeError) -> Cause {
        match error {
            TreeError::Artifact(error) => error.into(),
            TreeError::Files(error) => Cause::of_file(error),
            TreeError::Run(_) => Cause::Machine,
        }
    }
}

impl From<&FetchError> for Cause {
    fn from(error: &FetchError) -> Cause {
        match error.root() {
            _ if error.is_transient() => Cause::Connection,
            FetchError::Cancelled { .. } => Cause::Cancelled,
            FetchError::DiskFull { .. } => Cause::Disk,
            FetchError::Store { .. } => Cause::Machine,
            // It has tried each address as often as may help.
            _ => Cause::Refused,
        }
    }
}

/// Something that did not arrive.
#[derive(Debug)]
pub struct Failed {
    pub error: Error,
    pub cause: Cause,
}

impl Failed {
    /// Why; `what` completes "failed to".
    pub fn to<E>(what: impl Display, error: E) -> Failed
    where
        for<'a> Cause: From<&'a E>,
        E: std::error::Error + 'static,
    {
        let cause = Cause::from(&error);
        let error = match named(&error) {
            // The file of this machine that was being written says nothing.
            Some(named) => {
                let mut made = Error::new(Kind::Machine, format!("failed to {what}"));
                made.causes.push(named.to_string());
                made
            }
            None => match Err::<Infallible, E>(error).context(Kind::Machine, what) {
                Err(error) => error,
                Ok(never) => match never {},
            },
        };
        Failed { error, cause }
    }
}

/// The client's error among the causes of another.
fn named<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a ClientError> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).find_map(ClientError::behind)
}

/// Repeats a request while that may help, with these pauses in seconds. `say` gets each new reason for that.
pub fn repeated<'a>(
    cancel: &AtomicBool,
    mut pauses: impl Iterator<Item = &'a u64>,
    pause: impl Fn(u64),
    say: impl Fn(&str),
    mut request: impl FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (mut said, mut tries) = (None, 0);
    loop {
        let Err(failed) = request() else { return Ok(()) };
        // Only in a row: whatever passed in between may have been the cause.
        tries = if failed.cause == Cause::Connection { 0 } else { tries + 1 };
        let may_help = failed.cause.tries_max().is_none_or(|max| tries < max);
        match pauses.next().filter(|_| may_help && !cancel.load(Ordering::Relaxed)) {
            Some(seconds) => {
                let reason = failed.error.one_line();
                if said.as_ref() != Some(&reason) {
                    say(&reason);
                    said = Some(reason);
                }
                pause(*seconds);
            }
            None => return Err(failed),
        }
    }
}

/// Everything that orders name by hash: layers and inputs.
pub struct Needed {
    trees: Vec<Artifact>,
    patches: Vec<TreePatch>,
    files: Vec<Artifact>,
    inputs: Vec<Input>,
}

impl Needed {
    /// What a root needs, and further inputs.
    pub fn by(root: &RootOrder, inputs: &[Input]) -> Needed {
        let mut needed = Needed {
            trees: root.layers.clone(),
            patches: root.patches.clone(),
            files: Vec::new(),
            inputs: root.inputs.iter().chain(inputs).cloned().collect(),
        };
        for content in root.folders.iter().filter_map(|folder| folder.content.as_ref()) {
            match content {
                FolderContent::Tree(tree) => needed.trees.push(tree.clone()),
                FolderContent::Layers(layers) => needed.trees.extend(layers.iter().cloned()),
                FolderContent::Files(listed) => {
                    needed.files.extend(listed.iter().map(|file| file.artifact.clone()));
                }
            }
        }
        needed
    }

    /// The size of what it names, unpacked.
    pub fn bytes(&self) -> u64 {
        let named = self.trees.iter().chain(&self.files).map(|one| (one.sha256.as_str(), one.size_bytes));
        let inputs = self.inputs.iter().map(|input| (input.sha256.as_str(), input.size_bytes));
        let each: BTreeMap<&str, u64> = named.chain(inputs).collect();
        each.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Notes that a build uses it.
    pub fn touch(&self, worker: &Worker) {
        let inputs: Vec<Sha256Hex> =
            self.inputs.iter().filter_map(|input| Sha256Hex::parse(&input.sha256).ok()).collect();
        worker.touch(
            self.trees.iter().map(|tree| &tree.sha256),
            self.files.iter().map(|file| &file.sha256).chain(&inputs),
        );
    }

    /// The hashes of what this machine lacks of it.
    pub fn missing(&self, trees: &Trees, distfiles: &FileStore) -> Vec<Sha256Hex> {
        let trees = self.trees.iter().filter(|tree| !trees.has(tree)).map(|tree| tree.sha256.clone());
        let files = self.files.iter().map(|file| file.sha256.clone());
        let inputs = self.inputs.iter().filter_map(|input| Sha256Hex::parse(&input.sha256).ok());
        trees.chain(files.chain(inputs).filter(|sha256| !distfiles.contains(sha256))).collect()
    }

    /// Copies it to the worker's folder, verified by hash. What the store does not have is fetched from its addresses.
    pub fn fetch(
        &self,
        trees: &Trees,
        distfiles: &FileStore,
        from: &dyn Artifacts,
        cancel: &AtomicBool,
    ) -> Result<(), Failed> {
        let what = "get the inputs of the build";
        trees.fetch(&self.trees, &self.patches, from).map_err(|error| Failed::to(what, error))?;
        let get = |what: &str, artifact: &Artifact| {
            let copied = copy(artifact, from, distfiles.artifacts(), Storage::Plain);
            copied.map_err(|error| Failed::to(what, error))
        };
        for file in &self.files {
            get(what, file)?;
        }
        for input in &self.inputs {
            if cancel.load(Ordering::Relaxed) {
                let error = Error::new(Kind::Interrupted, "it was cancelled");
                return Err(Failed { error, cause: Cause::Cancelled });
            }
            let malformed = |error| Failed { error, cause: Cause::Refused };
            let artifact = export::of_input(input).map_err(malformed)?;
            let what = format!("get {}", input.name);
            let contains = from.contains(&artifact.sha256).map_err(|error| Failed::to(&what, error))?;
            match contains || input.urls.is_empty() {
                true => get(&what, &artifact)?,
                false => {
                    let Artifact { sha256, size_bytes, .. } = artifact;
                    let wanted =
                        Wanted { urls: input.urls.clone(), sha256, size_bytes, name: input.name.clone() };
                    let fetched = distfiles.ensure(&wanted, &|_| {}, cancel);
                    fetched.map_err(|error| Failed::to(&what, error))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_artifacts::Folder;
    use kilnyard_farm::client::Client;
    use kilnyard_farm::door::{ClientCertificates, Door};
    use kilnyard_farm::identity::Fingerprint;
    use kilnyard_farm::proof::WorkerKey;
    use kilnyard_farm::relay::{self, Allowed, First, Status};
    use kilnyard_farm::roster::{Roster, Terms};
    use kilnyard_mirror::Limits;
    use kilnyard_model::artifact::Media;
    use std::cell::RefCell;
    use std::net::SocketAddr;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    const PAUSES: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    fn because(cause: Cause, reason: &str) -> Failed {
        Failed { error: Error::new(Kind::Machine, reason), cause }
    }

    /// Repeats a request that fails for these causes in turn, and then for the last one for ever. Returns the number of
    /// tries, what was said, and how it ended.
    fn tried(causes: &[Cause]) -> (usize, Vec<String>, Option<Cause>) {
        let (said, tries) = (RefCell::new(Vec::new()), RefCell::new(0));
        let ended = repeated(
            &AtomicBool::new(false),
            PAUSES.iter(),
            |_| {},
            |reason| said.borrow_mut().push(reason.to_owned()),
            || {
                let cause = causes[usize::min(*tries.borrow(), causes.len() - 1)];
                *tries.borrow_mut() += 1;
                Err(because(cause, &format!("{cause:?}")))
            },
        );
        (tries.into_inner(), said.into_inner(), ended.err().map(|failed| failed.cause))
    }

    #[test]
    fn only_what_may_pass_is_repeated_and_each_reason_is_said_once() {
        use Cause::{Cancelled, Connection, Content, Disk, Machine, Refused};
        assert_eq!(tried(&[Connection]), (10, vec!["Connection".to_owned()], Some(Connection)));
        for cause in [Refused, Cancelled] {
            assert_eq!(tried(&[cause]), (1, Vec::new(), Some(cause)));
        }
        for cause in [Content, Disk, Machine] {
            assert_eq!(tried(&[cause]), (3, vec![format!("{cause:?}")], Some(cause)));
        }
        let said = ["Content", "Connection", "Content"].map(str::to_owned).to_vec();
        assert_eq!(tried(&[Content, Content, Connection, Content]), (6, said, Some(Content)));
        let said = vec!["Connection".to_owned()];
        assert_eq!(tried(&[Connection, Connection, Refused]), (3, said, Some(Refused)));
        let cancelled = AtomicBool::new(true);
        let ended = repeated(&cancelled, PAUSES.iter(), |_| {}, |_| {}, || Err(because(Connection, "")));
        assert!(ended.is_err());
        let mut left = 2;
        let ended = repeated(
            &AtomicBool::new(false),
            PAUSES.iter(),
            |_| {},
            |_| {},
            || {
                left -= 1;
                if left == 0 { Ok(()) } else { Err(because(Connection, "")) }
            },
        );
        assert!(ended.is_ok());
    }

    /// A door in a thread, until this is dropped.
    struct Opened {
        address: SocketAddr,
        fingerprint: Fingerprint,
        end: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl Opened {
        fn at(folder: &Path) -> Opened {
            let (any, optional) = (SocketAddr::from(([127, 0, 0, 1], 0)), ClientCertificates::Optional);
            let door = Door::open(folder, any, "own", optional, || 1.0).unwrap();
            let (address, fingerprint) = (door.address(), door.identity().fingerprint());
            let end = Arc::new(AtomicBool::new(false));
            let is_over = end.clone();
            let answer = move || door.answer(&|| is_over.load(Ordering::Relaxed)).unwrap();
            Opened { address, fingerprint, end, thread: Some(std::thread::spawn(answer)) }
        }
    }

    impl Drop for Opened {
        fn drop(&mut self) {
            self.end.store(true, Ordering::Relaxed);
            if let Some(thread) = self.thread.take() {
                thread.join().unwrap();
            }
        }
    }

    /// Connects in place of a run, and waits until the door knows it.
    fn run(folder: &Path, reads: Vec<Sha256Hex>) -> UnixStream {
        let allowed = Allowed { attempt: "a".to_owned(), reads, logs: None };
        let first = First::Run {
            yard: folder.to_owned(),
            distfiles: folder.join("distfiles"),
            archives: Vec::new(),
            allowed: vec![("w".to_owned(), allowed)],
            epoch: None,
        };
        let mut stream = relay::connect(folder).unwrap();
        relay::write(&mut stream, &first, b"").unwrap();
        let has_run = || {
            let mut stream = relay::connect(folder).unwrap();
            relay::write(&mut stream, &First::Status, b"").unwrap();
            relay::read::<Status>(&mut stream).unwrap().unwrap().0.has_run
        };
        while !has_run() {
            std::thread::yield_now();
        }
        stream
    }

    #[test]
    fn a_refusal_is_distinguished_from_a_connection_that_may_return() {
        let (folder, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = folder.path();
        let store = Folder::open(&folder.join("distfiles")).unwrap();
        let keep = |content: &[u8], storage| store.insert(&mut &content[..], storage).unwrap();
        let (good, size_bytes) = keep(b"good", Storage::Plain);
        let (other, _) = keep(b"othr", Storage::Plain);
        let (damaged, _) = keep(b"damaged", Storage::Plain);
        let (packed, _) = keep(&b"packed".repeat(100), Storage::Compressed);
        let missing = Sha256Hex::parse(&"a".repeat(64)).unwrap();
        for (sha256, content) in [(&damaged, &b"damagod"[..]), (&packed, b"\x28\xb5\x2f\xfdxxxxxxxxx")] {
            let path = store.find(sha256).unwrap();
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, content).unwrap();
        }
        let door = Opened::at(folder);
        let roster = Roster::open(folder).unwrap();
        let token = roster.issue(door.fingerprint, Terms::default(), 1).unwrap();
        let key = WorkerKey::open(&folder.join("w.key")).unwrap();
        let client = Client::new(&format!("https://{}", door.address), door.fingerprint, "w", key).unwrap();
        client.join(&token.secret).unwrap();
        let files = |limits| kilnyard_mirror::Client::new(limits);
        let distfiles =
            FileStore::open_with(&own.path().join("distfiles"), files(Limits::default())).unwrap();
        let ids = kilnyard_root::IdMap::of_this_user("w", 0).0;
        let trees = Trees::new(own.path(), &ids);
        let fetch = |sha256: &Sha256Hex, size_bytes: u64| {
            let file = Artifact { sha256: sha256.clone(), size_bytes, media: Media::Bytes };
            let needed =
                Needed { trees: Vec::new(), patches: Vec::new(), files: vec![file], inputs: Vec::new() };
            let fetched = needed.fetch(&trees, &distfiles, &client, &AtomicBool::new(false));
            fetched.map_err(|failed| (failed.cause, failed.error.one_line()))
        };
        let fails = |sha256: &Sha256Hex, size_bytes: u64, cause: Cause, words: &str| {
            let (found, reason) = fetch(sha256, size_bytes).unwrap_err();
            assert!(found == cause && reason.contains(words), "{found:?} {reason}");
            assert!(!reason.contains(".part"), "{reason}");
        };
        fails(&good, size_bytes, Cause::Connection, "no run is in progress");
        let reads = vec![good.clone(), damaged.clone(), packed.clone(), missing.clone()];
        let _run = run(folder, reads);
        fails(&other, 4, Cause::Refused, "no build of this worker names it");
        // A lease names it: the run may still fetch it.
        fails(&missing, 4, Cause::Connection, "not here yet");
        fails(&damaged, 7, Cause::Content, "different content");
        fails(&packed, 600, Cause::Content, "does not unpack");
        fails(&good, 3, Cause::Content, "size");
        assert_eq!(fetch(&good, size_bytes), Ok(()));
        roster.remove("w").unwrap();
        let distfiles_of = |sha256: &Sha256Hex| distfiles.artifacts().contains(sha256).unwrap();
        assert!(distfiles_of(&good) && !distfiles_of(&damaged));
        fails(&damaged, 7, Cause::Refused, "was removed");
        drop(door);
        fails(&damaged, 7, Cause::Connection, "no connection");
    }
}
