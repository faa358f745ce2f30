//! Pilots on a list of hosts, by the system's `ssh`.
//!
//! A host needs a POSIX shell, `flock`, `setsid` and `base64`; nothing is installed. Each call is one connection that runs one script
//! (`ssh/script.rs`), without a terminal, a password or a control connection. Hosts are asked at the same time; one that does not
//! answer affects only itself: its pilots that are known are listed as [`PilotState::Unknown`].
//!
//! On the host, a pilot is a folder `NAME` in `~/.kilnyard-pilots`, which only its user can enter, with a lock that its first process
//! holds. It runs as a unit `NAME.service` of systemd, the system's for root or the user's if that lingers, with the limits of the
//! settings; elsewhere as a process group of its own, without limits. In both cases it survives the connection, and is found by its
//! name and lock.
//!
//! Command, environment and files travel on standard input, inside of the encrypted connection.
//!
//! A host takes as many pilots as it has slots; it counts itself, so several yards with the same prefix and folder do not exceed them.
//! A start is tried on one host, unless that is full: a host whose answer is lost may have started it.

mod script;

use crate::call::{Call, Said};
use crate::{
    Description, Driver, LISTED_MAX, Launch, Listed, Listing, PilotName, PilotState, Place, PoolError,
    Surroundings,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The most output of a host, in bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The most hosts that are asked at once.
const AT_ONCE_MAX: usize = 16;
/// The exit code of `ssh` if the connection fails; scripts use others.
const CONNECTION_FAILED: i32 = 255;

/// How a pilot runs on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// A unit if systemd is there: of the system for root, of the user if it lingers. Otherwise detached.
    Automatic,
    /// A unit of the system.
    System,
    /// A unit of the user.
    User,
    /// A process group of its own, without limits.
    Detached,
}

/// The limits of a pilot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The memory in bytes that the kernel gives it at most. Units only.
    pub memory_bytes: Option<u64>,
    /// The cores that it can use at most, on average. Units only.
    pub cores: Option<u32>,
    /// The time between SIGTERM and SIGKILL when it is stopped, in seconds.
    pub grace_seconds: u32,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    /// As `ssh` takes it: `[user@]host`, or a name of its configuration.
    pub address: String,
    /// The port; without one, that of its configuration.
    pub port: Option<u16>,
    /// The most pilots there.
    pub slots: u32,
}

/// Which hosts, and how they are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshSettings {
    /// The prefix of the pool's names.
    pub prefix: String,
    /// The hosts.
    pub hosts: Vec<SshHost>,
    /// The folder of pilots on each host, absolute; without one, `~/.kilnyard-pilots`.
    pub folder: Option<String>,
    /// How pilots run.
    pub manner: Manner,
    /// Their limits.
    pub limits: Limits,
    /// Arguments of `ssh` before the host: `-i KEY`, `-F FILE`, `-o NAME=VALUE`.
    pub options: Vec<String>,
    /// How long a call of a host may take, in seconds.
    pub seconds_max: u64,
    /// What `ssh` is started with: its environment needs `HOME` for its configuration, and `SSH_AUTH_SOCK` for an agent.
    pub surroundings: Surroundings,
}

/// Hosts as the manager; see the module documentation.
#[derive(Debug)]
pub struct SshDriver {
    settings: SshSettings,
    /// By host. A cache of this driver alone: nothing is called while it is locked.
    known: Mutex<Vec<Known>>,
}

/// What is known of a host.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The pilots that were started or listed there, and are not known to be gone.
    pilots: BTreeSet<PilotName>,
    /// It has answered the last call; none if it was not called yet.
    answers: Option<bool>,
}

impl SshDriver {
    /// Checks the settings; asks nothing.
    pub fn new(settings: SshSettings) -> Result<SshDriver, PoolError> {
        // The prefix is part of scripts.
        PilotName::parse(&settings.prefix)?;
        for host in &settings.hosts {
            let is_odd = |character: char| character.is_whitespace() || character.is_control();
            if host.address.is_empty() || host.address.starts_with('-') || host.address.chars().any(is_odd) {
                return Err(PoolError::invalid(
                    "host",
                    &host.address,
                    "an address of ssh, without spaces or a leading -",
                ));
            }
        }
        let addresses: BTreeSet<(&str, Option<u16>)> =
            settings.hosts.iter().map(|host| (host.address.as_str(), host.port)).collect();
        if addresses.len() != settings.hosts.len() {
            return Err(PoolError::invalid("hosts", "", "each host once"));
        }
        if let Some(folder) = &settings.folder
            && (!folder.starts_with('/') || folder.chars().any(char::is_control))
        {
            return Err(PoolError::invalid("folder", folder, "an absolute path without line breaks"));
        }
        let known = Mutex::new(vec![Known::default(); settings.hosts.len()]);
        Ok(SshDriver { settings, known })
    }

    fn known<T>(&self, with: impl FnOnce(&mut Vec<Known>) -> T) -> T {
        with(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a script on a host; returns the lines of its answer.
    fn call(&self, at: usize, script: &str) -> Result<Vec<String>, PoolError> {
        let result = self.call_host(&self.settings.hosts[at], script);
        self.known(|known| known[at].answers = Some(result.is_ok()));
        result
    }

    fn call_host(&self, host: &SshHost, script: &str) -> Result<Vec<String>, PoolError> {
        let connect_max = format!("ConnectTimeout={}", self.settings.seconds_max.clamp(1, 10));
        let port = host.port.map(|port| port.to_string());
        let mut arguments = vec!["-T", "-x", "-a"];
        // The first value of an option counts.
        for option in [
            "BatchMode=yes",
            "ClearAllForwardings=yes",
            "ControlMaster=no",
            "PermitLocalCommand=no",
            "EscapeChar=none",
            "LogLevel=ERROR",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            &connect_max,
        ] {
            arguments.extend(["-o", option]);
        }
        arguments.extend(self.settings.options.iter().map(String::as_str));
        if let Some(port) = &port {
            arguments.extend(["-p", port]);
        }
        arguments.extend(["--", &host.address, "exec /bin/sh -s"]);
        let call = Call {
            program: "ssh",
            arguments: &arguments,
            input: script.as_bytes(),
            surroundings: &self.settings.surroundings,
            seconds_max: self.settings.seconds_max,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        let Said { code, stdout, stderr } = call.run_to_its_exit()?;
        let server = || host.address.clone();
        if code == CONNECTION_FAILED {
            let reason = if stderr.is_empty() { "the connection failed".to_owned() } else { stderr };
            return Err(PoolError::Away { server: server(), reason });
        }
        if code != 0 {
            let end = format!("exit code {code}");
            return Err(PoolError::Failed {
                program: format!("the script on {}", host.address),
                end,
                stderr,
            });
        }
        let stdout = String::from_utf8_lossy(&stdout);
        let lines =
            script::answer(&stdout).map_err(|reason| PoolError::Answer { program: server(), reason })?;
        Ok(lines.into_iter().map(str::to_owned).collect())
    }

    /// Calls all hosts, some at the same time.
    fn call_all(&self, script: &str) -> Vec<Result<Vec<String>, PoolError>> {
        let hosts: Vec<usize> = (0..self.settings.hosts.len()).collect();
        let mut results = Vec::new();
        for group in hosts.chunks(AT_ONCE_MAX) {
            std::thread::scope(|scope| {
                let calls: Vec<_> =
                    group.iter().map(|at| scope.spawn(move || self.call(*at, script))).collect();
                results.extend(calls.into_iter().zip(group).map(|(call, at)| {
                    call.join().unwrap_or_else(|_| {
                        let server = self.settings.hosts[*at].address.clone();
                        Err(PoolError::Away { server, reason: "its thread failed".to_owned() })
                    })
                }));
            });
        }
        results
    }

    /// The hosts that may have a free slot, those with the most first; asks them if some were never asked.
    fn candidates(&self) -> Result<Vec<usize>, PoolError> {
        if self.known(|known| known.iter().any(|host| host.answers.is_none())) {
            self.list()?;
        }
        let known = self.known(|known| known.clone());
        let free = |at: usize| {
            let slots = self.settings.hosts[at].slots as usize;
            (known[at].answers == Some(true)).then(|| slots.saturating_sub(known[at].pilots.len()))
        };
        let mut hosts: Vec<usize> =
            (0..known.len()).filter(|at| free(*at).is_some_and(|free| free > 0)).collect();
        hosts.sort_by_key(|at| std::cmp::Reverse(free(*at)));
        Ok(hosts)
    }
}

impl Driver for SshDriver {
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError> {
        launch.check()?;
        let SshSettings { folder, prefix, manner, limits, hosts, .. } = &self.settings;
        for at in self.candidates()? {
            let slots = hosts[at].slots;
            let script = script::start(folder.as_deref(), prefix, slots, name, launch, *manner, limits);
            // Before the answer, which may be lost.
            self.known(|known| known[at].pilots.insert(name.clone()));
            let lines = self.call(at, &script)?;
            match lines.last().map(String::as_str) {
                Some("started") => return Ok(()),
                Some("full") => self.known(|known| known[at].pilots.remove(name)),
                other => {
                    let reason =
                        format!("`{}` instead of `started`", crate::text::reason(other.unwrap_or("")));
                    return Err(PoolError::Answer { program: hosts[at].address.clone(), reason });
                }
            };
        }
        let known = self.known(|known| known.clone());
        let reasons: Vec<String> = hosts
            .iter()
            .zip(known)
            .map(|(host, known)| match known.answers {
                Some(true) => format!("{} is full", host.address),
                _ => format!("{} does not answer", host.address),
            })
            .collect();
        let reason = match reasons.is_empty() {
            true => "there are no hosts".to_owned(),
            false => crate::text::reason(&reasons.join(", ")),
        };
        Err(PoolError::NoHost { pilot: name.clone(), reason })
    }

    fn list(&self) -> Result<Listing, PoolError> {
        let SshSettings { folder, prefix, hosts, .. } = &self.settings;
        let results = self.call_all(&script::list(folder.as_deref(), prefix));
        let (mut all, mut away) = (Vec::new(), Vec::new());
        for (at, result) in results.into_iter().enumerate() {
            let address = &hosts[at].address;
            match result.and_then(|lines| read_list(address, &lines)) {
                Ok(listed) => {
                    let lives = listed.iter().filter(|one| one.state != PilotState::Ended);
                    let pilots: BTreeSet<PilotName> = lives.map(|one| one.name.clone()).collect();
                    self.known(|known| known[at].pilots = pilots);
                    all.extend(listed);
                }
                Err(error) => {
                    away.push(error.line());
                    let pilots = self.known(|known| known[at].pilots.clone());
                    let reason = Some(format!("{address} does not answer"));
                    let state = PilotState::Unknown;
                    all.extend(pilots.into_iter().map(|name| Listed {
                        name,
                        state,
                        reason: reason.clone(),
                        copies: 1,
                    }));
                }
            }
        }
        if all.len() > LISTED_MAX {
            return Err(PoolError::Answer {
                program: "ssh".to_owned(),
                reason: format!("more than {LISTED_MAX} pilots"),
            });
        }
        Ok(Listing { away, ..Listing::of(all) })
    }

    fn stop(&self, name: &PilotName) -> Result<(), PoolError> {
        let SshSettings { folder, limits, .. } = &self.settings;
        let script = script::stop(folder.as_deref(), name, limits.grace_seconds);
        let host = self.known(|known| known.iter().position(|host| host.pilots.contains(name)));
        match host {
            Some(at) => self.call(at, &script).map(drop),
            // It may be anywhere. If some host does not answer, it may be there.
            None => self.call_all(&script).into_iter().try_for_each(|result| result.map(drop)),
        }
    }

    fn describe(&self) -> Result<Description, PoolError> {
        let SshSettings { folder, manner, hosts, .. } = &self.settings;
        let call = Call {
            program: "ssh",
            arguments: &["-V"],
            input: b"",
            surroundings: &self.settings.surroundings,
            seconds_max: self.settings.seconds_max,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        // It writes its version to standard error.
        let version = call.run()?.stderr;
        let mut description = Description { manager: "ssh".to_owned(), version, ..Description::default() };
        for (host, result) in hosts.iter().zip(self.call_all(&script::describe(folder.as_deref(), *manner))) {
            let mut place = Place {
                name: host.address.clone(),
                count: Some(host.slots),
                cores: None,
                memory_bytes: None,
                trouble: None,
            };
            match result {
                Err(error) => place.trouble = Some(error.line()),
                Ok(lines) => {
                    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
                    let facts: BTreeMap<&str, &str> = pairs.collect();
                    let number =
                        |name: &str| facts.get(name).and_then(|text| text.trim().parse::<u64>().ok());
                    place.cores = number("cores").and_then(|cores| u32::try_from(cores).ok());
                    place.memory_bytes = number("memory-kib").map(|kib| kib.saturating_mul(1024));
                    place.trouble = facts
                        .get("missing")
                        .map(|program| crate::text::reason(&format!("{program} is missing")));
                    if facts.get("manner") == Some(&"detached") {
                        let note =
                            format!("{}: without systemd, limits of pilots are not enforced", host.address);
                        description.notes.push(note);
                    }
                }
            }
            description.places.push(place);
        }
        Ok(description)
    }
}

/// Reads the lines of a host's list. Any other line is an error: a pilot could be overlooked.
fn read_list(address: &str, lines: &[String]) -> Result<Vec<Listed>, PoolError> {
    let unreadable = |line: &str| PoolError::Answer {
        program: address.to_owned(),
        reason: format!("`{}` is no line of a list", crate::text::reason(line)),
    };
    let read = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, state, reason) = match words[..] {
            ["running", name] => (name, PilotState::Running, None),
            ["ended", name, code, log] => (name, PilotState::Ended, Some(end_words(code, log))),
            _ => return Err(unreadable(line)),
        };
        let name = PilotName::parse(name).map_err(|_| unreadable(line))?;
        Ok(Listed { name, state, reason, copies: 1 })
    };
    lines.iter().map(read).collect()
}

fn end_words(code: &str, log: &str) -> String {
    let end = match code.parse::<u32>() {
        Ok(code) => format!("exit code {code}"),
        Err(_) => "killed".to_owned(),
    };
    let log = BASE64_STANDARD.decode(log).unwrap_or_default();
    match crate::text::excerpt(&log, 300) {
        words if words.is_empty() => end,
        words => format!("{end}; its log ends with: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_strictly() {
        assert_eq!(script::answer("Welcome!\nkilnyard-begin\na\nkilnyard-end\nmore\n"), Ok(vec!["a"]));
        for text in ["", "kilnyard-end\n", "kilnyard-begin\na\n", "Welcome!\n"] {
            assert!(script::answer(text).is_err(), "{text:?}");
        }
        let read =
            |lines: &[&str]| read_list("a", &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let listed = read(&["running p-f-g-1", "ended p-f-g-2 3 bm8=", "ended p-f-g-3 - -"]).unwrap();
        let reasons: Vec<_> = listed.iter().map(|one| one.reason.as_deref()).collect();
        assert_eq!(reasons, [None, Some("exit code 3; its log ends with: no"), Some("killed")]);
        for line in ["", "running", "running A", "running a b", "ended a 1", "gone a"] {
            assert!(read(&[line]).is_err(), "{line:?}");
        }
    }

    #[test]
    fn hosts_are_checked() {
        let settings = |addresses: &[&str]| SshSettings {
            prefix: "p".to_owned(),
            hosts: addresses
                .iter()
                .map(|address| SshHost { address: (*address).to_owned(), port: None, slots: 1 })
                .collect(),
            folder: None,
            manner: Manner::Automatic,
            limits: Limits { memory_bytes: None, cores: None, grace_seconds: 10 },
            options: Vec::new(),
            seconds_max: 5,
            surroundings: Surroundings::default(),
        };
        SshDriver::new(settings(&["me@a", "b"])).unwrap();
        for addresses in [&["-oProxyCommand=x"][..], &[""], &["a b"], &["a", "a"]] {
            assert!(SshDriver::new(settings(addresses)).is_err(), "{addresses:?}");
        }
        let folder = SshSettings { folder: Some("a".to_owned()), ..settings(&["a"]) };
        assert!(SshDriver::new(folder).is_err());
    }
}
