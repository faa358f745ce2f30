//! `kilnyard demo`: from nothing to a repository with one command.

use super::{build, doctor, init};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::signals;
use crate::yard::{CONFIG, Yard};
use kilnyard_mirror::without_password;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const RELEASE: &str = "bookworm";

/// Twelve sources with real edges among them.
const SET: &[&str] =
    &["zlib", "lz4", "xxhash", "popt", "attr", "libmd", "acl", "libbsd", "minizip", "jq", "rsync", "libonig"];
/// What `--large` adds.
const MORE: &[&str] =
    &["bzip2", "lzo2", "libpng1.6", "libdeflate", "file", "readline", "lua5.4", "squashfs-tools"];

pub fn run(folder: &Path, options: &cli::Demo) -> Result<ExitCode> {
    signals::install();
    let mut packages: Vec<String> = SET.iter().map(|name| (*name).to_owned()).collect();
    if options.large {
        packages.extend(MORE.iter().map(|name| (*name).to_owned()));
    }
    let mirror = init::mirror_for(RELEASE);
    let is_there = folder.join(CONFIG).exists();
    if !is_there {
        tell!("Kilnyard will");
        tell!("  make a yard in {}", folder.display());
        tell!("  fetch Debian {RELEASE}'s index from {} and verify it", without_password(&mirror));
        tell!("  make a base root, once");
        tell!("  build {} source packages, each in a clean root: {}", packages.len(), packages.join(" "));
        tell!("  test that what they make installs and goes away again");
        tell!("  publish a signed apt repository, and write a report");
        tell!("It needs about 3 GB of disk, and some ten minutes on two cores. Ctrl-C ends it; the same");
        tell!("command goes on where it ended.");
        tell!("");
    }
    check_machine(folder, options.no_install, is_there)?;
    if !is_there {
        init::make(folder, RELEASE, &mirror, &packages)?;
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
        no_scan: false,
        no_publish: false,
        slots: None,
        jobs: None,
        first: Vec::new(),
        memory: None,
        dry_run: false,
        json: options.json,
    };
    build::build(&yard, &lock, &arguments)
}

/// Examines the machine; as root installs what is missing, after saying so.
fn check_machine(folder: &Path, no_install: bool, is_quiet: bool) -> Result<()> {
    let findings = doctor::examine(folder);
    if findings.iter().all(|finding| finding.is_ok) {
        if !is_quiet {
            tell!("{}", doctor::text(&findings).trim_end());
            tell!("");
        }
        return Ok(());
    }
    tell!("{}", doctor::text(&findings).trim_end());
    let packages: Vec<&str> = findings.iter().filter(|f| !f.is_ok).flat_map(|f| f.packages.clone()).collect();
    let is_root = rustix::process::geteuid().is_root();
    if no_install || !is_root || packages.is_empty() {
        return Err(Error::new(Kind::Machine, "this machine lacks something, see above"));
    }
    tell!("installing {} with apt-get", packages.join(" "));
    let apt = |arguments: &[&str]| {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        status.context(Kind::Machine, "run apt-get")
    };
    let mut arguments = vec!["install", "--yes", "--no-install-recommends", "-qq"];
    arguments.extend(&packages);
    if !apt(&arguments)?.success() {
        // The lists may be old or absent.
        apt(&["update", "-qq"])?;
        if !apt(&arguments)?.success() {
            let hint = format!("apt-get install {}", packages.join(" "));
            return Err(Error::new(Kind::Machine, "apt-get could not install what is missing").hint(hint));
        }
    }
    let findings = doctor::examine(folder);
    if findings.iter().all(|finding| finding.is_ok) {
        return Ok(());
    }
    tell!("{}", doctor::text(&findings).trim_end());
    Err(Error::new(Kind::Machine, "this machine still lacks something, see above"))
}

/// Puts the packages of the large demo into a yard that was made for the small one.
fn grow(yard: &Yard, packages: &[String]) -> Result<()> {
    let known = yard.config.package_names(&yard.folder)?.unwrap_or_default();
    let missing: Vec<String> = packages.iter().filter(|name| !known.contains(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let path = yard.path(CONFIG);
    let text = fs_err::read_to_string(&path).context(Kind::Machine, "read the configuration")?;
    let lines: String = missing.iter().map(|name| format!("  \"{name}\",\n")).collect();
    if !text.contains("packages = [\n") {
        let message = format!("`packages` of {} is not written as the demo writes it", path.display());
        return Err(Error::usage(message).hint(format!("an editor, which adds {}", missing.join(" "))));
    }
    let text = text.replacen("packages = [\n", &format!("packages = [\n{lines}"), 1);
    crate::files::write_whole(&path, text.as_bytes())
}
