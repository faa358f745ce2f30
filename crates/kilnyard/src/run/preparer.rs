//! The preparer: the thread that owns the existing outputs of the set, and runs the solver.
//!
//! It prepares packages, decides which outputs of a build are kept and how they are tested, and adopts new outputs. It
//! answers questions in the order of their arrival.

use super::deposit::Depositor;
use super::stored::{Unverified, verify};
use super::{Message, Unusable};
use crate::due::{Due, Known};
use crate::error::Result;
use crate::plan::Forced;
use crate::yard::{Yard, store_error};
use kilnyard_coordinator::{Event, Prepared, REQUIREMENT_ROUNDS_MAX, Reading, ToBuild, next_revision};
use kilnyard_driver::{Input, ToPrepare};
use kilnyard_ecosystem::Stock;
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::graph::PackageId;
use kilnyard_model::order::{FamilyOrder, Output, Stage};
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{Failure, FailureKind, StageSeen};
use kilnyard_protocol::{Answer, Built, Test};
use kilnyard_store::{BuildRow, Store};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// The number of earlier builds of a package used to estimate the size of its work folder and the duration of its
/// stages.
const BUILDS_MAX: usize = 5;

/// A question for the preparer.
enum Question {
    Prepare(ToPrepare),
    Adopt { package: PackageId, outputs: Vec<Output> },
    Built { of: BuildOf, built: Built },
}

/// A build as the coordinator knows it; the worker's claims about it do not count.
#[derive(Clone, Debug)]
pub struct BuildOf {
    pub package: PackageId,
    /// The version of the outputs.
    pub version: String,
    /// Whether its outputs are tested.
    pub tests_outputs: bool,
    /// The family's facts in its order, if it was built on another machine: its outputs are then read here again.
    pub family: Option<FamilyOrder>,
}

/// Sends questions to the preparer.
#[derive(Clone)]
pub struct Desk(Sender<Question>);

impl Desk {
    /// The sender, and the receiver for [`Preparer::answer_all`].
    pub fn new() -> (Desk, Questions) {
        let (sender, receiver) = mpsc::channel();
        (Desk(sender), Questions(receiver))
    }

    /// Requests the preparation of a package. The answer goes to the owner of the run. Like the other methods, returns
    /// false if the preparer has ended.
    pub fn prepare(&self, to_prepare: ToPrepare) -> bool {
        self.0.send(Question::Prepare(to_prepare)).is_ok()
    }

    /// Requests the adoption of new outputs.
    pub fn adopt(&self, package: PackageId, outputs: Vec<Output>) -> bool {
        self.0.send(Question::Adopt { package, outputs }).is_ok()
    }

    /// Asks which outputs of a build are kept. The answer goes to the owner of the run.
    pub fn built(&self, of: BuildOf, built: Built) -> bool {
        self.0.send(Question::Built { of, built }).is_ok()
    }
}

/// The questions for the preparer.
pub struct Questions(Receiver<Question>);

/// See the module documentation.
pub struct Preparer<'a> {
    /// The set with its outputs, owned by this thread during the run.
    pub stock: &'a mut dyn Stock,
    /// A second connection, for reading earlier builds while the recorder's is busy writing.
    pub store: Box<dyn Store>,
    pub forced: &'a Forced,
    pub unusable: &'a Unusable,
    pub owner: Sender<Message>,
    /// Stores outputs for other machines; absent if there is no place for that.
    pub depositor: Option<Arc<Depositor>>,
    /// The traps a second of the last builds of packages.
    pub traps: Arc<HashMap<String, f64>>,
    /// Used to read recipes again.
    pub yard: &'a Yard,
    pub distfiles: &'a FileStore,
    pub cancel: &'a AtomicBool,
    /// Whether the set differs from the index.
    pub has_rescanned: bool,
}

impl Preparer<'_> {
    /// Answers questions until all senders are gone.
    pub fn answer_all(&mut self, questions: &Questions) {
        for question in &questions.0 {
            match question {
                Question::Prepare(to_prepare) => {
                    let package = to_prepare.package;
                    let message = match self.prepare(&to_prepare) {
                        // An interrupted question needs no answer: the run ends.
                        _ if self.cancel.load(Ordering::Relaxed) => continue,
                        Ok(prepared) => Message::Input(Box::new(Input::Prepared { package, prepared })),
                        Err(error) => Message::Failed(Box::new(error)),
                    };
                    // Without an owner the run is over.
                    let _ = self.owner.send(message);
                }
                Question::Adopt { package, outputs } => self.stock.adopt(package, &outputs),
                Question::Built { of, built } => {
                    let judged = self.judge(&of, &built);
                    let Built { build, is_repeated, .. } = built;
                    let answer = match judged {
                        Ok(answer) => Box::new(answer),
                        Err(reason) => {
                            let unstored = Event::Unstored { build, is_repeated, reason };
                            let _ = self.owner.send(Message::Event(Box::new(unstored)));
                            continue;
                        }
                    };
                    let files =
                        answer.outputs.iter().filter_map(|output| Sha256Hex::parse(&output.sha256).ok());
                    let files: Vec<Sha256Hex> = files.collect();
                    let depositor = self.depositor.as_ref().filter(|_| !is_repeated && !files.is_empty());
                    let deposit = depositor.map(|depositor| depositor.next());
                    let answered = Event::Answered { build, is_repeated, answer, deposit };
                    let _ = self.owner.send(Message::Event(Box::new(answered)));
                    if let (Some(depositor), Some(deposit)) = (depositor, deposit) {
                        depositor.store(self.distfiles, (build, deposit), files);
                    }
                }
            }
        }
    }

    /// Reads the current recipe of a package. The error explains why the package cannot be built from it.
    fn rescan(&mut self, package: PackageId, name: &str) -> std::result::Result<(), String> {
        let family = &self.yard.config.family;
        let said = family.rescan(self.yard, self.distfiles, name, self.cancel);
        if let Some(said) = said.map_err(|error| error.one_line())? {
            self.stock.rescan(package, &said).map_err(|impossible| impossible.explanation)?;
            self.has_rescanned = true;
        }
        Ok(())
    }

    fn prepare(&mut self, to_prepare: &ToPrepare) -> Result<Prepared> {
        let package = to_prepare.package;
        let name = self.stock.set().graph().name(package).to_owned();
        if to_prepare.reading == Reading::Fresh
            && let Err(explanation) = self.rescan(package, &name)
        {
            return Ok(Prepared::Impossible(explanation));
        }
        let set = self.stock.set();
        let waits_for = set.graph().dependencies(package).iter();
        let more: Vec<PackageId> =
            waits_for.filter(|one| to_prepare.waited_for.binary_search(one).is_err()).copied().collect();
        if !more.is_empty() {
            return Ok(Prepared::Waits(more));
        }
        let (recipe_version, published_revision) = (set.version(package), set.published_revision(package));
        let revision = next_revision(to_prepare.kept.as_ref(), &recipe_version, published_revision);
        let mut order = match self.stock.order(package, revision) {
            Ok(order) => order,
            Err(impossible) => return Ok(Prepared::Impossible(impossible.explanation)),
        };
        self.yard.config.tables.complete(&mut order, &self.traps);
        let rounds_max = REQUIREMENT_ROUNDS_MAX as usize;
        let mut builds = self.store.builds_of(&name, BUILDS_MAX + rounds_max).map_err(store_error)?;
        // They ended before anything was compiled, and are part of the build that follows.
        let is_round = |failure: &Failure| failure.kind == FailureKind::Requirements;
        builds.retain(|build| !build.failure.as_ref().is_some_and(is_round));
        builds.truncate(BUILDS_MAX);
        if let Some(work) = &mut order.work
            && let Some(bytes) = work_bytes(&builds, work.expected_bytes)
        {
            work.expected_bytes = bytes;
        }
        let kept = self.store.current(&name).map_err(store_error)?;
        let last = builds.first().map(BuildRow::as_last);
        // Outputs of this run are whole.
        let is_unusable = kept.as_ref().is_some_and(|kept| self.unusable.is(kept));
        let known = Known {
            is_forced: self.forced.contains(&name),
            kept: kept.as_ref(),
            unusable: self.unusable.reason(&name).filter(|_| is_unusable),
            last: last.as_ref(),
        };
        let Due::Build(reason) = known.with_key(&order.key, set.former_root()) else {
            return Ok(Prepared::UpToDate);
        };
        let seen = StageSeen::of(builds.iter().flat_map(|build| &build.stages));
        let to_build = ToBuild { reason, order, seen, recipe_version, published_revision };
        Ok(Prepared::Build(Box::new(to_build)))
    }

    /// Decides which outputs of a build are kept, and how they are tested.
    ///
    /// # Errors
    /// They are not here, as a sentence.
    fn judge(&mut self, of: &BuildOf, built: &Built) -> std::result::Result<Answer, String> {
        if let Some(family) = &of.family {
            let bounds = self.yard.config.limits_of_builds.output_bounds();
            let scratch = self.yard.path("roots");
            match verify(family, &built.outputs, self.distfiles, &scratch, bounds, self.cancel) {
                Ok(()) => {}
                Err(Unverified::Unstored(reason)) => return Err(reason),
                Err(Unverified::Wrong(reason)) => return Ok(Answer::refuse(reason)),
            }
        }
        let admitted = match self.stock.set().admit(of.package, &of.version, &built.outputs) {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Answer::refuse(error.to_string())),
        };
        if let Some(requires) = admitted.requires {
            return Ok(self.require(of.package, requires));
        }
        let is_tested = of.tests_outputs
            && !admitted.outputs.is_empty()
            && !built.is_repeated
            && self.stock.set().can_run_outputs();
        let test = match is_tested {
            false => Test::Skip,
            true => match self.stock.test(of.package, &admitted.outputs) {
                Ok(order) => Test::Run(Box::new(order)),
                Err(impossible) => Test::Impossible(impossible.explanation),
            },
        };
        Ok(Answer { notes: admitted.notes, test, ..Answer::keep(admitted.outputs) })
    }

    /// Adds requirements that a build found out. The answer has the new ones.
    fn require(&mut self, package: PackageId, requires: Vec<String>) -> Answer {
        let recipe = match self.stock.require(package, &requires) {
            Ok(recipe) => recipe,
            Err(impossible) => return Answer::refuse(impossible.explanation),
        };
        let name = self.stock.set().graph().name(package).to_owned();
        let is_kept = self.yard.config.family.keep_requirements(self.yard, &name, &recipe, &requires);
        let mut reason = Reason::requires(requires.clone()).to_string();
        if let Err(error) = is_kept {
            // The next run finds them out again.
            reason.push_str(&format!("; {}", error.one_line()));
        }
        Answer { requires: Some(requires), ..Answer::refuse(reason) }
    }
}

/// The size of the work folder in the last build of a package, in bytes. A failed build provides only a lower bound.
fn work_bytes(builds: &[BuildRow], guessed_bytes: u64) -> Option<u64> {
    builds.iter().find_map(|build| {
        let known = || build.stages.iter().filter_map(|stage| Some((stage.stage, stage.work_bytes?)));
        let whole = known().find(|(stage, _)| *stage == Stage::Collect).map(|(_, bytes)| bytes);
        let part = || known().map(|(_, bytes)| bytes).max();
        whole.or_else(|| part().map(|bytes| bytes.max(guessed_bytes)))
    })
}
