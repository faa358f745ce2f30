//! Commands that the yard's end converses with: shells of its users, in the roots of failed builds that this worker keeps; and the
//! signer of this machine.

use super::join::PAUSE;
use kilnyard_farm::Shell;
use kilnyard_farm::client::{Client, ClientError};
use kilnyard_farm::relay::frame;
use kilnyard_farm::shell::{self, FromShell, PART_BYTES_MAX, Size, ToShell, Wanted};
use kilnyard_process::Terminal;
use kilnyard_worker::{Entering, Local, Worker};
use kilnyard_yard::signing::{self, ToSigner};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Frames that wait to be sent.
const WAITING_MAX: usize = 16;
/// Frames are sent together up to this size, in bytes, which the door accepts with one more.
const REQUEST_BYTES_MAX: usize = 128 << 10;
/// A shell ends if the door cannot be reached for this long.
const LOST: Duration = Duration::from_secs(120);
/// The pause before a door that knows no shells is asked again: it may be replaced by a newer one.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(60);
/// How often the door is asked for more while a command does not read what it has.
const ALIVE: Duration = Duration::from_secs(10);
/// How often a command is checked for its end.
const STEP: Duration = Duration::from_millis(20);

/// Starts a command and converses with it to its end. Returns its exit code.
type Start<'a> = dyn FnMut(Command, Option<Size>) -> io::Result<i32> + 'a;

/// See the module documentation.
#[derive(Clone)]
pub struct Shells {
    pub client: Arc<Client>,
    pub host: Host,
    /// The worker's name.
    pub name: String,
}

/// What this machine offers.
#[derive(Clone)]
pub enum Host {
    /// Roots of failed builds.
    Roots {
        /// The worker that keeps them.
        worker: Worker,
        /// The worker's folder.
        folder: PathBuf,
    },
    /// A signer in this folder.
    Signer(PathBuf),
}

impl Shells {
    /// Starts a thread that takes shells until the connection is closed.
    pub fn start(self) {
        thread::spawn(move || self.take());
    }

    fn take(&self) {
        let running = Arc::new(Mutex::new(HashSet::new()));
        while !self.client.is_closed() {
            match self.client.next_shell() {
                Ok(Some(shell)) => {
                    // It is offered again if the first request for its input takes long.
                    if !running.lock().unwrap_or_else(PoisonError::into_inner).insert(shell.id.clone()) {
                        continue;
                    }
                    let (shells, running) = (self.clone(), running.clone());
                    thread::spawn(move || {
                        shells.serve(&shell);
                        running.lock().unwrap_or_else(PoisonError::into_inner).remove(&shell.id);
                    });
                }
                Ok(None) => {}
                Err(error) if error.is_passing() => thread::sleep(PAUSE),
                Err(_) => thread::sleep(UNKNOWN_PAUSE),
            }
        }
    }

    fn serve(&self, shell: &Shell) {
        let (frames, to_send) = mpsc::sync_channel(WAITING_MAX);
        let connection = Arc::new(Connection {
            client: self.client.clone(),
            id: shell.id.clone(),
            is_over: AtomicBool::new(false),
        });
        let sending = thread::spawn({
            let connection = connection.clone();
            move || connection.send(&to_send)
        });
        let ended = self.run(shell, &connection, &frames);
        let last = match ended {
            Ok(code) => frame(&FromShell::Exited { code }, b""),
            Err(reason) => shell::failed(&reason),
        };
        // Without its thread the shell is over.
        let _ = last.map(|last| frames.send(last));
        drop(frames);
        let _ = sending.join();
        connection.is_over.store(true, Ordering::Relaxed);
    }

    /// Runs the command to its end, and returns its exit code, or why it could not be run.
    fn run(
        &self,
        shell: &Shell,
        connection: &Arc<Connection>,
        frames: &SyncSender<Vec<u8>>,
    ) -> Result<i32, String> {
        let mut start = |command: Command, terminal: Option<Size>| {
            Started::start(command, terminal)?.converse(connection, frames)
        };
        match &self.host {
            Host::Roots { worker, folder } => self.enter(worker, folder, shell, &mut start),
            Host::Signer(folder) => self.sign(folder, shell, &mut start),
        }
    }

    /// Lets the yard's end talk to the signer.
    fn sign(&self, folder: &Path, shell: &Shell, start: &mut Start<'_>) -> Result<i32, String> {
        if serde_json::from_value::<ToSigner>(shell.order.clone()).is_err() {
            return Err(format!("{} is a signer, and keeps no roots", self.name));
        }
        let failed = |error: io::Error| format!("{}: the signer cannot start: {error}", self.name);
        let command = signing::process::command(folder).map_err(failed)?;
        start(command, None).map_err(failed)
    }

    /// Runs a command in the root of a package.
    fn enter(
        &self,
        worker: &Worker,
        folder: &Path,
        shell: &Shell,
        start: &mut Start<'_>,
    ) -> Result<i32, String> {
        let wanted: Wanted = serde_json::from_value(shell.order.clone())
            .map_err(|error| format!("{} cannot read the request: {error}", self.name))?;
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let order = worker.failed_root(&wanted.package).map_err(|error| failed(&error))?;
        let order = order
            .ok_or_else(|| format!("{} keeps no root of a failed build of {}", self.name, wanted.package))?;
        let local = Local::of(&order, worker.trees(), folder, &worker.settings().folders);
        let local = local.map_err(|error| failed(&error))?;
        let id = shell.id.get(..16).unwrap_or_default();
        let specification = &folder.join(format!("state/shell-{id}.json"));
        let (package, command) = (wanted.package.as_str(), &wanted.command);
        say!("a shell of the yard enters the root of {package}");
        let machine = wanted.machine;
        let entering = Entering { package, order: &order, local: &local, command, specification, machine };
        let code = worker.enter_failed_root(&entering, &mut |command| start(command, wanted.terminal));
        code.map_err(|error| failed(&error))
    }
}

/// A command that runs, and its standard input and output.
struct Started {
    child: Child,
    terminal: Option<Terminal>,
    input: Box<dyn Write + Send>,
    outputs: Vec<(FromShell, Box<dyn Read + Send>)>,
}

impl Started {
    fn start(mut command: Command, terminal: Option<Size>) -> io::Result<Started> {
        if let Some(Size { columns, rows }) = terminal {
            let (terminal, child) = Terminal::start(command, columns, rows)?;
            let (input, screen) = (Box::new(terminal.keyboard()?), Box::new(terminal.screen()?));
            let outputs: Vec<(FromShell, Box<dyn Read + Send>)> = vec![(FromShell::Output, screen)];
            return Ok(Started { child, terminal: Some(terminal), input, outputs });
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let lost = || io::Error::other("a pipe of the command is missing");
        let input = Box::new(child.stdin.take().ok_or_else(lost)?);
        let outputs: Vec<(FromShell, Box<dyn Read + Send>)> = vec![
            (FromShell::Output, Box::new(child.stdout.take().ok_or_else(lost)?)),
            (FromShell::Errors, Box::new(child.stderr.take().ok_or_else(lost)?)),
        ];
        Ok(Started { child, terminal: None, input, outputs })
    }

    /// Passes input and output on until the command ends, or the shell is over. Returns the exit code.
    fn converse(self, connection: &Arc<Connection>, frames: &SyncSender<Vec<u8>>) -> io::Result<i32> {
        let Started { mut child, terminal, input, outputs } = self;
        let connected = connection.clone();
        // Not waited for: it may wait for input at the door when the command has ended.
        thread::spawn(move || connected.type_in(input, terminal.as_ref()));
        let reading = outputs.into_iter().map(|(header, output)| {
            let frames = frames.clone();
            thread::spawn(move || pass_on(&header, output, &frames))
        });
        let reading: Vec<thread::JoinHandle<()>> = reading.collect();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if connection.is_over.load(Ordering::Relaxed) {
                // The processes below it end with it.
                child.kill()?;
            }
            thread::sleep(STEP);
        };
        for thread in reading {
            let _ = thread.join();
        }
        Ok(status.code().unwrap_or(1))
    }
}

/// Writes what was typed, to its end or until the command has closed it.
fn type_parts(mut input: impl Write, typed: &Receiver<Vec<u8>>) {
    while let Ok(part) = typed.recv() {
        if input.write_all(&part).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

/// Sends what a command prints, to its end.
fn pass_on(header: &FromShell, mut output: impl Read, frames: &SyncSender<Vec<u8>>) {
    let mut bytes = vec![0; PART_BYTES_MAX];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let Ok(frame) = frame(header, &bytes[..count]) else { return };
        if frames.send(frame).is_err() {
            return;
        }
    }
}

/// A shell's connection to the door.
struct Connection {
    client: Arc<Client>,
    id: String,
    /// Whether the yard's end is gone.
    is_over: AtomicBool,
}

impl Connection {
    /// Sends frames in their order until the shell is over. Then they are dropped.
    fn send(&self, frames: &Receiver<Vec<u8>>) {
        let mut offset = 0;
        while let Ok(mut part) = frames.recv() {
            while part.len() < REQUEST_BYTES_MAX {
                let Ok(more) = frames.try_recv() else { break };
                part.extend(more);
            }
            while self.repeated(&|| self.client.shell_output(&self.id, offset, &part)) == Some(false) {}
            offset += part.len() as u64;
        }
    }

    /// Passes on what is typed, until the shell is over. A command that does not read it holds up nothing else: the end of
    /// the shell arrives by the same requests.
    fn type_in(&self, input: impl Write + Send + 'static, terminal: Option<&Terminal>) {
        let (typed, to_type) = mpsc::sync_channel(WAITING_MAX);
        // Not waited for: it ends with the command, or with the sender.
        thread::spawn(move || type_parts(input, &to_type));
        let mut typed = Some(typed);
        let mut incoming = Incoming { connection: self, offset: 0, bytes: io::Cursor::new(Vec::new()) };
        while let Ok(Some((header, body))) = shell::read::<ToShell>(&mut incoming) {
            match header {
                ToShell::Input => {
                    if typed.as_ref().is_some_and(|typed| !self.queue(typed, body, incoming.offset)) {
                        typed = None;
                    }
                }
                ToShell::EndOfInput => typed = None,
                ToShell::Size(Size { columns, rows }) => {
                    let _ = terminal.map(|terminal| terminal.resize(columns, rows));
                }
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Queues a part of the input, however long the command takes to read. Returns false if it never will.
    fn queue(&self, typed: &SyncSender<Vec<u8>>, mut part: Vec<u8>, offset: u64) -> bool {
        let mut asked = Instant::now();
        loop {
            part = match typed.try_send(part) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(part)) => part,
            };
            if asked.elapsed() > ALIVE {
                asked = Instant::now();
                // It is asked for again when there is room. This says that the shell is alive, or finds that it is over.
                if self.repeated(&|| self.client.shell_input(&self.id, offset)).is_none() {
                    return false;
                }
            }
            thread::sleep(STEP);
        }
    }

    /// Repeats a request while that may help. None if the shell is over.
    fn repeated<T>(&self, request: &dyn Fn() -> Result<T, ClientError>) -> Option<T> {
        let mut failing_since = None;
        while !self.is_over.load(Ordering::Relaxed) {
            match request() {
                Ok(answer) => return Some(answer),
                Err(error) if error.is_passing() => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > LOST {
                        break;
                    }
                    thread::sleep(PAUSE);
                }
                Err(_) => break,
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
        None
    }
}

/// The bytes that arrive for a shell.
struct Incoming<'a> {
    connection: &'a Connection,
    offset: u64,
    bytes: io::Cursor<Vec<u8>>,
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.bytes.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            let Connection { client, id, .. } = self.connection;
            let Some(more) = self.connection.repeated(&|| client.shell_input(id, self.offset)) else {
                return Ok(0);
            };
            self.offset += more.len() as u64;
            self.bytes = io::Cursor::new(more);
        }
    }
}
