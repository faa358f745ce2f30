//! `kilnyard shell`: enters the root of a package's last failed build.

use crate::cli;
use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use crate::{layers, worker};
use kilnyard_model::order::{Account, CommandOrder, RootOrder};
use kilnyard_root::Nesting;
use kilnyard_store::Store;
use kilnyard_worker::RootFolder;
use kilnyard_yard::remedy::Remedy;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Runs a command in the first folder that a pattern finds, or where it is: a build may have failed before it unpacked its
/// source. All of it happens in the root.
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
    let root =
        RootFolder::of_failed(&yard.folder, package, &ids, &local.layers).of_root_order(&order, &local);
    let build = store.builds_of(package, 1).map_err(store_error)?.into_iter().next();
    if !root.path().is_dir() {
        let error = Error::usage(format!("no root of a failed build of {package} is kept"));
        return Err(match build {
            Some(build) => error.hint(
                Remedy::command(format!("why {package}"))
                    .then(format!("; its last build came to: {}", build.outcome)),
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
    let order = CommandOrder {
        arguments,
        account,
        directory: "/build".to_owned(),
        environment: vec![("TERM".to_owned(), terminal), ("PS1".to_owned(), format!("{package}:\\w\\$ "))],
    };
    let root = root.with_session().context(Kind::Machine, "enter the root")?;
    let nesting = match yard.config.build.namespaces.contains(package) {
        true => Nesting::Allowed,
        false => Nesting::Refused,
    };
    // Its session lasts as long as it does.
    let root = root.nesting(nesting);
    let mut sandbox = root.sandbox(&order);
    sandbox.is_interactive = true;
    if options.command.is_empty() && std::io::stdin().is_terminal() {
        tell!("the root of {package}, as it failed; what you change stays until its next build");
    }
    let specification = yard.path(&format!("state/shell-{}.json", std::process::id()));
    let code = sandbox.run_interactively(&specification).context(Kind::Machine, "enter the root")?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
