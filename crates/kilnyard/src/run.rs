//! Drives a run: performs the coordinator's actions, and passes events to it.
//!
//! The threads of a run, and what each owns:
//!
//! - the owner ([`owner`]): the state of the run, in the driver, which contains the coordinator. It receives all
//!   events;
//! - the recorder ([`book`]): the store. It writes decisions, and reads requests from other processes;
//! - the preparer ([`preparer`]): the existing outputs of the set. It runs the solver;
//! - the feed ([`feed`]), on the thread that started the run: the picture and the view;
//! - the worker ([`kilnyard_worker::Client`]): its builds and the cores of this machine. Coordinator and worker
//!   exchange messages ([`link`]), as they would over a network;
//! - fetchers, which send events.
//!
//! They share no mutable state, except for the flag that signals set.

mod book;
mod contents;
mod deposit;
pub mod door;
mod feed;
mod fetch;
mod follow;
mod gathering;
mod helpers;
pub mod kernel_log;
pub mod kernel_time;
mod link;
mod live;
mod logs;
mod offers;
mod owner;
pub mod picture;
mod pins;
mod preparer;
mod stored;
mod taken;
pub mod view;

pub use helpers::OtherMachines;

use crate::config::OutputTests;
use crate::error::{Context, Error, Kind, Result};
use crate::plan::{Forced, Planned, inputs_of};
use crate::servers::{Standby, note_build};
use crate::signals;
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use book::{Beginnings, Book, Unusable, lost};
use contents::{Contents, Outgoing};
use deposit::Depositor;
use door::Door;
use feed::Feed;
use gathering::Gathering;
use kilnyard_coordinator::{Attempts, Coordinator, Event, RetryPolicy};
use kilnyard_driver::{Driver, Input};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::Output;
use kilnyard_model::provenance::Account;
use kilnyard_model::result::PackageState;
use kilnyard_protocol::{Hello, Lease, Versions};
use kilnyard_schedule::Machine;
use kilnyard_store::{ForcedRun, Number, PackageRow, Record, Request, RequestKind, RunRow, RunState, Store};
use kilnyard_worker::{Client, Cores, Inbox, JobserverStyle, SharedFolder, Worker};
use link::{Link, ToOwner, Transcript};
use live::LiveFile;
use logs::LogKeeper;
use owner::{Ended, Owner};
use picture::{Follower, Picture};
use pins::Pins;
use preparer::{Desk, Preparer};
use rand::RngCore;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;
use taken::{TakenOver, fetch_inputs, recorded, take_over};
use view::{BuildSeen, Snapshot, View, ViewEvent};

/// The settings of one run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Packages that are built even if they are up to date.
    pub forced: Forced,
    /// Whether each package is built twice, to compare the bytes.
    pub checks_reproducible: bool,
    /// Whether only workers on other machines build.
    pub is_elsewhere: bool,
    /// The file that records all messages of coordinator and worker; absent if they are not recorded.
    pub transcript: Option<PathBuf>,
    /// Whether another machine has begun the run.
    pub is_continued: bool,
    /// The options of the command with which another machine continues the run.
    pub again: Vec<String>,
}

impl Options {
    /// The forced packages, in the store's form.
    fn forced_run(&self) -> Option<ForcedRun> {
        let mut packages: Vec<String> = match &self.forced {
            Forced::Nothing => return None,
            Forced::Named(names) => names.iter().cloned().collect(),
            Forced::All => Vec::new(),
        };
        packages.sort_unstable();
        Some(ForcedRun { packages, checks_reproducible: self.checks_reproducible })
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// The run's number; absent if there was nothing to do.
    pub run: Option<Number>,
    pub state: RunState,
    /// The number of packages in each state.
    pub counts: Vec<(PackageState, u64)>,
    /// Packages that cannot be built at all, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Whether recipes were read again, so that the set differs from that at the start of the run.
    pub has_rescanned: bool,
}

/// A message for the owner of the run.
pub enum Message {
    /// For the coordinator.
    Event(Box<Event>),
    /// For the driver.
    Input(Box<Input>),
    /// A message of a worker: the one in this process, or one that a door has admitted under this name.
    /// The second part counts the messages that wait, while it exists.
    OfWorker { worker: Option<(String, Arc<()>)>, bytes: Vec<u8> },
    /// This number of bytes arrived from a mirror.
    Received(u64),
    /// A message to a worker on another machine is complete, or cannot be completed for this reason.
    Completed(Box<(Outgoing, std::result::Result<(), String>)>),
    /// The user asked the view to end the run.
    Enough,
    /// The run cannot continue.
    Failed(Box<Error>),
    /// A thread of the run ended.
    Gone,
}

/// Reports the end of a thread, even after a panic.
struct Leaving(Sender<Message>);

impl Drop for Leaving {
    fn drop(&mut self) {
        // Without an owner the run is over.
        let _ = self.0.send(Message::Gone);
    }
}

/// Everything that a run needs.
pub struct Run<'a> {
    pub yard: &'a Yard,
    pub store: &'a mut dyn Store,
    /// The set and its plan.
    pub planned: Planned,
    pub distfiles: Arc<FileStore>,
    pub options: Options,
}

impl Run<'_> {
    /// Runs until everything is decided, or the run is interrupted.
    pub fn run(mut self, view: &mut dyn View) -> Result<RunOutcome> {
        // Before the first decision: views read decisions from the store.
        let follower = Follower::new(self.yard.store()?).map_err(store_error)?;
        let included = self.included();
        let lead = self.store.lead(&self.yard.as_holder()?).map_err(store_error)?;
        // The last leader has decided more since the plan was made.
        if self.options.is_continued {
            self.planned.catch_up(&*self.store, &self.distfiles)?;
        }
        let previous = self.store.last_run().map_err(store_error)?;
        let resumed = previous
            .clone()
            .filter(|run| run.state != RunState::Finished && run.forced == self.options.forced_run())
            .filter(|run| self.is_same_set(run));
        let beginnings = Beginnings {
            set: self.planned.workshop.clone(),
            included,
            unusable: Unusable::of(&self.planned),
        };
        let decided = match &resumed {
            Some(run) => self.store.packages(run.number).map_err(store_error)?,
            None => Vec::new(),
        };
        let starts = beginnings.starts(&self.planned.current, &decided);
        let run = match &resumed {
            Some(run) => run.number,
            None => {
                let is_done =
                    starts.iter().all(|start| !start.is_in_run || start.state == PackageState::LeftOut);
                let rows = self.rows();
                let nothing = rows.iter().all(|row| row.state.is_final());
                if nothing || is_done {
                    if let Some(previous) = previous.filter(|run| run.state == RunState::Running) {
                        self.close(&previous)?;
                    }
                    self.store.leave().map_err(store_error)?;
                    return Ok(RunOutcome {
                        run: None,
                        state: RunState::Finished,
                        counts: counts(&rows),
                        left_out: left_out(&rows),
                        has_rescanned: false,
                    });
                }
                if let Some(previous) = previous.filter(|run| run.state == RunState::Running) {
                    self.close(&previous)?;
                }
                self.store.begin_run(&self.run_row(), &rows).map_err(store_error)?
            }
        };
        note_build(self.yard, Some(&self.options.again))?;
        let mut secret = [0; Attempts::SECRET_BYTES];
        rand::rngs::OsRng.fill_bytes(&mut secret);
        let attempts = Attempts::new(secret);
        let scheduler = self.planned.scheduler()?;
        let own_retries = self.own_retries()?;
        let builds = match &resumed {
            Some(run) => self.store.builds_in(run.number).map_err(store_error)?,
            None => Vec::new(),
        };
        // Without a door, no worker can report a build.
        let taken = match Door::is_open(self.yard) {
            true => take_over(self.yard, &mut self.planned, (&builds, &decided), &starts),
            false => Vec::new(),
        };
        let coordinator = Coordinator::new(run, starts, scheduler.clone(), lead.next_build, attempts)
            .with_retries(self.yard.config.retries.clone())
            .with_own_retries(own_retries)
            .with_required(capabilities())
            .with_own_machine(host_name(), self.planned.shape.machine.cores, Some(kilnyard_worker::host()))
            .with_measured(&door::measured(self.yard))
            .with_knotted(self.knotted())
            .with_tests(self.tests())
            .with_output_tests_apart(self.yard.config.build.test == OutputTests::Apart)
            .with_verified_share(self.yard.config.farm.verify)
            .with_results(recorded(&builds))
            .with_open(now_seconds(), taken.iter().map(|taken| taken.open.clone()).collect());
        let driver = Driver::new(coordinator, scheduler);
        let logs = LogKeeper::start(&self.yard.folder, self.distfiles.depot());
        let mut book = Book { store: self.store, run, beginnings, holder: self.yard.as_holder()?, logs };
        if resumed.is_some() {
            book.resume(&taken).map_err(store_error)?;
        }
        let (yard, farm) = (self.yard, book.store.scope().farm);
        let epoch = yard.config.store.url.is_some().then(|| format!("{farm}.{}", lead.epoch));
        let parts = Parts { yard, planned: &mut self.planned, options: &self.options, taken, epoch };
        parts.drive(book, resumed.is_some(), driver, &self.distfiles, follower, view)
    }

    /// The packages that a second pass builds others with.
    fn knotted(&self) -> Vec<PackageId> {
        self.planned.workshop.built_again(self.yard.config.build.passes).into_iter().flatten().collect()
    }

    /// The packages that are tests of others.
    fn tests(&self) -> Vec<PackageId> {
        let set = &self.planned.workshop;
        set.graph().packages().filter(|id| set.is_test(*id)).collect()
    }

    /// The packages of the plan.
    fn included(&self) -> HashSet<PackageId> {
        let graph = self.planned.workshop.graph();
        self.planned.plan.packages.iter().filter_map(|row| graph.find(&row.package.name)).collect()
    }

    /// The retry policies of packages that have their own.
    fn own_retries(&self) -> Result<BTreeMap<PackageId, RetryPolicy>> {
        let (config, graph) = (&self.yard.config, self.planned.workshop.graph());
        let own = graph.packages().filter_map(|id| {
            let retries = config.settings_of(graph.name(id)).retries;
            let policy = || config.retries.and(&retries).map_err(|reason| Error::new(Kind::Internal, reason));
            (!retries.is_empty()).then(|| Ok((id, policy()?)))
        });
        own.collect()
    }

    /// Records the end of a killed run that is not resumed.
    fn close(&mut self, run: &RunRow) -> Result<()> {
        let builds = self.store.builds_in(run.number).map_err(store_error)?;
        let last_seconds = builds.iter().map(|build| build.ended_seconds.unwrap_or(build.started_seconds));
        let at_seconds = last_seconds.fold(run.started_seconds, f64::max);
        let mut records = lost(&builds);
        records.push(Record::Run { run: run.number, state: RunState::Interrupted, at_seconds });
        self.store.record(&records).map_err(store_error)
    }

    /// Whether a run has the same packages, from the same index, sources and options.
    fn is_same_set(&self, run: &RunRow) -> bool {
        if inputs_of(&run.plan_digest) != inputs_of(&self.planned.plan.digest) {
            return false;
        }
        let planned: HashSet<(&str, &str)> = self
            .planned
            .plan
            .packages
            .iter()
            .map(|row| (&*row.package.name, &*row.package.version))
            .collect();
        self.store.packages(run.number).is_ok_and(|rows| {
            rows.len() == planned.len()
                && rows.iter().all(|row| planned.contains(&(&*row.name, &*row.version)))
        })
    }

    fn rows(&self) -> Vec<PackageRow> {
        self.planned.plan.packages.iter().map(|row| row.package.clone()).collect()
    }

    fn run_row(&self) -> RunRow {
        let shape = &self.planned.shape;
        RunRow {
            number: 0,
            started_seconds: now_seconds(),
            ended_seconds: None,
            state: RunState::Running,
            plan_digest: self.planned.plan.digest.clone(),
            cores: shape.machine.cores,
            slots: shape.slots(),
            expected_seconds: self.planned.plan.expected_seconds,
            bound_seconds: self.planned.plan.bound_seconds,
            forced: self.options.forced_run(),
            commits: self.yard.config.family.commits(self.yard).unwrap_or_default(),
        }
    }
}

/// Where the sources of the packages to build are.
fn source_places(planned: &Planned, rows: &[PackageRow]) -> Vec<String> {
    let graph = planned.workshop.graph();
    let to_build = rows.iter().filter(|row| !row.state.is_final()).filter_map(|row| graph.find(&row.name));
    to_build.flat_map(|id| planned.workshop.source_places(id)).collect()
}

/// The inputs of a run other than its store.
struct Parts<'a> {
    yard: &'a Yard,
    planned: &'a mut Planned,
    options: &'a Options,
    taken: Vec<TakenOver>,
    /// The epoch of this leader, if several machines can lead.
    epoch: Option<String>,
}

impl Parts<'_> {
    fn drive(
        self,
        mut book: Book,
        is_resumed: bool,
        driver: Driver,
        distfiles: &Arc<FileStore>,
        follower: Follower,
        view: &mut dyn View,
    ) -> Result<RunOutcome> {
        let Parts { yard, planned, options, taken, epoch } = self;
        let run = book.run;
        let rows: Vec<PackageRow> = planned.plan.packages.iter().map(|row| row.package.clone()).collect();
        let left_out = left_out(&rows);
        let site = distfiles.client().site().cloned();
        let places = if site.is_some() { source_places(planned, &rows) } else { Vec::new() };
        let unusable = book.beginnings.unusable.clone();
        let worker = worker(yard, distfiles)?;
        let asked = asked(yard, book.store)?;
        let store = yard.store()?;
        let (sender, receiver) = mpsc::channel();
        let (feed, shown) = Feed::new();
        let (desk, questions) = Desk::new();
        let (jobs, recorded) = mpsc::channel();
        let coordinator = driver.coordinator();
        let seen = taken
            .iter()
            .map(|TakenOver { row, .. }| BuildSeen::of(row, planned.parts().1.seconds(&row.package)));
        let seen = seen.collect();
        let snapshot = Snapshot {
            run,
            is_resumed,
            started: Instant::now(),
            cores: planned.shape.machine.cores,
            slots: planned.shape.slots(),
            expected_seconds: planned.plan.expected_seconds,
            counts: coordinator.counts(),
            builds: seen,
            remaining_path_seconds: coordinator.remaining_path_seconds(),
            bytes_fetched: 0,
            work_seconds: (0.0, 0.0),
            ready: Vec::new(),
            failed: Vec::new(),
        };
        // A process id suffices: this process has only one worker.
        let hello = hello(host_name(), std::process::id().to_string(), &planned.shape.machine);
        // The key of this machine's worker.
        let key = WorkerKey::open(&yard.home.join("state/worker.key"));
        let key = key.context(Kind::Machine, "read the key of this machine's worker")?;
        let sign = move |lease: &Lease, outputs: &[Output]| {
            let account = Account::of(&lease.order, lease.attempt, &host_name());
            Some(key.sign(&account.statement(outputs)))
        };
        let supply = SharedFolder { sign, distfiles: distfiles.depot().is_some().then(|| distfiles.clone()) };
        let mut client = Client {
            worker: &worker,
            supply: &supply,
            cores: Cores::new(
                &yard.folder.display().to_string(),
                planned.shape.machine.oversubscribed().cores,
            ),
            tenant: None,
            has_jobservers: worker.settings().jobserver != JobserverStyle::Off && planned.shape.jobs > 1,
            capabilities: capabilities(),
            free_bytes_min: 0,
        };
        let (inbox, incomings) = Inbox::new();
        let transcript = options.transcript.as_deref().map(Transcript::create).transpose()?;
        let traps = planned.traps.clone();
        let (stock, expected) = planned.parts();
        let estimate = Box::new(move |package: &str| expected.seconds(package));
        let mut picture = Picture::new(follower, estimate, snapshot);
        let mut live = LiveFile::new(yard);
        picture.at_tick = Some(Box::new(move |snapshot| live.write(snapshot)));
        picture.at_request = Some(Box::new(|kind, package| {
            let left = yard.store().and_then(|mut store| {
                let author = crate::yard::user_name();
                store.request(kind, package, &author, now_seconds()).map_err(store_error)
            });
            // The owner of the run refuses what cannot be done.
            left.map_or_else(|error| error.one_line(), |()| format!("asked to {} {package}", kind.as_str()))
        }));
        view.see(&ViewEvent::Began, &picture.snapshot);
        let depositor = Depositor::start(distfiles, &sender).map(Arc::new);
        let mut preparer = Preparer {
            stock,
            store,
            forced: &options.forced,
            unusable: &unusable,
            owner: sender.clone(),
            depositor: depositor.clone(),
            traps,
            yard,
            distfiles,
            cancel: signals::cancel(),
            has_rescanned: false,
        };
        // What a killed run left. What builds that are taken over need is copied again.
        contents::clear(yard);
        fetch_inputs(&taken, distfiles);
        let mut packer = contents::Packer::new(yard);
        let door = Door::connect(yard, &sender, (run, epoch), &taken, &mut packer);
        let gathering = match door.is_some() && taken.is_empty() {
            true => Gathering::of(yard, options.is_elsewhere),
            // No other machine takes part, or builds that are taken over are there already.
            false => Gathering::default(),
        };
        let standby = Standby::watch(yard)?;
        // Preparing may have taken long.
        book.store.renew().map_err(store_error)?;
        // The runs of a scope replace each other's.
        let scope = book.store.scope();
        let pins = Sha256Hex::of(format!("{} {} {}", scope.farm, scope.yard, scope.target).as_bytes());
        let pins = format!("run-{}", &pins.as_str()[..16]);
        let (ended, refused, has_rescanned, receiver) = std::thread::scope(|scope| {
            let _pins = Pins::start(scope, site, pins, places);
            let mut owner = Owner {
                run,
                expected,
                checks_reproducible: options.checks_reproducible,
                tests_outputs: yard.config.build.test != OutputTests::Never,
                driver,
                link: Link::new(inbox, transcript, door),
                contents: Contents::start(packer, sender.clone()),
                patches: kilnyard_yard::patches::read(yard),
                fetchers: fetch::Fetchers::start(
                    scope,
                    yard,
                    &worker,
                    run,
                    distfiles.clone(),
                    sender.clone(),
                ),
                jobs,
                desk,
                depositor,
                gathering,
                feed,
                bytes_fetched: 0,
                ended: None,
                reports_backlog: yard.config.farm.has_demand() || door::is_shared(yard),
                own_cores: if options.is_elsewhere { 0 } else { hello.cores },
                standby,
            };
            let [of_preparer, of_recorder] = [Leaving(sender.clone()), Leaving(sender.clone())];
            let to_owner = ToOwner(sender.clone());
            if !options.is_elsewhere {
                let of_client = Leaving(sender.clone());
                scope.spawn(move || {
                    let _leaving = of_client;
                    if let Err(error) = client.run(hello, incomings, &to_owner) {
                        let failed = Err::<(), _>(error).context(Kind::Machine, "perform builds");
                        // Without an owner the run is over.
                        let _ = failed.map_err(|error| to_owner.0.send(Message::Failed(Box::new(error))));
                    }
                });
            }
            let preparer = scope.spawn(move || {
                let _leaving = of_preparer;
                preparer.answer_all(&questions);
                preparer.has_rescanned
            });
            let (events, book) = (sender.clone(), &mut book);
            let recorder = scope.spawn(move || {
                let _leaving = of_recorder;
                let say = |input| events.send(Message::Input(Box::new(input))).is_ok();
                kilnyard_driver::record(book, &recorded, &say)
            });
            let worker = &worker;
            let owner = scope.spawn(move || {
                let ended = owner.drive(&receiver, asked);
                let closed = owner.link.close();
                owner.fetchers.cancel();
                // If this fails, layers are made again.
                let _ = worker.keep_layers();
                (ended.and_then(|ended| closed.map(|()| ended)), receiver)
            });
            picture.show_all(&shown, view, &sender);
            let (ended, receiver) = joined(owner);
            (ended, joined(recorder), joined(preparer), receiver)
        });
        let state = match (ended?, refused) {
            (Ended::In(state), _) => state,
            (Ended::HandedOver, _) => {
                book.store.leave().map_err(store_error)?;
                RunState::Running
            }
            (Ended::Refused, Some(error)) => return Err(store_error(error)),
            (Ended::Refused, None) => {
                return Err(Error::new(Kind::Internal, "the store rejected a record without a reason"));
            }
        };
        if state == RunState::Finished {
            contents::clear(yard);
        }
        picture.follow(view);
        if state == RunState::Running {
            // Requests stay in the store.
            let counts = book.store.counts(run).map_err(store_error)?;
            return Ok(RunOutcome { run: Some(run), state, counts, left_out, has_rescanned });
        }
        // Requests that came too late: the recorder took them, or they are still in the store.
        let late = receiver.try_iter().filter_map(|message| match message {
            Message::Input(input) => match *input {
                Input::Event(Event::Requested(request)) => Some(request),
                _ => None,
            },
            _ => None,
        });
        for request in late.chain(requests(book.store)?) {
            view.see(&ViewEvent::Refused { request: &request, reason: "the run is over" }, &picture.snapshot);
        }
        view.see(&ViewEvent::Ended(state), &picture.snapshot);
        // Another machine need not wait until this one is silent. If this fails, it waits.
        let _ = book.store.leave();
        let counts = book.store.counts(run).map_err(store_error)?;
        Ok(RunOutcome { run: Some(run), state, counts, left_out, has_rescanned })
    }
}

/// The name of this machine, which records use for the worker in this process.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// What each worker of a run on this machine must be capable of: programs of its architecture.
pub fn capabilities() -> Vec<String> {
    vec![format!("running programs for {}", std::env::consts::ARCH)]
}

/// The hello of a worker on this machine.
pub fn hello(worker: String, process: String, machine: &Machine) -> Hello {
    Hello {
        worker,
        process,
        versions: Versions::OURS,
        cores: machine.cores,
        speed: machine.speed,
        memory_bytes: machine.memory_bytes,
        disk_bytes: machine.disk_bytes,
        host: Some(kilnyard_worker::host()),
        warm: Vec::new(),
        kept: Vec::new(),
    }
}

/// The result of a thread; a panic is passed on.
fn joined<T>(thread: std::thread::ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The requests from before the run.
fn asked(yard: &Yard, store: &mut dyn Store) -> Result<Vec<Request>> {
    let first = yard.config.build.first.iter();
    let first = first.map(|package| Request { kind: RequestKind::Bump, package: package.clone() });
    Ok(first.chain(requests(store)?).collect())
}

/// The requests since the last call. With a full disk they stay in the store.
fn requests(store: &mut dyn Store) -> Result<Vec<Request>> {
    match store.take_requests() {
        Err(error) if error.is_full() => Ok(Vec::new()),
        other => other.map_err(store_error),
    }
}

/// This machine's worker, after removing leftovers of earlier builds.
fn worker(yard: &Yard, distfiles: &Arc<FileStore>) -> Result<Worker> {
    let worker = Worker::new(crate::worker::settings(yard), distfiles.clone());
    for left in worker.sweep().context(Kind::Machine, "remove leftovers of an earlier run")? {
        say!("note: {left}");
    }
    Ok(worker)
}

fn left_out(rows: &[PackageRow]) -> Vec<(String, String)> {
    let left_out = rows.iter().filter(|row| row.state == PackageState::LeftOut);
    left_out.map(|row| (row.name.clone(), row.reason.to_string())).collect()
}

fn counts(rows: &[PackageRow]) -> Vec<(PackageState, u64)> {
    let count = |state| rows.iter().filter(|row| row.state == state).count() as u64;
    PackageState::ALL.into_iter().map(|state| (state, count(state))).collect()
}
