//! The account: each signature and each refusal is a line, and each line has the hash of the one before it.
//!
//! A line is one JSON object. Its hash is the SHA-256 of its bytes without the line feed. Nothing is ever changed or
//! removed: who has seen the last hash can tell whether the lines before it are the same. Seals are lines with a signature
//! of the hash before them, made by the signer at intervals, so that a copy of the account shows up to where it is genuine.

use crate::hash;
use crate::message::Rule;
use kilnyard_sign::Keyring;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Begins what a seal signs, so that no text of a repository passes for one.
const SEAL: &str = "kilnyard account 1";

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// The signer's time, in seconds since 1970.
    pub time: i64,
    /// The hash of the line before; empty in the first one.
    pub previous: String,
    /// What happened.
    pub entry: Entry,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// A generation was signed.
    Generation {
        /// Its repository.
        repository: String,
        /// Its codename, or `packages`.
        series: String,
        /// The SHA-256 of the text.
        text: String,
        /// The fingerprints of the keys.
        keys: Vec<String>,
        /// The SHA-256 of each index, by path.
        indexes: BTreeMap<String, String>,
        /// The packages that became part of it.
        packages: Vec<Package>,
    },
    /// A generation that was signed earlier, outside of this account, was taken as what is published.
    Adopted {
        /// Its repository.
        repository: String,
        /// Its codename, or `packages`.
        series: String,
        /// The SHA-256 of the text.
        text: String,
        /// The SHA-256 of each index, by path.
        indexes: BTreeMap<String, String>,
        /// The number of packages.
        packages: u64,
    },
    /// Packages were signed one by one. Their digests are those of what was signed: texts `+PKG_HASH`, or headers.
    Packages {
        /// The repository whose keys signed.
        repository: String,
        /// The fingerprints of the keys.
        keys: Vec<String>,
        /// The packages.
        packages: Vec<Package>,
    },
    /// An archive's index of sources, or a commit of a tree, was taken as what the archive or the tree has.
    Sources {
        /// The archive by its name in the policy, or the tree: `tree NAME`.
        archive: String,
        /// The SHA-256 of the index, or the id of the commit.
        text: String,
        /// The number of its sources.
        sources: u64,
    },
    /// A `.dsc` or `.changes` file was signed.
    Document {
        /// The repository whose keys signed.
        repository: String,
        /// The source package.
        source: String,
        /// Its version.
        version: String,
        /// The SHA-256 of the text.
        text: String,
        /// The fingerprints of the keys.
        keys: Vec<String>,
    },
    /// Something was not signed.
    Refused {
        /// The repository, as the coordinator named it.
        repository: String,
        /// The binary package, if it is about one.
        package: Option<String>,
        /// The rule.
        rule: Rule,
        /// A sentence without its full stop.
        reason: String,
    },
    /// A person approved what was refused.
    Approved {
        /// The refusal.
        id: String,
        /// The fingerprint of the person's key, or the name of the user.
        by: String,
    },
    /// A key was made, imported, rotated, revoked or removed.
    Key {
        /// What was done.
        action: String,
        /// Its name in the policy.
        name: String,
        /// The fingerprint of its primary key.
        fingerprint: String,
    },
    /// The signature of the hash before this line.
    Seal {
        /// An armored detached signature.
        signature: String,
    },
}

/// A package that became part of a repository, and what explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its architecture, or its version in a pkgsrc repository.
    pub variant: String,
    /// Its version.
    pub version: String,
    /// The digest of its file, as the index names it.
    pub listed: String,
    /// The source package.
    pub source: String,
    /// The attempt that built it, from the worker's statement; absent if the yard's own machine did.
    pub attempt: Option<String>,
    /// The key of the worker.
    pub worker: Option<String>,
}

/// The text that the seal after a line signs.
pub fn seal_text(number: u64, hash: &str) -> String {
    format!("{SEAL}\n{number}\n{hash}\n")
}

/// A fault of an account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number} of the account {reason}")]
pub struct Fault {
    /// The line's place in the file, from 1.
    pub number: u64,
    /// A clause whose subject is the line.
    pub reason: String,
}

/// An account whose chain is whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Its lines.
    pub lines: Vec<Line>,
    /// The hash of the last line; empty if there is none.
    pub last: String,
    /// The number of the last line that a seal covers; zero without seals.
    pub sealed: u64,
}

impl Account {
    /// Checks the chain of an account, and its seals if there is a keyring.
    ///
    /// # Errors
    /// The first line that is not as it must be.
    pub fn check(text: &str, keyring: Option<&Keyring>) -> Result<Account, Fault> {
        let mut account = Account::default();
        for (number, text) in (1..).zip(text.split_inclusive('\n')) {
            let fault = |reason: &str| Fault { number, reason: reason.to_owned() };
            let text = text.strip_suffix('\n').ok_or_else(|| fault("is incomplete"))?;
            let line: Line =
                serde_json::from_str(text).map_err(|error| fault(&format!("cannot be read: {error}")))?;
            if line.number != number {
                return Err(fault(&format!("has the number {}: lines are missing or added", line.number)));
            }
            if line.previous != account.last {
                return Err(fault("does not continue the line before it: one of them was changed"));
            }
            if let (Entry::Seal { signature }, Some(keyring)) = (&line.entry, keyring) {
                let text = seal_text(number - 1, &account.last);
                keyring
                    .verify_detached(text.as_bytes(), signature.as_bytes())
                    .map_err(|error| fault(&format!("is no seal of the signer: {error}")))?;
                account.sealed = number - 1;
            }
            account.last = hash(text.as_bytes());
            account.lines.push(line);
        }
        Ok(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let (mut text, mut previous) = (String::new(), String::new());
        for number in 1..=3 {
            let entry = Entry::Approved { id: number.to_string(), by: "anna".to_owned() };
            let line = serde_json::to_string(&Line { number, time: 7, previous, entry }).unwrap();
            previous = hash(line.as_bytes());
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    #[test]
    fn any_change_of_a_line_is_found() {
        let text = text();
        assert_eq!(Account::check(&text, None).unwrap().lines.len(), 3);
        let changed = text.replacen("anna", "bert", 1);
        assert_eq!(Account::check(&changed, None).unwrap_err().number, 2);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        assert_eq!(Account::check(&format!("{}{}", lines[0], lines[2]), None).unwrap_err().number, 2);
        assert_eq!(Account::check(&text[..text.len() - 1], None).unwrap_err().number, 3);
        assert_eq!(Account::check(lines[1], None).unwrap_err().number, 1);
    }
}
