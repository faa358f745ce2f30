//! Tickets: what a worker shows to the mirror of its site to read a file of its builds there.
//!
//! The door signs a ticket for one file of one yard, until a time. A mirror verifies it with the public part of the door's key
//! for tickets, without asking the door, and shows it to the door for a file that it does not have. So a mirror reads
//! nothing that no worker may read, and needs no secret.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use kilnyard_model::sha256::Sha256Hex;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use crate::identity::Fingerprint;

/// The header of a request for a file that has a ticket.
pub const TICKET_HEADER: &str = "kilnyard-ticket";
/// Begins what is signed, so that no other signature passes for one.
const CONTEXT: &str = "kilnyard ticket 1";
/// The file of the key in the folder of a door.
const FILE: &str = "tickets.key";
/// How long a ticket is valid at least, and the steps of its end, in seconds: the same worker gets the same ticket for a while.
const VALID_SECONDS: u64 = 6 * 60 * 60;
const STEP_SECONDS: u64 = 60 * 60;
/// Begins the text that a mirror is configured with.
const KEY_PREFIX: &str = "kilnyard-mirror-1";

/// The door's key for tickets.
#[derive(Clone, Debug)]
pub struct TicketKey(SigningKey);

impl TicketKey {
    /// The key in the folder of a door, made if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged.
    pub fn open(folder: &Path) -> io::Result<TicketKey> {
        let path = folder.join(FILE);
        if !path.try_exists()? {
            let made = SigningKey::generate(&mut rand::rngs::OsRng);
            crate::write_private(&path, &format!("{}\n", crate::hex(made.as_bytes())))?;
        }
        let text = fs_err::read_to_string(&path)?;
        let damaged = || io::Error::other(format!("{} is damaged", path.display()));
        let bytes = crate::from_hex::<32>(text.trim_end()).ok_or_else(damaged)?;
        Ok(TicketKey(SigningKey::from_bytes(&bytes)))
    }

    /// A ticket for a file of a yard, whose name is empty for the site's own. `now` is in seconds since 1970.
    pub fn issue(&self, yard: &str, sha256: &Sha256Hex, now: u64) -> String {
        let until = (now + VALID_SECONDS).div_ceil(STEP_SECONDS) * STEP_SECONDS;
        let signature = self.0.sign(&text(yard, sha256, until)).to_bytes();
        format!("{until}.{yard}.{}", crate::hex(&signature))
    }

    /// What verifies its tickets.
    pub fn verifier(&self) -> TicketVerifier {
        TicketVerifier(self.0.verifying_key())
    }
}

/// Verifies the tickets of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketVerifier(VerifyingKey);

impl TicketVerifier {
    /// The yard of a ticket, if it is valid for this file at this time, in seconds since 1970.
    pub fn yard_of<'a>(&self, ticket: &'a str, sha256: &Sha256Hex, now: u64) -> Option<&'a str> {
        let (until, rest) = ticket.split_once('.')?;
        let (yard, signature) = rest.rsplit_once('.')?;
        let signature = Signature::from_bytes(&crate::from_hex::<64>(signature)?);
        let until: u64 = until.parse().ok()?;
        self.0.verify_strict(&text(yard, sha256, until), &signature).ok()?;
        (until > now).then_some(yard)
    }
}

/// What a mirror needs to know of a farm: its certificate, and what verifies its tickets. Nothing of it is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarmKey {
    /// The fingerprint of the door's certificate.
    pub door: Fingerprint,
    /// Verifies tickets.
    pub tickets: TicketVerifier,
}

impl fmt::Display for FarmKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{KEY_PREFIX}.{}.{}", self.door, crate::hex(self.tickets.0.as_bytes()))
    }
}

impl FromStr for FarmKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FarmKey, &'static str> {
        let malformed = "the key of a farm is what `kilnyard workers mirror` prints";
        let mut parts = text.trim().split('.');
        let (Some(KEY_PREFIX), Some(door), Some(key), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        let key = crate::from_hex::<32>(key).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        let door = door.parse().map_err(|_| malformed)?;
        Ok(FarmKey { door, tickets: TicketVerifier(key.ok_or(malformed)?) })
    }
}

fn text(yard: &str, sha256: &Sha256Hex, until: u64) -> Vec<u8> {
    format!("{CONTEXT}\n{yard}\n{sha256}\n{until}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_for_one_file_of_one_yard_until_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let key = TicketKey::open(folder.path()).unwrap();
        let (one, other) = (Sha256Hex::of(b"1"), Sha256Hex::of(b"2"));
        let verifier = TicketKey::open(folder.path()).unwrap().verifier();
        let ticket = key.issue("further", &one, 1000);
        assert_eq!(verifier.yard_of(&ticket, &one, 1000), Some("further"));
        assert_eq!(verifier.yard_of(&ticket, &one, 1000 + VALID_SECONDS), Some("further"));
        assert_eq!(verifier.yard_of(&ticket, &one, 1000 + VALID_SECONDS + STEP_SECONDS), None);
        assert_eq!(verifier.yard_of(&ticket, &other, 1000), None);
        let until: u64 = ticket.split('.').next().unwrap().parse().unwrap();
        for changed in [
            ticket.replace("further", "another"),
            ticket.replace("further", ""),
            ticket.replacen(&until.to_string(), &(until + 1).to_string(), 1),
            format!("{ticket}00"),
            ticket[1..].to_owned(),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(verifier.yard_of(&changed, &one, 1000), None, "{changed}");
        }
        let another = TicketKey::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_eq!(another.verifier().yard_of(&ticket, &one, 1000), None);
        // The same for a while, so that it is made and verified once.
        assert_eq!(key.issue("", &one, 3601), key.issue("", &one, 3601 + 1800));
    }

    #[test]
    fn the_key_of_a_farm_is_text() {
        let folder = tempfile::tempdir().unwrap();
        let tickets = TicketKey::open(folder.path()).unwrap().verifier();
        let key = FarmKey { door: "1".repeat(64).parse().unwrap(), tickets };
        assert_eq!(key.to_string().parse(), Ok(key.clone()));
        for bad in ["", "kilnyard-mirror-1", &key.to_string()[1..], &format!("{key}.x"), &format!("{key}0")] {
            assert!(bad.parse::<FarmKey>().is_err(), "{bad}");
        }
    }
}
