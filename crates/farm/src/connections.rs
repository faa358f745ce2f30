//! The connections of a door, and which of them end when there are too many.
//!
//! A connection is a stranger's until a request on it names a session, and a worker's from then on. Each kind has a share
//! of the places. If a share is full, the oldest connection of the address, or of the worker, with the most of them ends
//! for a new one. So a flood from a few addresses ends its own connections; it ends no connection of a worker, and a
//! worker that begins has the time in which a whole share arrives.
//!
//! Known downside: workers behind one proxy have one address until they have named their sessions.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio_util::sync::CancellationToken;

/// The most connections at once, if the process may have as many files. A worker has a few, and one for each file that it
/// sends.
const CONNECTIONS_MAX: u64 = 4096;
/// The part of the connections that strangers may have: one in this many.
const STRANGERS_SHARE: usize = 4;
/// The open files of the process for each connection: its socket, and a file that it reads or writes.
const FILES_PER_CONNECTION: u64 = 2;

/// See the module documentation.
#[derive(Debug)]
pub struct Connections {
    strangers_max: usize,
    workers_max: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts connections: numbers them by age.
    count: u64,
    strangers: Groups<IpAddr>,
    workers: Groups<String>,
}

/// The place of a connection, which it leaves when it ends.
#[derive(Debug)]
pub struct Place {
    connections: Arc<Connections>,
    address: IpAddr,
    number: u64,
    /// The worker that first named its session.
    worker: OnceLock<String>,
    /// Cancelled when the connection must end for another one.
    pub end: CancellationToken,
}

impl Connections {
    /// The connections of a process that may have this many files open; absent if there is no limit.
    pub fn new(files_max: Option<u64>) -> Arc<Connections> {
        let files_max = files_max.unwrap_or(u64::MAX);
        // At most `CONNECTIONS_MAX`.
        let max = (files_max / FILES_PER_CONNECTION).min(CONNECTIONS_MAX) as usize;
        let strangers_max = (max / STRANGERS_SHARE).max(1);
        let workers_max = (max - strangers_max.min(max)).max(1);
        Arc::new(Connections { strangers_max, workers_max, known: Mutex::default() })
    }

    /// It is never locked across a wait.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address.
    pub fn open(self: &Arc<Connections>, address: IpAddr) -> Place {
        let (address, end) = (network(address), CancellationToken::new());
        let mut known = self.known();
        known.count += 1;
        let number = known.count;
        known.strangers.add(address, number, end.clone(), self.strangers_max);
        Place { connections: self.clone(), address, number, worker: OnceLock::new(), end }
    }
}

impl Place {
    /// The address of the client; of IPv6, its network.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Notes that a request of this connection has named a session of this worker. Later workers do not count: a proxy
    /// has connections that several use.
    pub fn is_of(&self, worker: &str) {
        if self.worker.get().is_some() {
            return;
        }
        let mut known = self.connections.known();
        // Requests of one connection may run at once.
        if self.worker.set(worker.to_owned()).is_ok() && known.strangers.remove(&self.address, self.number) {
            known.workers.add(worker.to_owned(), self.number, self.end.clone(), self.connections.workers_max);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut known = self.connections.known();
        match self.worker.get() {
            None => known.strangers.remove(&self.address, self.number),
            Some(worker) => known.workers.remove(worker, self.number),
        };
    }
}

/// Connections by the address or worker that they count for.
#[derive(Debug)]
struct Groups<K> {
    groups: HashMap<K, BTreeMap<u64, CancellationToken>>,
    total: usize,
}

impl<K> Default for Groups<K> {
    fn default() -> Groups<K> {
        Groups { groups: HashMap::new(), total: 0 }
    }
}

impl<K: Clone + Eq + Hash> Groups<K> {
    /// Adds a connection. If there are `max` others, one of them ends.
    fn add(&mut self, key: K, number: u64, end: CancellationToken, max: usize) {
        while self.total >= max {
            let Some((key, oldest)) = self.in_the_way() else { break };
            if let Some(end) = self.groups.get(&key).and_then(|group| group.get(&oldest)) {
                end.cancel();
            }
            self.remove(&key, oldest);
        }
        self.groups.entry(key).or_default().insert(number, end);
        self.total += 1;
    }

    /// The oldest connection of the largest group; of several as large, of the one that has the oldest.
    fn in_the_way(&self) -> Option<(K, u64)> {
        let oldest = self.groups.iter().filter_map(|(key, group)| {
            let (oldest, _) = group.first_key_value()?;
            Some((group.len(), std::cmp::Reverse(*oldest), key))
        });
        oldest
            .max_by_key(|(size, oldest, _)| (*size, *oldest))
            .map(|(_, oldest, key)| (key.clone(), oldest.0))
    }

    /// Forgets a connection. Returns false if it had to make room already.
    fn remove(&mut self, key: &K, number: u64) -> bool {
        let Some(group) = self.groups.get_mut(key) else { return false };
        let is_known = group.remove(&number).is_some();
        self.total -= usize::from(is_known);
        if group.is_empty() {
            self.groups.remove(key);
        }
        is_known
    }
}

/// What counts as one address: of IPv6, the first half, as one machine usually has all of the rest.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(strangers_max: usize, workers_max: usize) -> Arc<Connections> {
        Arc::new(Connections { strangers_max, workers_max, known: Mutex::default() })
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn ended(places: &[Place]) -> Vec<usize> {
        (0..places.len()).filter(|at| places[*at].end.is_cancelled()).collect()
    }

    #[test]
    fn a_flood_ends_its_own_connections() {
        let connections = connections(4, 4);
        let quiet = connections.open(address(1));
        let flood: Vec<Place> = (0..10).map(|_| connections.open(address(2))).collect();
        assert_eq!(ended(&flood), [0, 1, 2, 3, 4, 5, 6]);
        assert!(!quiet.end.is_cancelled());
        drop(flood);
        assert_eq!(connections.known().strangers.total, 1);
        // From many addresses, the oldest connection ends.
        let flood: Vec<Place> = (2..6).map(|last| connections.open(address(last))).collect();
        assert!(quiet.end.is_cancelled() && ended(&flood).is_empty());
        drop((quiet, flood));
        let known = connections.known();
        assert_eq!((known.strangers.total, known.strangers.groups.len()), (0, 0));
    }

    #[test]
    fn connections_of_workers_stay() {
        let connections = connections(2, 3);
        let one = connections.open(address(1));
        one.is_of("one");
        one.is_of("two");
        let flood: Vec<Place> = (0..10).map(|_| connections.open(address(1))).collect();
        assert!(!one.end.is_cancelled());
        assert_eq!(ended(&flood).len(), 8);
        // One that had to make room is no worker's any more.
        flood[0].is_of("two");
        // A worker with many connections ends its own.
        let many: Vec<Place> = (0..5).map(|_| connections.open(address(3))).collect();
        many.iter().for_each(|place| place.is_of("three"));
        assert!(!one.end.is_cancelled());
        let known = connections.known();
        assert_eq!(known.workers.groups.keys().filter(|worker| *worker != "three").count(), 1);
        assert!(known.workers.total <= 3 && known.strangers.total <= 2);
        drop(known);
        drop((one, flood, many));
        let known = connections.known();
        assert_eq!((known.workers.total, known.workers.groups.len(), known.strangers.total), (0, 0, 0));
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let parse = |text: &str| network(text.parse().unwrap());
        assert_eq!(parse("2001:db8:0:1::1"), parse("2001:db8:0:1:ffff::2"));
        assert_ne!(parse("2001:db8:0:1::1"), parse("2001:db8:0:2::1"));
        assert_eq!(parse("::ffff:192.0.2.1"), address(1));
        assert_ne!(parse("192.0.2.1"), parse("192.0.2.2"));
    }

    #[test]
    fn each_process_has_places_for_strangers_and_workers() {
        for (files, strangers, workers) in [
            (None, 1024, 3072),
            (Some(1 << 20), 1024, 3072),
            (Some(1024), 128, 384),
            (Some(2), 1, 1),
            (Some(0), 1, 1),
        ] {
            let connections = Connections::new(files);
            assert_eq!(
                (connections.strangers_max, connections.workers_max),
                (strangers, workers),
                "{files:?}"
            );
        }
    }
}
