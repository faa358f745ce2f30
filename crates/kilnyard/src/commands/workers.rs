//! `kilnyard workers`: the workers on other machines.

use super::{print, print_json, serve};
use crate::cli::{self, WorkersAction};
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::words;
use crate::yard::Yard;
use kilnyard_farm::identity::Identity;
use kilnyard_farm::relay::{self, First, Status, WorkerStatus};
use kilnyard_farm::roster::Roster;
use kilnyard_yard::remedy::Remedy;
use std::fmt::Write;
use std::process::ExitCode;

/// A worker asks for messages at least this often, in seconds.
const SILENT_SECONDS_MAX: f64 = 40.0;

pub fn run(yard: &Yard, options: &cli::Workers) -> Result<ExitCode> {
    let failed = "read the workers of the yard";
    if options.action.is_none() && !door::folder(yard).exists() {
        return show(&Status { address: None, has_run: false, workers: Vec::new() }, options.json);
    }
    let folder = serve::folder(yard)?;
    let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
    match &options.action {
        Some(WorkersAction::Token) => {
            let identity = Identity::open(&folder).context(Kind::Machine, "read the identity of the door")?;
            let token = roster
                .issue(identity.fingerprint(), words::now_seconds() as u64)
                .context(Kind::Machine, "make a token")?;
            print(&format!("{token}\n"))
        }
        Some(WorkersAction::Remove { worker }) => {
            match roster.remove(worker).context(Kind::Machine, format!("remove {worker}"))? {
                true => print(&format!("{worker} is removed\n")),
                false => {
                    Err(Error::usage(format!("there is no worker {worker}")).hint(Remedy::command("workers")))
                }
            }
        }
        None => {
            let status = match asked(yard) {
                Some(status) => status,
                None => Status {
                    address: None,
                    has_run: false,
                    workers: roster
                        .members()
                        .context(Kind::Machine, failed)?
                        .into_iter()
                        .map(unseen)
                        .collect(),
                },
            };
            show(&status, options.json)
        }
    }
}

fn unseen(member: kilnyard_farm::roster::Member) -> WorkerStatus {
    let kilnyard_farm::roster::Member { name, joined_seconds, .. } = member;
    WorkerStatus { name, joined_seconds, silent_seconds: None, builds: 0 }
}

/// The door's answer; absent if there is none.
fn asked(yard: &Yard) -> Option<Status> {
    let mut stream = relay::connect(&door::folder(yard)).ok()?;
    relay::write(&mut stream, &First::Status, b"").ok()?;
    relay::read(&mut stream).ok()?.map(|(status, _)| status)
}

fn show(status: &Status, as_json: bool) -> Result<ExitCode> {
    if as_json {
        return print_json(&serde_json::json!(status));
    }
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
    }
    if status.workers.is_empty() {
        let _ = writeln!(text, "no worker has joined yet");
    }
    print(&text)
}
