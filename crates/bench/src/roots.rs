//! Ways to make roots, compared on this machine with a real package.
//!
//! Every way that works here has its turn in each round: a root is made and its first command run, the package manager
//! installs the dependencies, the package is built, the root is removed. Nothing else is shared by the ways than the
//! base, so that each pays for its files itself. Beside that stands what Kilnyard does with dependencies where it can: they
//! are layers, of a set that was seen before, or of packages that were seen before. What a whole build costs with them is
//! the basis of the recommendation. Data of the round before is brought to the disk before a root is made, so that no way
//! pays for others.
//!
//! Known downside: a process's CPU time is known once it was waited for, so what is copied into memory counts as CPU of the
//! teardown, though its wall time is the creation's.

mod advice;
mod chart;
mod clock;
mod empty;
mod kept;
mod load;
mod told;
mod variant;
mod ways;

pub use advice::{Advice, lines};
pub use kept::{Kept, kept};

use super::figures::{Machine, Report};
use super::scratch::Scratch;
use super::subject::{self, Subject};
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use crate::{files, interrupt};
use clock::{Clock, Spent};
use kilnyard_model::order::{Account, CommandOrder};
use kilnyard_root::{Form, IdMap, Making};
use kilnyard_worker::{Image, RootFolder};
use kilnyard_yard::remedy::Remedy;
use std::path::{Path, PathBuf};
use variant::Variant;
use ways::Ways;

/// Where the image of the base is made, for roots on a device.
const IMAGES: &str = "images";

/// What one root cost, from its making to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Life {
    create: Spent,
    depends: Spent,
    build: Spent,
    teardown: Spent,
}

impl Life {
    fn all(&self) -> Spent {
        self.create + self.depends + self.build + self.teardown
    }
}

/// One round of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    /// With the package manager in a root of the base.
    by_manager: Life,
    /// On layers of a set that was seen before; none where that cannot be, or says nothing more.
    on_layers: Option<Life>,
}

/// A way to make roots, with what was measured of it.
struct Measured {
    variant: Variant,
    rounds: Vec<Round>,
    /// Why it is not compared.
    refused: Option<String>,
}

/// All that was measured.
struct Figures {
    package: String,
    version: String,
    dependencies: usize,
    empty: empty::Empty,
    ways: Ways,
    measured: Vec<Measured>,
    /// How much of the machine's cores other work used meanwhile, if that is known.
    others_share: Option<f64>,
}

/// What is said of it.
pub struct Found {
    /// With all figures, for programs.
    pub full: Report,
    /// With those that are told in a table, for people.
    pub short: Report,
    /// The recommendation, or why there is none.
    advice: std::result::Result<Advice, String>,
    /// With what it was measured.
    package: String,
}

impl Found {
    /// What is kept of it for `kilnyard tune`, or why nothing is.
    pub fn kept(&self) -> std::result::Result<Kept, String> {
        let Advice { roots, reason } = self.advice.clone()?;
        Ok(Kept { roots, reason, package: self.package.clone(), is_beyond_noise: true })
    }
}

/// Measures; `svg` is a file to draw into.
pub fn measure(
    yard: &Yard,
    package: &str,
    trial: &Trial<'_>,
    machine: &Machine,
    svg: Option<&Path>,
) -> Result<Found> {
    let pairs = trial.pairs;
    yard.config.family.check_scanned(yard)?;
    let _lock = yard.lock()?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids.clone()))?;
    let own = subject::scratch_yard(&scratch, yard, package)?;
    let subject = Subject::prepare(&own, yard, package)?;
    let bench = Bench { yard: &own, ids, subject: &subject };
    let empty = empty::measure(&own.folder, &bench.ids, &subject.layers)?;
    trial.say(format_args!("empty roots are measured"));
    let mut measured = variant::all(own.config.roots.flushes, own.config.roots.device)
        .into_iter()
        .map(|variant| {
            let refused = variant.try_for_real(&own.folder, &bench.ids).err();
            Measured { variant, rounds: Vec::new(), refused }
        })
        .collect::<Vec<_>>();
    let can_stack = measured.iter().any(|one| one.refused.is_none() && one.variant.is_layered());
    let (mut ways, maker) = Ways::begin(&own, &bench.ids, &subject, can_stack)?;
    if maker.is_some() {
        trial.say("layers of the dependencies are there");
    }
    let load = load::Load::start();
    for pair in 1..=pairs {
        let stacked = maker.as_ref().map(|maker| ways.round(maker)).transpose()?.flatten();
        for one in measured.iter_mut().filter(|one| one.refused.is_none()) {
            super::go_on()?;
            match bench.round(&one.variant, stacked.as_ref()) {
                Ok(round) => one.rounds.push(round),
                Err(error) if error.kind == Kind::Interrupted => return Err(error),
                // A root in memory may be too small, and that is no end of the others.
                Err(error) => one.refused = Some(reason(error)),
            }
            trial.say(format_args!("round {pair} of {pairs}: {} is measured", one.variant.label()));
        }
    }
    if measured.iter().all(|one| one.refused.is_some()) {
        let mut error = Error::new(Kind::Machine, "no way to make roots came to an end here");
        error.causes.extend(measured.iter().filter_map(|one| one.refused.clone()));
        return Err(error.hint(Remedy::command("doctor").then(", which says what is missing")));
    }
    let others_share = load.others_share();
    let (version, dependencies) = (subject.order.version.clone(), subject.order.root.depends.len());
    let figures =
        Figures { package: package.to_owned(), version, dependencies, empty, ways, measured, others_share };
    if let Some(path) = svg {
        let drawing = chart::draw(&told::chart(&figures, &machine.as_text(), pairs));
        files::write_whole(path, drawing.as_bytes())?;
    }
    let found = told::told(&figures);
    match found.kept() {
        Ok(kept) => kept.keep(yard)?,
        // What was recommended before is no better than what was measured now.
        Err(_) => kept::forget(yard)?,
    }
    Ok(found)
}

fn reason(error: Error) -> String {
    std::iter::once(error.message).chain(error.causes).collect::<Vec<_>>().join(": ")
}

struct Bench<'a> {
    yard: &'a Yard,
    ids: IdMap,
    subject: &'a Subject,
}

impl Bench<'_> {
    /// One root with the package manager, and one on layers of the dependencies where that can be.
    fn round(&self, variant: &Variant, seen: Option<&(Vec<String>, Spent)>) -> Result<Round> {
        let order = &self.subject.order;
        let installing = subject::installing(order)?;
        let by_manager = self.life(variant, &self.subject.layers, &installing)?;
        let on_layers = match seen.filter(|_| variant.is_layered() && !variant.is_for_comparison) {
            None => None,
            Some((layers, spent)) => {
                let life = self.life(variant, layers, &[])?;
                Some(Life { depends: *spent, ..life })
            }
        };
        Ok(Round { by_manager, on_layers })
    }

    /// A root of these layers, in which these commands are run before the package is built.
    fn life(&self, variant: &Variant, layers: &[String], installing: &[CommandOrder]) -> Result<Life> {
        let making = variant.making();
        let image = self.image(&making)?;
        self.settle()?;
        let mut life = Life::default();
        let clock = Clock::start();
        let root = self.root(layers, &making, image)?;
        let outcome = self.first_command(&root).and_then(|()| {
            life.create = clock.spent();
            let clock = Clock::start();
            for command in installing {
                subject::perform(self.yard, &root, command)?;
            }
            life.depends = clock.spent();
            let clock = Clock::start();
            for command in self.building() {
                subject::perform(self.yard, &root, command)?;
            }
            life.build = clock.spent();
            Ok(())
        });
        let clock = Clock::start();
        let removed = root.remove().context(Kind::Machine, "remove a root");
        life.teardown = clock.spent();
        outcome.and(removed).map(|()| life)
    }

    /// The commands of all stages.
    fn building(&self) -> impl Iterator<Item = &CommandOrder> {
        self.subject.order.stages.iter().flat_map(|stage| &stage.commands)
    }

    /// The image of the base, which a run makes once, if roots are on a device.
    fn image(&self, making: &Making) -> Result<Option<Image>> {
        let Form::Image(device) = making.form else { return Ok(None) };
        let failed = "make an image of the base";
        let (yard, layers) = (&self.yard.folder, &self.subject.layers);
        let folder = PathBuf::from(IMAGES);
        if self.yard.path(IMAGES).exists() {
            return Ok(Some(Image::made(&folder, layers)));
        }
        fs_err::create_dir(self.yard.path(IMAGES)).context(Kind::Machine, failed)?;
        Image::make(yard, &folder, &self.ids, layers, &device).map(Some).context(Kind::Machine, failed)
    }

    fn root(&self, layers: &[String], making: &Making, image: Option<Image>) -> Result<RootFolder> {
        let (yard, ids) = (&self.yard.folder, &self.ids);
        let root = match image {
            Some(image) => RootFolder::create_on(yard, "bench", ids, layers, making, image),
            None => RootFolder::create(yard, "bench", ids, layers, making),
        };
        let root = root.context(Kind::Machine, "make a root")?;
        match subject::provide(self.yard, &root, &self.subject.order) {
            Ok(()) => Ok(root),
            Err(error) => {
                // The error matters more; the scratch folder goes with all that is in it.
                let _ = root.remove();
                Err(error)
            }
        }
    }

    /// Runs what does nothing: a root is ready when its first command ran.
    fn first_command(&self, root: &RootFolder) -> Result<()> {
        let command = CommandOrder {
            arguments: vec!["/bin/true".to_owned()],
            account: Account::Root,
            directory: "/".to_owned(),
            environment: Vec::new(),
        };
        root.sandbox(&command).run().map(|_| ()).context(Kind::Machine, "run a first command in a root")
    }

    /// Brings to the disk what is on its way.
    fn settle(&self) -> Result<()> {
        let folder = fs_err::File::open(&self.yard.folder).or_internal("open the benchmark's folder")?;
        rustix::fs::syncfs(folder).or_internal("bring data to the disk")
    }
}
