//! The queue from the owner of a run to the view, for data that only this process has. Decisions are read from the
//! store's events ([`Picture`]).
//!
//! A stopped terminal or a full pipe delays only the view, not the run, until the queue is full.

use super::Message;
use super::picture::Picture;
use super::view::{View, ViewEvent};
use kilnyard_model::result::PackageState;
use kilnyard_protocol::Progress;
use kilnyard_store::{Number, Request};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::time::Instant;

/// The capacity of the queue. When it is full, the owner waits, since only samples may be dropped.
const SHOWN_MAX: usize = 65_536;

/// An item for the view.
#[derive(Debug)]
pub enum Shown {
    /// The states of the run's packages, at the beginning and after a reload.
    BuildPhase(Vec<(String, PackageState)>),
    /// The store has new events.
    Committed,
    /// A request arrived.
    Asked(Request),
    /// A request was refused.
    Refused { request: Request, reason: String },
    /// A report on a build.
    Progress { build: Number, progress: Progress },
    /// The cores of each build.
    Allotted(Vec<(Number, u32)>),
    /// A worker gets no more builds.
    Quarantined { worker: String, reason: String },
    /// Another pool built a package with other contents.
    Differs { package: String, message: String },
    /// The disk is full.
    DiskFull,
    /// A commit failed, and the state of the run is read again.
    Reloading,
    /// Builds are being cancelled.
    Stopping,
    /// A clock tick.
    Tick { remaining_path_seconds: f64, bytes_fetched: u64 },
}

/// The owner's end.
#[derive(Clone, Debug)]
pub struct Feed(SyncSender<Shown>);

impl Feed {
    /// The queue.
    pub fn new() -> (Feed, Receiver<Shown>) {
        let (sender, receiver) = sync_channel(SHOWN_MAX);
        (Feed(sender), receiver)
    }

    /// Queues an item. Returns false if the view is gone.
    pub fn show(&self, shown: Shown) -> bool {
        match shown {
            // These may be dropped: a later one has the same information.
            Shown::Tick { .. }
            | Shown::Committed
            | Shown::Progress { progress: Progress::Sample { .. }, .. } => {
                !matches!(self.0.try_send(shown), Err(std::sync::mpsc::TrySendError::Disconnected(_)))
            }
            _ => self.0.send(shown).is_ok(),
        }
    }
}

impl Picture<'_> {
    /// Shows items until the owner is done, and passes on the view's request to end the run.
    pub fn show_all(&mut self, shown: &Receiver<Shown>, view: &mut dyn View, owner: &Sender<Message>) {
        let mut has_enough = false;
        for shown in shown {
            self.show(shown, view);
            if !has_enough && view.wants_end() {
                has_enough = true;
                // Without an owner the run is over.
                let _ = owner.send(Message::Enough);
            }
        }
    }

    fn show(&mut self, shown: Shown, view: &mut dyn View) {
        // Show decisions before their consequences.
        if !matches!(shown, Shown::Progress { progress: Progress::Sample { .. }, .. }) {
            self.follow(view);
        }
        match shown {
            Shown::Committed => {}
            Shown::BuildPhase(states) => self.set_states(states),
            Shown::Asked(request) => view.see(&ViewEvent::Asked(&request), &self.snapshot),
            Shown::Refused { request, reason } => {
                view.see(&ViewEvent::Refused { request: &request, reason: &reason }, &self.snapshot);
            }
            Shown::Progress { build, progress } => self.progress(build, &progress),
            Shown::Allotted(cores) => {
                for seen in &mut self.snapshot.builds {
                    let own = cores.iter().find(|(build, _)| *build == seen.build);
                    seen.cores = own.map_or(seen.cores, |(_, cores)| *cores);
                }
            }
            Shown::Quarantined { worker, reason } => {
                view.see(&ViewEvent::Quarantined { worker: &worker, reason: &reason }, &self.snapshot);
            }
            Shown::Differs { package, message } => {
                view.see(&ViewEvent::Differs { package: &package, message: &message }, &self.snapshot);
            }
            Shown::DiskFull => view.see(&ViewEvent::DiskFull, &self.snapshot),
            Shown::Reloading => view.see(&ViewEvent::Reloading, &self.snapshot),
            Shown::Stopping => view.see(&ViewEvent::Stopping, &self.snapshot),
            Shown::Tick { remaining_path_seconds, bytes_fetched } => {
                self.snapshot.remaining_path_seconds = remaining_path_seconds;
                self.snapshot.bytes_fetched = bytes_fetched;
                if let Some(at_tick) = &mut self.at_tick {
                    at_tick(&self.snapshot);
                }
                view.tick(&self.snapshot);
                for (kind, package) in view.requests() {
                    if let Some(at_request) = &mut self.at_request {
                        view.answered(&at_request(kind, &package));
                    }
                }
            }
        }
    }

    fn progress(&mut self, build: Number, progress: &Progress) {
        let Some(seen) = self.snapshot.builds.iter_mut().find(|seen| seen.build == build) else { return };
        match progress {
            Progress::StageBegan(stage) => {
                seen.stage = Some(*stage);
                seen.stage_started = Instant::now();
            }
            Progress::StageEnded(_) | Progress::Wants(_) => {}
            Progress::Sample { memory_bytes, processes, runnable } => {
                (seen.memory_bytes, seen.processes) = (*memory_bytes, (*processes, *runnable));
            }
        }
    }
}
