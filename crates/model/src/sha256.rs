//! SHA-256 hashes as text: 64 hexadecimal digits.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// A SHA-256 in lower-case hexadecimal. It is always valid, and safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Hex(String);

/// A text is not a SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read a SHA-256: {text:?} is not 64 hexadecimal digits")]
pub struct Sha256HexError {
    /// The beginning of the text, at most 80 characters.
    pub text: String,
}

impl Sha256Hex {
    /// Checks a text. Upper-case digits are converted to lower case.
    pub fn parse(text: &str) -> Result<Sha256Hex, Sha256HexError> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Sha256Hex(text.to_ascii_lowercase()))
        } else {
            Err(Sha256HexError { text: text.chars().take(80).collect() })
        }
    }

    /// Hashes a byte string in memory.
    pub fn of(bytes: &[u8]) -> Sha256Hex {
        Sha256Hex::finish(Sha256::new_with_prefix(bytes))
    }

    /// The 64 digits, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash of all bytes that were written to the hasher.
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
    fn the_hash_of_nothing_is_as_published() {
        assert_eq!(Sha256Hex::of(b"").as_str(), EMPTY);
        assert_eq!(Sha256Hex::parse(&EMPTY.to_uppercase()).unwrap().as_str(), EMPTY);
    }

    #[test]
    fn invalid_hashes_are_rejected() {
        for text in ["", "abc", &EMPTY[1..], &format!("{EMPTY}0"), &"g".repeat(64), &"../".repeat(22)[..64]] {
            assert!(Sha256Hex::parse(text).is_err(), "{text}");
        }
        // 64 bytes, but not 64 digits.
        assert!(Sha256Hex::parse(&"\u{e4}".repeat(32)).is_err());
    }
}
