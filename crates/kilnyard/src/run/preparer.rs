//! The preparer: the thread that owns what is there of the set, and alone solves.
//!
//! It works out what packages need, says what of a build may be published and how that is tried, and takes up what was
//! built: all of it in the order in which it was asked.

use super::{Broken, Message};
use crate::due::{Due, Known};
use crate::error::Result;
use crate::plan::Forced;
use crate::yard::{Yard, store_error};
use kilnyard_coordinator::{Event, Prepared, Reading, ToBuild, next_revision};
use kilnyard_driver::{Input, ToPrepare};
use kilnyard_ecosystem::Stock;
use kilnyard_mirror::DistfileStore;
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{Output, Stage};
use kilnyard_model::result::StageSeen;
use kilnyard_protocol::{Answer, Built, Test};
use kilnyard_store::{BuildRow, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// How many builds of a package are looked at for what its work folder takes, and what its stages took.
const BUILDS_LOOKED_AT: usize = 5;

/// Something for the preparer.
enum Question {
    Prepare(ToPrepare),
    Adopt { package: PackageId, outputs: Vec<Output> },
    Built { of: BuildOf, built: Built },
}

/// What was handed out, as the coordinator knows it: a worker's word on it counts for nothing.
#[derive(Clone, Debug)]
pub struct BuildOf {
    pub package: PackageId,
    /// The version of the outputs.
    pub version: String,
    /// Whether its outputs are tried.
    pub tests_outputs: bool,
}

/// The way to the preparer.
#[derive(Clone)]
pub struct Desk(Sender<Question>);

impl Desk {
    /// The way, and its other end for [`Preparer::answer_all`].
    pub fn new() -> (Desk, Questions) {
        let (sender, receiver) = mpsc::channel();
        (Desk(sender), Questions(receiver))
    }

    /// Lets a package be prepared; the owner of the run is sent the answer. False when the preparer has ended, as for the
    /// other questions.
    pub fn prepare(&self, to_prepare: ToPrepare) -> bool {
        self.0.send(Question::Prepare(to_prepare)).is_ok()
    }

    /// Says that outputs are there.
    pub fn adopt(&self, package: PackageId, outputs: Vec<Output>) -> bool {
        self.0.send(Question::Adopt { package, outputs }).is_ok()
    }

    /// Asks what becomes of what was built; the owner of the run is sent the answer.
    pub fn built(&self, of: BuildOf, built: Built) -> bool {
        self.0.send(Question::Built { of, built }).is_ok()
    }
}

/// What the preparer is asked.
pub struct Questions(Receiver<Question>);

/// See the module.
pub struct Preparer<'a> {
    /// The set with what is there. Nobody else has it while the run goes on.
    pub stock: &'a mut dyn Stock,
    /// To read what is known of earlier builds: the recorder's own is busy while it writes.
    pub store: Box<dyn Store>,
    pub forced: &'a Forced,
    pub broken: &'a Broken,
    pub owner: Sender<Message>,
    /// For recipes that are read anew.
    pub yard: &'a Yard,
    pub distfiles: &'a DistfileStore,
    pub cancel: &'a AtomicBool,
    /// Whether the set is another one than the index has.
    pub has_rescanned: bool,
}

impl Preparer<'_> {
    /// Answers until nobody can ask any more.
    pub fn answer_all(&mut self, questions: &Questions) {
        for question in &questions.0 {
            match question {
                Question::Prepare(to_prepare) => {
                    let package = to_prepare.package;
                    let message = match self.prepare(&to_prepare) {
                        // Of an interrupted question there is nothing to say: the run ends.
                        _ if self.cancel.load(Ordering::Relaxed) => continue,
                        Ok(prepared) => Message::Input(Box::new(Input::Prepared { package, prepared })),
                        Err(error) => Message::Failed(Box::new(error)),
                    };
                    // Without an owner the run is over.
                    let _ = self.owner.send(message);
                }
                Question::Adopt { package, outputs } => self.stock.adopt(package, &outputs),
                Question::Built { of, built } => {
                    let answer = Box::new(self.judge(&of, &built));
                    let Built { build, is_repeated, .. } = built;
                    let answered = Event::Answered { build, is_repeated, answer };
                    let _ = self.owner.send(Message::Event(Box::new(answered)));
                }
            }
        }
    }

    /// Takes the recipe of a package as it is now. An error explains why it cannot be built by that.
    fn rescan(&mut self, package: PackageId, name: &str) -> std::result::Result<(), String> {
        let family = &self.yard.config.family;
        let said = family.rescan(self.yard, self.distfiles, name, self.cancel);
        if let Some(said) = said.map_err(|error| error.in_a_line())? {
            self.stock.rescan(package, &said).map_err(|impossible| impossible.explanation)?;
            self.has_rescanned = true;
        }
        Ok(())
    }

    fn prepare(&mut self, to_prepare: &ToPrepare) -> Result<Prepared> {
        let package = to_prepare.package;
        let name = self.stock.set().graph().name(package).to_owned();
        if to_prepare.reading == Reading::Anew
            && let Err(explanation) = self.rescan(package, &name)
        {
            return Ok(Prepared::Impossible(explanation));
        }
        let set = self.stock.set();
        let (recipe_version, published_revision) = (set.version(package), set.published_revision(package));
        let revision = next_revision(to_prepare.kept.as_ref(), &recipe_version, published_revision);
        let mut order = match self.stock.order(package, revision) {
            Ok(order) => order,
            Err(impossible) => return Ok(Prepared::Impossible(impossible.explanation)),
        };
        let builds = self.store.builds_of(&name, BUILDS_LOOKED_AT).map_err(store_error)?;
        if let Some(work) = &mut order.work
            && let Some(bytes) = work_bytes(&builds, work.expected_bytes)
        {
            work.expected_bytes = bytes;
        }
        let kept = self.store.current(&name).map_err(store_error)?;
        let last = builds.first().map(BuildRow::as_last);
        // What this run has made itself is whole.
        let is_broken = kept.as_ref().is_some_and(|kept| self.broken.is(kept));
        let known = Known {
            is_forced: self.forced.contains(&name),
            kept: kept.as_ref(),
            broken: is_broken.then(|| self.broken.file(&name)),
            last: last.as_ref(),
        };
        let Due::Build(reason) = known.with_key(&order.key, set.former_root()) else {
            return Ok(Prepared::UpToDate);
        };
        let seen = StageSeen::of(builds.iter().flat_map(|build| &build.stages));
        let to_build = ToBuild { reason, order, seen, recipe_version, published_revision };
        Ok(Prepared::Build(Box::new(to_build)))
    }

    /// What becomes of what was built.
    fn judge(&mut self, of: &BuildOf, built: &Built) -> Answer {
        let admitted = match self.stock.set().admit(of.package, &of.version, &built.outputs) {
            Ok(admitted) => admitted,
            Err(error) => return refused(error.to_string()),
        };
        let test = match of.tests_outputs && !built.is_repeated {
            false => Test::Skip,
            true => match self.stock.test(of.package, &admitted.outputs) {
                Ok(order) => Test::Run(Box::new(order)),
                Err(impossible) => Test::Impossible(impossible.explanation),
            },
        };
        Answer { refused: None, outputs: admitted.outputs, notes: admitted.notes, test }
    }
}

/// An answer by which a build fails.
pub fn refused(reason: String) -> Answer {
    Answer { refused: Some(reason), outputs: Vec::new(), notes: Vec::new(), test: Test::Skip }
}

/// What the work folder of a package's last build held. One that failed tells only what is needed at the least.
fn work_bytes(builds: &[BuildRow], guessed_bytes: u64) -> Option<u64> {
    builds.iter().find_map(|build| {
        let known = || build.stages.iter().filter_map(|stage| Some((stage.stage, stage.work_bytes?)));
        let whole = known().find(|(stage, _)| *stage == Stage::Collect).map(|(_, bytes)| bytes);
        let part = || known().map(|(_, bytes)| bytes).max();
        whole.or_else(|| part().map(|bytes| bytes.max(guessed_bytes)))
    })
}
