//! Applies pbulk's up-to-date rules to this yard.

use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::pkgsrc::pbulk_check::{Facts, Stale, stale};
use kilnyard_ecosystem::pkgsrc::{Workshop, package_file};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_store::Current;
use std::collections::HashMap;
use std::time::SystemTime;

/// For each package of the set, why pbulk would rebuild it, or `None` if it would not.
pub fn verdicts(
    pkgsrc: &Pkgsrc,
    workshop: &Workshop,
    current: &HashMap<String, Current>,
    distfiles: &FileStore,
) -> HashMap<String, Option<Stale>> {
    // Some files of old trees are not UTF-8.
    let read = |file: &str| {
        fs_err::read(pkgsrc.tree.join(file)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let file_of = |name: &str| {
        let output = current.get(name)?.outputs.first()?;
        let path = distfiles.path(&Sha256Hex::parse(&output.sha256).ok()?);
        let made = fs_err::metadata(&path).ok()?.modified().ok()?;
        Some((path, made))
    };
    let graph = workshop.graph();
    let verdict = |id| {
        let Some((path, made)) = file_of(graph.name(id)) else { return Some(Stale::NoFile) };
        let package = package_file::read_recipe_facts(&path).unwrap_or_default();
        let needs: Vec<(String, Option<SystemTime>)> = graph
            .dependencies(id)
            .iter()
            .map(|need| {
                let made = file_of(graph.name(*need)).map(|(_, made)| made);
                (workshop.package_name(*need).to_owned(), made)
            })
            .collect();
        let facts = Facts {
            recipe_versions: &package.recipe_versions,
            built_with: &package.built_with,
            made,
            needs: &needs,
        };
        stale(&facts, &read)
    };
    graph.packages().map(|id| (graph.name(id).to_owned(), verdict(id))).collect()
}
