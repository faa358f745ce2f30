//! A worker's part in one yard: the connection, the files and the builds.

use super::join::{FREE_BYTES_MIN, PAUSE};
use super::remote::Remote;
use super::shells::{Host, Shells};
use super::tidy::Tidy;
use crate::error::{Context, Error, Kind, Result};
use crate::{environment_of_process, signals, worker};
use kilnyard_farm::client::{Client as Connection, ClientError as ConnectionError};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::streams::Streams;
use kilnyard_mirror::FileStore;
use kilnyard_protocol::{ANNOUNCED, CHECKS};
use kilnyard_root::Roots;
use kilnyard_schedule::Machine;
use kilnyard_worker::{Client, Cores, Inbox, JobserverStyle, Tenant, Transport, Worker};
use rand::RngCore;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How often signals are checked.
const STEP: Duration = Duration::from_millis(100);
/// The pause after a server has said that it does not have the run, for the first few times and later. The server that it
/// names is tried at once.
const ELSEWHERE_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
const SOON: u32 = 10;
/// How long a worker that ends waits for its last messages to be sent.
const SENDING_MAX: Duration = Duration::from_secs(3);
/// How often a worker that ends says so.
const ENDING_AGAIN: Duration = Duration::from_secs(10);
/// A signal that comes so soon after the first is the same one.
const REPEATED_MAX: Duration = Duration::from_secs(5);

/// What the user lets the worker use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub machine: Machine,
    /// How roots of builds are made.
    pub roots: Roots,
    /// What its folder may keep, in bytes.
    pub keep_bytes: u64,
    /// For how long running builds continue after SIGTERM.
    pub grace: Duration,
}

/// See the module documentation.
#[derive(Clone)]
pub struct Member {
    /// The worker's folder for the yard.
    pub folder: PathBuf,
    /// Its folder for the site's own yard, which has those of the others.
    pub site: PathBuf,
    pub connection: Arc<Connection>,
    /// The worker's name.
    pub name: String,
    pub key: WorkerKey,
    /// Its share of the machine.
    pub tenant: Tenant,
    pub bounds: Bounds,
    /// The yard, if it is not the site's own.
    pub yard: Option<String>,
}

/// A member whose folder is ready.
pub struct Prepared {
    member: Member,
    worker: Worker,
    distfiles: Arc<FileStore>,
}

impl Member {
    /// Prepares its folder.
    pub fn prepare(&self) -> Result<Prepared> {
        let Member { folder, site, bounds, .. } = self;
        let environment = environment_of_process();
        let distfiles = super::files(folder, &environment)?;
        let mut settings = worker::settings_without_yard(folder, BTreeMap::new(), &environment);
        settings.site = Some(site.clone());
        settings.jobserver = JobserverStyle::default();
        settings.jobs = bounds.machine.cores;
        settings.roots = bounds.roots;
        settings.layers_bytes_max = settings.layers_bytes_max.min(bounds.keep_bytes);
        settings.kept_bytes_max = settings.kept_bytes_max.min(bounds.keep_bytes);
        let worker = Worker::new(settings, distfiles.clone());
        let swept = worker.sweep().and_then(|mut left| {
            left.extend(worker.clean_up()?);
            Ok(left)
        });
        for left in swept.context(Kind::Machine, format!("prepare {}", folder.display()))? {
            say!("note: {left}");
        }
        Ok(Prepared { member: self.clone(), worker, distfiles })
    }
}

impl Prepared {
    /// Performs builds until the worker is to end, or the yard refuses it. `learn` gets the addresses of the farm's servers.
    pub fn perform(self, learn: impl Fn(Vec<String>) + Send + 'static) -> Result<()> {
        let Prepared { member, worker, distfiles } = self;
        let Member { folder, connection, name, key, tenant, bounds, yard, .. } = member;
        let Bounds { machine, keep_bytes, grace, .. } = bounds;
        let streams = Streams::start(connection.clone());
        let (client, named) = (connection.clone(), name.clone());
        let host = Host::Roots { worker: worker.clone(), folder: folder.clone() };
        Shells { client, host, name: named }.start();
        let client = connection.clone();
        // Before the yard learns what is warm.
        Tidy { client, worker: worker.clone(), folder: folder.clone(), keep_bytes }.start();
        let supply = Remote {
            client: &connection,
            worker: &worker,
            distfiles: &distfiles,
            folder: &folder,
            name: &name,
            key: &key,
            streams: &streams,
            keep_bytes,
        };
        let mut client = Client {
            worker: &worker,
            supply: &supply,
            cores: Cores::new(&folder.display().to_string(), machine.oversubscribed().cores),
            tenant: Some(tenant),
            has_jobservers: machine.cores > 1,
            capabilities: [crate::run::capabilities(), vec![ANNOUNCED.to_owned(), CHECKS.to_owned()]]
                .concat(),
            free_bytes_min: FREE_BYTES_MIN,
        };
        let hello = crate::run::hello(name.clone(), process(), &machine);
        let (inbox, incomings) = Inbox::new();
        let (outgoing, to_send) = mpsc::channel();
        // The one that receives is not waited for: a request for messages may take half a minute.
        let (refusals, refused) = mpsc::channel();
        let sending = std::thread::spawn({
            let connection = connection.clone();
            move || send(&connection, &to_send)
        });
        std::thread::spawn({
            let (connection, inbox) = (connection.clone(), inbox.clone());
            move || {
                // Without a receiver the worker has ended.
                let _ = refusals.send(receive(&connection, &inbox, learn));
                inbox.close();
            }
        });
        let is_over = Arc::new(AtomicBool::new(false));
        std::thread::spawn({
            let (is_over, connection) = (is_over.clone(), connection.clone());
            // The site's own yard learns of the worker's end, and its user too.
            let site = yard.is_none().then_some(connection);
            move || end_by_signals(&inbox, grace, site, &is_over)
        });
        let ended = client.run(hello, incomings, &ToDoor(outgoing)).context(Kind::Machine, "perform builds");
        is_over.store(true, Ordering::Relaxed);
        // The last message is that the worker leaves. Without it, its builds are given to others a little later.
        let began = Instant::now();
        while !sending.is_finished() && began.elapsed() < SENDING_MAX {
            std::thread::sleep(STEP);
        }
        connection.close();
        let ended = ended.and_then(|()| refused.try_recv().map_or(Ok(()), Err));
        let _ = worker.keep_layers();
        ended
    }
}

/// Ends the worker's part after a signal, at once or after a time of grace.
fn end_by_signals(inbox: &Inbox, grace: Duration, site: Option<Arc<Connection>>, is_over: &AtomicBool) {
    while signals::count() == 0 {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(STEP);
    }
    if signals::is_handover() && !grace.is_zero() {
        if site.is_some() {
            say!("the worker takes no more builds, and ends in {} s at the latest", grace.as_secs());
        }
        inbox.drain();
        if let Some(site) = site {
            std::thread::spawn(move || say_ending(&site, grace));
        }
        let ended = Instant::now();
        // Some managers of machines send the same signal twice.
        let is_again = || signals::count() > 1 && ended.elapsed() > REPEATED_MAX;
        while ended.elapsed() < grace && !is_again() && !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(STEP);
        }
    }
    inbox.quit();
}

/// Says that this worker ends soon, so that its pool starts another one now. A new session does not know it, so it is repeated; a
/// server that does not answer learns of the end when it comes. In a thread of its own: a request may take longer than the
/// grace that is left.
fn say_ending(site: &Connection, grace: Duration) {
    let began = Instant::now();
    while began.elapsed() < grace && !site.is_closed() {
        let _ = site.say_ending();
        std::thread::sleep(ENDING_AGAIN);
    }
}

/// A random id of this process.
fn process() -> String {
    let mut id = [0; 16];
    rand::rngs::OsRng.fill_bytes(&mut id);
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Queues messages for the thread that sends them.
struct ToDoor(Sender<Vec<u8>>);

impl Transport for ToDoor {
    fn send(&self, message: Vec<u8>) {
        // Without a sending thread the worker ends.
        let _ = self.0.send(message);
    }
}

/// Sends messages in their order. One that cannot be sent is lost: the agent repeats it.
fn send(connection: &Connection, messages: &Receiver<Vec<u8>>) {
    for message in messages {
        match connection.send(message) {
            // What waits behind it may be for the server that has the run next.
            Ok(()) | Err(ConnectionError::Elsewhere { .. }) => {}
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Why the worker ends, if trying again does not help.
fn ended(error: &ConnectionError) -> Error {
    let (what, hint) = match error {
        ConnectionError::OtherDoor => (
            "the server is not the one that this worker has joined",
            "if a proxy has a new key: `kilnyard workers token --certificate FILE` on the yard's machine, then \
             `kilnyard worker --join URL --token-file FILE` here, which keeps its name",
        ),
        _ => (
            "the yard does not accept this worker any more",
            "join again, with a new token and an empty --folder, if the worker was removed by mistake",
        ),
    };
    let mut made = Error::new(Kind::Machine, what);
    made.causes.push(error.to_string());
    made.hint(hint)
}

/// Receives messages until the door refuses this worker, and returns why.
fn receive(connection: &Connection, inbox: &Inbox, learn: impl Fn(Vec<String>)) -> Error {
    let (mut is_connected, mut run, mut addresses) = (true, None, Vec::new());
    // How often servers have referred to others since one answered.
    let mut referrals: u32 = 0;
    loop {
        match connection.receive(is_connected) {
            Ok(received) => {
                referrals = 0;
                if !std::mem::replace(&mut is_connected, true) {
                    say!("connected again");
                }
                if received.run.is_some() && received.run != run {
                    run = received.run;
                    inbox.reconnected();
                }
                let mut now = connection.addresses();
                now.sort_unstable();
                if addresses != now {
                    learn(now.clone());
                    addresses = now;
                }
                received.message.into_iter().for_each(|message| inbox.deliver(message));
            }
            Err(error) if error.is_passing() => {
                if std::mem::replace(&mut is_connected, false) {
                    say!("{error}; builds continue, and the worker tries again");
                }
                // Another server answers, and will have the run soon.
                let is_elsewhere = matches!(error, ConnectionError::Elsewhere { .. });
                referrals = if is_elsewhere { referrals + 1 } else { 0 };
                match referrals {
                    0 => std::thread::sleep(PAUSE),
                    1 => {}
                    2..SOON => std::thread::sleep(ELSEWHERE_PAUSES[0]),
                    _ => std::thread::sleep(ELSEWHERE_PAUSES[1]),
                }
            }
            Err(error) => return ended(&error),
        }
    }
}
