//! Compares ways to make roots on this machine, with a real package.
//!
//! Each round uses every way that works here: it makes a root and runs a first command in it, the package manager
//! installs the dependencies, the package is built, and the root is removed. The ways share only the base, so each
//! pays for its own files. In addition, dependencies are provided as layers where possible, which is how Kilnyard
//! provides them: layers of a known set, or of known packages. The recommendation is based on the cost of a whole
//! build with them. Data of the previous round is flushed to disk before a root is made, so no way pays for another.
//!
//! Known downside: the CPU time of a process is known only once it has been waited for. Copying into memory therefore
//! counts as CPU time of the teardown, although its wall time belongs to the creation.

mod advice;
pub(crate) mod chart;
mod clock;
mod empty;
mod kept;
mod load;
mod reporting;
mod variant;
mod ways;

pub use advice::{Advice, lines};
pub use kept::{StoredAdvice, kept};

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
use std::cell::Cell;
use std::path::{Path, PathBuf};
use variant::Variant;
use ways::Ways;

/// Folder for the image of the base, for roots on a device.
const IMAGES: &str = "images";

/// The cost of one root, from its creation to its removal.
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

/// One round with one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    /// Dependencies installed by the package manager, in a root of the base.
    by_manager: Life,
    /// Dependencies as layers of a known set. Absent if not possible or not informative.
    on_layers: Option<Life>,
}

/// A way to make roots, with its measurements.
struct Measured {
    variant: Variant,
    rounds: Vec<Round>,
    /// Why it was left out of the comparison.
    refused: Option<String>,
}

/// All measurements.
struct Figures {
    package: String,
    version: String,
    dependencies: usize,
    empty: empty::Empty,
    ways: Ways,
    measured: Vec<Measured>,
    /// The share of the machine's cores that other work used during the measurement. Absent if unknown.
    others_share: Option<f64>,
}

/// The reports and the recommendation.
pub struct RootsReport {
    /// With all figures, for JSON.
    pub full: Report,
    /// With the figures that people read.
    pub short: Report,
    /// The recommendation, or why there is none.
    advice: std::result::Result<Advice, String>,
    /// The package that was built.
    package: String,
}

impl RootsReport {
    /// The result for `kilnyard tune` to use later, or why there is none.
    pub fn kept(&self) -> std::result::Result<StoredAdvice, String> {
        let Advice { roots, reason } = self.advice.clone()?;
        Ok(StoredAdvice {
            roots,
            reason,
            package: self.package.clone(),
            cells: 1,
            machine_cores: None,
            is_beyond_noise: true,
        })
    }
}

/// Runs the benchmark. `svg` is the file for a chart.
pub fn measure(
    yard: &Yard,
    package: &str,
    trial: &Trial<'_>,
    machine: &Machine,
    svg: Option<&Path>,
) -> Result<RootsReport> {
    let pairs = trial.pairs;
    yard.config.family.check_scanned(yard)?;
    let _lock = yard.lock()?;
    let ids = yard.ids();
    yard.config.family.ensure_layers(yard, &ids, interrupt::cancel(), &|text| trial.say(text))?;
    let scratch = Scratch::within(&yard.folder, Some(ids.clone()))?;
    let own = subject::scratch_yard(&scratch, yard, package)?;
    let subject = Subject::prepare(&own, yard, package)?;
    let bench = Bench { yard: &own, roots: Cell::new(0), ids, subject: &subject };
    let empty = empty::measure(&own.folder, &bench.ids, &subject.layers)?;
    trial.say(format_args!("empty roots measured"));
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
        trial.say("layers of the dependencies made");
    }
    let load = load::Load::start();
    for pair in 1..=pairs {
        let stacked = maker.as_ref().map(|maker| ways.round(maker)).transpose()?.flatten();
        for one in measured.iter_mut().filter(|one| one.refused.is_none()) {
            super::check_interrupt()?;
            match bench.round(&one.variant, stacked.as_ref()) {
                Ok(round) => one.rounds.push(round),
                Err(error) if error.kind == Kind::Interrupted => return Err(error),
                // A root in memory may be too small. The other ways can still be compared.
                Err(error) => one.refused = Some(reason(error)),
            }
            trial.say(format_args!("round {pair} of {pairs}: {} measured", one.variant.label()));
        }
    }
    if measured.iter().all(|one| one.refused.is_some()) {
        let mut error = Error::new(Kind::Machine, "no root backend works on this machine");
        error.causes.extend(measured.iter().filter_map(|one| one.refused.clone()));
        return Err(error.hint(Remedy::command("doctor").then(", which lists what is missing")));
    }
    let others_share = load.others_share();
    let (version, dependencies) = (subject.order.version.clone(), subject.order.root.depends.len());
    let figures =
        Figures { package: package.to_owned(), version, dependencies, empty, ways, measured, others_share };
    if let Some(path) = svg {
        let drawing = chart::draw(&reporting::chart(&figures, &machine.as_text(), pairs));
        files::write_whole(path, drawing.as_bytes())?;
    }
    let found = reporting::make_report(&figures);
    match found.kept() {
        Ok(kept) => kept.keep(yard)?,
        // An earlier recommendation is worth no more than the present result.
        Err(_) => kept::forget(yard)?,
    }
    Ok(found)
}

fn reason(error: Error) -> String {
    std::iter::once(error.message).chain(error.causes).collect::<Vec<_>>().join(": ")
}

struct Bench<'a> {
    yard: &'a Yard,
    /// The number of roots so far. Each has a name of its own, as those of builds: ext4 places folders by their names.
    roots: Cell<u32>,
    ids: IdMap,
    subject: &'a Subject,
}

impl Bench<'_> {
    /// Measures a root with the package manager and, if possible, one on layers of the dependencies.
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

    /// Measures a root on these layers. Runs these commands in it before the build.
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

    /// The image of the base if roots are on a device. Made once.
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
        self.roots.update(|number| number + 1);
        let name = format!("bench-{}", self.roots.get());
        let root = match image {
            Some(image) => RootFolder::create_on(yard, &name, ids, layers, making, image),
            None => RootFolder::create(yard, &name, ids, layers, making),
        };
        let root = root.context(Kind::Machine, "make a root")?;
        match subject::provide(self.yard, &root, &self.subject.order) {
            Ok(()) => Ok(root),
            Err(error) => {
                // The other error matters more. The scratch folder is removed with its contents anyway.
                let _ = root.remove();
                Err(error)
            }
        }
    }

    /// Runs a command that does nothing: a root is ready once its first command has run.
    fn first_command(&self, root: &RootFolder) -> Result<()> {
        let command = CommandOrder {
            arguments: vec!["/bin/true".to_owned()],
            account: Account::Root,
            directory: "/".to_owned(),
            environment: Vec::new(),
        };
        root.sandbox(&command).run().map(|_| ()).context(Kind::Machine, "run a first command in a root")
    }

    /// Flushes pending data to disk.
    fn settle(&self) -> Result<()> {
        let folder = fs_err::File::open(&self.yard.folder).or_internal("open the benchmark's folder")?;
        rustix::fs::syncfs(folder).or_internal("flush data to disk")
    }
}
