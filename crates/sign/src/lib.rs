//! OpenPGP: verify an archive, sign a repository.
//!
//! Two things are done here, and nothing else of OpenPGP. A [`Keyring`] of public certificates judges
//! what an archive publishes (`InRelease`, or `Release` with `Release.gpg`), and a [`YardKey`] signs what
//! this yard publishes. The mathematics is rPGP's; what to believe is decided here.
//!
//! The way of a message:
//!
//! ```text
//! bytes --clearsign / armor--> text + signature packets
//! keyring file --armor--> packets --certificate--> components (primary keys and subkeys, each with its standing)
//! (text, signature, components, now) --judge--> a signer, or a typed reason against it
//! ```
//!
//! What must hold:
//!
//! - The text handed back is what the signature covers, and nothing beside it: a clearsigned message is
//!   one block with nothing around it, trailing blanks (which OpenPGP does not sign) are cut, and every
//!   line ends in a line feed. A caller parses [`Verified::text`], never the file.
//! - One good signature by a key of the ring suffices. Signatures by keys that the ring lacks are ignored,
//!   because an archive signs with its next key long before its users have that key.
//! - A key counts only as far as its certificate says so today: self-signature, binding in both directions
//!   for a signing subkey, key flags, expiry and revocation are all checked, against the time of
//!   verification and not that of the signature, as apt does.
//! - SHA-1, MD5 and RIPEMD-160 are refused as hashes of data. A SHA-1 self-signature within a certificate
//!   is accepted (with collision detection): the ring is the user's own trust anchor, and many keys still
//!   in use carry one. MD5 is refused there as well.
//! - No input makes it panic, and sizes and counts are bounded (see the constants of each module).
//!
//! What it does not do: web of trust, key servers, encryption, keys with a passphrase or on a card,
//! revocation by a designated revoker, and keybox files (`pubring.kbx`).
//!
//! Known downside: the length of a key is not judged. Who puts a 1024-bit key into the ring trusts it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod armor;
mod certificate;
mod clearsign;
mod error;
mod judge;
mod keyring;
mod yard_key;

pub use error::{KeyName, Moment, SignError, SignatureProblem};
pub use keyring::{Keyring, Signer, Verified};
pub use yard_key::YardKey;
