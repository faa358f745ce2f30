//! A resolved set of RPM sources, and the inputs of each build.

use super::generated;
use super::metadata;
use super::recipe::{Recipe, is_name};
use super::relation::Relation;
use super::rules::{self, FAMILY, Rules, SOURCE};
use super::set::{self, Resolved, of_base};
use super::settings::{Base, Settings};
use super::stages;
use super::universe::{Entry, Package, Universe, View};
use crate::together::{self, Group};
use crate::{Admitted, CollectError, Ecosystem, Impossible, LeftOut, explain, prior};
use kilnyard_model::cuts::Cutting;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{
    BuildOrder, BuildTerms, Dependency, Input, Key, Output, RootOrder, TestOrder, WorkOrder,
};
use kilnyard_model::solver::{Candidate, Solver};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// An initial estimate of the bytes that a build writes per byte of packed sources.
const WORK_BYTES_OF_SOURCE: u64 = 20;
/// What the names of packages with debug symbols end with; rpmbuild makes them of others.
const DEBUG_ENDINGS: [&str; 2] = ["-debuginfo", "-debugsource"];

/// RPM's [`Ecosystem`].
#[derive(Clone, Debug)]
pub struct Workshop {
    settings: Settings,
    recipes: BTreeMap<String, Recipe>,
    base: Base,
    resolved: Resolved,
    left_out: Vec<LeftOut>,
    /// The highest number of a rebuild in the yard's repository, by source and version of its recipe.
    published: HashMap<(String, String), u32>,
    universe: Universe,
}

impl Workshop {
    /// Resolves sources. The universe has the packages of the repositories; `made` those that the set has made, by their names.
    pub fn new(
        settings: Settings,
        mut universe: Universe,
        recipes: BTreeMap<String, Recipe>,
        base: Base,
        published: HashMap<(String, String), u32>,
        made: &HashMap<String, Package>,
    ) -> Workshop {
        let mut resolved = set::resolve(&mut universe, &recipes, &settings, &base, made);
        let left_out = std::mem::take(&mut resolved.left_out);
        Workshop { settings, recipes, base, resolved, left_out, published, universe }
    }

    /// Adds packages that were requested but are not part of the set, with the reasons.
    pub fn without(mut self, left_out: Vec<LeftOut>) -> Workshop {
        self.left_out.extend(left_out);
        self
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The source of a package of the graph.
    pub fn recipe(&self, package: PackageId) -> &Recipe {
        &self.recipes[self.resolved.graph.name(package)]
    }

    /// The source as it is built now: `--with bootstrap` until all that it does without then were built.
    fn recipe_now(&self, stock: &Stock, package: PackageId) -> &Recipe {
        let recipe = self.recipe(package);
        let is_built = |id: &PackageId| {
            stock.of_package[id.index()].iter().any(|candidate| stock.outputs.contains_key(candidate))
        };
        let waits =
            self.resolved.bootstrapped.get(&package).is_some_and(|without| !without.iter().all(is_built));
        recipe.bootstrap.as_deref().filter(|_| waits).unwrap_or(recipe)
    }

    /// Outputs of packages that wait for this one, from an earlier build: what was built `--with bootstrap` is built again with
    /// them, and with `passes = 2`, so is each package whose cycle was cut. None of them can change before this package is built, so
    /// that the result does not depend on the order of builds.
    fn earlier(&self, stock: &Stock, package: PackageId) -> HashSet<Candidate> {
        let bootstrapped = self.resolved.bootstrapped.get(&package);
        let is_again = match bootstrapped {
            Some(_) => !self.recipe_now(stock, package).is_bootstrap,
            None => self.settings.passes > 1,
        };
        if !is_again {
            return HashSet::new();
        }
        let mut later = self.resolved.cutting.later(&self.resolved.graph, package);
        later.extend(bootstrapped.into_iter().flatten().filter(|id| **id == package));
        let outputs = later.iter().flat_map(|id| &stock.of_package[id.index()]).copied();
        outputs.filter(|candidate| stock.outputs.contains_key(candidate)).collect()
    }

    /// Solves a request of a package: outputs of its ancestors and earlier ones come from the set, everything else from the
    /// repositories. Candidates in `own` may be chosen as well.
    fn closure(
        &self,
        stock: &mut Stock,
        package: PackageId,
        (mut requires, conflicts): (Vec<Entry>, Vec<Entry>),
        own: &HashSet<Candidate>,
    ) -> Result<Vec<Candidate>, Impossible> {
        let name = self.resolved.graph.name(package);
        let ancestors = self.resolved.graph.ancestors(package);
        let mut earlier = self.earlier(stock, package);
        // What is tested replaces what the package made before.
        if !own.is_empty() {
            earlier.retain(|candidate| stock.of_candidate.get(candidate) != Some(&package));
        }
        let universe = &mut stock.universe;
        universe.finish();
        let len = universe.len();
        requires.extend(of_base(&self.base));
        let root = universe
            .request(&requires, &conflicts)
            .map_err(|error| Impossible { explanation: format!("{name}: {error}") })?;
        let universe = &*universe;
        let of_candidate = &stock.of_candidate;
        let is_of_set = |candidate: &Candidate| {
            own.contains(candidate)
                || earlier.contains(candidate)
                || of_candidate.get(candidate).is_some_and(|maker| ancestors.contains(maker))
        };
        let name_of = |candidate: Candidate| universe.package(candidate).map_or("", |package| &*package.name);
        let replaced: HashSet<&str> =
            of_candidate.keys().chain(own).filter(|one| is_of_set(one)).map(|one| name_of(*one)).collect();
        let is_allowed = |candidate: Candidate| match of_candidate.contains_key(&candidate)
            || own.contains(&candidate)
        {
            true => is_of_set(&candidate),
            false => !replaced.contains(name_of(candidate)) || self.is_in_base(universe.package(candidate)),
        };
        let own_names: HashSet<&str> = own.iter().map(|one| name_of(*one)).collect();
        let lenient =
            |candidate: Candidate| match of_candidate.contains_key(&candidate) || own.contains(&candidate) {
                true => is_of_set(&candidate),
                // The repository's package of the same name never replaces one that is being tested.
                false => !own_names.contains(name_of(candidate)),
            };
        let is_favoured = |candidate: Candidate| self.is_in_base(universe.package(candidate));
        let view = View { universe, is_allowed: &is_allowed, is_favoured: &is_favoured };
        let mut solver = Solver::new(&view);
        let again = View { universe, is_allowed: &lenient, is_favoured: &is_favoured };
        let outcome = match solver.solve(root).or_else(|_| Solver::new(&again).solve(root)) {
            Ok(mut chosen) => {
                chosen.retain(|candidate| universe.package(*candidate).is_some());
                chosen.sort_by(|one, other| name_of(*one).cmp(name_of(*other)));
                Ok(chosen)
            }
            Err(_) => {
                let why = |candidate: Candidate| match of_candidate.get(&candidate) {
                    Some(maker) if *maker == package => {
                        Some("is of an earlier build, which this one replaces")
                    }
                    Some(_) => None,
                    None => Some("is left out: a package of the set has its name"),
                };
                let explanation = explain::text_with(universe, (root, name), &solver.explain(root), &why);
                Err(Impossible { explanation })
            }
        };
        stock.universe.truncate(len);
        outcome
    }

    /// Whether a package is installed in the base.
    fn is_in_base(&self, package: Option<&Package>) -> bool {
        let installed = |package: &Package| {
            let at = self.base.packages.binary_search_by(|(name, _)| name.as_str().cmp(&package.name));
            at.is_ok_and(|at| self.base.packages[at].1 == package.evr.to_string())
        };
        package.is_some_and(installed)
    }

    /// The packages of the set that a package requires, of those that do not wait for it.
    fn makers_of(&self, stock: &mut Stock, package: PackageId) -> Result<Vec<PackageId>, String> {
        let graph = &self.resolved.graph;
        let mut excluded = graph.descendants(package);
        excluded.insert(package);
        let demand = set::Demand {
            name: graph.name(package),
            recipe: self.recipe_now(stock, package),
            is_excluded: &|maker| excluded.contains(&maker),
        };
        set::makers(&mut stock.universe, &stock.of_candidate, &self.base, &demand)
    }

    fn build_closure(&self, stock: &mut Stock, package: PackageId) -> Result<Vec<Candidate>, Impossible> {
        let request = self.recipe_now(stock, package).request();
        self.closure(stock, package, request, &HashSet::new())
    }

    fn key_of(&self, stock: &Stock, package: PackageId, closure: &[Candidate]) -> Key {
        let (recipe, settings) = (self.recipe_now(stock, package), &self.settings);
        let own = settings.packages.of(&recipe.name);
        let mut lines = vec![
            format!("recipe {} {}", recipe.name, recipe.recipe_version(settings)),
            format!("option checks {}", own.checks.unwrap_or(settings.runs_checks)),
            format!("option dist {}", settings.dist),
            format!("option macros {}", settings.macros.join(";")),
            format!("option suffix {}", settings.suffix),
        ];
        if let Some(words) = own.words.as_ref().filter(|words| !words.is_empty()) {
            lines.push(format!("option options {}", words.join(" ")));
        }
        if recipe.is_bootstrap {
            lines.push("option bootstrap true".to_owned());
        }
        lines.extend(own.key_lines());
        lines.extend(recipe.files.iter().map(|file| format!("source {} {}", file.name, file.sha256)));
        let earlier = self.earlier(stock, package);
        for candidate in closure {
            let Some(package) = stock.universe.package(*candidate) else { continue };
            lines.push(match stock.outputs.get(candidate) {
                // Its content depends on this package's. With its version instead, each is built only once more.
                Some(output) if earlier.contains(candidate) => {
                    let version = settings.split(&output.version);
                    let version = version.map_or_else(|| output.version.clone(), |(version, _)| version);
                    format!("depends {} earlier-pass {version}", package.name)
                }
                Some(output) => format!("depends {} set {}", package.name, output.content),
                None => format!("depends {} archive {}", package.name, package.digest),
            });
        }
        // The files differ each time that a base is made: rpm notes when it installed each package.
        Key::new(lines, &settings.target, rules::VERSION, &self.base.digest)
    }

    /// Inputs and packages to install for candidates that the base lacks.
    fn provisions(&self, stock: &Stock, candidates: &[Candidate]) -> Result<Provisions, Impossible> {
        let mut provisions = Provisions::default();
        for candidate in candidates {
            let Some(package) = stock.universe.package(*candidate) else { continue };
            if self.is_in_base(Some(package)) && !stock.of_candidate.contains_key(candidate) {
                continue;
            }
            let own = stock.outputs.get(candidate);
            let input = match own {
                Some(output) => Input {
                    name: output.file.clone(),
                    sha256: output.sha256.clone(),
                    size_bytes: output.size_bytes,
                    urls: Vec::new(),
                },
                None => self.input(package)?,
            };
            provisions.depends.push(Dependency {
                name: package.name.to_string(),
                version: package.evr.to_string(),
                file: input.name.clone(),
                sha256: input.sha256.clone(),
                is_signed: own.is_none() && self.settings.keys.is_some(),
            });
            provisions.inputs.push(input);
        }
        Ok(provisions)
    }

    /// The file of a repository's package.
    fn input(&self, package: &Package) -> Result<Input, Impossible> {
        input_of(package, &self.settings.repositories).ok_or_else(|| Impossible {
            explanation: format!("no repository has a file of {}", package.name),
        })
    }

    /// Checks that an output may be published as the package.
    fn check_output(&self, recipe: &Recipe, version: &str, output: &Output) -> Result<(), CollectError> {
        let refused = |why: String| Err(CollectError(format!("{}: {why}", output.file)));
        let name = output.name.strip_suffix(&format!(".{SOURCE}")).unwrap_or(&output.name);
        if output.architecture == SOURCE {
            if name != recipe.name {
                return refused(format!("it is the source {name}, but {} was built", recipe.name));
            }
        } else {
            let planned = recipe.planned(name).is_some();
            let is_debug = DEBUG_ENDINGS.iter().any(|ending| {
                let of = name.strip_suffix(ending);
                of.is_some_and(|of| of == recipe.name || recipe.planned(of).is_some())
            });
            if !planned && !is_debug {
                return refused(format!("the spec file of {} makes no package {name}", recipe.name));
            }
            if ![self.settings.architecture.as_str(), "noarch"].contains(&output.architecture.as_str()) {
                return refused(format!("it is for {}", output.architecture));
            }
        }
        let Some(described) = described(&output.description) else {
            return refused("its description is no entry of a repository".to_owned());
        };
        let is_own = *described.name == *name
            && described.evr.to_string() == output.version
            && *described.architecture == *output.architecture
            && *described.digest == *output.sha256;
        if !is_own || !is_name(name) {
            return refused("it does not match its own description".to_owned());
        }
        let (plain, number) = (without_epoch(version), without_epoch(&output.version));
        let epochs: Vec<&str> = match recipe.planned(name) {
            Some(one) if output.architecture != SOURCE => vec![epoch(&one.evr[0])],
            // Packages of debug symbols have the epoch of what they are of.
            _ if output.architecture != SOURCE => {
                let all = recipe.packages.iter().map(|one| epoch(&one.evr[0]));
                all.chain([epoch(&recipe.epoch)]).collect()
            }
            _ => vec![epoch(&recipe.epoch)],
        };
        let own = output.version.split_once(':').map_or("0", |(epoch, _)| epoch);
        if !epochs.contains(&own) {
            return refused(format!(
                "its epoch is {own}, but that of its spec file is {}",
                epochs.join(" or ")
            ));
        }
        let expected = format!("{name}-{number}.{}.rpm", output.architecture);
        if output.file != expected {
            return refused(format!("its name should be {expected}"));
        }
        if output.architecture != SOURCE && *described.source != *format!("{}-{plain}.src.rpm", recipe.name) {
            return refused(format!("it says that it was built from {}", described.source));
        }
        // Subpackages may have versions of their own; the number of the rebuild is that of all.
        let is_of_rebuild = match recipe.planned(name) {
            Some(one) => {
                let release = self
                    .settings
                    .split(version)
                    .map(|(_, revision)| self.settings.release(&one.evr[2], revision));
                release.is_some_and(|release| number == format!("{}-{release}", one.evr[1]))
            }
            None => number == plain,
        };
        match is_of_rebuild {
            true => Ok(()),
            false => refused(format!("its version is {}, but {version} was built", output.version)),
        }
    }
}

/// Checks that files that a root shows in one folder have different names, or the same content.
fn check_names(name: &str, inputs: &[Input]) -> Result<(), Impossible> {
    let mut known: HashMap<&str, &str> = HashMap::new();
    for input in inputs {
        if known.insert(&input.name, &input.sha256).is_some_and(|other| other != input.sha256) {
            let explanation = format!("{name} has or requires two files with the name {}", input.name);
            return Err(Impossible { explanation });
        }
    }
    Ok(())
}

/// The file of a package of one of these repositories; `None` if it has none there.
pub fn input_of(package: &Package, repositories: &[String]) -> Option<Input> {
    let address = repositories.get(package.repository as usize)?;
    let is_digest = package.digest.len() == 64 && package.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = package.location.rsplit('/').next().filter(|name| name.ends_with(".rpm"))?;
    (is_digest && package.size_bytes > 0).then(|| Input {
        name: name.to_owned(),
        sha256: package.digest.to_ascii_lowercase(),
        size_bytes: package.size_bytes,
        urls: vec![format!("{address}/{}", package.location)],
    })
}

/// The package that an entry of a repository describes.
pub fn described(entry: &str) -> Option<Package> {
    let text = format!("<metadata>{entry}</metadata>");
    let mut found = Vec::new();
    metadata::primary(&mut text.as_bytes(), &mut |package| {
        found.push(package);
        Ok(())
    })
    .ok()?;
    let [package] = <[Package; 1]>::try_from(found).ok()?;
    Some(package)
}

/// The name of an output that an entry describes: a source package has the name of its source, as a package may have it, too.
pub fn listed_name(package: &Package) -> String {
    match &*package.architecture == SOURCE {
        true => format!("{}.{SOURCE}", package.name),
        false => package.name.to_string(),
    }
}

/// An epoch as a text; without one it is 0.
fn epoch(text: &str) -> &str {
    if text.is_empty() { "0" } else { text }
}

fn without_epoch(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, rest)| rest)
}

#[derive(Default)]
struct Provisions {
    inputs: Vec<Input>,
    depends: Vec<Dependency>,
}

impl Ecosystem for Workshop {
    fn name(&self) -> &'static str {
        FAMILY
    }

    fn graph(&self) -> &Graph {
        &self.resolved.graph
    }

    fn cutting(&self) -> &Cutting {
        &self.resolved.cutting
    }

    fn built_again(&self, passes: u32) -> Vec<Vec<PackageId>> {
        let bootstrapped = &self.resolved.bootstrapped;
        let mut groups = self.resolved.cutting.knots.clone();
        groups.retain(|knot| passes > 1 || knot.iter().any(|id| bootstrapped.contains_key(id)));
        let alone = bootstrapped.iter().filter(|(id, without)| without.contains(id));
        groups.extend(alone.map(|(id, _)| vec![*id]));
        groups
    }

    fn waits_for_second_pass(&self, package: PackageId) -> bool {
        let is_bootstrapped = |id: &PackageId| self.resolved.bootstrapped.contains_key(id);
        !self.resolved.bootstrapped.is_empty()
            && self.resolved.graph.ancestors(package).iter().any(is_bootstrapped)
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn version(&self, package: PackageId) -> String {
        self.recipe(package).recipe_version(&self.settings)
    }

    fn source_bytes(&self, package: PackageId) -> u64 {
        self.recipe(package).source_bytes()
    }

    fn source_places(&self, package: PackageId) -> Vec<String> {
        self.recipe(package).files.iter().filter_map(|file| file.urls.first().cloned()).collect()
    }

    fn prior_seconds(&self, package: PackageId) -> f64 {
        prior::seconds_by_size(self.source_bytes(package))
    }

    fn former_root(&self) -> &str {
        &self.base.digest
    }

    fn published_revision(&self, package: PackageId) -> u32 {
        let recipe = self.recipe(package);
        let key = (recipe.name.clone(), recipe.recipe_version(&self.settings));
        self.published.get(&key).copied().unwrap_or(0)
    }

    fn admit(&self, package: PackageId, version: &str, outputs: &[Output]) -> Result<Admitted, CollectError> {
        let recipe = self.recipe(package);
        if let Some(requires) = generated::found(recipe, outputs)? {
            return Ok(Admitted { requires: Some(requires), ..Admitted::default() });
        }
        if outputs.iter().all(|output| output.architecture == SOURCE) {
            return Err(CollectError("the build succeeded but produced no package".to_owned()));
        }
        recipe.check_complete(outputs).map_err(CollectError)?;
        for (place, output) in outputs.iter().enumerate() {
            self.check_output(recipe, version, output)?;
            if outputs[..place].iter().any(|other| other.name == output.name) {
                let (file, name) = (&output.file, &output.name);
                return Err(CollectError(format!("{file} is the second package with the name {name}")));
            }
        }
        Ok(Admitted { outputs: outputs.to_vec(), ..Admitted::default() })
    }

    fn stock(self: Arc<Self>) -> Box<dyn crate::Stock> {
        let stock = Stock {
            universe: self.universe.clone(),
            outputs: HashMap::new(),
            of_package: self.resolved.of_package.clone(),
            of_candidate: self.resolved.of_candidate.clone(),
        };
        Box::new(Stocked { set: self, stock })
    }
}

/// The universe with the current outputs, and the outputs themselves.
#[derive(Debug)]
struct Stock {
    universe: Universe,
    outputs: HashMap<Candidate, Output>,
    of_package: Vec<Vec<Candidate>>,
    of_candidate: HashMap<Candidate, PackageId>,
}

impl Stock {
    /// Adds an output that can be installed.
    fn add(&mut self, package: PackageId, output: &Output) -> Option<Candidate> {
        if output.architecture == SOURCE {
            return None;
        }
        let candidate = self.universe.add(described(&output.description)?).ok()?;
        self.outputs.insert(candidate, output.clone());
        self.of_candidate.insert(candidate, package);
        Some(candidate)
    }

    fn remove(&mut self, candidate: Candidate) {
        self.universe.remove(candidate);
        self.outputs.remove(&candidate);
        self.of_candidate.remove(&candidate);
    }
}

/// The set with its current outputs.
#[derive(Debug)]
struct Stocked {
    set: Arc<Workshop>,
    stock: Stock,
}

impl crate::Stock for Stocked {
    fn set(&self) -> Arc<dyn Ecosystem> {
        self.set.clone()
    }

    fn key(&mut self, package: PackageId) -> Result<Key, Impossible> {
        let closure = self.set.build_closure(&mut self.stock, package)?;
        Ok(self.set.key_of(&self.stock, package, &closure))
    }

    fn order(&mut self, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible> {
        self.set.order(&mut self.stock, package, revision)
    }

    fn test(&mut self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible> {
        let own: HashMap<Candidate, &Output> =
            outputs.iter().filter_map(|output| Some((self.stock.add(package, output)?, output))).collect();
        let order = self.set.test_order(&mut self.stock, package, &own);
        own.keys().for_each(|candidate| self.stock.remove(*candidate));
        order
    }

    fn adopt(&mut self, package: PackageId, outputs: &[Output]) {
        for candidate in std::mem::take(&mut self.stock.of_package[package.index()]) {
            self.stock.remove(candidate);
        }
        let added: Vec<Candidate> =
            outputs.iter().filter_map(|output| self.stock.add(package, output)).collect();
        self.stock.of_package[package.index()] = added;
    }

    fn require(&mut self, package: PackageId, requires: &[String]) -> Result<String, Impossible> {
        let name = self.set.resolved.graph.name(package).to_owned();
        let is_bootstrap = self.set.recipe_now(&self.stock, package).is_bootstrap;
        let set = Arc::make_mut(&mut self.set);
        let recipe = set.recipes.get_mut(&name).and_then(|recipe| match is_bootstrap {
            true => recipe.bootstrap.as_deref_mut(),
            false => Some(recipe),
        });
        let Some(recipe) = recipe.filter(|recipe| recipe.generated != requires) else {
            let requires = requires.join(", ");
            let explanation = format!("rpmbuild misses what is installed for {name}, of {requires}");
            return Err(Impossible { explanation });
        };
        recipe.generated = requires.to_vec();
        let digest = recipe.digest(&set.settings);
        // Without a solution there is no order either, and the package fails with the explanation.
        for maker in set.makers_of(&mut self.stock, package).unwrap_or_default() {
            set.resolved.graph.depend(package, maker);
        }
        Ok(digest)
    }

    fn rescan(&mut self, package: PackageId, said: &[u8]) -> Result<(), Impossible> {
        let name = self.set.resolved.graph.name(package).to_owned();
        let recipe: Recipe = serde_json::from_slice(said).map_err(|error| Impossible {
            explanation: format!("the recipe of {name} is unreadable: {error}"),
        })?;
        if recipe.name != name {
            return Err(Impossible { explanation: format!("it is now the source of {}", recipe.name) });
        }
        let mut set = Workshop::clone(&self.set);
        set.recipes.insert(name, recipe);
        self.set = Arc::new(set);
        Ok(())
    }
}

impl Workshop {
    fn order(&self, stock: &mut Stock, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible> {
        let (recipe, settings) = (self.recipe_now(stock, package), &self.settings);
        let closure = self.build_closure(stock, package)?;
        let key = self.key_of(stock, package, &closure);
        let Provisions { mut inputs, depends } = self.provisions(stock, &closure)?;
        inputs.extend(recipe.files.iter().map(|file| Input {
            name: file.name.clone(),
            sha256: file.sha256.clone(),
            size_bytes: file.size_bytes,
            urls: file.urls.clone(),
        }));
        let own = settings.packages.of(&recipe.name);
        let has_dist = recipe.has_dist(settings);
        let dist = match has_dist {
            true => settings.release(&settings.mark(), revision),
            false => settings.dist.clone(),
        };
        // Of those that have none.
        let rebuild = match recipe.all_have_dist(settings) {
            true => String::new(),
            false => format!("{}{revision}", settings.suffix),
        };
        check_names(&recipe.name, &inputs)?;
        let mut order = BuildOrder {
            package: recipe.name.clone(),
            version: recipe.rebuilt_version(settings, revision),
            family: Rules::order(&self.base, self.settings.keys.as_deref()),
            key,
            root: RootOrder {
                layers: self.base.tree.iter().cloned().collect(),
                inputs,
                texts: vec![stages::macros(settings, &dist)],
                depends,
                ..RootOrder::default()
            },
            work: Some(WorkOrder {
                inside: stages::BUILD.to_owned(),
                expected_bytes: recipe.source_bytes().saturating_mul(WORK_BYTES_OF_SOURCE),
            }),
            fetch: None,
            stages: vec![
                stages::unpack(recipe, &rebuild, has_dist, settings.keys.as_deref()),
                stages::build(
                    recipe,
                    own.checks.unwrap_or(settings.runs_checks),
                    own.words.as_deref().unwrap_or_default(),
                ),
            ],
            clients: stages::CLIENTS.map(str::to_owned).to_vec(),
            fakeroots: Vec::new(),
            output_folder: stages::OUTPUTS.to_owned(),
            terms: BuildTerms::default(),
            keep: None,
        };
        own.apply_to(&mut order);
        Ok(order)
    }

    fn test_order(
        &self,
        stock: &mut Stock,
        package: PackageId,
        own: &HashMap<Candidate, &Output>,
    ) -> Result<TestOrder, Impossible> {
        let own_set: HashSet<Candidate> = own.keys().copied().collect();
        let request = |members: &[&Output]| {
            let exactly = |one: &&Output| Relation::parse(&format!("{} = {}", one.name, one.version));
            (members.iter().map(exactly).collect::<Vec<Entry>>(), Vec::new())
        };
        let mut waiting: Vec<&Output> = own.values().copied().collect();
        waiting.sort_by(|one, other| one.name.cmp(&other.name));
        let solve = |members: &[&Output]| self.closure(stock, package, request(members), &own_set);
        let groups = together::groups(waiting, solve)?;
        let closures = groups.iter().flat_map(|group| &group.closure).copied();
        let needed: HashSet<Candidate> = closures.filter(|candidate| !own.contains_key(candidate)).collect();
        let mut needed: Vec<Candidate> = needed.into_iter().collect();
        needed.sort_unstable();
        let Provisions { inputs, depends } = self.provisions(stock, &needed)?;
        let in_base = |name: &str| self.base.packages.iter().any(|(known, _)| known == name);
        let mut stage = None;
        for Group { members, .. } in &groups {
            let files: Vec<&String> = members.iter().map(|output| &output.file).collect();
            let names: Vec<String> = members.iter().map(|output| output.name.clone()).collect();
            let remove = names.iter().filter(|name| !in_base(name)).cloned().collect();
            let group = stages::test(files.into_iter(), names, remove);
            match &mut stage {
                None => stage = Some(group),
                Some(stage) => stage.commands.extend(group.commands),
            }
        }
        let input = |output: &&Output| Input {
            name: output.file.clone(),
            sha256: output.sha256.clone(),
            size_bytes: output.size_bytes,
            urls: Vec::new(),
        };
        Ok(TestOrder {
            root: RootOrder {
                layers: self.base.tree.iter().cloned().collect(),
                inputs,
                depends,
                ..RootOrder::default()
            },
            inputs: groups.iter().flat_map(|group| &group.members).map(input).collect(),
            texts: Vec::new(),
            stage: stage.ok_or_else(|| Impossible { explanation: "there is nothing to test".to_owned() })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpm::recipe::PlannedPackage;

    const ENTRY: &str = "<package type=\"rpm\"><name>hello</name><arch>x86_64</arch><version epoch=\"0\" ver=\"1.0\" rel=\"1.kt1.bk2\"/>\
                         <checksum type=\"sha256\" pkgid=\"YES\">abc</checksum><location href=\"Packages/hello-1.0-1.kt1.bk2.x86_64.rpm\"/>\
                         <format><rpm:sourcerpm>hello-1.0-1.kt1.bk2.src.rpm</rpm:sourcerpm></format></package>\n";

    fn output(name: &str, entry: &str) -> Output {
        Output {
            name: name.to_owned(),
            version: "1.0-1.kt1.bk2".to_owned(),
            architecture: "x86_64".to_owned(),
            file: format!("{name}-1.0-1.kt1.bk2.x86_64.rpm"),
            sha256: "abc".to_owned(),
            size_bytes: 1,
            content: String::new(),
            description: entry.replace("hello<", &format!("{name}<")),
            digests: BTreeMap::new(),
        }
    }

    fn workshop() -> Workshop {
        let package = |name: &str| PlannedPackage {
            name: name.to_owned(),
            architecture: "x86_64".to_owned(),
            evr: ["", "1.0", "1.kt1.bk0"].map(str::to_owned),
            ..PlannedPackage::default()
        };
        let recipe = Recipe {
            name: "hello".to_owned(),
            version: "1.0".to_owned(),
            release: "1.kt1.bk0".to_owned(),
            packages: vec![package("hello"), package("hello-data")],
            ..Recipe::default()
        };
        let recipes = BTreeMap::from([("hello".to_owned(), recipe)]);
        let (published, made) = (HashMap::new(), HashMap::new());
        Workshop::new(Settings::trial(), Universe::new(), recipes, Base::default(), published, &made)
    }

    #[test]
    fn outputs_of_another_source_are_refused() {
        let (workshop, version) = (workshop(), "1.0-1.kt1.bk2");
        let id = workshop.graph().find("hello").unwrap();
        let admit = |outputs: &[Output]| workshop.admit(id, version, outputs).map_err(|error| error.0);
        let good = output("hello", ENTRY);
        assert_eq!(admit(std::slice::from_ref(&good)).unwrap().outputs.len(), 1);
        assert!(
            admit(&[output("hello-data", ENTRY), output("hello-debuginfo", ENTRY), good.clone()]).is_ok()
        );
        assert!(admit(&[]).unwrap_err().contains("no package"));
        assert!(admit(&[good.clone(), good.clone()]).unwrap_err().contains("the second package"));
        let refused = |output: Output, why: &str| {
            let error = admit(&[output]).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(output("bash", ENTRY), "makes no package bash");
        refused(
            output("hello", &ENTRY.replace("hello-1.0-1.kt1.bk2.src", "bash-5-1.src")),
            "built from bash-5-1",
        );
        refused(output("hello", &ENTRY.replace(">abc<", ">def<")), "its own description");
        refused(output("hello", &ENTRY.repeat(2)), "no entry of a repository");
        refused(Output { file: "../hello.rpm".to_owned(), ..good.clone() }, "its name should be");
        refused(Output { architecture: "riscv64".to_owned(), ..good.clone() }, "it is for riscv64");
        let higher = "1.0-1.kt1.bk3".to_owned();
        let entry = good.description.replace("rel=\"1.kt1.bk2", "rel=\"1.kt1.bk3");
        let file = good.file.replace("bk2", "bk3");
        let with_epoch = ENTRY.replace("epoch=\"0\"", "epoch=\"9\"");
        let version = "9:1.0-1.kt1.bk2".to_owned();
        refused(Output { version, ..output("hello", &with_epoch) }, "its epoch is 9");
        refused(Output { version: higher, description: entry, file, ..good }, "1.0-1.kt1.bk2 was built");
    }
}
