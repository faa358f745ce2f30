//! The frames between a door and a run, over a Unix socket in the yard.
//!
//! ```text
//! length of the header (u32, big-endian) | header (JSON) | length of the body (u32) | body
//! ```
//!
//! The first header of a connection says what it is for: [`First`]. A run then sends [`ToDoor`] and receives [`ToRun`];
//! the bodies are messages of `protocol`. The socket is in the yard's folder `state`, which is closed to other users.

use crate::api::About;
use crate::roster::Held;
use kilnyard_model::backlog::Backlog;
use kilnyard_model::entitlement::Entitlement;
use kilnyard_model::holdings::Holdings;
use kilnyard_model::role::Role;
use kilnyard_model::sha256::Sha256Hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The name of the socket in the folder of a door.
const SOCKET: &str = "door.sock";
/// The longest name of a log.
const LOG_NAME_BYTES_MAX: usize = 64;

/// The largest header: some hundred thousand hashes.
const HEADER_BYTES_MAX: u32 = 16 << 20;
/// The largest body: a message of `protocol`, which has at most 64 MiB.
const BODY_BYTES_MAX: u32 = 65 << 20;

/// Calls this with a path of the socket in a folder. A socket's own path may have only 107 bytes (unix(7)), so this one
/// begins with a descriptor.
fn with_socket<T>(folder: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = fs_err::File::open(folder)?;
    call(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(SOCKET))
}

/// Listens on the socket of a door in this folder, in place of an earlier process.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn listen(folder: &Path) -> io::Result<UnixListener> {
    match fs_err::remove_file(folder.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    with_socket(folder, |path| UnixListener::bind(path))
}

/// Connects to the door of this folder.
///
/// # Errors
/// There is none.
pub fn connect(folder: &Path) -> io::Result<UnixStream> {
    with_socket(folder, |path| UnixStream::connect(path))
}

/// Whether this can be the name of a log: the part of its path that its worker chooses.
pub fn is_log_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= LOG_NAME_BYTES_MAX && name.bytes().all(is_allowed)
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum First {
    /// It is that of a run.
    Run {
        /// The yard's folder, where logs are written.
        yard: PathBuf,
        /// The folder of inputs and outputs, by hash.
        distfiles: PathBuf,
        /// Folders of further artifacts that leases name.
        archives: Vec<PathBuf>,
        /// What workers may do already, by name, if the door was started again: no request finds a run without it.
        allowed: Vec<(String, Allowed)>,
        /// Its epoch, if several machines can lead; see [`EPOCH_HEADER`](crate::api::EPOCH_HEADER).
        #[serde(default)]
        epoch: Option<String>,
    },
    /// The door answers with [`Status`], and ends the connection.
    Status,
    /// Frames of a shell follow, in both directions; see [`shell`](crate::shell).
    Shell {
        /// The worker that has the root.
        worker: String,
        /// A [`Wanted`](crate::shell::Wanted), which only the worker reads.
        order: serde_json::Value,
    },
}

/// A message of a run to a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToDoor {
    /// The worker's name.
    pub to: String,
    /// What the worker may do from now on.
    #[serde(default)]
    pub allows: Option<Allowed>,
    /// The attempt for which the worker may do nothing more.
    #[serde(default)]
    pub ends: Option<String>,
    /// The work that is left in the run. A frame with it is for the door alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Backlog>,
}

/// What a worker may do for a build that it has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    /// The build's attempt.
    pub attempt: String,
    /// The files that it may read, by hash: those of its lease and of its test.
    pub reads: Vec<Sha256Hex>,
    /// The place of its logs: the beginning of their path, relative to the yard. Absent if it is known already, or if the
    /// build is only announced: then the worker may write nothing.
    pub logs: Option<String>,
}

/// A message of a worker to the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToRun {
    /// The worker's name, which it has proved.
    pub worker: String,
}

/// The workers of a door.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where the door listens; absent if there is no door.
    pub address: Option<String>,
    /// Whether a run is in progress.
    pub has_run: bool,
    /// All workers that have joined, by name.
    pub workers: Vec<WorkerStatus>,
    /// The pools with machines on demand.
    #[serde(default)]
    pub pools: Vec<PoolStatus>,
    /// The yards that share the workers, the site's own first, with an empty name. Empty if there is no other.
    #[serde(default)]
    pub yards: Vec<YardStatus>,
}

/// A yard that shares the workers of a site, and its work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct YardStatus {
    /// Its name; empty for the site's own.
    pub name: String,
    /// What it is entitled to.
    pub entitlement: Entitlement,
    /// Whether a run of it is connected.
    pub has_run: bool,
    /// Its packages that could start.
    pub ready: usize,
    /// Its builds that are in progress.
    pub running: usize,
    /// The expected work of its packages that have not ended, in core-seconds.
    pub core_seconds: f64,
    /// What it may use in a day, and what it has used; absent if it is not bounded.
    pub quota: Option<Quota>,
}

/// What a yard may use of the farm, and has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// The core-hours that it may use within a day.
    pub core_hours: f64,
    /// Those that it has used within the last day. Those of builds in progress count as far as their stages have ended.
    pub used_core_hours: f64,
}

impl Quota {
    /// The part that was used: above 1 if more was; 1 if nothing may be.
    pub fn part(&self) -> f64 {
        if self.core_hours > 0.0 { self.used_core_hours / self.core_hours } else { 1.0 }
    }

    /// Whether nothing further starts.
    pub fn is_spent(&self) -> bool {
        self.used_core_hours >= self.core_hours
    }
}

/// A pool with machines on demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// What starts its machines: slurm, ssh and others.
    pub driver: String,
    /// The least and the most workers that it may have.
    pub least: u32,
    /// See `least`.
    pub most: u32,
    /// How many are wanted, between least and most.
    pub wanted: u32,
    /// Why.
    pub why: String,
    /// Requested, queued or running, without a worker that has joined yet.
    pub started: u32,
    /// With a connected worker that builds, or could.
    pub there: u32,
    /// Of these, those that build.
    pub busy: u32,
    /// Their workers have joined, and are not connected.
    pub away: u32,
    /// Get no builds any more, or are being ended.
    pub ending: u32,
    /// Starts since the server began.
    pub started_total: u64,
    /// Starts that failed.
    pub failed_total: u64,
    /// Gone before their workers joined.
    pub lost_total: u64,
    /// Ended after their workers had joined.
    pub ended_total: u64,
    /// Why there are fewer than wanted, the most important first.
    pub troubles: Vec<String>,
    /// Work that fits no worker, with what the nearest one lacks.
    pub misses: Vec<(String, String)>,
}

/// A worker as a door sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// When it joined, in seconds since 1970.
    pub joined_seconds: u64,
    /// The time since its last request, in seconds. Absent if there was none since the door was opened.
    pub silent_seconds: Option<f64>,
    /// The number of builds that it has.
    pub builds: usize,
    /// Its pool.
    pub pool: String,
    /// What it takes part in.
    pub roles: BTreeSet<Role>,
    /// Why it gets no builds; absent if it does.
    pub held: Option<Held>,
    /// Its machine, as it described it when it connected.
    pub about: About,
    /// How far its clock was ahead of the door's at that time, in seconds, which includes the time of the message.
    pub clock_ahead_seconds: Option<f64>,
    /// What it keeps from earlier builds, as it said last; absent if it did not say.
    pub holdings: Option<Holdings>,
    /// Whether it has said that it ends soon, and takes no more builds.
    #[serde(default)]
    pub is_ending: bool,
}

/// A frame as bytes.
///
/// # Errors
/// Header or body are too large.
pub fn frame(header: &impl Serialize, body: &[u8]) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header).map_err(io::Error::from)?;
    let length = |bytes: &[u8], max: u32| {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= max);
        length.ok_or_else(|| io::Error::other("a message to or from the door is too large"))
    };
    let mut frame = Vec::with_capacity(header.len() + body.len() + 8);
    frame.extend(length(&header, HEADER_BYTES_MAX)?.to_be_bytes());
    frame.extend(header.iter());
    frame.extend(length(body, BODY_BYTES_MAX)?.to_be_bytes());
    frame.extend(body);
    Ok(frame)
}

/// Writes a frame.
///
/// # Errors
/// It is too large, or the connection ended.
pub fn write(to: &mut impl Write, header: &impl Serialize, body: &[u8]) -> io::Result<()> {
    to.write_all(&frame(header, body)?)
}

/// Reads a frame. Returns none at the end of the connection.
///
/// # Errors
/// The connection failed, or the frame is malformed.
pub fn read<H: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(H, Vec<u8>)>> {
    read_within(from, HEADER_BYTES_MAX, BODY_BYTES_MAX)
}

/// [`read`] with other bounds on header and body, in bytes.
pub(crate) fn read_within<H: DeserializeOwned>(
    from: &mut impl Read,
    header_max: u32,
    body_max: u32,
) -> io::Result<Option<(H, Vec<u8>)>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut header = vec![0; checked(length, header_max)?];
    from.read_exact(&mut header)?;
    from.read_exact(&mut length)?;
    let mut body = vec![0; checked(length, body_max)?];
    from.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&header).map_err(io::Error::from)?, body)))
}

/// [`read`] without blocking the thread.
pub(crate) async fn receive<H: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(H, Vec<u8>)>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => drop(read?),
    }
    let mut header = vec![0; checked(length, HEADER_BYTES_MAX)?];
    from.read_exact(&mut header).await?;
    from.read_exact(&mut length).await?;
    let mut body = vec![0; checked(length, BODY_BYTES_MAX)?];
    from.read_exact(&mut body).await?;
    Ok(Some((serde_json::from_slice(&header).map_err(io::Error::from)?, body)))
}

fn checked(length: [u8; 4], max: u32) -> io::Result<usize> {
    let length = u32::from_be_bytes(length);
    if length > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too large"));
    }
    Ok(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_and_damaged_ones_are_errors() {
        let header = ToRun { worker: "w".to_owned() };
        let bytes = frame(&header, b"body").unwrap();
        let (read_header, body) = read::<ToRun>(&mut &bytes[..]).unwrap().unwrap();
        assert_eq!((read_header, &body[..]), (header, &b"body"[..]));
        assert!(read::<ToRun>(&mut &b""[..]).unwrap().is_none());
        for end in 5..bytes.len() {
            assert!(read::<ToRun>(&mut &bytes[..end]).is_err(), "{end}");
        }
        assert!(read::<ToRun>(&mut &[0xff; 64][..]).is_err());
        assert!(read::<First>(&mut &bytes[..]).is_err());
    }
}
