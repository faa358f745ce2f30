//! Splits Lua into tokens (Lua 5.4 reference manual, 3.1).

use super::super::BobConfigError;

/// A token. Reserved words are symbols.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Token {
    Name(String),
    Number(String),
    /// A string; `None` if it is not UTF-8.
    Text(Option<String>),
    Symbol(&'static str),
    End,
}

/// Longer symbols come before their prefixes.
const SYMBOLS: [&str; 33] = [
    "...", "..", ".", "==", "=", "~=", "~", "<<", "<=", "<", ">>", ">=", ">", "//", "/", "::", ":", "+", "-",
    "*", "%", "^", "#", "&", "|", "(", ")", "{", "}", "[", "]", ";", ",",
];

const WORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Characters of a token that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 40;

impl Token {
    /// The token in the form that errors show.
    pub(super) fn shown(&self) -> String {
        let text = match self {
            Token::Name(text) | Token::Number(text) => text,
            Token::Text(_) => "a string",
            Token::Symbol(symbol) => symbol,
            Token::End => "the end of the file",
        };
        text.chars().take(SHOWN_CHARACTERS_MAX).collect()
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

/// Splits a file into tokens, each with its line number, from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, BobConfigError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    if text.starts_with('#') {
        lexer.take_while(|character| character != '\n');
    }
    let mut tokens = Vec::new();
    while let Some(character) = lexer.peek() {
        let line = lexer.line;
        if character.is_ascii_whitespace() || character == '\u{b}' {
            lexer.next();
        } else if lexer.rest().starts_with("--") {
            lexer.skip(2);
            if lexer.long()?.is_none() {
                lexer.take_while(|character| character != '\n');
            }
        } else if character == '"' || character == '\'' {
            tokens.push((line, Token::Text(lexer.quoted(character)?)));
        } else if let Some(text) = lexer.long()? {
            tokens.push((line, Token::Text(Some(text))));
        } else if character == '_' || character.is_ascii_alphabetic() {
            let name = lexer.take_while(|character| character == '_' || character.is_ascii_alphanumeric());
            let word = WORDS.iter().find(|word| **word == name);
            tokens
                .push((line, word.map_or_else(|| Token::Name(name.to_owned()), |word| Token::Symbol(word))));
        } else if character.is_ascii_digit() {
            let is_part = |character: char| character == '.' || character.is_ascii_alphanumeric();
            tokens.push((line, Token::Number(lexer.take_while(is_part).to_owned())));
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| lexer.rest().starts_with(**symbol)) {
            lexer.skip(symbol.len());
            tokens.push((line, Token::Symbol(symbol)));
        } else {
            return Err(BobConfigError::Unexpected { line, found: character.to_string(), expected: "Lua" });
        }
    }
    tokens.push((lexer.line, Token::End));
    Ok(tokens)
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
        self.skip(character.len_utf8());
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

    /// Reads a string in long brackets, such as `[==[ ]==]`; `None` if there is none here.
    fn long(&mut self) -> Result<Option<String>, BobConfigError> {
        let rest = self.rest();
        let Some(after) = rest.strip_prefix('[') else { return Ok(None) };
        let level = after.len() - after.trim_start_matches('=').len();
        let Some(content) = after[level..].strip_prefix('[') else { return Ok(None) };
        let end = format!("]{}]", "=".repeat(level));
        let Some(length) = content.find(&end) else {
            return Err(BobConfigError::Open { line: self.line, what: "[[" });
        };
        let content = &content[..length];
        self.skip(2 + level + length + end.len());
        let content = content.strip_prefix("\r\n").or_else(|| content.strip_prefix('\n')).unwrap_or(content);
        Ok(Some(content.to_owned()))
    }

    fn quoted(&mut self, quote: char) -> Result<Option<String>, BobConfigError> {
        let open = BobConfigError::Open { line: self.line, what: if quote == '"' { "\"" } else { "'" } };
        self.next();
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err(open),
                Some('\\') => self.escape(&mut bytes)?,
                Some(character) if character == quote => return Ok(String::from_utf8(bytes).ok()),
                Some(character) => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), BobConfigError> {
        let line = self.line;
        let wrong = BobConfigError::Escape { line };
        match self.next() {
            Some('a') => bytes.push(7),
            Some('b') => bytes.push(8),
            Some('f') => bytes.push(12),
            Some('n' | '\n') => bytes.push(b'\n'),
            Some('r') => bytes.push(b'\r'),
            Some('t') => bytes.push(b'\t'),
            Some('v') => bytes.push(11),
            Some(plain @ ('\\' | '"' | '\'')) => bytes.push(plain as u8),
            Some('z') => {
                self.take_while(char::is_whitespace);
            }
            Some('x') => {
                let digits = self.rest().get(..2).ok_or(wrong.clone())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong)?);
                self.skip(2);
            }
            Some('u') => {
                let (digits, _) = self
                    .rest()
                    .strip_prefix('{')
                    .and_then(|rest| rest.split_once('}'))
                    .ok_or(wrong.clone())?;
                let number = u32::from_str_radix(digits, 16).map_err(|_| wrong.clone())?;
                let character = char::from_u32(number).ok_or(wrong)?;
                bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
                self.skip(digits.len() + 2);
            }
            Some(first) if first.is_ascii_digit() => {
                let rest = self.rest();
                let more = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
                let digits = format!("{first}{}", &rest[..more]);
                bytes.push(digits.parse().map_err(|_| wrong)?);
                self.skip(more);
            }
            _ => return Err(wrong),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Token {
        let mut all = tokens(text).unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
        all.remove(0).1
    }

    fn text(text: &str) -> Token {
        Token::Text(Some(text.to_owned()))
    }

    #[test]
    fn strings_of_all_forms_are_read() {
        assert_eq!(only(r#""a\tb\"\\\65\x42\u{e9}\z   c""#), text("a\tb\"\\ABéc"));
        assert_eq!(only("'a\"b'"), text("a\"b"));
        assert_eq!(only("[[\na]b\n]]"), text("a]b\n"));
        assert_eq!(only("[==[a]]b]=]c]==]"), text("a]]b]=]c"));
        assert_eq!(only(r#""\255""#), Token::Text(None));
    }

    #[test]
    fn comments_end_where_they_should() {
        assert_eq!(only("--[[ a\n]] b --c"), Token::Name("b".to_owned()));
        assert_eq!(only("--[==[ a ]] \n]==]b"), Token::Name("b".to_owned()));
        assert_eq!(only("--[a\nb"), Token::Name("b".to_owned()));
        assert_eq!(tokens("#!/x\n\nb").unwrap()[0], (3, Token::Name("b".to_owned())));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text| tokens(text).unwrap_err().to_string();
        assert_eq!(error("\n\"a\n\""), "line 2: `\"` is not closed");
        assert_eq!(error("\n\n[=[ ]]"), "line 3: `[[` is not closed");
        assert_eq!(error("\n'\\q'"), "line 2: invalid escape sequence after the backslash");
        assert_eq!(error("'\\300'"), "line 1: invalid escape sequence after the backslash");
        assert_eq!(error("'\\u{110000}'"), "line 1: invalid escape sequence after the backslash");
        assert_eq!(error("a = @"), "line 1: expected Lua, found `@`");
    }
}
