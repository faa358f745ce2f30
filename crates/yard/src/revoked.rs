//! Workers that are not trusted any more: what they made, and what was built with it, is built again.
//!
//! `state/revoked.json` lists them, each with the number of the first build after its revocation: earlier builds are
//! distrusted, also those of other workers that used its outputs. A package that was built again since is not.

use crate::error::{Context, Kind, Result};
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::reason::Reason;
use kilnyard_store::{Current, Number, Store};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// A worker that was revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// Its name.
    pub worker: String,
    /// The first build that is trusted again.
    pub first_trusted_build: Number,
}

fn path(yard: &Yard) -> PathBuf {
    yard.home.join("state/revoked.json")
}

/// The revoked workers of a yard.
///
/// # Errors
/// The list cannot be read: then nothing may be built on what they made.
pub fn list(yard: &Yard) -> Result<Vec<Revoked>> {
    let failed = "read the list of revoked workers";
    match fs_err::read(path(yard)) {
        Ok(text) => serde_json::from_slice(&text).context(Kind::Machine, failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context(Kind::Machine, failed),
    }
}

/// Revokes a worker: all builds before this number are distrusted.
///
/// # Errors
/// The list cannot be read or written.
pub fn add(yard: &Yard, worker: &str, first_trusted_build: Number) -> Result<()> {
    let mut list = list(yard)?;
    list.retain(|revoked| revoked.worker != worker);
    list.push(Revoked { worker: worker.to_owned(), first_trusted_build });
    let text = serde_json::to_string(&list).or_internal("write the list of revoked workers")?;
    let part = path(yard).with_extension("part");
    let written = fs_err::write(&part, text).and_then(|()| fs_err::rename(part, path(yard)));
    written.context(Kind::Machine, "write the list of revoked workers")
}

/// The packages of a set whose kept outputs are distrusted, with the reason.
///
/// # Errors
/// The list or the store cannot be read.
pub fn find(
    yard: &Yard,
    store: &dyn Store,
    set: &dyn Ecosystem,
    current: &HashMap<String, Current>,
) -> Result<HashMap<String, Reason>> {
    // A second pass builds the packages of a knot of cycles with each other.
    let knots = set.built_again(yard.config.build.passes);
    let mut found = HashMap::new();
    for revoked in list(yard)? {
        let made = store.made_by(&revoked.worker).map_err(store_error)?;
        for (package, reason) in distrusted(&revoked, &made, (set.graph(), &knots), current) {
            found.entry(package).or_insert(reason);
        }
    }
    Ok(found)
}

/// The packages that a worker made, or that were built with one of these. `made` has the builds of the worker.
fn distrusted(
    revoked: &Revoked,
    made: &[(String, Number)],
    (graph, knots): (&Graph, &[Vec<PackageId>]),
    current: &HashMap<String, Current>,
) -> Vec<(String, Reason)> {
    let made: HashSet<(PackageId, Number)> = made
        .iter()
        .filter(|(_, build)| *build < revoked.first_trusted_build)
        .filter_map(|(package, build)| Some((graph.find(package)?, *build)))
        .collect();
    // The first build of the worker that each package may have been built with, and its package.
    let mut since: HashMap<PackageId, (Number, PackageId)> = HashMap::new();
    for (id, build) in &made {
        let direct = graph.descendants(*id);
        let touches =
            |knot: &&Vec<PackageId>| knot.iter().any(|member| member == id || direct.contains(member));
        let of_knots = knots.iter().filter(touches).flatten();
        let of_knots: Vec<PackageId> =
            of_knots.flat_map(|member| graph.descendants(*member).into_iter().chain([*member])).collect();
        let users: HashSet<PackageId> = direct.iter().copied().chain(of_knots).collect();
        for user in users {
            let first = since.entry(user).or_insert((*build, *id));
            *first = (*first).min((*build, *id));
        }
    }
    let reason = |kept: &Current| {
        let (id, worker) = (graph.find(&kept.package)?, revoked.worker.clone());
        if made.contains(&(id, kept.build)) {
            return Some(Reason::Revoked { worker, package: None });
        }
        let (_, by) = since
            .get(&id)
            .filter(|(first, _)| (*first..revoked.first_trusted_build).contains(&kept.build))?;
        Some(Reason::Revoked { worker, package: Some(graph.name(*by).to_owned()) })
    };
    current.values().filter_map(|kept| Some((kept.package.clone(), reason(kept)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::order::Key;

    #[test]
    fn what_a_worker_made_and_what_was_built_with_it_is_distrusted_until_it_is_built_again() {
        let mut graph = Graph::new();
        for (package, dependency) in [("app", "lib"), ("lib", "base"), ("tool", "base"), ("old", "lib")] {
            let (package, dependency) = (graph.add(package), graph.add(dependency));
            graph.depend(package, dependency);
        }
        let kept = |builds: &[(&str, Number)]| -> HashMap<String, Current> {
            let current = |(package, build): &(&str, Number)| Current {
                package: (*package).to_owned(),
                build: *build,
                recipe_version: "1".to_owned(),
                revision: 1,
                key: Key { digest: String::new(), lines: Vec::new() },
                outputs: Vec::new(),
            };
            builds.iter().map(|kept| (kept.0.to_owned(), current(kept))).collect()
        };
        let revoked = Revoked { worker: "w".to_owned(), first_trusted_build: 10 };
        let made = [("lib".to_owned(), 5)];
        let find = |knots: &[Vec<PackageId>], builds: &[(&str, Number)]| -> Vec<(String, String)> {
            let found = distrusted(&revoked, &made, (&graph, knots), &kept(builds));
            let mut found: Vec<_> =
                found.into_iter().map(|(package, reason)| (package, reason.to_string())).collect();
            found.sort();
            found
        };
        let before = find(&[], &[("base", 4), ("tool", 6), ("old", 3), ("lib", 5), ("app", 7)]);
        let names: Vec<&str> = before.iter().map(|(package, _)| package.as_str()).collect();
        assert_eq!(names, ["app", "lib"], "built with it, and made by it; not what was built before");
        assert!(before[0].1.contains("built with lib") && before[1].1.contains("made it"), "{before:?}");
        // An interrupted run built one of them again.
        assert_eq!(find(&[], &[("lib", 11), ("app", 7)]).len(), 1);
        assert_eq!(find(&[], &[("lib", 11), ("app", 12)]), []);
        // Another worker built it again before the revocation; its users may still have been built with the first.
        let again = find(&[], &[("lib", 6), ("app", 7)]);
        assert!(again.len() == 1 && again[0].0 == "app", "{again:?}");
        // In a knot, packages are built with those that depend on them.
        let knot = vec![graph.find("base").unwrap(), graph.find("lib").unwrap()];
        let knotted = find(&[knot], &[("base", 6), ("tool", 7), ("lib", 5)]);
        assert_eq!(
            knotted.iter().map(|(package, _)| &**package).collect::<Vec<_>>(),
            ["base", "lib", "tool"]
        );
    }
}
