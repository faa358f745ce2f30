//! The random id of a build, beside its number.
//!
//! A build's number is for people: it is short, and counts up within one store. A store that is restored from a backup counts the same
//! numbers again, so that a number alone cannot say whose a late result is. An attempt can: it is made anew for each build, and
//! is never used twice, whatever becomes of the store.
//!
//! Nothing here makes random numbers: the bytes come from above.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of one build: 128 random bits. As text, in JSON too, it is 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Attempt(u128);

/// A text that is not 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnAttempt;

impl fmt::Display for NotAnAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of an attempt is 32 hexadecimal digits in lower case")
    }
}

impl std::error::Error for NotAnAttempt {}

impl Attempt {
    /// Length of the text.
    const DIGITS: usize = 32;

    /// The id of these bytes, which must come from a generator that is fit for secrets: a worker that could guess the attempts of
    /// others could end their builds.
    pub const fn from_bytes(bytes: [u8; 16]) -> Attempt {
        Attempt(u128::from_be_bytes(bytes))
    }

    /// The id of this text. One text is one id: capitals, signs and blanks are rejected.
    pub fn parse(text: &str) -> Result<Attempt, NotAnAttempt> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != Attempt::DIGITS || !text.bytes().all(is_digit) {
            return Err(NotAnAttempt);
        }
        u128::from_str_radix(text, 16).map(Attempt).map_err(|_| NotAnAttempt)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$x}", self.0, width = Attempt::DIGITS)
    }
}

impl TryFrom<String> for Attempt {
    type Error = NotAnAttempt;

    fn try_from(text: String) -> Result<Attempt, NotAnAttempt> {
        Attempt::parse(&text)
    }
}

impl From<Attempt> for String {
    fn from(attempt: Attempt) -> String {
        attempt.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_one_text() {
        let text = "000102030405060708090a0b0c0d0e0f";
        let attempt = Attempt::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((attempt.to_string().as_str(), Attempt::parse(text)), (text, Ok(attempt)));
        assert_eq!(serde_json::to_string(&attempt).unwrap(), format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Attempt>(&format!("\"{text}\"")).unwrap(), attempt);
        let capitals = text.to_uppercase();
        let sign = format!("+{}", &text[1..]);
        for other in ["", &text[1..], &capitals, &sign, " 00102030405060708090a0b0c0d0e0f", "ü"] {
            assert_eq!(Attempt::parse(other), Err(NotAnAttempt), "{other}");
        }
        let error = serde_json::from_str::<Attempt>("\"1\"").unwrap_err().to_string();
        assert!(error.contains("32 hexadecimal digits"), "{error}");
    }
}
