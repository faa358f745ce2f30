//! Notifications: mail, webhooks and commands, for what happens in a yard.
//!
//! ```text
//! store --events, by number--> occasions (`decide`) --one thread for each table `notify`--> delivery (`deliver`)
//! ```
//!
//! A process that has the lock follows the events, `kilnyard serve` as long as it runs and `kilnyard build` during its run.
//! What was delivered to each receiver is written down by the number of its event, so that nothing is lost over a restart:
//! what could not be delivered is tried again, by this process or the next one. Then it may arrive twice, with the same number.
//!
//! Known downside: a receiver that fails for longer than [`GIVE_UP`] misses what it was called for meanwhile; the next call names the last
//! number that it got, and the API has what was between.

pub mod decide;
pub mod deliver;

use crate::config::notify::{Notify, Occasion};
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use decide::{Decider, Occurred};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a delivery is tried.
pub const GIVE_UP: Duration = Duration::from_secs(24 * 3600);
/// The first pause after a failed delivery; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// How long a thread waits for events.
const STEP: Duration = Duration::from_millis(500);
/// How often a process without the lock tries to get it.
const LOCK_STEP: Duration = Duration::from_secs(5);
/// How often it is written down which events were of no interest, while many come.
const NOTE_STEP: Duration = Duration::from_secs(1);
/// The events read at once.
const EVENTS_MAX: usize = 500;
/// The file with what was delivered, relative to the yard.
const FILE: &str = "state/notified.json";
/// The lock of the process that delivers.
const LOCK: &str = "state/notify.lock";

/// What was delivered to a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivered {
    /// The last event that was delivered, or was of no interest.
    pub seq: u64,
    /// The last event that was delivered.
    pub delivered: Option<u64>,
    /// When that was, in seconds since 1970.
    pub at_seconds: Option<f64>,
    /// Why the last delivery failed; absent if it succeeded.
    pub failed: Option<String>,
    /// The events whose delivery was given up.
    pub given_up: u64,
    /// The run of the last event, and the packages that have failed unexpectedly in it until then.
    pub failures: Option<(u64, u64)>,
}

/// What was delivered to each receiver, by its title.
///
/// # Errors
/// The file of it cannot be read, or was damaged.
pub fn delivered(yard: &Yard) -> Result<BTreeMap<String, Delivered>> {
    let failed = "read what was notified";
    match fs_err::read(yard.path(FILE)) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| Error::new(Kind::Machine, format!("failed to {failed}: {FILE}: {error}"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).context(Kind::Machine, failed),
    }
}

/// Delivers until it is dropped.
#[derive(Debug)]
pub struct Notifier {
    end: Arc<AtomicBool>,
    /// Whether it is this process that delivers.
    has_lock: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads share.
struct Shared {
    yard: Yard,
    end: Arc<AtomicBool>,
    has_lock: Arc<AtomicBool>,
    delivered: Mutex<BTreeMap<String, Delivered>>,
    warn: Box<dyn Fn(&str) + Send + Sync>,
}

impl Notifier {
    /// Starts to deliver, as soon as no other process does. Without tables there is nothing to do. `warn` prints a line.
    pub fn start(yard: &Yard, warn: impl Fn(&str) + Send + Sync + 'static) -> Notifier {
        let (end, has_lock) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let tables = yard.config.notify.clone();
        if tables.is_empty() {
            return Notifier { end, has_lock, thread: None };
        }
        let shared = Shared {
            yard: yard.clone(),
            end: end.clone(),
            has_lock: has_lock.clone(),
            delivered: Mutex::default(),
            warn: Box::new(warn),
        };
        let thread = std::thread::spawn(move || shared.run(&tables));
        Notifier { end, has_lock, thread: Some(thread) }
    }

    /// Waits until all events until now are delivered, but at most this long.
    pub fn settle(&self, yard: &Yard, at_most: Duration) {
        let Ok(last) = yard.store().and_then(|store| store.last_event().map_err(store_error)) else { return };
        let ends = Instant::now() + at_most;
        let is_settled = || {
            // What cannot be read is written anew by the next delivery.
            let delivered = delivered(yard).unwrap_or_default();
            yard.config
                .notify
                .iter()
                .all(|table| delivered.get(&table.title()).is_some_and(|one| one.seq >= last))
        };
        let delivers = || self.thread.is_some() && self.has_lock.load(Ordering::Relaxed);
        while delivers() && !is_settled() && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn delivered(&self) -> MutexGuard<'_, BTreeMap<String, Delivered>> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps in steps, so that the end is noticed.
    fn sleep(&self, pause: Duration) {
        let ends = Instant::now() + pause;
        while !self.is_over() && Instant::now() < ends {
            std::thread::sleep(STEP.min(ends.saturating_duration_since(Instant::now())));
        }
    }

    fn run(&self, tables: &[Notify]) {
        let _lock = loop {
            match self.lock() {
                Ok(Some(lock)) => break lock,
                Ok(None) => {}
                Err(error) => (self.warn)(&format!("notifications: {}", error.one_line())),
            }
            self.sleep(LOCK_STEP);
            if self.is_over() {
                return;
            }
        };
        self.has_lock.store(true, Ordering::Relaxed);
        match delivered(&self.yard) {
            Ok(known) => *self.delivered() = known,
            Err(error) => {
                let why = error.one_line();
                (self.warn)(&format!("notifications: {why}: what is pending is not known any more"));
            }
        }
        std::thread::scope(|scope| {
            for table in tables {
                scope.spawn(|| self.follow(table));
            }
        });
    }

    /// The lock; none if another process has it.
    fn lock(&self) -> Result<Option<std::fs::File>> {
        let failed = "lock the notifications of the yard";
        let file = fs_err::File::create(self.yard.path(LOCK)).context(Kind::Machine, failed)?.into_parts().0;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error).context(Kind::Machine, failed),
        }
    }

    /// Delivers to one receiver.
    fn follow(&self, table: &Notify) {
        let title = table.title();
        while !self.is_over() {
            if let Err(error) = self.follow_store(table, &title) {
                (self.warn)(&format!("notifications to {title}: {}", error.one_line()));
                self.sleep(PAUSE_MAX.min(PAUSE * 5));
            }
        }
    }

    fn follow_store(&self, table: &Notify, title: &str) -> Result<()> {
        let store = self.yard.store()?;
        let last = store.last_event().map_err(store_error)?;
        let known = self.delivered().get(title).cloned();
        // A new receiver hears of what happens from now on; a restored store counts anew.
        let mut seq = known.map(|known| known.seq).filter(|seq| *seq <= last).unwrap_or(last);
        self.note(title, |delivered| delivered.seq = seq);
        let mut decider = Decider::new(&self.yard.config);
        decider.resume(self.delivered().get(title).and_then(|delivered| delivered.failures));
        let (mut noted, mut written) = (Instant::now(), seq);
        while !self.is_over() {
            store.wait_for_events(seq, STEP).map_err(store_error)?;
            for event in store.events_since(seq, EVENTS_MAX).map_err(store_error)? {
                for occurred in decider.decide(&*store, &event)? {
                    let is_wanted =
                        table.on.contains(&occurred.occasion) && table.is_for(occurred.package.as_deref());
                    if is_wanted && !self.deliver(table, title, &occurred) {
                        return Ok(());
                    }
                }
                seq = event.seq;
                self.delivered().entry(title.to_owned()).or_default().seq = seq;
                self.delivered().entry(title.to_owned()).or_default().failures = decider.failures();
                // What was of no interest is decided again after a kill.
                if noted.elapsed() >= NOTE_STEP {
                    noted = Instant::now();
                    self.write();
                }
            }
            if seq != written {
                written = seq;
                self.write();
            }
        }
        Ok(())
    }

    /// Delivers one notification. Returns false if the process ends before that.
    fn deliver(&self, table: &Notify, title: &str, occurred: &Occurred) -> bool {
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            let previous = self.delivered().get(title).and_then(|delivered| delivered.delivered);
            match deliver::deliver(&self.yard, table, occurred, previous, &self.end) {
                Ok(()) => {
                    self.note(title, |delivered| {
                        delivered.delivered = Some(occurred.seq);
                        delivered.at_seconds = Some(crate::words::now_seconds());
                        delivered.failed = None;
                    });
                    return true;
                }
                Err(reason) => {
                    let is_first =
                        self.delivered().get(title).is_none_or(|delivered| delivered.failed.is_none());
                    if is_first {
                        (self.warn)(&format!(
                            "a notification to {title} failed, and is tried again: {reason}"
                        ));
                    }
                    self.note(title, |delivered| delivered.failed = Some(reason.clone()));
                    if began.elapsed() >= GIVE_UP {
                        (self.warn)(&format!("a notification to {title} is given up: {reason}"));
                        self.note(title, |delivered| delivered.given_up += 1);
                        return true;
                    }
                }
            }
            if self.is_over() {
                return false;
            }
            self.sleep(pause);
            if self.is_over() {
                return false;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Changes what is written of a receiver, and writes it down.
    fn note(&self, title: &str, change: impl FnOnce(&mut Delivered)) {
        change(self.delivered().entry(title.to_owned()).or_default());
        self.write();
    }

    /// Writes down what was delivered, so that it is there after a power failure.
    fn write(&self) {
        let all = self.delivered();
        let (path, new) = (self.yard.path(FILE), self.yard.path("state/notified.json.new"));
        let text = serde_json::to_vec_pretty(&*all).unwrap_or_default();
        let write = || -> std::io::Result<()> {
            let mut file = fs_err::File::create(&new)?;
            std::io::Write::write_all(&mut file, &text)?;
            file.sync_all()?;
            fs_err::rename(&new, path)
        };
        if let Err(error) = write() {
            (self.warn)(&format!("notifications: {error}: some may be sent again"));
        }
    }
}

/// What a receiver gets if it is called for a trial.
pub fn trial(yard: &Yard) -> Occurred {
    Occurred {
        occasion: Occasion::RunEnded,
        seq: 0,
        run: None,
        package: None,
        at_seconds: crate::words::now_seconds(),
        title: format!("a trial of the notifications of {}", crate::report::name_of(yard)),
        text: "Nothing has happened: this is a trial (kilnyard notify --test).".to_owned(),
        event: serde_json::Value::Null,
    }
}
