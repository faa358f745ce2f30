//! `kilnyard try`: builds a proposed change and all that it affects, in a yard of its own, and says what fails newly.

pub mod used;

use super::{open, print, print_json};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::family::Set;
use crate::mirror;
use crate::run::door;
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::LeftOut;
use kilnyard_farm::relay;
use kilnyard_model::graph::PackageId;
use kilnyard_model::result::PackageState;
use kilnyard_store::Store;
use kilnyard_yard::tries::{self, Note, Try};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// A day, in seconds.
const DAY: f64 = 86_400.0;
/// How long `kilnyard serve` may take to serve a new try.
const SERVED_MAX: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);

/// Tries changes in the targets that `target` names, or in all.
pub fn run(yard: &Yard, target: Option<&str>, options: &cli::Try) -> Result<ExitCode> {
    if let Some(name) = &options.remove {
        let folder = tries::folder_of(yard, name);
        let folder = folder.ok_or_else(|| Error::usage(format!("there is no try {name}")))?;
        remove(yard, &folder, tries::all(yard)?.iter().find(|known| known.folder == folder))?;
        say!("the try {name} is removed");
        return Ok(ExitCode::SUCCESS);
    }
    if options.list {
        return list(yard, options.json);
    }
    if let Some(word) = target {
        yard.targets_named(word)?;
    }
    remove_old(yard)?;
    let author = options.author.clone().unwrap_or_else(kilnyard_yard::yard::user_name);
    let others = tries::all(yard)?;
    let most = yard.config.tries.most as usize;
    if others.iter().filter(|known| known.note.author == author).count() >= most {
        let message = format!("{author} has {} already", words::count(most as u64, "try"));
        return Err(Error::usage(message).hint("kilnyard try --list, then --remove NAME; or most in [try]"));
    }
    if let Some(bound) = yard.config.tries.core_hours_per_day {
        let used = used::by(yard, &author)?;
        if used >= bound {
            let message = format!("{author} has used {used:.3} of {bound} core-hours within the last day");
            return Err(Error::usage(message)
                .hint("try again when earlier builds are a day old; or core-hours-per-day in [try]"));
        }
    }
    let name = options.name.clone().unwrap_or_else(|| next_name(yard));
    let now = words::now_seconds();
    let ends_seconds = now + DAY * f64::from(yard.config.tries.keep_days);
    let note = Note { author, changes: options.changes.clone(), made_seconds: now, ends_seconds };
    say!("making the try {name}");
    let folder = tries::make(yard, &name, &note)?;
    let tried = open(&folder)?;
    let is_elsewhere = options.elsewhere || is_served(yard, &tried);
    if tried.config.family.scans_tries(&options.changes) {
        let scanned = program(&folder, None).arg("scan").status().context(Kind::Machine, "scan the try")?;
        if !scanned.success() {
            say!("the try {name} stays; kilnyard --yard {} scan tries it again", folder.display());
            return Ok(ExitCode::from(Kind::Machine as u8));
        }
    }
    let pairs = pairs(yard, &tried, target)?;
    if let Some(left) = unresolved(&pairs, &options.changes)? {
        remove(yard, &folder, None)?;
        let mut error = Error::usage(format!("{} cannot be built with this change", left.name));
        error.causes.push(left.explanation);
        return Err(error.hint("kilnyard plan shows what the yard has"));
    }
    // Before anything is built: what fails here fails all of it.
    let mut to_build = Vec::new();
    for Pair { before, after, .. } in &pairs {
        to_build.push(affected(before, after, &options.changes)?);
    }
    for (pair, affected) in pairs.iter().zip(&to_build).filter(|(_, affected)| !affected.is_empty()) {
        let tried = &pair.after;
        let mut build = program(&folder, tried.target_name.as_deref());
        build.args(["build", "--no-scan"]).args(affected);
        if is_elsewhere {
            build.arg("--elsewhere");
        }
        let status = build.status().context(Kind::Machine, "build the try")?;
        if status.code() == Some(Kind::Interrupted as i32) || status.code().is_none() {
            say!("the try {name} stays; kilnyard --yard {} build continues it", folder.display());
            return Ok(ExitCode::from(Kind::Interrupted as u8));
        }
        // A package that fails is compared; anything else says nothing of the change.
        if !status.success() && status.code() != Some(Kind::Packages as i32) {
            say!(
                "the try {name} was not built, and stays; kilnyard --yard {} build tries it again",
                folder.display()
            );
            return Ok(ExitCode::from(status.code().map_or(Kind::Internal as u8, |code| code as u8)));
        }
    }
    if to_build.iter().all(Vec::is_empty) {
        say!("the change affects no package of the yard");
    }
    report(&pairs, &tried, &name, options.json)
}

/// A target of a yard, and of a try of it.
struct Pair {
    before: Yard,
    after: Yard,
    /// The last run that the try has copied from the yard.
    last_run: Option<u64>,
}

/// The targets of a yard, and of a try of it, before it is built: those that a word names, or all.
fn pairs(yard: &Yard, tried: &Yard, target: Option<&str>) -> Result<Vec<Pair>> {
    let of = |yard: &Yard| match target {
        Some(word) => yard.targets_named(word),
        None => yard.targets(),
    };
    let pair = |(before, after): (Yard, Yard)| {
        let last_run = after.store()?.last_run().map_err(store_error)?.map(|run| run.number);
        Ok(Pair { before, after, last_run })
    };
    of(yard)?.into_iter().zip(of(tried)?).map(pair).collect()
}

/// This program for a try or one of its targets, even if a newer one has its path now.
fn program(folder: &Path, target: Option<&str>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--yard").arg(folder);
    if let Some(target) = target {
        command.arg("--target").arg(target);
    }
    command
}

/// A package that changes are about and no target can build, with the reason; none if each is in one of them.
fn unresolved(pairs: &[Pair], changes: &[String]) -> Result<Option<LeftOut>> {
    let mut missing = Vec::new();
    for Pair { after, .. } in pairs {
        let set = after.config.family.resolve(after, &mirror::open_files(after)?)?.ecosystem();
        let touched = after.config.family.touched(after, changes).unwrap_or_default();
        let is_there = |name: &String| !set.named(name).is_empty() || set.reused().contains(name);
        let absent = touched.into_iter().filter(|name| !is_there(name));
        missing.push(
            absent
                .map(|name| {
                    let known = set.left_out().iter().find(|left| left.name == name).cloned();
                    let explanation = || "the set has no such package".to_owned();
                    known.unwrap_or_else(|| LeftOut { explanation: explanation(), name })
                })
                .collect::<Vec<LeftOut>>(),
        );
    }
    // A change may be for some of the targets alone.
    let in_all = |left: &LeftOut| missing.iter().all(|other| other.iter().any(|one| one.name == left.name));
    Ok(missing.first().and_then(|first| first.iter().find(|left| in_all(left))).cloned())
}

/// The packages that changes affect: those that they are about, those whose version differs, and what is built with them.
fn affected(yard: &Yard, tried: &Yard, changes: &[String]) -> Result<Vec<String>> {
    let set = |yard: &Yard| -> Result<Set> { yard.config.family.resolve(yard, &mirror::open_files(yard)?) };
    let (before, after) = (set(yard)?.ecosystem(), set(tried)?.ecosystem());
    let (old, graph) = (before.graph(), after.graph());
    let touched = tried.config.family.touched(tried, changes);
    let is_changed = |id: PackageId| {
        let name = graph.name(id);
        let is_touched = touched.as_ref().is_none_or(|touched| touched.iter().any(|known| known == name));
        is_touched || old.find(name).map(|old| before.version(old)) != Some(after.version(id))
    };
    let changed: Vec<PackageId> = graph.packages().filter(|id| is_changed(*id)).collect();
    let mut all: BTreeSet<PackageId> = changed.iter().copied().collect();
    for id in changed {
        all.extend(graph.descendants(id));
    }
    Ok(all.into_iter().map(|id| graph.name(id).to_owned()).collect())
}

/// Whether workers build for the try: the yard is served, and so is the try in a moment.
fn is_served(yard: &Yard, tried: &Yard) -> bool {
    let began = Instant::now();
    let is_there = |yard: &Yard| relay::connect(&door::folder(yard)).is_ok();
    while is_there(yard) && began.elapsed() < SERVED_MAX {
        if is_there(tried) {
            return true;
        }
        std::thread::sleep(STEP);
    }
    false
}

/// The first number that is free.
fn next_name(yard: &Yard) -> String {
    let mut names = (1_u64..).map(|number| number.to_string());
    names.find(|name| tries::folder_of(yard, name).is_none()).unwrap_or_default()
}

/// What a try did to a package, compared with the yard.
#[derive(Default)]
struct Compared {
    built: u64,
    unchanged: u64,
    newly_failing: Vec<String>,
    failing_as_before: Vec<String>,
    repaired: Vec<String>,
    /// Those that were not built, and did not fail: skipped, or left when the run was interrupted.
    undecided: Vec<String>,
}

impl Compared {
    fn json(&self) -> Value {
        json!({
            "built": self.built,
            "unchanged": self.unchanged,
            "newly_failing": self.newly_failing,
            "failing_as_before": self.failing_as_before,
            "repaired": self.repaired,
            "undecided": self.undecided,
        })
    }
}

fn compare(pair: &Pair) -> Result<Compared> {
    let (before, after) = (pair.before.store()?, pair.after.store()?);
    let mut compared = Compared::default();
    let Some(run) = after.last_run().map_err(store_error)? else { return Ok(compared) };
    let is_new = pair.last_run.is_none_or(|last| last < run.number);
    // Without a run of its own, nothing was built.
    let rows = if is_new { after.packages(run.number).map_err(store_error)? } else { Vec::new() };
    for row in rows {
        let had_failed = failed_before(&*before, &row.name)?;
        match row.state {
            PackageState::Built => {
                compared.built += 1;
                if had_failed {
                    compared.repaired.push(row.name);
                }
            }
            PackageState::Unchanged => compared.unchanged += 1,
            PackageState::Failed | PackageState::Blocked => match had_failed {
                true => compared.failing_as_before.push(row.name),
                false => compared.newly_failing.push(row.name),
            },
            PackageState::UpToDate => {}
            _ => compared.undecided.push(row.name),
        }
    }
    Ok(compared)
}

/// Whether a package's last build in the yard failed.
fn failed_before(before: &dyn Store, name: &str) -> Result<bool> {
    let builds = before.builds_of(name, 1).map_err(store_error)?;
    // One that is new, or was never built, has not failed.
    Ok(builds.first().is_some_and(|last| last.failure.is_some()))
}

/// Says what a try did to the targets, which are those of the yard and of the try.
fn report(pairs: &[Pair], tried: &Yard, name: &str, as_json: bool) -> Result<ExitCode> {
    let mut all = Vec::new();
    for pair in pairs {
        all.push((pair.after.target_name.as_deref(), compare(pair)?));
    }
    let repository = tried.repository();
    let is_good = |compared: &Compared| compared.newly_failing.is_empty() && compared.undecided.is_empty();
    let code = match all.iter().all(|(_, compared)| is_good(compared)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Kind::Packages as u8),
    };
    if as_json {
        let mut text = json!({ "name": name, "folder": tried.home, "repository": repository });
        match &all[..] {
            [(None, compared)] => merge(&mut text, compared.json()),
            _ => {
                let of = |(target, compared): &(Option<&str>, Compared)| {
                    let mut one = json!({ "target": target });
                    merge(&mut one, compared.json());
                    one
                };
                text["targets"] = all.iter().map(of).collect();
            }
        }
        print_json(&text)?;
        return Ok(code);
    }
    let mut text = String::new();
    for (target, compared) in &all {
        let target = target.map_or_else(String::new, |target| format!(", {target}"));
        let built = words::count(compared.built, "package");
        let _ = writeln!(text, "try {name}{target}: {built} built, {} unchanged", compared.unchanged);
        for (what, names) in [
            ("newly failing", &compared.newly_failing),
            ("failing as before", &compared.failing_as_before),
            ("repaired", &compared.repaired),
            ("not built", &compared.undecided),
        ] {
            if !names.is_empty() {
                let _ = writeln!(text, "{what}: {}", names.join(", "));
            }
        }
    }
    let folder = tried.home.display();
    let _ = writeln!(text, "repository: {}", repository.display());
    let target = if tried.config.targets.is_empty() { "" } else { " --target TARGET" };
    let _ = writeln!(text, "logs and reasons: kilnyard --yard {folder}{target} log PACKAGE, and why PACKAGE");
    print(&text)?;
    Ok(code)
}

/// Adds the entries of one object to another.
fn merge(to: &mut Value, from: Value) {
    if let (Value::Object(to), Value::Object(from)) = (to, from) {
        to.extend(from);
    }
}

fn list(yard: &Yard, as_json: bool) -> Result<ExitCode> {
    let all = tries::all(yard)?;
    if as_json {
        let of = |known: &Try| {
            json!({
                "name": known.name,
                "folder": known.folder,
                "author": known.note.author,
                "changes": known.note.changes,
                "made_seconds": known.note.made_seconds,
                "ends_seconds": known.note.ends_seconds,
            })
        };
        return print_json(&json!({ "tries": all.iter().map(of).collect::<Vec<_>>() }));
    }
    if all.is_empty() {
        say!("there are no tries");
    }
    let mut text = String::new();
    for Try { name, note, .. } in &all {
        let changes = note.changes.join(" ");
        let (made, ends) = (words::time(note.made_seconds), words::time(note.ends_seconds));
        let _ = writeln!(text, "{name}  {changes}  by {}, {made}, removed after {ends}", note.author);
    }
    print(&text)
}

/// Removes a try, unless it is being built. What it has used is kept; one that was never made has used nothing.
fn remove(yard: &Yard, folder: &Path, known: Option<&Try>) -> Result<()> {
    // One that was killed while it was made is no yard, and nothing builds there.
    let tried = open(folder).ok();
    let targets = tried.as_ref().map(Yard::targets).transpose()?.unwrap_or_default();
    let _locks: Vec<_> = targets.iter().map(Yard::lock).collect::<Result<_>>()?;
    known.map_or(Ok(()), |known| used::keep(yard, known))?;
    tries::remove(folder)
}

/// Removes the tries whose time is over, and says so.
pub fn remove_old(yard: &Yard) -> Result<()> {
    let now = words::now_seconds();
    for known in tries::all(yard)?.iter().filter(|known| known.note.ends_seconds < now) {
        match remove(yard, &known.folder, Some(known)) {
            Ok(()) => say!("note: the try {} was removed: its time was over", known.name),
            // It is being built, or belongs to another user.
            Err(error) => say!("note: the try {} stays: {}", known.name, error.one_line()),
        }
    }
    Ok(())
}

/// The names of the tries of a yard as further yards, the folders of their yards, and when each was made.
pub fn folders(yard: &Yard) -> Vec<(String, (std::path::PathBuf, f64))> {
    let all = tries::all(yard).unwrap_or_default();
    let of = |known: Try| (format!("try-{}", known.name), (known.folder, known.note.made_seconds));
    let is_yard = |folder: &Path| folder.join(crate::yard::CONFIG).is_file();
    all.into_iter().filter(|known| is_yard(&known.folder)).map(of).collect()
}
