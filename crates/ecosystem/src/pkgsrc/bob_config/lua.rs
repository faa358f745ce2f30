//! The subset of Lua used for settings: assignments of strings, numbers, tables and earlier values (Lua 5.4
//! reference manual, 3.1 to 3.4). Nothing is run: an expression that would need to run becomes an unknown value
//! with a reason, and conditional statements and loops are skipped whole, with everything that they set made
//! unknown.

mod lexer;

use super::BobConfigError;
pub(super) use lexer::Token;
use std::collections::{HashMap, HashSet};

/// Nesting depth of tables and brackets; a hand-written file has up to five.
const DEPTH_MAX: usize = 100;

/// Limit on assignments; each one searches those before it.
const ASSIGNMENTS_MAX: usize = 10_000;

/// Limit on values copied from one place to another; a table of tables could double with every line.
const COPIES_MAX: usize = 1_000_000;

/// This much text counts as one value.
const COPY_BYTES: usize = 16;

/// Limit on the length of a concatenated string.
const TEXT_BYTES_MAX: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// The number as it is written.
    Number(String),
    Boolean(bool),
    /// Items in order, with their line; items without a name are named by their number.
    Table(Vec<(String, usize, Value)>),
    /// `read_pkgpaths("file")`, a function of bob's own: a file with locations.
    Locations(String),
    /// A value that only running the code could determine; the reason.
    Unknown(String),
}

/// The settings of a file, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings {
    /// Global names, with line and value.
    pub globals: Vec<(String, usize, Value)>,
    /// Statements other than assignments: first word, line, and the reason why they are skipped.
    pub others: Vec<(String, usize, String)>,
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    settings: Settings,
    locals: HashMap<String, Value>,
    assignments: usize,
    copies: usize,
}

type Result<T> = std::result::Result<T, BobConfigError>;

/// Parses a file.
pub(super) fn read(text: &str) -> Result<Settings> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        settings: Settings::default(),
        locals: HashMap::new(),
        assignments: 0,
        copies: 0,
    };
    while *parser.peek() != Token::End {
        parser.statement()?;
    }
    Ok(parser.settings)
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Value::Table(items) => 1 + items.iter().map(|(_, _, value)| value.size()).sum::<usize>(),
            Value::Text(text) => 1 + text.len() / COPY_BYTES,
            _ => 1,
        }
    }
}

fn unknown(reason: impl Into<String>) -> Value {
    Value::Unknown(reason.into())
}

const CALLS: &str = "it calls a function";
const COMPUTES: &str = "it is computed";
const CONDITION: &str = "it is set in conditional code, which is not run";

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn line(&self) -> usize {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        self.tokens.get(at).map_or(1, |(line, _)| *line)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let is_it = self.is(symbol);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, symbol: &'static str) -> Result<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(symbol)) }
    }

    fn unexpected(&self, expected: &'static str) -> BobConfigError {
        BobConfigError::Unexpected { line: self.line(), found: self.peek().shown(), expected }
    }

    fn name(&mut self) -> Result<String> {
        match self.next() {
            Token::Name(name) => Ok(name),
            _ => {
                self.at -= 1;
                Err(self.unexpected("a name"))
            }
        }
    }

    fn statement(&mut self) -> Result<()> {
        let line = self.line();
        match self.peek().clone() {
            Token::Symbol(";") => {
                self.at += 1;
                Ok(())
            }
            Token::Symbol("local") => {
                self.at += 1;
                if self.is("function") {
                    return self.skip_block(0);
                }
                let mut names = vec![self.local_name()?];
                while self.takes(",") {
                    names.push(self.local_name()?);
                }
                let values = if self.takes("=") { self.values()? } else { Vec::new() };
                let mut values = values.into_iter();
                for name in names {
                    let value = values.next().unwrap_or_else(|| unknown("it is not set"));
                    self.locals.insert(name, value);
                }
                Ok(())
            }
            Token::Symbol("return") => {
                self.at = self.tokens.len();
                Ok(())
            }
            Token::Symbol(word @ ("if" | "for" | "while" | "repeat" | "do" | "function")) => {
                let reason = if word == "function" {
                    "functions are not run"
                } else {
                    "it is conditional code, which is not run"
                };
                self.settings.others.push((word.to_owned(), line, reason.to_owned()));
                self.skip_block(0)
            }
            Token::Name(first) => self.assignment(first, line),
            _ => Err(self.unexpected("a statement")),
        }
    }

    fn local_name(&mut self) -> Result<String> {
        let name = self.name()?;
        if self.takes("<") {
            self.name()?;
            self.expect(">")?;
        }
        Ok(name)
    }

    fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = vec![self.expression(0)?];
        while self.takes(",") {
            values.push(self.expression(0)?);
        }
        Ok(values)
    }

    /// Parses an assignment, or a call, which is skipped.
    fn assignment(&mut self, first: String, line: usize) -> Result<()> {
        let mut targets = Vec::new();
        loop {
            let start = self.at;
            match self.target()? {
                Some(path) if self.is("=") || self.is(",") => targets.push(path),
                _ => {
                    self.at = start;
                    self.expression(0)?;
                    if self.is("=") || self.is(",") {
                        let reason = "the name that it sets is computed".to_owned();
                        self.settings.others.push((first.clone(), line, reason));
                        targets.push(Vec::new());
                    } else if targets.is_empty() && self.at > start + 1 {
                        self.settings.others.push((first, line, CALLS.to_owned()));
                        return Ok(());
                    } else {
                        return Err(self.unexpected("="));
                    }
                }
            }
            if !self.takes(",") {
                break;
            }
        }
        self.expect("=")?;
        let mut values = self.values()?.into_iter();
        for path in targets {
            let value = values.next().unwrap_or_else(|| unknown("it is not set"));
            self.set(&path, line, value)?;
        }
        Ok(())
    }

    /// Parses `name`, `name.field`, `name["field"]` and the like; `None` if it is something else.
    fn target(&mut self) -> Result<Option<Vec<String>>> {
        let mut path = vec![self.name()?];
        loop {
            if self.takes(".") {
                path.push(self.name()?);
            } else if self.takes("[") {
                let Value::Text(key) = self.expression(0)? else { return Ok(None) };
                self.expect("]")?;
                path.push(key);
            } else {
                return Ok(Some(path));
            }
        }
    }

    fn set(&mut self, path: &[String], line: usize, value: Value) -> Result<()> {
        self.assignments += 1;
        if self.assignments > ASSIGNMENTS_MAX {
            return Err(BobConfigError::TooMany { line });
        }
        let [first, rest @ ..] = path else { return Ok(()) };
        if let Some(local) = self.locals.get_mut(first) {
            match rest {
                [] => *local = value,
                rest => set_in(local, rest, line, value),
            }
            return Ok(());
        }
        let globals = &mut self.settings.globals;
        match globals.iter_mut().find(|(name, _, _)| name == first) {
            Some((_, _, global)) if !rest.is_empty() => set_in(global, rest, line, value),
            Some(global) => (global.1, global.2) = (line, value),
            None => {
                let mut global = Value::Table(Vec::new());
                match rest {
                    [] => global = value,
                    rest => set_in(&mut global, rest, line, value),
                }
                globals.push((first.clone(), line, global));
            }
        }
        Ok(())
    }

    /// Skips a statement and everything in it; all values that it could set become unknown.
    fn skip_block(&mut self, within: usize) -> Result<()> {
        let (mut depth, mut brackets, mut is_open, mut is_head) = (0_usize, 0_usize, false, false);
        let mut locals = HashSet::new();
        loop {
            match self.peek() {
                Token::End => return Ok(()),
                // The variables of a loop are local to it.
                Token::Symbol("for") => is_head = true,
                Token::Symbol("if" | "do" | "function" | "repeat") => {
                    (depth, is_open, is_head) = (depth + 1, true, false);
                }
                Token::Symbol("end" | "until") => depth = depth.saturating_sub(1),
                Token::Symbol("{" | "(" | "[") => brackets += 1,
                Token::Symbol("}" | ")" | "]") => brackets = brackets.saturating_sub(1),
                Token::Symbol("local") => {
                    if let Some((_, Token::Name(name))) = self.tokens.get(self.at + 1) {
                        locals.insert(name.clone());
                    }
                }
                Token::Name(name) if brackets == 0 && !is_head && !locals.contains(name) => {
                    let line = self.line();
                    let path = self.plain_target()?;
                    if self.is("=") || self.is(",") || self.is("[") {
                        self.set(&path, line, unknown(CONDITION))?;
                    }
                    // Its fields are not separate names; its last token is skipped below.
                    self.at -= 1;
                }
                Token::Name(_) => {
                    self.plain_target()?;
                    self.at -= 1;
                }
                _ => {}
            }
            let is_until = self.is("until");
            self.at += 1;
            if is_open && depth == 0 && brackets == 0 {
                if is_until {
                    self.expression(within + 1)?;
                }
                return Ok(());
            }
        }
    }

    /// A target without brackets.
    fn plain_target(&mut self) -> Result<Vec<String>> {
        let mut path = vec![self.name()?];
        while self.takes(".") {
            path.push(self.name()?);
        }
        Ok(path)
    }

    fn expression(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return Err(BobConfigError::TooDeep { line: self.line() });
        }
        let mut value = self.operand(depth)?;
        let mut is_computed = false;
        while let Token::Symbol(operator) = *self.peek() {
            const OPERATORS: [&str; 20] = [
                "+", "-", "*", "/", "//", "%", "^", "&", "|", "~", "<<", ">>", "==", "~=", "<", ">", "<=",
                ">=", "and", "or",
            ];
            if operator != ".." && !OPERATORS.contains(&operator) {
                break;
            }
            is_computed |= operator != "..";
            self.at += 1;
            let right = self.operand(depth)?;
            value = match (value, right) {
                (Value::Unknown(reason), _) | (_, Value::Unknown(reason)) => Value::Unknown(reason),
                (Value::Text(left) | Value::Number(left), Value::Text(right) | Value::Number(right))
                    if left.len() + right.len() <= TEXT_BYTES_MAX =>
                {
                    Value::Text(left + &right)
                }
                _ => unknown(COMPUTES),
            };
        }
        Ok(if is_computed && !matches!(value, Value::Unknown(_)) { unknown(COMPUTES) } else { value })
    }

    fn operand(&mut self, depth: usize) -> Result<Value> {
        let mut is_computed = false;
        while matches!(self.peek(), Token::Symbol("-" | "not" | "#" | "~")) {
            self.at += 1;
            is_computed = true;
        }
        let value = self.simple(depth)?;
        Ok(if is_computed { unknown(COMPUTES) } else { value })
    }

    fn simple(&mut self, depth: usize) -> Result<Value> {
        match self.peek().clone() {
            Token::Number(number) => {
                self.at += 1;
                Ok(Value::Number(number))
            }
            Token::Symbol("true" | "false") => Ok(Value::Boolean(self.next() == Token::Symbol("true"))),
            Token::Symbol("nil" | "...") => {
                self.at += 1;
                Ok(unknown("it is not set"))
            }
            Token::Symbol("function") => {
                self.skip_block(depth)?;
                Ok(unknown("functions are not run"))
            }
            Token::Symbol("{") => self.table(depth),
            Token::Text(_) => Ok(text(self.next())),
            Token::Name(name) => {
                self.at += 1;
                let value = self.lookup(&name);
                self.suffixes(name, value, depth)
            }
            Token::Symbol("(") => {
                self.at += 1;
                let value = self.expression(depth + 1)?;
                self.expect(")")?;
                self.suffixes(String::new(), value, depth)
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Parses the fields and calls that follow a name.
    fn suffixes(&mut self, mut path: String, mut value: Value, depth: usize) -> Result<Value> {
        loop {
            if self.takes(".") {
                let field = self.name()?;
                path.push('.');
                path.push_str(&field);
                value = get(value, &field, &path);
            } else if self.takes("[") {
                let key = self.expression(depth + 1)?;
                self.expect("]")?;
                value = match key {
                    Value::Text(key) | Value::Number(key) => get(value, &key, &path),
                    _ => unknown(COMPUTES),
                };
            } else if self.is("(") || self.is("{") || self.is(":") || matches!(self.peek(), Token::Text(_)) {
                let argument = self.call(depth)?;
                value = match argument {
                    Some(Value::Text(file)) if path == "read_pkgpaths" => Value::Locations(file),
                    _ if path.is_empty() => unknown(CALLS),
                    _ => unknown(format!("it calls `{path}`")),
                };
            } else {
                break;
            }
        }
        Ok(value)
    }

    /// Parses the arguments of a call; returns the argument if there is exactly one.
    fn call(&mut self, depth: usize) -> Result<Option<Value>> {
        if self.takes(":") {
            self.name()?;
        }
        if !self.takes("(") {
            return if self.is("{") || matches!(self.peek(), Token::Text(_)) {
                self.simple(depth + 1).map(Some)
            } else {
                Err(self.unexpected("("))
            };
        }
        let mut arguments = Vec::new();
        while !self.takes(")") {
            arguments.push(self.expression(depth + 1)?);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        Ok(if arguments.len() == 1 { arguments.pop() } else { None })
    }

    fn table(&mut self, depth: usize) -> Result<Value> {
        self.expect("{")?;
        let (mut items, mut number) = (Vec::new(), 0);
        while !self.takes("}") {
            let line = self.line();
            let is_field = matches!(
                (self.peek(), self.tokens.get(self.at + 1)),
                (Token::Name(_), Some((_, Token::Symbol("="))))
            );
            let key = if is_field {
                let name = self.name()?;
                self.expect("=")?;
                name
            } else if self.takes("[") {
                let key = self.expression(depth + 1)?;
                self.expect("]")?;
                self.expect("=")?;
                match key {
                    Value::Text(key) | Value::Number(key) => key,
                    _ => "[...]".to_owned(),
                }
            } else {
                number += 1;
                number.to_string()
            };
            let value = self.expression(depth + 1)?;
            items.push((key, line, value));
            if !self.is("}") && !self.takes(",") && !self.takes(";") {
                return Err(self.unexpected("}"));
            }
        }
        Ok(Value::Table(items))
    }

    fn lookup(&mut self, name: &str) -> Value {
        let mut globals = self.settings.globals.iter();
        let global = || globals.find(|(other, _, _)| other == name).map(|(_, _, value)| value);
        let Some(value) = self.locals.get(name).or_else(global) else { return not_set(name) };
        if self.copies <= COPIES_MAX {
            self.copies += value.size();
        }
        if self.copies > COPIES_MAX { unknown("it is too large") } else { value.clone() }
    }
}

fn not_set(path: &str) -> Value {
    unknown(format!("it refers to `{path}`, which is not set earlier"))
}

fn get(value: Value, field: &str, path: &str) -> Value {
    match value {
        // If a name occurs several times, the last one counts.
        Value::Table(items) => {
            let found = items.into_iter().rev().find(|(name, _, _)| name == field);
            found.map_or_else(|| not_set(path), |(_, _, value)| value)
        }
        Value::Unknown(_) => not_set(path),
        _ => unknown(COMPUTES),
    }
}

fn set_in(value: &mut Value, path: &[String], line: usize, new: Value) {
    let [field, rest @ ..] = path else { return };
    let Value::Table(items) = value else { return };
    let found = items.iter().rposition(|(name, _, _)| name == field);
    let at = found.unwrap_or_else(|| {
        items.push((field.clone(), line, Value::Table(Vec::new())));
        items.len() - 1
    });
    match rest {
        [] => (items[at].1, items[at].2) = (line, new),
        rest => set_in(&mut items[at].2, rest, line, new),
    }
}

fn text(token: Token) -> Value {
    match token {
        Token::Text(Some(text)) => Value::Text(text),
        _ => unknown("it is not a string"),
    }
}
