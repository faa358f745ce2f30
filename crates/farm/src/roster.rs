//! The workers that may connect to a door, and the tokens that admit new ones.
//!
//! ```text
//! tokens/HASH          a token that was not used yet, named by the SHA-256 of its secret
//! workers/NAME.json    a worker that has joined
//! ```
//!
//! A token is used once: joining removes its file first, so that of two workers with the same token one is refused, and a
//! crash in between loses the token, not the door. It is valid for a day.

use crate::identity::Fingerprint;
use kilnyard_model::role::Role;
use kilnyard_model::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest name of a worker, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// How long a token can be used, in seconds: printed ones may be kept in logs.
const TOKEN_SECONDS_MAX: u64 = 24 * 60 * 60;
/// Begins each token.
const PREFIX: &str = "kilnyard-join-1";

/// The right to join, once: `kilnyard-join-1.DOOR.SECRET`, or `kilnyard-join-1.DOOR.SECRET.PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The door that it is for.
    pub fingerprint: Fingerprint,
    /// What the door keeps a hash of.
    pub secret: String,
    /// The key of the proxy through which the worker connects. Absent if it connects to the door itself.
    pub proxy: Option<Fingerprint>,
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}.{}.{}", self.fingerprint, self.secret)?;
        self.proxy.map_or(Ok(()), |proxy| write!(formatter, ".{proxy}"))
    }
}

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Token, &'static str> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [PREFIX, fingerprint, secret, proxy @ ..] = &parts[..] else {
            return Err("a token begins with kilnyard-join-1 and has three or four parts, separated by dots");
        };
        let proxy = match proxy {
            [] => None,
            [proxy] => Some(proxy.parse()?),
            _ => return Err("a token has at most four parts, separated by dots"),
        };
        let fingerprint = fingerprint.parse()?;
        crate::from_hex::<32>(secret).ok_or("the secret of a token has 64 hexadecimal digits")?;
        Ok(Token { fingerprint, secret: (*secret).to_owned(), proxy })
    }
}

/// The folder of the workers, whose time changes with each of them.
pub const WORKERS: &str = "workers";

/// The pool of a worker whose token names none.
pub const DEFAULT_POOL: &str = "default";

/// What a token admits a worker to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The pool: workers that are trusted alike.
    pub pool: String,
    /// What the worker takes part in.
    pub roles: BTreeSet<Role>,
    /// Whether it gets nothing until the user approves it.
    pub needs_approval: bool,
    /// The only name that it may have; absent if it may choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { pool: DEFAULT_POOL.to_owned(), roles: Role::all(), needs_approval: false, name: None }
    }
}

/// The file of a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Issued {
    at_seconds: u64,
    terms: Terms,
}

/// A worker that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, unique among the workers of a door.
    pub name: String,
    /// The public part of its key, in hexadecimal.
    pub key: String,
    /// When it joined, in seconds since 1970.
    pub joined_seconds: u64,
    /// Its pool.
    #[serde(default = "default_pool")]
    pub pool: String,
    /// What it takes part in.
    #[serde(default = "Role::all")]
    pub roles: BTreeSet<Role>,
    /// Why it gets no builds; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

fn default_pool() -> String {
    DEFAULT_POOL.to_owned()
}

/// Why a worker gets no builds, until the user resumes or approves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// The user has not approved it yet.
    Unapproved,
    /// The user drained it.
    Drained,
    /// It failed what others build, or the user does not trust it: the reason, as a clause.
    Quarantined(String),
}

/// Why a worker cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is unknown: never issued, used, or of another yard.
    #[error("the token was used, or is not one of this yard's")]
    Token,
    /// The token is older than a day.
    #[error("the token has expired: each is valid for a day")]
    Expired,
    /// The name cannot be the name of a file.
    #[error(
        "a worker's name has at most 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
    )]
    Name,
    /// Another worker has the name.
    #[error("there is a worker {0}, with another key")]
    Taken(String),
    /// The key is not the public part of an Ed25519 key.
    #[error("the key of the worker is malformed")]
    Key,
    /// The folder cannot be read or written.
    #[error("failed to record the worker: {0}")]
    Io(#[from] io::Error),
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Roster {
    folder: PathBuf,
}

impl Roster {
    /// The roster in this folder, which is created if it is missing.
    pub fn open(folder: &Path) -> io::Result<Roster> {
        for part in ["tokens", WORKERS] {
            fs_err::create_dir_all(folder.join(part))?;
        }
        Ok(Roster { folder: folder.to_owned() })
    }

    /// A new token for the door with this fingerprint, valid for a day.
    pub fn issue(&self, fingerprint: Fingerprint, terms: Terms, now_seconds: u64) -> io::Result<Token> {
        let token = Token { fingerprint, secret: crate::random_hex(), proxy: None };
        let issued = Issued { at_seconds: now_seconds, terms };
        let text = serde_json::to_string(&issued).map_err(io::Error::from)?;
        crate::write_private(&self.token(&token.secret), &text)?;
        Ok(token)
    }

    /// Admits a worker with a token's secret, which is used up. A worker that has joined with the same name and key joins
    /// again without one, and uses one up that it has.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&self, secret: &str, name: &str, key: &str, now_seconds: u64) -> Result<Member, JoinError> {
        if !is_name(name) {
            return Err(JoinError::Name);
        }
        crate::from_hex::<32>(key).ok_or(JoinError::Key)?;
        let _lock = self.lock()?;
        match self.member(name)? {
            Some(member) if member.key == key => {
                return match fs_err::remove_file(self.token(secret)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
                    _ => Ok(member),
                };
            }
            Some(_) => return Err(JoinError::Taken(name.to_owned())),
            None => {}
        }
        let token = self.token(secret);
        let issued = match fs_err::read_to_string(&token) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(JoinError::Token),
            read => read?,
        };
        // A token that is damaged has no age.
        let issued: Result<Issued, JoinError> = serde_json::from_str(&issued).map_err(|_| JoinError::Expired);
        // Another worker's is not used up.
        if issued.as_ref().is_ok_and(|issued| issued.terms.name.as_ref().is_some_and(|own| own != name)) {
            return Err(JoinError::Token);
        }
        match fs_err::remove_file(&token) {
            // Another worker was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(JoinError::Token),
            removed => removed?,
        }
        let issued = issued?;
        if now_seconds.saturating_sub(issued.at_seconds) > TOKEN_SECONDS_MAX {
            return Err(JoinError::Expired);
        }
        let Terms { pool, roles, needs_approval, .. } = issued.terms;
        let (name, key) = (name.to_owned(), key.to_owned());
        let held = needs_approval.then_some(Held::Unapproved);
        let member = Member { name, key, joined_seconds: now_seconds, pool, roles, held };
        self.write(&member)?;
        Ok(member)
    }

    /// The names that tokens are for which admit one worker alone.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn awaited(&self) -> io::Result<BTreeSet<String>> {
        Ok(self.tokens_for_names()?.into_iter().map(|(_, name)| name).collect())
    }

    /// Removes the tokens for a worker of this name.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn withdraw(&self, name: &str) -> io::Result<()> {
        for (path, _) in self.tokens_for_names()?.into_iter().filter(|(_, of)| of == name) {
            match fs_err::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // It was used meanwhile.
                _ => {}
            }
        }
        Ok(())
    }

    /// The tokens that are for one name, with it.
    fn tokens_for_names(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for entry in fs_err::read_dir(self.folder.join("tokens"))? {
            let path = entry?.path();
            let issued =
                fs_err::read(&path).ok().and_then(|text| serde_json::from_slice::<Issued>(&text).ok());
            found.extend(issued.and_then(|issued| issued.terms.name).map(|name| (path, name)));
        }
        Ok(found)
    }

    /// Decides whether a worker gets builds. Returns false if there is none of this name.
    ///
    /// # Errors
    /// Its file cannot be read or written.
    pub fn hold(&self, name: &str, held: Option<Held>) -> io::Result<bool> {
        let _lock = self.lock()?;
        let Some(member) = self.member(name)? else { return Ok(false) };
        self.write(&Member { held, ..member })?;
        Ok(true)
    }

    /// Waits for the roster's lock: several processes change its files.
    fn lock(&self) -> io::Result<std::fs::File> {
        let (file, _) = fs_err::File::create(self.folder.join("roster.lock"))?.into_parts();
        file.lock()?;
        Ok(file)
    }

    fn write(&self, member: &Member) -> io::Result<()> {
        let text = serde_json::to_string(member).map_err(io::Error::from)?;
        crate::write_private(&self.path(&member.name), &text)
    }

    /// The worker of this name.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn member(&self, name: &str) -> io::Result<Option<Member>> {
        if !is_name(name) {
            return Ok(None);
        }
        let path = self.path(name);
        match fs_err::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| io::Error::other(format!("{} is damaged: {error}", path.display()))),
        }
    }

    /// All workers, by name. One whose file is damaged is quarantined.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn members(&self) -> io::Result<Vec<Member>> {
        let mut members = Vec::new();
        for entry in fs_err::read_dir(self.folder.join(WORKERS))? {
            let name = entry?.file_name();
            if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) {
                members.extend(self.member(name).unwrap_or_else(|error| {
                    let held = Some(Held::Quarantined(error.to_string()));
                    let (name, pool) = (name.to_owned(), String::new());
                    let (key, roles) = (String::new(), BTreeSet::new());
                    Some(Member { name, key, joined_seconds: 0, pool, roles, held })
                }));
            }
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(members)
    }

    /// Removes a worker. Returns false if there is none of this name.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        if !is_name(name) {
            return Ok(false);
        }
        let _lock = self.lock()?;
        match fs_err::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    fn token(&self, secret: &str) -> PathBuf {
        self.folder.join("tokens").join(Sha256Hex::finish(Sha256::new_with_prefix(secret)).as_str())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(WORKERS).join(format!("{name}.json"))
    }
}

/// Whether a name can be that of a worker, and of a file.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_allowed)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    fn roster() -> (tempfile::TempDir, Roster, Token) {
        let folder = tempfile::tempdir().unwrap();
        let roster = Roster::open(folder.path()).unwrap();
        let token = roster.issue("a".repeat(64).parse().unwrap(), Terms::default(), 1).unwrap();
        (folder, roster, token)
    }

    #[test]
    fn a_token_admits_one_worker_once() {
        let (_folder, roster, token) = roster();
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        let member = roster.join(&token.secret, "w1", KEY, 5).unwrap();
        // The answer was lost: the same worker asks again.
        assert_eq!(roster.join(&token.secret, "w1", KEY, 9).unwrap(), member);
        assert!(matches!(roster.join(&token.secret, "w2", KEY, 5), Err(JoinError::Token)));
        let second = roster.issue(token.fingerprint, Terms::default(), 1).unwrap();
        assert_eq!(roster.join(&second.secret, "w1", KEY, 9).unwrap(), member);
        assert!(matches!(roster.join(&second.secret, "w2", KEY, 5), Err(JoinError::Token)));
        assert_eq!(roster.members().unwrap(), [member]);
        assert!(roster.remove("w1").unwrap() && !roster.remove("w1").unwrap());
        assert!(matches!(roster.join(&token.secret, "w1", KEY, 5), Err(JoinError::Token)));
    }

    #[test]
    fn wrong_requests_use_no_token() {
        let (_folder, roster, token) = roster();
        let other = "0".repeat(64);
        for name in ["", "../w", "a/b", ".w", "-w", "w\n", &"w".repeat(65), "é"] {
            assert!(matches!(roster.join(&token.secret, name, KEY, 5), Err(JoinError::Name)), "{name}");
        }
        assert!(matches!(roster.join(&token.secret, "w", "00", 5), Err(JoinError::Key)));
        assert!(matches!(roster.join(&other, "w", KEY, 5), Err(JoinError::Token)));
        assert!(matches!(roster.join("../../x", "w", KEY, 5), Err(JoinError::Token)));
        roster.join(&token.secret, "w", KEY, 5).unwrap();
        let second = roster.issue(token.fingerprint, Terms::default(), 1).unwrap();
        assert!(matches!(roster.join(&second.secret, "w", &other, 5), Err(JoinError::Taken(_))));
        roster.join(&second.secret, "x", KEY, 5).unwrap();
    }

    #[test]
    fn a_token_expires_after_a_day() {
        let (_folder, roster, token) = roster();
        let late = 2 + TOKEN_SECONDS_MAX;
        assert!(matches!(roster.join(&token.secret, "w", KEY, late), Err(JoinError::Expired)));
        assert!(matches!(roster.join(&token.secret, "w", KEY, 2), Err(JoinError::Token)));
        let token = roster.issue(token.fingerprint, Terms::default(), late).unwrap();
        // A clock that was set back.
        roster.join(&token.secret, "w", KEY, 2).unwrap();
    }

    #[test]
    fn a_token_decides_pool_and_roles_and_whether_the_user_approves() {
        let (_folder, roster, token) = roster();
        let terms =
            Terms { pool: "lab".to_owned(), roles: [Role::Build].into(), needs_approval: true, name: None };
        let token = roster.issue(token.fingerprint, terms, 1).unwrap();
        let member = roster.join(&token.secret, "w", KEY, 5).unwrap();
        assert_eq!((&*member.pool, member.roles.len(), member.held), ("lab", 1, Some(Held::Unapproved)));
        // A member of an earlier version has the default pool and all roles.
        let text = format!("{{\"name\":\"x\",\"key\":\"{KEY}\",\"joined_seconds\":1}}");
        fs_err::write(roster.path("x"), text).unwrap();
        let member = roster.member("x").unwrap().unwrap();
        assert_eq!((&*member.pool, member.roles, member.held), (DEFAULT_POOL, Role::all(), None));
    }

    #[test]
    fn a_token_for_one_name_admits_no_other_and_can_be_withdrawn() {
        let (_folder, roster, token) = roster();
        let terms = || Terms { name: Some("pilot-1".to_owned()), ..Terms::default() };
        let own = roster.issue(token.fingerprint, terms(), 1).unwrap();
        assert_eq!(roster.awaited().unwrap(), ["pilot-1".to_owned()].into());
        assert!(matches!(roster.join(&own.secret, "evil", KEY, 5), Err(JoinError::Token)));
        roster.join(&own.secret, "pilot-1", KEY, 5).unwrap();
        let second = roster.issue(token.fingerprint, terms(), 1).unwrap();
        assert!(roster.remove("pilot-1").unwrap());
        roster.withdraw("pilot-2").unwrap();
        roster.withdraw("pilot-1").unwrap();
        assert!(matches!(roster.join(&second.secret, "pilot-1", KEY, 5), Err(JoinError::Token)));
        assert!(roster.awaited().unwrap().is_empty());
        // Those for any name stay.
        roster.join(&token.secret, "w", KEY, 5).unwrap();
    }

    #[test]
    fn a_held_worker_stays_held_until_it_is_resumed() {
        let (_folder, roster, token) = roster();
        roster.join(&token.secret, "w", KEY, 5).unwrap();
        let held = Held::Quarantined("it failed everything".to_owned());
        assert!(roster.hold("w", Some(held.clone())).unwrap());
        // Joining again does not help it.
        assert_eq!(roster.join("", "w", KEY, 9).unwrap().held, Some(held));
        assert!(roster.hold("w", None).unwrap());
        assert_eq!(roster.member("w").unwrap().unwrap().held, None);
        fs_err::write(roster.path("x"), "{").unwrap();
        let members = roster.members().unwrap();
        assert!(
            members.len() == 2
                && matches!(&members[1].held, Some(Held::Quarantined(why)) if why.contains("damaged"))
        );
        assert!(!roster.hold("absent", Some(Held::Drained)).unwrap());
        assert!(!roster.hold("../w", Some(Held::Drained)).unwrap());
    }

    #[test]
    fn malformed_tokens_are_explained() {
        for text in ["", "kilnyard-join-1", "a.b.c", "kilnyard-join-1.00.00", "kilnyard-join-2.a.b"] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
        let (_folder, _, token) = roster();
        let behind = Token { proxy: Some("b".repeat(64).parse().unwrap()), ..token };
        assert_eq!(behind.to_string().parse(), Ok(behind.clone()));
        for rest in [".", ".00", &format!(".{}", "0".repeat(64))] {
            assert!(format!("{behind}{rest}").parse::<Token>().is_err(), "{rest}");
        }
    }
}
