//! `kilnyard workers`: the workers on other machines.

mod compare;

use super::serve::SILENT_SECONDS_MAX;
use super::{print, print_json, serve};
use crate::cli::{self, WorkersAction};
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::words;
use crate::yard::{Yard, store_error};
use compare::{Own, differences, kept, machine};
use kilnyard_coordinator::Measured;
use kilnyard_farm::About;
use kilnyard_farm::identity::Identity;
use kilnyard_farm::relay::{self, First, Status, WorkerStatus};
use kilnyard_farm::roster::{DEFAULT_POOL, Held, Roster};
use kilnyard_farm::ticket::{FarmKey, TicketKey};
use kilnyard_model::entitlement::Entitlement;
use kilnyard_model::foreign::Foreign;
use kilnyard_model::role::Role;
use kilnyard_yard::image::Admitted;
use kilnyard_yard::remedy::Remedy;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Workers) -> Result<ExitCode> {
    let failed = "read the workers of the yard";
    if options.action.is_none() && !door::folder(yard).exists() {
        let nothing = Status::default();
        return show(yard, &nothing, options.json);
    }
    serve::folder(yard)?;
    let folder = door::roster_folder(yard);
    let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
    let Some(action) = &options.action else { return list(yard, &roster, options.json) };
    // Other machines of the yard know it before this command says so.
    let documents = yard.documents()?;
    let mut admitted = Admitted::default();
    let mut share = || documents.as_ref().map_or(Ok(()), |documents| admitted.share(&yard.home, documents));
    share()?;
    let code = change(yard, &folder, &roster, action)?;
    share()?;
    Ok(code)
}

/// Shows the workers.
fn list(yard: &Yard, roster: &Roster, as_json: bool) -> Result<ExitCode> {
    let status = match asked(yard) {
        Some(status) => status,
        None => {
            let members = roster.members().context(Kind::Machine, "read the workers of the yard")?;
            let workers = members.into_iter().map(unseen).collect();
            Status { workers, ..Status::default() }
        }
    };
    show(yard, &status, as_json)
}

/// Changes who takes part.
fn change(yard: &Yard, folder: &Path, roster: &Roster, action: &WorkersAction) -> Result<ExitCode> {
    match action {
        WorkersAction::Token(admission) => {
            let identity = Identity::open(folder).context(Kind::Machine, "read the identity of the door")?;
            print(&format!("{}\n", serve::token(yard, admission, roster, &identity)?))
        }
        WorkersAction::Mirror { address } => mirror(folder, address.as_deref()),
        WorkersAction::Revoke { worker, rebuild } => revoke(yard, roster, worker, *rebuild),
        WorkersAction::Remove { worker } => {
            match roster.remove(worker).context(Kind::Machine, format!("remove {worker}"))? {
                true => print(&format!("{worker} is removed\n")),
                false => Err(absent(worker)),
            }
        }
        WorkersAction::Drain { worker } => {
            hold(roster, worker, Some(Held::Drained), "gets no more builds; running builds continue")
        }
        WorkersAction::Approve { worker } => hold(roster, worker, None, "is approved: it gets builds"),
        WorkersAction::Resume { worker } => {
            let member = roster.member(worker).context(Kind::Machine, "read the workers of the yard")?;
            if member.is_some_and(|member| member.held == Some(Held::Unapproved)) {
                return Err(Error::usage(format!("{worker} was never approved"))
                    .hint(Remedy::command(format!("workers approve {worker}"))));
            }
            hold(roster, worker, None, "gets builds again")
        }
        WorkersAction::Quarantine { worker, reason } => {
            let held = Held::Quarantined(reason.clone());
            hold(roster, worker, Some(held), "is quarantined: it gets no more builds")
        }
    }
}

fn absent(worker: &str) -> Error {
    Error::usage(format!("there is no worker {worker}")).hint(Remedy::command("workers"))
}

/// Prints what a mirror at another site is configured with.
fn mirror(folder: &Path, address: Option<&str>) -> Result<ExitCode> {
    let failed = "read the identity of the door";
    let door = Identity::open(folder).context(Kind::Machine, failed)?.fingerprint();
    let tickets = TicketKey::open(folder).context(Kind::Machine, failed)?.verifier();
    let own = || format!("https://{}:{}", crate::run::host_name(), kilnyard_farm::PORT);
    let url = address.map_or_else(own, str::to_owned);
    print(&format!(
        "# in mirror.toml of the mirror\n[farm.main]\nurl = \"{url}\"\nkey = \"{}\"\n\n\
         # in kilnyard.toml, for the pool of the workers there\n[farm.pool.NAME]\nmirror = \"http://mirror.site.example:3142\"\n",
        FarmKey { door, tickets }
    ))
}

/// Removes a worker, and counts what it made. It may have been removed before.
fn revoke(yard: &Yard, roster: &Roster, worker: &str, rebuild: bool) -> Result<ExitCode> {
    // A run in progress would go on to use what the worker made.
    if rebuild && yard.is_locked() {
        return Err(Error::usage("a run is in progress, which uses what the worker made")
            .hint("interrupt it (Ctrl-C), then try again; `kilnyard workers quarantine` works at any time"));
    }
    let store = yard.store()?;
    let made = store.made_by(worker).map_err(store_error)?;
    let made: BTreeSet<String> = made.into_iter().map(|(package, _)| package).collect();
    let is_removed = roster.remove(worker).context(Kind::Machine, format!("remove {worker}"))?;
    if !is_removed && made.is_empty() {
        return Err(absent(worker));
    }
    let made = words::count(made.len() as u64, "package");
    if !rebuild {
        return print(&format!(
            "{worker} is removed; it has built {made}, which stay: {} has them rebuilt\n",
            words::command(&format!("workers revoke {worker} --rebuild"))
        ));
    }
    let first_trusted_build = store.next_build().map_err(store_error)?;
    kilnyard_yard::revoked::add(yard, worker, first_trusted_build)?;
    print(&format!(
        "{worker} is removed; it has built {made}: {} rebuilds those that are current, and all that was built with them\n",
        words::command("build")
    ))
}

/// Decides whether a worker gets builds, and says so.
fn hold(roster: &Roster, worker: &str, held: Option<Held>, said: &str) -> Result<ExitCode> {
    let failed = format!("write the entry of {worker}");
    match roster.hold(worker, held).context(Kind::Machine, failed)? {
        true => print(&format!("{worker} {said}\n")),
        false => Err(absent(worker)),
    }
}

fn unseen(member: kilnyard_farm::roster::Member) -> WorkerStatus {
    let kilnyard_farm::roster::Member { name, joined_seconds, pool, roles, held, .. } = member;
    let about = About::default();
    WorkerStatus {
        name,
        joined_seconds,
        silent_seconds: None,
        builds: 0,
        pool,
        roles,
        held,
        about,
        clock_ahead_seconds: None,
        holdings: None,
        is_ending: false,
    }
}

/// The door's answer; absent if there is none.
pub fn asked(yard: &Yard) -> Option<Status> {
    asked_in(&door::folder(yard))
}

/// What the server of the site says that has the workers of a yard.
pub fn asked_of_site(yard: &Yard) -> Option<Status> {
    asked_in(&door::roster_folder(yard))
}

fn asked_in(folder: &Path) -> Option<Status> {
    let mut stream = relay::connect(folder).ok()?;
    relay::write(&mut stream, &First::Status, b"").ok()?;
    relay::read(&mut stream).ok()?.map(|(status, _)| status)
}

/// This machine, as workers are compared with it.
fn own(yard: &Yard) -> Own {
    let trees = yard.config.family.trees(yard);
    Own {
        host: kilnyard_worker::host(),
        conditions: kilnyard_worker::conditions(&yard.folder),
        base_roots: trees.map(|trees| trees.into_iter().map(|tree| tree.sha256).collect()),
    }
}

/// The workers of a yard's site for programs.
pub fn as_json(yard: &Yard) -> Result<serde_json::Value> {
    let known = || -> Result<Status> {
        if !door::folder(yard).exists() {
            return Ok(Status::default());
        }
        let failed = "read the workers of the yard";
        let roster = Roster::open(&door::roster_folder(yard)).context(Kind::Machine, failed)?;
        let members = roster.members().context(Kind::Machine, failed)?;
        Ok(Status { workers: members.into_iter().map(unseen).collect(), ..Status::default() })
    };
    let status = asked(yard).map_or_else(known, Ok)?;
    Ok(json_of(yard, &status))
}

fn json_of(yard: &Yard, status: &Status) -> serde_json::Value {
    let (measured, own) = (door::measured(yard), own(yard));
    let mut all = serde_json::json!(status);
    all["measured"] = serde_json::json!(measured);
    all["base_roots"] = serde_json::json!(own.base_roots);
    for (at, worker) in status.workers.iter().enumerate() {
        all["workers"][at]["differences"] = serde_json::json!(differences(worker, &own));
    }
    all
}

fn show(yard: &Yard, status: &Status, as_json: bool) -> Result<ExitCode> {
    if as_json {
        return print_json(&json_of(yard, status));
    }
    let (measured, own) = (door::measured(yard), own(yard));
    let mut text = String::new();
    match &status.address {
        None => {
            let _ = writeln!(text, "no door is open: {}", words::command("serve"));
        }
        Some(address) => {
            let run = if status.has_run { "a run is in progress" } else { "no run is in progress" };
            let _ = writeln!(text, "listening at {address}; {run}");
        }
    }
    for worker in &status.workers {
        let state = match worker.silent_seconds {
            None => "not connected".to_owned(),
            Some(seconds) if seconds > SILENT_SECONDS_MAX => {
                format!("silent for {}", words::duration(seconds))
            }
            Some(_) => format!("connected, {}", words::count(worker.builds as u64, "build")),
        };
        let _ = writeln!(text, "{}  {state}", worker.name);
        match &worker.held {
            Some(Held::Unapproved) => {
                let approve = words::command(&format!("workers approve {}", worker.name));
                let _ = writeln!(text, "    not approved: it gets no builds until {approve}");
            }
            Some(Held::Drained) => text.push_str("    drained: it gets no builds\n"),
            Some(Held::Quarantined(reason)) => {
                let _ = writeln!(text, "    quarantined: {}", Foreign(reason));
            }
            None => {}
        }
        if worker.is_ending {
            text.push_str("    ends soon: it takes no more builds\n");
        }
        if worker.pool != DEFAULT_POOL || worker.roles.len() < Role::ALL.len() {
            let _ = writeln!(text, "    pool {}; {}", worker.pool, listed(&worker.roles));
        }
        if worker.about.cores > 0 {
            let _ = writeln!(text, "    {}", machine(&worker.about));
        }
        if let Some(measured) = measured.get(&worker.name) {
            text.push_str(&measured_line(measured));
        }
        if let Some(holdings) = &worker.holdings {
            let _ = writeln!(text, "    keeps: {}", kept(holdings, own.base_roots.as_deref()));
        }
        for difference in differences(worker, &own) {
            let _ = writeln!(text, "    differs from this machine: {difference}");
        }
    }
    if status.workers.is_empty() {
        let _ = writeln!(text, "no worker has joined yet");
    }
    for shared in &status.yards {
        let name = match shared.name.is_empty() {
            true => "this site's own yard".to_owned(),
            false => format!("yard {}", shared.name),
        };
        let Entitlement { weight, class } = shared.entitlement;
        let work = match shared.has_run {
            true => format!(
                "{} in progress, {} could start, {} of work left",
                words::count(shared.running as u64, "build"),
                words::count(shared.ready as u64, "package"),
                words::duration(shared.core_seconds),
            ),
            false => "no run".to_owned(),
        };
        let quota = shared.quota.map_or_else(String::new, |quota| {
            let ends = if quota.is_spent() { "; it starts nothing further" } else { "" };
            format!("; {:.3} of {} core-hours of a day used{ends}", quota.used_core_hours, quota.core_hours)
        });
        let _ = writeln!(text, "{name} (weight {weight}, {class}): {work}{quota}");
    }
    print(&text)
}

/// What runs have measured of a worker.
fn measured_line(measured: &Measured) -> String {
    let speed = measured.speed.map(|speed| format!("speed {speed:.2}, relative to recorded builds"));
    let rate = measured.bytes_per_second;
    let rate = rate.map(|rate| format!("inputs arrive at {} a second", words::size(rate as u64)));
    let both: Vec<String> = speed.into_iter().chain(rate).collect();
    match both.is_empty() {
        true => String::new(),
        false => format!("    measured: {}\n", both.join("; ")),
    }
}

fn listed(roles: &BTreeSet<Role>) -> String {
    roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ")
}
