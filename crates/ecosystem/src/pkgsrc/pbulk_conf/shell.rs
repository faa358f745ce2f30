//! The subset of the shell language used for settings: words, quotes, references, comments, and the operators that
//! separate commands (POSIX, Shell Command Language, 2.2, 2.3, 2.9 and 2.10).

use super::PbulkConfError;

/// A word or an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, as its parts.
    Word(Vec<Piece>),
    /// An operator; the end of a line is `\n`.
    Operator(&'static str),
}

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Unquoted text.
    Plain(String),
    /// Quoted text.
    Quoted(String),
    /// `$name` or `${name}`.
    Reference(String),
    /// A part that only a shell could evaluate; the reason.
    Unknown(&'static str),
}

pub(super) const RUNS_A_COMMAND: &str = "it runs a command";
const EXPANDS: &str = "it is computed by an unsupported `${...}`";
const COMPUTES: &str = "it is computed";
const OF_THE_SHELL: &str = "it depends on the shell that runs it";

/// The operators; longer ones come before their prefixes.
const OPERATORS: [&str; 19] = [
    "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">", "&&", "&", "||", "|", ";;", ";&", ";", "(", ")",
    "\n",
];

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

/// Splits a text into tokens, each with its line number, from 1. Here-documents are skipped.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, PbulkConfError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens: Vec<(usize, Token)> = Vec::new();
    let mut documents: Vec<String> = Vec::new();
    while let Some(character) = lexer.peek() {
        let line = lexer.line;
        let rest = lexer.rest();
        if matches!(character, ' ' | '\t' | '\r') {
            lexer.next();
        } else if rest.starts_with("\\\n") {
            lexer.skip(2);
        } else if character == '#' {
            lexer.take_while(|character| character != '\n');
        } else if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
            lexer.skip(operator.len());
            tokens.push((line, Token::Operator(operator)));
            if *operator == "\n" {
                for end in documents.drain(..) {
                    lexer.skip_document(&end);
                }
            }
        } else {
            let word = lexer.word()?;
            if matches!(tokens.last(), Some((_, Token::Operator("<<" | "<<-")))) {
                documents.push(word.iter().map(Piece::literal).collect());
            }
            tokens.push((line, Token::Word(word)));
        }
    }
    tokens.push((lexer.line, Token::Operator("\n")));
    Ok(tokens)
}

impl Piece {
    fn literal(&self) -> &str {
        match self {
            Piece::Plain(text) | Piece::Quoted(text) => text,
            Piece::Reference(_) | Piece::Unknown(_) => "",
        }
    }
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        self.line += usize::from(character == '\n');
        Some(character)
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.rest()[..bytes].matches('\n').count();
        self.at += bytes;
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|character| !holds(character)).unwrap_or(rest.len())];
        self.skip(taken.len());
        taken
    }

    fn skip_document(&mut self, end: &str) {
        while !self.rest().is_empty() {
            let line = self.take_while(|character| character != '\n');
            self.next();
            if line.trim_start_matches('\t') == end {
                return;
            }
        }
    }

    fn word(&mut self) -> Result<Vec<Piece>, PbulkConfError> {
        let mut pieces = Vec::new();
        while let Some(character) = self.peek() {
            let line = self.line;
            match character {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.next();
                    let text = self.take_while(|character| character != '\'').to_owned();
                    self.next().ok_or(PbulkConfError::Open { line, what: "'" })?;
                    pieces.push(Piece::Quoted(text));
                }
                '"' => self.quoted(&mut pieces)?,
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') => {}
                        Some(escaped) => pieces.push(Piece::Quoted(escaped.to_string())),
                        None => pieces.push(Piece::Plain("\\".to_owned())),
                    }
                }
                '$' | '`' => pieces.push(self.expansion()?),
                _ => {
                    let ends = |character| " \t\r\n;&|<>()'\"\\$`".contains(character);
                    pieces.push(Piece::Plain(self.take_while(|character| !ends(character)).to_owned()));
                }
            }
        }
        Ok(pieces)
    }

    fn quoted(&mut self, pieces: &mut Vec<Piece>) -> Result<(), PbulkConfError> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return Err(PbulkConfError::Open { line, what: "\"" }),
                Some('"') => {
                    self.next();
                    pieces.push(Piece::Quoted(text));
                    return Ok(());
                }
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        Some(escaped @ ('$' | '`' | '"' | '\\')) => text.push(escaped),
                        Some(other) => text.extend(['\\', other]),
                    }
                }
                Some('$' | '`') => {
                    pieces.push(Piece::Quoted(std::mem::take(&mut text)));
                    pieces.push(self.expansion()?);
                }
                Some(_) => text.push_str(self.take_while(|character| !"\"\\$`".contains(character))),
            }
        }
    }

    /// Parses the expansion that `$` or a backquote begins.
    fn expansion(&mut self) -> Result<Piece, PbulkConfError> {
        let line = self.line;
        if self.next() == Some('`') {
            self.until('`', line, "`")?;
            return Ok(Piece::Unknown(RUNS_A_COMMAND));
        }
        match self.peek() {
            Some('{') => {
                self.next();
                let inner = self.balanced('{', '}', line, "${")?;
                let is_plain = is_name(inner);
                Ok(if is_plain { Piece::Reference(inner.to_owned()) } else { Piece::Unknown(EXPANDS) })
            }
            Some('(') => {
                self.next();
                let inner = self.balanced('(', ')', line, "$(")?;
                Ok(Piece::Unknown(if inner.starts_with('(') { COMPUTES } else { RUNS_A_COMMAND }))
            }
            Some(first) if first == '_' || first.is_ascii_alphabetic() => {
                let name = self.take_while(|character| character == '_' || character.is_ascii_alphanumeric());
                Ok(Piece::Reference(name.to_owned()))
            }
            Some('0'..='9' | '@' | '*' | '#' | '?' | '-' | '$' | '!') => {
                self.next();
                Ok(Piece::Unknown(OF_THE_SHELL))
            }
            _ => Ok(Piece::Quoted("$".to_owned())),
        }
    }

    fn until(&mut self, end: char, line: usize, what: &'static str) -> Result<(), PbulkConfError> {
        loop {
            match self.next() {
                None => return Err(PbulkConfError::Open { line, what }),
                Some('\\') => {
                    self.next();
                }
                Some(character) if character == end => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// The text up to the closing bracket; quotes hide brackets.
    fn balanced(
        &mut self,
        open: char,
        close: char,
        line: usize,
        what: &'static str,
    ) -> Result<&'a str, PbulkConfError> {
        let start = self.at;
        let mut depth = 1;
        loop {
            match self.next() {
                None => return Err(PbulkConfError::Open { line, what }),
                Some('\\') => {
                    self.next();
                }
                Some(quote @ ('\'' | '"' | '`')) => self.until(quote, line, what)?,
                Some(character) if character == open => depth += 1,
                Some(character) if character == close => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(&self.text[start..self.at - close.len_utf8()]);
                    }
                }
                Some(_) => {}
            }
        }
    }
}

/// Whether a text can be the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<Piece>> {
        let all = tokens(text).unwrap().into_iter();
        all.filter_map(|(_, token)| if let Token::Word(word) = token { Some(word) } else { None }).collect()
    }

    fn plain(text: &str) -> Piece {
        Piece::Plain(text.to_owned())
    }

    fn quoted(text: &str) -> Piece {
        Piece::Quoted(text.to_owned())
    }

    #[test]
    fn quotes_hide_their_content() {
        assert_eq!(words("a='b $c #'d"), [[plain("a="), quoted("b $c #"), plain("d")]]);
        assert_eq!(words("a=\\$b"), [[plain("a="), quoted("$"), plain("b")]]);
        let reference = Piece::Reference("c".to_owned());
        assert_eq!(words(r#"a="b\"$c\x""#), [[plain("a="), quoted("b\""), reference, quoted("\\x")]]);
        assert_eq!(words("a#b # c"), [[plain("a#b")]]);
        assert_eq!(words("a=$ b"), [vec![plain("a="), quoted("$")], vec![plain("b")]]);
    }

    #[test]
    fn commands_to_run_are_skipped_whole() {
        let unknown = |reason| [plain("a="), Piece::Unknown(reason), plain("z")];
        assert_eq!(words("a=$(b \")\" $(c d))z"), [unknown(RUNS_A_COMMAND)]);
        assert_eq!(words("a=`b; c \\` d`z"), [unknown(RUNS_A_COMMAND)]);
        assert_eq!(words("a=$((1 + 2))z"), [unknown(COMPUTES)]);
        assert_eq!(words("a=${b:-\"}\"}z"), [unknown(EXPANDS)]);
        assert_eq!(words("a=$1z"), [unknown(OF_THE_SHELL)]);
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let text = "a='\n\n'\n# x\nb=\\\nc\ncat <<E <<-'F'\nprefix=no\nE\nprefix=no\n\tF\nd\n";
        let lines: Vec<(usize, Token)> = tokens(text).unwrap();
        let line = |first: &str| {
            let is_it = |token: &Token| matches!(token, Token::Word(word) if word[0].literal() == first);
            lines.iter().find(|(_, token)| is_it(token)).map(|(line, _)| *line)
        };
        assert_eq!((line("a="), line("b="), line("cat"), line("d")), (Some(1), Some(5), Some(7), Some(12)));
        assert_eq!(line("prefix=no"), None);
    }

    #[test]
    fn unclosed_quotes_and_brackets_are_reported_with_their_line() {
        for (text, what) in
            [("\na='b", "'"), ("\na=\"b", "\""), ("\na=$(b", "$("), ("\na=${b", "${"), ("\n`", "`")]
        {
            assert_eq!(tokens(text), Err(PbulkConfError::Open { line: 2, what }));
        }
    }
}
