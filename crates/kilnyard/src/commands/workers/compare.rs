//! In what a worker's machine differs from this one, and what it keeps of what this yard uses.
//!
//! Base roots cannot differ: orders name them by hash, and a worker verifies what it gets. A worker can only lack them.

use crate::words;
use kilnyard_farm::About;
use kilnyard_farm::relay::WorkerStatus;
use kilnyard_model::foreign::Foreign;
use kilnyard_model::holdings::Holdings;
use kilnyard_model::host::Host;
use kilnyard_model::sha256::Sha256Hex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Clocks that are closer count as equal, in seconds: the measurement includes the time of a message.
const CLOCK_SECONDS_MIN: f64 = 5.0;

/// This machine, and what the yard's roots start from.
pub struct Own {
    pub host: Host,
    pub conditions: BTreeMap<String, String>,
    /// Absent if there is none yet.
    pub base_roots: Option<Vec<Sha256Hex>>,
}

/// A property of a worker's machine that can make its builds end otherwise than on this machine.
#[derive(Debug, PartialEq, Serialize)]
pub struct Difference {
    pub what: String,
    /// As the worker says.
    pub worker: String,
    /// Absent where the worker's value says how it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yard: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, Foreign(&self.worker))?;
        self.yard.iter().try_for_each(|yard| write!(f, " instead of {yard}"))
    }
}

/// What differs. What one of the two machines does not know does not count.
pub fn differences(worker: &WorkerStatus, own: &Own) -> Vec<Difference> {
    let about = &worker.about;
    if about.cores == 0 {
        return Vec::new();
    }
    let machine = [
        ("kernel", &about.kernel, own.host.kernel.as_str()),
        ("kilnyard", &about.version, env!("CARGO_PKG_VERSION")),
        ("architecture", &about.architecture, std::env::consts::ARCH),
    ];
    // By the names that this program compares: a worker may say anything.
    let conditions = own.conditions.iter();
    let conditions =
        conditions.filter_map(|(name, own)| Some((name.as_str(), about.conditions.get(name)?, own.as_str())));
    let differing = machine.into_iter().chain(conditions).filter(|(_, its, own)| its != own);
    let mut all: Vec<Difference> = differing
        .map(|(what, its, own)| Difference {
            what: what.to_owned(),
            worker: its.clone(),
            yard: Some(own.to_owned()),
        })
        .collect();
    if let Some(ahead) = worker.clock_ahead_seconds.filter(|ahead| ahead.abs() >= CLOCK_SECONDS_MIN) {
        let side = if ahead > 0.0 { "ahead" } else { "behind" };
        let said = format!("{} {side}", words::duration(ahead.abs()));
        all.push(Difference { what: "clock".to_owned(), worker: said, yard: None });
    }
    all
}

/// The description of a worker's machine, which the worker made itself.
pub fn machine(about: &About) -> String {
    let memory = about.memory_bytes.map_or(String::new(), |bytes| format!(", {}", words::size(bytes)));
    let cores = words::count(about.cores.into(), "core");
    let (cpu, kernel, version) = (Foreign(&about.cpu), Foreign(&about.kernel), Foreign(&about.version));
    format!("{cores}{memory}; {cpu}; {kernel}; kilnyard {version}")
}

/// What a worker keeps.
pub fn kept(holdings: &Holdings, base_roots: Option<&[Sha256Hex]>) -> String {
    let base_roots = base_roots.unwrap_or_default();
    let current = base_roots.iter().filter(|root| holdings.trees.contains(root)).count();
    let other = holdings.trees.iter().filter(|tree| !base_roots.contains(tree)).count();
    let mut parts = Vec::new();
    match (current, base_roots.len()) {
        (_, 0) => {}
        (0, _) => parts.push("none of the yard's base roots".to_owned()),
        (current, all) if current == all => parts.push("all of the yard's base roots".to_owned()),
        (current, all) => parts.push(format!("{current} of {all} of the yard's base roots")),
    }
    if other > 0 {
        parts.push(words::count(other as u64, "other tree"));
    }
    let mut sized = |count: u64, one: &str, bytes: u64| {
        if count > 0 {
            parts.push(format!("{} of {}", words::count(count, one), words::size(bytes)));
        }
    };
    sized(holdings.layers, "layer", holdings.layers_bytes);
    sized(holdings.files, "file", holdings.files_bytes);
    match parts.is_empty() {
        true => "nothing yet".to_owned(),
        false => format!("{}; {} in all", parts.join(", "), words::size(holdings.bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::role::Role;

    fn own() -> Own {
        let conditions = [("page size", "4 KiB"), ("CPU level", "x86-64-v3")];
        let conditions = conditions.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let host = Host { kernel: "Linux 6.1".to_owned(), cpu: "x".to_owned() };
        Own { host, conditions, base_roots: Some(vec![hash('a')]) }
    }

    fn hash(digit: char) -> Sha256Hex {
        Sha256Hex::parse(&digit.to_string().repeat(64)).unwrap()
    }

    fn worker(about: About) -> WorkerStatus {
        WorkerStatus {
            name: "far".to_owned(),
            joined_seconds: 1,
            silent_seconds: Some(1.0),
            builds: 0,
            pool: "default".to_owned(),
            roles: Role::all(),
            held: None,
            about,
            clock_ahead_seconds: Some(0.5),
            holdings: None,
            is_ending: false,
        }
    }

    fn alike() -> About {
        About {
            cores: 2,
            memory_bytes: Some(1 << 30),
            kernel: "Linux 6.1".to_owned(),
            cpu: "\u{1b}[2J".to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            conditions: own().conditions,
            clock_seconds: None,
        }
    }

    fn said(worker: &WorkerStatus) -> Vec<String> {
        differences(worker, &own()).iter().map(Difference::to_string).collect()
    }

    #[test]
    fn what_a_worker_says_of_itself_is_escaped_and_compared() {
        assert!(!machine(&alike()).contains('\u{1b}'));
        assert_eq!(said(&worker(alike())), [""; 0]);
        assert_eq!(said(&worker(About::default())), [""; 0]);
        let other = About { kernel: "Linux 5\n".to_owned(), ..alike() };
        let said = said(&worker(other));
        assert!(
            said.len() == 1 && said[0].contains("instead of Linux 6.1") && !said[0].contains('\n'),
            "{said:?}"
        );
    }

    #[test]
    fn conditions_that_both_machines_know_are_compared() {
        let with = |name: &str, value: &str| {
            let mut about = alike();
            about.conditions.insert(name.to_owned(), value.to_owned());
            worker(about)
        };
        assert_eq!(said(&with("page size", "64 KiB")), ["page size 64 KiB instead of 4 KiB"]);
        assert_eq!(said(&with("page size\u{1b}", "64 KiB")), [""; 0], "an unknown name");
        assert_eq!(said(&worker(About { conditions: BTreeMap::new(), ..alike() })), [""; 0]);
        let late = |seconds| WorkerStatus { clock_ahead_seconds: Some(seconds), ..worker(alike()) };
        assert_eq!(said(&late(-90.0)), ["clock 1 min 30 s behind"]);
        assert_eq!(said(&late(7.0)), ["clock 7.0 s ahead"]);
        assert_eq!(said(&late(f64::MAX)).len(), 1);
    }

    #[test]
    fn what_a_worker_keeps_is_compared_with_what_the_yard_uses() {
        let holdings = |trees: &[char]| Holdings {
            trees: trees.iter().copied().map(hash).collect(),
            layers: 2,
            layers_bytes: 3 << 20,
            files: 1,
            files_bytes: 1 << 20,
            bytes: 5 << 20,
        };
        let kept = |trees: &[char]| kept(&holdings(trees), Some(&[hash('a'), hash('b')]));
        assert!(
            kept(&['a', 'b', 'c']).starts_with("all of the yard's base roots, 1 other tree, 2 layers of ")
        );
        assert!(kept(&['b']).starts_with("1 of 2 of the yard's base roots, 2 layers"));
        assert!(kept(&['c']).starts_with("none of the yard's base roots, 1 other tree"));
        assert_eq!(super::kept(&Holdings::default(), None), "nothing yet");
    }
}
