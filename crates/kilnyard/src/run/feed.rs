//! The queue from the owner of a run to those who watch: what only this process knows. What was decided is read from the store's
//! events ([`Picture`]).
//!
//! A terminal that is stopped, or a pipe that nobody empties, keeps this end waiting and not the run, until the queue is full.

use super::Message;
use super::picture::Picture;
use super::view::{Seen, View};
use kilnyard_model::result::PackageState;
use kilnyard_protocol::Progress;
use kilnyard_store::{Number, Request};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::time::Instant;

/// How far those who watch may be behind. With more the owner waits: what happened is shown to them whole.
const SHOWN_MAX: usize = 65_536;

/// Something to be shown.
#[derive(Debug)]
pub enum Shown {
    /// Where each package stands, without those that the run is not concerned with: at the beginning, and after the state
    /// was read again.
    Standing(Vec<(String, PackageState)>),
    /// There are more events in the store.
    Committed,
    /// A request came.
    Asked(Request),
    /// A request could not be granted.
    Refused { request: Request, reason: String },
    /// How a build goes.
    Progress { build: Number, progress: Progress },
    /// The cores of each build.
    Allotted(Vec<(Number, u32)>),
    /// There is no room on the disk.
    DiskFull,
    /// A commit failed, and the state is read again.
    Reloading,
    /// Builds are being cancelled.
    Stopping,
    /// Time went by.
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

    /// Shows this, after what came before. False when nobody watches any more.
    pub fn show(&self, shown: Shown) -> bool {
        match shown {
            // The next one says the same.
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
    /// Shows what comes until the owner is done. What the view wants is passed on.
    pub fn show_all(&mut self, shown: &Receiver<Shown>, view: &mut dyn View, owner: &Sender<Message>) {
        let mut has_enough = false;
        for shown in shown {
            self.show(shown, view);
            if !has_enough && view.wants_end() {
                has_enough = true;
                // Without an owner it has ended.
                let _ = owner.send(Message::Enough);
            }
        }
    }

    fn show(&mut self, shown: Shown, view: &mut dyn View) {
        // What follows from a decision comes after it.
        if !matches!(shown, Shown::Progress { progress: Progress::Sample { .. }, .. }) {
            self.follow(view);
        }
        match shown {
            Shown::Committed => {}
            Shown::Standing(standing) => self.stand(standing),
            Shown::Asked(request) => view.see(&Seen::Asked(&request), &self.snapshot),
            Shown::Refused { request, reason } => {
                view.see(&Seen::Refused { request: &request, reason: &reason }, &self.snapshot);
            }
            Shown::Progress { build, progress } => self.progress(build, &progress, view),
            Shown::Allotted(cores) => {
                for seen in &mut self.snapshot.builds {
                    let own = cores.iter().find(|(build, _)| *build == seen.build);
                    seen.cores = own.map_or(seen.cores, |(_, cores)| *cores);
                }
            }
            Shown::DiskFull => view.see(&Seen::DiskFull, &self.snapshot),
            Shown::Reloading => view.see(&Seen::Reloading, &self.snapshot),
            Shown::Stopping => view.see(&Seen::Stopping, &self.snapshot),
            Shown::Tick { remaining_path_seconds, bytes_fetched } => {
                self.snapshot.remaining_path_seconds = remaining_path_seconds;
                self.snapshot.bytes_fetched = bytes_fetched;
                view.tick(&self.snapshot);
            }
        }
    }

    fn progress(&mut self, build: Number, progress: &Progress, view: &mut dyn View) {
        let Some(seen) = self.snapshot.builds.iter_mut().find(|seen| seen.build == build) else { return };
        match progress {
            Progress::StageBegan(stage) => {
                seen.stage = Some(*stage);
                seen.stage_started = Instant::now();
                let seen = seen.clone();
                view.see(&Seen::StageBegan(&seen, *stage), &self.snapshot);
            }
            Progress::StageEnded(_) | Progress::Wants(_) => {}
            Progress::Sample { memory_bytes, .. } => seen.memory_bytes = *memory_bytes,
        }
    }
}
