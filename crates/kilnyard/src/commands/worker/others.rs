//! The further yards of a site, which share its workers: this worker takes part in each, with a folder of its own in its
//! folder, and the machine's cores are divided among them.

use super::join::PAUSE;
use super::member::Member;
use crate::error::{Context, Error, Kind, Result};
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::api::YardOffer;
use kilnyard_farm::client::Client as Connection;
use kilnyard_farm::door::is_yard_name;
use kilnyard_worker::{SharedMachine, Sharer, YARDS, forget_kept_work};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

/// The file with the id of the yard that a folder is of.
const ID: &str = "state/yard";
/// How often signals are checked.
const STEP: Duration = Duration::from_millis(100);
/// The pause after the site has refused to list its yards.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The pause before a part that ended with an error is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// See the module documentation.
pub struct Others {
    /// The thread that starts and ends them.
    thread: JoinHandle<()>,
}

impl Others {
    /// Takes part in what the site of this member says.
    pub fn start(of_site: &Member, machine: Arc<SharedMachine>) -> Others {
        let (of_site, (listed, lists)) = (of_site.clone(), mpsc::channel());
        let connection = of_site.connection.clone();
        // It may wait for half a minute when the worker ends.
        std::thread::spawn(move || list(&connection, &listed));
        Others { thread: std::thread::spawn(move || follow(&of_site, &machine, &lists)) }
    }

    /// Waits until all have ended, after a signal.
    pub fn end(self) {
        if signals::count() > 0 {
            let _ = self.thread.join();
        }
    }
}

/// Removes the kept work of all further yards.
///
/// # Errors
/// A folder cannot be read or written.
pub fn forget_kept_work_of_all(folder: &Path) -> io::Result<()> {
    let entries = match fs_err::read_dir(folder.join(YARDS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    entries.into_iter().try_for_each(|entry| forget_kept_work(&entry?.path()))
}

type List = Vec<YardOffer>;

/// Passes on the list of yards whenever it changes.
fn list(connection: &Connection, listed: &mpsc::Sender<List>) {
    let mut version = String::new();
    loop {
        match connection.yards(&version) {
            Ok(now) => {
                version = now.version;
                if listed.send(now.yards).is_err() {
                    return;
                }
            }
            Err(error) if error.is_passing() => std::thread::sleep(PAUSE),
            // A site from before there were several yards, which may be replaced, or one that refuses this worker.
            Err(_) => std::thread::sleep(REFUSED_PAUSE),
        }
    }
}

/// Starts a part in each yard of the list, until the worker ends.
fn follow(of_site: &Member, machine: &Arc<SharedMachine>, lists: &Receiver<List>) {
    let mut parts: HashMap<String, JoinHandle<()>> = HashMap::new();
    let mut current = List::new();
    while signals::count() == 0 {
        if let Ok(list) = lists.recv_timeout(STEP) {
            let shared = list.iter().filter(|offer| offer.entitlement.is_valid());
            let shared = shared.map(|offer| Sharer {
                name: offer.name.clone(),
                entitlement: offer.entitlement,
                has_ready: offer.has_ready,
                is_spent: offer.is_spent,
            });
            machine.set(&shared.collect::<Vec<_>>());
            current = list;
        }
        parts.retain(|_, part| !part.is_finished());
        for offer in &current {
            // What names a folder here is the site's word.
            if !is_yard_name(&offer.name) || parts.contains_key(&offer.name) {
                continue;
            }
            let (of_site, machine, offer) = (of_site.clone(), machine.clone(), offer.clone());
            let name = offer.name.clone();
            let part = std::thread::spawn(move || take_part(&of_site, &machine, &offer));
            parts.insert(name, part);
        }
    }
    parts.into_values().for_each(|part| drop(part.join()));
}

/// Notes which yard a folder is of. If the name was that of another one, kept work of that one is removed.
fn be_of(folder: &Path, id: &str) -> Result<()> {
    let (note, failed) = (folder.join(ID), "note the yard of a folder");
    if fs_err::read_to_string(&note).is_ok_and(|known| known == id) {
        return Ok(());
    }
    forget_kept_work(folder).context(Kind::Machine, failed)?;
    fs_err::write(&note, id).context(Kind::Machine, failed)
}

/// Takes part in a yard until the worker ends, or the yard is gone.
fn take_part(of_site: &Member, machine: &Arc<SharedMachine>, offer: &YardOffer) {
    let yard = offer.name.as_str();
    let folder = of_site.folder.join(YARDS).join(yard);
    // Base roots are shared with the other yards: their files have the same ids then.
    let made = Yard::make_folders_like(&folder, &of_site.folder).and_then(|()| be_of(&folder, &offer.id));
    let performed = made.and_then(|()| {
        let connection = of_site.connection.of_yard(yard).map_err(io::Error::other);
        let connection = connection.map_err(|error| Error::usage(error.to_string()))?;
        let member = Member {
            folder: folder.clone(),
            connection: Arc::new(connection),
            tenant: machine.tenant(yard),
            yard: Some(yard.to_owned()),
            ..of_site.clone()
        };
        say!("yard {yard}: takes part");
        member.prepare()?.perform(|_| {})
    });
    if let Err(error) = performed
        && signals::count() == 0
    {
        say!("yard {yard}: {}", error.one_line());
        let ended = std::time::Instant::now();
        while ended.elapsed() < AGAIN && signals::count() == 0 {
            std::thread::sleep(STEP);
        }
    }
}
