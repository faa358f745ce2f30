//! The dependency solver: installability, closures, and explanations.
//!
//! A candidate is one version of one package, or a request that only has dependencies. A [`Universe`] provides each
//! candidate's dependencies, as clauses of alternatives in order of preference, and its conflicts. [`Solver::solve`]
//! finds a set that contains the root, satisfies every clause of every member, and has no conflicting members, or
//! proves that there is none.
//!
//! It works in two steps. The first is a greedy walk: clauses with one alternative are followed immediately; the others
//! wait, and take the first possible alternative when their turn comes. This answers nearly every request to a real
//! archive. If it fails, the second step is a search by conflict-driven clause learning (Marques-Silva and Sakallah,
//! GRASP, 1999; Moskewicz and others, Chaff, 2001). It works on demand: it only loads and decides requirements of
//! chosen candidates, and later requests use the learned clauses. The answer is complete: "no" means that no set
//! exists.
//!
//! Downside: the set is a good one by the order of alternatives, but not always the smallest or newest.

mod explain;
mod learn;

pub use explain::{Blame, Explanation, Obstacle};

use learn::Search;

/// A candidate of a universe, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate(pub u32);

impl Candidate {
    /// The number, as an index of arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The dependencies and conflicts of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    alternatives: Box<[Candidate]>,
    ends: Box<[u32]>,
    conflicts: Box<[Candidate]>,
}

impl Requirements {
    /// Stores clauses and conflicts compactly.
    pub fn new<C: AsRef<[Candidate]>>(clauses: &[C], conflicts: Vec<Candidate>) -> Requirements {
        let mut alternatives = Vec::with_capacity(clauses.iter().map(|c| c.as_ref().len()).sum());
        let mut ends = Vec::with_capacity(clauses.len());
        for clause in clauses {
            alternatives.extend_from_slice(clause.as_ref());
            ends.push(alternatives.len() as u32);
        }
        Requirements {
            alternatives: alternatives.into_boxed_slice(),
            ends: ends.into_boxed_slice(),
            conflicts: conflicts.into_boxed_slice(),
        }
    }

    /// The clauses: a set must contain at least one alternative of each.
    pub fn clauses(&self) -> impl ExactSizeIterator<Item = &[Candidate]> {
        (0..self.ends.len()).map(|index| self.clause(index))
    }

    /// One clause, by its position.
    pub fn clause(&self, index: usize) -> &[Candidate] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.alternatives[start..self.ends[index] as usize]
    }

    /// The candidates that cannot be installed together with this one. One side of a conflict suffices.
    pub fn conflicts(&self) -> &[Candidate] {
        &self.conflicts
    }
}

/// The candidates of an archive and their requirements.
pub trait Universe {
    /// The number of candidates.
    fn len(&self) -> usize;

    /// Whether there are no candidates.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dependencies and conflicts of a candidate.
    fn requirements(&self, candidate: Candidate) -> &Requirements;

    /// Whether a candidate may be chosen.
    fn is_allowed(&self, _candidate: Candidate) -> bool {
        true
    }

    /// Whether a candidate is preferred to the alternatives before it, because it is already installed.
    fn is_favoured(&self, _candidate: Candidate) -> bool {
        false
    }
}

/// No set of candidates satisfies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsatisfiable;

/// Finds sets of candidates. One solver handles many requests to the same universe and learns from them.
pub struct Solver<'u, U: Universe> {
    universe: &'u U,
    walk: Walk,
    search: Option<Search>,
}

impl<'u, U: Universe> Solver<'u, U> {
    /// A solver without learned clauses.
    pub fn new(universe: &'u U) -> Self {
        Solver { universe, walk: Walk::new(universe.len()), search: None }
    }

    /// Finds a set that contains the root and satisfies it. The members are in the order in which they were chosen.
    pub fn solve(&mut self, root: Candidate) -> Result<Vec<Candidate>, Unsatisfiable> {
        if self.walk.run(self.universe, root) {
            return Ok(self.walk.chosen.clone());
        }
        let len = self.universe.len();
        self.search.get_or_insert_with(|| Search::new(len)).run(self.universe, root)
    }

    /// Whether a set exists; cheaper than [`Solver::solve`] if you do not need the set.
    pub fn is_satisfiable(&mut self, root: Candidate) -> bool {
        if self.walk.run(self.universe, root) {
            return true;
        }
        let len = self.universe.len();
        self.search.get_or_insert_with(|| Search::new(len)).run(self.universe, root).is_ok()
    }

    /// Explains why there is no set for this root. Call it only after [`Solver::solve`] failed.
    pub fn explain(&self, root: Candidate) -> Explanation {
        explain::explain(self.universe, root)
    }
}

/// The greedy walk. Marks contain the number of the request, so that they need not be cleared between requests.
struct Walk {
    request: u32,
    chosen_in: Vec<u32>,
    excluded_in: Vec<u32>,
    chosen: Vec<Candidate>,
    waiting: Vec<(Candidate, u32)>,
}

impl Walk {
    fn new(len: usize) -> Walk {
        Walk {
            request: 0,
            chosen_in: vec![0; len],
            excluded_in: vec![0; len],
            chosen: Vec::new(),
            waiting: Vec::new(),
        }
    }

    fn is_chosen(&self, candidate: Candidate) -> bool {
        self.chosen_in[candidate.index()] == self.request
    }

    fn is_possible(&self, universe: &impl Universe, candidate: Candidate) -> bool {
        self.excluded_in[candidate.index()] != self.request
            && universe.is_allowed(candidate)
            && universe.requirements(candidate).conflicts().iter().all(|other| !self.is_chosen(*other))
    }

    fn choose(&mut self, universe: &impl Universe, candidate: Candidate) {
        self.chosen_in[candidate.index()] = self.request;
        self.chosen.push(candidate);
        for other in universe.requirements(candidate).conflicts() {
            self.excluded_in[other.index()] = self.request;
        }
    }

    /// Whether the walk found a set, which is in `chosen` then.
    fn run(&mut self, universe: &impl Universe, root: Candidate) -> bool {
        self.request += 1;
        self.chosen.clear();
        self.waiting.clear();
        self.choose(universe, root);
        let (mut followed, mut waited) = (0, 0);
        loop {
            while let Some(&candidate) = self.chosen.get(followed) {
                followed += 1;
                if !self.follow(universe, candidate) {
                    return false;
                }
            }
            let Some(&(candidate, index)) = self.waiting.get(waited) else { return true };
            waited += 1;
            let clause = universe.requirements(candidate).clause(index as usize);
            if clause.iter().any(|alternative| self.is_chosen(*alternative)) {
                continue;
            }
            let possible = || clause.iter().copied().filter(|c| self.is_possible(universe, *c));
            match possible().find(|c| universe.is_favoured(*c)).or_else(|| possible().next()) {
                Some(alternative) => self.choose(universe, alternative),
                None => return false,
            }
        }
    }

    /// Chooses the dependencies without alternatives of a candidate; its other clauses wait.
    fn follow(&mut self, universe: &impl Universe, candidate: Candidate) -> bool {
        for (index, clause) in universe.requirements(candidate).clauses().enumerate() {
            if clause.iter().any(|alternative| self.is_chosen(*alternative)) {
                continue;
            }
            match clause {
                [] => return false,
                [single] => {
                    if !self.is_possible(universe, *single) {
                        return false;
                    }
                    self.choose(universe, *single);
                }
                _ => self.waiting.push((candidate, index as u32)),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
