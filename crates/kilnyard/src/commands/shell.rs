//! `kilnyard shell`: enters the root of a package's last failed build, on the machine that keeps it.

mod remote;

use crate::cli;
use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::run::host_name;
use crate::yard::{Yard, store_error};
use crate::{layers, mirror, worker};
use kilnyard_model::order::{Account, CommandOrder};
use kilnyard_store::BuildRow;
use kilnyard_worker::{Entering, Worker};
use kilnyard_yard::remedy::Remedy;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

/// How many of a package's builds are searched for the last failed one.
const BUILDS_MAX: usize = 100;

/// Runs a command in the first folder that matches a pattern, or in the current folder if none does, as a build may
/// have failed before it unpacked its source. All of it happens in the root.
const IN_SOURCE: &str = r#"
IFS=
for folder in $1; do
  if [ -d "$folder" ] && cd "$folder"; then break; fi
done
shift
exec "$@"
"#;

pub fn run(yard: &Yard, options: &cli::Shell) -> Result<ExitCode> {
    let package = &options.package;
    let builds = yard.store()?.builds_of(package, BUILDS_MAX).map_err(store_error)?;
    let failed = builds.iter().find(|build| build.failure.is_some());
    let worker = options.worker.clone().or_else(|| failed?.worker.clone());
    let command = command(yard, options);
    match worker.filter(|worker| *worker != host_name()) {
        Some(worker) => remote::run(yard, &worker, package, command),
        None => here(yard, options, &command, builds.first()),
    }
}

/// Runs the command in a root that this machine keeps.
fn here(
    yard: &Yard,
    options: &cli::Shell,
    command: &CommandOrder,
    last_build: Option<&BuildRow>,
) -> Result<ExitCode> {
    let package = &options.package;
    let worker = Worker::new(worker::settings(yard), Arc::new(mirror::open_files(yard)?));
    let order = worker.failed_root(package).context(Kind::Machine, "read what the root is made of")?;
    let Some(order) = order else {
        let error = Error::usage(format!("there is no kept root of a failed build of {package}"));
        return Err(match last_build {
            Some(build) => error.hint(
                Remedy::command(format!("why {package}"))
                    .then(format!("; the result of its last build: {}", build.outcome)),
            ),
            None => error.hint(Remedy::command(format!("why {package}"))),
        });
    };
    let local = worker::local(yard, &order, true)?;
    if let Some(lowest) = local.layers.last() {
        layers::check_owners(yard, lowest, &yard.ids())?;
    }
    if options.command.is_empty() && std::io::stdin().is_terminal() {
        say!("the root of {package}, as it failed; your changes stay until it fails again");
    }
    let specification = &yard.path(&format!("state/shell-{}.json", std::process::id()));
    let machine = yard.config.tables.settings_of(package).terms.machine;
    let entering = Entering { package, order: &order, local: &local, command, specification, machine };
    let code =
        worker.enter_failed_root(&entering, &mut |mut command| Ok(command.status()?.code().unwrap_or(1)));
    exit_code(code.context(Kind::Machine, "enter the root")?)
}

fn exit_code(code: i32) -> Result<ExitCode> {
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The command that the options name.
fn command(yard: &Yard, options: &cli::Shell) -> CommandOrder {
    let package = &options.package;
    let account = if options.root { Account::Root } else { Account::Builder };
    let mut arguments = ["/bin/sh", "-c", IN_SOURCE, "sh"].map(str::to_owned).to_vec();
    arguments.push(yard.config.family.source_pattern(package));
    match options.command.is_empty() {
        true => arguments.extend(["/bin/bash".to_owned(), "-i".to_owned()]),
        false => arguments.extend(options.command.iter().cloned()),
    }
    let terminal = environment_of_process().get("TERM").unwrap_or("dumb").to_owned();
    CommandOrder {
        arguments,
        account,
        directory: "/build".to_owned(),
        environment: vec![("TERM".to_owned(), terminal), ("PS1".to_owned(), format!("{package}:\\w\\$ "))],
    }
}
