//! `kilnyard shell`: enters the root of a package's last failed build.

use crate::cli;
use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use crate::{layers, mirror, worker};
use kilnyard_model::order::{Account, CommandOrder, RootOrder};
use kilnyard_store::Store;
use kilnyard_worker::{Entering, Worker};
use kilnyard_yard::remedy::Remedy;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

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
    let ids = yard.ids();
    let store = yard.store()?;
    let package = &options.package;
    let layers = yard
        .config
        .family
        .trees(yard)
        .ok_or_else(|| Error::usage("there is no base root yet").hint(Remedy::command("build")))?;
    let order = RootOrder { layers, ..yard.config.family.shown(yard)? };
    let local = worker::local(yard, &order, true)?;
    if let Some(lowest) = local.layers.last() {
        layers::check_owners(yard, lowest, &ids)?;
    }
    let worker = Worker::new(worker::settings(yard), Arc::new(mirror::open_files(yard)?));
    let build = store.builds_of(package, 1).map_err(store_error)?.into_iter().next();
    if !worker.has_failed_root(package) {
        let error = Error::usage(format!("there is no kept root of a failed build of {package}"));
        return Err(match build {
            Some(build) => error.hint(
                Remedy::command(format!("why {package}"))
                    .then(format!("; the result of its last build: {}", build.outcome)),
            ),
            None => error.hint(Remedy::command(format!("why {package}"))),
        });
    }
    let account = if options.root { Account::Root } else { Account::Builder };
    let mut arguments = ["/bin/sh", "-c", IN_SOURCE, "sh"].map(str::to_owned).to_vec();
    arguments.push(yard.config.family.source_pattern(package));
    match options.command.is_empty() {
        true => arguments.extend(["/bin/bash".to_owned(), "-i".to_owned()]),
        false => arguments.extend(options.command.iter().cloned()),
    }
    let terminal = environment_of_process().get("TERM").unwrap_or("dumb").to_owned();
    let command = &CommandOrder {
        arguments,
        account,
        directory: "/build".to_owned(),
        environment: vec![("TERM".to_owned(), terminal), ("PS1".to_owned(), format!("{package}:\\w\\$ "))],
    };
    if options.command.is_empty() && std::io::stdin().is_terminal() {
        say!("the root of {package}, as it failed; your changes stay until its next build");
    }
    let specification = &yard.path(&format!("state/shell-{}.json", std::process::id()));
    let entering = Entering { package, order: &order, local: &local, command, specification };
    let code = worker.enter_failed_root(&entering).context(Kind::Machine, "enter the root")?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
