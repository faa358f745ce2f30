//! Fetches the inputs of builds to this machine, ahead of time and outside slots.
//!
//! A few threads take work from one queue. If another thread is already fetching an item, the item is deferred until
//! that thread is done, so a file that many packages need occupies only one thread.

use super::Message;
use super::offers::Offers;
use crate::yard::Yard;
use kilnyard_coordinator::Event;
use kilnyard_mirror::{FetchError, FileStore, Progress, Sha256Hex, Wanted};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{BuildOrder, FetchOrder, Input, Stage};
use kilnyard_model::result::{Failure, FailureKind, Measures, StageResult};
use kilnyard_process::{Log, LogLimits, now_seconds, own_cpu_seconds};
use kilnyard_store::Number;
use kilnyard_worker::{Fetched, Worker, kind_of_fetch_failure};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::Instant;

/// The number of parallel connections: enough to hide the latency of small files, and acceptable to any mirror.
const FETCHERS: usize = 8;

/// The log of a fetch has a line for each file.
const LOG_LIMITS: LogLimits = LogLimits { head_bytes_max: 1 << 20, tail_bytes_max: 64 << 10 };

/// Something to fetch.
enum Item {
    /// A file from a mirror.
    Input(Input),
    /// Files that the package's own commands fetch.
    Commands(Box<(BuildOrder, FetchOrder)>),
}

/// The items of one package.
struct Batch {
    package: PackageId,
    items: Vec<Item>,
    /// The log, relative to the yard and as a path of this process.
    log: (String, PathBuf),
    started: Instant,
    started_seconds: f64,
    state: Mutex<BatchState>,
}

/// A part of the work on a batch.
enum Turn {
    /// The next items that no thread has started.
    Next(Arc<Batch>),
    /// A deferred item.
    Item(Arc<Batch>, usize),
}

/// Work for the threads.
#[derive(Default)]
struct Queue {
    /// Absent once the fetchers end.
    sender: Option<Sender<Turn>>,
    /// Items whose files another thread is fetching.
    deferred: Vec<(Arc<Batch>, usize)>,
}

impl Queue {
    fn send(&self, turn: Turn) {
        if let Some(sender) = &self.sender {
            // The threads receive as long as there is a sender.
            let _ = sender.send(turn);
        }
    }

    /// Queues all deferred items again.
    fn queue_deferred(&mut self) {
        for (batch, item) in std::mem::take(&mut self.deferred) {
            self.send(Turn::Item(batch, item));
        }
    }
}

struct BatchState {
    next: usize,
    open: usize,
    cpu_seconds: f64,
    lines: Vec<String>,
    failure: Option<Failure>,
}

impl Batch {
    /// Writes the log and returns the result of the stage.
    fn finish(&self, state: &mut BatchState) -> Event {
        let log = Log::create(&self.log.1, LOG_LIMITS).and_then(|mut log| {
            state.lines.iter().try_for_each(|line| log.write(format!("{line}\n").as_bytes()))?;
            log.finish()
        });
        let outcome = match (state.failure.take(), log) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => {
                Err(failed(FailureKind::Machine, format!("its log could not be written: {error}")))
            }
            (None, Ok(_)) => Ok(()),
        };
        let stage = StageResult {
            stage: Stage::Fetch,
            started_seconds: self.started_seconds,
            wall_seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: state.cpu_seconds,
            memory_peak_bytes: 0,
            work_bytes: None,
            disk_bytes: None,
            parallel_seconds: None,
            is_ok: outcome.is_ok(),
            log: Some(self.log.0.clone()),
            log_sha256: None,
            left_behind: Vec::new(),
            measures: Measures::default(),
        };
        Event::Fetched { package: self.package, stage: Some(Box::new(stage)), outcome }
    }
}

fn failed(kind: FailureKind, message: String) -> Failure {
    Failure { stage: Stage::Fetch, kind, message, line_number: None, lines: Vec::new() }
}

/// See the module documentation.
pub struct Fetchers {
    queue: Arc<Mutex<Queue>>,
    yard: PathBuf,
    /// The folder of the run's logs, relative to the yard.
    logs: String,
    distfiles: Arc<FileStore>,
    cancel: Arc<AtomicBool>,
    events: Sender<Message>,
}

impl Fetchers {
    /// Starts the threads. They end when this is cancelled.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        yard: &Yard,
        worker: &Worker,
        run: Number,
        distfiles: Arc<FileStore>,
        events: Sender<Message>,
    ) -> Fetchers {
        let (sender, receiver) = mpsc::channel::<Turn>();
        let receiver = Arc::new(Mutex::new(receiver));
        let queue = Arc::new(Mutex::new(Queue { sender: Some(sender), deferred: Vec::new() }));
        let (cancel, roots) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let offers = Offers::start(scope, distfiles.client().site().cloned(), cancel.clone());
        for _ in 0..FETCHERS {
            let fetcher = Fetcher {
                worker: worker.clone(),
                distfiles: distfiles.clone(),
                events: events.clone(),
                cancel: cancel.clone(),
                queue: queue.clone(),
                roots: roots.clone(),
                offers: offers.clone(),
            };
            let receiver = receiver.clone();
            scope.spawn(move || {
                loop {
                    let received = receiver.lock().map(|receiver| receiver.recv());
                    match received {
                        Ok(Ok(Turn::Next(batch))) => fetcher.work(&batch),
                        Ok(Ok(Turn::Item(batch, item))) => fetcher.item(&batch, item, true),
                        Ok(Err(_)) | Err(_) => return,
                    }
                }
            });
        }
        Fetchers { queue, yard: yard.folder.clone(), logs: format!("logs/{run}"), distfiles, cancel, events }
    }

    /// Fetches the missing inputs of an order. An event reports the end.
    pub fn fetch(&self, package: PackageId, order: &BuildOrder) {
        // A file of another size is damaged, and is fetched again.
        let is_missing = |input: &&Input| {
            let hash = Sha256Hex::parse(&input.sha256).ok();
            hash.and_then(|hash| self.distfiles.size_bytes(&hash)) != Some(input.size_bytes)
        };
        let inputs = order.root.inputs.iter().filter(is_missing).cloned().map(Item::Input);
        let commands =
            order.fetch.iter().map(|fetch| Item::Commands(Box::new((order.clone(), fetch.clone()))));
        let items: Vec<Item> = inputs.chain(commands).collect();
        let open = items.len();
        if open == 0 {
            let _ = self.events.send(Message::Event(Box::new(Event::Fetched {
                package,
                stage: None,
                outcome: Ok(()),
            })));
            return;
        }
        let log = format!("{}/{}/fetch.log", self.logs, order.package);
        let state = BatchState { next: 0, open, cpu_seconds: 0.0, lines: Vec::new(), failure: None };
        let batch = Arc::new(Batch {
            package,
            items,
            log: (log.clone(), self.yard.join(&log)),
            started: Instant::now(),
            started_seconds: now_seconds(),
            state: Mutex::new(state),
        });
        let queue = locked(&self.queue);
        // One turn for each thread that this batch can keep busy.
        for _ in 0..open.min(FETCHERS) {
            queue.send(Turn::Next(batch.clone()));
        }
    }

    /// Cancels all fetches and ends the threads.
    pub fn cancel(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        let mut queue = locked(&self.queue);
        queue.queue_deferred();
        queue.sender = None;
    }
}

impl Drop for Fetchers {
    fn drop(&mut self) {
        // The threads share the queue, and end with its sender.
        locked(&self.queue).sender = None;
    }
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Fetcher {
    worker: Worker,
    distfiles: Arc<FileStore>,
    events: Sender<Message>,
    cancel: Arc<AtomicBool>,
    queue: Arc<Mutex<Queue>>,
    /// The number of roots made for commands so far.
    roots: Arc<AtomicU64>,
    /// What they fetched is offered to the mirror of the site.
    offers: Offers,
}

impl Fetcher {
    fn work(&self, batch: &Arc<Batch>) {
        loop {
            let next = {
                let Ok(mut state) = batch.state.lock() else { return };
                if state.next == batch.items.len() {
                    return;
                }
                state.next += 1;
                state.next - 1
            };
            self.item(batch, next, false);
        }
    }

    /// Fetches an item, or defers it. `was_deferred` is true if it was deferred before.
    fn item(&self, batch: &Arc<Batch>, number: usize, was_deferred: bool) {
        let (lines, cpu_seconds, failure) = match &batch.items[number] {
            Item::Input(input) => self.fetch_input(input),
            Item::Commands(orders) => {
                let (order, fetch) = &**orders;
                let Some(fetched) = self.fetch_by_commands(batch, number, order, fetch, was_deferred) else {
                    return;
                };
                (fetched.output.trim_end().to_owned(), fetched.cpu_seconds, fetched.failure)
            }
        };
        let Ok(mut state) = batch.state.lock() else { return };
        state.cpu_seconds += cpu_seconds;
        state.lines.push(lines);
        state.open -= 1;
        if state.failure.is_none() {
            state.failure = failure;
        }
        if state.open == 0 {
            let _ = self.events.send(Message::Event(Box::new(batch.finish(&mut state))));
        }
    }

    /// Runs a package's own commands. Returns none if they were deferred.
    fn fetch_by_commands(
        &self,
        batch: &Arc<Batch>,
        number: usize,
        order: &BuildOrder,
        fetch: &FetchOrder,
        was_deferred: bool,
    ) -> Option<Fetched> {
        let claim = {
            // Under one lock, so that the thread that is done sees every deferred item.
            let mut queue = locked(&self.queue);
            if self.cancel.load(Ordering::Relaxed) {
                let cancelled = failed(FailureKind::Cancelled, "it was cancelled".to_owned());
                return Some(Fetched { failure: Some(cancelled), ..Fetched::default() });
            }
            let claim = self.worker.claim(fetch);
            if claim.is_none() {
                queue.deferred.push((batch.clone(), number));
            }
            claim?
        };
        let fetched = match was_deferred && self.worker.has_fetched(fetch) {
            // Another thread fetched all of them in the meantime.
            true => Fetched::default(),
            false => {
                // The root of an earlier try may still exist.
                let name = format!("fetch-{}", self.roots.fetch_add(1, Ordering::Relaxed));
                let fetched = self.worker.fetch(order, fetch, &name, &self.cancel);
                if fetched.failure.is_none() {
                    for file in &fetch.files {
                        if let Some(path) = self.worker.path_of(fetch, &file.name) {
                            self.offers.offer(&file.name, path);
                        }
                    }
                }
                fetched
            }
        };
        let mut queue = locked(&self.queue);
        drop(claim);
        queue.queue_deferred();
        Some(fetched)
    }

    /// Fetches a file from a mirror. Returns a line for the log, the CPU time in seconds, and the failure.
    fn fetch_input(&self, input: &Input) -> (String, f64, Option<Failure>) {
        let (started, cpu_seconds_before) = (Instant::now(), own_cpu_seconds());
        let failure = self.fetch(input).err();
        let seconds = started.elapsed().as_secs_f64();
        let line = match &failure {
            None => format!("{} {} bytes in {seconds:.1} s", input.name, input.size_bytes),
            Some(failure) => format!("E: {}: {}", input.name, failure.message),
        };
        (line, own_cpu_seconds() - cpu_seconds_before, failure)
    }

    fn fetch(&self, input: &Input) -> Result<(), Failure> {
        let failed = |message| failed(FailureKind::Fetch, message);
        let sha256 = Sha256Hex::parse(&input.sha256).map_err(|error| failed(error.to_string()))?;
        let wanted = Wanted {
            urls: input.urls.clone(),
            sha256,
            size_bytes: input.size_bytes,
            name: input.name.clone(),
        };
        let reported = Cell::new(0);
        let progress = |progress: Progress| {
            if let Progress::Received { part_bytes, .. } = progress {
                let bytes = part_bytes.saturating_sub(reported.replace(part_bytes));
                let _ = self.events.send(Message::Received(bytes));
            }
        };
        match self.distfiles.ensure(&wanted, &progress, &self.cancel) {
            Ok(_) => Ok(()),
            Err(FetchError::Cancelled { .. }) => {
                Err(Failure { kind: FailureKind::Cancelled, ..failed("it was cancelled".to_owned()) })
            }
            Err(error) => {
                let kind = kind_of_fetch_failure(&error);
                Err(Failure { kind, ..failed(format!("failed to {error}")) })
            }
        }
    }
}
