//! The further yards of a site, which share its workers: this worker takes part in each, with a folder of its own in its
//! folder, and the machine's cores are divided among them.

use super::join::PAUSE;
use super::member::Member;
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::client::Client as Connection;
use kilnyard_farm::door::is_yard_name;
use kilnyard_worker::SharedMachine;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

/// The folder of the further yards' folders.
const YARDS: &str = "yards";
/// How often signals are checked.
const STEP: Duration = Duration::from_millis(100);
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

type List = Vec<kilnyard_farm::api::YardOffer>;

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
            // A site from before there were several yards, or one that refuses this worker.
            Err(_) => return,
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
            let shared = shared.map(|offer| (offer.name.clone(), offer.entitlement, offer.has_ready));
            machine.set(&shared.collect::<Vec<_>>());
            current = list;
        }
        parts.retain(|_, part| !part.is_finished());
        for offer in &current {
            // What names a folder here is the site's word.
            if !is_yard_name(&offer.name) || parts.contains_key(&offer.name) {
                continue;
            }
            let (of_site, machine, name) = (of_site.clone(), machine.clone(), offer.name.clone());
            let part = std::thread::spawn(move || take_part(&of_site, &machine, &name));
            parts.insert(offer.name.clone(), part);
        }
    }
    parts.into_values().for_each(|part| drop(part.join()));
}

/// Takes part in a yard until the worker ends, or the yard is gone.
fn take_part(of_site: &Member, machine: &Arc<SharedMachine>, yard: &str) {
    let folder = of_site.folder.join(YARDS).join(yard);
    let performed = Yard::make_folders(&folder).and_then(|()| {
        let connection = of_site.connection.of_yard(yard).map_err(std::io::Error::other);
        let connection = connection.map_err(|error| crate::error::Error::usage(error.to_string()))?;
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
