//! The keys of the repositories, and what they have signed: the metadata, the packages, or both.
//!
//! A signature in a package is of its main header, which has the digest of the payload. Packages of the base root are verified here,
//! before anything of them is unpacked; those of build roots by the root's own rpm (`rpmkeys --checksig`).

use super::Rpm;
use super::config::Signed;
use kilnyard_ecosystem::OutputBounds;
use kilnyard_ecosystem::rpm::{PackageFile, signature};
use kilnyard_mirror::Sha256Hex;
use kilnyard_sign::{Keyring, SignError};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use std::path::Path;

/// See the module documentation.
pub struct Keys {
    rings: Vec<Keyring>,
    digest: String,
    /// Whether each repomd.xml has to be signed.
    pub sign_metadata: bool,
    sign_packages: bool,
}

/// No key has made any of the signatures.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error("it has no signature")]
    Unsigned,
    /// The last one's fault.
    #[error(transparent)]
    Other(#[from] SignError),
}

impl Keys {
    /// Reads the files with the keys.
    pub fn read(rpm: &Rpm) -> Result<Keys> {
        let (mut rings, mut all) = (Vec::new(), String::new());
        for bytes in files(rpm)? {
            all.push_str(Sha256Hex::of(&bytes).as_str());
            rings.push(Keyring::from_bytes(&bytes).context(Kind::Usage, "read a file of keys")?);
        }
        let signs = |what: Signed| !rings.is_empty() && rpm.signed.contains(&what);
        let (sign_metadata, sign_packages) = (signs(Signed::Metadata), signs(Signed::Packages));
        if sign_packages {
            all.push_str(" packages");
        }
        if !rings.is_empty() && !sign_metadata {
            all.push_str(" not metadata");
        }
        Ok(Keys { rings, digest: all, sign_metadata, sign_packages })
    }

    /// A hash of an address and the keys.
    pub fn wanted(&self, address: &str) -> String {
        Sha256Hex::of(format!("{address} {}", self.digest).as_bytes()).as_str().to_owned()
    }

    /// Verifies a text by one of its signatures.
    ///
    /// # Errors
    /// No key has made one of them.
    pub fn verify(&self, text: &[u8], signatures: &[Vec<u8>]) -> std::result::Result<(), KeyError> {
        let mut failed = KeyError::Unsigned;
        for (signature, ring) in
            signatures.iter().flat_map(|one| self.rings.iter().map(move |ring| (one, ring)))
        {
            match ring.verify_detached(text, signature) {
                Ok(_) => return Ok(()),
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    /// Verifies a package file, with its payload, if packages need signatures.
    pub fn verify_package(&self, path: &Path, name: &str) -> Result<()> {
        if !self.sign_packages {
            return Ok(());
        }
        let failed = || format!("verify {name}");
        let (header, signatures) = signature::signatures_of(path).context(Kind::Machine, failed())?;
        self.verify(&header, &signatures).context(Kind::Machine, failed()).map_err(|error: Error| {
            error.hint("keys in kilnyard.toml: files with the keys that sign packages; signed = [\"metadata\"] if none does")
        })?;
        // What it unpacks to is bounded by the disk, as all of the base root.
        PackageFile::read(path, OutputBounds::WIDEST).map(drop).context(Kind::Machine, failed())
    }
}

/// The keys of packages as one text; `None` if packages need no signatures.
pub fn of_packages(rpm: &Rpm) -> Result<Option<String>> {
    if rpm.keys.is_empty() || !rpm.signed.contains(&Signed::Packages) {
        return Ok(None);
    }
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .ok()
            .filter(|text| text.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----"))
            .ok_or_else(|| {
                Error::usage("a key of packages is not in ASCII, the only form that rpmkeys reads")
                    .hint("gpg --enarmor")
            })
    };
    files(rpm)?.into_iter().map(text).collect::<Result<Vec<_>>>().map(|texts| Some(texts.join("\n")))
}

fn files(rpm: &Rpm) -> Result<Vec<Vec<u8>>> {
    let read = |path: &std::path::PathBuf| {
        fs_err::read(path).context(Kind::Usage, format!("read the key {}", path.display()))
    };
    rpm.keys.iter().map(read).collect()
}
