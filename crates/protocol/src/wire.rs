//! The encoding of messages: JSON in an envelope with the version of the protocol and the capabilities of the sender.
//!
//! New fields have a default, so that a version understands the one before it; a change that older programs would
//! misread raises [`VERSION`]. A program understands its own version and the one before, and two programs speak the
//! newest one that both know ([`Versions::agree`]). A feature that only some programs of a version have is a
//! capability: a string in each message, used only if both sides list it. Unknown capabilities are ignored.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The version of the messages that this program sends.
pub const VERSION: u32 = 1;
/// The oldest version that it understands.
const VERSION_MIN: u32 = 1;
/// The largest message, in bytes. The largest messages contain the index of a root: some thousand packages of a few
/// kilobytes each.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The range of versions that a program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest version that it understands.
    pub oldest: u32,
    /// The version that it sends unless its peer is older.
    pub newest: u32,
}

impl Versions {
    /// Those of this program.
    pub const OURS: Versions = Versions { oldest: VERSION_MIN, newest: VERSION };

    /// The newest common version of two programs, if there is one.
    pub fn agree(self, other: Versions) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope<Body, Texts> {
    version: u32,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    capabilities: Option<Texts>,
    body: Body,
}

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened<Body> {
    /// A version that this program understands.
    pub version: u32,
    /// The capabilities of its sender; empty if it lists none.
    pub capabilities: Vec<String>,
    /// The message itself.
    pub body: Body,
}

/// Why bytes cannot be decoded, or a message cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The message is too large.
    #[error("the message has {bytes} bytes; the maximum is {MESSAGE_BYTES_MAX}")]
    TooLarge {
        /// Its size, above [`MESSAGE_BYTES_MAX`].
        bytes: usize,
    },
    /// Its version is not supported.
    #[error("the message has version {version}; this program supports {VERSION_MIN} to {VERSION}")]
    Version {
        /// The version in its envelope, as its sender wrote it.
        version: u32,
    },
    /// It is not valid JSON, or not a message of this kind.
    #[error("invalid message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a message in the version of this program, without capabilities.
///
/// # Errors
/// The message is too large for [`decode`].
pub fn encode<Message: Serialize>(message: &Message) -> Result<Vec<u8>, WireError> {
    encode_as(VERSION, &[], message)
}

/// Encodes a message in a version that its receiver speaks.
///
/// # Errors
/// The message is too large for [`decode`], or this program does not speak the version.
pub fn encode_as<Message: Serialize>(
    version: u32,
    capabilities: &[String],
    message: &Message,
) -> Result<Vec<u8>, WireError> {
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(WireError::Version { version });
    }
    let capabilities = (!capabilities.is_empty()).then_some(capabilities);
    let bytes = serde_json::to_vec(&Envelope { version, capabilities, body: message })?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a message.
///
/// # Errors
/// The bytes are not a message of this kind, or the version is not supported.
pub fn decode<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Message, WireError> {
    open(bytes).map(|opened| opened.body)
}

/// Decodes a message and its envelope.
///
/// # Errors
/// The bytes are not a message of this kind, or the version is not supported.
pub fn open<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Opened<Message>, WireError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLarge { bytes: bytes.len() });
    }
    match serde_json::from_slice::<Envelope<Message, Vec<String>>>(bytes) {
        Ok(Envelope { version, capabilities, body }) if (VERSION_MIN..=VERSION).contains(&version) => {
            Ok(Opened { version, capabilities: capabilities.unwrap_or_default(), body })
        }
        Ok(envelope) => Err(WireError::Version { version: envelope.version }),
        // The body of another version may have another form; then the version is the better explanation.
        Err(error) => match serde_json::from_slice::<Envelope<IgnoredAny, IgnoredAny>>(bytes) {
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
    fn invalid_messages_and_other_versions_are_rejected() {
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
            assert!(error(text).contains("invalid message"), "{text}");
        }
        // The depth is bounded, so the stack cannot overflow.
        let deep = format!("{{\"version\":1,\"body\":{}", "[".repeat(1 << 20));
        assert!(decode::<IgnoredAny>(deep.as_bytes()).is_err());
        assert!(matches!(
            decode::<String>(&vec![b' '; MESSAGE_BYTES_MAX + 1]),
            Err(WireError::TooLarge { .. })
        ));
    }

    #[test]
    fn fields_of_later_programs_are_ignored() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Small {
            a: u32,
        }
        let text = br#"{"version":1,"more":[1],"body":{"a":5,"b":{"c":"d"}}}"#;
        assert_eq!(decode::<Small>(text).unwrap(), Small { a: 5 });
    }

    #[test]
    fn two_programs_speak_the_newest_common_version() {
        let versions = |oldest, newest| Versions { oldest, newest };
        assert_eq!(versions(1, 2).agree(versions(1, 1)), Some(1));
        assert_eq!(versions(1, 1).agree(versions(1, 2)), Some(1));
        assert_eq!(versions(2, 3).agree(versions(1, 2)), Some(2));
        assert_eq!(versions(3, 4).agree(versions(1, 2)), None);
        assert_eq!(versions(1, 2).agree(versions(3, 4)), None);
        assert_eq!(Versions::OURS.agree(Versions::OURS), Some(VERSION));
        assert!(matches!(encode_as(VERSION + 1, &[], &""), Err(WireError::Version { .. })));
    }

    #[test]
    fn capabilities_are_in_the_envelope() {
        let capabilities = ["family:debian".to_owned(), "of a later program".to_owned()];
        let sent = encode_as(VERSION, &capabilities, &"text").unwrap();
        let opened: Opened<String> = open(&sent).unwrap();
        assert_eq!((opened.version, opened.body.as_str()), (VERSION, "text"));
        assert_eq!(opened.capabilities, capabilities);
        assert_eq!(decode::<String>(&sent).unwrap(), "text");
        assert!(open::<String>(&encode(&"text").unwrap()).unwrap().capabilities.is_empty());
    }
}
