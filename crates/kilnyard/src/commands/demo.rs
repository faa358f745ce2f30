//! `kilnyard demo`: a repository from scratch, with one command.

use super::{build, doctor};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::init;
use crate::signals;
use crate::yard::{CONFIG, Yard};
use kilnyard_family::FAMILIES;
use kilnyard_yard::family::Demo;
use kilnyard_yard::host;
use std::path::Path;
use std::process::ExitCode;

pub fn run(folder: &Path, options: &cli::Demo) -> Result<ExitCode> {
    signals::install();
    let demo = FAMILIES.iter().find_map(|family| family.demo(options.large));
    let Demo { configuration, packages, index, repository } =
        demo.ok_or_else(|| Error::new(Kind::Internal, "no family has a demo"))?;
    let is_there = folder.join(CONFIG).exists();
    if !is_there {
        say!("Kilnyard will");
        say!("  make a yard in {}", folder.display());
        say!("  fetch {index} and verify it");
        say!("  make a base root, once");
        say!("  build {} source packages, each in a clean root: {}", packages.len(), packages.join(" "));
        say!("  test that the packages can be installed and removed");
        say!("  publish {repository}, and write a report");
        say!("It needs about 3 GB of disk space, and takes about ten minutes on two cores. Ctrl-C ends it;");
        say!("the same command resumes it.");
        say!("");
    }
    check_machine(folder, options.no_install, is_there)?;
    if !is_there {
        init::check(folder, &configuration, FAMILIES)?;
        init::write(folder, &configuration)?;
    }
    let yard = super::open(folder)?;
    if options.large {
        grow(&yard, &packages)?;
    }
    let yard = super::open(folder)?;
    init::make_key(&yard.folder)?;
    let lock = yard.lock()?;
    let arguments = cli::Build {
        packages: Vec::new(),
        force: false,
        check_reproducible: false,
        check_outputs: false,
        continued: false,
        no_scan: false,
        locked: false,
        choices: cli::Choices::default(),
        elsewhere: false,
        no_publish: false,
        publish: false,
        slots: None,
        jobs: None,
        first: Vec::new(),
        memory: None,
        dry_run: false,
        json: options.json,
        messages: None,
        picture: options.picture.clone(),
    };
    build::build(&yard, &lock, &arguments, None)
}

/// Checks the machine. As root, installs what is missing, after a message.
fn check_machine(folder: &Path, no_install: bool, is_quiet: bool) -> Result<()> {
    let findings = doctor::examine(folder);
    if findings.iter().all(|finding| finding.is_ok) {
        if !is_quiet {
            say!("{}", doctor::text(&findings).trim_end());
            say!("");
        }
        return Ok(());
    }
    say!("{}", doctor::text(&findings).trim_end());
    let packages: Vec<&str> = findings.iter().filter(|f| !f.is_ok).flat_map(|f| f.packages.clone()).collect();
    let is_root = rustix::process::geteuid().is_root();
    if no_install || !is_root || packages.is_empty() {
        return Err(Error::new(Kind::Machine, "this machine lacks some requirements; see above"));
    }
    say!("installing {} with {}", packages.join(" "), host::MANAGER);
    host::install(&packages)?;
    let findings = doctor::examine(folder);
    if findings.iter().all(|finding| finding.is_ok) {
        return Ok(());
    }
    say!("{}", doctor::text(&findings).trim_end());
    Err(Error::new(Kind::Machine, "this machine still lacks some requirements; see above"))
}

/// Adds the packages of the large demo to a yard of the small one.
fn grow(yard: &Yard, packages: &[String]) -> Result<()> {
    let known = yard.config.package_names(&yard.home)?.unwrap_or_default();
    let missing: Vec<String> = packages.iter().filter(|name| !known.contains(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let path = yard.path(CONFIG);
    let text = fs_err::read_to_string(&path).context(Kind::Machine, "read the configuration")?;
    let lines: String = missing.iter().map(|name| format!("  \"{name}\",\n")).collect();
    if !text.contains("packages = [\n") {
        let message = format!("`packages` in {} is not in the form that the demo writes", path.display());
        return Err(Error::usage(message).hint(format!("add these with an editor: {}", missing.join(" "))));
    }
    let text = text.replacen("packages = [\n", &format!("packages = [\n{lines}"), 1);
    crate::files::write_whole(&path, text.as_bytes())
}
