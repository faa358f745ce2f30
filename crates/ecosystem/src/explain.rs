//! The solver's explanations in words: the chain of requirements, and why it cannot be met.

use kilnyard_model::solver::{Blame, Candidate, Explanation, Obstacle};
use std::fmt::Write;

/// Number of alternatives of one clause that are explained; the rest are counted.
const ALTERNATIVES_SHOWN_MAX: usize = 6;

/// What an explanation says of candidates.
pub trait Described {
    /// The name and version of a candidate.
    fn label(&self, candidate: Candidate) -> String;

    /// The name of the root of a request that `asker` made.
    fn root_label(&self, _root: Candidate, asker: &str) -> String {
        format!("{asker} (source)")
    }

    /// Why two candidates exclude each other, if it is not that one says so of the other.
    fn exclusion(&self, _one: Candidate, _other: Candidate) -> Option<String> {
        None
    }

    /// The text of each clause of a candidate, in the order of its requirements.
    fn clause_texts(&self, candidate: Candidate) -> Vec<String>;

    /// What there is in place of what a clause without candidates names, one line each.
    fn availability(&self, clause: &str) -> Vec<String>;
}

/// The explanation for a request that `asker` made, one line per step.
pub fn text(universe: &impl Described, root: Candidate, asker: &str, explanation: &Explanation) -> String {
    text_with(universe, (root, asker), explanation, &|_| None)
}

/// The same for a request that leaves out candidates for several reasons: `why` has the clause that follows the name of one.
pub fn text_with(
    universe: &impl Described,
    (root, asker): (Candidate, &str),
    explanation: &Explanation,
    why: &dyn Fn(Candidate) -> Option<&'static str>,
) -> String {
    let mut writer = Writer { universe, root, asker, why, text: String::new() };
    match explanation {
        Explanation::Obstacle(obstacle) => writer.obstacle(obstacle, 0),
        Explanation::NoCombination => {
            writer.line(
                0,
                format_args!("no combination of packages satisfies the build dependencies of {asker}"),
            );
        }
    }
    writer.text
}

struct Writer<'a, U: Described> {
    universe: &'a U,
    root: Candidate,
    asker: &'a str,
    why: &'a dyn Fn(Candidate) -> Option<&'static str>,
    text: String,
}

impl<U: Described> Writer<'_, U> {
    fn line(&mut self, depth: usize, text: std::fmt::Arguments) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = write!(self.text, "{:width$}{text}", "", width = depth * 2);
    }

    fn label(&self, candidate: Candidate) -> String {
        if candidate == self.root {
            return self.universe.root_label(candidate, self.asker);
        }
        self.universe.label(candidate)
    }

    fn steps(&mut self, chain: &[(Candidate, usize)], depth: usize) {
        for (candidate, clause) in chain {
            let relation =
                self.universe.clause_texts(*candidate).into_iter().nth(*clause).unwrap_or_default();
            let label = self.label(*candidate);
            self.line(depth, format_args!("{label} needs {relation}"));
        }
    }

    fn obstacle(&mut self, obstacle: &Obstacle, depth: usize) {
        self.steps(&obstacle.chain, depth);
        if obstacle.blames.is_empty()
            && let Some((candidate, clause)) = obstacle.chain.last()
        {
            self.missing(*candidate, *clause, depth + 1);
        }
        for (candidate, blame) in obstacle.blames.iter().take(ALTERNATIVES_SHOWN_MAX) {
            let label = self.label(*candidate);
            match blame {
                Blame::NotAllowed => {
                    let why = (self.why)(*candidate)
                        .unwrap_or("is not available to this build: another package of the set makes it");
                    self.line(depth + 1, format_args!("{label} {why}"));
                }
                Blame::Conflict { with, chain } => {
                    let text = self.universe.exclusion(*candidate, *with);
                    let text =
                        text.unwrap_or_else(|| format!("{label} conflicts with {}", self.label(*with)));
                    let end = if chain.is_empty() { "" } else { ":" };
                    self.line(depth + 1, format_args!("{text}{end}"));
                    self.steps(chain, depth + 2);
                }
                Blame::Deeper(deeper) => {
                    self.line(depth + 1, format_args!("{label} cannot be installed:"));
                    self.obstacle(deeper, depth + 2);
                }
            }
        }
        if obstacle.blames.len() > ALTERNATIVES_SHOWN_MAX {
            let more = obstacle.blames.len() - ALTERNATIVES_SHOWN_MAX;
            self.line(depth + 1, format_args!("and {more} more alternatives"));
        }
    }

    /// Lists the available packages of that name, for each alternative of a clause without candidates.
    fn missing(&mut self, candidate: Candidate, clause: usize, depth: usize) {
        let relation = self.universe.clause_texts(candidate).into_iter().nth(clause).unwrap_or_default();
        for text in self.universe.availability(&relation) {
            self.line(depth, format_args!("{text}"));
        }
    }
}
