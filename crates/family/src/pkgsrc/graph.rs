//! Builds the dependency graph of a scan, for simulations.

use kilnyard_ecosystem::pkgsrc::resolve::{Resolution, Rules, Scanned, resolve};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_yard::error::{Context, Kind, Result};
use std::path::Path;

/// Whether a text is a scan, judged by its first non-empty line.
pub fn is_scan(text: &str) -> bool {
    text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("PKGNAME="))
}

/// Reads the buildable packages of a scan, with their exact dependencies.
pub fn read(text: &str, path: &Path) -> Result<Graph> {
    let failed = format!("read {}", path.display());
    let file = ScanFile::parse(text.as_bytes()).context(Kind::Usage, failed)?;
    let scanned: Vec<Scanned> = file.stanzas.iter().map(Scanned::from).collect();
    let resolved = resolve(&scanned, Rules::Kilnyard);
    let is_built = |id: &PackageId| resolved.outcomes[id.index()] == Resolution::Buildable;
    let built = || (0..scanned.len() as u32).map(PackageId).filter(is_built);
    let mut graph = Graph::new();
    for id in built() {
        graph.add(scanned[id.index()].name);
    }
    for id in built() {
        let package = graph.add(scanned[id.index()].name);
        for dependency in &resolved.depends[id.index()] {
            let dependency = graph.add(scanned[dependency.index()].name);
            graph.depend(package, dependency);
        }
    }
    Ok(graph)
}
