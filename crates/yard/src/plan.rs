//! Makes a plan of a yard: resolves the set, and compares the existing outputs with what a build would produce.

use crate::config::packages::{PackageSettings, PackageTables};
use crate::config::store::without_stores;
use crate::due::{Due, Known};
use crate::error::{Context, Error, Kind, Result};
use crate::estimates::Estimates;
use crate::family::Set;
use crate::mirror::open_files;
use crate::remedy::Remedy;
use crate::revoked;
use crate::shape::Shape;
use crate::untrusted;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::{Ecosystem, Stock};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::cuts::{Cut, StandIn};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::Output;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::PackageState;
use kilnyard_schedule::{Bound, Limits, Machine, Scheduler, Work};
use kilnyard_store::{Current, LastBuild, PackageRow, Plan, PlanRow, Store};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A resolved yard and the work to do in it.
pub struct Planned {
    /// The set with its family.
    pub set: Set,
    /// The set without its family.
    pub workshop: Arc<dyn Ecosystem>,
    /// The set with the outputs that exist.
    pub stock: Box<dyn Stock>,
    /// The kept build of each package.
    pub current: HashMap<String, Current>,
    /// Packages whose outputs must not be used, with the reason.
    pub unusable: HashMap<String, Reason>,
    /// The plan, as stored.
    pub plan: Plan,
    /// The machine and its configured limits.
    pub shape: Shape,
    graph: Arc<Graph>,
    /// The expected cost of each package in the graph; nothing for a package that is not built.
    works: Vec<Work>,
    /// The priority of each package in the graph.
    priorities: Vec<i32>,
    /// How many traps a second the last builds of packages had that stalled other cores.
    pub traps: Arc<HashMap<String, f64>>,
}

impl Planned {
    /// Narrows the plan to the named packages and their dependencies. The stored plan still covers the whole
    /// set.
    pub fn narrow(&mut self, names: &[String]) -> Result<()> {
        let graph = self.workshop.graph();
        let mut included = HashSet::new();
        for name in names {
            let named = self.workshop.named(name);
            if named.is_empty() {
                let left_out = self.workshop.left_out();
                let known = left_out.iter().find(|left| left.name == *name);
                let of_it = left_out.iter().find(|left| category_of(&left.name) == Some(name));
                if let Some(error) = reused(&*self.workshop, name) {
                    return Err(error);
                }
                return Err(match (known, of_it) {
                    (Some(left), _) => Error::usage(left.explanation.clone()),
                    (None, Some(left)) => Error::usage(format!("every package of {name} is left out"))
                        .hint(Remedy::command(format!("why {}", left.name))),
                    (None, None) => Error::usage(format!("this yard has no package {name}")).hint(
                        Remedy::from("adding it to packages in kilnyard.toml; ")
                            .then_command("plan")
                            .then(" lists them"),
                    ),
                });
            }
            for id in named {
                included.insert(id);
                included.extend(graph.ancestors(id));
            }
        }
        for id in graph.packages().filter(|id| !included.contains(id)) {
            self.works[id.index()] = Work::default();
        }
        let names: HashSet<&str> = included.iter().map(|id| graph.name(*id)).collect();
        self.plan.packages.retain(|row| names.contains(row.package.name.as_str()));
        self.plan.cuts = cuts(&*self.workshop, |id| included.contains(&id));
        self.foresee()
    }

    /// Takes over the outputs that were recorded since the plan was made, by a run that this one continues.
    pub fn catch_up(&mut self, store: &dyn Store, distfiles: &FileStore) -> Result<()> {
        let now = all_current(store)?;
        let is_new = |(name, new): &(&String, &Current)| {
            self.current.get(*name).is_none_or(|known| known.build != new.build)
        };
        let added: HashMap<String, Current> =
            now.iter().filter(is_new).map(|(name, new)| (name.clone(), new.clone())).collect();
        if added.is_empty() {
            return Ok(());
        }
        let mut broken = broken(&added, distfiles)?;
        for (name, new) in &added {
            // What was unusable was the earlier build.
            match broken.remove(name) {
                Some(reason) => drop(self.unusable.insert(name.clone(), reason)),
                None => drop(self.unusable.remove(name)),
            }
            if let Some(id) = self.graph.find(name) {
                self.stock.adopt(id, &new.outputs);
                self.works[id.index()] = Work::default();
            }
        }
        self.current = now;
        self.foresee()
    }

    /// The number of bytes that a package's build is expected to write.
    pub fn written_bytes(&self, package: PackageId) -> u64 {
        written_bytes(&self.works[package.index()])
    }

    /// The set's outputs, for the run that builds it, and the expected cost of the builds.
    pub fn parts(&mut self) -> (&mut dyn Stock, Expected<'_>) {
        (&mut *self.stock, Expected { plan: &self.plan, works: &self.works })
    }

    /// A scheduler for a run of these builds. It starts without machines; workers bring them.
    pub fn scheduler(&self) -> Result<Scheduler> {
        let limits = self.shape.limits;
        let made = Scheduler::without_machines(self.graph.clone(), self.works.clone(), limits);
        made.map(|scheduler| scheduler.with_priorities(&self.priorities)).or_internal(SCHEDULING)
    }

    fn scheduler_on(&self, machine: Machine, limits: Limits) -> Result<Scheduler> {
        let made = Scheduler::new(self.graph.clone(), self.works.clone(), vec![machine], limits);
        made.map(|scheduler| scheduler.with_priorities(&self.priorities)).or_internal(SCHEDULING)
    }

    /// Computes ranks, path and times from the estimates, by simulating the run with the scheduler that will
    /// decide it. Estimates contain no waiting, so only the cores that exist count here.
    fn foresee(&mut self) -> Result<()> {
        let machines = [self.shape.machine];
        let bound = Bound::of(&self.graph, &self.works, &machines);
        let mut scheduler = self.scheduler_on(self.shape.machine, self.shape.limits)?;
        let ranks: Vec<f64> = self.graph.packages().map(|id| scheduler.rank_seconds(id)).collect();
        let played = kilnyard_schedule::simulate(&self.graph, &self.works, &machines, &mut scheduler);
        self.plan.expected_seconds = played.or_internal("simulate the run")?.makespan_seconds;
        self.plan.bound_seconds = bound.seconds();
        let is_on_path = |id: &&PackageId| self.works[id.index()].core_seconds() > 0.0;
        self.plan.path =
            bound.path.iter().filter(is_on_path).map(|id| self.graph.name(*id).to_owned()).collect();
        for row in &mut self.plan.packages {
            if let Some(id) = self.graph.find(&row.package.name) {
                row.package.estimate_seconds =
                    self.works[id.index()].seconds_at(self.shape.jobs.min(machines[0].cores), 1.0);
                row.package.rank_seconds = ranks[id.index()];
            }
        }
        Ok(())
    }
}

/// Completes "failed to".
const SCHEDULING: &str = "schedule the builds";

/// The expected cost of each build of a plan.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    plan: &'a Plan,
    works: &'a [Work],
}

impl Expected<'_> {
    /// The number of bytes that a package's build is expected to write.
    pub fn written_bytes(&self, package: PackageId) -> u64 {
        written_bytes(&self.works[package.index()])
    }

    /// The expected time of a package's build.
    pub fn seconds(&self, name: &str) -> f64 {
        let packages = &self.plan.packages;
        let found = packages.binary_search_by(|row| row.package.name.as_str().cmp(name));
        found.map_or(0.0, |index| packages[index].package.estimate_seconds)
    }
}

fn written_bytes(work: &Work) -> u64 {
    work.files_bytes.saturating_add(work.disk_bytes)
}

/// Hashes everything that a plan is made from, without reading the index. The suffix is the number of builds in
/// the store.
pub fn digest(yard: &Yard, store: &dyn Store) -> Result<String> {
    let config = fs_err::read_to_string(yard.home.join(crate::yard::CONFIG));
    let config = config.or_internal("read the configuration")?;
    let names = yard.config.package_names(&yard.home)?;
    let build = &yard.config.build;
    let revoked = revoked::list(yard)?;
    let choices = format!("{:?} {:?} {} {revoked:?}", build.against, build.reuse, build.passes);
    // Machines that share the stores of a yard may reach them in different ways.
    let config = without_stores(&config);
    let text =
        format!("{config}\n{names:?}\n{choices}\n{}", yard.config.family.inputs(yard, names.as_deref())?);
    Ok(format!("{}-{}", Sha256Hex::of(text.as_bytes()).as_str(), store.next_build().map_err(store_error)?))
}

/// The part of a digest that does not change when builds are added.
pub fn inputs_of(digest: &str) -> &str {
    digest.split_once('-').map_or(digest, |(inputs, _)| inputs)
}

/// Resolves the set and makes a plan: see [`compare_all`].
pub fn make(yard: &Yard, distfiles: &FileStore, store: &mut dyn Store, forced: &Forced) -> Result<Planned> {
    let planned = prepare(yard, distfiles, store, forced)?;
    if *forced == Forced::Nothing {
        save(store, &planned.plan)?;
    }
    Ok(planned)
}

/// The same for a run that another machine leads: the stored plan stays as that machine made it.
pub fn prepare(yard: &Yard, distfiles: &FileStore, store: &dyn Store, forced: &Forced) -> Result<Planned> {
    let digest = digest(yard, store)?;
    compare_all(yard, yard.config.family.resolve(yard, distfiles)?, digest, distfiles, store, forced)
}

/// Stores a plan.
pub fn save(store: &mut dyn Store, plan: &Plan) -> Result<()> {
    match store.save_plan(plan) {
        // Read-only: the next command computes it again.
        Err(error) if error.is_read_only() => Ok(()),
        saved => saved.map_err(store_error),
    }
}

/// Makes the plan again after builds were added, with the set that is already resolved. Takes over the inputs
/// part of the previous plan's digest, so changes since then are noticed.
pub fn remake(
    yard: &Yard,
    set: Set,
    before: &str,
    distfiles: &FileStore,
    store: &mut dyn Store,
) -> Result<()> {
    let digest = format!("{}-{}", inputs_of(before), store.next_build().map_err(store_error)?);
    let planned = compare_all(yard, set, digest, distfiles, store, &Forced::Nothing)?;
    save(store, &planned.plan)
}

/// Packages that are built even if their outputs are up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forced {
    /// No package.
    #[default]
    Nothing,
    /// Packages and categories with these names.
    Named(HashSet<String>),
    /// All packages.
    All,
}

impl Forced {
    /// Whether this package is built even if its outputs are up to date.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Forced::Nothing => false,
            Forced::Named(names) => {
                names.contains(name) || category_of(name).is_some_and(|category| names.contains(category))
            }
            Forced::All => true,
        }
    }
}

/// Compares a resolved set with the existing outputs. `digest` identifies the inputs of the set: see
/// [`digest`].
pub fn compare_all(
    yard: &Yard,
    set: Set,
    digest: String,
    distfiles: &FileStore,
    store: &dyn Store,
    forced: &Forced,
) -> Result<Planned> {
    let workshop = set.ecosystem();
    let current = all_current(store)?;
    let last_builds = store.last_builds().map_err(store_error)?;
    let last_builds = last_builds.into_iter().map(|build| (build.package.clone(), build)).collect();
    let mut unusable = broken(&current, distfiles)?;
    for (package, reason) in revoked::find(yard, store, &*workshop, &current)? {
        unusable.entry(package).or_insert(reason);
    }
    for (package, reason) in untrusted::find(yard, store, &*workshop)? {
        unusable.entry(package).or_insert(reason);
    }
    let mut stock = workshop.clone().stock();
    for id in workshop.graph().packages() {
        let name = workshop.graph().name(id);
        let is_distrusted =
            matches!(unusable.get(name), Some(Reason::Revoked { .. } | Reason::Untrusted { .. }));
        if let Some(current) = current.get(name).filter(|_| !is_distrusted) {
            stock.adopt(id, &current.outputs);
        }
    }
    let shape = Shape::of(yard);
    let estimates = Estimates::of(yard, store, shape.machine)?;
    let predicted = predict(&mut *stock, &current, &last_builds, &unusable, store, forced)?;
    let tables = &yard.config.tables;
    foresee(shape, (set, stock), current, unusable, (&estimates, tables), predicted, digest)
}

/// The kept build of each package.
fn all_current(store: &dyn Store) -> Result<HashMap<String, Current>> {
    let current = store.all_current().map_err(store_error)?;
    Ok(current.into_iter().map(|current| (current.package.clone(), current)).collect())
}

/// Finds packages with a file that is missing or has the wrong size, here and where machines share their files. Checking
/// more would mean reading every file.
fn broken(current: &HashMap<String, Current>, distfiles: &FileStore) -> Result<HashMap<String, Reason>> {
    let outputs = current.values().flat_map(|current| &current.outputs);
    let files =
        outputs.filter_map(|output| Some((Sha256Hex::parse(&output.sha256).ok()?, output.size_bytes)));
    let missing = distfiles.missing(files).context(Kind::Machine, "look for the outputs of the set")?;
    let is_whole =
        |output: &Output| Sha256Hex::parse(&output.sha256).is_ok_and(|hash| !missing.contains(&hash));
    let broken = current.values().filter_map(|current| {
        let output = current.outputs.iter().find(|output| !is_whole(output))?;
        Some((current.package.clone(), Reason::Broken { file: output.file.clone() }))
    });
    Ok(broken.collect())
}

/// The category of a package in a tree. Absent if names have no categories.
fn category_of(name: &str) -> Option<&str> {
    name.split_once('/').map(|(category, _)| category)
}

/// The predicted state of a package when a run begins, and why.
struct Prediction {
    state: PackageState,
    reason: Reason,
}

fn predict(
    stock: &mut dyn Stock,
    current: &HashMap<String, Current>,
    last_builds: &HashMap<String, LastBuild>,
    unusable: &HashMap<String, Reason>,
    store: &dyn Store,
    forced: &Forced,
) -> Result<Vec<Prediction>> {
    let workshop = stock.set();
    let graph = workshop.graph();
    let left_out: HashMap<&str, &str> =
        workshop.left_out().iter().map(|l| (l.name.as_str(), l.explanation.as_str())).collect();
    let mut predictions: Vec<Prediction> = graph
        .packages()
        .map(|_| Prediction { state: PackageState::Waiting, reason: Reason::Undecided })
        .collect();
    for id in graph.order() {
        let name = graph.name(id);
        let rebuilt: Vec<String> = graph
            .dependencies(id)
            .iter()
            .filter(|d| !predictions[d.index()].state.has_outputs())
            .map(|d| graph.name(*d).to_owned())
            .collect();
        let known = Known {
            is_forced: forced.contains(name),
            kept: current.get(name),
            unusable: unusable.get(name),
            last: last_builds.get(name),
        };
        let (state, reason) = if let Some(explanation) = left_out.get(name) {
            (PackageState::LeftOut, Reason::impossible(*explanation))
        } else if let Some(reason) = known.without_key() {
            let state = if rebuilt.is_empty() { PackageState::Ready } else { PackageState::Waiting };
            (state, reason)
        } else if !rebuilt.is_empty() {
            (PackageState::Waiting, Reason::Depends { packages: rebuilt })
        } else {
            compare(stock, id, known, store)?
        };
        predictions[id.index()] = Prediction { state, reason };
    }
    Ok(predictions)
}

/// Compares a package's key with that of its existing outputs.
fn compare(
    stock: &mut dyn Stock,
    id: PackageId,
    known: Known,
    store: &dyn Store,
) -> Result<(PackageState, Reason)> {
    let key = match stock.key(id) {
        Ok(key) => key,
        Err(impossible) => return Ok((PackageState::LeftOut, Reason::impossible(impossible.explanation))),
    };
    // Unlike `current` above, this one includes the lines of the key.
    let kept = store.current(stock.set().graph().name(id)).map_err(store_error)?;
    Ok(match (Known { kept: kept.as_ref(), ..known }).with_key(&key, stock.set().former_root()) {
        Due::UpToDate => (PackageState::UpToDate, Reason::NothingChanged),
        Due::Build(reason) => (PackageState::Ready, reason),
    })
}

/// Assembles the plan from the predictions, with estimates.
fn foresee(
    shape: Shape,
    (set, stock): (Set, Box<dyn Stock>),
    current: HashMap<String, Current>,
    unusable: HashMap<String, Reason>,
    (estimates, tables): (&Estimates, &PackageTables),
    predictions: Vec<Prediction>,
    digest: String,
) -> Result<Planned> {
    let workshop = set.ecosystem();
    let graph = Arc::new(workshop.graph().clone());
    let settings: Vec<PackageSettings> = graph
        .packages()
        .map(|id| {
            let name = graph.name(id);
            tables.settings_of(name).confined(estimates.traps_per_second(name))
        })
        .collect();
    let work = |id: PackageId| match predictions[id.index()].state.is_final() {
        true => Work::default(),
        false => Work {
            jobs_max: settings[id.index()].terms.jobs_max,
            ..estimates.work_in(
                settings[id.index()].terms.machine,
                estimates.work(graph.name(id), workshop.source_bytes(id), workshop.prior_seconds(id)),
            )
        },
    };
    let works = graph.packages().map(work).collect();
    let priorities = settings.iter().map(|settings| settings.priority).collect();
    let remarks = remarks(&*workshop, tables, &settings);
    let row = |id: PackageId, prediction: Prediction| PlanRow {
        package: PackageRow {
            name: graph.name(id).to_owned(),
            version: workshop.version(id),
            state: prediction.state,
            reason: prediction.reason,
            blamed: None,
            estimate_seconds: 0.0,
            rank_seconds: 0.0,
        },
        dependencies: graph.dependencies(id).iter().map(|d| graph.name(*d).to_owned()).collect(),
    };
    let mut packages: Vec<PlanRow> =
        graph.packages().zip(predictions).map(|(id, prediction)| row(id, prediction)).collect();
    for left_out in workshop.left_out().iter().filter(|left| graph.find(&left.name).is_none()) {
        packages.push(PlanRow {
            package: PackageRow {
                name: left_out.name.clone(),
                version: String::new(),
                state: PackageState::LeftOut,
                reason: Reason::impossible(left_out.explanation.clone()),
                blamed: None,
                estimate_seconds: 0.0,
                rank_seconds: 0.0,
            },
            dependencies: Vec::new(),
        });
    }
    packages.sort_by(|a, b| a.package.name.cmp(&b.package.name));
    let plan = Plan {
        digest,
        made_seconds: words::now_seconds(),
        expected_seconds: 0.0,
        bound_seconds: 0.0,
        cuts: cuts(&*workshop, |_| true),
        remarks,
        path: Vec::new(),
        packages,
    };
    let mut planned = Planned {
        set,
        workshop,
        stock,
        current,
        unusable,
        plan,
        shape,
        graph,
        works,
        priorities,
        traps: estimates.traps(),
    };
    planned.foresee()?;
    Ok(planned)
}

/// Sums up the cuts of a set with many of them.
fn remark_on_cuts(workshop: &dyn Ecosystem) -> Option<String> {
    const MANY: usize = 10;
    let cutting = workshop.cutting();
    let closing = cutting.cuts.iter().filter(|cut| cut.saved_seconds.is_none()).count();
    (cutting.cuts.len() > MANY).then(|| {
        format!(
            "{} dependencies are cut in {}: {closing} would close a cycle (at least {} cuts are needed), {} shorten the longest path, \
             which is {} by the estimates of the index ({} without any dependency inside cycles)",
            cutting.cuts.len(),
            words::count(cutting.knots.len() as u64, "cycle"),
            cutting.cuts_min,
            cutting.cuts.len() - closing,
            words::duration(cutting.path_seconds),
            words::duration(cutting.path_seconds_min),
        )
    })
}

/// The number of packages that one remark names.
const NAMED_MAX: usize = 20;

/// The remarks on a set and on the tables of single packages, one sentence each.
fn remarks(workshop: &dyn Ecosystem, tables: &PackageTables, settings: &[PackageSettings]) -> Vec<String> {
    let mut remarks: Vec<String> =
        workshop.remarks().iter().cloned().chain(remark_on_cuts(workshop)).collect();
    let graph = workshop.graph();
    let list = |has: fn(&PackageSettings) -> bool| {
        let with = graph.packages().zip(settings).filter(|(_, settings)| has(settings));
        let names: Vec<&str> = with.map(|(id, _)| graph.name(id)).collect();
        let more = names.len().saturating_sub(NAMED_MAX);
        let list = names[..names.len() - more].join(", ");
        (!names.is_empty()).then(|| if more > 0 { format!("{list} and {more} more") } else { list })
    };
    remarks.extend(
        list(|settings| settings.has_network)
            .map(|names| format!("built with network access, as set in kilnyard.toml: {names}")),
    );
    remarks.extend(list(PackageSettings::is_confined).map(|names| {
        format!("kept to one core, since their last builds stalled all that they ran on (kilnyard why NAME): {names}")
    }));
    let left_out = workshop.left_out().iter().map(|left_out| left_out.name.as_str());
    remarks.extend(tables.unused(graph.packages().map(|id| graph.name(id)).chain(left_out)));
    remarks
}

/// Describes each cut cycle in a sentence, if the package that is built first is included.
fn cuts(workshop: &dyn Ecosystem, is_included: impl Fn(PackageId) -> bool) -> Vec<String> {
    let (graph, cutting) = (workshop.graph(), workshop.cutting());
    let names = |ids: &[PackageId]| {
        const NAMED_MAX: usize = 8;
        let mut text = ids.iter().take(NAMED_MAX).map(|id| graph.name(*id)).collect::<Vec<_>>().join(", ");
        if ids.len() > NAMED_MAX {
            text.push_str(&format!(" and {} more", ids.len() - NAMED_MAX));
        }
        text
    };
    let sentence = |cut: &Cut| {
        let how = match cut.stand_in {
            StandIn::Archive => "with the archive's binary packages",
            StandIn::Profile => "without it, under a build profile",
        };
        let (package, dependency) = (graph.name(cut.package), graph.name(cut.dependency));
        let saved = cut.saved_seconds.filter(|seconds| *seconds >= 1.0);
        let saved = saved.map_or(String::new(), |seconds| format!(" (saves {})", words::duration(seconds)));
        format!(
            "{package} is built before {dependency}, {how}: cycle of {}{saved}",
            names(cutting.members(cut))
        )
    };
    cutting.cuts.iter().filter(|cut| is_included(cut.package)).map(sentence).collect()
}

/// The error for a package of the set that is not built, because the archive's is the same.
pub fn reused(workshop: &dyn Ecosystem, name: &str) -> Option<Error> {
    let is_reused = workshop.reused().iter().any(|reused| reused == name);
    is_reused.then(|| {
        let message = format!(
            "{name} is not built: it depends on none of your own or named sources, so the archive's packages are used"
        );
        Error::usage(message).hint(format!(
            "{name} in packages, to build it; or reuse = \"never\" in [build] of kilnyard.toml, to build all"
        ))
    })
}

/// The plan of the yard as it is now: the stored one if still valid, otherwise a new one.
pub fn current_plan(yard: &Yard, store: &mut dyn Store) -> Result<Plan> {
    if is_kept(yard, store)?
        && let Some(plan) = store.plan().map_err(store_error)?
    {
        return Ok(plan);
    }
    renew(yard, store)
}

/// Updates the stored plan if it is out of date.
pub fn keep_current(yard: &Yard, store: &mut dyn Store) -> Result<()> {
    if is_kept(yard, store)? {
        return Ok(());
    }
    let plan = renew(yard, store)?;
    match store.plan_head().map_err(store_error)? {
        Some(kept) if kept.digest == plan.digest => Ok(()),
        _ => Err(Error::new(
            Kind::Machine,
            "the yard's plan has changed, and the new one cannot be written here",
        )
        .hint(Remedy::command("plan").then(" without --json, which writes nothing"))),
    }
}

fn is_kept(yard: &Yard, store: &dyn Store) -> Result<bool> {
    let digest = digest(yard, store)?;
    let is_same_plan = store.plan_head().map_err(store_error)?.is_some_and(|plan| plan.digest == digest);
    Ok(is_same_plan && lists_all_broken(store, &open_files(yard)?)?)
}

/// Whether the stored plan marks exactly the packages with a broken file as broken.
fn lists_all_broken(store: &dyn Store, distfiles: &FileStore) -> Result<bool> {
    let current = store.all_current().map_err(store_error)?;
    // While the files that machines share cannot be seen, the plan stands.
    let Ok(broken) = broken(&current.into_iter().map(|c| (c.package.clone(), c)).collect(), distfiles) else {
        return Ok(true);
    };
    let mut is_valid = true;
    store
        .each_planned(&mut |row| {
            let said = matches!(row.reason, Reason::Broken { .. });
            // A left-out package stays left out, whatever happens to the files of its last build.
            let is_broken = broken.contains_key(row.name) && row.state != PackageState::LeftOut;
            is_valid = said == is_broken;
            is_valid
        })
        .map_err(store_error)?;
    Ok(is_valid)
}

fn renew(yard: &Yard, store: &mut dyn Store) -> Result<Plan> {
    Ok(make(yard, &open_files(yard)?, store, &Forced::Nothing)?.plan)
}
