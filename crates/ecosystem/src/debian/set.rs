//! Resolves a set of sources into a graph.
//!
//! Every output that the set will produce is added to the universe as a separate candidate, described as in the
//! archive today. A source's build dependencies are then solved with the set's outputs in place of the archive's.
//! Which of them become edges is a setting ([`Against`]): all that are installed beyond the base root, or only the
//! direct ones, or none. The edges give the build order, and they determine the inputs of each build: outputs of its
//! ancestors in the graph come from the set, everything else from the archive. Therefore the result does not depend
//! on which build ends first.

use super::autopkgtest;
use super::dependents::base_names;
use super::ownership::{Claims, Owners};
use super::prior;
use super::published::{Published, maker};
use super::relation;
use super::settings::{Cycles, Settings};
use super::source::{Source, Sources};
use super::universe::{Origin, Universe, View};
use super::version;
use crate::LeftOut;
use crate::explain;
use kilnyard_model::cuts::{Cutting, Effort, StandIn};
use kilnyard_model::graph::{Against, Graph, PackageId};
use kilnyard_model::solver::{Candidate, Solver, Universe as _};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The build profiles that may break a cycle, least intrusive first: Debian's registry says that the first two do
/// not change any package's function, and that the last one may (<https://wiki.debian.org/BuildProfileSpec>).
const CUTTING_PROFILES: [&[&str]; 4] =
    [&["nocheck"], &["nodoc"], &["nocheck", "nodoc"], &["nocheck", "nodoc", "stage1"]];

/// The package that every build requires.
const BUILD_ESSENTIAL: &str = "build-essential";

/// Output name to the package of the set that makes it.
pub(super) type MadeBy = HashMap<String, PackageId>;

/// A resolved set; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub graph: Graph,
    pub cutting: Cutting,
    pub left_out: Vec<LeftOut>,
    pub made_by: MadeBy,
    /// Additional profiles of packages, which break a cycle.
    pub profiled: HashMap<PackageId, BTreeSet<&'static str>>,
    /// The owner of each output name.
    pub owners: Owners,
}

pub(super) fn resolve(
    universe: &mut Universe,
    sources: &Sources,
    names: &[String],
    settings: &Settings,
    published: &Published,
) -> Resolved {
    let owners = owners(universe, sources, names, settings, published);
    let mut resolved = Resolved { owners, ..Resolved::default() };
    for name in names {
        match sources.get(name) {
            None => resolved.leave_out(name, &unknown(sources, universe, name)),
            Some(source) if !source.builds_on(&settings.architecture, settings.parts) => {
                let architectures = source.stanza().get("Architecture").unwrap_or("");
                let text = match architectures {
                    "all" => format!(
                        "{name} makes only architecture-independent packages, but `parts` is \"dependent\" in \
                         kilnyard.toml"
                    ),
                    _ => format!(
                        "{name} has no packages for {}: its architectures are {architectures}",
                        settings.architecture
                    ),
                };
                resolved.leave_out(name, &text);
            }
            Some(_)
                if settings.build_architecture.is_some()
                    && settings.packages.of(name).cross != Some(true) =>
            {
                let text = format!(
                    "{name} is not cross-built for {}: add cross = true to [package.{name}] in kilnyard.toml",
                    settings.architecture
                );
                resolved.leave_out(name, &text);
            }
            Some(source) => {
                let id = resolved.graph.add(name);
                for output in source.outputs(&settings.context_of(name), settings.parts) {
                    if resolved.owners.is_owner(output, name) {
                        resolved.made_by.insert(output.to_owned(), id);
                    }
                }
            }
        }
    }
    for id in resolved.graph.packages() {
        if let Some(source) = sources.get(resolved.graph.name(id)) {
            let context = settings.context_of(source.name());
            let outputs = source.outputs(&context, settings.parts).into_iter();
            for output in outputs.filter(|output| resolved.made_by.get(*output) == Some(&id)) {
                let stanza =
                    predicted(universe, &source, output, &resolved.made_by, &settings.version_suffix);
                universe.add_package(&stanza, Origin::Set(id.0));
            }
        }
    }
    let impossible = add_edges(universe, sources, settings, &mut resolved);
    // A package that cannot be built also blocks the packages that need its outputs, unless the archive's own
    // outputs can serve them: edges to it are dropped, so it blocks none of the others.
    let resolved = without(resolved, &impossible);
    cut(resolved, sources, settings, universe)
}

/// Decides which source owns each output name.
fn owners(
    universe: &Universe,
    sources: &Sources,
    names: &[String],
    settings: &Settings,
    published: &Published,
) -> Owners {
    let mut claims = Claims {
        claimants: BTreeMap::new(),
        sources: names.iter().map(String::as_str).collect(),
        published,
        takeovers: &settings.takeovers,
    };
    for name in names {
        let Some(source) = sources.get(name) else { continue };
        let context = settings.context_of(name);
        for declared in source.declared() {
            if declared.is_made(&context, settings.parts) {
                claims.claimants.entry(declared.name).or_default().insert(name);
            }
        }
    }
    Owners::decide(&claims, |name| {
        let candidates = universe.named_as_output(name).iter().copied();
        let mut archived = candidates.filter(|candidate| universe.origin(*candidate) == Origin::Archive);
        let stanza = universe.stanza(archived.next()?);
        maker(&stanza).0.or(stanza.get("Package"))
    })
}

impl Resolved {
    fn leave_out(&mut self, name: &str, explanation: &str) {
        self.left_out.push(LeftOut { name: name.to_owned(), explanation: explanation.to_owned() });
    }
}

/// Reports that the source does not exist, and suggests similar names.
fn unknown(sources: &Sources, universe: &Universe, name: &str) -> String {
    if let Some(binary) = universe.named(name).first() {
        let stanza = universe.stanza(*binary);
        if let Some(source) = stanza.get("Source").and_then(|s| s.split_whitespace().next()) {
            return format!("source package {name} not found; the binary package {name} is made by {source}");
        }
    }
    let near = sources.all().into_iter().map(|s| s.name()).filter(|other| distance_is_small(name, other));
    match near.take(3).collect::<Vec<_>>()[..] {
        [] => format!("source package {name} not found"),
        ref near => format!("source package {name} not found; did you mean {}?", near.join(" or ")),
    }
}

/// Whether two names differ by at most two inserted, deleted or replaced letters.
fn distance_is_small(left: &str, right: &str) -> bool {
    if left.len().abs_diff(right.len()) > 2 || left.bytes().next() != right.bytes().next() {
        return false;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let cost = if a == b { diagonal } else { 1 + diagonal.min(row[j]).min(row[j + 1]) };
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[right.len()] <= if left.len() > 4 { 2 } else { 1 }
}

/// Predicts the stanza of an output: the archive's stanza of the package with this name from the same source, with
/// the version of a rebuild; only the name if the archive has no such package.
fn predicted(universe: &Universe, source: &Source, output: &str, made_by: &MadeBy, suffix: &str) -> String {
    let made_here = |candidate: &Candidate| {
        let made_by =
            universe.stanza(*candidate).get("Source").map_or(output, |s| s.split(' ').next().unwrap_or(s));
        universe.origin(*candidate) == Origin::Archive && made_by == source.name()
    };
    // Of several suites, the one that has this version of the source describes its packages.
    let is_of_version = |candidate: &Candidate| {
        let stanza = universe.stanza(*candidate);
        let of_source = maker(&stanza).1.or(stanza.get("Version"));
        of_source.is_some_and(|of_source| version::compare(of_source, source.version()).is_eq())
    };
    let described = universe.named_as_output(output).iter().copied().filter(made_here);
    let mut described = described.collect::<Vec<_>>().into_iter();
    let first = described.clone().next();
    let Some(archive) = described.find(is_of_version).or(first) else {
        let version = format!("{}{suffix}1", source.version());
        return format!(
            "Package: {output}\nVersion: {version}\nArchitecture: {}\n",
            universe.context().architecture
        );
    };
    let old = universe.version(archive);
    let stanza = universe.stanza(archive);
    let plain =
        old.rsplit_once("+b").filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())).map_or(old, |(v, _)| v);
    // Some sources give their packages separate versions (`gcc` 4:12.2.0-3 is made by gcc-defaults 1.203).
    let of_source =
        stanza.get("Source").and_then(|s| s.split_once('(')).map(|(_, v)| v.trim_end_matches(')'));
    let has_own_version = of_source.is_some_and(|v| version::compare(v, plain) != Ordering::Equal);
    let rebuilt = format!("{}{suffix}1", if has_own_version { plain } else { source.version() });
    let mut text = String::new();
    for (field, value) in stanza.fields() {
        match field {
            "Version" => text.push_str(&format!("Version: {rebuilt}\n")),
            "Filename" | "Size" | "SHA256" | "MD5sum" => {}
            "Depends" | "Pre-Depends" | "Provides" | "Breaks" | "Conflicts" | "Replaces" => {
                let id = made_by.get(output);
                let is_sibling = |name: &str| field == "Provides" || made_by.get(name) == id;
                text.push_str(&format!(
                    "{field}: {}\n",
                    with_new_versions(value, old, &rebuilt, &is_sibling)
                ));
            }
            _ => text.push_str(&format!("{field}: {value}\n")),
        }
    }
    text
}

/// Puts the new version into exact relations to packages that are rebuilt as well. Relations to
/// architecture-independent packages of the same source stay unchanged: these are not rebuilt.
fn with_new_versions(field: &str, old: &str, new: &str, is_rebuilt: &dyn Fn(&str) -> bool) -> String {
    let exact = format!("(= {old})");
    let atom = |atom: &str| {
        let name = atom.trim().split([' ', '(', ':', '\n']).next().unwrap_or("");
        if is_rebuilt(name) { atom.replace(&exact, &format!("(= {new})")) } else { atom.to_owned() }
    };
    let clause = |clause: &str| clause.split('|').map(atom).collect::<Vec<_>>().join("|");
    field.split(',').map(clause).collect::<Vec<_>>().join(",")
}

/// Solves each package's build dependencies and adds the edges; returns the packages without a solution.
fn add_edges(
    universe: &mut Universe,
    sources: &Sources,
    settings: &Settings,
    resolved: &mut Resolved,
) -> Vec<PackageId> {
    let base = base_names(universe);
    let len_before = universe.len();
    let mut impossible = Vec::new();
    let packages: Vec<PackageId> = resolved.graph.packages().collect();
    for id in packages {
        let name = resolved.graph.name(id).to_owned();
        let Some(source) = sources.get(&name) else { continue };
        let root = match universe.request(&settings.request_of(&source)) {
            Ok(root) => root,
            Err(error) => {
                resolved.leave_out(&name, &format!("{name}: {error}"));
                impossible.push(id);
                continue;
            }
        };
        let universe = &*universe;
        let made_by = &resolved.made_by;
        // A test is for the packages of the set.
        let is_of_set = settings.against != Against::Archive || autopkgtest::is_test(&name);
        let in_base = |name: &str| {
            let archived =
                universe.named(name).iter().find(|one| universe.origin(**one) == Origin::Archive)?;
            base.contains(&universe.name_number(*archived)).then(|| universe.version(*archived))
        };
        let fits = |candidate: Candidate| universe.fits_beside(candidate, &in_base);
        let allowed = |candidate: Candidate| match universe.origin(candidate) {
            _ if !fits(candidate) => false,
            Origin::Set(number) => is_of_set && number != id.0,
            Origin::Archive => {
                !is_of_set
                    || !universe.is_of_host(candidate)
                    || made_by.get(universe.package(candidate)).is_none_or(|maker| *maker == id)
            }
            Origin::Request => true,
        };
        let lenient = |candidate: Candidate| match universe.origin(candidate) {
            _ if !fits(candidate) => false,
            Origin::Set(number) => is_of_set && number != id.0,
            _ => true,
        };
        let view = View::new(universe, &allowed, &|_| false);
        let mut solver = Solver::new(&view);
        // If the set's own packages conflict, the archive's may replace them.
        let solved = solver
            .solve(root)
            .or_else(|_| Solver::new(&View::new(universe, &lenient, &|_| false)).solve(root));
        match solved {
            Ok(chosen) => {
                let mut depend = |candidate: Candidate| {
                    if let Origin::Set(number) = universe.origin(candidate) {
                        resolved.graph.depend(id, PackageId(number));
                    }
                };
                if settings.against == Against::Set {
                    let beyond_base = |one: &&Candidate| !base.contains(&universe.name_number(**one));
                    chosen.iter().filter(beyond_base).copied().for_each(&mut depend);
                }
                let is_direct = |one: &&Candidate| {
                    // Every source requires build-essential, which is part of the base root.
                    settings.against != Against::Set || universe.name(**one) != BUILD_ESSENTIAL
                };
                let chosen: HashSet<Candidate> = chosen.into_iter().collect();
                let direct = view.requirements(root).clauses().flatten().filter(|c| chosen.contains(c));
                direct.filter(is_direct).copied().for_each(depend);
            }
            Err(_) => {
                let text = explain::text(universe, root, &name, &solver.explain(root));
                resolved.leave_out(&name, &text);
                impossible.push(id);
            }
        }
    }
    universe.truncate(len_before);
    impossible
}

/// Removes some packages. The universe's origins refer to package numbers, so a removed package keeps its number
/// and only loses its edges; it is never asked for.
fn without(mut resolved: Resolved, impossible: &[PackageId]) -> Resolved {
    if impossible.is_empty() {
        return resolved;
    }
    let mut graph = Graph::new();
    for id in resolved.graph.packages() {
        graph.add(resolved.graph.name(id));
    }
    for id in resolved.graph.packages().filter(|id| !impossible.contains(id)) {
        for dependency in resolved.graph.dependencies(id) {
            if !impossible.contains(dependency) {
                graph.depend(id, *dependency);
            }
        }
    }
    resolved.made_by.retain(|_, maker| !impossible.contains(maker));
    resolved.graph = graph;
    resolved
}

fn cut(mut resolved: Resolved, sources: &Sources, settings: &Settings, universe: &Universe) -> Resolved {
    let graph = resolved.graph.clone();
    let made_by = &resolved.made_by;
    let is_in_archive =
        |name: &str| universe.named_as_output(name).iter().any(|c| universe.origin(*c) == Origin::Archive);
    let in_archive: HashSet<PackageId> =
        made_by.iter().filter(|(name, _)| is_in_archive(name)).map(|(_, maker)| *maker).collect();
    let falls_away = |package: PackageId, dependency: PackageId| {
        let source = sources.get(graph.name(package))?;
        let fields = source.request(settings.parts).needs;
        CUTTING_PROFILES.into_iter().find(|profiles| {
            let mut context = settings.context_of(graph.name(package));
            context.profiles.extend(profiles.iter().map(|profile| (*profile).to_owned()));
            let mut atoms =
                fields.iter().flat_map(|field| relation::clauses(field, &context)).flatten().flatten();
            !atoms.any(|atom| made_by.get(atom.name) == Some(&dependency))
        })
    };
    let may_cut = |package: PackageId, dependency: PackageId| match settings.cycles {
        Cycles::Archive => in_archive.contains(&dependency).then_some(StandIn::Archive),
        Cycles::Profile => falls_away(package, dependency).map(|_| StandIn::Profile),
    };
    let seconds: Vec<f64> = graph
        .packages()
        .map(|id| {
            sources.get(graph.name(id)).map_or(0.0, |source| prior::seconds(&source, universe, settings))
        })
        .collect();
    // A second pass uses packages that wait for this one. Only a cut of a cycle leads to such packages, so no other
    // edge is cut.
    let effort = if settings.passes > 1 { Effort::FewestCuts } else { Effort::ShortPath };
    resolved.cutting = resolved.graph.cut_cycles(&seconds, effort, &may_cut);
    for cut in resolved.cutting.cuts.iter().filter(|cut| cut.stand_in == StandIn::Profile) {
        let profiles = falls_away(cut.package, cut.dependency).unwrap_or_default();
        resolved.profiled.entry(cut.package).or_default().extend(profiles);
    }
    let mut knotted = Vec::new();
    for members in resolved.cutting.uncut.clone() {
        let names: Vec<&str> = members.iter().map(|id| graph.name(*id)).collect();
        let how = match settings.cycles {
            Cycles::Archive => "the archive has no binary package to break it",
            Cycles::Profile => "no build profile breaks it",
        };
        for id in &members {
            resolved.left_out.push(LeftOut {
                name: graph.name(*id).to_owned(),
                explanation: format!("{} is in the cycle {}; {how}", graph.name(*id), names.join(", ")),
            });
        }
        knotted.extend(members);
    }
    without(resolved, &knotted)
}
