//! Relations between packages: a name with or without a range of versions, or a rich one in parentheses.
//!
//! Rules: rpm's `docs/manual/dependencies.md` and `docs/manual/boolean_dependencies.md`. `and`, `or` and `with` can be
//! chained; `if` and `unless` have one condition and may have an `else`.

use super::version::{Evr, Range, Sense};
use std::fmt;

/// The most levels of parentheses in a relation.
const DEPTH_MAX: usize = 32;
/// The most sides of one operator.
const SIDES_MAX: usize = 256;
/// The longest text of a relation, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// A name that packages provide, with or without a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// A package, a file, or a name such as `pkgconfig(zlib)`.
    pub name: Box<str>,
    /// The versions; absent for any.
    pub range: Option<Range>,
}

/// A relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// One capability.
    Plain(Capability),
    /// Both.
    And(Box<[Relation; 2]>),
    /// At least one.
    Or(Box<[Relation; 2]>),
    /// One package that provides both.
    With(Box<[Relation; 2]>),
    /// A package that provides the first and not the second.
    Without(Box<[Relation; 2]>),
    /// The first if the second holds; else the third.
    If(Box<[Relation; 2]>, Option<Box<Relation>>),
    /// The first unless the second holds; then the third.
    Unless(Box<[Relation; 2]>, Option<Box<Relation>>),
}

/// A text that is no relation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a relation: {reason}")]
pub struct RelationError {
    /// The text, shortened.
    text: String,
    /// What is wrong.
    reason: &'static str,
}

impl Relation {
    /// Parses a relation as a spec file has it.
    ///
    /// # Errors
    /// It is malformed, or longer or deeper than any real one.
    pub fn parse(text: &str) -> Result<Relation, RelationError> {
        let failed = |reason| RelationError { text: text.chars().take(200).collect(), reason };
        if text.len() > BYTES_MAX {
            return Err(failed("it is too long"));
        }
        let mut parser = Parser { rest: text.trim() };
        let relation = parser.relation(0).map_err(failed)?;
        if !parser.rest.trim().is_empty() {
            return Err(failed("more follows"));
        }
        Ok(relation)
    }
}

impl Relation {
    /// Its sides, if it is one of these operators, of those that can be chained.
    fn chained(&self, operator: &str) -> Option<&[Relation; 2]> {
        match (self, operator) {
            (Relation::And(sides), "and") | (Relation::Or(sides), "or") | (Relation::With(sides), "with") => {
                Some(sides)
            }
            _ => None,
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn relation(&mut self, depth: usize) -> Result<Relation, &'static str> {
        if depth > DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        match self.rest.strip_prefix('(') {
            Some(rest) => {
                self.rest = rest;
                self.rich(depth + 1)
            }
            None => self.plain().map(Relation::Plain),
        }
    }

    fn plain(&mut self) -> Result<Capability, &'static str> {
        let name = self.word();
        if name.is_empty() {
            return Err("a name is missing");
        }
        let before = self.rest;
        let Some(sense) = Sense::of_operator(self.word()) else {
            self.rest = before;
            return Ok(Capability { name: name.into(), range: None });
        };
        match self.word() {
            "" => Err("a version is missing"),
            evr => Ok(Capability { name: name.into(), range: Some(Range { sense, evr: Evr::parse(evr) }) }),
        }
    }

    /// What is in a parenthesis, and its end.
    fn rich(&mut self, depth: usize) -> Result<Relation, &'static str> {
        self.skip_space();
        let first = self.relation(depth)?;
        self.skip_space();
        let relation = if self.rest.starts_with(')') { first } else { self.joined(first, depth)? };
        self.skip_space();
        self.rest = self.rest.strip_prefix(')').ok_or("a closing parenthesis is missing")?;
        Ok(relation)
    }

    fn joined(&mut self, first: Relation, depth: usize) -> Result<Relation, &'static str> {
        let operator = self.word();
        self.skip_space();
        let second = self.relation(depth)?;
        let join = match operator {
            "without" => return Ok(Relation::Without(Box::new([first, second]))),
            "if" => return Ok(Relation::If(Box::new([first, second]), self.otherwise(depth)?)),
            "unless" => return Ok(Relation::Unless(Box::new([first, second]), self.otherwise(depth)?)),
            "and" => Relation::And,
            "or" => Relation::Or,
            "with" => Relation::With,
            _ => return Err("an operator is unknown"),
        };
        let mut sides = vec![first, second];
        self.skip_space();
        while !self.rest.is_empty() && !self.rest.starts_with(')') {
            if self.word() != operator {
                return Err("operators are mixed without parentheses");
            }
            self.skip_space();
            sides.push(self.relation(depth)?);
            if sides.len() > SIDES_MAX {
                return Err("it has too many sides");
            }
            self.skip_space();
        }
        let last = sides.pop().ok_or("a name is missing")?;
        Ok(sides.into_iter().rev().fold(last, |last, side| join(Box::new([side, last]))))
    }

    fn otherwise(&mut self, depth: usize) -> Result<Option<Box<Relation>>, &'static str> {
        self.skip_space();
        if self.rest.starts_with(')') {
            return Ok(None);
        }
        match self.word() {
            "else" => {
                self.skip_space();
                self.relation(depth).map(|relation| Some(Box::new(relation)))
            }
            _ => Err("an operator is unknown"),
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// The next word: up to a space, or to a parenthesis that was opened before it.
    fn word(&mut self) -> &'t str {
        self.skip_space();
        let mut depth = 0;
        let end = self.rest.find(|character: char| match character {
            '(' => {
                depth += 1;
                false
            }
            ')' if depth == 0 => true,
            ')' => {
                depth -= 1;
                false
            }
            other => other.is_whitespace(),
        });
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.range {
            None => f.write_str(&self.name),
            Some(range) => write!(f, "{} {} {}", self.name, range.sense, range.evr),
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sides, operator, otherwise) = match self {
            Relation::Plain(capability) => return capability.fmt(f),
            Relation::And(sides) => (sides, "and", &None),
            Relation::Or(sides) => (sides, "or", &None),
            Relation::With(sides) => (sides, "with", &None),
            Relation::Without(sides) => (sides, "without", &None),
            Relation::If(sides, otherwise) => (sides, "if", otherwise),
            Relation::Unless(sides, otherwise) => (sides, "unless", otherwise),
        };
        write!(f, "({} {operator} ", sides[0])?;
        let mut last = &sides[1];
        // As it is written: each nested one would count as a level of parentheses.
        for _ in 2..SIDES_MAX {
            let Some(sides) = last.chained(operator) else { break };
            write!(f, "{} {operator} ", sides[0])?;
            last = &sides[1];
        }
        write!(f, "{last}")?;
        if let Some(otherwise) = otherwise {
            write!(f, " else {otherwise}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read_and_shown() {
        for (text, shown) in [
            ("zlib-devel", "zlib-devel"),
            ("  zlib  >=  1.2 ", "zlib >= 1.2"),
            ("pkgconfig(zlib) = 1:2-3", "pkgconfig(zlib) = 1:2-3"),
            ("lib.so.6(GLIBC_2.4)(64bit)", "lib.so.6(GLIBC_2.4)(64bit)"),
            ("/usr/bin/sh", "/usr/bin/sh"),
            ("(a or b)", "(a or b)"),
            ("(a and b>=1 and c)", "(a and b>=1 and c)"),
            ("((a and b) and (c and d))", "((a and b) and c and d)"),
            (
                "(python3dist(x) >= 2 with python3dist(x) < 3)",
                "(python3dist(x) >= 2 with python3dist(x) < 3)",
            ),
            (
                "((a if b else c) or (d unless (e without f)))",
                "((a if b else c) or (d unless (e without f)))",
            ),
        ] {
            assert_eq!(Relation::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn malformed_relations_are_refused() {
        for text in [
            "",
            "(",
            "()",
            "(a",
            "(a or)",
            "(a or b",
            "(a or b and c)",
            "(a xor b)",
            "a >=",
            "a b",
            "(a or b) c",
            "(a if b if c)",
        ] {
            assert!(Relation::parse(text).is_err(), "{text}");
        }
        let deep = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(Relation::parse(&deep).unwrap_err().to_string().contains("too deeply"));
        let chain = format!("({}a)", "a and ".repeat(9_000));
        assert!(Relation::parse(&chain).unwrap_err().to_string().contains("too many sides"));
        // What was read can be read again.
        let or = Relation::parse(&format!("({}a)", "a or ".repeat(SIDES_MAX - 1))).unwrap();
        assert_eq!(Relation::parse(&or.to_string()), Ok(or.clone()));
        let longer = Relation::Or(Box::new([or.clone(), or]));
        assert_eq!(Relation::parse(&longer.to_string()), Ok(longer));
    }
}
