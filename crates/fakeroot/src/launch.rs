//! Running a command in a session: the options of fakeroot, and what is done with them.
//!
//! [`Options::parse`] is pure. [`run`] makes the session, loads a state, starts the command, waits, saves, and
//! removes the session. Interrupts from the terminal reach the command by themselves and are waited out; being asked
//! to end is passed on to it.

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

/// What fakeroot's options say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// `-i`: a state to begin with.
    pub load: Option<PathBuf>,
    /// `-s`: where the state goes at the end.
    pub save: Option<PathBuf>,
    /// `-u`: unknown files belong to whom they really belong to.
    pub is_unknown_real: bool,
    /// `--static=off`: programs that make system calls of their own are not answered.
    pub is_static_off: bool,
    /// The command; none for a shell.
    pub command: Vec<OsString>,
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Run(Options),
    /// `-h`.
    Help,
    /// `-v`.
    Version,
}

/// A command line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// An option that there is not.
    #[error("{0} is not an option of fakeroot")]
    Unknown(String),
    /// An option without its value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// A value that an option cannot have.
    #[error("{0} is auto or off, not {1}")]
    Value(String, String),
}

/// The options, for people.
pub const USAGE: &str = "\
usage: fakeroot [-i FILE] [-s FILE] [-u] [--] [COMMAND [ARGUMENT...]]
  -i FILE                 begin with the state that was saved in FILE
  -s FILE                 save the state in FILE when the command ends
  -u, --unknown-is-real   files that nobody changed belong to whom they really belong to
  -l, --lib LIBRARY       accepted and not used: the library is in this program
  -f, --faked PROGRAM     accepted and not used: there is no daemon
  -b, --fd-base FD        accepted and not used: no descriptor is kept open
  --static=auto|off       serve programs with system calls of their own too (auto), or not (off)
  -h, --help              print this
  -v, --version           print the version
Without a command a shell is started. Exit status: that of the command.
";

/// In place of a letter that `--static` does not have.
const STATIC: char = '\0';

impl Options {
    /// Reads fakeroot's options as getopt(3) does with a leading `+`: the first word that is no option begins the
    /// command.
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
        // As getopt does, a beginning that only one name has is that name.
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

/// What of the surroundings a launch depends on.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
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
    /// This already is in a session.
    #[error("begin a session within the session {}: they cannot be nested", .0.display())]
    Nested(PathBuf),
    /// There is no session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The command cannot be started.
    #[error("start {}", .0.display())]
    Start(PathBuf, #[source] io::Error),
    /// The command is a program of another kind.
    #[error("serve {}: it is a program of another machine or word length", .0.display())]
    Foreign(PathBuf),
}

impl LaunchError {
    /// The exit status for it: a shell's for a command that is not there or cannot be started, else 1.
    pub fn code(&self) -> u8 {
        match self {
            LaunchError::Start(_, error) if error.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Start(..) | LaunchError::Foreign(_) => 126,
            _ => 1,
        }
    }
}

/// The exit status of a command as a shell has it.
fn code_of(status: ExitStatus) -> u8 {
    const SIGNALLED: i32 = 128;
    let code = status.code().or(status.signal().map(|signal| SIGNALLED + signal));
    code.unwrap_or(i32::from(u8::MAX)) as u8
}

/// Runs a command in a session of its own; its exit status as a shell has it. What was passed over, and people
/// should know, is told.
pub fn run(options: &Options, around: &Surroundings, tell: fn(&str)) -> Result<u8, LaunchError> {
    if let Some(key) = around.key.as_ref().filter(|key| !key.is_empty()) {
        return Err(LaunchError::Nested(key.into()));
    }
    let unknown = if options.is_unknown_real { Unknown::Real } else { Unknown::Root };
    let temporary = around.temporary.as_deref();
    let mut session = Session::make(&table_folders(temporary), &library_folders(temporary), unknown)?;
    match &options.load {
        Some(path) if !path.exists() => tell(&format!("the state {} does not exist", path.display())),
        Some(path) => session.load(path)?,
        None => {}
    }
    if !options.is_static_off
        && let Err(error) = session.answer(tell)
    {
        tell(&format!("programs that make system calls of their own see real owners: {error}"));
    }
    let status = run_in(&session, options, around, tell)?;
    if let Some(path) = &options.save {
        session.save(path)?;
    }
    Ok(code_of(status))
}

/// The command's process, which being asked to end is passed on to; 0 before and after.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// A signal that came before the command's process was known.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    let process = COMMAND.load(Ordering::Acquire);
    if process == 0 {
        EARLY.store(signal, Ordering::Release);
    } else {
        // SAFETY: kill has no conditions and may be called in a handler.
        unsafe { libc::kill(process, signal) };
    }
}

extern "C" fn wait_out(_: libc::c_int) {}

/// The command as it is to be started: as it is, or by the gate.
fn command(
    session: &Session,
    words: &[OsString],
    path: Option<&OsStr>,
    tell: fn(&str),
) -> Result<Command, LaunchError> {
    let program = program(&words[0], path);
    let path = program.as_deref().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let kind = path.map(|path| program::kind(&path, session.table().memory()));
    match (kind, program, session.way_in()) {
        (Some(Program::Foreign), Some(program), _) => Err(LaunchError::Foreign(program)),
        (Some(Program::Static | Program::Direct), Some(program), Some((gate, socket))) => {
            let mut command = Command::new(gate);
            command.args([socket.as_os_str(), program.as_os_str()]).args(words);
            Ok(command)
        }
        (kind, program, _) => {
            let what = match kind {
                Some(Program::Static) => Some("is a program without a dynamic linker: it sees real owners"),
                Some(Program::Direct) => Some("makes system calls of its own, by which it sees real owners"),
                _ => None,
            };
            if let (Some(what), Some(program)) = (what, program) {
                tell(&format!("{} {what}", program.display()));
            }
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            Ok(command)
        }
    }
}

/// The file that a name stands for, as execvp(3) finds it.
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
    around: &Surroundings,
    tell: fn(&str),
) -> Result<ExitStatus, LaunchError> {
    let shell = [around.shell.clone().unwrap_or("/bin/sh".into())];
    let words = if options.command.is_empty() { &shell[..] } else { &options.command };
    let mut command = command(session, words, around.path.as_deref(), tell)?;
    command.envs(session.environment(around.preload.as_deref()));
    let handlers: [(libc::c_int, extern "C" fn(libc::c_int)); 4] = [
        (libc::SIGTERM, pass_on),
        (libc::SIGHUP, pass_on),
        (libc::SIGINT, wait_out),
        (libc::SIGQUIT, wait_out),
    ];
    for (signal, handler) in handlers {
        // A signal that was ignored stays so, as for nohup's commands. A handler is gone in the command by itself.
        // SAFETY: the handlers do nothing that a handler may not.
        unsafe {
            if libc::signal(signal, handler as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
    let child = command.spawn();
    // A state that is larger than a file may be is an error, and the command has the limit's own signal.
    // SAFETY: no handler runs.
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
    fn the_first_word_that_is_no_option_begins_the_command() {
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
    fn static_programs_are_answered_unless_somebody_says_no() {
        assert!(!options("true").is_static_off && !options("--static=auto true").is_static_off);
        assert!(options("--static=off true").is_static_off && options("--static off true").is_static_off);
        assert_eq!(parse("--static=on"), Err(OptionError::Value("--static".into(), "on".into())));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(parse("-x"), Err(OptionError::Unknown("-x".into())));
        assert_eq!(parse("--f"), Err(OptionError::Unknown("--f".into())));
        assert_eq!(parse("-u -s"), Err(OptionError::NoValue("-s".into())));
        assert_eq!(parse("-uv"), Ok(Request::Version));
        assert_eq!(parse("--help"), Ok(Request::Help));
    }
}
