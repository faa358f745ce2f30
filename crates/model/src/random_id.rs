//! Ids of 128 random bits, each with exactly one text form.
//!
//! This module does not generate random numbers: callers provide the bytes.

use std::fmt;

/// Length of the text form.
const DIGITS: usize = 32;

/// A text is not 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 32 hexadecimal digits in lower case")
    }
}

impl std::error::Error for NotAnId {}

/// Parses the text form. Capitals, signs and spaces are rejected, so that each id has only one text.
pub(crate) fn parse(text: &str) -> Result<u128, NotAnId> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != DIGITS || !text.bytes().all(is_digit) {
        return Err(NotAnId);
    }
    u128::from_str_radix(text, 16).map_err(|_| NotAnId)
}

pub(crate) fn write(f: &mut fmt::Formatter<'_>, id: u128) -> fmt::Result {
    write!(f, "{id:0DIGITS$x}")
}

/// Defines a type of ids.
macro_rules! random_id {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u128);

        impl $name {
            /// Makes an id from random bytes, which must come from a cryptographically secure generator.
            pub const fn from_bytes(bytes: [u8; 16]) -> $name {
                $name(u128::from_be_bytes(bytes))
            }

            /// Parses the text form.
            ///
            /// # Errors
            /// The text is not 32 hexadecimal digits in lower case.
            pub fn parse(text: &str) -> Result<$name, $crate::random_id::NotAnId> {
                $crate::random_id::parse(text).map($name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::random_id::write(f, self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::random_id::NotAnId;

            fn try_from(text: String) -> Result<$name, $crate::random_id::NotAnId> {
                $name::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

pub(crate) use random_id;
