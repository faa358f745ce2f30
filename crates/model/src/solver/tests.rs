//! Compares the solver with exhaustive search of small random universes, and tests selected cases.

use super::*;
use proptest::prelude::*;

#[derive(Debug)]
struct Small {
    requirements: Vec<Requirements>,
    forbidden: Option<Candidate>,
}

impl Universe for Small {
    fn len(&self) -> usize {
        self.requirements.len()
    }
    fn requirements(&self, candidate: Candidate) -> &Requirements {
        &self.requirements[candidate.index()]
    }
    fn is_allowed(&self, candidate: Candidate) -> bool {
        self.forbidden != Some(candidate)
    }
}

fn small(spec: &[(&[&[u32]], &[u32])]) -> Small {
    let requirements = spec
        .iter()
        .map(|(clauses, conflicts)| {
            let clauses: Vec<Vec<Candidate>> =
                clauses.iter().map(|c| c.iter().copied().map(Candidate).collect()).collect();
            Requirements::new(&clauses, conflicts.iter().copied().map(Candidate).collect())
        })
        .collect();
    Small { requirements, forbidden: None }
}

fn holds(universe: &Small, set: &[Candidate]) -> bool {
    set.iter().all(|member| {
        let requirements = universe.requirements(*member);
        universe.is_allowed(*member)
            && requirements.clauses().all(|clause| clause.iter().any(|c| set.contains(c)))
            && requirements.conflicts().iter().all(|c| c == member || !set.contains(c))
    })
}

fn exists_by_exhaustive_search(universe: &Small, root: Candidate) -> bool {
    (0u32..1 << universe.len()).any(|bits| {
        let set: Vec<Candidate> =
            (0..universe.len() as u32).filter(|i| bits & (1 << i) != 0).map(Candidate).collect();
        set.contains(&root) && holds(universe, &set)
    })
}

#[test]
fn prefers_chosen_candidates_and_then_the_first_alternative() {
    let universe = small(&[(&[&[1, 2], &[2, 3], &[3]], &[]), (&[], &[]), (&[], &[]), (&[], &[])]);
    let chosen = Solver::new(&universe).solve(Candidate(0)).unwrap();
    assert_eq!(chosen, [0, 3, 1].map(Candidate));
}

#[test]
fn backtracks_if_the_first_alternative_fails_later() {
    // 1 needs 5 or 3, which both conflict with 4; only 2 can be installed with 4.
    let universe = small(&[
        (&[&[1, 2], &[4]], &[]),
        (&[&[5, 3]], &[]),
        (&[], &[]),
        (&[], &[4]),
        (&[], &[]),
        (&[], &[4]),
    ]);
    let chosen = Solver::new(&universe).solve(Candidate(0)).unwrap();
    assert!(chosen.contains(&Candidate(2)) && !chosen.contains(&Candidate(1)), "{chosen:?}");
}

#[test]
fn explains_a_conflict_by_both_chains() {
    let universe = small(&[(&[&[1], &[2]], &[]), (&[&[3]], &[]), (&[], &[3]), (&[], &[])]);
    let solver = Solver::new(&universe);
    let Explanation::Obstacle(obstacle) = solver.explain(Candidate(0)) else { panic!("no obstacle") };
    assert_eq!(obstacle.chain, [(Candidate(0), 0), (Candidate(1), 0)]);
    let [(candidate, Blame::Conflict { with, chain })] = &obstacle.blames[..] else { panic!("{obstacle:?}") };
    assert_eq!((*candidate, *with), (Candidate(3), Candidate(2)));
    assert_eq!(chain[..], [(Candidate(0), 1)]);
}

#[test]
fn explains_a_clause_without_alternatives() {
    let universe = small(&[(&[&[1, 2]], &[]), (&[&[]], &[]), (&[&[]], &[])]);
    let mut solver = Solver::new(&universe);
    assert_eq!(solver.solve(Candidate(0)), Err(Unsatisfiable));
    let Explanation::Obstacle(obstacle) = solver.explain(Candidate(0)) else { panic!("no obstacle") };
    assert_eq!(obstacle.blames.len(), 2);
    assert!(obstacle.blames.iter().all(|(_, blame)| matches!(blame, Blame::Deeper(_))));
}

fn universes() -> impl Strategy<Value = Small> {
    (2usize..9).prop_flat_map(|len| {
        let id = 0..len as u32;
        let clause = prop::collection::vec(id.clone().prop_map(Candidate), 0..4);
        let clauses = prop::collection::vec(clause, 0..4);
        let conflicts = prop::collection::vec(id.prop_map(Candidate), 0..3);
        let requirements = (clauses, conflicts).prop_map(|(c, x)| Requirements::new(&c, x));
        (prop::collection::vec(requirements, len), prop::option::of(0..len as u32))
            .prop_map(|(requirements, forbidden)| Small { requirements, forbidden: forbidden.map(Candidate) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// One solver handles all roots in turn, so that learned clauses are tested, too.
    #[test]
    fn answers_agree_with_exhaustive_search(universe in universes()) {
        let mut solver = Solver::new(&universe);
        for turn in 0..2 {
            for root in (0..universe.len() as u32).map(Candidate) {
                if Some(root) == universe.forbidden { continue }
                let expected = exists_by_exhaustive_search(&universe, root);
                match solver.solve(root) {
                    Ok(set) => {
                        prop_assert!(expected, "turn {turn}: an impossible set for {root:?}: {set:?}");
                        prop_assert!(set.contains(&root) && holds(&universe, &set), "{set:?}");
                    }
                    Err(Unsatisfiable) => {
                        prop_assert!(!expected, "turn {turn}: no set for {root:?}");
                        let _ = solver.explain(root);
                    }
                }
            }
        }
    }
}

#[test]
fn later_requests_use_learned_clauses() {
    let universe = small(&[
        (&[&[1]], &[]),
        (&[&[2, 3]], &[]),
        (&[&[4]], &[5]),
        (&[&[4]], &[5]),
        (&[&[5]], &[]),
        (&[], &[]),
    ]);
    let mut solver = Solver::new(&universe);
    assert_eq!(solver.solve(Candidate(0)), Err(Unsatisfiable));
    let count = solver.search.as_ref().unwrap().clause_count();
    assert_eq!(solver.solve(Candidate(0)), Err(Unsatisfiable));
    assert_eq!(solver.search.as_ref().unwrap().clause_count(), count);
}
