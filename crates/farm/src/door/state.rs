//! What a door keeps in memory: sessions, mailboxes, and what each worker may do. A restarted door starts with nothing, and
//! workers prove their keys again.

use super::Files;
use crate::api::About;
use crate::relay::{Allowed, PoolStatus, ToDoor};
use kilnyard_model::backlog::Backlog;
use kilnyard_model::holdings::Holdings;
use kilnyard_model::sha256::Sha256Hex;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, mpsc};

/// How long a challenge can be answered.
const CHALLENGE_MAX: Duration = Duration::from_secs(60);
/// The most challenges that are kept; the oldest are forgotten.
const CHALLENGES_MAX: usize = 10_000;
/// The most messages that wait for a worker. Further ones are lost, as the protocol allows.
const MAILBOX_MAX: usize = 4096;
/// The most files that one worker sends at once; further ones wait their turn. Each has a thread, of which the runtime
/// has 512.
const FILES_ARRIVING_MAX: usize = 16;
/// The most messages that one worker sends at once.
const MESSAGES_ARRIVING_MAX: usize = 2;
/// The most logs of one build: more than it has stages, twice.
const LOGS_MAX: usize = 64;
/// The most files that a build has stored and is not asked for again. Further ones are sent each time.
const STORED_MAX: usize = 10_000;
/// The most bytes of messages that wait for a worker.
const MAILBOX_BYTES_MAX: usize = 256 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct State {
    /// When each challenge was made that waits for an answer.
    challenges: HashMap<String, Instant>,
    /// The challenges of the last minute, the oldest first, whether or not they were answered.
    made: VecDeque<(String, Instant)>,
    /// The worker of each session.
    sessions: HashMap<String, String>,
    seats: BTreeMap<String, Seat>,
    run: Option<Run>,
    /// Counts runs.
    count: u64,
    /// Present if the run is not here.
    elsewhere: Option<Elsewhere>,
    /// Notified when that changes.
    turned: Arc<Notify>,
    /// The addresses of all servers of the farm, if there are several.
    pub addresses: Vec<String>,
    /// The mirrors of the workers of each pool.
    pub mirrors: BTreeMap<String, String>,
    /// The pools with machines on demand, as the caller said last.
    pub pools: Vec<PoolStatus>,
}

/// Another server of the farm has the run, or this one does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The address of the server, if it is known.
    pub leader: Option<String>,
}

/// A connected run.
#[derive(Debug)]
struct Run {
    number: u64,
    /// Its random id, by which workers notice that it is another one.
    id: String,
    /// Its epoch, if several machines can lead.
    epoch: Option<String>,
    /// Takes frames for it.
    sender: mpsc::Sender<Vec<u8>>,
    files: Arc<Files>,
    /// The work that is left, as it said last.
    backlog: Option<Backlog>,
}

/// A worker that has connected, or that a run expects.
#[derive(Debug)]
struct Seat {
    session: String,
    mailbox: VecDeque<Vec<u8>>,
    mailbox_bytes: usize,
    filled: Arc<Notify>,
    /// Places for files, and for messages, which must not wait for files.
    files_arriving: Arc<Semaphore>,
    messages_arriving: Arc<Semaphore>,
    grants: HashMap<String, Grant>,
    /// When it sent its last request.
    seen: Option<Instant>,
    about: About,
    /// How far its clock is ahead, if it said so.
    clock_ahead_seconds: Option<f64>,
    /// What it keeps, as it said last.
    holdings: Option<Holdings>,
    /// Whether it has said that it ends soon.
    is_ending: bool,
}

/// What a door knows of a worker. Empty for one that has not connected.
#[derive(Debug, Default)]
pub struct Seen {
    /// The time since its last request, if there was one.
    pub silent: Option<Duration>,
    /// The number of its builds.
    pub builds: usize,
    pub about: About,
    pub clock_ahead_seconds: Option<f64>,
    pub holdings: Option<Holdings>,
    pub is_ending: bool,
}

impl Seat {
    /// The seat of a worker without a session.
    fn vacant() -> Seat {
        Seat {
            session: String::new(),
            mailbox: VecDeque::new(),
            mailbox_bytes: 0,
            filled: Arc::default(),
            files_arriving: Arc::new(Semaphore::new(FILES_ARRIVING_MAX)),
            messages_arriving: Arc::new(Semaphore::new(MESSAGES_ARRIVING_MAX)),
            grants: HashMap::new(),
            seen: None,
            about: About::default(),
            clock_ahead_seconds: None,
            holdings: None,
            is_ending: false,
        }
    }
}

/// What a worker may do for a build.
#[derive(Debug, Default)]
struct Grant {
    reads: HashSet<Sha256Hex>,
    /// The beginning of the paths of its logs. None for a build that is only announced: the worker may read its inputs, and
    /// write nothing.
    logs: Option<String>,
    /// The names of its logs that have arrived.
    names: HashSet<String>,
    /// The files that the worker has stored for it.
    stored: HashSet<Sha256Hex>,
}

impl State {
    /// A new challenge.
    pub fn challenge(&mut self, now: Instant) -> String {
        let is_over = |(_, at): &(String, Instant)| now.duration_since(*at) > CHALLENGE_MAX;
        while self.made.len() >= CHALLENGES_MAX || self.made.front().is_some_and(is_over) {
            if let Some((challenge, _)) = self.made.pop_front() {
                self.challenges.remove(&challenge);
            }
        }
        let challenge = crate::random_hex();
        self.challenges.insert(challenge.clone(), now);
        self.made.push_back((challenge.clone(), now));
        challenge
    }

    /// Uses up a challenge. Returns false if it is unknown or too old.
    pub fn take_challenge(&mut self, challenge: &str, now: Instant) -> bool {
        let made = self.challenges.remove(challenge);
        made.is_some_and(|at| now.duration_since(at) <= CHALLENGE_MAX)
    }

    /// Begins a session of a worker, in place of its last one. `clock_seconds` is the time of day.
    pub fn begin(&mut self, worker: &str, about: About, now: Instant, clock_seconds: f64) -> String {
        let session = crate::random_hex();
        self.sessions.insert(session.clone(), worker.to_owned());
        let seat = self.seats.entry(worker.to_owned()).or_insert_with(Seat::vacant);
        self.sessions.remove(&seat.session);
        seat.session.clone_from(&session);
        seat.clock_ahead_seconds = about.clock_seconds.map(|its| its - clock_seconds);
        // Another process may have another folder.
        (seat.seen, seat.about, seat.holdings, seat.is_ending) = (Some(now), about, None, false);
        session
    }

    /// A worker says what it keeps.
    pub fn keeps(&mut self, worker: &str, holdings: Holdings) {
        if let Some(seat) = self.seats.get_mut(worker) {
            seat.holdings = Some(holdings);
        }
    }

    /// A worker says that it ends soon.
    pub fn ends(&mut self, worker: &str) {
        if let Some(seat) = self.seats.get_mut(worker) {
            seat.is_ending = true;
        }
    }

    /// The worker of a session.
    pub fn worker(&mut self, session: &str, now: Instant) -> Option<String> {
        let worker = self.sessions.get(session)?;
        self.seats.get_mut(worker)?.seen = Some(now);
        Some(worker.clone())
    }

    /// Ends everything that a worker has here.
    pub fn remove(&mut self, worker: &str) {
        if let Some(seat) = self.seats.remove(worker) {
            self.sessions.remove(&seat.session);
            seat.filled.notify_waiters();
        }
    }

    /// The places for what a worker sends: a file, or a message.
    pub fn arriving(&self, worker: &str, is_file: bool) -> Option<Arc<Semaphore>> {
        let seat = self.seats.get(worker)?;
        Some(if is_file { &seat.files_arriving } else { &seat.messages_arriving }.clone())
    }

    /// The oldest message for a worker, and what signals the next one.
    pub fn take(&mut self, worker: &str) -> Option<(Option<Vec<u8>>, Arc<Notify>)> {
        let seat = self.seats.get_mut(worker)?;
        let message = seat.mailbox.pop_front();
        seat.mailbox_bytes -= message.as_ref().map_or(0, Vec::len);
        Some((message, seat.filled.clone()))
    }

    /// Allows a worker something. One that has not connected since the door was started finds it when it does.
    fn allow(&mut self, worker: &str, allowed: Allowed) {
        let Allowed { attempt, reads, logs } = allowed;
        let seat = self.seats.entry(worker.to_owned()).or_insert_with(Seat::vacant);
        let grant = seat.grants.entry(attempt).or_default();
        grant.reads.extend(reads);
        grant.logs = logs.or_else(|| grant.logs.take());
    }

    /// Handles a frame of the run.
    pub fn deliver(&mut self, frame: ToDoor, message: Vec<u8>) {
        if frame.backlog.is_some() {
            if let Some(run) = &mut self.run {
                run.backlog = frame.backlog;
            }
            return;
        }
        if let Some(allowed) = frame.allows {
            self.allow(&frame.to, allowed);
        }
        let seat = self.seats.entry(frame.to).or_insert_with(Seat::vacant);
        if let Some(attempt) = &frame.ends {
            seat.grants.remove(attempt);
        }
        // The end of a build that its worker lost is for the door alone.
        if message.is_empty() && frame.ends.is_some() {
            return;
        }
        let has_room = seat.mailbox_bytes + message.len() <= MAILBOX_BYTES_MAX;
        if seat.mailbox.len() < MAILBOX_MAX && has_room {
            seat.mailbox_bytes += message.len();
            seat.mailbox.push_back(message);
            seat.filled.notify_one();
        }
    }

    /// Whether a worker may read a file.
    pub fn may_read(&self, worker: &str, sha256: &Sha256Hex) -> bool {
        let grants = self.seats.get(worker).into_iter().flat_map(|seat| seat.grants.values());
        grants.into_iter().any(|grant| grant.reads.contains(sha256))
    }

    /// Notes that a worker has stored a whole file for a build, unless that is over.
    pub fn has_stored(&mut self, worker: &str, attempt: &str, sha256: Sha256Hex) {
        let grant = self.seats.get_mut(worker).and_then(|seat| seat.grants.get_mut(attempt));
        if let Some(grant) = grant.filter(|grant| grant.stored.len() < STORED_MAX) {
            grant.stored.insert(sha256);
        }
    }

    /// Whether a worker may know that the yard has a file: it may read the file, or has stored it for this build.
    pub fn may_know(&self, worker: &str, attempt: &str, sha256: &Sha256Hex) -> bool {
        let grant = self.seats.get(worker).and_then(|seat| seat.grants.get(attempt));
        grant.is_some_and(|grant| grant.stored.contains(sha256)) || self.may_read(worker, sha256)
    }

    /// The beginning of the paths of a build's logs, if the worker has the build.
    pub fn logs(&self, worker: &str, attempt: &str) -> Option<String> {
        self.seats.get(worker)?.grants.get(attempt)?.logs.clone()
    }

    /// The same, for a log of this name. A build has a bounded number of logs.
    pub fn logs_with(&mut self, worker: &str, attempt: &str, name: &str) -> Option<String> {
        let grant = self.seats.get_mut(worker)?.grants.get_mut(attempt)?;
        let logs = grant.logs.clone()?;
        if !grant.names.contains(name) {
            if grant.names.len() >= LOGS_MAX {
                return None;
            }
            grant.names.insert(name.to_owned());
        }
        Some(logs)
    }

    /// Connects a run, in place of an earlier one, whose grants end. Returns its number.
    pub fn connect(
        &mut self,
        files: Files,
        allowed: Vec<(String, Allowed)>,
        epoch: Option<String>,
        sender: mpsc::Sender<Vec<u8>>,
    ) -> u64 {
        self.count += 1;
        let (number, id, files) = (self.count, crate::random_hex(), Arc::new(files));
        self.run = Some(Run { number, id, epoch, sender, files, backlog: None });
        self.forget();
        // Workers introduce themselves to it at once.
        self.seats.values().for_each(|seat| seat.filled.notify_waiters());
        for (worker, allowed) in allowed {
            self.allow(&worker, allowed);
        }
        self.count
    }

    /// Disconnects a run, unless another took its place.
    pub fn disconnect(&mut self, run: u64) {
        if self.run.as_ref().is_some_and(|connected| connected.number == run) {
            self.run = None;
            self.forget();
        }
    }

    /// Forgets what an earlier run said.
    fn forget(&mut self) {
        for seat in self.seats.values_mut() {
            seat.mailbox.clear();
            seat.mailbox_bytes = 0;
            seat.grants.clear();
        }
    }

    /// The sender of frames to the run.
    pub fn run(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.run.as_ref().map(|run| run.sender.clone())
    }

    /// The id of the run.
    pub fn run_id(&self) -> Option<&str> {
        self.run.as_ref().map(|run| run.id.as_str())
    }

    /// The epoch of the run, if it has one.
    pub fn epoch(&self) -> Option<&str> {
        self.run.as_ref()?.epoch.as_deref()
    }

    /// Whether there may be packages that could start: a run that has not said how much is left may have some.
    pub fn has_ready(&self) -> bool {
        let backlog = self.run.as_ref().map(|run| &run.backlog);
        backlog.is_some_and(|backlog| backlog.as_ref().is_none_or(|backlog| !backlog.ready.is_empty()))
    }

    /// Where the run is, unless it is here.
    pub fn elsewhere(&self) -> Option<&Elsewhere> {
        self.elsewhere.as_ref()
    }

    /// Notified when the run is elsewhere, or here again.
    pub fn turned(&self) -> Arc<Notify> {
        self.turned.clone()
    }

    /// Notes where the run is. Workers that wait learn it at once.
    pub fn set_elsewhere(&mut self, elsewhere: Option<Elsewhere>) {
        if self.elsewhere != elsewhere {
            self.elsewhere = elsewhere;
            self.turned.notify_waiters();
            self.seats.values().for_each(|seat| seat.filled.notify_waiters());
        }
    }

    /// The files of the run.
    pub fn files(&self) -> Option<Arc<Files>> {
        self.run.as_ref().map(|run| run.files.clone())
    }

    /// The work that is left in the run that is connected, if it has said so.
    pub fn backlog(&self) -> Option<Backlog> {
        self.run.as_ref().and_then(|run| run.backlog.clone())
    }

    /// What is known of a worker.
    pub fn seen(&self, worker: &str, now: Instant) -> Seen {
        let Some(seat) = self.seats.get(worker) else { return Seen::default() };
        Seen {
            silent: seat.seen.map(|seen| now.duration_since(seen)),
            // Those that are only announced have no logs.
            builds: seat.grants.values().filter(|grant| grant.logs.is_some()).count(),
            about: seat.about.clone(),
            clock_ahead_seconds: seat.clock_ahead_seconds,
            holdings: seat.holdings.clone(),
            is_ending: seat.is_ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_artifacts::Folder;
    use std::path::Path;

    fn to(worker: &str, allows: Option<Allowed>, ends: Option<&str>) -> ToDoor {
        ToDoor { to: worker.to_owned(), allows, ends: ends.map(str::to_owned), ..ToDoor::default() }
    }

    #[test]
    fn a_challenge_is_answered_once_and_in_time() {
        let (mut state, now) = (State::default(), Instant::now());
        let challenge = state.challenge(now);
        assert!(state.take_challenge(&challenge, now));
        assert!(!state.take_challenge(&challenge, now));
        let late = state.challenge(now);
        assert!(!state.take_challenge(&late, now + CHALLENGE_MAX + Duration::from_secs(1)));
        for _ in 0..CHALLENGES_MAX + 5 {
            state.challenge(now);
        }
        assert_eq!((state.challenges.len(), state.made.len()), (CHALLENGES_MAX, CHALLENGES_MAX));
    }

    #[test]
    fn a_worker_reads_what_its_builds_name_while_it_has_them() {
        let (mut state, now) = (State::default(), Instant::now());
        let sha = |digit: &str| Sha256Hex::parse(&digit.repeat(64)).unwrap();
        let (first, second) =
            (state.begin("one", About::default(), now, 0.0), state.begin("two", About::default(), now, 0.0));
        assert_eq!(state.worker(&first, now).as_deref(), Some("one"));
        let allows = |reads: Vec<Sha256Hex>, logs: Option<&str>| {
            Some(Allowed { attempt: "a".to_owned(), reads, logs: logs.map(str::to_owned) })
        };
        state.deliver(to("one", allows(vec![sha("1")], Some("logs/1/p/2-")), None), b"grant".to_vec());
        state.deliver(to("one", allows(vec![sha("2")], None), None), b"answer".to_vec());
        assert!(state.may_read("one", &sha("1")) && state.may_read("one", &sha("2")));
        assert!(!state.may_read("two", &sha("1")) && !state.may_read("one", &sha("3")));
        assert_eq!(state.logs("one", "a").as_deref(), Some("logs/1/p/2-"));
        assert_eq!((state.logs("two", "a"), state.logs("one", "b")), (None, None));
        for number in 0..LOGS_MAX {
            assert!(state.logs_with("one", "a", &number.to_string()).is_some());
        }
        assert!(state.logs_with("one", "a", "0").is_some() && state.logs_with("one", "a", "more").is_none());
        assert_eq!(state.take("one").unwrap().0.as_deref(), Some(&b"grant"[..]));
        state.deliver(to("one", None, Some("a")), b"over".to_vec());
        assert!(!state.may_read("one", &sha("1")));
        // An announced build is read for, and writes nothing before it begins.
        state.deliver(to("one", allows(vec![sha("3")], None), None), b"announced".to_vec());
        assert!(state.may_read("one", &sha("3")));
        assert_eq!((state.logs("one", "a"), state.logs_with("one", "a", "x")), (None, None));
        state.deliver(to("one", allows(Vec::new(), Some("logs/1/p/3-")), None), b"granted".to_vec());
        assert!(state.may_read("one", &sha("3")) && state.logs("one", "a").is_some());
        // A new session ends the earlier one; another worker's stays.
        state.begin("one", About::default(), now, 0.0);
        assert_eq!((state.worker(&first, now), state.worker(&second, now).as_deref()), (None, Some("two")));
        state.remove("two");
        assert_eq!(state.worker(&second, now), None);
    }

    #[test]
    fn mailboxes_are_bounded() {
        let (mut state, now) = (State::default(), Instant::now());
        state.begin("one", About::default(), now, 0.0);
        for _ in 0..MAILBOX_MAX + 9 {
            state.deliver(to("one", None, None), vec![0; 10]);
        }
        assert_eq!(state.seats["one"].mailbox.len(), MAILBOX_MAX);
        let (sender, _receiver) = mpsc::channel(1);
        let folder = || Folder::at(Path::new("/nowhere"));
        let files = Files { yard: "/nowhere".into(), distfiles: folder(), archives: Vec::new() };
        let run = state.connect(files, Vec::new(), None, sender);
        assert!(state.take("one").unwrap().0.is_none());
        state.disconnect(run + 1);
        assert!(state.run().is_some());
        state.disconnect(run);
        assert!(state.run().is_none());
    }
}
