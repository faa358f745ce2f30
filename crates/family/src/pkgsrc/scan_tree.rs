//! `kilnyard scan --ecosystem pkgsrc --tree DIR`: scans a tree without a yard. Only directories whose answer may have
//! changed since the last scan are scanned, several in parallel.

use super::asking::{
    ScanResult, Work, began_nanoseconds, check_categories, expand, locations, locations_of_categories,
};
use super::options::{ScanFamily, ScanOptions};
use kilnyard_ecosystem::pkgsrc::ScanSettings;
use kilnyard_ecosystem::pkgsrc::kept::{Journal, KeptScan, Places};
use kilnyard_ecosystem::pkgsrc::scan_file::{is_category, is_location};
use kilnyard_ecosystem::pkgsrc::tree::{MachineMake, OPTION_CACHE_VARIABLE, TimeLimit, Tree};
use kilnyard_mirror::Sha256Hex;
use kilnyard_yard::config::seconds_of;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::program::Program;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::{files, yard};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub fn run(tree: &Path, options: &ScanOptions, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    program.catch_signals();
    let Some(ScanFamily::Pkgsrc) = options.ecosystem else {
        return Err(Error::usage("--ecosystem is missing"));
    };
    let folder = fs_err::canonicalize(tree).context(Kind::Usage, "find the tree")?;
    if !folder.join("mk").is_dir() {
        return Err(Error::usage(format!("{} is not a pkgsrc tree: it has no mk", folder.display()))
            .hint("--tree with the folder that contains mk and the categories"));
    }
    trust(&folder, options.trust_tree, program)?;
    check_categories(&folder, &options.locations)?;
    for location in options.locations.iter().filter(|name| !is_category(name)) {
        if !is_location(location) || !folder.join(location).is_dir() {
            return Err(Error::usage(format!("{location} is not a directory of {}", folder.display())));
        }
    }
    let cache = tempfile::Builder::new().prefix("kilnyard-options-").tempdir();
    let cache = cache.context(Kind::Machine, "make a folder for make's option cache")?;
    let make = MachineMake {
        folder: folder.clone(),
        make: find(&options.make, program)?,
        option_cache: cache.path().to_owned(),
        time_limit: TimeLimit {
            seconds_max: seconds_of(options.scan_minutes_max),
            setting: "--scan-minutes-max",
        },
    };
    let tree = Tree { make: &make };
    let places = Places { tree: folder.clone(), inside: None };
    let began = began_nanoseconds();
    let (facts, none) = (facts(&make)?, ScanSettings::default());
    let failed = format!("read {}", options.keep.display());
    let kept = KeptScan::read(&options.keep, &facts).context(Kind::Machine, failed)?.current(&places, &none);
    let failed = format!("write {}", options.keep.display());
    let mut journal = Journal::begin(&options.keep, &places, &facts, &none, &kept, began)
        .context(Kind::Machine, &failed)?;
    let jobs =
        options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32));
    let (order, is_partial) = match options.locations.is_empty() {
        true => {
            say!(program, "listing the categories of {}", folder.display());
            (locations(&tree, jobs)?, false)
        }
        false => {
            let categories = locations_of_categories(&tree, &options.locations, jobs)?;
            (expand(&options.locations, &categories), true)
        }
    };
    let mut work = Work::new(tree, &folder, kept.stanzas, is_partial);
    let mut order = work.scan(order, jobs, &mut journal, &failed, &|text| program.say(text))?;
    let found = work.found;
    if is_partial {
        order.sort_unstable();
    }
    if !as_json {
        export(&order, &found, options, program)?;
    }
    report(&order, &found, as_json, program)
}

/// Rejects the machine's root user without `--trust-tree`: makefiles are programs, and here they run outside a root.
fn trust(folder: &Path, is_trusted: bool, program: &dyn Program) -> Result<()> {
    if rustix::process::geteuid().is_root() && !is_trusted {
        let what = format!("the makefiles of {} would run as root of this machine", folder.display());
        let as_user = Remedy::from("run this command as an ordinary user, or scan in a root with ");
        let in_root = as_user.then_command("init pkgsrc").then(" and ").then_command("scan");
        return Err(Error::usage(what)
            .hint(in_root.then("; or use --trust-tree if you trust every file of the tree to run as root")));
    }
    say!(program, "running the makefiles of {} on this machine, as {}", folder.display(), yard::user_name());
    Ok(())
}

fn report(order: &[String], found: &ScanResult, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    let asked = order.len() as u64 - found.reused;
    if as_json {
        let failed = found
            .failed
            .iter()
            .map(|(location, error)| json!({ "location": location, "reason": error.to_string() }));
        program.print_json(&json!({
            "directories": order.len(),
            "asked": asked,
            "reused": found.reused,
            "failed": failed.collect::<Vec<_>>(),
        }))?;
    }
    for (location, error) in &found.failed {
        say!(program, "failed: {location}: {error}");
    }
    let count = order.len();
    let directories = if count == 1 { "directory" } else { "directories" };
    say!(
        program,
        "{count} {directories}: {asked} scanned, {} unchanged, {} failed",
        found.reused,
        found.failed.len()
    );
    Ok(if found.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}

/// Finds a program by path, or by name in `PATH`.
fn find(name: &Path, program: &dyn Program) -> Result<std::path::PathBuf> {
    if name.components().count() > 1 {
        return fs_err::canonicalize(name).context(Kind::Machine, "find the make program");
    }
    let path = program.environment().get("PATH").unwrap_or_default();
    let found = std::env::split_paths(path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        Error::new(Kind::Machine, format!("program {} not found", name.display()))
            .hint(Remedy::packages(&["bmake"]).then("; or --make with the bmake of a pkgsrc bootstrap"))
    })
}

/// A hash of everything except the tree that answers depend on: the make program, its environment, the system, and the
/// installed packages, because makefiles look for libraries of the system.
fn facts(make: &MachineMake) -> Result<String> {
    let program = fs_err::read(&make.make).context(Kind::Machine, "read the make program")?;
    let mut text = format!("{} {}\n", make.make.display(), Sha256Hex::of(&program).as_str());
    for (name, value) in make.environment() {
        // The cache is a new folder each time, and does not affect the answers.
        if name != OPTION_CACHE_VARIABLE {
            text.push_str(&format!("{name}={value}\n"));
        }
    }
    for path in ["/etc/os-release", "/proc/sys/kernel/ostype", "/var/lib/dpkg/status"] {
        let bytes = fs_err::read(path).unwrap_or_default();
        text.push_str(&format!("{path} {}\n", Sha256Hex::of(&bytes).as_str()));
    }
    for folder in ["/usr/pkg/pkgdb", "/var/db/pkg"] {
        let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        text.push_str(&format!("{folder} {names:?}\n"));
    }
    Ok(Sha256Hex::of(text.as_bytes()).as_str().to_owned())
}

fn export(order: &[String], found: &ScanResult, options: &ScanOptions, program: &dyn Program) -> Result<()> {
    let stanzas = || order.iter().filter_map(|location| found.stanzas.get(location));
    match &options.export {
        Some(path) if path.as_os_str() != "-" => {
            let bytes: Vec<u8> = stanzas().flatten().copied().collect();
            files::write_whole(path, &bytes)
        }
        _ => {
            let written = program.write(&mut |out| stanzas().try_for_each(|stanzas| out.write_all(stanzas)));
            written.map(|_| ())
        }
    }
}
