//! Yards that are open for readers: their stores, and the runs that are in memory.

use super::{Yards, refused, unreadable};
use crate::yard::{Yard, store_error};
use kilnyard_api::queries::At;
use kilnyard_api::requests::Trouble;
use kilnyard_store::Store;
use kilnyard_yard::facts::edges::Edges;
use kilnyard_yard::facts::outlook::{Base, Outlook};
use kilnyard_yard::facts::picture::Picture;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the configuration of a yard counts as read.
const FRESH: Duration = Duration::from_secs(1);
/// The runs of a yard that are in memory. One of 30,000 packages takes about 100 MB.
const PICTURES_MAX: usize = 3;
/// How old what is expected may be: simulating the rest of a large run takes a tenth of a second.
const OUTLOOK_AGE: Duration = Duration::from_secs(3);

/// A yard, or a target of it, that is open.
pub(super) struct Opened {
    pub yard: Yard,
    pub store: Box<dyn Store>,
    read_at: Instant,
    /// The runs in memory, the last one used last.
    pictures: Vec<Picture>,
    base: Option<Base>,
    outlook: Option<(Instant, u64, Arc<Outlook>)>,
    edges: Option<(String, Arc<Edges>)>,
    /// The part of a run's page that changes, when it was made, and the run.
    pub now: Option<(Instant, u64, String)>,
}

/// A yard that is open, or could not be opened again.
type Held = Arc<Mutex<Option<Opened>>>;

/// The open yards of a site, by the names of their targets.
#[derive(Default)]
pub(super) struct Open {
    yards: Mutex<HashMap<At, Held>>,
    /// What was asked for, and which yard that is: a target has several names.
    names: Mutex<HashMap<At, At>>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Open")
    }
}

impl Yards {
    /// Reads an open yard.
    pub(super) fn with<T>(
        &self,
        at: &At,
        read: impl FnOnce(&mut Opened) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let name = lock(&self.open.names).get(at).cloned();
        let name = match name {
            Some(name) => name,
            None => {
                // Only what exists has a place here.
                let found = self.target(&at.yard, at.target.as_deref())?;
                let name = At { yard: at.yard.clone(), target: found.target_name };
                lock(&self.open.names).insert(at.clone(), name.clone());
                name
            }
        };
        let place = lock(&self.open.yards).entry(name).or_default().clone();
        let mut place = lock(&place);
        if place.as_ref().is_none_or(|opened| opened.read_at.elapsed() > FRESH) {
            let found = self.target(&at.yard, at.target.as_deref()).inspect_err(|_| {
                *place = None;
                lock(&self.open.names).remove(at);
            })?;
            let is_same = |opened: &Opened| {
                opened.yard.folder == found.folder && opened.yard.config.store == found.config.store
            };
            match place.as_mut().filter(|opened| is_same(opened)) {
                Some(opened) => (opened.yard, opened.read_at) = (found, Instant::now()),
                None => *place = Some(Opened::new(found)?),
            }
        }
        let Some(opened) = place.as_mut() else {
            return Err(Trouble::Machine("the yard is closed".to_owned()));
        };
        let outcome = read(opened);
        if matches!(outcome, Err(Trouble::Machine(_))) {
            // A database that went away is connected to anew.
            *place = None;
        }
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opened {
    fn new(yard: Yard) -> Result<Opened, Trouble> {
        let store = yard.store().map_err(unreadable)?;
        Ok(Opened {
            yard,
            store,
            read_at: Instant::now(),
            pictures: Vec::new(),
            base: None,
            outlook: None,
            edges: None,
            now: None,
        })
    }

    /// The number of the last run.
    pub fn last_run(&self) -> Result<Option<u64>, Trouble> {
        let run = self.store.last_run().map_err(|error| unreadable(store_error(error)))?;
        Ok(run.map(|run| run.number))
    }

    /// The number of a run; the last one if none is given.
    pub fn run_number(&self, run: Option<u64>) -> Result<u64, Trouble> {
        match run {
            Some(run) => Ok(run),
            None => self.last_run()?.ok_or_else(|| Trouble::Absent("there is no run yet".to_owned())),
        }
    }

    /// A run in memory, as it is now.
    pub fn picture(&mut self, run: Option<u64>) -> Result<&Picture, Trouble> {
        self.load(run)?;
        self.loaded()
    }

    /// The run that was loaded last. Cloning one of 30,000 packages would take longer than most answers.
    pub fn loaded(&self) -> Result<&Picture, Trouble> {
        self.pictures.last().ok_or_else(|| Trouble::Absent("there is no run yet".to_owned()))
    }

    /// Has a run in memory, as it is now.
    pub fn load(&mut self, run: Option<u64>) -> Result<(), Trouble> {
        let run = self.run_number(run)?;
        match self.pictures.iter().position(|picture| picture.run.number == run) {
            Some(place) => {
                let mut picture = self.pictures.remove(place);
                picture.follow(&*self.store).map_err(refused_read)?;
                self.pictures.push(picture);
            }
            None => {
                let picture = Picture::read(&*self.store, run).map_err(refused_read)?;
                if self.pictures.len() >= PICTURES_MAX {
                    self.pictures.remove(0);
                }
                self.pictures.push(picture);
            }
        }
        Ok(())
    }

    /// What is expected of the current run.
    pub fn outlook(&mut self) -> Result<Arc<Outlook>, Trouble> {
        let seq = self.picture(None)?.seq;
        let fresh = self.outlook.as_ref().filter(|(made, of, _)| *of == seq || made.elapsed() < OUTLOOK_AGE);
        // The present passes, too.
        if let Some((made, _, outlook)) = fresh
            && made.elapsed() < OUTLOOK_AGE * 4
        {
            return Ok(outlook.clone());
        }
        let Some(picture) = self.pictures.last() else {
            return Err(Trouble::Absent("there is no run yet".to_owned()));
        };
        let base = match self.base.take().filter(|base| base.is_of(picture)) {
            Some(base) => base,
            None => Base::of(&self.yard, &*self.store, picture).map_err(unreadable)?,
        };
        let outlook = Arc::new(Outlook::from(&base, picture));
        self.base = Some(base);
        self.outlook = Some((Instant::now(), seq, outlook.clone()));
        Ok(outlook)
    }

    /// The edges of the current plan.
    pub fn edges(&mut self) -> Result<Arc<Edges>, Trouble> {
        let head = self.store.plan_head().map_err(|error| unreadable(store_error(error)))?;
        let Some(head) = head else {
            return Err(Trouble::Absent("there is no plan yet".to_owned()));
        };
        if let Some((digest, edges)) = &self.edges
            && *digest == head.digest
        {
            return Ok(edges.clone());
        }
        let edges = Arc::new(Edges::read(&*self.store).map_err(unreadable)?);
        self.edges = Some((head.digest, edges.clone()));
        Ok(edges)
    }
}

/// The trouble with a question: what it names is absent, or the yard cannot be read.
pub(super) fn refused_read(error: crate::error::Error) -> Trouble {
    match refused(error) {
        Trouble::Refused(why) => Trouble::Absent(why),
        other => other,
    }
}
