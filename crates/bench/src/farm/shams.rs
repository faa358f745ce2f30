//! Hundreds of workers whose builds only wait, in a few processes.

use super::chatter::Chatting;
use super::processes::{self, Ending, Running, until};
use super::worker::{Farm, Granted};
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use kilnyard_farm::identity::Identity;
use kilnyard_farm::roster::{Roster, Terms};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Number of processes that the workers share.
const PROCESSES: usize = 3;

/// The workers to start.
#[derive(Debug)]
pub struct Wanted {
    pub workers: usize,
    /// The slots of each.
    pub slots: u32,
    /// The time of each package, in seconds.
    pub seconds: BTreeMap<String, f64>,
    /// What their builds write, if they do.
    pub chatting: Option<Chatting>,
}

/// Workers that have joined.
#[derive(Debug)]
pub struct Shams {
    processes: Vec<Running>,
    granted: PathBuf,
}

impl Shams {
    /// Starts workers, and waits until they have joined.
    pub fn join(own: &Yard, url: &str, wanted: Wanted) -> Result<Shams> {
        let farm = farm(own, url, &wanted)?;
        let granted = own.path("granted");
        fs_err::create_dir_all(&granted).or_internal("make a folder for what workers report")?;
        let mut running = Vec::new();
        for (part, members) in farm.members.chunks(wanted.workers.div_ceil(PROCESSES)).enumerate() {
            let path = own.path(&format!("state/part-{part}.json"));
            let of_part =
                Farm { members: members.to_vec(), granted: granted.join(part.to_string()), ..farm.clone() };
            let text = serde_json::to_string(&of_part).or_internal("describe the farm")?;
            fs_err::write(&path, text).or_internal("describe the farm")?;
            let (path, log) = (path.display().to_string(), format!("workers-{part}"));
            let arguments = ["bench", "farm", "--workers-of", &path];
            running.push(processes::start(own, &arguments, &log, Ending::Killed)?);
        }
        let joined = || Roster::open(&own.path("state/farm")).and_then(|roster| roster.members());
        until("the workers have joined", || joined().is_ok_and(|members| members.len() == wanted.workers))?;
        Ok(Shams { processes: running, granted })
    }

    /// Ends them, and returns what they reported.
    pub fn end(self) -> Result<BTreeMap<String, Granted>> {
        drop(self.processes);
        Granted::read(&self.granted).or_internal("read what the workers reported")
    }
}

/// The workers, each with a token.
fn farm(own: &Yard, url: &str, wanted: &Wanted) -> Result<Farm> {
    let folder = own.path("state/farm");
    let failed = "make tokens for the workers";
    let identity = Identity::open(&folder).context(Kind::Machine, failed)?;
    let roster = Roster::open(&folder).context(Kind::Machine, failed)?;
    let now = crate::words::now_seconds() as u64;
    let member = |number: usize| -> Result<(String, String)> {
        let token =
            roster.issue(identity.fingerprint(), Terms::default(), now).context(Kind::Machine, failed)?;
        Ok((format!("worker-{number:03}"), token.to_string()))
    };
    Ok(Farm {
        url: url.to_owned(),
        folder: own.path("state/workers"),
        slots: wanted.slots,
        seconds: wanted.seconds.clone(),
        granted: own.path("granted"),
        chatting: wanted.chatting,
        members: (0..wanted.workers).map(member).collect::<Result<_>>()?,
    })
}
