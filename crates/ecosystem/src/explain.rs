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

    /// The text of each clause of a candidate, in the order of its requirements.
    fn clause_texts(&self, candidate: Candidate) -> Vec<String>;

    /// What there is in place of what a clause without candidates names, one line each.
    fn availability(&self, clause: &str) -> Vec<String>;
}

/// The explanation for a request that `asker` made, one line per step.
pub fn text(universe: &impl Described, root: Candidate, asker: &str, explanation: &Explanation) -> String {
    let mut writer = Writer { universe, root, asker, text: String::new() };
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
                    self.line(
                        depth + 1,
                        format_args!(
                            "{label} is not available to this build: another package of the set makes it"
                        ),
                    );
                }
                Blame::Conflict { with, chain } => {
                    let other = self.label(*with);
                    self.line(depth + 1, format_args!("{label} conflicts with {other}:"));
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
