//! What explanations say of Debian's packages.

use super::relation::{self, Atom};
use super::universe::Universe;
use crate::explain::Described;
use kilnyard_model::solver::Candidate;

impl Described for Universe {
    fn label(&self, candidate: Candidate) -> String {
        format!("{} {}", self.name(candidate), self.version(candidate))
    }

    fn clause_texts(&self, candidate: Candidate) -> Vec<String> {
        Universe::clause_texts(self, candidate)
    }

    fn availability(&self, clause: &str) -> Vec<String> {
        let atoms =
            clause.split('|').filter_map(|one| relation::atom(one.trim(), self.context()).ok().flatten());
        atoms.map(|atom| available(self, &atom)).collect()
    }
}

fn available(universe: &Universe, atom: &Atom) -> String {
    let named = universe.named(atom.name);
    if let Some(latest) = named.first() {
        let version = universe.version(*latest);
        return match atom.version {
            Some(_) => format!("{} {version} is available, but does not satisfy {atom}", atom.name),
            None => format!("{} {version} is available, but does not match {atom}", atom.name),
        };
    }
    let providers: Vec<_> = universe.providers(atom.name).map(|c| universe.label(c)).take(3).collect();
    if providers.is_empty() {
        format!("package {} not found", atom.name)
    } else {
        format!("{} is only provided by {}, without a matching version", atom.name, providers.join(", "))
    }
}
