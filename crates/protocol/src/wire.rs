//! Messages as bytes: JSON in an envelope that says which version of the protocol it is of.
//!
//! A field that is added has a default, so that a version understands the one before it; a change that older ones would
//! misread raises [`VERSION`].

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The version of the messages that this program sends.
pub const VERSION: u32 = 1;
/// The oldest version that it understands.
const VERSION_MIN: u32 = 1;
/// How large a message may be. The largest have the index of what a root needs: some thousand packages of a few kilobytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Envelope<Body> {
    version: u32,
    body: Body,
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// There are too many of them.
    #[error("a message of {bytes} bytes, and {MESSAGE_BYTES_MAX} are the most")]
    TooLarge {
        /// Their number.
        bytes: usize,
    },
    /// It is of a version that this program does not understand.
    #[error("a message of version {version}; this program understands {VERSION_MIN} to {VERSION}")]
    Version {
        /// The version.
        version: u32,
    },
    /// It is not what it should be.
    #[error("a message that cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// A message as bytes.
///
/// # Errors
/// One that is too large for [`decode`].
pub fn encode<Message: Serialize>(message: &Message) -> Result<Vec<u8>, WireError> {
    let bytes = serde_json::to_vec(&Envelope { version: VERSION, body: message })?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// The message that bytes are.
///
/// # Errors
/// Any that are not of this kind, or of another version.
pub fn decode<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Message, WireError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLarge { bytes: bytes.len() });
    }
    match serde_json::from_slice::<Envelope<Message>>(bytes) {
        Ok(envelope) if (VERSION_MIN..=VERSION).contains(&envelope.version) => Ok(envelope.body),
        Ok(envelope) => Err(WireError::Version { version: envelope.version }),
        // A body of another version may have another form: the version is the better reason.
        Err(error) => match serde_json::from_slice::<Envelope<IgnoredAny>>(bytes) {
            Ok(envelope) if !(VERSION_MIN..=VERSION).contains(&envelope.version) => {
                Err(WireError::Version { version: envelope.version })
            }
            _ => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_of_this_version_is_refused() {
        let sent = encode(&"text").unwrap();
        assert_eq!(sent, br#"{"version":1,"body":"text"}"#);
        assert_eq!(decode::<String>(&sent).unwrap(), "text");
        let error = |text: &str| decode::<String>(text.as_bytes()).unwrap_err().to_string();
        assert!(error(r#"{"version":2,"body":{"new":1}}"#).contains("version 2"));
        assert!(error(r#"{"version":0,"body":"text"}"#).contains("version 0"));
        for text in [
            "",
            "{}",
            "\"text\"",
            r#"{"version":1}"#,
            r#"{"version":1,"body":1}"#,
            r#"{"version":-1,"body":"a"}"#,
        ] {
            assert!(error(text).contains("cannot be read"), "{text}");
        }
        // Depth is bounded, so that no stack overflows.
        let deep = format!("{{\"version\":1,\"body\":{}", "[".repeat(1 << 20));
        assert!(decode::<IgnoredAny>(deep.as_bytes()).is_err());
        assert!(matches!(
            decode::<String>(&vec![b' '; MESSAGE_BYTES_MAX + 1]),
            Err(WireError::TooLarge { .. })
        ));
    }

    #[test]
    fn what_a_later_program_adds_does_no_harm() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Small {
            a: u32,
        }
        let text = br#"{"version":1,"more":[1],"body":{"a":5,"b":{"c":"d"}}}"#;
        assert_eq!(decode::<Small>(text).unwrap(), Small { a: 5 });
    }
}
