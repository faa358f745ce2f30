//! What the door of a farm decodes that workers send, and what workers decode that the door sends.

use crate::text;
use kilnyard_farm::api::{
    Began, Challenge, For, Input, Join, Joined, Missing, Output, Outputs, Part, Proof, Refused, Shell, Wait,
    WaitForMessage,
};
use kilnyard_farm::encoding::{packed, unpacked};
use kilnyard_farm::identity::Fingerprint;
use kilnyard_farm::proof::is_proved;
use kilnyard_farm::relay::{self, First, Status, ToDoor, ToRun, is_log_name};
use kilnyard_farm::roster::{JoinError, Member, Roster, Token};
use kilnyard_farm::shell::{self, FromShell, ToShell, Wanted};
use kilnyard_mirror::Sha256Hex;
use kilnyard_protocol::{ToCoordinator, ToWorker, encode_as, open};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

/// More than any seed unpacks to, and little enough for thousands of inputs.
const UNPACKED_BYTES_MAX: usize = 1 << 20;
/// The secret of the token in the folder of [`join`].
const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// The times of the token, and of the join.
const TIMES_SECONDS: (u64, u64) = (1000, 2000);

/// A body or query that is read is written in a form that reads as the same.
fn same<T: Serialize>(read: T, again: impl Fn(&T) -> T) -> T {
    let value = serde_json::to_value(&read).unwrap();
    assert_eq!(serde_json::to_value(again(&read)).unwrap(), value);
    read
}

fn body<T: Serialize + DeserializeOwned>(data: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(data).ok()?;
    Some(same(read, |read| serde_json::from_slice(&serde_json::to_vec(read).unwrap()).unwrap()))
}

fn query<T: Serialize + DeserializeOwned>(text: &str) {
    if let Ok(read) = serde_urlencoded::from_str::<T>(text) {
        same(read, |read| serde_urlencoded::from_str(&serde_urlencoded::to_string(read).unwrap()).unwrap());
    }
}

/// The bodies and queries of requests and answers, messages of the protocol in their envelope, compressed or not, and names
/// in paths.
pub fn bodies(data: &[u8]) {
    body::<Challenge>(data);
    body::<Outputs>(data);
    body::<Began>(data);
    body::<Joined>(data);
    body::<Missing>(data);
    body::<Refused>(data);
    if let Some(shell) = body::<Shell>(data) {
        // As the worker reads it.
        let _ = serde_json::from_value::<Wanted>(shell.order);
    }
    if let Some(Proof { challenge, proof, about, .. }) = body(data) {
        let door: Fingerprint = SECRET.parse().unwrap();
        // None of these texts is a key whose owner could have signed this.
        for key in [&challenge, &proof, &about.kernel] {
            assert!(!is_proved(key, door, &challenge, &proof));
        }
    }
    match unpacked(data, UNPACKED_BYTES_MAX) {
        Ok(message) => {
            assert!(message.len() <= UNPACKED_BYTES_MAX);
            envelope(&message);
        }
        Err(_) => envelope(data),
    }
    if let Some(packed) = packed(data) {
        assert!(packed.len() < data.len());
        assert_eq!(unpacked(&packed, data.len()).unwrap(), data);
        assert!(unpacked(&packed, data.len() - 1).is_err());
    }
    let Some(text) = text(data) else { return };
    query::<Wait>(text);
    query::<WaitForMessage>(text);
    query::<For>(text);
    query::<Part>(text);
    query::<Input>(text);
    query::<Output>(text);
    if is_log_name(text) {
        assert!(text.len() <= 64 && !text.contains(['/', '.', '\0', '\n']));
    }
}

/// A message that is opened is encoded, and opened again, as the same.
fn envelope(data: &[u8]) {
    fn once<T: DeserializeOwned + Serialize + PartialEq + Debug>(data: &[u8]) {
        let Ok(opened) = open::<T>(data) else { return };
        let encoded = encode_as(opened.version, &opened.capabilities, &opened.body).unwrap();
        let again = open::<T>(&encoded).unwrap();
        assert_eq!((again.version, again.body), (opened.version, opened.body));
    }
    once::<ToCoordinator>(data);
    once::<ToWorker>(data);
}

/// All files below a folder, relative to it.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(files_in(&entry.path(), &name)),
            false => drop(files.insert(name)),
        }
    }
    files
}

fn files_in(folder: &Path, name: &str) -> impl Iterator<Item = String> {
    files(folder).into_iter().map(move |file| format!("{name}/{file}"))
}

/// A worker joins in a folder with one token. Whatever it says, only that token admits it, once, and only its own file is
/// written.
pub fn join(data: &[u8]) {
    if let Some(text) = text(data) {
        if let Ok(token) = text.parse::<Token>() {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        let _ = Fingerprint::of_key_in(data);
    }
    let Some(join) = body::<Join>(data) else { return };
    let folder = tempfile::tempdir().unwrap();
    let roster = Roster::open(folder.path()).unwrap();
    let token = format!("tokens/{}", Sha256Hex::of(SECRET.as_bytes()));
    let (issued, now) = TIMES_SECONDS;
    let terms = r#"{"pool":"default","roles":["build"],"needs_approval":false}"#;
    let text = format!(r#"{{"at_seconds":{issued},"terms":{terms}}}"#);
    std::fs::write(folder.path().join(&token), text).unwrap();
    let joined = roster.join(&join.secret, &join.name, &join.key, now);
    let mut left = files(folder.path());
    left.remove("roster.lock");
    match joined {
        Ok(Member { name, key, .. }) => {
            assert_eq!((join.secret.as_str(), &name, &key), (SECRET, &join.name, &join.key));
            assert_eq!(left, BTreeSet::from([format!("workers/{name}.json")]));
            let again = roster.join(&join.secret, &name, &key, now);
            assert_eq!(again.unwrap(), roster.member(&name).unwrap().unwrap());
            let other = format!("{}x", &name[..1]);
            if other != name {
                assert!(matches!(roster.join(SECRET, &other, &key, now), Err(JoinError::Token)));
            }
        }
        Err(error) => {
            assert!(!matches!(error, JoinError::Io(_) | JoinError::Expired | JoinError::Taken(_)), "{error}");
            assert_eq!(left, BTreeSet::from([token]));
        }
    }
}

/// Frames, one after another, until one is malformed.
fn all<H>(
    mut data: &[u8],
    read: impl Fn(&mut &[u8]) -> std::io::Result<Option<(H, Vec<u8>)>>,
) -> Vec<(H, Vec<u8>)> {
    std::iter::from_fn(|| read(&mut data).ok().flatten()).collect()
}

/// The frames of shells, which workers send and receive through the door, and those between the door and a run.
pub fn frames(data: &[u8]) {
    fn between<H: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
        for (header, body) in all(data, |from| relay::read::<H>(from)) {
            let frame = relay::frame(&header, &body).unwrap();
            assert_eq!(relay::read::<H>(&mut &frame[..]).unwrap(), Some((header, body)));
        }
    }
    fn of_shell<H: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
        for (header, body) in all(data, |from| shell::read::<H>(from)) {
            assert!(body.len() <= shell::PART_BYTES_MAX);
            let frame = relay::frame(&header, &body).unwrap();
            assert_eq!(shell::read::<H>(&mut &frame[..]).unwrap(), Some((header, body)));
        }
    }
    of_shell::<FromShell>(data);
    of_shell::<ToShell>(data);
    between::<First>(data);
    between::<ToRun>(data);
    between::<ToDoor>(data);
    between::<Status>(data);
    // Whatever a worker says last, the reason fits into a frame.
    let reason = String::from_utf8_lossy(data);
    let failed = shell::failed(&reason).unwrap();
    let (header, _) = shell::read::<FromShell>(&mut &failed[..]).unwrap().unwrap();
    assert!(matches!(header, FromShell::Failed { reason: kept } if reason.starts_with(&kept)));
    // A whole `Value` for the order of a shell, of any depth.
    let _ = serde_json::from_slice::<Value>(data).map(serde_json::from_value::<Wanted>);
}
