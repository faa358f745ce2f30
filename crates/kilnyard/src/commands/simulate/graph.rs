//! Reads what depends on what: edges as bob prints them, or a scan of pkgsrc.

use crate::error::{Error, Result};
use kilnyard_model::graph::{Graph, PackageId, StandIn};
use std::collections::HashMap;
use std::path::Path;

/// Reads either form; a scan is known by its first line.
pub fn parse(text: &str, path: &Path) -> Result<Graph> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    if first.starts_with("PKGNAME=") { scan(text, path) } else { edges(text, path) }
}

/// Lines `A -> B`: B depends on A.
fn edges(text: &str, path: &Path) -> Result<Graph> {
    let mut graph = Graph::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = || format!("{}, line {}", path.display(), number + 1);
        let Some((dependency, package)) = line.split_once("->") else {
            return Err(Error::usage(format!("{}: {line:?} is not an edge", at()))
                .hint("lines like: zlib-1.3 -> rsync-3.2, where rsync depends on zlib"));
        };
        let (dependency, package) = (dependency.trim(), package.trim());
        if dependency.is_empty() || package.is_empty() {
            return Err(Error::usage(format!("{}: the edge {line:?} leads to nowhere", at())));
        }
        for name in [dependency, package] {
            if name.contains(char::is_whitespace) {
                return Err(Error::usage(format!("{}: {name:?} is not the name of a package", at())));
            }
        }
        if dependency == package {
            return Err(Error::usage(format!("{}: {package} depends on itself", at())));
        }
        let (dependency, package) = (graph.add(dependency), graph.add(package));
        graph.depend(package, dependency);
    }
    match graph.cycles().first() {
        None => Ok(graph),
        Some(members) => {
            let names: Vec<&str> = cycle(&graph, members).into_iter().map(|id| graph.name(id)).collect();
            Err(Error::usage(format!("{}: a cycle: {}", path.display(), names.join(" -> "))))
        }
    }
}

/// One cycle of a knot, from a package back to it.
fn cycle(graph: &Graph, members: &[PackageId]) -> Vec<PackageId> {
    let mut seen = Vec::new();
    let mut next = members.first().copied();
    while let Some(package) = next {
        seen.push(package);
        if let Some(at) = seen[..seen.len() - 1].iter().position(|id| *id == package) {
            return seen.split_off(at);
        }
        next = graph.dependents(package).iter().find(|id| members.binary_search(id).is_ok()).copied();
    }
    seen
}

/// A stanza of a scan.
#[derive(Default)]
struct Stanza<'a> {
    name: &'a str,
    location: &'a str,
    depends: &'a str,
    line: usize,
}

/// A scan of pkgsrc. A dependency is on the package at its location whose name its pattern begins with, or else on
/// the first one there: names of versions are not compared, which is near enough for times. What may not be built is
/// taken for buildable, and edges that close a cycle are left out.
fn scan(text: &str, path: &Path) -> Result<Graph> {
    let mut stanzas: Vec<Stanza> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((key, value)) = line.split_once('=') else { continue };
        if key == "PKGNAME" {
            stanzas.push(Stanza { name: value.trim(), line: number + 1, ..Stanza::default() });
        }
        match (stanzas.last_mut(), key) {
            (Some(stanza), "PKG_LOCATION") => stanza.location = value.trim(),
            (Some(stanza), "ALL_DEPENDS") => stanza.depends = value,
            _ => {}
        }
    }
    let mut graph = Graph::new();
    let mut at_location: HashMap<&str, Vec<(&str, PackageId)>> = HashMap::new();
    for stanza in &stanzas {
        let id = graph.add(stanza.name);
        at_location.entry(stanza.location).or_default().push((base(stanza.name), id));
    }
    for stanza in &stanzas {
        let package = graph.add(stanza.name);
        for dependency in stanza.depends.split_ascii_whitespace() {
            let found = dependency.rsplit_once(':').and_then(|(pattern, location)| {
                let there = at_location.get(location.trim_start_matches("../"))?;
                let is_meant = |(base, _): &&(&str, PackageId)| {
                    let rest = pattern.strip_prefix(base);
                    rest.is_some_and(|rest| rest.starts_with(['-', '<', '>', '=', '[', '{']))
                };
                there.iter().find(is_meant).or(there.first())
            });
            let Some((_, found)) = found else {
                let (file, line, name) = (path.display(), stanza.line, stanza.name);
                return Err(Error::usage(format!(
                    "{file}, line {line}: {name} depends on {dependency}, which is nowhere"
                )));
            };
            graph.depend(package, *found);
        }
    }
    graph.cut_cycles(&|_, _| Some(StandIn::Archive));
    Ok(graph)
}

/// A package's name without its version.
pub fn base(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Graph> {
        parse(text, Path::new("g"))
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().message
    }

    #[test]
    fn edges_are_read() {
        let graph = read("a-1 -> b-1\n\nb-1 -> c-1\n").unwrap();
        let (a, b) = (graph.find("a-1").unwrap(), graph.find("b-1").unwrap());
        assert!(graph.dependencies(b).contains(&a) && graph.len() == 3);
    }

    #[test]
    fn bad_edges_are_named_by_their_line() {
        assert!(message("a -> b\nnonsense\n").starts_with("g, line 2: \"nonsense\" is not an edge"));
        assert!(message("a -> b\nb -> \n").contains("line 2") && message("-> b").contains("nowhere"));
        assert!(message("a -> b c").contains("\"b c\" is not the name"));
        assert_eq!(message("x -> x"), "g, line 1: x depends on itself");
        assert_eq!(message("z -> a\na -> b\nb -> c\nc -> a\nc -> d\n"), "g: a cycle: a -> b -> c -> a");
    }

    #[test]
    fn a_scan_is_resolved_by_location_and_name() {
        let text = "PKGNAME=py3-x-1\nPKG_LOCATION=d/py-x\nALL_DEPENDS=\nPKGNAME=py2-x-1\n\
            PKG_LOCATION=d/py-x\nALL_DEPENDS=\nPKGNAME=tool-2\nPKG_LOCATION=d/tool\n\
            ALL_DEPENDS= py2-x>=1:../../d/py-x\n";
        let graph = read(text).unwrap();
        let names: Vec<&str> =
            graph.dependencies(graph.find("tool-2").unwrap()).iter().map(|id| graph.name(*id)).collect();
        assert_eq!(names, ["py2-x-1"]);
        let lost = "PKGNAME=a-1\nPKG_LOCATION=d/a\nALL_DEPENDS=b>=1:../../d/b\n";
        assert_eq!(message(lost), "g, line 1: a-1 depends on b>=1:../../d/b, which is nowhere");
    }
}
