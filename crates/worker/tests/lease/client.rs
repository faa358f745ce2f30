//! A worker that communicates by messages only, over channels of bytes that lose every third message.

use super::{Outcome, PACK, Trying, kept, lease};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::Stage;
use kilnyard_model::result::FailureKind;
use kilnyard_protocol::{
    BuildResult, Hello, Lease, Progress, Ranked, Session, ToCoordinator, ToWorker, Versions, Welcome, encode,
    open,
};
use kilnyard_worker::{Client, ClientError, Cores, Inbox, Transport};
use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// The worker's transport, which loses every third message.
struct Lossy {
    sender: Sender<Vec<u8>>,
    count: Cell<u32>,
}

impl Transport for Lossy {
    fn send(&self, message: Vec<u8>) {
        self.count.set(self.count.get() + 1);
        if !self.count.get().is_multiple_of(3) {
            let _ = self.sender.send(message);
        }
    }
}

/// The coordinator's end, which answers messages.
struct Desk {
    inbox: Inbox,
    heard: Receiver<Vec<u8>>,
    stages: Vec<Stage>,
    result: Option<BuildResult>,
    /// Cancels the build when this stage begins.
    cancels_in: Option<Stage>,
}

const SESSION: [u8; 16] = [5; 16];

impl Desk {
    fn say(&self, message: &ToWorker) {
        self.inbox.deliver(encode(message).unwrap());
    }

    /// Answers messages until the result of the lease arrives.
    fn wait_for(&mut self, lease: &Lease) -> BuildResult {
        let session = Session::from(Attempt::from_bytes(SESSION));
        let mut taken = 0;
        while self.result.is_none() {
            let bytes =
                self.heard.recv_timeout(Duration::from_secs(120)).expect("no message from the worker");
            let message = open::<ToCoordinator>(&bytes).unwrap();
            assert_eq!(message.capabilities, ["family:debian"]);
            match message.body {
                ToCoordinator::Hello(hello) => {
                    let (version, slots, cores, jobs_max) = (hello.versions.newest, 1, 2, None);
                    let (process, lease_seconds) = (hello.process, 120.0);
                    let welcome =
                        Welcome { process, session, version, slots, cores, jobs_max, lease_seconds };
                    self.say(&ToWorker::Welcome(welcome));
                }
                ToCoordinator::Offer(offer) => {
                    let ranked = |attempt| Ranked { attempt, memory_bytes: 0, memory_per_core_bytes: 0 };
                    let builds = offer.held.iter().map(|held| ranked(held.attempt)).collect();
                    if !offer.held.iter().any(|held| held.attempt == lease.attempt) {
                        self.say(&ToWorker::Grant { session, lease: Box::new(lease.clone()) });
                    }
                    self.say(&ToWorker::Ranks { session, offer: offer.number, builds });
                }
                ToCoordinator::Progress(said) if said.attempt == lease.attempt => {
                    for (number, progress) in (said.first..).zip(said.reports) {
                        if number < taken {
                            continue;
                        }
                        taken = number + 1;
                        match progress {
                            Progress::StageBegan(stage) if self.cancels_in == Some(stage) => {
                                self.say(&ToWorker::Cancel { session, attempt: lease.attempt });
                            }
                            Progress::StageEnded(result) => self.stages.push(result.stage),
                            _ => {}
                        }
                    }
                    self.say(&ToWorker::Received { session, attempt: lease.attempt, next: taken });
                }
                ToCoordinator::Built { attempt, built, .. } => {
                    let (answer, is_repeated) = (Box::new(kept(&built)), built.is_repeated);
                    self.say(&ToWorker::Answer { session, attempt, is_repeated, answer });
                }
                ToCoordinator::Result { attempt, result, .. } => {
                    self.say(&ToWorker::Acknowledged { session, attempt });
                    if attempt == lease.attempt {
                        self.result = Some(*result);
                    }
                }
                ToCoordinator::Progress(_) | ToCoordinator::Leave { .. } => {}
            }
        }
        self.result.take().unwrap()
    }
}

fn hello() -> Hello {
    Hello {
        worker: "one".to_owned(),
        process: "p".to_owned(),
        versions: Versions::OURS,
        cores: 2,
        speed: 1.0,
        memory_bytes: None,
        disk_bytes: None,
        host: None,
        warm: Vec::new(),
        kept: Vec::new(),
    }
}

/// Runs a worker until `coordinate` returns.
fn with_worker(trying: &Trying, coordinate: impl FnOnce(&mut Desk)) -> Result<(), ClientError> {
    let (inbox, incomings) = Inbox::new();
    let (sender, heard) = mpsc::channel();
    let worker = trying.worker.clone();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let mut client = Client {
                supply: &kilnyard_worker::SharedFolder { sign: kilnyard_worker::unsigned, distfiles: None },
                worker: &worker,
                cores: Cores::new("client", 2),
                tenant: None,
                has_jobservers: true,
                capabilities: vec!["family:debian".to_owned()],
                free_bytes_min: 0,
            };
            client.run(hello(), incomings, &Lossy { sender, count: Cell::new(0) })
        });
        let mut desk =
            Desk { inbox: inbox.clone(), heard, stages: Vec::new(), result: None, cancels_in: None };
        coordinate(&mut desk);
        inbox.close();
        client.join().unwrap()
    })
}

pub fn a_worker_takes_part_by_messages() -> Outcome {
    let trying = Trying::new();
    with_worker(&trying, |desk| {
        let result = desk.wait_for(&lease(PACK));
        let outputs = result.outcome.unwrap();
        assert_eq!((result.build, outputs.len(), &*outputs[0].name), (7, 1, "one"));
        assert!(trying.has(&outputs[0]));
        assert_eq!(desk.stages, [Stage::Build, Stage::Collect]);
        // The next lease in the same session, which fails.
        let next = Lease { build: 8, attempt: Attempt::from_bytes([8; 16]), ..lease("echo no; exit 3") };
        let failure = desk.wait_for(&next).outcome.unwrap_err();
        assert_eq!((failure.kind, failure.stage), (FailureKind::Command, Stage::Build));
        // A lease that is cancelled while it runs.
        desk.cancels_in = Some(Stage::Build);
        let endless = Lease { build: 9, attempt: Attempt::from_bytes([9; 16]), ..lease("sleep 600") };
        assert_eq!(desk.wait_for(&endless).outcome.unwrap_err().kind, FailureKind::Cancelled);
    })?;
    Ok(())
}

pub fn a_worker_that_is_closed_leaves_no_build() -> Outcome {
    let trying = Trying::new();
    let began = std::time::Instant::now();
    with_worker(&trying, |desk| {
        let endless = lease("sleep 600");
        let session = Session::from(Attempt::from_bytes(SESSION));
        desk.say(&ToWorker::Welcome(Welcome {
            process: "p".to_owned(),
            session,
            version: 1,
            slots: 1,
            cores: 2,
            jobs_max: None,
            lease_seconds: 120.0,
        }));
        desk.say(&ToWorker::Grant { session, lease: Box::new(endless) });
        let is_building = |bytes: Vec<u8>| match open::<ToCoordinator>(&bytes).unwrap().body {
            ToCoordinator::Progress(said) => said.reports.contains(&Progress::StageBegan(Stage::Build)),
            _ => false,
        };
        while !is_building(desk.heard.recv_timeout(Duration::from_secs(120)).unwrap()) {}
    })?;
    assert!(began.elapsed() < Duration::from_secs(500), "the worker waited for the build");
    Ok(())
}

pub fn each_hello_names_the_kept_work_of_its_time() -> Outcome {
    let trying = Trying::new();
    let key = "b".repeat(64);
    with_worker(&trying, |desk| {
        let hello = || loop {
            let bytes = desk.heard.recv_timeout(Duration::from_secs(120)).unwrap();
            if let ToCoordinator::Hello(hello) = open::<ToCoordinator>(&bytes).unwrap().body {
                return hello;
            }
        };
        assert_eq!(hello().kept, [""; 0]);
        let folder = trying.folder.path().join(kilnyard_worker::KEPT_WORK);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{}-{key}-3.tar", "a".repeat(64))), "work").unwrap();
        // It is repeated until it is answered.
        while hello().kept != [key.as_str()] {}
    })?;
    Ok(())
}

pub fn a_worker_that_is_refused_says_why() -> Outcome {
    let trying = Trying::new();
    let ended = with_worker(&trying, |desk| {
        desk.heard.recv_timeout(Duration::from_secs(120)).unwrap();
        let reason = "it lacks family:pkgsrc".to_owned();
        desk.say(&ToWorker::Refused { process: "p".to_owned(), reason });
    });
    assert!(matches!(ended, Err(ClientError::Refused(reason)) if reason.contains("family:pkgsrc")));
    Ok(())
}
