//! `kilnyard worker --join`: takes part in the builds of a yard on another machine.

use super::member::{Bounds, Member};
use super::others::{self, Others};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use crate::{environment_of_process, input, signals, worker};
use kilnyard_farm::About;
use kilnyard_farm::client::{Client as Connection, ClientError as ConnectionError};
use kilnyard_farm::identity::{Fingerprint, Pin};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::roster::Token;
use kilnyard_model::host::Host;
use kilnyard_process::{pressure, time_of_day_seconds};
use kilnyard_schedule::Machine;
use kilnyard_worker::{SharedMachine, forget_kept_work};
use kilnyard_yard::remedy::Remedy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The file of a membership in the worker's folder.
const MEMBERSHIP: &str = "state/membership.json";
/// The file of the worker's key.
const KEY: &str = "state/worker.key";
/// With less free space in its folder, a worker takes no builds: 1 GiB.
pub const FREE_BYTES_MIN: u64 = 1 << 30;
/// The pause after a request that failed.
pub const PAUSE: Duration = Duration::from_secs(2);

/// The yard that a worker has joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Membership {
    url: String,
    door: Fingerprint,
    worker: String,
    /// The key of the proxy at the address. Absent if the door itself is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<Fingerprint>,
    /// Further servers of the farm, as one of them said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
}

impl Membership {
    /// Records it in the worker's folder.
    fn keep(&self, folder: &Path) -> Result<()> {
        let failed = "record the membership";
        let (path, text) = (folder.join(MEMBERSHIP), serde_json::to_string(self).or_internal(failed)?);
        let making = path.with_extension("new");
        fs_err::write(&making, text)
            .and_then(|()| fs_err::rename(making, path))
            .context(Kind::Machine, failed)
    }

    fn connection(&self, key: WorkerKey) -> Result<Connection> {
        let server = match self.proxy {
            Some(proxy) => Pin::Key { proxy, certificate: self.door },
            None => Pin::Certificate(self.door),
        };
        let connection = Connection::through(&self.url, server, self.door, &self.worker, key);
        let connection = connection.map(|connection| connection.with_addresses(&self.others));
        connection.map_err(|error| explained(&error, &self.url))
    }
}

pub fn run(options: &cli::Worker) -> Result<ExitCode> {
    signals::install();
    let folder = std::path::absolute(&options.folder).context(Kind::Usage, "find the worker's folder")?;
    Yard::make_folders(&folder)?;
    let _lock = lock(&folder)?;
    let joining = Joining { url: &options.join, token_file: &options.token_file, name: &options.name };
    let (membership, connection) = connect(&joining, &folder)?;
    let own = worker::settings_without_yard(&folder, BTreeMap::new(), &environment_of_process());
    let cores = options.cores.unwrap_or(own.jobs);
    let machine = Machine { memory_bytes: pressure::available_bytes(), ..Machine::of_cores(cores) };
    let connection = match &options.mirror {
        Some(url) => connection.with_mirror(url).context(Kind::Usage, "use the mirror of this site")?,
        None => connection,
    };
    let connection = Arc::new(connection.with_about(about(&machine, &folder), time_of_day_seconds));
    let Membership { url, worker: name, .. } = membership.clone();
    let bounds = Bounds {
        machine,
        roots: options.roots.roots(),
        keep_bytes: options.keep.0,
        grace: Duration::from_secs(options.grace),
    };
    let shared = SharedMachine::new(machine.oversubscribed().cores, machine.memory_bytes);
    let member = Member {
        folder: folder.clone(),
        site: folder.clone(),
        connection: connection.clone(),
        name: name.clone(),
        key: open_key(&folder)?,
        tenant: shared.tenant(""),
        bounds,
        yard: None,
    };
    let started = member.prepare()?;
    say!("worker {name} of {url}: {} cores; it waits for builds, and Ctrl-C ends it", machine.cores);
    let others = Others::start(&member, shared);
    let ended = started.perform(move |addresses| learn(&membership, &folder, addresses));
    others.end();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Keeps the addresses of all servers of the farm, if they are others than those that are kept.
fn learn(membership: &Membership, folder: &Path, addresses: Vec<String>) {
    let learned = Membership { others: addresses, ..membership.clone() };
    // If this fails, the worker knows them until it is started again.
    let _ = learned.keep(folder);
}

/// The description of this machine for `kilnyard workers`. Builds are in this folder.
fn about(machine: &Machine, folder: &Path) -> About {
    let Host { kernel, cpu } = kilnyard_worker::host();
    About {
        cores: machine.cores,
        memory_bytes: machine.memory_bytes,
        kernel,
        cpu,
        architecture: std::env::consts::ARCH.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        conditions: kilnyard_worker::conditions(folder),
        // The connection adds it when it begins a session.
        clock_seconds: None,
    }
}

/// Takes the lock of the worker's folder.
pub fn lock(folder: &Path) -> Result<std::fs::File> {
    let failed = format!("lock {}", folder.display());
    let file = fs_err::File::create(folder.join("state/lock")).context(Kind::Machine, &failed)?;
    let (file, _) = file.into_parts();
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::usage(format!("another worker uses {}", folder.display()))
                .hint("--folder FOLDER, with a folder of its own for each worker"))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error).context(Kind::Machine, failed),
    }
}

/// How to join a yard: all absent once it is joined.
pub struct Joining<'a> {
    pub url: &'a Option<String>,
    pub token_file: &'a Option<PathBuf>,
    pub name: &'a Option<String>,
}

/// Joins as something that is no worker, or connects to the yard that it has joined. Returns its name and the yard's address.
pub fn connect_as_other(joining: &Joining<'_>, folder: &Path) -> Result<(String, String, Connection)> {
    let (Membership { url, worker, .. }, connection) = connect(joining, folder)?;
    let connection = connection.with_about(about(&Machine::of_cores(1), folder), time_of_day_seconds);
    Ok((worker, url, connection))
}

/// Joins, or connects to the yard that the worker has joined.
fn connect(options: &Joining<'_>, folder: &Path) -> Result<(Membership, Connection)> {
    let path = folder.join(MEMBERSHIP);
    let failed = format!("read {}", path.display());
    let known: Option<Membership> = match fs_err::read(&path) {
        Ok(text) => Some(serde_json::from_slice(&text).context(Kind::Usage, &failed)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(Kind::Machine, failed),
    };
    let key = open_key(folder)?;
    let token = options.token_file.as_deref().map(token).transpose()?;
    let membership = match (options.url, token, known) {
        (Some(url), Some(token), known) => {
            // Its earlier name, if it joins the same yard by another way.
            let known = known.filter(|known| known.door == token.fingerprint);
            let (name, is_other_yard) = (known.as_ref().map(|known| known.worker.clone()), known.is_none());
            let worker = options.name.clone().or(name).unwrap_or_else(crate::run::host_name);
            let joined = Membership {
                url: url.clone(),
                door: token.fingerprint,
                worker,
                proxy: token.proxy,
                others: Vec::new(),
            };
            match known {
                Some(known) if known.url == joined.url && known.proxy == joined.proxy => known,
                _ => {
                    let connection = joined.connection(key)?;
                    connection.join(&token.secret).map_err(|error| explained(&error, url))?;
                    // Kept work of another yard has no place in this one.
                    if is_other_yard {
                        let failed = "remove the kept work of another yard";
                        forget_kept_work(folder).context(Kind::Machine, failed)?;
                        others::forget_kept_work_of_all(folder).context(Kind::Machine, failed)?;
                    }
                    joined.keep(folder)?;
                    return Ok((joined, connection));
                }
            }
        }
        (None, _, Some(known)) => known,
        (Some(url), None, Some(known)) => Membership { url: url.clone(), ..known },
        (_, None, None) | (None, Some(_), None) => {
            return Err(Error::usage("this worker has not joined a yard yet").hint(
                "kilnyard worker --join URL --token-file FILE; `kilnyard serve` prints both on the yard's machine",
            ));
        }
    };
    let connection = membership.connection(key)?;
    Ok((membership, connection))
}

fn open_key(folder: &Path) -> Result<WorkerKey> {
    WorkerKey::open(&folder.join(KEY)).context(Kind::Machine, "read the worker's key")
}

fn token(path: &Path) -> Result<Token> {
    let failed = format!("read the token in {}", path.display());
    let text = input::read(path).context(Kind::Usage, &failed)?;
    let text = String::from_utf8_lossy(&text);
    text.parse::<Token>().map_err(|reason| {
        let mut error = Error::usage(format!("failed to {failed}"));
        error.causes.push(reason.to_owned());
        error.hint(Remedy::command("workers token").then(", on the yard's machine, which prints a new one"))
    })
}

fn explained(error: &ConnectionError, url: &str) -> Error {
    let kind = if error.is_passing() { Kind::Machine } else { Kind::Usage };
    let mut made = Error::new(kind, format!("failed to join {url}"));
    made.causes.push(error.to_string());
    match error {
        ConnectionError::Connection(_) => {
            made.hint("check that `kilnyard serve` runs there, and that this machine reaches its port")
        }
        ConnectionError::OtherDoor => made.hint(
            "for a proxy in front of the server: `kilnyard workers token --certificate FILE` on the yard's machine",
        ),
        ConnectionError::Refused(_) => made.hint(
            "a token is used once: `kilnyard workers token` on the yard's machine prints a new one; --name NAME changes the name",
        ),
        _ => made,
    }
}
