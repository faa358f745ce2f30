//! `kilnyard log`: a log, opened at the first relevant line.

mod follow;

use super::{print, unknown};
use crate::cli;
use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, bring_log, store_error};
use kilnyard_ecosystem::find_excerpt;
use kilnyard_model::foreign;
use kilnyard_model::order::Stage;
use kilnyard_store::BuildRow;
use kilnyard_yard::facts::logs::{Found, log_of};
use kilnyard_yard::remedy::Remedy;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

pub fn run(yard: &Yard, options: &cli::Log) -> Result<ExitCode> {
    let store = yard.store()?;
    let builds = store.builds_of(&options.package, 5).map_err(store_error)?;
    // Other families have other stages.
    let named: Vec<&str> = Stage::ALL
        .into_iter()
        .filter(|stage| {
            let is_there = |build: &BuildRow| build.stages.iter().any(|result| result.stage == *stage);
            builds.is_empty() || builds.iter().any(is_there)
        })
        .map(Stage::as_str)
        .collect();
    let named = format!("one of: {}", named.join(", "));
    let wanted = options.stage.as_deref().map(|name| {
        Stage::parse(name).ok_or_else(|| Error::usage(format!("{name} is not a stage")).hint(named.as_str()))
    });
    let wanted = wanted.transpose()?;
    if builds.is_empty() {
        return Err(match store.planned(&options.package).map_err(store_error)? {
            Some(_) => Error::usage(format!("{} has not been built yet", options.package))
                .hint(Remedy::command(format!("why {}", options.package))),
            None => unknown(yard, &*store, &options.package)?,
        });
    }
    if options.follow
        && let Some(code) = follow::run(yard, &*store, &options.package, wanted)?
    {
        return Ok(code);
    }
    let (build, Found { relative, sha256, .. }) = builds
        .iter()
        .find_map(|build| Some((build, log_of(yard, build, wanted)?)))
        .ok_or_else(|| Error::usage(format!("{} has no such log", options.package)).hint(named.as_str()))?;
    let path = yard.path(&relative);
    if let Some(sha256) = sha256
        && let Err(error) = bring_log(yard, &path, &sha256)
    {
        say!("note: {}", error.one_line());
    }
    if options.path {
        let compressed = PathBuf::from(format!("{}.zst", path.display()));
        let path = if compressed.exists() { compressed } else { path };
        return print(&format!("{}\n", path.display()));
    }
    let text = kilnyard_process::read_log(&path).context(Kind::Usage, "read the log").map_err(|error| {
        error.hint(
            Remedy::command("clean")
                .then(" may have removed it; ")
                .then_command("history")
                .then(" shows later builds"),
        )
    })?;
    let line = match &build.failure {
        Some(failure) if relative.ends_with(&format!("{}.log", failure.stage)) => failure.line_number,
        Some(_) => find_excerpt(&text).map(|excerpt| excerpt.line_number),
        None => None,
    };
    // A build's output is untrusted: a terminal would obey its control sequences, even behind a pipe. Line breaks
    // and so line numbers stay; the file itself, which --path names, has every byte.
    show(&foreign::log(&text), line, options.all)
}

fn show(text: &str, line: Option<u64>, all: bool) -> Result<ExitCode> {
    if all || !std::io::stdout().is_terminal() {
        return print(text);
    }
    let environment = environment_of_process();
    let pager = environment.get("PAGER").filter(|pager| !pager.is_empty()).unwrap_or("less");
    let mut command = Command::new("/bin/sh");
    let position = match (line, pager.contains("less")) {
        (Some(line), true) => format!(" -R -j5 +{line}g"),
        (None, true) => " -R".to_owned(),
        _ => String::new(),
    };
    let child = command.args(["-c", &format!("{pager}{position}")]).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return print(text) };
    if let Some(mut stdin) = child.stdin.take() {
        // The pager may exit before it has read everything.
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait().or_internal("wait for the pager")?;
    Ok(ExitCode::SUCCESS)
}
