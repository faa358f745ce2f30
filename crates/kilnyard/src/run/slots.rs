//! The slots of this machine's worker: a thread each, which performs one build after the other.

use super::link::{Local, sent};
use kilnyard_model::order::Stage;
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{BuildResult, Lease, Progress};
use kilnyard_store::Number;
use kilnyard_worker::{Link, Share, Worker};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;

/// How often a build says that it goes on: a few times in the time of a lease.
const ALIVE_INTERVAL: Duration = Duration::from_secs(20);

struct Work {
    lease: Lease,
    link: Local,
    share: Share,
    cancel: Arc<AtomicBool>,
}

/// See the module.
pub struct Slots<'scope> {
    senders: Vec<Sender<Work>>,
    cancels: HashMap<Number, Arc<AtomicBool>>,
    _scope: PhantomData<&'scope ()>,
}

impl<'scope> Slots<'scope> {
    /// Starts the threads; they end when this is dropped.
    pub fn start<'env>(scope: &'scope Scope<'scope, 'env>, worker: &Worker, count: u32) -> Slots<'scope> {
        let senders = (0..count)
            .map(|_| {
                let (sender, receiver) = mpsc::channel::<Work>();
                let worker = worker.clone();
                scope.spawn(move || {
                    for work in receiver {
                        if !work.link.ended(perform(&worker, &work)) {
                            return;
                        }
                    }
                });
                sender
            })
            .collect();
        Slots { senders, cancels: HashMap::new(), _scope: PhantomData }
    }

    /// Gives a slot a build, with its share of the cores.
    pub fn build(&mut self, lease: Lease, link: Local, share: Share) {
        let cancel = Arc::new(AtomicBool::new(false));
        self.cancels.retain(|_, other| Arc::strong_count(other) > 1);
        self.cancels.insert(lease.build, cancel.clone());
        let slot = lease.slot as usize;
        // A slot's thread ends only with its sender.
        let _ = self.senders[slot].send(Work { lease, link, share, cancel });
    }

    /// Ends a build.
    pub fn cancel(&self, build: Number) {
        if let Some(cancel) = self.cancels.get(&build) {
            cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Ends all builds, and lets the threads end.
    pub fn cancel_all(&mut self) {
        for cancel in self.cancels.values() {
            cancel.store(true, Ordering::Relaxed);
        }
        self.senders.clear();
    }
}

/// Performs a build; a bug in one fails that one alone.
fn perform(worker: &Worker, work: &Work) -> BuildResult {
    let failed = |message: String| BuildResult {
        build: work.lease.build,
        outcome: Err(Failure {
            stage: Stage::Build,
            kind: FailureKind::Machine,
            message,
            line_number: None,
            lines: Vec::new(),
        }),
        is_reproducible: None,
    };
    let lease = match sent(&work.lease) {
        Ok(lease) => lease,
        Err(error) => return failed(error),
    };
    let performed = std::thread::scope(|scope| {
        // Copying a large output or removing a root may take longer than a lease, without a word.
        let (ended, is_ended) = mpsc::channel::<()>();
        let link = work.link.clone();
        scope.spawn(move || {
            while is_ended.recv_timeout(ALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                link.report(Progress::Alive);
            }
        });
        let perform = || worker.perform(&lease, &work.share, &work.cancel, &work.link);
        let performed = catch_unwind(AssertUnwindSafe(perform));
        drop(ended);
        performed
    });
    let bug = || failed("a bug in Kilnyard ended this build; standard error has more".to_owned());
    performed.unwrap_or_else(|_| bug())
}
