//! Explains why a request cannot be satisfied, as a short chain of dependencies.
//!
//! The explanation follows forced choices only: from the root along clauses with one possible alternative, until a
//! clause has none. If every clause still has two, each alternative is tried in turn, a few levels deep, and all of
//! them must fail. This finds a short reason in nearly every case; otherwise, the explanation is only that no
//! combination exists.

use super::{Candidate, Universe};
use std::collections::HashMap;

/// The maximum number of levels of alternatives tried. Real explanations need one or two.
const DEPTH_MAX: usize = 3;
/// The maximum number of clauses tried at one level.
const CLAUSES_TRIED_MAX: usize = 64;

/// One step of a chain: a candidate, and the position of its clause that leads further.
pub type Step = (Candidate, usize);

/// Why no set satisfies a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// This clause cannot be satisfied.
    Obstacle(Obstacle),
    /// No single clause to blame was found within the search depth.
    NoCombination,
}

/// A clause that cannot be satisfied, and how the root leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The steps from the root; the last one is the clause to blame.
    pub chain: Vec<Step>,
    /// Why each alternative is impossible; empty if the clause has no alternatives.
    pub blames: Vec<(Candidate, Blame)>,
}

/// Why an alternative is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// It may not be chosen in this request.
    NotAllowed,
    /// It conflicts with another candidate, which the root also needs.
    Conflict {
        /// The other candidate.
        with: Candidate,
        /// The steps from the root to the other candidate.
        chain: Vec<Step>,
    },
    /// It cannot be installed itself.
    Deeper(Box<Obstacle>),
}

pub(super) fn explain(universe: &impl Universe, root: Candidate) -> Explanation {
    let mut forced = Forced::default();
    let outcome = match forced.force(universe, root, None) {
        Ok(()) => forced.close(universe, 0),
        Err(obstacle) => Some(*obstacle),
    };
    outcome.map_or(Explanation::NoCombination, Explanation::Obstacle)
}

#[derive(Clone, Default)]
struct Forced {
    parents: HashMap<Candidate, Option<Step>>,
    order: Vec<Candidate>,
    excluded: HashMap<Candidate, Candidate>,
}

impl Forced {
    fn chain(&self, candidate: Candidate) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = candidate;
        while let Some(Some(step)) = self.parents.get(&at) {
            steps.push(*step);
            at = step.0;
        }
        steps.reverse();
        steps
    }

    fn blame(&self, universe: &impl Universe, candidate: Candidate) -> Option<Blame> {
        if !universe.is_allowed(candidate) {
            return Some(Blame::NotAllowed);
        }
        let mut conflicts = universe.requirements(candidate).conflicts().iter();
        let with = match self.excluded.get(&candidate) {
            Some(by) => *by,
            None => *conflicts.find(|other| self.parents.contains_key(other))?,
        };
        Some(Blame::Conflict { with, chain: self.chain(with) })
    }

    fn force(
        &mut self,
        universe: &impl Universe,
        candidate: Candidate,
        step: Option<Step>,
    ) -> Result<(), Box<Obstacle>> {
        self.parents.insert(candidate, step);
        self.order.push(candidate);
        for other in universe.requirements(candidate).conflicts() {
            if *other == candidate {
                continue;
            }
            if self.parents.contains_key(other) {
                let blame = Blame::Conflict { with: *other, chain: self.chain(*other) };
                return Err(Box::new(Obstacle {
                    chain: self.chain(candidate),
                    blames: vec![(candidate, blame)],
                }));
            }
            self.excluded.insert(*other, candidate);
        }
        Ok(())
    }

    /// Follows all forced choices, and returns the first obstacle.
    fn close(&mut self, universe: &impl Universe, depth: usize) -> Option<Obstacle> {
        let mut open = Vec::new();
        loop {
            let before = self.order.len();
            open.clear();
            let mut position = 0;
            while let Some(&candidate) = self.order.get(position) {
                position += 1;
                for (index, clause) in universe.requirements(candidate).clauses().enumerate() {
                    if clause.iter().any(|alternative| self.parents.contains_key(alternative)) {
                        continue;
                    }
                    let step = (candidate, index);
                    let mut possible = clause.iter().filter(|c| self.blame(universe, **c).is_none());
                    match (possible.next().copied(), possible.next()) {
                        (None, _) => return Some(self.obstacle(universe, step, clause)),
                        (Some(single), None) => {
                            if let Err(obstacle) = self.force(universe, single, Some(step)) {
                                return Some(*obstacle);
                            }
                        }
                        (Some(_), Some(_)) => open.push(step),
                    }
                }
            }
            if self.order.len() == before {
                break;
            }
        }
        if depth == DEPTH_MAX {
            return None;
        }
        open.iter().take(CLAUSES_TRIED_MAX).find_map(|step| self.try_all(universe, *step, depth))
    }

    fn obstacle(&self, universe: &impl Universe, step: Step, clause: &[Candidate]) -> Obstacle {
        let mut chain = self.chain(step.0);
        chain.push(step);
        let blames = clause.iter().filter_map(|c| Some((*c, self.blame(universe, *c)?))).collect();
        Obstacle { chain, blames }
    }

    /// Tries each alternative of a clause. If all of them fail, returns an obstacle with the reasons.
    fn try_all(&self, universe: &impl Universe, step: Step, depth: usize) -> Option<Obstacle> {
        let mut blames = Vec::new();
        for alternative in universe.requirements(step.0).clause(step.1) {
            if let Some(blame) = self.blame(universe, *alternative) {
                blames.push((*alternative, blame));
                continue;
            }
            let mut with = self.clone();
            let deeper = match with.force(universe, *alternative, Some(step)) {
                Err(obstacle) => *obstacle,
                Ok(()) => with.close(universe, depth + 1)?,
            };
            blames.push((*alternative, Blame::Deeper(Box::new(deeper))));
        }
        let mut chain = self.chain(step.0);
        chain.push(step);
        Some(Obstacle { chain, blames })
    }
}
