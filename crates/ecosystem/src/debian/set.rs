//! A set of sources resolved into a graph.
//!
//! Every output that the set will make is put into the universe as a candidate of its own, described as
//! the archive describes the package today. A source's build dependencies are then solved with the
//! set's outputs in place of the archive's, and each output among the *direct* dependencies is an edge.
//! Edges give the order. What a package is built with follows from them: outputs of its ancestors in the
//! graph come from the set, all else from the archive. So it does not depend on which build ends first.

use super::explain;
use super::relation;
use super::settings::{Cycles, Settings};
use super::source::{Source, Sources};
use super::universe::{Origin, Universe, View};
use super::version;
use crate::LeftOut;
use kilnyard_model::graph::{Cut, Graph, PackageId, StandIn};
use kilnyard_model::solver::{Candidate, Solver, Universe as _};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// The build profiles that may cut a cycle; Debian's registry says that they change no package's
/// function (<https://wiki.debian.org/BuildProfileSpec>).
const CUTTING_PROFILES: [&str; 3] = ["nocheck", "nodoc", "stage1"];

/// The number of the set's package that makes an output, by the output's name.
pub(super) type MadeBy = HashMap<String, PackageId>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub graph: Graph,
    pub cuts: Vec<Cut>,
    pub left_out: Vec<LeftOut>,
    pub made_by: MadeBy,
    /// Packages that are built with further profiles, to cut a cycle.
    pub profiled: HashSet<PackageId>,
}

pub(super) fn resolve(
    universe: &mut Universe,
    sources: &Sources,
    names: &[String],
    settings: &Settings,
) -> Resolved {
    let mut resolved = Resolved::default();
    let context = settings.context();
    for name in names {
        match sources.get(name) {
            None => resolved.leave_out(name, &unknown(sources, universe, name)),
            Some(source) if !source.builds_on(&settings.architecture, settings.parts) => {
                let architectures = source.stanza().get("Architecture").unwrap_or("");
                let text = format!("{name} makes nothing here: it is for {architectures}");
                resolved.leave_out(name, &text);
            }
            Some(source) => {
                let id = resolved.graph.add(name);
                for output in source.outputs(&context, settings.parts) {
                    resolved.made_by.insert(output.to_owned(), id);
                }
            }
        }
    }
    for id in resolved.graph.packages() {
        if let Some(source) = sources.get(resolved.graph.name(id)) {
            for output in source.outputs(&context, settings.parts) {
                let stanza = predicted(universe, &source, output, &settings.version_suffix);
                universe.add_package(&stanza, Origin::Set(id.0));
            }
        }
    }
    let impossible = add_edges(universe, sources, settings, &mut resolved);
    // A package that cannot be built takes those who need its outputs with it, but the archive's own
    // outputs may serve them: edges to it are dropped, and it is not in the way of anyone.
    let resolved = without(resolved, &impossible);
    cut(resolved, sources, settings, universe)
}

impl Resolved {
    fn leave_out(&mut self, name: &str, explanation: &str) {
        self.left_out.push(LeftOut { name: name.to_owned(), explanation: explanation.to_owned() });
    }
}

/// Says that there is no such source, and what may have been meant.
fn unknown(sources: &Sources, universe: &Universe, name: &str) -> String {
    if let Some(binary) = universe.named(name).first() {
        let stanza = universe.stanza(*binary);
        if let Some(source) = stanza.get("Source").and_then(|s| s.split_whitespace().next()) {
            return format!(
                "there is no source package {name}; the binary package {name} is made by {source}"
            );
        }
    }
    let near = sources.all().into_iter().map(|s| s.name()).filter(|other| distance_is_small(name, other));
    match near.take(3).collect::<Vec<_>>()[..] {
        [] => format!("there is no source package {name}"),
        ref near => format!("there is no source package {name}; did you mean {}?", near.join(" or ")),
    }
}

/// Whether two names differ by at most two letters put in, left out or exchanged.
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

/// An output as it will be, from the archive's package of the same source version, else by name alone.
fn predicted(universe: &Universe, source: &Source, output: &str, suffix: &str) -> String {
    let rebuilt = format!("{}{suffix}1", source.version());
    let archive = universe.named(output).iter().copied().find(|c| {
        let version = universe.version(*c);
        let plain = version.rsplit_once("+b").filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
        universe.origin(*c) == Origin::Archive
            && version::compare(plain.map_or(version, |(v, _)| v), source.version()) == Ordering::Equal
    });
    let Some(archive) = archive else {
        return format!(
            "Package: {output}\nVersion: {rebuilt}\nArchitecture: {}\n",
            universe.context().architecture
        );
    };
    let old = universe.version(archive);
    let mut text = String::new();
    for (field, value) in universe.stanza(archive).fields() {
        let value = match field {
            "Version" => rebuilt.clone(),
            "Filename" | "Size" | "SHA256" | "MD5sum" => continue,
            _ => value.replace(&format!("(= {old})"), &format!("(= {rebuilt})")),
        };
        text.push_str(&format!("{field}: {value}\n"));
    }
    text
}

/// Solves each package's build dependencies and adds the edges; those that cannot be solved.
fn add_edges(
    universe: &mut Universe,
    sources: &Sources,
    settings: &Settings,
    resolved: &mut Resolved,
) -> Vec<PackageId> {
    let len_before = universe.len();
    let mut impossible = Vec::new();
    let packages: Vec<PackageId> = resolved.graph.packages().collect();
    for id in packages {
        let name = resolved.graph.name(id).to_owned();
        let Some(source) = sources.get(&name) else { continue };
        let root = match universe.request(&source.request(settings.parts)) {
            Ok(root) => root,
            Err(error) => {
                resolved.leave_out(&name, &format!("{name}: {error}"));
                impossible.push(id);
                continue;
            }
        };
        let universe = &*universe;
        let made_by = &resolved.made_by;
        let allowed = |candidate: Candidate| match universe.origin(candidate) {
            Origin::Set(number) => number != id.0,
            Origin::Archive => made_by.get(universe.name(candidate)).is_none_or(|maker| *maker == id),
            Origin::Request => true,
        };
        let view = View::new(universe, &allowed, &|_| false);
        let mut solver = Solver::new(&view);
        match solver.solve(root) {
            Ok(chosen) => {
                let chosen: HashSet<Candidate> = chosen.into_iter().collect();
                let direct = view.requirements(root).clauses().flatten().filter(|c| chosen.contains(c));
                for candidate in direct {
                    if let Origin::Set(number) = universe.origin(*candidate) {
                        resolved.graph.depend(id, PackageId(number));
                    }
                }
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

/// The same without some packages. Numbers stay as they are in the universe's origins, so a package that
/// is left out keeps its number and has no edges; it is simply not asked for.
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
    let names_of =
        |id: PackageId| made_by.iter().filter(move |(_, maker)| **maker == id).map(|(name, _)| name);
    let archive_has = |id: PackageId| {
        names_of(id).any(|name| universe.named(name).iter().any(|c| universe.origin(*c) == Origin::Archive))
    };
    let falls_away = |package: PackageId, dependency: PackageId| {
        let mut context = settings.context();
        context.profiles.extend(CUTTING_PROFILES.map(str::to_owned));
        let Some(source) = sources.get(graph.name(package)) else { return false };
        let fields = source.request(settings.parts).needs;
        let mut atoms =
            fields.iter().flat_map(|field| relation::clauses(field, &context)).flatten().flatten();
        !atoms.any(|atom| made_by.get(atom.name) == Some(&dependency))
    };
    let stand_in = |package: PackageId, dependency: PackageId| match settings.cycles {
        Cycles::Archive => archive_has(dependency).then_some(StandIn::Archive),
        Cycles::Profile => falls_away(package, dependency).then_some(StandIn::Profile),
    };
    let (cuts, uncut) = resolved.graph.cut_cycles(&stand_in);
    resolved.profiled =
        cuts.iter().filter(|cut| cut.stand_in == StandIn::Profile).map(|cut| cut.package).collect();
    resolved.cuts = cuts;
    let mut knotted = Vec::new();
    for cycle in uncut {
        let names: Vec<&str> = cycle.members.iter().map(|id| graph.name(*id)).collect();
        let how = match settings.cycles {
            Cycles::Archive => "the archive has no binary package that could stand in",
            Cycles::Profile => "no build profile cuts it",
        };
        for id in &cycle.members {
            resolved.left_out.push(LeftOut {
                name: graph.name(*id).to_owned(),
                explanation: format!("{} is in the cycle {}; {how}", graph.name(*id), names.join(", ")),
            });
        }
        knotted.extend(cycle.members);
    }
    without(resolved, &knotted)
}
