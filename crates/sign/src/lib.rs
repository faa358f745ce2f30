//! OpenPGP: verify an archive, sign a repository.
//!
//! This crate uses OpenPGP for two purposes only. A [`Keyring`] of public certificates verifies the files that an
//! archive publishes (`InRelease`, or `Release` with `Release.gpg`), and a [`YardKey`] signs the files that this yard
//! publishes. rPGP does the cryptography; this crate decides which signatures to trust.
//!
//! The path of a message:
//!
//! ```text
//! bytes --clearsign / armor--> text + signature packets
//! keyring file --armor--> packets --certificate--> components (primary keys and subkeys, each with its validity)
//! (text, signature, components, now) --judge--> a signer, or a typed reason against it
//! ```
//!
//! Invariants:
//!
//! - The returned text is exactly the text that the signature covers: a clearsigned message is
//!   one block with nothing around it, trailing blanks (which OpenPGP does not sign) are cut, and every
//!   line ends in a line feed. A caller parses [`Verified::text`], never the file.
//! - One good signature by a key of the ring suffices. Signatures by keys that the ring lacks are ignored,
//!   because an archive signs with its next key long before its users have that key.
//! - A key counts only as far as its certificate allows at the time of verification, not of the signature, as in apt:
//!   self-signature, binding in both directions for a signing subkey, key flags, expiry and revocation are all
//!   checked.
//! - SHA-1, MD5 and RIPEMD-160 are refused as hashes of data. A SHA-1 self-signature within a certificate
//!   is accepted (with collision detection): the ring is the user's own trust anchor, and many keys still
//!   in use carry one. MD5 is refused there as well.
//! - Input never causes a panic, and sizes and counts are bounded (see the constants of each module).
//!
//! Out of scope: web of trust, key servers, encryption, revocation by a designated revoker, and keybox files (`pubring.kbx`).
//!
//! Known downside: key length is not checked. A 1024-bit key in the ring is trusted.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod armor;
mod certificate;
mod clearsign;
mod error;
mod judge;
mod keyring;
mod material;
mod token;
mod x509;
mod yard_key;

pub use error::{KeyName, Moment, SignError, SignatureProblem};
pub use keyring::{Keyring, Signer, Verified};
pub use material::{Material, certify, keys_of};
pub use token::{Token, TokenSignature};
pub use x509::{DigestSigner, PackageKey};
pub use yard_key::{YardKey, sign_binary, sign_clear, sign_detached};
