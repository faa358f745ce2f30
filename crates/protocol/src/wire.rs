//! Messages as bytes: JSON in an envelope that says which version of the protocol it is of, and what its sender is capable of.
//!
//! A field that is added has a default, so that a version understands the one before it; a change that older ones would
//! misread raises [`VERSION`]. A program understands the version before its own too, and two programs speak the newest
//! version that both do ([`Versions::agree`]). A feature that only some programs of a version have is a capability: a text
//! in the list of each message, used only where both sides list it. Texts that are not known mean nothing.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The version of the messages that this program sends.
pub const VERSION: u32 = 1;
/// The oldest version that it understands.
const VERSION_MIN: u32 = 1;
/// How large a message may be. The largest have the index of what a root needs: some thousand packages of a few kilobytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The versions that a program speaks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest one.
    pub oldest: u32,
    /// The newest one.
    pub newest: u32,
}

impl Versions {
    /// Those of this program.
    pub const OURS: Versions = Versions { oldest: VERSION_MIN, newest: VERSION };

    /// The version that two programs speak; none where they have none in common.
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

/// A message as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened<Body> {
    /// The version that it is written in.
    pub version: u32,
    /// What its sender is capable of.
    pub capabilities: Vec<String>,
    /// What it says.
    pub body: Body,
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

/// A message as bytes, in the version of this program, of a sender without further capabilities.
///
/// # Errors
/// One that is too large for [`decode`].
pub fn encode<Message: Serialize>(message: &Message) -> Result<Vec<u8>, WireError> {
    encode_as(VERSION, &[], message)
}

/// A message as bytes, in a version that its receiver speaks too.
///
/// # Errors
/// One that is too large for [`decode`], and a version that this program does not speak.
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

/// The message that bytes are.
///
/// # Errors
/// Any that are not of this kind, or of another version.
pub fn decode<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Message, WireError> {
    open(bytes).map(|opened| opened.body)
}

/// The message that bytes are, with what its envelope says.
///
/// # Errors
/// Any that are not of this kind, or of another version.
pub fn open<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Opened<Message>, WireError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLarge { bytes: bytes.len() });
    }
    match serde_json::from_slice::<Envelope<Message, Vec<String>>>(bytes) {
        Ok(Envelope { version, capabilities, body }) if (VERSION_MIN..=VERSION).contains(&version) => {
            Ok(Opened { version, capabilities: capabilities.unwrap_or_default(), body })
        }
        Ok(envelope) => Err(WireError::Version { version: envelope.version }),
        // A body of another version may have another form: the version is the better reason.
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

    #[test]
    fn a_program_and_the_one_before_it_speak_the_older_ones_version() {
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
