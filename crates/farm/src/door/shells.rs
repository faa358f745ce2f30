//! Shells in roots that workers keep: what the yard's end types waits here for requests of the worker, and the output
//! that the worker sends is passed to the yard's end.

use super::Shared;
use super::files::admitted;
use super::requests::{Refusal, WAIT_MAX, Worker};
use crate::api::{self, BYTES, Input, Output, Refused, Wait};
use crate::relay;
use crate::shell::{self, FromShell};
use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

/// The most bytes of output in one request.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// The most bytes of input in one answer.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// The most bytes of input that wait for a worker. With more, the yard's end waits.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// The most shells of one worker at once.
const SHELLS_MAX: usize = 8;
/// A shell is offered again if the worker has not asked for its input by then: the answer may have been lost.
const OFFERED_AGAIN: Duration = Duration::from_secs(5);
/// How long a worker may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// How long a worker may ask for no input.
const SILENT_MAX: Duration = Duration::from_secs(90);
/// How long a request with output waits until the yard's end reads. Proxies end requests that take longer.
const ROOM_MAX: Duration = Duration::from_secs(25);
/// How often a shell is checked for these.
const STEP: Duration = Duration::from_secs(1);

/// The shells of a door.
#[derive(Debug, Default)]
pub struct Shells {
    open: Mutex<BTreeMap<String, Arc<Shell>>>,
    /// Signals a new shell to the workers that wait for one.
    opened: Notify,
}

/// A shell.
#[derive(Debug)]
struct Shell {
    id: String,
    worker: String,
    order: Value,
    opened: Instant,
    progress: Mutex<Progress>,
    /// Signals input, or the end, to the worker's request.
    filled: Notify,
    /// Signals room for input to the yard's end.
    emptied: Notify,
    /// The number of bytes of output that have arrived. It is locked while a part is passed on.
    arrived: tokio::sync::Mutex<u64>,
    /// Takes output for the yard's end.
    output: mpsc::Sender<Bytes>,
}

#[derive(Debug, Default)]
struct Progress {
    /// When the worker was last given the order.
    offered: Option<Instant>,
    /// When the worker last asked for input.
    asked: Option<Instant>,
    /// Input that has not arrived at the worker yet.
    input: Vec<u8>,
    /// The number of bytes before it.
    offset: u64,
    is_over: bool,
}

impl Shells {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Shell>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a shell of a worker; none if the worker has too many.
    fn add(&self, worker: &str, order: Value, output: mpsc::Sender<Bytes>) -> Option<Arc<Shell>> {
        let mut open = self.open();
        if open.values().filter(|shell| shell.worker == worker).count() >= SHELLS_MAX {
            return None;
        }
        let shell = Arc::new(Shell {
            id: crate::random_hex(),
            worker: worker.to_owned(),
            order,
            opened: Instant::now(),
            progress: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            arrived: tokio::sync::Mutex::new(0),
            output,
        });
        open.insert(shell.id.clone(), shell.clone());
        drop(open);
        self.opened.notify_waiters();
        Some(shell)
    }

    fn remove(&self, shell: &Shell) {
        self.open().remove(&shell.id);
        shell.progress().is_over = true;
        shell.filled.notify_waiters();
    }

    /// A shell that a worker has not taken yet.
    fn offer(&self, worker: &str, now: Instant) -> Option<api::Shell> {
        let open = self.open();
        let shell = open.values().find(|shell| shell.worker == worker && shell.is_due(now))?;
        shell.progress().offered = Some(now);
        Some(api::Shell { id: shell.id.clone(), order: shell.order.clone() })
    }

    /// The shell with this id, if it is this worker's.
    fn of(&self, worker: &str, id: &str) -> Result<Arc<Shell>, Refusal> {
        let shell = self.open().get(id).filter(|shell| shell.worker == worker).cloned();
        shell.ok_or_else(over)
    }
}

impl Shell {
    /// The state. It is never locked across a wait.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self, now: Instant) -> bool {
        let progress = self.progress();
        let is_offered = progress.offered.is_some_and(|offered| now.duration_since(offered) < OFFERED_AGAIN);
        progress.asked.is_none() && !is_offered
    }

    fn has_room(&self) -> bool {
        self.progress().input.len() < WAITING_BYTES_MAX
    }

    fn add_input(&self, bytes: &[u8]) {
        self.progress().input.extend_from_slice(bytes);
        self.filled.notify_waiters();
    }

    /// The input from an offset on, before which all has arrived. Empty if there is none yet.
    fn input_from(&self, offset: u64, now: Instant) -> Result<Vec<u8>, Refusal> {
        let mut progress = self.progress();
        if progress.is_over {
            return Err(over());
        }
        progress.asked = Some(now);
        let arrived = offset.checked_sub(progress.offset).and_then(|arrived| usize::try_from(arrived).ok());
        let Some(arrived) = arrived.filter(|arrived| *arrived <= progress.input.len()) else {
            let reason = format!("the input that waits begins at {}", progress.offset);
            return Err(Refusal(StatusCode::CONFLICT, reason));
        };
        progress.input.drain(..arrived);
        progress.offset = offset;
        let part = progress.input.len().min(INPUT_BYTES_MAX);
        let part = progress.input[..part].to_vec();
        drop(progress);
        self.emptied.notify_one();
        Ok(part)
    }

    /// Why the worker has lost the shell, if it has.
    fn lost(&self, now: Instant) -> Option<String> {
        let worker = &self.worker;
        match self.progress().asked {
            None if now.duration_since(self.opened) > BEGIN_MAX => {
                Some(format!("{worker} does not start the shell; its program may be of an earlier version"))
            }
            Some(asked) if now.duration_since(asked) > SILENT_MAX => Some(format!("{worker} is silent")),
            _ => None,
        }
    }
}

fn over() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "the shell is over".to_owned())
}

/// Why a worker cannot have a shell now.
fn refused(shared: &Shared, worker: &str) -> io::Result<Option<String>> {
    if shared.roster.member(worker)?.is_none() {
        return Ok(Some(format!("there is no worker {worker}")));
    }
    let silent = shared.state().seen(worker, Instant::now()).silent;
    let is_connected = silent.is_some_and(|silent| silent < SILENT_MAX);
    Ok((!is_connected).then(|| format!("{worker} is not connected")))
}

/// Serves the yard's end of a shell until it or the worker ends it.
pub async fn serve(
    shared: &Shared,
    worker: &str,
    order: Value,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    if let Some(reason) = refused(shared, worker)? {
        return writer.write_all(&shell::failed(&reason)?).await;
    }
    let (output, outgoing) = mpsc::channel(4);
    let Some(opened) = shared.shells.add(worker, order, output) else {
        let reason = format!("{worker} has {SHELLS_MAX} shells, the maximum");
        return writer.write_all(&shell::failed(&reason)?).await;
    };
    // Also if this task is dropped.
    let _closing = Closing { shells: &shared.shells, shell: &opened };
    converse(&opened, outgoing, reader, writer).await
}

struct Closing<'a> {
    shells: &'a Shells,
    shell: &'a Shell,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.shells.remove(self.shell);
    }
}

async fn converse(
    opened: &Shell,
    mut outgoing: mpsc::Receiver<Bytes>,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut ticks = tokio::time::interval(STEP);
    let mut buffer = vec![0; INPUT_BYTES_MAX];
    loop {
        tokio::select! {
            read = reader.read(&mut buffer), if opened.has_room() => match read? {
                0 => return Ok(()),
                count => opened.add_input(&buffer[..count]),
            },
            // The sender lives as long as the shell.
            Some(bytes) = outgoing.recv() => writer.write_all(&bytes).await?,
            () = opened.emptied.notified() => {}
            _ = ticks.tick() => {
                if let Some(reason) = opened.lost(Instant::now()) {
                    return writer.write_all(&shell::failed(&reason)?).await;
                }
                if !opened.has_room() {
                    // Nothing is read, so this alone fails once the yard's end is gone.
                    writer.write_all(&relay::frame(&FromShell::Output, b"")?).await?;
                }
            }
        }
    }
}

/// Takes the next shell that the worker is to start, and waits for one.
///
/// A shell runs in a root that the worker keeps of a failed build. One that is not begun, by a request for its input, is
/// offered again.
#[utoipa::path(
    get,
    path = "/v1/shells",
    params(Wait),
    responses(
        (status = 200, description = "A shell.", body = api::Shell),
        (status = 204, description = "There is none."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn next(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Query(wait): Query<Wait>,
) -> Response {
    let end = tokio::time::Instant::now() + Duration::from_secs(wait.wait).min(WAIT_MAX);
    loop {
        // Before the check, so that no shell is missed after it.
        let mut opened = std::pin::pin!(shared.shells.opened.notified());
        opened.as_mut().enable();
        if let Some(shell) = shared.shells.offer(&worker, Instant::now()) {
            return Json(shell).into_response();
        }
        let again = tokio::time::Instant::now() + OFFERED_AGAIN;
        let is_silent = tokio::time::timeout_at(end.min(again), opened).await.is_err();
        if is_silent && tokio::time::Instant::now() >= end {
            return StatusCode::NO_CONTENT.into_response();
        }
    }
}

/// Takes input of a shell from an offset on, and waits for it.
#[utoipa::path(
    get,
    path = "/v1/shells/{id}/input",
    params(("id" = String, Path, description = "The shell's id."), Input),
    responses(
        (status = 200, description = "Frames, or a part of one.", body = api::Bytes, content_type = BYTES),
        (status = 204, description = "There is none yet."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 404, description = "The shell is over: end it.", body = Refused),
        (status = 409, description = "The input before the offset was not taken, or the offset was passed.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn input(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Path(id): Path<String>,
    Query(Input { offset, wait }): Query<Input>,
) -> Result<Response, Refusal> {
    let end = tokio::time::Instant::now() + Duration::from_secs(wait).min(WAIT_MAX);
    let shell = shared.shells.of(&worker, &id)?;
    loop {
        let mut filled = std::pin::pin!(shell.filled.notified());
        filled.as_mut().enable();
        let part = shell.input_from(offset, Instant::now())?;
        if !part.is_empty() {
            return Ok(part.into_response());
        }
        if tokio::time::timeout_at(end, filled).await.is_err() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
}

/// Sends output of a shell. What has arrived already changes nothing.
#[utoipa::path(
    post,
    path = "/v1/shells/{id}/output",
    params(("id" = String, Path, description = "The shell's id."), Output),
    request_body(content = api::Bytes, content_type = BYTES, description = "Frames, or a part of one: at most 256 KiB."),
    responses(
        (status = 202, description = "It has not arrived, since the yard's end reads nothing now: send it again."),
        (status = 204, description = "It has arrived."),
        (status = 401, description = "The session is unknown or over.", body = Refused),
        (status = 404, description = "The shell is over: end it.", body = Refused),
        (status = 409, description = "Output before the offset is missing.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("session" = [])),
)]
pub async fn output(
    State(shared): State<Arc<Shared>>,
    Worker(worker): Worker,
    Path(id): Path<String>,
    Query(Output { offset }): Query<Output>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let (shell, body) = admitted(shared.shells.of(&worker, &id), body).await?;
    let mut arrived = shell.arrived.lock().await;
    // Only now, so that a shell has one request in memory, and a request without a shell none.
    let bytes = tokio::time::timeout(ROOM_MAX, to_bytes(body, OUTPUT_BYTES_MAX));
    let bytes =
        bytes.await.map_err(|_| Refusal(StatusCode::REQUEST_TIMEOUT, "it arrives too slowly".to_owned()))?;
    let bytes = bytes.map_err(|error| Refusal(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    let known = arrived.checked_sub(offset).and_then(|known| usize::try_from(known).ok());
    let known = known.ok_or_else(|| {
        Refusal(StatusCode::CONFLICT, format!("{} bytes of the output have arrived", *arrived))
    })?;
    if known < bytes.len() {
        let new = bytes.slice(known..);
        // Nothing has arrived if the request ends before there is room.
        let room = match tokio::time::timeout(ROOM_MAX, shell.output.reserve()).await {
            Ok(room) => room.map_err(|_| over())?,
            Err(_) => return Ok(StatusCode::ACCEPTED),
        };
        *arrived += new.len() as u64;
        room.send(new);
    }
    Ok(StatusCode::NO_CONTENT)
}
