//! The run's end of the connection to a door (`kilnyard serve`), through which workers on other machines take part.
//!
//! The door is another process, and may end at any time: then those workers are silent until it is back, as after any
//! cut connection.

use super::Message;
use crate::yard::Yard;
use kilnyard_coordinator::{Channel, Granted};
use kilnyard_farm::relay::{self, Allowed, First, SOCKET, ToDoor, ToRun};
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{FamilyOrder, FolderContent, Input, RootOrder};
use kilnyard_protocol::{Lease, Progress, Reports, Test, ToCoordinator, ToWorker};
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};

/// The folder of a yard's door, relative to the yard.
pub const FOLDER: &str = "state/farm";

/// The longest name of a log.
const LOG_NAME_BYTES_MAX: usize = 64;

/// The socket of a yard's door.
pub fn socket(yard: &Yard) -> PathBuf {
    yard.home.join(FOLDER).join(SOCKET)
}

/// See the module documentation.
pub struct Door {
    frames: Sender<(ToDoor, Vec<u8>)>,
    /// The connection, to end it.
    stream: UnixStream,
    /// The builds of workers on other machines.
    builds: HashMap<Attempt, RemoteBuild>,
}

/// A build of a worker on another machine.
#[derive(Clone, Debug)]
pub struct RemoteBuild {
    pub family: FamilyOrder,
    channel: Channel,
    /// The beginning of the paths of its logs, relative to the yard.
    logs: String,
}

impl Door {
    /// Connects to the yard's door. Returns none if there is none.
    pub fn connect(yard: &Yard, owner: &Sender<Message>) -> Option<Door> {
        let mut stream = UnixStream::connect(socket(yard)).ok()?;
        let first = First::Run {
            yard: yard.folder.clone(),
            distfiles: yard.path("distfiles"),
            archives: vec![yard.trees().archives().folder().to_owned()],
        };
        relay::write(&mut stream, &first, b"").ok()?;
        let (mut reader, mut writer) = (stream.try_clone().ok()?, stream.try_clone().ok()?);
        let (frames, to_write) = mpsc::channel::<(ToDoor, Vec<u8>)>();
        // Two threads, since the owner of the run never blocks. They end with the connection.
        std::thread::spawn(move || {
            for (header, message) in to_write {
                if relay::write(&mut writer, &header, &message).is_err() {
                    return;
                }
            }
        });
        let owner = owner.clone();
        std::thread::spawn(move || {
            while let Ok(Some((ToRun { from, worker }, bytes))) = relay::read::<ToRun>(&mut reader) {
                let message = Message::OfWorker { from: Channel(from), worker: Some(worker), bytes };
                if owner.send(message).is_err() {
                    return;
                }
            }
        });
        Some(Door { frames, stream, builds: HashMap::new() })
    }

    /// Sends a lease, and lets the worker read what it names.
    pub fn grant(&mut self, granted: &Granted, lease: &Lease, bytes: Vec<u8>) {
        let logs = format!("logs/{}/{}/{}-", lease.run, lease.order.package, lease.build);
        let reads = reads(&lease.order.root, &[]);
        let allows = Allowed { attempt: lease.attempt.to_string(), reads, logs: Some(logs.clone()) };
        self.builds.insert(
            lease.attempt,
            RemoteBuild { family: lease.order.family.clone(), channel: granted.channel, logs },
        );
        self.push(granted.channel, Some(allows), None, bytes);
    }

    /// Sends a message.
    pub fn send(&mut self, to: Channel, message: &ToWorker, bytes: Vec<u8>) {
        let (allows, ends) = match message {
            ToWorker::Answer { attempt, answer, .. } => match &answer.test {
                Test::Run(test) => {
                    let reads = reads(&test.root, &test.inputs);
                    (Some(Allowed { attempt: attempt.to_string(), reads, logs: None }), None)
                }
                _ => (None, None),
            },
            ToWorker::Acknowledged { attempt, .. } | ToWorker::Superseded { attempt, .. } => {
                // A worker may have named another's build.
                if self.builds.get(attempt).is_some_and(|build| build.channel == to) {
                    self.builds.remove(attempt);
                }
                (None, Some(attempt.to_string()))
            }
            _ => (None, None),
        };
        self.push(to, allows, ends, bytes);
    }

    fn push(&self, to: Channel, allows: Option<Allowed>, ends: Option<String>, bytes: Vec<u8>) {
        // Without a door the message is lost.
        let _ = self.frames.send((ToDoor { to: to.0, allows, ends }, bytes));
    }

    /// A build of a worker on another machine.
    pub fn build(&self, attempt: &Attempt) -> Option<&RemoteBuild> {
        self.builds.get(attempt)
    }

    /// Replaces what a worker must not decide: the places of logs.
    pub fn correct(&self, message: &mut ToCoordinator) {
        let ToCoordinator::Progress(Reports { attempt, reports, .. }) = message else { return };
        let build = self.builds.get(attempt);
        for report in reports {
            if let Progress::StageEnded(stage) = report {
                let log = stage.log.take();
                stage.log = log.filter(|log| build.is_some_and(|build| build.has_log(log)));
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The door may be gone.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl RemoteBuild {
    /// Whether this is where the door writes a log of the build.
    fn has_log(&self, log: &str) -> bool {
        let name = log.strip_prefix(&self.logs).and_then(|rest| rest.strip_suffix(".log"));
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        name.is_some_and(|name| {
            !name.is_empty() && name.len() <= LOG_NAME_BYTES_MAX && name.bytes().all(is_allowed)
        })
    }
}

/// The files that a root and further inputs name.
fn reads(root: &RootOrder, inputs: &[Input]) -> Vec<Sha256Hex> {
    let of_folder = |content: &FolderContent| match content {
        FolderContent::Tree(tree) => vec![tree.sha256.clone()],
        FolderContent::Files(files) => files.iter().map(|file| file.artifact.sha256.clone()).collect(),
    };
    let layers = root.layers.iter().map(|layer: &Artifact| layer.sha256.clone());
    let folders = root.folders.iter().filter_map(|folder| folder.content.as_ref()).flat_map(of_folder);
    let named = root.inputs.iter().chain(inputs);
    layers.chain(folders).chain(named.filter_map(|input| Sha256Hex::parse(&input.sha256).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_where_the_door_writes_them() {
        let build = RemoteBuild {
            family: FamilyOrder::default(),
            channel: Channel(1),
            logs: "logs/3/zlib/17-".to_owned(),
        };
        for log in ["logs/3/zlib/17-build.log", "logs/3/zlib/17-again-build.log"] {
            assert!(build.has_log(log), "{log}");
        }
        for log in [
            "",
            "logs/3/zlib/18-build.log",
            "logs/3/zlib/17-.log",
            "logs/3/zlib/17-../../../x.log",
            "logs/3/zlib/17-build",
            "/etc/passwd",
            "logs/3/zlib/17-Build.log",
        ] {
            assert!(!build.has_log(log), "{log}");
        }
    }
}
