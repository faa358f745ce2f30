//! Errors, each with the facts needed to fix the cause.

use std::fmt;
use std::path::PathBuf;

/// Failure to read a key, to verify or to sign. The text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// A file could not be read.
    #[error("read {}", path.display())]
    ReadFile {
        /// A keyring, key, signature or text.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A key file could not be written.
    #[error("write the key {}", path.display())]
    WriteKey {
        /// The key file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A key file already exists; keys are never overwritten.
    #[error("write the key {}: the file exists, and a key is never overwritten", path.display())]
    KeyExists {
        /// The existing file.
        path: PathBuf,
    },
    /// An input is larger than any sensible one.
    #[error("read {what}: {size_bytes} bytes are more than the limit of {size_bytes_max}")]
    TooLarge {
        /// A name for the input.
        what: String,
        /// Its size; a file is read only to just above the limit.
        size_bytes: u64,
        /// The largest accepted size.
        size_bytes_max: u64,
    },
    /// A file is not a keyring, or has no usable certificate.
    #[error("read the keyring {origin}: {reason}")]
    Keyring {
        /// The file, or a description of bytes from elsewhere.
        origin: String,
        /// A clause whose subject is the keyring.
        reason: String,
    },
    /// A secret key cannot be read or used.
    #[error("use the secret key {origin}: {reason}")]
    SecretKey {
        /// The file, or the fingerprint of a key in memory.
        origin: String,
        /// A clause whose subject is the key file.
        reason: String,
    },
    /// A message is not exactly one clearsigned block.
    #[error("read the clearsigned message, line {line}: {reason}")]
    Clearsigned {
        /// The line number, from 1.
        line: usize,
        /// A clause that names the defect.
        reason: String,
    },
    /// A signature cannot be parsed.
    #[error("read the signature: {reason}")]
    Signature {
        /// A clause whose subject is the signature file.
        reason: String,
    },
    /// None of the signatures is by a key of the ring.
    #[error(
        "find a signature by a key of {origin}: signed by {}; the keyring has {}",
        list(signed_by),
        list(ring)
    )]
    NoKnownSigner {
        /// The file of the keyring, or its description.
        origin: String,
        /// The key ids or fingerprints that the signatures name.
        signed_by: Vec<String>,
        /// The key ids in the ring.
        ring: Vec<String>,
    },
    /// None of the signatures by keys of the ring is good.
    #[error("verify with {origin}: {}", list(problems))]
    NoGoodSignature {
        /// The file of the keyring, or its description.
        origin: String,
        /// The problem of each signature by a key of the ring.
        problems: Vec<SignatureProblem>,
    },
    /// Making a key or a signature failed.
    #[error("{action}: {reason}")]
    Sign {
        /// The failed action; reads after "failed to".
        action: &'static str,
        /// The error of rPGP, or the problem of the key.
        reason: String,
    },
}

/// Why a signature by a key of the ring does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureProblem {
    /// The signature does not match the text: one of them was changed or truncated.
    #[error("the signature by {key} does not match the text")]
    TextDiffers {
        /// The key that the signature names.
        key: KeyName,
    },
    /// The hash algorithm of the signature is not collision-resistant.
    #[error("the signature by {key} uses {hash}, which is too weak")]
    WeakHash {
        /// The key that the signature names.
        key: KeyName,
        /// The name of the hash algorithm.
        hash: String,
    },
    /// The key, or the primary key above it, has expired.
    #[error("the key {key} expired on {since}")]
    KeyExpired {
        /// The key that signed; the expired one may be its primary key.
        key: KeyName,
        /// The time of expiry.
        since: Moment,
    },
    /// The key, or the primary key above it, was revoked by its owner.
    #[error("the key {key} is revoked")]
    KeyRevoked {
        /// The key that signed; the revoked one may be its primary key.
        key: KeyName,
    },
    /// The key's certificate does not allow it to sign data.
    #[error("the key {key} cannot be used to sign: {reason}")]
    KeyUnfit {
        /// The key that the signature names.
        key: KeyName,
        /// A clause whose subject is the key.
        reason: String,
    },
    /// The signature itself has expired.
    #[error("the signature by {key} expired on {since}")]
    SignatureExpired {
        /// The key that signed, which may still be valid.
        key: KeyName,
        /// The time of expiry.
        since: Moment,
    },
    /// The signature was made in the future or before its key: the clock of the signer or of this machine is wrong.
    #[error("the signature by {key} was made on {made}, {reason}")]
    ClockWrong {
        /// The key that the signature names.
        key: KeyName,
        /// The time of signing, according to the signature.
        made: Moment,
        /// A clause that names the contradiction.
        reason: String,
    },
    /// A kind of signature that does not certify a text.
    #[error("the signature by {key} cannot be used: {reason}")]
    Unusable {
        /// The key that the signature names.
        key: KeyName,
        /// A clause whose subject is the signature.
        reason: String,
    },
}

/// A key as shown to users: its fingerprint, and the primary key and user that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName {
    /// The fingerprint of the key itself, in upper-case hexadecimal.
    pub fingerprint: String,
    /// The fingerprint of the primary key; the same unless the key is a subkey.
    pub primary_fingerprint: String,
    /// A user id of the certificate; absent if none has a valid self-signature.
    pub user_id: Option<String>,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint)?;
        if self.fingerprint != self.primary_fingerprint {
            write!(f, " (subkey of {})", self.primary_fingerprint)?;
        }
        match &self.user_id {
            Some(user_id) => write!(f, " {user_id:?}"),
            None => Ok(()),
        }
    }
}

/// A point in time, shown as a date in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub unix_seconds: i64,
}

impl Moment {
    pub(crate) fn new(unix_seconds: i64) -> Moment {
        Moment { unix_seconds }
    }

    pub(crate) fn plus(self, seconds: u32) -> Moment {
        Moment::new(self.unix_seconds.saturating_add(i64::from(seconds)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.unix_seconds) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{} seconds after 1970", self.unix_seconds),
        }
    }
}

/// The maximum number of listed items: a ring may have thousands of keys, and longer lists are not useful.
const LISTED_MAX: usize = 16;

fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "no key".to_owned();
    }
    let mut text = items.iter().take(LISTED_MAX).map(T::to_string).collect::<Vec<_>>().join(", ");
    if items.len() > LISTED_MAX {
        text.push_str(&format!(" and {} more", items.len() - LISTED_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date() {
        assert_eq!(Moment::new(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Moment::new(1_783_765_031).to_string(), "2026-07-11T10:17:11Z");
        assert_eq!(
            Moment::new(i64::MAX).plus(u32::MAX).to_string(),
            format!("{} seconds after 1970", i64::MAX)
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<usize> = (0..20).collect();
        assert!(list(&many).ends_with("15 and 4 more"));
        assert_eq!(list(&many[..2]), "0, 1");
        assert_eq!(list::<usize>(&[]), "no key");
    }

    #[test]
    fn a_subkey_names_its_primary() {
        let name = KeyName {
            fingerprint: "AA".to_owned(),
            primary_fingerprint: "BB".to_owned(),
            user_id: Some("An archive".to_owned()),
        };
        assert_eq!(name.to_string(), "AA (subkey of BB) \"An archive\"");
    }
}
