//! Rich relations as clauses: what must be installed, or must not be, if a package is.
//!
//! A requirement is brought into conjunctive normal form. Of a conflict, the disjunctive normal form is inverted; a
//! package does not conflict with itself through its own provides, so a clause that excludes only the package itself
//! is left out. These are libsolv's rules (`pool_normalize_complex_dep`), which dnf and zypper follow.

use super::relation::Relation;
use kilnyard_model::solver::Candidate;

/// The most literals of the clauses of one relation: what is hostile multiplies.
const LITERALS_MAX: usize = 1 << 16;

/// A package that must be installed, or must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Literal {
    Installed(Candidate),
    Absent(Candidate),
}

impl Literal {
    fn inverted(self) -> Literal {
        match self {
            Literal::Installed(one) => Literal::Absent(one),
            Literal::Absent(one) => Literal::Installed(one),
        }
    }
}

/// Literals of which one must hold (or all, in disjunctive form), each once and in their order.
pub(super) type Clause = Vec<Literal>;

/// The clauses of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Normal {
    /// It always holds.
    Always,
    /// It never holds.
    Never,
    /// All clauses must hold; in disjunctive form, one of them.
    Clauses(Vec<Clause>),
}

/// A relation that multiplies to more literals than any real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The packages that provide what a relation names.
pub(super) trait Providers {
    /// Those that provide a capability, or the combination of a `with` or `without`; `None` if it is always there.
    fn of(&self, relation: &Relation) -> Option<Vec<Candidate>>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Conjunctive,
    Disjunctive,
}

impl Form {
    fn other(self) -> Form {
        match self {
            Form::Conjunctive => Form::Disjunctive,
            Form::Disjunctive => Form::Conjunctive,
        }
    }
}

/// What a requirement demands.
pub(super) fn required(relation: &Relation, providers: &impl Providers) -> Result<Normal, TooLarge> {
    normal(relation, providers, Form::Conjunctive)
}

/// What a conflict of `own` demands.
pub(super) fn excluded(
    relation: &Relation,
    own: Candidate,
    providers: &impl Providers,
) -> Result<Normal, TooLarge> {
    let inverted = inverted(normal(relation, providers, Form::Disjunctive)?);
    Ok(match inverted {
        Normal::Clauses(mut clauses) => {
            clauses.retain(|clause| *clause != [Literal::Absent(own)]);
            if clauses.is_empty() { Normal::Always } else { Normal::Clauses(clauses) }
        }
        other => other,
    })
}

fn normal(relation: &Relation, providers: &impl Providers, form: Form) -> Result<Normal, TooLarge> {
    let part = |relation| normal(relation, providers, form);
    let not = |relation| normal(relation, providers, form.other()).map(inverted);
    match relation {
        Relation::And(sides) => and(part(&sides[0])?, part(&sides[1])?, form),
        Relation::Or(sides) => or(part(&sides[0])?, part(&sides[1])?, form),
        Relation::If(sides, None) => or(part(&sides[0])?, not(&sides[1])?, form),
        Relation::If(sides, Some(otherwise)) => {
            let first = or(part(&sides[0])?, not(&sides[1])?, form)?;
            and(first, or(part(&sides[1])?, part(otherwise)?, form)?, form)
        }
        Relation::Unless(sides, None) => and(part(&sides[0])?, not(&sides[1])?, form),
        Relation::Unless(sides, Some(otherwise)) => {
            let first = and(part(&sides[0])?, not(&sides[1])?, form)?;
            or(first, and(part(&sides[1])?, part(otherwise)?, form)?, form)
        }
        Relation::Plain(_) | Relation::With(_) | Relation::Without(_) => {
            let Some(found) = providers.of(relation) else { return Ok(Normal::Always) };
            let mut literals: Clause = found.into_iter().map(Literal::Installed).collect();
            literals.sort_unstable();
            literals.dedup();
            Ok(match form {
                _ if literals.is_empty() => Normal::Never,
                Form::Conjunctive => Normal::Clauses(vec![literals]),
                Form::Disjunctive => Normal::Clauses(literals.into_iter().map(|one| vec![one]).collect()),
            })
        }
    }
}

/// The opposite, in the other form.
fn inverted(normal: Normal) -> Normal {
    match normal {
        Normal::Always => Normal::Never,
        Normal::Never => Normal::Always,
        Normal::Clauses(mut clauses) => {
            for clause in &mut clauses {
                clause.iter_mut().for_each(|literal| *literal = literal.inverted());
                clause.sort_unstable();
            }
            Normal::Clauses(clauses)
        }
    }
}

fn and(one: Normal, other: Normal, form: Form) -> Result<Normal, TooLarge> {
    match (one, other) {
        (Normal::Never, _) | (_, Normal::Never) => Ok(Normal::Never),
        (Normal::Always, rest) | (rest, Normal::Always) => Ok(rest),
        (Normal::Clauses(one), Normal::Clauses(other)) => match form {
            Form::Conjunctive => joined(one, other),
            Form::Disjunctive => multiplied(&one, &other, Normal::Never),
        },
    }
}

fn or(one: Normal, other: Normal, form: Form) -> Result<Normal, TooLarge> {
    match (one, other) {
        (Normal::Always, _) | (_, Normal::Always) => Ok(Normal::Always),
        (Normal::Never, rest) | (rest, Normal::Never) => Ok(rest),
        (Normal::Clauses(one), Normal::Clauses(other)) => match form {
            Form::Conjunctive => multiplied(&one, &other, Normal::Always),
            Form::Disjunctive => joined(one, other),
        },
    }
}

fn joined(mut one: Vec<Clause>, other: Vec<Clause>) -> Result<Normal, TooLarge> {
    one.extend(other);
    bounded(one)
}

/// Each clause with each, without those that have a literal and its opposite.
fn multiplied(one: &[Clause], other: &[Clause], none: Normal) -> Result<Normal, TooLarge> {
    let mut clauses = Vec::new();
    let mut literals = 0;
    for first in one {
        for second in other {
            let mut clause: Clause = first.iter().chain(second).copied().collect();
            clause.sort_unstable();
            clause.dedup();
            if clause.iter().any(|literal| clause.binary_search(&literal.inverted()).is_ok()) {
                continue;
            }
            literals += clause.len();
            if literals > LITERALS_MAX {
                return Err(TooLarge);
            }
            clauses.push(clause);
        }
    }
    if clauses.is_empty() { Ok(none) } else { Ok(Normal::Clauses(clauses)) }
}

fn bounded(clauses: Vec<Clause>) -> Result<Normal, TooLarge> {
    match clauses.iter().map(Vec::len).sum::<usize>() > LITERALS_MAX {
        true => Err(TooLarge),
        false => Ok(Normal::Clauses(clauses)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that are numbers provide candidates of these numbers; `x` has no provider, and `always` is always there.
    struct Numbers;

    impl Providers for Numbers {
        fn of(&self, relation: &Relation) -> Option<Vec<Candidate>> {
            match relation {
                Relation::Plain(capability) if &*capability.name == "always" => None,
                Relation::Plain(capability) => Some(
                    capability.name.split(',').filter_map(|one| one.parse().ok().map(Candidate)).collect(),
                ),
                _ => Some(Vec::new()),
            }
        }
    }

    fn shown(normal: &Normal) -> String {
        let literal = |literal: &Literal| match literal {
            Literal::Installed(one) => one.0.to_string(),
            Literal::Absent(one) => format!("-{}", one.0),
        };
        match normal {
            Normal::Always => "always".to_owned(),
            Normal::Never => "never".to_owned(),
            Normal::Clauses(clauses) => {
                let clause = |clause: &Clause| clause.iter().map(literal).collect::<Vec<_>>().join("|");
                clauses.iter().map(clause).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn requirements_become_clauses() {
        for (text, clauses) in [
            ("(1 and 2)", "1 2"),
            ("(1 or 2 or 3)", "1|2|3"),
            ("(1 if 2,3)", "1|-2 1|-3"),
            ("(1 if x)", "always"),
            ("(x if 2)", "-2"),
            ("(1 if 2 else 3)", "1|-2 2|3"),
            ("(1 unless 2)", "1 -2"),
            ("(1 unless 2 else 3)", "1|2 1|3 3|-2"),
            ("(always or 1)", "always"),
            ("(x and 1)", "never"),
            ("(1 or (2 and 3))", "1|2 1|3"),
        ] {
            let normal = required(&Relation::parse(text).unwrap(), &Numbers).unwrap();
            assert_eq!(shown(&normal), clauses, "{text}");
        }
    }

    #[test]
    fn conflicts_become_clauses() {
        for (text, clauses) in [
            ("(1 and 2)", "-1|-2"),
            ("(1 or 2)", "-1 -2"),
            ("(9 or 2)", "-2"),
            ("(9 and 2)", "-2|-9"),
            ("(9 or 9)", "always"),
            ("(x and 1)", "always"),
            ("(1 unless 2)", "2|-1"),
        ] {
            let normal = excluded(&Relation::parse(text).unwrap(), Candidate(9), &Numbers).unwrap();
            assert_eq!(shown(&normal), clauses, "{text}");
        }
    }

    #[test]
    fn what_multiplies_is_bounded() {
        let many = |from: u32| (from..from + 40).map(|one| one.to_string()).collect::<Vec<_>>().join(",");
        let sides: Vec<String> = (0..6).map(|side| format!("(1 if {})", many(side * 100 + 2))).collect();
        let relation = Relation::parse(&format!("({})", sides.join(" or "))).unwrap();
        assert_eq!(required(&relation, &Numbers), Err(TooLarge));
    }
}
