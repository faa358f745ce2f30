//! The run's end of the connection to a door (`kilnyard serve`), through which workers on other machines take part.
//!
//! The door is another process, which may be started, end and be started again at any time: without it, those workers are
//! silent, as after any cut connection.

use super::Message;
use super::contents;
use super::taken::TakenOver;
use crate::trees;
use crate::yard::Yard;
use kilnyard_coordinator::{Channel, Event, Measured, Standing};
use kilnyard_farm::proof::is_signed;
use kilnyard_farm::relay::{self, Allowed, First, ToDoor, ToRun};
use kilnyard_farm::roster::{Held, Member, Roster, WORKERS};
use kilnyard_farm::write_private;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::backlog::Backlog;
use kilnyard_model::order::{BuildOrder, FamilyOrder, FolderContent, Input, Output, RootOrder, Stage};
use kilnyard_model::provenance::{Account, Signed};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{Lease, Progress, Reports, Test, ToCoordinator, ToWorker};
use kilnyard_store::Number;
use kilnyard_yard::config::farm::Farm;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The folder of a yard's door.
pub fn folder(yard: &Yard) -> PathBuf {
    yard.home.join("state/farm")
}

/// The file in that folder with the path of the folder of a site that serves the yard, which has the workers.
pub const SITE: &str = "site";

/// The folder with the list of workers.
pub fn roster_folder(yard: &Yard) -> PathBuf {
    let own = folder(yard);
    let site = fs_err::read_to_string(own.join(SITE)).ok().map(PathBuf::from);
    site.filter(|site| site.is_absolute()).unwrap_or(own)
}

/// Whether workers are shared with further yards.
pub fn is_shared(yard: &Yard) -> bool {
    !yard.config.farm.yards.is_empty() || folder(yard).join(SITE).exists()
}

/// The most messages of workers that wait for the owner of the run.
const WAITING_MAX: usize = 16;

/// The file of what runs have measured, in the folder of the door.
const MEASURED: &str = "measured.json";
/// How often a full queue is checked.
const STEP: Duration = Duration::from_millis(5);
/// How often the roster is read.
const ROSTER_STEP: Duration = Duration::from_secs(1);
/// How often a run looks for a door that it is not connected to.
const PAUSE: Duration = Duration::from_millis(500);

/// See the module documentation.
pub struct Door {
    frames: Sender<(ToDoor, Vec<u8>)>,
    shared: Arc<Shared>,
    /// The builds of workers on other machines.
    builds: HashMap<Attempt, RemoteBuild>,
    /// The workers by channel, which counts from 1.
    workers: Vec<String>,
    /// What to write about workers.
    notes: Sender<Note>,
}

/// Something to write about workers.
enum Note {
    /// A worker is quarantined, with the reason.
    Quarantine(String, String),
    /// What the run has measured.
    Measured(BTreeMap<String, Measured>),
}

/// What earlier runs have measured of workers.
pub fn measured(yard: &Yard) -> BTreeMap<String, Measured> {
    // Without it, everything is measured again.
    let text = fs_err::read(folder(yard).join(MEASURED)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// What the threads of the connection share with the owner.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// The connection, if there is one.
    stream: Mutex<Option<UnixStream>>,
    /// The public keys of workers, by name.
    keys: Mutex<HashMap<String, String>>,
    /// What workers may do, by attempt: for a door that is started again.
    allowed: Mutex<HashMap<String, (String, Allowed)>>,
    /// The epoch of the run, if several machines can lead.
    epoch: Mutex<Option<String>>,
}

/// The folders of a run and its door.
struct Paths {
    door: PathBuf,
    yard: PathBuf,
    distfiles: PathBuf,
    archives: Vec<PathBuf>,
}

/// A build of a worker on another machine.
#[derive(Clone, Debug)]
pub struct RemoteBuild {
    pub family: FamilyOrder,
    channel: Channel,
    /// What its worker signs, with the outputs; none for a test of what another worker built.
    account: Option<Account>,
    /// The beginning of the paths of its logs, relative to the yard.
    logs: String,
}

impl Shared {
    fn stream(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self) -> MutexGuard<'_, Option<String>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed(&self) -> MutexGuard<'_, HashMap<String, (String, Allowed)>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the door, and repeats what workers may do.
    fn connect(&self, paths: &Paths) -> io::Result<UnixStream> {
        let mut stream = relay::connect(&paths.door)?;
        let first = First::Run {
            yard: paths.yard.clone(),
            distfiles: paths.distfiles.clone(),
            archives: paths.archives.clone(),
            allowed: self.allowed().values().cloned().collect(),
            epoch: self.epoch().clone(),
        };
        relay::write(&mut stream, &first, b"")?;
        *self.stream() = Some(stream.try_clone()?);
        Ok(stream)
    }

    /// Passes on messages of workers, through one connection after another.
    fn receive(&self, paths: &Paths, owner: &Sender<Message>) {
        let waiting = Arc::new(());
        while !self.is_over.load(Ordering::Relaxed) {
            if let Ok(mut stream) = self.connect(paths) {
                while let Ok(Some((ToRun { worker }, bytes))) = relay::read::<ToRun>(&mut stream) {
                    // The owner drops a message when it is handled.
                    while Arc::strong_count(&waiting) > WAITING_MAX && !self.is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(STEP);
                    }
                    let of_worker = Message::OfWorker { worker: Some((worker, waiting.clone())), bytes };
                    if owner.send(of_worker).is_err() {
                        return;
                    }
                }
                *self.stream() = None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Writes frames. Without a connection they are lost, as the protocol allows.
    fn send(&self, frames: &Receiver<(ToDoor, Vec<u8>)>) {
        for (header, message) in frames {
            // A clone, so that a slow door blocks nothing else.
            let stream = self.stream().as_ref().and_then(|stream| stream.try_clone().ok());
            if let Some(mut stream) = stream {
                let _ = relay::write(&mut stream, &header, &message);
            }
        }
    }
}

/// The workers, as the roster says.
struct Watched {
    /// The folder of the door.
    folder: PathBuf,
    /// The folder with the list of workers.
    roster: PathBuf,
    /// Which pools are trusted.
    farm: Farm,
    shared: Arc<Shared>,
    /// As last reported.
    reported: Option<BTreeMap<String, Standing>>,
    /// When the folder of the workers changed, as last seen: each change of a worker renames a file there.
    changed: Option<SystemTime>,
    /// Whether it was read a second after that. File times are too coarse to show a second change at once.
    is_settled: bool,
}

impl Watched {
    /// Reports changes until the run is over, and quarantines workers.
    fn watch(mut self, notes: &Receiver<Note>, owner: &Sender<Message>) {
        loop {
            match notes.recv_timeout(ROSTER_STEP) {
                Ok(Note::Measured(mut measured)) => {
                    // Workers on demand have new names each time.
                    measured.retain(|worker, _| self.shared.keys().contains_key(worker));
                    // If this fails, it is measured again.
                    let _ = serde_json::to_string(&measured)
                        .map_err(io::Error::other)
                        .and_then(|text| write_private(&self.folder.join(MEASURED), &text));
                    continue;
                }
                Ok(Note::Quarantine(worker, reason)) => {
                    // If this fails, it is quarantined in this run only.
                    let _ = Roster::open(&self.roster)
                        .and_then(|roster| roster.hold(&worker, Some(Held::Quarantined(reason))));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.report(owner);
        }
    }

    fn report(&mut self, owner: &Sender<Message>) {
        let changed = fs_err::metadata(self.roster.join(WORKERS)).and_then(|folder| folder.modified()).ok();
        let is_same = self.reported.is_some() && changed == self.changed;
        if is_same && self.is_settled {
            return;
        }
        (self.changed, self.is_settled) = (changed, is_same);
        // Without a roster, no worker has joined.
        let members = match self.roster.is_dir() {
            true => Roster::open(&self.roster).and_then(|roster| roster.members()),
            false => Ok(Vec::new()),
        };
        // One that cannot be read now may be in a second.
        let Ok(members) = members else { return };
        let keys = members.iter().map(|member| (member.name.clone(), member.key.clone()));
        *self.shared.keys() = keys.collect();
        let standing = |member: Member| {
            let Member { name, pool, roles, held, .. } = member;
            let is_trusted = self.farm.trusts(&pool);
            (name, Standing { is_held: held.is_some(), pool, is_trusted, roles })
        };
        // One that was removed is unknown from now on, and gets nothing.
        let standings: BTreeMap<String, Standing> = members.into_iter().map(standing).collect();
        if self.reported.as_ref() != Some(&standings) {
            self.reported = Some(standings.clone());
            let _ = owner.send(Message::Event(Box::new(Event::Workers(standings))));
        }
    }
}

impl Door {
    /// Whether workers on other machines can reach a run now.
    pub fn is_open(yard: &Yard) -> bool {
        yard.config.family.confined().is_none() && relay::connect(&folder(yard)).is_ok()
    }

    /// Connects to the yard's door whenever there is one. Returns none if other machines cannot take part. The builds that
    /// were taken over are known from the beginning.
    pub fn connect(
        yard: &Yard,
        owner: &Sender<Message>,
        (run, epoch): (Number, Option<String>),
        taken: &[TakenOver],
        packer: &mut contents::Packer,
    ) -> Option<Door> {
        let door = folder(yard);
        if let Some(reason) = yard.config.family.confined() {
            if relay::connect(&door).is_ok() {
                say!("note: workers on other machines do not take part: {reason}");
            }
            return None;
        }
        let paths = Paths {
            door,
            yard: yard.folder.clone(),
            distfiles: yard.path("distfiles"),
            archives: vec![
                yard.trees().archives().folder().to_owned(),
                contents::folder(yard),
                trees::folder(yard),
            ],
        };
        let (frames, to_write) = mpsc::channel();
        let shared = Arc::new(Shared { epoch: Mutex::new(epoch), ..Shared::default() });
        let (notes, to_note) = mpsc::channel();
        let (builds, workers) = (HashMap::new(), Vec::new());
        let mut made = Door { frames, shared: shared.clone(), builds, workers, notes };
        for TakenOver { open, order, .. } in taken {
            let channel = made.channel(&open.worker);
            let at = (run, order.package.as_str(), open.build);
            let mut order = order.clone();
            // If it cannot be read, the build is repeated.
            let _ = packer.fill(&mut order.root);
            let allows = made.admit(channel, open.attempt, at, &order);
            made.remember(&open.worker, &allows);
        }
        // Before any worker can connect.
        let (folder, farm) = (paths.door.clone(), yard.config.farm.clone());
        let mut roster = Watched {
            folder,
            roster: roster_folder(yard),
            farm,
            shared: shared.clone(),
            reported: None,
            changed: None,
            is_settled: false,
        };
        // Until the roster can be read, no worker is known.
        let _ = owner.send(Message::Event(Box::new(Event::Workers(BTreeMap::new()))));
        roster.report(owner);
        // Three threads, since the owner of the run never blocks. They end when this is dropped.
        let (writing, reading, owner) = (shared.clone(), shared.clone(), owner.clone());
        std::thread::spawn({
            let owner = owner.clone();
            move || roster.watch(&to_note, &owner)
        });
        std::thread::spawn(move || writing.send(&to_write));
        std::thread::spawn(move || reading.receive(&paths, &owner));
        Some(made)
    }

    /// The run is led in this epoch from now on: the door is connected to again, and names it to workers.
    pub fn lead_in(&self, epoch: Number) {
        let mut named = self.shared.epoch();
        let Some((farm, _)) = named.as_deref().and_then(|named| named.rsplit_once('.')) else { return };
        let now = Some(format!("{farm}.{epoch}"));
        if *named != now {
            *named = now;
            self.disconnect();
        }
    }

    fn disconnect(&self) {
        // The door may be gone.
        let _ = self.shared.stream().as_ref().map(|stream| stream.shutdown(std::net::Shutdown::Both));
    }

    /// Says how much work is left.
    pub fn report_backlog(&self, backlog: Backlog) {
        let header = ToDoor { backlog: Some(backlog), ..ToDoor::default() };
        let _ = self.frames.send((header, Vec::new()));
    }

    /// The channel of a worker.
    pub fn channel(&mut self, worker: &str) -> Channel {
        let known = self.workers.iter().position(|known| known == worker);
        let at = known.unwrap_or_else(|| {
            self.workers.push(worker.to_owned());
            self.workers.len() - 1
        });
        Channel(at as u64 + 1)
    }

    /// Sends a lease, and lets the worker read what it names.
    pub fn grant(&mut self, to: Channel, lease: &Lease, bytes: Vec<u8>) {
        let allows = self.allowed(to, lease);
        self.push(to, Some(allows), None, bytes);
    }

    /// Notes a build of a worker: its run, package and number. Returns what the worker may do.
    fn admit(
        &mut self,
        channel: Channel,
        attempt: Attempt,
        (run, package, build): (Number, &str, Number),
        order: &BuildOrder,
    ) -> Allowed {
        let logs = format!("logs/{run}/{package}/{build}-");
        let worker = self.name(channel).unwrap_or_default();
        let account = Some(Account::of(order, attempt, worker));
        let build = RemoteBuild { family: order.family.clone(), channel, account, logs: logs.clone() };
        self.builds.insert(attempt, build);
        Allowed { attempt: attempt.to_string(), reads: reads(&order.root, &[]), logs: Some(logs) }
    }

    /// What a lease lets its worker read.
    fn allowed(&mut self, channel: Channel, lease: &Lease) -> Allowed {
        let at = (lease.run, lease.order.package.as_str(), lease.build);
        let mut allows = self.admit(channel, lease.attempt, at, &lease.order);
        if let Some(to_test) = &lease.to_test {
            if let Some(build) = self.builds.get_mut(&lease.attempt) {
                build.account = None;
            }
            allows.reads = reads(&to_test.order.root, &to_test.order.inputs);
        }
        allows.reads.extend(lease.to_check.iter().cloned());
        allows
    }

    /// Keeps what a worker may do, for a door that is started again.
    fn remember(&self, worker: &str, allows: &Allowed) {
        let mut known = self.shared.allowed();
        let (_, known) = known.entry(allows.attempt.clone()).or_insert_with(|| {
            (worker.to_owned(), Allowed { attempt: allows.attempt.clone(), ..Allowed::default() })
        });
        known.reads.extend(allows.reads.iter().cloned());
        known.logs = allows.logs.clone().or_else(|| known.logs.take());
    }

    /// Sends a message.
    pub fn send(&mut self, to: Channel, message: &ToWorker, bytes: Vec<u8>) {
        let (allows, ends) = match message {
            ToWorker::Answer { attempt, answer, .. } => match &answer.test {
                Test::Run(test) => {
                    let reads = reads(&test.root, &test.inputs);
                    (Some(Allowed { attempt: attempt.to_string(), reads, logs: None }), None)
                }
                _ => (None, None),
            },
            ToWorker::Announce { lease, .. } => {
                let reads = reads(&lease.order.root, &[]);
                (Some(Allowed { attempt: lease.attempt.to_string(), reads, logs: None }), None)
            }
            // A worker may have named another's build.
            ToWorker::Acknowledged { attempt, .. } | ToWorker::Superseded { attempt, .. }
                if self.builds.get(attempt).is_some_and(|build| build.channel == to) =>
            {
                self.builds.remove(attempt);
                (None, Some(attempt.to_string()))
            }
            _ => (None, None),
        };
        self.push(to, allows, ends, bytes);
    }

    fn push(&self, to: Channel, allows: Option<Allowed>, ends: Option<String>, bytes: Vec<u8>) {
        let Some(worker) = self.name(to) else { return };
        if let Some(allows) = &allows {
            self.remember(worker, allows);
        }
        if let Some(attempt) = &ends {
            self.shared.allowed().remove(attempt);
        }
        // Without its thread the run is over.
        let _ =
            self.frames.send((ToDoor { to: worker.to_owned(), allows, ends, ..ToDoor::default() }, bytes));
    }

    /// The worker of a channel.
    fn name(&self, channel: Channel) -> Option<&str> {
        self.workers.get((channel.0 as usize).wrapping_sub(1)).map(String::as_str)
    }

    /// Ends what a worker may do for a build that it lost, or that was announced to it. It may be silent.
    pub fn forget(&mut self, worker: &str, attempt: &Attempt) {
        let is_known = self.shared.allowed().remove(&attempt.to_string()).is_some();
        if self.builds.remove(attempt).is_some() || is_known {
            let header = ToDoor {
                to: worker.to_owned(),
                allows: None,
                ends: Some(attempt.to_string()),
                ..ToDoor::default()
            };
            let _ = self.frames.send((header, Vec::new()));
        }
    }

    /// Quarantines a worker in later runs too.
    pub fn quarantine(&self, worker: &str, reason: &str) {
        // Without its thread the run is over.
        let _ = self.notes.send(Note::Quarantine(worker.to_owned(), reason.to_owned()));
    }

    /// Keeps what the run has measured of workers, for later runs and `kilnyard workers`.
    pub fn keep_measured(&self, measured: BTreeMap<String, Measured>) {
        let _ = self.notes.send(Note::Measured(measured));
    }

    /// A build of a worker on another machine.
    pub fn build(&self, attempt: &Attempt) -> Option<&RemoteBuild> {
        self.builds.get(attempt)
    }

    /// Replaces what a worker must not decide: the places of logs, and the statement that it signs. What it says of outputs is compared
    /// with the files (`run/stored.rs`).
    pub fn correct(&self, worker: &str, message: &mut ToCoordinator) {
        match message {
            ToCoordinator::Progress(Reports { attempt, reports, .. }) => {
                let build = self.builds.get(attempt);
                for report in reports {
                    if let Progress::StageEnded(stage) = report {
                        let log = stage.log.take();
                        stage.log = log.filter(|log| build.is_some_and(|build| build.has_log(log)));
                    }
                }
            }
            ToCoordinator::Result { attempt, result, .. } => {
                let signed = result.provenance.take();
                // Of any other build, the result does not count.
                let account = self.builds.get(attempt).and_then(|build| build.account.as_ref());
                if let (Some(account), Ok(outputs)) = (account, &result.outcome) {
                    let key = self.shared.keys().get(worker).cloned();
                    match attested(account, outputs, signed, key.as_deref()) {
                        Some(signed) => result.provenance = Some(signed),
                        None => result.outcome = Err(unsigned(worker)),
                    }
                }
            }
            _ => {}
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.disconnect();
    }
}

impl RemoteBuild {
    /// Whether this is where the door writes a log of the build.
    fn has_log(&self, log: &str) -> bool {
        let name = log.strip_prefix(&self.logs).and_then(|rest| rest.strip_suffix(".log"));
        name.is_some_and(relay::is_log_name)
    }
}

/// The signed statement about these outputs, if the worker with this key signed it.
fn attested(
    account: &Account,
    outputs: &[Output],
    signed: Option<Signed>,
    key: Option<&str>,
) -> Option<Signed> {
    let signed = Signed { statement: account.statement(outputs), ..signed? };
    (key == Some(signed.key.as_str()) && is_signed(&signed)).then_some(signed)
}

/// The failure of a build whose result is not its worker's.
fn unsigned(worker: &str) -> Failure {
    Failure {
        stage: Stage::Collect,
        kind: FailureKind::Machine,
        message: format!("the result is not signed by the key of {worker}, or for another order"),
        line_number: None,
        lines: Vec::new(),
    }
}

/// The files that a root and further inputs name.
fn reads(root: &RootOrder, inputs: &[Input]) -> Vec<Sha256Hex> {
    let of_folder = |content: &FolderContent| match content {
        FolderContent::Tree(tree) => vec![tree.sha256.clone()],
        FolderContent::Layers(layers) => layers.iter().map(|layer| layer.sha256.clone()).collect(),
        FolderContent::Files(files) => files.iter().map(|file| file.artifact.sha256.clone()).collect(),
    };
    let layers = root.layers.iter().map(|layer: &Artifact| layer.sha256.clone());
    let folders = root.folders.iter().filter_map(|folder| folder.content.as_ref()).flat_map(of_folder);
    let named = root.inputs.iter().chain(inputs);
    let layers = layers.chain(root.patches.iter().map(|patch| patch.artifact.sha256.clone()));
    layers.chain(folders).chain(named.filter_map(|input| Sha256Hex::parse(&input.sha256).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_farm::proof::WorkerKey;
    use kilnyard_farm::roster::Terms;
    use kilnyard_model::role::Role;

    #[test]
    fn held_and_removed_workers_get_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let roster = Roster::open(folder.path()).unwrap();
        let (owner, events) = mpsc::channel();
        let farm = toml::from_str("[pool.lab]\ntrusted = false").unwrap();
        let (shared, folder) = (Arc::new(Shared::default()), folder.path().to_owned());
        let roster_of = folder.clone();
        let mut watched = Watched {
            folder,
            roster: roster_of,
            farm,
            shared,
            reported: None,
            changed: None,
            is_settled: false,
        };
        let mut reported = || {
            watched.report(&owner);
            events.try_iter().last().map(|message| match message {
                Message::Event(event) => match *event {
                    Event::Workers(standings) => standings,
                    other => panic!("{other:?}"),
                },
                _ => panic!("another message"),
            })
        };
        assert_eq!(reported(), Some(BTreeMap::new()), "the first report closes the run to unknown workers");
        let key = "a".repeat(64);
        for (name, pool) in [("one", "default"), ("two", "lab")] {
            let terms = Terms { pool: pool.to_owned(), ..Terms::default() };
            let token = roster.issue(key.parse().unwrap(), terms, 1).unwrap();
            roster.join(&token.secret, name, &key, 1).unwrap();
        }
        let first = reported().unwrap();
        assert!(first["one"].is_trusted && !first["two"].is_trusted && first["two"].roles == Role::all());
        assert_eq!(reported(), None, "nothing more is reported until it changes");
        roster.hold("one", Some(Held::Drained)).unwrap();
        let held = reported().unwrap();
        assert!(held["one"].is_held && !held["two"].is_held);
        roster.remove("one").unwrap();
        assert_eq!(reported().unwrap().keys().collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn a_result_counts_only_with_the_signature_of_its_worker() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| WorkerKey::open(&folder.path().join(name)).unwrap();
        let (own, other) = (key("own"), key("other"));
        let order = BuildOrder::empty("zlib");
        let account = |attempt| Account::of(&order, Attempt::from_bytes([attempt; 16]), "far");
        let check = |signed: Option<Signed>, key: Option<&str>| attested(&account(1), &[], signed, key);
        let signed = own.sign(&account(1).statement(&[]));
        let public = own.public();
        assert!(check(Some(signed.clone()), Some(&public)).is_some());
        // Without a signature, by an unknown worker, by another key, for another build.
        assert_eq!(check(None, Some(&public)), None);
        assert_eq!(check(Some(signed.clone()), None), None);
        assert_eq!(check(Some(other.sign(&signed.statement)), Some(&public)), None);
        assert_eq!(check(Some(own.sign(&account(2).statement(&[]))), Some(&public)), None);
        // What the worker states itself does not count.
        let lie = Signed { statement: "{}".to_owned(), ..own.sign("{}") };
        assert_eq!(check(Some(lie), Some(&public)), None);
    }

    #[test]
    fn logs_are_where_the_door_writes_them() {
        let build = RemoteBuild {
            family: FamilyOrder::default(),
            channel: Channel(1),
            account: None,
            logs: "logs/3/zlib/17-".to_owned(),
        };
        for log in ["logs/3/zlib/17-build.log", "logs/3/zlib/17-again-build.log"] {
            assert!(build.has_log(log), "{log}");
        }
        for log in [
            "",
            "logs/3/zlib/18-build.log",
            "logs/3/zlib/17-.log",
            "logs/3/zlib/17-../../../x.log",
            "logs/3/zlib/17-build",
            "/etc/passwd",
            "logs/3/zlib/17-Build.log",
        ] {
            assert!(!build.has_log(log), "{log}");
        }
    }
}
