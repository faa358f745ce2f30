//! The commands, a file each.

mod artifacts;
mod bench;
mod build;
mod clean;
mod demo;
mod deps;
mod diff;
mod doctor;
pub mod fakeroot;
mod hazards;
mod history;
mod init;
mod keys;
mod lease;
mod log;
mod manual;
mod mirror;
mod notify;
mod people;
mod plan;
mod pools;
mod provenance;
mod publish;
mod report;
mod requests;
mod restore;
mod root;
mod scan;
mod serve;
mod service;
mod shell;
mod signer;
mod simulate;
mod status;
mod store;
mod tries;
mod tune;
mod watch;
mod why;
mod worker;
mod workers;

use crate::cli::{self, Arguments, Command, Given};
use crate::environment::Environment;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use crate::{environment_of_process, family, input, signals, words};
use clap::FromArgMatches;
use kilnyard_family::FAMILIES;
use kilnyard_model::foreign;
use kilnyard_store::Store;
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Performs the commands of families that must start fast, without parsing the command line.
pub fn answer_at_once() -> Option<Result<ExitCode>> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(WORDS_AT_ONCE_MAX).collect();
    let console = Console::new(PathBuf::new(), None, false);
    FAMILIES.iter().find_map(|family| family.answer_at_once(&words, &console))
}

/// One more than the number of arguments of such a command, so that extra ones are noticed.
const WORDS_AT_ONCE_MAX: usize = 5;

/// Performs a command line.
pub fn run(given: Given) -> Result<ExitCode> {
    let console = Console::new(given.yard, given.target, given.is_foreign);
    if let Some((name, arguments)) = given.arguments.subcommand() {
        for family in FAMILIES {
            if let Some(code) = family.perform(name, arguments, &console)? {
                return Ok(code);
            }
        }
    }
    let arguments = Arguments::from_arg_matches(&given.arguments).unwrap_or_else(|error| error.exit());
    let yard = || console.yard();
    if matches!(arguments.command, Command::Publish(_) | Command::Signer(_) | Command::Keys(_)) {
        kilnyard_yard::signing::process::ask_with(input::secret);
    }
    match arguments.command {
        Command::Demo(ref options) => demo::run(&console.folder, options),
        Command::Init(options) => init::run(&console.folder, &options, &console),
        Command::Doctor(json) => doctor::run(&console.folder, json.json),
        Command::Scan(options) => each(&console, &|yard| scan::run(yard, &options, &console)),
        Command::Plan(options) => each(&console, &|yard| plan::run(yard, &options)),
        Command::Build(options) => {
            each(&console, &|yard| build::run(yard.clone(), &options, console.target.as_deref()))
        }
        Command::Status(options) => each(&console, &|yard| status::run(yard, &options)),
        Command::Log(options) => log::run(&yard()?, &options),
        Command::Why(options) => why::run(&yard()?, &options),
        Command::Deps(options) => deps::deps(&yard()?, &options),
        Command::Rdeps(options) => deps::rdeps(&yard()?, &options),
        Command::Impact(options) => deps::impact(&yard()?, &options),
        Command::History(options) => history::run(&yard()?, &options),
        Command::Provenance(options) => provenance::run(&yard()?, &options),
        Command::Diff(options) => diff::run(&yard()?, &options),
        Command::Report(options) => report::run(&yard()?, &options),
        Command::Notify(options) => notify::run(&yard()?, &options),
        Command::Watch(options) => watch::run(&yard()?, &options),
        Command::Service(options) => service::run(&yard()?, &options),
        Command::Retry(names) => requests::run(&yard()?, kilnyard_store::RequestKind::Retry, &names.packages),
        Command::Skip(names) => requests::run(&yard()?, kilnyard_store::RequestKind::Skip, &names.packages),
        Command::Bump(names) => requests::run(&yard()?, kilnyard_store::RequestKind::Bump, &names.packages),
        Command::Shell(options) => shell::run(&yard()?, &options),
        Command::Hazards(options) => hazards::run(yard, &options),
        Command::Root(cli::Root::Plan(options)) => root::plan(&yard()?, &options),
        Command::Root(cli::Root::Requests(options)) => root::requests(yard, &options),
        Command::Try(options) => tries::run(&console.whole()?, console.target.as_deref(), &options),
        Command::Publish(options) => each(&console, &|yard| publish::run(yard, &options)),
        Command::Clean(options) => each(&console, &|yard| clean::run(yard, &options)),
        Command::Lease(options) => lease::run(&yard()?, &options),
        Command::Serve(options) if options.openapi => serve::openapi(),
        Command::Serve(options) => {
            serve::standby::prepare(&console.folder, &options)?;
            serve::run(&console.whole()?, &options)
        }
        Command::Worker(options) => worker::run(&options),
        Command::Signer(options) => signer::run(&options),
        Command::Keys(options) => keys::run(|| console.whole(), &options),
        Command::Mirror(options) => mirror::run(&options),
        Command::People(options) => people::run(&console.whole()?, &options),
        Command::Pools(options) => pools::run(&console.whole()?, &options),
        Command::Workers(options) => workers::run(&console.whole()?, &options),
        Command::Store(command) => each(&console, &|yard| store::run(yard, &command)),
        Command::Artifacts(command) => artifacts::run(&console.whole()?, &command),
        Command::Restore(options) => restore::run(&yard()?, &options),
        Command::Simulate(options) => simulate::run(yard, &options),
        Command::Fakeroot { words } => Ok(fakeroot::run(words)),
        Command::Bench(options) => bench::run(yard, &options),
        Command::Tune(options) => tune::run(&yard()?, &options),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}

/// The program as seen by the commands of families.
pub struct Console {
    /// The folder given by `--yard`.
    folder: PathBuf,
    /// The target given by `--target`.
    target: Option<String>,
    /// Whether it may belong to another user.
    is_foreign: bool,
    environment: Environment,
}

impl Console {
    fn new(folder: PathBuf, target: Option<String>, is_foreign: bool) -> Console {
        Console { folder, target, is_foreign, environment: environment_of_process() }
    }

    /// The yard as a whole, without a choice of target.
    fn whole(&self) -> Result<Yard> {
        match self.is_foreign {
            true => Yard::open_of_anyone(&self.folder, FAMILIES, &self.environment),
            false => self.yard_in(&self.folder),
        }
    }

    /// The targets that the command is for: those given by `--target`, or all.
    fn targets(&self) -> Result<Vec<Yard>> {
        let whole = self.whole()?;
        match &self.target {
            Some(word) => whole.targets_named(word),
            None => whole.targets(),
        }
    }
}

/// Runs a command for each target, one after another. An error of one target does not stop the others; an interruption
/// does. The highest exit code counts.
fn each(console: &Console, run: &dyn Fn(&Yard) -> Result<ExitCode>) -> Result<ExitCode> {
    let targets = console.targets()?;
    if let [yard] = &targets[..] {
        words::name_target(yard.target_name.as_deref());
        return run(yard);
    }
    let (mut highest, mut failed) = (None, Vec::new());
    for yard in &targets {
        let name = yard.target_name.as_deref().unwrap_or_default();
        words::name_target(Some(name));
        say!("target {name}:");
        match run(yard) {
            Ok(code) => highest = highest.max(kind_of(code)),
            Err(error) if error.kind == Kind::Interrupted => return Err(error),
            Err(error) => {
                say!("{error}");
                highest = highest.max(Some(error.kind));
                failed.push(name);
            }
        }
        if signals::count() > 0 {
            break;
        }
    }
    match (highest, &failed[..]) {
        (None, _) => Ok(ExitCode::SUCCESS),
        (Some(kind), []) => Ok(ExitCode::from(kind as u8)),
        (Some(kind), _) => Err(Error::new(kind, format!("it failed for {}; see above", failed.join(", ")))),
    }
}

/// The kind of error that an exit code stands for; absent for success.
fn kind_of(code: ExitCode) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| code == ExitCode::from(*kind as u8))
}

impl Program for Console {
    fn say(&self, line: &str) {
        say!("{line}");
    }

    fn print(&self, text: &str) -> Result<ExitCode> {
        print(text)
    }

    fn write(&self, write: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>) -> Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        printed(write(&mut out).and_then(|()| out.flush()))
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        input::read(path)
    }

    fn catch_signals(&self) {
        signals::install();
    }

    fn environment(&self) -> &Environment {
        &self.environment
    }

    fn yard(&self) -> Result<Yard> {
        let mut targets = self.targets()?;
        match (targets.pop(), &targets[..]) {
            (Some(yard), []) => {
                words::name_target(yard.target_name.as_deref());
                Ok(yard)
            }
            (last, _) => {
                targets.extend(last);
                let names = targets.iter().filter_map(|yard| yard.target_name.as_deref());
                let names = names.collect::<Vec<_>>().join(", ");
                Err(Error::usage(format!("this yard has several targets: {names}"))
                    .hint("--target NAME, with the name, the release or the architecture of one"))
            }
        }
    }

    fn each(&self, run: &dyn Fn(&Yard) -> Result<ExitCode>) -> Result<ExitCode> {
        each(self, run)
    }

    fn yard_in(&self, folder: &Path) -> Result<Yard> {
        Yard::open(folder, FAMILIES, &self.environment)
    }
}

/// Opens the yard in this folder.
fn open(folder: &Path) -> Result<Yard> {
    Yard::open(folder, FAMILIES, &environment_of_process())
}

/// Scans the yard if it was never scanned, so that queries have an answer.
fn ensure_scanned(yard: &Yard) -> Result<()> {
    signals::install();
    family::ensure_scanned(yard, signals::cancel(), &|text| say!("{text}"))
}

/// Writes a text to standard output, with terminal control sequences escaped.
fn print(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    printed(out.write_all(foreign::text(text).as_bytes()).and_then(|()| out.flush()))
}

/// Lines that a terminal shows in a colour, by how they begin: the SGR parameter (ECMA-48).
const COLOURS: [(&str, &str); 12] = [
    ("failed as expected", "33"),
    ("failed", "31"),
    ("newly failing", "31"),
    ("newly fixed", "32"),
    ("waits", "33"),
    ("slower", "33"),
    ("larger", "33"),
    ("  because", "1"),
    ("  try", "36"),
    ("run ", "1"),
    ("minimum", "2"),
    ("path", "2"),
];

/// Writes a text to standard output as [`print()`] does, with colours if that is a terminal and `NO_COLOR` is not set.
fn print_coloured(text: &str) -> Result<ExitCode> {
    let no_colour = environment_of_process().get("NO_COLOR").is_some_and(|value| !value.is_empty());
    if no_colour || !std::io::stdout().is_terminal() {
        return print(text);
    }
    let shown = foreign::text(text);
    let coloured = shown.split_inclusive('\n').map(|line| {
        let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
        match COLOURS.iter().find(|(begin, _)| words.starts_with(begin)) {
            Some((_, colour)) => format!("\x1b[{colour}m{words}\x1b[0m{end}"),
            None => line.to_owned(),
        }
    });
    let coloured: String = coloured.collect();
    let mut out = std::io::stdout().lock();
    printed(out.write_all(coloured.as_bytes()).and_then(|()| out.flush()))
}

/// The result of writing to standard output. A closed pipe is not an error; a full disk is.
fn printed(written: std::io::Result<()>) -> Result<ExitCode> {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.context(Kind::Machine, "write to standard output").map(|()| ExitCode::SUCCESS),
    }
}

/// Prints build data as JSON, with the fields in the order of their type.
fn print_data(value: &impl serde::Serialize) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(value).or_internal("write JSON")?;
    print(&format!("{}\n", words::json_text(&text)))
}

/// Prints a value as JSON.
fn print_json(value: &serde_json::Value) -> Result<ExitCode> {
    print(&format!("{}\n", words::json_text(&format_args!("{value:#}"))))
}

/// The last run of a yard.
fn last_run(yard: &Yard, store: &dyn Store) -> Result<kilnyard_store::RunRow> {
    store.last_run().map_err(store_error)?.ok_or_else(|| {
        Error::usage(format!("nothing has been built in {} yet", yard.folder.display()))
            .hint(Remedy::command("build"))
    })
}

/// The error for a package without records.
fn unknown(yard: &Yard, store: &dyn Store, name: &str) -> Result<Error> {
    let known: Vec<String> = match store.plan().map_err(store_error)? {
        Some(plan) => plan.packages.into_iter().map(|row| row.package.name).collect(),
        None => yard.config.package_names(&yard.home)?.unwrap_or_default(),
    };
    if known.iter().any(|known| known == name) {
        return Ok(Error::usage(format!("there is no record of {name} yet")).hint(Remedy::command("build")));
    }
    unplanned(yard, name, &known)
}

/// The error for a name that the plan does not have.
fn unplanned(yard: &Yard, name: &str, known: &[String]) -> Result<Error> {
    // Only the set knows which packages are the archive's. A set that cannot be resolved has its own error elsewhere.
    if yard.config.family.check_scanned(yard).is_ok()
        && let Ok(set) = yard.config.family.resolve(yard, &crate::mirror::open_files(yard)?)
        && let Some(error) = crate::plan::reused(&*set.ecosystem(), name)
    {
        return Ok(error);
    }
    Ok(unknown_package(name, known))
}

/// The error for an unknown name, with similar names as hints.
fn unknown_package(name: &str, known: &[String]) -> Error {
    let error = Error::usage(format!("{name} is not a package of this yard"));
    let mut near: Vec<&String> =
        known.iter().filter(|other| other.contains(name) || name.contains(other.as_str())).collect();
    if near.is_empty() {
        near.extend(known.iter().filter(|other| words::is_near(name, other)));
    }
    near.truncate(3);
    match near[..] {
        [] => error.hint(Remedy::command("plan --all").then(", which lists all packages")),
        _ => {
            let near: Vec<&str> = near.iter().map(|name| name.as_str()).collect();
            error.hint(format!("one of: {}", near.join(", ")))
        }
    }
}
