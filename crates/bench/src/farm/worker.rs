//! Workers whose builds only wait.

use super::chatter::{Chatter, Chatting};
use crate::error::{Context, Error, Kind, Result};
use crate::sham;
use kilnyard_agent::{Action, Agent, Event};
use kilnyard_ecosystem::OutputBounds;
use kilnyard_farm::client::Client;
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::roster::Token;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::provenance::{Account, Signed};
use kilnyard_model::result::{Measures, StageResult};
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_protocol::{
    ANNOUNCED, BuildResult, Built, Hello, Lease, Progress, ToWorker, Versions, encode_as, open,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often an agent gets a tick.
const TICK: Duration = Duration::from_secs(1);
/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The workers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Farm {
    /// The door's address.
    pub url: String,
    /// A folder for keys and packages.
    pub folder: PathBuf,
    /// The slots of each worker.
    pub slots: u32,
    /// The time of each package, in seconds.
    pub seconds: BTreeMap<String, f64>,
    /// The file with a line of JSON for each build: [`Granted`].
    pub granted: PathBuf,
    /// What its builds write, if they do.
    pub chatting: Option<Chatting>,
    /// The name and token of each worker.
    pub members: Vec<(String, String)>,
}

/// When a worker got a lease, and sent its result, in seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Granted {
    pub package: String,
    pub granted_seconds: f64,
    pub ended_seconds: f64,
}

impl Granted {
    /// Reads all files of a folder. Of a package that was built again, the last build counts.
    pub fn read(folder: &Path) -> io::Result<BTreeMap<String, Granted>> {
        let mut all = BTreeMap::new();
        for entry in fs_err::read_dir(folder)? {
            for line in io::BufReader::new(fs_err::File::open(entry?.path())?).lines() {
                // The last line of a process that was killed may be incomplete.
                if let Ok(granted) = serde_json::from_str::<Granted>(&line?) {
                    all.insert(granted.package.clone(), granted);
                }
            }
        }
        Ok(all)
    }
}

/// A build that waits.
struct Waiting {
    lease: Box<Lease>,
    granted_seconds: f64,
    due: Instant,
    outputs: Vec<Output>,
}

/// Runs the workers of this file until they are killed.
pub fn run(path: &Path) -> Result<()> {
    let failed = "read the workers of the benchmark";
    let text = fs_err::read_to_string(path).context(Kind::Usage, failed)?;
    let farm: Farm = serde_json::from_str(&text).context(Kind::Usage, failed)?;
    let log = Mutex::new(File::create(&farm.granted).context(Kind::Machine, failed)?);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            farm.members.iter().map(|(name, token)| scope.spawn(|| work(&farm, name, token, &log))).collect();
        for thread in threads {
            thread.join().map_err(|_| Error::new(Kind::Internal, "a worker of the benchmark panicked"))??;
        }
        Ok(())
    })
}

fn now_seconds() -> f64 {
    crate::words::now_seconds()
}

/// One worker.
fn work(farm: &Farm, name: &str, token: &str, log: &Mutex<File>) -> Result<()> {
    let failed = "take part in the benchmark";
    let folder = farm.folder.join(name);
    fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
    let key = WorkerKey::open(&folder.join("key")).context(Kind::Machine, failed)?;
    let token: Token = token.parse().map_err(|reason: &str| Error::new(Kind::Internal, reason))?;
    let client = Client::new(&farm.url, token.fingerprint, name, key).context(Kind::Machine, failed)?;
    client.join(&token.secret).context(Kind::Machine, failed)?;
    let client = Arc::new(client);
    let (sender, messages) = mpsc::channel();
    std::thread::spawn({
        let client = client.clone();
        move || receive(&client, &sender)
    });
    let hello = Hello {
        worker: name.to_owned(),
        process: name.to_owned(),
        versions: Versions::OURS,
        cores: farm.slots,
        speed: 1.0,
        memory_bytes: None,
        disk_bytes: None,
        host: None,
        warm: Vec::new(),
        kept: Vec::new(),
    };
    let key = WorkerKey::open(&folder.join("key")).context(Kind::Machine, failed)?;
    let (name, agent, waiting) = (name.to_owned(), Agent::new(hello), HashMap::new());
    let chatter = farm.chatting.map(|chatting| Chatter::new(chatting, client.clone(), folder.clone()));
    let mut worker = Sham { farm, client, name, key, folder, log, agent, waiting, chatter };
    worker.apply(Event::Tick)?;
    let mut ticked = Instant::now();
    loop {
        let next = worker.waiting.values().map(|build| build.due).min();
        let next = next.into_iter().chain(worker.chatter.as_ref().map(Chatter::due));
        let until = next.fold(ticked + TICK, Instant::min);
        match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => worker.apply(event)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        worker.finish_due()?;
        if let Some(chatter) = &mut worker.chatter {
            chatter.write(now_seconds()).context(Kind::Machine, failed)?;
        }
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            worker.apply(Event::Tick)?;
        }
    }
}

/// Passes on messages until the door refuses this worker.
fn receive(client: &Client, events: &Sender<Event>) {
    let mut run = None;
    loop {
        match client.receive(true) {
            Ok(received) => {
                if received.run.is_some() && received.run != run {
                    run = received.run;
                    let _ = events.send(Event::Reconnected);
                }
                let message = received.message.and_then(|bytes| open::<ToWorker>(&bytes).ok());
                if let Some(message) = message
                    && events.send(Event::Received(Box::new(message.body))).is_err()
                {
                    return;
                }
            }
            Err(error) if error.is_passing() => std::thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

struct Sham<'a> {
    farm: &'a Farm,
    client: Arc<Client>,
    name: String,
    key: WorkerKey,
    folder: PathBuf,
    log: &'a Mutex<File>,
    agent: Agent,
    waiting: HashMap<Attempt, Waiting>,
    chatter: Option<Chatter>,
}

impl Sham<'_> {
    fn apply(&mut self, event: Event) -> Result<()> {
        let mut actions = Vec::new();
        self.agent.apply(now_seconds(), event, &mut actions);
        for action in actions {
            match action {
                Action::Send(message) => {
                    let runs = format!("running programs for {}", std::env::consts::ARCH);
                    let capabilities = [runs, ANNOUNCED.to_owned()];
                    let bytes = encode_as(Versions::OURS.newest, &capabilities, &message);
                    // A message that is lost is repeated.
                    let _ = self.client.send(bytes.or_internal("encode a message")?);
                }
                Action::Begin(lease) => {
                    if let Some(chatter) = &mut self.chatter {
                        chatter.begin(&lease).context(Kind::Machine, "begin the log of a build")?;
                    }
                    let seconds = self.farm.seconds.get(&lease.order.package).copied().unwrap_or(1.0);
                    let due = Instant::now() + Duration::from_secs_f64(seconds);
                    let granted_seconds = now_seconds();
                    let waiting = Waiting { lease, granted_seconds, due, outputs: Vec::new() };
                    self.waiting.insert(waiting.lease.attempt, waiting);
                }
                Action::Answer { attempt, answer } => {
                    self.quieten(attempt);
                    let Some(build) = self.waiting.remove(&attempt) else { continue };
                    let account = Account::of(&build.lease.order, attempt, &self.name);
                    let signed = self.key.sign(&account.statement(&answer.outputs));
                    let result = BuildResult {
                        build: build.lease.build,
                        outcome: Ok(answer.outputs),
                        is_reproducible: None,
                        provenance: Some(Signed { statement: String::new(), ..signed }),
                    };
                    self.note(&build)?;
                    self.apply(Event::Ended { attempt, result: Box::new(result) })?;
                }
                Action::Deliver(attempt) => {
                    if let Some(build) = self.waiting.get_mut(&attempt) {
                        build.outputs.clear();
                        build.due = Instant::now();
                    }
                }
                Action::Cancel(attempt) => {
                    self.quieten(attempt);
                    self.waiting.remove(&attempt);
                }
                Action::Prepare(lease) => self.apply(Event::Prepared(lease.attempt))?,
                Action::Abandon(_) | Action::Allot(_) | Action::Leave(_) => {}
            }
        }
        Ok(())
    }

    /// Ends the log of a build.
    fn quieten(&mut self, attempt: Attempt) {
        if let Some(chatter) = &mut self.chatter {
            chatter.end(attempt);
        }
    }

    /// Stores the outputs of the builds whose time has passed.
    fn finish_due(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_due = |build: &&mut Waiting| build.due <= now && build.outputs.is_empty();
        let due: Vec<Attempt> =
            self.waiting.values_mut().filter(is_due).map(|build| build.lease.attempt).collect();
        for attempt in due {
            let Some(build) = self.waiting.get(&attempt) else { continue };
            let (number, seconds) = (build.lease.build, now_seconds() - build.granted_seconds);
            let outputs = self.store(&build.lease)?;
            if let Some(build) = self.waiting.get_mut(&attempt) {
                build.outputs.clone_from(&outputs);
            }
            let stage = StageResult {
                stage: Stage::Build,
                started_seconds: now_seconds() - seconds,
                wall_seconds: seconds,
                cpu_seconds: seconds,
                memory_peak_bytes: 1 << 20,
                work_bytes: None,
                disk_bytes: None,
                parallel_seconds: None,
                is_ok: true,
                log: None,
                log_sha256: None,
                left_behind: Vec::new(),
                measures: Measures::default(),
            };
            self.apply(Event::Reported { attempt, progress: Progress::StageEnded(Box::new(stage)) })?;
            self.apply(Event::Built {
                attempt,
                built: Built { build: number, outputs, is_repeated: false },
            })?;
        }
        Ok(())
    }

    /// Makes and stores the package of a build.
    fn store(&self, lease: &Lease) -> Result<Vec<Output>> {
        let failed = "store a package of the benchmark";
        let folder = self.folder.join(lease.attempt.to_string());
        fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
        let (name, version) = (&lease.order.package, &lease.order.version);
        sham::write_package(&folder, name, version).context(Kind::Machine, failed)?;
        let rules = kilnyard_ecosystem::rules(&lease.order.family).or_internal(failed)?;
        let outputs = rules.read_outputs(&folder, OutputBounds::WIDEST).or_internal(failed)?;
        for output in &outputs {
            let sha256 = Sha256Hex::parse(&output.sha256).or_internal(failed)?;
            let stored = self.client.store(&lease.attempt.to_string(), &sha256, &folder.join(&output.file));
            stored.context(Kind::Machine, failed)?;
        }
        Ok(outputs)
    }

    fn note(&self, build: &Waiting) -> Result<()> {
        let package = build.lease.order.package.clone();
        let (granted_seconds, ended_seconds) = (build.granted_seconds, now_seconds());
        let granted = Granted { package, granted_seconds, ended_seconds };
        let line = serde_json::to_string(&granted).or_internal("note a build")? + "\n";
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.write_all(line.as_bytes()).or_internal("note a build")
    }
}
