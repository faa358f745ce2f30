//! Parsing `Packages` and `Sources` into a universe, and solving requests in it.

use crate::{parts, text};
use kilnyard_ecosystem::debian::check;
use kilnyard_ecosystem::debian::relation::{self, Context};
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::universe::{Origin, Universe, View};
use kilnyard_ecosystem::debian::version;
use kilnyard_ecosystem::explain;
use kilnyard_model::solver::{Candidate, Solver, Universe as _};

/// With more candidates, not every set is tried.
const CANDIDATES_TRIED_MAX: usize = 12;

/// More packages would slow down a run without testing more.
const CANDIDATES_MAX: usize = 200;

/// Packages are found by their own names. A solution of the solver is consistent, and where it finds none, no
/// solution exists.
pub fn universe(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let [packages, source_text] = parts(text);
    let mut universe = Universe::new(Context::new("amd64"));
    if universe.add_packages(packages.into(), Origin::Archive).is_err() {
        return;
    }
    let mut sources = Sources::default();
    if sources.add(source_text.into()).is_err() {
        return;
    }
    if universe.len() > CANDIDATES_MAX || sources.len() > CANDIDATES_MAX {
        return;
    }

    for source in sources.all() {
        assert!(relation::is_name(source.name()) && !source.version().is_empty());
        assert_eq!(sources.get(source.name()).map(|other| other.version()), Some(source.version()));
    }
    let candidates: Vec<Candidate> = universe.packages().collect();
    for candidate in &candidates {
        let name = universe.name(*candidate);
        let named = universe.named(name);
        assert!(named.contains(candidate), "{name:?}");
        assert_eq!(universe.stanza(*candidate).get("Version"), Some(universe.version(*candidate)));
        let versions: Vec<&str> = named.iter().map(|other| universe.version(*other)).collect();
        assert!(versions.is_sorted_by(|a, b| version::compare(a, b).is_ge()), "{versions:?}");
        assert_eq!(named.iter().map(|other| universe.name(*other)).find(|other| *other != name), None);
    }

    let mut requests = Vec::new();
    for source in sources.all() {
        if let Ok(root) = universe.request(&source.request(Parts::All)) {
            requests.push((root, source.name()));
        }
    }
    solve_all(&universe, &candidates, &requests);
    universe.truncate(candidates.len());

    let verdicts = check::check(&mut universe, &sources, Parts::All);
    assert!(verdicts.unbuildable.len() <= verdicts.checked && verdicts.checked <= sources.len());
    assert_eq!(universe.len(), candidates.len());

    for candidate in candidates {
        let name = universe.name(candidate).to_owned();
        universe.remove(candidate);
        assert!(!universe.named(&name).contains(&candidate));
        assert!(!universe.providers(&name).any(|other| other == candidate));
    }
    assert_eq!(universe.packages().count(), 0);
}

fn solve_all(universe: &Universe, candidates: &[Candidate], requests: &[(Candidate, &str)]) {
    let view = View::whole(universe);
    let mut solver = Solver::new(&view);
    for (root, name) in requests {
        let is_satisfiable = solver.is_satisfiable(*root);
        match solver.solve(*root) {
            Ok(chosen) => {
                assert!(is_satisfiable && chosen.contains(root));
                assert!(is_a_set(&view, &chosen), "{name}: {chosen:?}");
            }
            Err(_) => {
                assert!(!is_satisfiable);
                let explained = explain::text(universe, *root, name, &solver.explain(*root));
                assert!(!explained.trim().is_empty());
                if candidates.len() <= CANDIDATES_TRIED_MAX {
                    let found = (0..1u32 << candidates.len()).find(|bits| {
                        let mut set = vec![*root];
                        set.extend(candidates.iter().copied().filter(|c| bits >> c.index() & 1 == 1));
                        is_a_set(&view, &set)
                    });
                    assert_eq!(found, None, "{name}");
                }
            }
        }
    }
}

/// Whether the requirements of all members are met and none of them conflicts with another.
fn is_a_set(view: &View, set: &[Candidate]) -> bool {
    set.iter().all(|member| {
        let requirements = view.requirements(*member);
        requirements.clauses().all(|clause| clause.iter().any(|other| set.contains(other)))
            && !requirements.conflicts().iter().any(|other| set.contains(other))
    })
}
