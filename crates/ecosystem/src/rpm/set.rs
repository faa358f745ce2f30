//! Resolves a set of sources into a graph.
//!
//! Every package that the set will make is a candidate of its own, described by its spec file, and by the package of the same name
//! that was made before, or that a repository has. What a source requires is solved with these in place of the repositories' packages. All that are installed
//! beyond the base become edges. They give the order, and decide the inputs of each build: packages of its ancestors in
//! the graph come from the set, all others from the repositories, so that the result does not depend on which build ends first.
//!
//! An edge of a cycle is cut where a source is built without it `--with bootstrap`, else where a repository has the packages. A
//! source that was built so is built again plainly, with what was built after it.

use super::recipe::Recipe;
use super::relation::{Capability, Relation};
use super::settings::{Base, Settings};
use super::universe::{Entry, Package, Universe, View};
use crate::{LeftOut, explain, prior};
use kilnyard_model::cuts::{Cutting, Effort, StandIn};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::solver::{Candidate, Solver};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A resolved set; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Resolved {
    pub graph: Graph,
    pub cutting: Cutting,
    pub left_out: Vec<LeftOut>,
    /// Of each source, what it will make.
    pub of_package: Vec<Vec<Candidate>>,
    pub of_candidate: HashMap<Candidate, PackageId>,
    /// What is first built `--with bootstrap`, with the packages of the set that it does not wait for then.
    pub bootstrapped: HashMap<PackageId, Vec<PackageId>>,
}

impl Resolved {
    fn leave_out(&mut self, name: &str, explanation: String) {
        self.left_out.push(LeftOut { name: name.to_owned(), explanation });
    }
}

/// What keeps the packages of the base in a root: newer ones of the set may replace them.
pub(super) fn of_base(base: &Base) -> Vec<Entry> {
    let plain = |(name, _): &(String, String)| {
        Ok(Relation::Plain(Capability { name: name.as_str().into(), range: None }))
    };
    base.packages.iter().map(plain).collect()
}

pub(super) fn resolve(
    universe: &mut Universe,
    recipes: &BTreeMap<String, Recipe>,
    settings: &Settings,
    base: &Base,
    made: &HashMap<String, Package>,
) -> Resolved {
    let mut resolved = Resolved::default();
    let mut makers: HashMap<&str, &str> = HashMap::new();
    for (name, recipe) in recipes {
        if !recipe.builds_on(&settings.architecture) {
            let text = format!("{name} is not for {} (ExclusiveArch, ExcludeArch)", settings.architecture);
            resolved.leave_out(name, text);
            continue;
        }
        let other = recipe.packages.iter().find_map(|one| Some((&one.name, *makers.get(one.name.as_str())?)));
        if let Some((package, other)) = other {
            resolved.leave_out(name, format!("{name} makes {package}, which {other} makes, too"));
            continue;
        }
        makers.extend(recipe.packages.iter().map(|one| (one.name.as_str(), name.as_str())));
        resolved.graph.add(name);
    }
    let in_repositories: HashSet<String> =
        universe.packages().map(|(_, package)| package.name.to_string()).collect();
    let mut over = Vec::new();
    for id in resolved.graph.packages() {
        let recipe = &recipes[resolved.graph.name(id)];
        let mut own = Vec::new();
        for planned in &recipe.packages {
            let listed = || universe.named(&planned.name).iter().find_map(|one| universe.package(*one));
            let known = made.get(&planned.name).or_else(listed).cloned();
            match universe.add(planned.described(settings, known.as_ref())) {
                Ok(candidate) => own.push(candidate),
                // Its dependents find no provider then, and are left out, too.
                Err(error) => {
                    over.push((id, error));
                    break;
                }
            }
        }
        resolved.of_candidate.extend(own.iter().map(|candidate| (*candidate, id)));
        resolved.of_package.push(own);
    }
    let mut impossible = add_edges(universe, recipes, base, &mut resolved);
    for (id, error) in over {
        let name = resolved.graph.name(id).to_owned();
        resolved.leave_out(&name, format!("{name} cannot be added to the set: {error}"));
        impossible.push(id);
    }
    resolved.graph = without(&resolved.graph, &impossible);
    let makes_known = |id: PackageId| {
        recipes[resolved.graph.name(id)].packages.iter().all(|one| in_repositories.contains(&one.name))
    };
    let stand_ins: HashSet<PackageId> = resolved.graph.packages().filter(|id| makes_known(*id)).collect();
    let seconds: Vec<f64> = resolved
        .graph
        .packages()
        .map(|id| prior::seconds_by_size(recipes[resolved.graph.name(id)].source_bytes()))
        .collect();
    let with_bootstrap = with_bootstrap(universe, recipes, base, &resolved);
    let may_cut = |package: PackageId, dependency: PackageId| {
        let falls_away = with_bootstrap.get(&package).is_some_and(|rest| !rest.contains(&dependency));
        let stands_in = || stand_ins.contains(&dependency).then_some(StandIn::Archive);
        falls_away.then_some(StandIn::Profile).or_else(stands_in)
    };
    // A later build uses packages that wait for this one. Only a cut of a cycle leads to such packages, so no other edge is cut.
    let is_built_again = settings.passes > 1 || !with_bootstrap.is_empty();
    let effort = if is_built_again { Effort::FewestCuts } else { Effort::ShortPath };
    resolved.cutting = resolved.graph.cut_cycles(&seconds, effort, &may_cut);
    for cut in resolved.cutting.cuts.iter().filter(|cut| cut.stand_in == StandIn::Profile) {
        resolved.bootstrapped.entry(cut.package).or_default().push(cut.dependency);
    }
    let mut knotted = Vec::new();
    for members in resolved.cutting.uncut.clone() {
        let names: Vec<String> = members.iter().map(|id| resolved.graph.name(*id).to_owned()).collect();
        for name in &names {
            let text = format!(
                "{name} is in the cycle {}; no repository has packages to break it, and no spec file does without them --with bootstrap",
                names.join(", ")
            );
            resolved.leave_out(name, text);
        }
        knotted.extend(members);
    }
    resolved.graph = without(&resolved.graph, &knotted);
    resolved
}

/// The packages in cycles that can be built `--with bootstrap`, with those of the set that they require then.
fn with_bootstrap(
    universe: &mut Universe,
    recipes: &BTreeMap<String, Recipe>,
    base: &Base,
    resolved: &Resolved,
) -> HashMap<PackageId, HashSet<PackageId>> {
    let mut found = HashMap::new();
    for id in resolved.graph.cycles().into_iter().flatten() {
        let name = resolved.graph.name(id);
        let Some(recipe) = recipes[name].bootstrap.as_deref() else { continue };
        let demand = Demand { name, recipe, is_excluded: &|maker| maker == id };
        if let Ok(rest) = makers(universe, &resolved.of_candidate, base, &demand) {
            found.insert(id, rest.into_iter().collect());
        }
    }
    found
}

/// Takes away what packages that are left out wait for. Those that wait for them keep their edges, which block them. Candidates
/// refer to package numbers, so a package keeps its number.
fn without(graph: &Graph, gone: &[PackageId]) -> Graph {
    let mut rest = Graph::new();
    for id in graph.packages() {
        rest.add(graph.name(id));
    }
    for id in graph.packages().filter(|id| !gone.contains(id)) {
        for dependency in graph.dependencies(id) {
            rest.depend(id, *dependency);
        }
    }
    rest
}

/// Solves what each source requires, and adds the edges; returns the packages without a solution.
fn add_edges(
    universe: &mut Universe,
    recipes: &BTreeMap<String, Recipe>,
    base: &Base,
    resolved: &mut Resolved,
) -> Vec<PackageId> {
    let mut impossible = Vec::new();
    for id in resolved.graph.packages() {
        let name = resolved.graph.name(id).to_owned();
        let demand = Demand { name: &name, recipe: &recipes[&name], is_excluded: &|maker| maker == id };
        match makers(universe, &resolved.of_candidate, base, &demand) {
            Ok(makers) => makers.into_iter().for_each(|maker| resolved.graph.depend(id, maker)),
            Err(explanation) => match by_itself(universe, &recipes[&name], base, resolved, id) {
                Some(makers) => {
                    makers.into_iter().for_each(|maker| resolved.graph.depend(id, maker));
                    resolved.bootstrapped.insert(id, vec![id]);
                }
                None => {
                    resolved.leave_out(&name, explanation);
                    impossible.push(id);
                }
            },
        }
    }
    impossible
}

/// What a source requires that can only be built with itself, if a build `--with bootstrap` breaks that: both builds' packages of
/// the set.
fn by_itself(
    universe: &mut Universe,
    recipe: &Recipe,
    base: &Base,
    resolved: &Resolved,
    id: PackageId,
) -> Option<Vec<PackageId>> {
    let (name, own) = (resolved.graph.name(id), &resolved.of_candidate);
    let first = recipe.bootstrap.as_deref()?;
    let demand = Demand { name, recipe: first, is_excluded: &|maker| maker == id };
    let mut all = makers(universe, own, base, &demand).ok()?;
    all.extend(makers(universe, own, base, &Demand { recipe, is_excluded: &|_| false, ..demand }).ok()?);
    Some(all)
}

/// A source whose requirements are solved.
#[derive(Clone, Copy)]
pub(super) struct Demand<'d> {
    pub name: &'d str,
    pub recipe: &'d Recipe,
    /// The packages of the set whose outputs it cannot have: itself, and those that wait for it.
    pub is_excluded: &'d dyn Fn(PackageId) -> bool,
}

/// The packages of the set that make what a source requires. `own` has the candidates of the set.
///
/// # Errors
/// There is no solution; the explanation has a line for each step.
pub(super) fn makers(
    universe: &mut Universe,
    own: &HashMap<Candidate, PackageId>,
    base: &Base,
    demand: &Demand<'_>,
) -> Result<Vec<PackageId>, String> {
    let Demand { name, recipe, is_excluded } = *demand;
    universe.finish();
    let len = universe.len();
    let base_names: HashSet<&str> = base.packages.iter().map(|(name, _)| name.as_str()).collect();
    let (mut requires, conflicts) = recipe.request();
    requires.extend(of_base(base));
    let root = universe.request(&requires, &conflicts).map_err(|error| format!("{name}: {error}"))?;
    let made: HashSet<&str> = own
        .iter()
        .filter(|(_, maker)| !is_excluded(**maker))
        .filter_map(|(candidate, _)| Some(&*universe.package(*candidate)?.name))
        .collect();
    let is_named = |candidate: Candidate| universe.package(candidate).map_or("", |package| &package.name);
    let is_allowed = |candidate: Candidate| match own.get(&candidate) {
        Some(maker) => !is_excluded(*maker),
        // What the set makes replaces it, unless it is in the base.
        None => !made.contains(is_named(candidate)) || base_names.contains(is_named(candidate)),
    };
    let lenient = |candidate: Candidate| own.get(&candidate).is_none_or(|maker| !is_excluded(*maker));
    let is_favoured =
        |candidate: Candidate| !own.contains_key(&candidate) && base_names.contains(is_named(candidate));
    let view = View { universe, is_allowed: &is_allowed, is_favoured: &is_favoured };
    let mut solver = Solver::new(&view);
    let again = View { universe, is_allowed: &lenient, is_favoured: &is_favoured };
    // If the set's own packages conflict, those of the repositories may replace them.
    let outcome = match solver.solve(root).or_else(|_| Solver::new(&again).solve(root)) {
        Ok(chosen) => Ok(chosen.iter().filter_map(|one| own.get(one)).copied().collect()),
        Err(_) => Err(explain::text(universe, root, name, &solver.explain(root))),
    };
    universe.truncate(len);
    outcome
}
