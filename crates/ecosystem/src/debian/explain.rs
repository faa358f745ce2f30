//! The solver's explanations in words: the chain of requirements, and why it cannot be met.

use super::relation::{self, Atom};
use super::universe::Universe;
use kilnyard_model::solver::{Blame, Candidate, Explanation, Obstacle};
use std::fmt::Write;

/// Number of alternatives of one clause that are explained; the rest are counted.
const ALTERNATIVES_SHOWN_MAX: usize = 6;

/// The explanation for a request that `asker` made, one line per step.
pub fn text(universe: &Universe, root: Candidate, asker: &str, explanation: &Explanation) -> String {
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

struct Writer<'a> {
    universe: &'a Universe,
    root: Candidate,
    asker: &'a str,
    text: String,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize, text: std::fmt::Arguments) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = write!(self.text, "{:width$}{text}", "", width = depth * 2);
    }

    fn label(&self, candidate: Candidate) -> String {
        if candidate == self.root {
            return format!("{} (source)", self.asker);
        }
        format!("{} {}", self.universe.name(candidate), self.universe.version(candidate))
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
        let context = self.universe.context().clone();
        for atom in relation.split('|').filter_map(|a| relation::atom(a.trim(), &context).ok().flatten()) {
            let text = self.availability(&atom);
            self.line(depth, format_args!("{text}"));
        }
    }

    fn availability(&self, atom: &Atom) -> String {
        let named = self.universe.named(atom.name);
        if let Some(latest) = named.first() {
            let version = self.universe.version(*latest);
            return match atom.version {
                Some(_) => format!("{} {version} is available, but does not satisfy {atom}", atom.name),
                None => format!("{} {version} is available, but does not match {atom}", atom.name),
            };
        }
        let providers: Vec<_> = self.universe.providers(atom.name).map(|c| self.label(c)).take(3).collect();
        if providers.is_empty() {
            format!("package {} not found", atom.name)
        } else {
            format!("{} is only provided by {}, without a matching version", atom.name, providers.join(", "))
        }
    }
}
