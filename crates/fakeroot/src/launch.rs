//! Runs a command in a session, with fakeroot's options.
//!
//! [`Options::parse`] is pure. [`run`] creates the session, loads a state, starts the command, waits for it, saves
//! the state, and removes the session. Interrupts from the terminal reach the command directly, and the launcher
//! waits until it ends; termination signals are forwarded to the command.

use crate::session::{library_folders, table_folders};
use crate::shared::ownership::Unknown;
use crate::shared::program::{self, Program};
use crate::{Session, SessionError};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// The options of a fakeroot command line.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// `-i`: a state to start with.
    pub load: Option<PathBuf>,
    /// `-s`: where to save the state at the end.
    pub save: Option<PathBuf>,
    /// `-u`: files without an entry keep their real owners.
    pub is_unknown_real: bool,
    /// `--static=off`: programs that make their own system calls are not answered.
    pub is_static_off: bool,
    /// The command and its arguments; empty for a shell.
    pub command: Vec<OsString>,
}

/// The request that a command line makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Run(Options),
    /// `-h`.
    Help,
    /// `-v`.
    Version,
}

/// An invalid command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// An unknown or ambiguous option.
    #[error("{0} is not an option of fakeroot")]
    Unknown(String),
    /// An option without its value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// An option with an invalid value.
    #[error("{0} must be auto or off, not {1}")]
    Value(String, String),
}

/// The help text.
pub const USAGE: &str = "\
usage: fakeroot [-i FILE] [-s FILE] [-u] [--] [COMMAND [ARGUMENT...]]
  -i FILE                 start with the state saved in FILE
  -s FILE                 save the state in FILE when the command ends
  -u, --unknown-is-real   unchanged files keep their real owners
  -l, --lib LIBRARY       accepted and ignored: the library is part of this program
  -f, --faked PROGRAM     accepted and ignored: there is no daemon
  -b, --fd-base FD        accepted and ignored: no descriptor is kept open
  --static=auto|off       also serve programs that make their own system calls (auto), or not (off)
  -h, --help              print this help
  -v, --version           print the version
Without a command, fakeroot starts a shell. The exit status is that of the command.
";

/// Stands for `--static`, which has no short option.
const STATIC: char = '\0';

impl Options {
    /// Parses fakeroot's options as getopt(3) does with a leading `+`: the first word that is not an option starts
    /// the command.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, OptionError> {
        let mut options = Options::default();
        let mut rest = arguments.into_iter();
        while let Some(word) = rest.next() {
            let text = word.to_string_lossy().into_owned();
            if text == "--" {
                options.command = rest.collect();
                break;
            }
            let asked = if let Some(long) = text.strip_prefix("--") {
                options.take_long(long, &mut rest)?
            } else if text.len() > 1 && text.starts_with('-') {
                options.take_short(&text[1..], &mut rest)?
            } else {
                options.command = std::iter::once(word).chain(rest).collect();
                break;
            };
            if let Some(request) = asked {
                return Ok(request);
            }
        }
        Ok(Request::Run(options))
    }

    fn take_long(
        &mut self,
        text: &str,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<Option<Request>, OptionError> {
        const LONG: [(&str, char); 7] = [
            ("lib", 'l'),
            ("faked", 'f'),
            ("unknown-is-real", 'u'),
            ("fd-base", 'b'),
            ("static", STATIC),
            ("version", 'v'),
            ("help", 'h'),
        ];
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // As in getopt_long(3), a prefix of only one option's name stands for that option.
        let mut names = LONG.iter().filter(|(long, _)| !name.is_empty() && long.starts_with(name));
        let exact = LONG.iter().find(|(long, _)| *long == name);
        let letter = match (exact, names.next(), names.next()) {
            (Some((_, letter)), ..) | (None, Some((_, letter)), None) => *letter,
            _ => return Err(OptionError::Unknown(format!("--{text}"))),
        };
        self.take(letter, value.map(OsString::from), rest, &format!("--{name}"))
    }

    fn take_short(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<Option<Request>, OptionError> {
        for (at, letter) in letters.char_indices() {
            let behind = &letters[at + letter.len_utf8()..];
            let takes_value = "lfisb".contains(letter);
            let value = (takes_value && !behind.is_empty()).then(|| OsString::from(behind));
            let request = self.take(letter, value, rest, &format!("-{letter}"))?;
            if request.is_some() || takes_value {
                return Ok(request);
            }
        }
        Ok(None)
    }

    fn take(
        &mut self,
        letter: char,
        value: Option<OsString>,
        rest: &mut impl Iterator<Item = OsString>,
        shown: &str,
    ) -> Result<Option<Request>, OptionError> {
        let mut value =
            || value.clone().or_else(|| rest.next()).ok_or(OptionError::NoValue(shown.to_owned()));
        match letter {
            'i' => self.load = Some(value()?.into()),
            's' => self.save = Some(value()?.into()),
            'l' | 'f' | 'b' => drop(value()?),
            STATIC => {
                let value = value()?;
                self.is_static_off = match value.to_str() {
                    Some("auto") => false,
                    Some("off") => true,
                    _ => return Err(OptionError::Value(shown.into(), value.to_string_lossy().into_owned())),
                }
            }
            'u' => self.is_unknown_real = true,
            'h' => return Ok(Some(Request::Help)),
            'v' => return Ok(Some(Request::Version)),
            _ => return Err(OptionError::Unknown(shown.to_owned())),
        }
        Ok(None)
    }
}

/// The environment variables that a launch depends on.
#[derive(Clone, Debug, Default)]
pub struct LaunchEnvironment {
    /// TMPDIR.
    pub temporary: Option<PathBuf>,
    /// SHELL.
    pub shell: Option<OsString>,
    /// LD_PRELOAD.
    pub preload: Option<OsString>,
    /// FAKEROOTKEY.
    pub key: Option<OsString>,
    /// PATH.
    pub path: Option<OsString>,
}

/// Why a launch failed; each reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// FAKEROOTKEY shows that this process is already in a session.
    #[error("start a session inside the session {}: sessions cannot be nested", .0.display())]
    Nested(PathBuf),
    /// The session cannot be created, loaded or saved.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The command cannot be started.
    #[error("start {}", .0.display())]
    Start(PathBuf, #[source] io::Error),
    /// The command is a program of another word size or machine.
    #[error("serve {}: it is a program for another machine or word size", .0.display())]
    Foreign(PathBuf),
}

impl LaunchError {
    /// The exit status: as a shell's, 127 for a command that is not found, 126 for one that cannot be started;
    /// otherwise 1.
    pub fn code(&self) -> u8 {
        match self {
            LaunchError::Start(_, error) if error.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Start(..) | LaunchError::Foreign(_) => 126,
            _ => 1,
        }
    }
}

/// The exit status of a command, as a shell reports it.
fn code_of(status: ExitStatus) -> u8 {
    const SIGNALLED: i32 = 128;
    let code = status.code().or(status.signal().map(|signal| SIGNALLED + signal));
    code.unwrap_or(i32::from(u8::MAX)) as u8
}

/// Runs a command in a new session, and returns its exit status as a shell reports it. Warnings are passed to
/// `report`.
pub fn run(options: &Options, around: &LaunchEnvironment, report: fn(&str)) -> Result<u8, LaunchError> {
    if let Some(key) = around.key.as_ref().filter(|key| !key.is_empty()) {
        return Err(LaunchError::Nested(key.into()));
    }
    let unknown = if options.is_unknown_real { Unknown::Real } else { Unknown::Root };
    let temporary = around.temporary.as_deref();
    let mut session = Session::make(&table_folders(temporary), &library_folders(temporary), unknown)?;
    match &options.load {
        Some(path) if !path.exists() => report(&format!("the state {} does not exist", path.display())),
        Some(path) => session.load(path)?,
        None => {}
    }
    if !options.is_static_off
        && let Err(error) = session.answer(report)
    {
        report(&format!("programs that make their own system calls see real owners: {error}"));
    }
    let status = run_in(&session, options, around, report)?;
    if let Some(path) = &options.save {
        session.save(path)?;
    }
    Ok(code_of(status))
}

/// The command's process id, for forwarding termination signals; 0 before and after the command runs.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// A signal that arrived before the command's process id was available.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    let process = COMMAND.load(Ordering::Acquire);
    if process == 0 {
        EARLY.store(signal, Ordering::Release);
    } else {
        // SAFETY: kill has no preconditions and is async-signal-safe.
        unsafe { libc::kill(process, signal) };
    }
}

extern "C" fn wait_out(_: libc::c_int) {}

/// Prepares the command, started directly or by the gate.
fn command(
    session: &Session,
    words: &[OsString],
    path: Option<&OsStr>,
    report: fn(&str),
) -> Result<Command, LaunchError> {
    let program = program(&words[0], path);
    let path = program.as_deref().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let kind = path.map(|path| program::kind(&path, session.table().memory()));
    match (kind, program, session.gate_and_socket()) {
        (Some(Program::Foreign), Some(program), _) => Err(LaunchError::Foreign(program)),
        (Some(Program::Static | Program::Direct), Some(program), Some((gate, socket))) => {
            let mut command = Command::new(gate);
            command.args([socket.as_os_str(), program.as_os_str()]).args(words);
            Ok(command)
        }
        (kind, program, _) => {
            let what = match kind {
                Some(Program::Static) => Some("is a program without a dynamic linker: it sees real owners"),
                Some(Program::Direct) => Some("makes its own system calls, so it sees real owners"),
                _ => None,
            };
            if let (Some(what), Some(program)) = (what, program) {
                report(&format!("{} {what}", program.display()));
            }
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            Ok(command)
        }
    }
}

/// The file that a name refers to, as execvp(3) finds it.
fn program(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let is_there =
        |path: &PathBuf| path.metadata().is_ok_and(|facts| facts.is_file() && facts.mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_there);
    }
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    std::env::split_paths(path).map(|folder| folder.join(name)).find(is_there)
}

fn run_in(
    session: &Session,
    options: &Options,
    around: &LaunchEnvironment,
    report: fn(&str),
) -> Result<ExitStatus, LaunchError> {
    let shell = [around.shell.clone().unwrap_or("/bin/sh".into())];
    let words = if options.command.is_empty() { &shell[..] } else { &options.command };
    let mut command = command(session, words, around.path.as_deref(), report)?;
    command.envs(session.environment(around.preload.as_deref()));
    let handlers: [(libc::c_int, extern "C" fn(libc::c_int)); 4] = [
        (libc::SIGTERM, pass_on),
        (libc::SIGHUP, pass_on),
        (libc::SIGINT, wait_out),
        (libc::SIGQUIT, wait_out),
    ];
    for (signal, handler) in handlers {
        // An ignored signal stays ignored, as for nohup's commands. exec resets a handler by itself.
        // SAFETY: the handlers are async-signal-safe.
        unsafe {
            if libc::signal(signal, handler as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
    let child = command.spawn();
    // Saving a state larger than the file size limit is then an error instead of a signal. The command was started
    // before, so it keeps the signal.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut child = child.map_err(|error| LaunchError::Start(words[0].clone().into(), error))?;
    COMMAND.store(child.id() as i32, Ordering::Release);
    let early = EARLY.swap(0, Ordering::AcqRel);
    if early != 0 {
        pass_on(early);
    }
    let status = child.wait();
    COMMAND.store(0, Ordering::Release);
    status.map_err(|error| LaunchError::Start(words[0].clone().into(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Request, OptionError> {
        Options::parse(words.split_whitespace().map(OsString::from))
    }

    fn options(words: &str) -> Options {
        match parse(words) {
            Ok(Request::Run(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_word_that_is_not_an_option_starts_the_command() {
        let found = options("-u -s a -ib echo -1 -- -2");
        assert!(found.is_unknown_real);
        assert_eq!((found.save, found.load), (Some("a".into()), Some("b".into())));
        assert_eq!(found.command, ["echo", "-1", "--", "-2"]);
        assert_eq!(options("-- -u x").command, ["-u", "x"]);
        assert_eq!(options("-us f -b 3 -l lib --faked=x --lib y true").command, ["true"]);
        assert_eq!(options("-").command, ["-"]);
        assert!(options("--unknown").is_unknown_real);
    }

    #[test]
    fn static_programs_are_answered_by_default() {
        assert!(!options("true").is_static_off && !options("--static=auto true").is_static_off);
        assert!(options("--static=off true").is_static_off && options("--static off true").is_static_off);
        assert_eq!(parse("--static=on"), Err(OptionError::Value("--static".into(), "on".into())));
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        assert_eq!(parse("-x"), Err(OptionError::Unknown("-x".into())));
        assert_eq!(parse("--f"), Err(OptionError::Unknown("--f".into())));
        assert_eq!(parse("-u -s"), Err(OptionError::NoValue("-s".into())));
        assert_eq!(parse("-uv"), Ok(Request::Version));
        assert_eq!(parse("--help"), Ok(Request::Help));
    }
}
