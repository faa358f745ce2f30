//! Finds the sources that a change of other sources would affect.

use super::relation;
use super::settings::{ROOT_PACKAGES, Settings};
use super::source::Sources;
use super::universe::{Origin, Request, Universe, View};
use kilnyard_model::solver::{Candidate, Solver, Universe as _};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The name numbers of the packages in a base root: the archive's required and build-essential packages, with all
/// their dependencies. They are computed from the index, so that they are the same before a base root exists.
pub fn base_names(universe: &mut Universe) -> HashSet<u32> {
    let is_first = |universe: &Universe, one: Candidate| {
        universe.origin(one) == Origin::Archive
            && (universe.is_essential(one) || universe.stanza(one).get("Priority") == Some("required"))
            && !universe.name(one).contains(':')
    };
    let mut names: BTreeSet<String> = universe
        .packages()
        .filter(|one| is_first(universe, *one))
        .map(|one| universe.name(one).to_owned())
        .collect();
    names.extend(["apt", "build-essential", "passwd"].into_iter().chain(ROOT_PACKAGES).map(str::to_owned));
    // A small archive may lack some of them.
    names.retain(|name| relation::is_name(name) && !universe.named(name).is_empty());
    let len_before = universe.len();
    let request =
        Request { needs: names.iter().map(|name| format!("{name}:native")).collect(), ..Request::default() };
    let mut numbers: HashSet<u32> =
        names.iter().flat_map(|name| universe.named(name)).map(|one| universe.name_number(*one)).collect();
    if let Ok(root) = universe.request(&request) {
        let allowed = |one: Candidate| !matches!(universe.origin(one), Origin::Set(_));
        let view = View::new(universe, &allowed, &|_| false);
        let chosen = Solver::new(&view).solve(root).unwrap_or_default();
        numbers.extend(chosen.iter().filter(|one| **one != root).map(|one| universe.name_number(*one)));
    }
    universe.truncate(len_before);
    numbers
}

/// How far a change reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Sources whose build installs a changed package.
    Installs,
    /// These, and sources whose build installs a package that one of these makes.
    Rebuilds,
}

/// The sources among `names` that a change of `targets` reaches, if all builds are against the archive; without
/// `targets` themselves. Packages of the base root count only if a source names them in its build dependencies.
///
/// Candidates are found by name: sources that may pull in one of the packages, by any alternative. Each candidate is
/// then solved, as in a plan.
pub fn dependents(
    targets: &[String],
    names: &[String],
    reach: Reach,
    settings: &Settings,
    universe: &mut Universe,
    sources: &Sources,
) -> Vec<String> {
    let base = base_names(universe);
    let mut made_by: HashMap<&str, Vec<Candidate>> = HashMap::new();
    let packages: Vec<Candidate> = universe.packages().collect();
    let frozen = &*universe;
    for one in &packages {
        let stanza = frozen.stanza(*one);
        let source = stanza.get("Source").and_then(|text| text.split([' ', '(']).next());
        if let Some(source) = source.or(stanza.get("Package")) {
            made_by.entry(source).or_default().push(*one);
        }
    }
    let made_by: HashMap<String, Vec<Candidate>> =
        made_by.into_iter().map(|(source, made)| (source.to_owned(), made)).collect();
    let made = |name: &String| made_by.get(name).map_or(&[][..], Vec::as_slice);
    let mut dependents: HashMap<Candidate, Vec<Candidate>> = HashMap::new();
    let is_base = |universe: &Universe, one: Candidate| base.contains(&universe.name_number(one));
    for one in packages.iter().filter(|one| !is_base(universe, **one)) {
        for needed in universe.requirements(*one).clauses().flatten() {
            dependents.entry(*needed).or_default().push(*one);
        }
    }
    // The sources that name a package in their build dependencies, by any alternative.
    let len_before = universe.len();
    let mut wanted_by: HashMap<Candidate, Vec<usize>> = HashMap::new();
    for (number, name) in names.iter().enumerate() {
        let Some(source) = sources.get(name) else { continue };
        let Ok(root) = universe.request(&settings.request_of(&source)) else { continue };
        for one in universe.requirements(root).clauses().flatten() {
            wanted_by.entry(*one).or_default().push(number);
        }
        universe.truncate(len_before);
    }
    let mut found: HashSet<String> = targets.iter().cloned().collect();
    let mut changed: Vec<String> = targets.to_vec();
    // The changed packages, and all packages that may pull one of them in.
    let (mut pulls, mut direct): (HashSet<Candidate>, HashSet<Candidate>) = Default::default();
    let mut order = Vec::new();
    while !changed.is_empty() {
        let mut candidates: BTreeSet<usize> = BTreeSet::new();
        for name in changed.drain(..) {
            let mut open: Vec<Candidate> = made(&name).to_vec();
            direct.extend(&open);
            // Packages of the base root pull in nothing: they are always installed.
            open.retain(|one| pulls.insert(*one) || is_base(universe, *one));
            while let Some(one) = open.pop() {
                candidates.extend(wanted_by.get(&one).into_iter().flatten());
                if is_base(universe, one) {
                    continue;
                }
                let new = dependents.get(&one).into_iter().flatten().copied();
                open.extend(new.filter(|dependent| pulls.insert(*dependent)));
            }
        }
        for name in candidates.into_iter().map(|number| &names[number]).filter(|name| !found.contains(*name))
        {
            let Some(source) = sources.get(name) else { continue };
            let Ok(root) = universe.request(&settings.request_of(&source)) else { continue };
            let view = View::whole(universe);
            let needed: HashSet<Candidate> = view.requirements(root).clauses().flatten().copied().collect();
            let installs = |one: &Candidate| {
                let is_meant = !is_base(universe, *one)
                    || (needed.contains(one) && universe.name(*one) != "build-essential");
                direct.contains(one) && is_meant
            };
            if Solver::new(&view).solve(root).is_ok_and(|chosen| chosen.iter().any(installs)) {
                changed.push(name.clone());
            }
            universe.truncate(len_before);
        }
        found.extend(changed.iter().cloned());
        order.extend(changed.iter().cloned());
        if reach == Reach::Installs {
            break;
        }
    }
    order
}
