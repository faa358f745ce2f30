//! The complete search: conflict-driven clause learning, on demand.
//!
//! A variable is a candidate, which is true if it is in the set. The clauses of a candidate are loaded when it is
//! first chosen; like learned clauses, they stay for later requests. A decision takes the first possible alternative
//! of the first unsatisfied clause; a candidate that no clause needs is never decided. Between requests, all
//! assignments above level 0 are undone.

use super::{Candidate, Universe, Unsatisfiable};

/// A variable with its sign: `2 * variable` means true, `2 * variable + 1` false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Literal(u32);

impl Literal {
    fn yes(candidate: Candidate) -> Literal {
        Literal(candidate.0 * 2)
    }
    fn no(candidate: Candidate) -> Literal {
        Literal(candidate.0 * 2 + 1)
    }
    fn negated(self) -> Literal {
        Literal(self.0 ^ 1)
    }
    fn variable(self) -> usize {
        (self.0 / 2) as usize
    }
    fn is_yes(self) -> bool {
        self.0 & 1 == 0
    }
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Unknown,
    Yes,
    No,
}

/// The position of a clause in the arena, where its length precedes its literals.
type ClauseAt = u32;
const NO_CLAUSE: ClauseAt = u32::MAX;

/// See the module documentation.
pub(super) struct Search {
    values: Vec<Value>,
    levels: Vec<u32>,
    reasons: Vec<ClauseAt>,
    loaded: Vec<bool>,
    seen: Vec<bool>,
    arena: Vec<u32>,
    watchers: Vec<Vec<ClauseAt>>,
    trail: Vec<Literal>,
    propagated: usize,
    /// For each level, the length of the trail and the value of `scanned` at its start.
    level_starts: Vec<(usize, usize)>,
    /// How much of the trail was searched for unsatisfied clauses.
    scanned: usize,
}

impl Search {
    pub(super) fn new(len: usize) -> Search {
        Search {
            values: vec![Value::Unknown; len],
            levels: vec![0; len],
            reasons: vec![NO_CLAUSE; len],
            loaded: vec![false; len],
            seen: vec![false; len],
            arena: Vec::new(),
            watchers: vec![Vec::new(); len * 2],
            trail: Vec::new(),
            propagated: 0,
            level_starts: Vec::new(),
            scanned: 0,
        }
    }

    pub(super) fn run(
        &mut self,
        universe: &impl Universe,
        root: Candidate,
    ) -> Result<Vec<Candidate>, Unsatisfiable> {
        let outcome = self.search(universe, root);
        let chosen = self.trail.iter().filter(|literal| literal.is_yes());
        let chosen = outcome.map(|()| chosen.map(|l| Candidate(l.0 / 2)).collect());
        self.back_to(0);
        chosen
    }

    fn search(&mut self, universe: &impl Universe, root: Candidate) -> Result<(), Unsatisfiable> {
        // Assignments at level 0 hold for every request; their clauses must be checked again.
        self.scanned = 0;
        self.propagated = 0;
        if let Some(_conflict) = self.propagate(universe) {
            return Err(Unsatisfiable);
        }
        match self.value(Literal::yes(root)) {
            Value::No => return Err(Unsatisfiable),
            Value::Yes => {}
            Value::Unknown => self.decide(Literal::yes(root)),
        }
        let root_level = self.level_starts.len();
        loop {
            match self.propagate(universe) {
                Some(conflict) => {
                    if self.level_starts.len() <= root_level {
                        self.learn_root(root, root_level);
                        return Err(Unsatisfiable);
                    }
                    let (clause, level) = self.analyse(conflict);
                    self.back_to(level);
                    self.add_learned(clause);
                }
                None => match self.next_decision(universe) {
                    Some(literal) => self.decide(literal),
                    None => return Ok(()),
                },
            }
            if self.level_starts.len() < root_level {
                // A learned fact has undone the decision on the root.
                match self.value(Literal::yes(root)) {
                    Value::Unknown => self.decide(Literal::yes(root)),
                    _ => return Err(Unsatisfiable),
                }
            }
        }
    }

    /// Records that the root is never possible: it alone led to a contradiction.
    fn learn_root(&mut self, root: Candidate, root_level: usize) {
        if root_level == 1 {
            self.back_to(0);
            self.assign(Literal::no(root), NO_CLAUSE);
        }
    }

    fn value(&self, literal: Literal) -> Value {
        match (self.values[literal.variable()], literal.is_yes()) {
            (Value::Unknown, _) => Value::Unknown,
            (Value::Yes, true) | (Value::No, false) => Value::Yes,
            _ => Value::No,
        }
    }

    fn decide(&mut self, literal: Literal) {
        self.level_starts.push((self.trail.len(), self.scanned));
        self.assign(literal, NO_CLAUSE);
    }

    fn assign(&mut self, literal: Literal, reason: ClauseAt) {
        let variable = literal.variable();
        self.values[variable] = if literal.is_yes() { Value::Yes } else { Value::No };
        self.levels[variable] = self.level_starts.len() as u32;
        self.reasons[variable] = reason;
        self.trail.push(literal);
    }

    fn back_to(&mut self, level: usize) {
        if let Some(&(trail, scanned)) = self.level_starts.get(level) {
            for literal in self.trail.drain(trail..) {
                self.values[literal.variable()] = Value::Unknown;
                self.reasons[literal.variable()] = NO_CLAUSE;
            }
            self.level_starts.truncate(level);
            self.propagated = self.propagated.min(trail);
            self.scanned = scanned.min(trail);
        }
    }

    /// Puts a clause into the arena and watches its first two literals.
    fn store(&mut self, literals: &[Literal]) -> ClauseAt {
        let at = self.arena.len() as ClauseAt;
        self.arena.push(literals.len() as u32);
        self.arena.extend(literals.iter().map(|l| l.0));
        for literal in literals.iter().take(2) {
            self.watchers[literal.index()].push(at);
        }
        at
    }

    /// Adds a clause during a search. Literals that can still be true come first, then those that became false most
    /// recently, so that the watches stay valid after backtracking. Returns the clause if it cannot be satisfied.
    fn add(&mut self, mut literals: Vec<Literal>) -> Option<ClauseAt> {
        literals.sort_by_key(|literal| match self.value(*literal) {
            Value::Yes => (0, 0),
            Value::Unknown => (1, 0),
            Value::No => (2, u32::MAX - self.levels[literal.variable()]),
        });
        let at = self.store(&literals);
        let first = literals[0];
        match (self.value(first), literals.get(1).map(|second| self.value(*second))) {
            (Value::No, _) => Some(at),
            (Value::Unknown, None | Some(Value::No)) => {
                self.assign(first, at);
                None
            }
            _ => None,
        }
    }

    fn load(&mut self, universe: &impl Universe, candidate: Candidate) -> Option<ClauseAt> {
        self.loaded[candidate.index()] = true;
        let requirements = universe.requirements(candidate);
        let mut conflict = None;
        for clause in requirements.clauses() {
            if clause.contains(&candidate) {
                continue;
            }
            let mut literals = vec![Literal::no(candidate)];
            literals.extend(clause.iter().filter(|c| universe.is_allowed(**c)).map(|c| Literal::yes(*c)));
            conflict = self.add(literals).or(conflict);
        }
        for other in requirements.conflicts() {
            if *other != candidate {
                let literals = vec![Literal::no(candidate), Literal::no(*other)];
                conflict = self.add(literals).or(conflict);
            }
        }
        conflict
    }

    /// Propagates forced assignments. Returns the first clause that cannot be satisfied.
    fn propagate(&mut self, universe: &impl Universe) -> Option<ClauseAt> {
        while let Some(&literal) = self.trail.get(self.propagated) {
            self.propagated += 1;
            if literal.is_yes()
                && !self.loaded[literal.variable()]
                && let Some(conflict) = self.load(universe, Candidate(literal.0 / 2))
            {
                return Some(conflict);
            }
            let falsified = literal.negated();
            let mut list = std::mem::take(&mut self.watchers[falsified.index()]);
            let mut kept = 0;
            let mut conflict = None;
            let mut position = 0;
            while position < list.len() {
                let at = list[position];
                position += 1;
                match self.visit(at, falsified) {
                    Visit::Moved => continue,
                    Visit::Kept => {}
                    Visit::Conflict => conflict = Some(at),
                }
                list[kept] = at;
                kept += 1;
                if conflict.is_some() {
                    break;
                }
            }
            list.copy_within(position.., kept);
            list.truncate(kept + list.len() - position);
            self.watchers[falsified.index()] = list;
            if conflict.is_some() {
                return conflict;
            }
        }
        None
    }

    /// A watched literal of the clause became false: watches another one, assigns the last one, or reports a conflict.
    fn visit(&mut self, at: ClauseAt, falsified: Literal) -> Visit {
        let start = at as usize + 1;
        let len = self.arena[at as usize] as usize;
        if len > 1 && self.arena[start] == falsified.0 {
            self.arena.swap(start, start + 1);
        }
        let first = Literal(self.arena[start]);
        if len == 1 {
            return Visit::Conflict;
        }
        if self.value(first) == Value::Yes {
            return Visit::Kept;
        }
        for index in start + 2..start + len {
            let other = Literal(self.arena[index]);
            if self.value(other) != Value::No {
                self.arena.swap(start + 1, index);
                self.watchers[other.index()].push(at);
                return Visit::Moved;
            }
        }
        match self.value(first) {
            Value::No => Visit::Conflict,
            _ => {
                self.assign(first, at);
                Visit::Kept
            }
        }
    }

    /// The first possible alternative of the first unsatisfied clause.
    fn next_decision(&mut self, universe: &impl Universe) -> Option<Literal> {
        while let Some(&literal) = self.trail.get(self.scanned) {
            if literal.is_yes() {
                for clause in universe.requirements(Candidate(literal.0 / 2)).clauses() {
                    if clause.iter().any(|c| self.values[c.index()] == Value::Yes) {
                        continue;
                    }
                    let possible = || {
                        clause
                            .iter()
                            .copied()
                            .filter(|c| self.values[c.index()] == Value::Unknown && universe.is_allowed(*c))
                    };
                    if let Some(alternative) =
                        possible().find(|c| universe.is_favoured(*c)).or_else(|| possible().next())
                    {
                        return Some(Literal::yes(alternative));
                    }
                }
            }
            self.scanned += 1;
        }
        None
    }

    /// Finds the first unique implication point. Returns the learned clause, and the level to return to.
    fn analyse(&mut self, conflict: ClauseAt) -> (Vec<Literal>, usize) {
        let level_now = self.level_starts.len() as u32;
        let mut learned = vec![Literal(0)];
        let mut marked = Vec::new();
        let mut open = 0;
        let mut position = self.trail.len();
        let mut at = conflict;
        let asserting = loop {
            for index in 0..self.arena[at as usize] as usize {
                let literal = Literal(self.arena[at as usize + 1 + index]);
                let variable = literal.variable();
                if self.seen[variable] || self.levels[variable] == 0 || self.value(literal) != Value::No {
                    continue;
                }
                self.seen[variable] = true;
                marked.push(variable);
                if self.levels[variable] == level_now {
                    open += 1;
                } else {
                    learned.push(literal);
                }
            }
            loop {
                position -= 1;
                if self.seen[self.trail[position].variable()]
                    && self.levels[self.trail[position].variable()] == level_now
                {
                    break;
                }
            }
            let literal = self.trail[position];
            open -= 1;
            if open == 0 {
                break literal;
            }
            at = self.reasons[literal.variable()];
        };
        learned[0] = asserting.negated();
        for variable in marked {
            self.seen[variable] = false;
        }
        let level = learned[1..].iter().map(|l| self.levels[l.variable()]).max().unwrap_or(0);
        (learned, level as usize)
    }

    fn add_learned(&mut self, literals: Vec<Literal>) {
        if let [single] = literals[..] {
            self.assign(single, NO_CLAUSE);
        } else {
            self.add(literals);
        }
    }
}

enum Visit {
    Moved,
    Kept,
    Conflict,
}

impl Search {
    /// The number of stored clauses, for tests.
    #[cfg(test)]
    pub(super) fn clause_count(&self) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < self.arena.len() {
            at += self.arena[at] as usize + 1;
            count += 1;
        }
        count
    }
}
