//! A SHA-256 as it is written: 64 hexadecimal digits.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// A SHA-256 in lower-case hexadecimal, checked when it was made, safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Hex(String);

/// A text that is no SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read a SHA-256: {text:?} is not 64 hexadecimal digits")]
pub struct Sha256HexError {
    /// The text, cut to a length that can be shown.
    pub text: String,
}

impl Sha256Hex {
    /// Check a text; upper case is accepted and made lower.
    pub fn parse(text: &str) -> Result<Sha256Hex, Sha256HexError> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Sha256Hex(text.to_ascii_lowercase()))
        } else {
            Err(Sha256HexError { text: text.chars().take(80).collect() })
        }
    }

    /// The hash of bytes.
    pub fn of(bytes: &[u8]) -> Sha256Hex {
        Sha256Hex::finish(Sha256::new_with_prefix(bytes))
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash of what a hasher was given.
    pub fn finish(hasher: Sha256) -> Sha256Hex {
        use fmt::Write;
        let mut text = String::with_capacity(64);
        for byte in hasher.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Sha256Hex(text)
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Sha256Hex {
    type Err = Sha256HexError;

    fn from_str(text: &str) -> Result<Sha256Hex, Sha256HexError> {
        Sha256Hex::parse(text)
    }
}

impl TryFrom<String> for Sha256Hex {
    type Error = Sha256HexError;

    fn try_from(text: String) -> Result<Sha256Hex, Sha256HexError> {
        Sha256Hex::parse(&text)
    }
}

impl From<Sha256Hex> for String {
    fn from(sha256: Sha256Hex) -> String {
        sha256.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_hash_of_nothing_is_known() {
        assert_eq!(Sha256Hex::of(b"").as_str(), EMPTY);
        assert_eq!(Sha256Hex::parse(&EMPTY.to_uppercase()).unwrap().as_str(), EMPTY);
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for text in ["", "abc", &EMPTY[1..], &format!("{EMPTY}0"), &"g".repeat(64), &"../".repeat(22)[..64]] {
            assert!(Sha256Hex::parse(text).is_err(), "{text}");
        }
        // 64 bytes, and not 64 digits.
        assert!(Sha256Hex::parse(&"\u{e4}".repeat(32)).is_err());
    }
}
