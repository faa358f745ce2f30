//! Reads dependency graphs: edges as bob prints them, or a family's own format.

use crate::error::{Error, Result};
use kilnyard_family::FAMILIES;
use kilnyard_model::graph::{Graph, PackageId};
use std::path::Path;

/// Reads a family's own format, which the family recognizes by its beginning, or else edges.
pub fn parse(text: &str, path: &Path) -> Result<Graph> {
    let of_family = FAMILIES.iter().find_map(|family| family.read_graph(text, path));
    of_family.unwrap_or_else(|| edges(text, path))
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
            return Err(Error::usage(format!("{}: the edge {line:?} lacks an end", at())));
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

/// One cycle among strongly connected packages, from a package back to itself.
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
        assert!(message("a -> b\nb -> \n").contains("line 2") && message("-> b").contains("lacks an end"));
        assert!(message("a -> b c").contains("\"b c\" is not the name"));
        assert_eq!(message("x -> x"), "g, line 1: x depends on itself");
        assert_eq!(message("z -> a\na -> b\nb -> c\nc -> a\nc -> d\n"), "g: a cycle: a -> b -> c -> a");
    }

    #[test]
    fn the_buildable_part_of_a_scan_is_in_the_set() {
        let text = "PKGNAME=py3-x-1\nPKG_LOCATION=d/py-x\nALL_DEPENDS=\nPKGNAME=py2-x-1\n\
            PKG_LOCATION=d/py-x\nALL_DEPENDS=\nPKGNAME=tool-2\nPKG_LOCATION=d/tool\n\
            ALL_DEPENDS= py2-x>=1:../../d/py-x\nPKGNAME=lost-1\nPKG_LOCATION=d/lost\nALL_DEPENDS=gone:../../d/gone\n";
        let graph = read(text).unwrap();
        let names: Vec<&str> =
            graph.dependencies(graph.find("tool-2").unwrap()).iter().map(|id| graph.name(*id)).collect();
        assert_eq!((names, graph.find("lost-1")), (vec!["py2-x-1"], None));
        let error = read("PKGNAME=a-1\nPKG_LOCATION=nowhere\n").unwrap_err();
        assert!(error.causes[0].starts_with("line 2: PKG_LOCATION is `nowhere`"), "{error}");
    }
}
