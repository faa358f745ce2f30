//! Sends the image of the yard, or receives it, in a thread of its own: files may take minutes, in which the server still
//! shows that it is alive.

use crate::error::Result;
use crate::yard::{Documents, Lock, Yard, share_outputs};
use crate::{signals, words};
use kilnyard_artifacts::Depot;
use kilnyard_family::FAMILIES;
use kilnyard_mirror::FileStore;
use kilnyard_yard::image::{Change, REPLACED, Received, Sent};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the image is compared.
const STEP: Duration = Duration::from_secs(2);

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Nothing, while it is not clear which machine has the yard.
    Neither,
    /// This machine has the yard.
    Send,
    /// Another machine has it.
    Receive,
}

/// See the module documentation.
pub struct Mover {
    direction: Arc<AtomicU8>,
    /// The yard with the configuration that was received last.
    yard: Arc<Mutex<Yard>>,
    inputs: Arc<AtomicU64>,
}

impl Mover {
    /// Starts the thread, which ends with the process.
    pub fn start(yard: &Yard, documents: Documents, depot: Arc<dyn Depot>, distfiles: FileStore) -> Mover {
        let direction = Arc::new(AtomicU8::new(Direction::Neither as u8));
        let shared = Arc::new(Mutex::new(yard.clone()));
        let inputs = Arc::new(AtomicU64::new(0));
        let moving = Moving {
            direction: direction.clone(),
            yard: shared.clone(),
            inputs: inputs.clone(),
            documents,
            depot,
            distfiles,
            sent: Sent::default(),
            received: Received::default(),
            has_shared: false,
            said: String::new(),
        };
        std::thread::spawn(move || moving.run());
        Mover { direction, yard: shared, inputs }
    }

    /// Says which way files go.
    pub fn set(&self, direction: Direction) {
        self.direction.store(direction as u8, Ordering::Relaxed);
    }

    /// How often something has arrived that a plan is made from. 0 before the first time.
    pub fn inputs(&self) -> u64 {
        self.inputs.load(Ordering::Relaxed)
    }

    /// The yard with its current configuration.
    pub fn yard(&self) -> Yard {
        self.yard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Moving {
    direction: Arc<AtomicU8>,
    yard: Arc<Mutex<Yard>>,
    /// See [`Mover::inputs`].
    inputs: Arc<AtomicU64>,
    documents: Documents,
    depot: Arc<dyn Depot>,
    distfiles: FileStore,
    sent: Sent,
    received: Received,
    /// Whether the outputs from before there was a store that machines share are there.
    has_shared: bool,
    /// What was said last.
    said: String,
}

impl Moving {
    fn run(mut self) {
        let mut before = Direction::Neither;
        while signals::count() == 0 {
            let direction = match self.direction.load(Ordering::Relaxed) {
                code if code == Direction::Send as u8 => Direction::Send,
                code if code == Direction::Receive as u8 => Direction::Receive,
                _ => Direction::Neither,
            };
            if direction != before {
                // The other machine may have changed everything meanwhile.
                (self.sent, self.received, before) = (Sent::default(), Received::default(), direction);
            }
            let moved = match direction {
                Direction::Send => self.send(),
                Direction::Receive => self.receive(),
                Direction::Neither => Ok(()),
            };
            if let Err(error) = moved {
                self.say(format!("warning: {}", error.one_line()));
            }
            std::thread::sleep(STEP);
        }
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            say!("{text}");
            self.said = text;
        }
    }

    fn send(&mut self) -> Result<()> {
        let yard = self.yard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.has_shared {
            let mut count = 0;
            for target in yard.targets()? {
                count += share_outputs(&target, &*self.depot, signals::cancel())?;
            }
            if count > 0 {
                self.say(format!(
                    "{} stored in {}",
                    words::count(count, "earlier output"),
                    self.depot.name()
                ));
            }
            self.has_shared = true;
        }
        let direction = self.direction.clone();
        let still = || Ok(direction.load(Ordering::Relaxed) == Direction::Send as u8);
        if self.sent.send(&yard, &self.documents, &*self.depot, &still)? {
            self.say("this server has the yard; others can take over".to_owned());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let yard = self.yard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A command of the user works here: it becomes the leader if it may.
        let targets = yard.targets()?;
        if targets.iter().any(Yard::is_locked) {
            return Ok(());
        }
        let locks = targets.iter().map(Yard::lock).collect::<Result<Vec<Lock>>>()?;
        let change =
            self.received.receive(&yard.home, &self.documents, &self.distfiles, signals::cancel())?;
        if change == Change::Nothing {
            return Ok(());
        }
        // What a run needs first, with the configuration that has arrived.
        let yard = Yard::open(&yard.home, FAMILIES, &yard.environment)?;
        *self.yard.lock().unwrap_or_else(PoisonError::into_inner) = yard.clone();
        let say = |text: &str| say!("{text}");
        let targets = yard.targets()?;
        let layers = |target: &Yard| match target.config.family.foreign() {
            None => target.config.family.ensure_layers(target, &target.ids(), signals::cancel(), &say),
            // It is not built here.
            Some(_) => Ok(()),
        };
        let layers = targets.iter().try_for_each(layers);
        drop(locks);
        if change == Change::Inputs || self.inputs.load(Ordering::Relaxed) == 0 {
            self.inputs.fetch_add(1, Ordering::Relaxed);
        }
        let replaced = fs_err::read_dir(yard.home.join(REPLACED)).map_or(0, Iterator::count);
        if replaced > 0 {
            self.say(format!("note: files that were changed here were replaced; they are in {REPLACED}"));
        }
        self.say("standby: the yard is here as it is where it is built".to_owned());
        layers
    }
}
