//! The tokens of people.
//!
//! A token is `kilnyard-person-1.ID.SECRET`. The file `ID.json` says what it allows; it has only the hash of the secret, which is
//! of 256 random bits. A token that is removed or over counts no more from the next request on.

use crate::{Person, is_person_name};
use kilnyard_farm::write_private;
use kilnyard_model::scope::Scope;
use kilnyard_model::sha256::Sha256Hex;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Begins every token, so that programs that look for leaked secrets find it.
const PREFIX: &str = "kilnyard-person-1";
/// The bytes of an id: few, so that people can name it.
const ID_BYTES: usize = 4;
const SECRET_BYTES: usize = 32;
/// The folder of tokens below that of the server.
const FOLDER: &str = "people";

/// What a token allows, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Names the token, in hexadecimal. It is no secret.
    pub id: String,
    /// The person: the author of all requests with it.
    pub name: String,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// Names of the yards that it is for; absent for all.
    pub yards: Option<BTreeSet<String>>,
    /// When it was made, in seconds since 1970.
    pub made_seconds: u64,
    /// When it expires, in seconds since 1970.
    pub ends_seconds: u64,
    /// The SHA-256 of the secret.
    secret: Sha256Hex,
}

/// What a new token allows.
#[derive(Clone, Debug)]
pub struct Terms {
    /// See [`Token::name`].
    pub name: String,
    /// See [`Token::scopes`].
    pub scopes: BTreeSet<Scope>,
    /// See [`Token::yards`].
    pub yards: Option<BTreeSet<String>>,
    /// See [`Token::ends_seconds`].
    pub ends_seconds: u64,
}

/// The tokens in the folder of a server.
#[derive(Clone, Debug)]
pub struct Tokens {
    folder: PathBuf,
}

impl Tokens {
    /// The tokens in the folder of a server, which only its owner can read.
    pub fn open(folder: &Path) -> Tokens {
        Tokens { folder: folder.join(FOLDER) }
    }

    /// Makes a token, and returns its description, and its text, which is not kept.
    ///
    /// # Errors
    /// The name cannot be a person's, or the file cannot be written.
    pub fn issue(&self, terms: Terms, now_seconds: u64) -> io::Result<(Token, String)> {
        // `remove` takes either.
        if is_id(&terms.name) {
            let message = format!("{:?} cannot name a person: it looks like the id of a token", terms.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if !is_person_name(&terms.name) {
            let message = format!("{:?} cannot name a person: letters, digits and ._@+-", terms.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        fs_err::create_dir_all(&self.folder)?;
        let (id, secret) = (random_hex::<ID_BYTES>(), random_hex::<SECRET_BYTES>());
        let Terms { name, scopes, yards, ends_seconds } = terms;
        let hash = Sha256Hex::of(secret.as_bytes());
        let text = format!("{PREFIX}.{id}.{secret}");
        let token = Token { id, name, scopes, yards, made_seconds: now_seconds, ends_seconds, secret: hash };
        write_private(&self.path(&token.id), &serde_json::to_string(&token)?)?;
        Ok((token, text))
    }

    /// The person of a token; none if it is unknown, damaged or over.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn person(&self, text: &str, now_seconds: u64) -> io::Result<Option<Person>> {
        let mut parts = text.split('.');
        let (Some(PREFIX), Some(id), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Ok(None);
        };
        let Some(token) = self.token(id)? else { return Ok(None) };
        let hash = Sha256Hex::of(secret.as_bytes());
        let is_known = bool::from(hash.as_str().as_bytes().ct_eq(token.secret.as_str().as_bytes()));
        let is_valid = is_known && now_seconds < token.ends_seconds;
        let Token { name, scopes, yards, .. } = token;
        Ok(is_valid.then_some(Person { name: Some(name), scopes, yards }))
    }

    /// All tokens, by person. Damaged ones are left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(&self) -> io::Result<Vec<Token>> {
        let entries = match fs_err::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            if let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) {
                all.extend(self.token(id)?);
            }
        }
        all.sort_by(|one, other| (&one.name, one.made_seconds).cmp(&(&other.name, other.made_seconds)));
        Ok(all)
    }

    /// Removes the token with this id, or all of the person of this name. Returns the ids.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, word: &str) -> io::Result<Vec<String>> {
        let mut removed = Vec::new();
        for token in self.all()?.into_iter().filter(|token| token.id == word || token.name == word) {
            fs_err::remove_file(self.path(&token.id))?;
            removed.push(token.id);
        }
        Ok(removed)
    }

    fn token(&self, id: &str) -> io::Result<Option<Token>> {
        if !is_id(id) {
            return Ok(None);
        }
        match fs_err::read(self.path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => Ok(serde_json::from_slice(&text?).ok()),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 2 * ID_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Random bytes in hexadecimal.
fn random_hex<const COUNT: usize>() -> String {
    let mut bytes = [0; COUNT];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(name: &str) -> Terms {
        Terms { name: name.to_owned(), scopes: [Scope::Request].into(), yards: None, ends_seconds: 100 }
    }

    #[test]
    fn a_token_names_its_person_until_it_is_over_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(folder.path());
        assert_eq!((tokens.all().unwrap(), tokens.remove("anna").unwrap()), (vec![], vec![]));
        let (token, text) = tokens.issue(terms("anna"), 1).unwrap();
        let person = tokens.person(&text, 99).unwrap().unwrap();
        assert_eq!((person.name.as_deref(), person.yards), (Some("anna"), None));
        assert_eq!(tokens.person(&text, 100).unwrap(), None);
        let kept = fs_err::read_to_string(tokens.path(&token.id)).unwrap();
        assert!(!kept.contains(text.rsplit('.').next().unwrap()), "the secret is not kept");
        let (other, _) = tokens.issue(terms("bob"), 2).unwrap();
        assert_eq!(tokens.all().unwrap(), [token.clone(), other.clone()]);
        assert_eq!(tokens.remove("anna").unwrap(), [token.id]);
        assert_eq!(tokens.person(&text, 2).unwrap(), None);
        assert_eq!(tokens.remove(&other.id).unwrap(), [other.id]);
    }

    #[test]
    fn what_resembles_a_token_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(folder.path());
        let (token, text) = tokens.issue(terms("anna"), 1).unwrap();
        let (other, _) = tokens.issue(terms("bob"), 1).unwrap();
        let secret = text.rsplit('.').next().unwrap();
        let zeros = "0".repeat(64);
        for text in [
            String::new(),
            "kilnyard-person-1".to_owned(),
            format!("kilnyard-person-1.{}.", token.id),
            format!("kilnyard-person-1.{}.{zeros}", token.id),
            format!("kilnyard-person-1.{}.{secret}", other.id),
            format!("kilnyard-person-1.{}.{secret}.", token.id),
            format!("kilnyard-person-2.{}.{secret}", token.id),
            format!("kilnyard-person-1.../../x.{secret}"),
            format!("kilnyard-person-1.{}.{}", token.id, token.secret),
        ] {
            assert_eq!(tokens.person(&text, 2).unwrap(), None, "{text}");
        }
        fs_err::write(tokens.path(&token.id), "{").unwrap();
        assert_eq!(tokens.person(&text, 2).unwrap(), None);
        assert_eq!(tokens.all().unwrap(), [other]);
        for name in ["", "deadbeef", "a b", "-a", "a\n", "é", "a/b", &"a".repeat(65)] {
            assert!(tokens.issue(terms(name), 1).is_err(), "{name}");
        }
    }
}
