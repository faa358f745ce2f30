//! Golden files: each kind of message as other programs of this version read and write it. A changed file is a change
//! of the protocol: a field may be added with a default, and anything else needs a new version. `KILNYARD_UPDATE=1`
//! writes the files.

use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::keep::KeepOrder;
use kilnyard_model::order::{
    Account, BuildOrder, BuildTerms, CommandOrder, Dependency, FamilyOrder, FetchFile, FetchOrder,
    FolderContent, FolderFile, Input, InputText, Key, MachineTerms, Output, RootOrder, SharedFolder, Stage,
    StageOrder, TestOrder, TreePatch, WorkOrder,
};
use kilnyard_model::result::{Failure, FailureKind, Measures, StageResult, StageSeen};
use kilnyard_protocol::{
    Answer, BuildPhase, BuildResult, Built, Held, Hello, Lease, Offer, Progress, Ranked, Reports, Session,
    Test, ToCoordinator, ToWorker, Versions, Welcome, decode, encode,
};
use kilnyard_schedule::{Files, Pressure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::Path;

fn check<Message: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &Message) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    let bytes = encode(message).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    if std::env::var_os("KILNYARD_UPDATE").is_some() {
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&value).unwrap())).unwrap();
    }
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&text).unwrap(), value, "{name}");
    assert_eq!(&decode::<Message>(&text).unwrap(), message, "{name}");
}

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn input(name: &str, urls: &[&str]) -> Input {
    let urls = urls.iter().map(|url| (*url).to_owned()).collect();
    Input { name: name.to_owned(), sha256: HASH.to_owned(), size_bytes: 5, urls }
}

fn command(program: &str, account: Account) -> CommandOrder {
    CommandOrder {
        arguments: vec![program.to_owned(), "a b".to_owned()],
        account,
        directory: "/".to_owned(),
        environment: vec![("LC_ALL".to_owned(), "C".to_owned())],
    }
}

fn artifact(media: Media) -> Artifact {
    Artifact { sha256: HASH.parse().unwrap(), size_bytes: 5, media }
}

fn root() -> RootOrder {
    RootOrder {
        layers: vec![artifact(Media::Tree)],
        inputs: vec![input("one_1.deb", &[]), input("two.tar.gz", &["http://mirror.example/two.tar.gz"])],
        texts: vec![InputText { name: "Packages".to_owned(), text: "Package: one\n".to_owned() }],
        folders: vec![
            SharedFolder {
                name: "tree".to_owned(),
                inside: "/usr/pkgsrc".to_owned(),
                names: None,
                content: Some(FolderContent::Tree(artifact(Media::Tree))),
            },
            SharedFolder {
                name: "distfiles".to_owned(),
                inside: "/distfiles".to_owned(),
                names: Some(vec!["a/two.tar.gz".to_owned()]),
                content: Some(FolderContent::Files(vec![FolderFile {
                    name: "a/two.tar.gz".to_owned(),
                    artifact: artifact(Media::Bytes),
                }])),
            },
        ],
        sealed: vec!["/usr".to_owned()],
        open: vec!["/build".to_owned()],
        depends: vec![Dependency {
            name: "one".to_owned(),
            version: "1".to_owned(),
            file: "one_1.deb".to_owned(),
            sha256: HASH.to_owned(),
            is_signed: false,
        }],
        patches: vec![TreePatch {
            from: artifact(Media::Tree),
            to: artifact(Media::Tree).sha256,
            artifact: artifact(Media::Bytes),
        }],
    }
}

fn output() -> Output {
    Output {
        name: "two".to_owned(),
        version: "2+bk1".to_owned(),
        architecture: "amd64".to_owned(),
        file: "two_2+bk1_amd64.deb".to_owned(),
        sha256: HASH.to_owned(),
        size_bytes: 7,
        content: "c0".to_owned(),
        description: "Package: two\n".to_owned(),
        digests: Default::default(),
    }
}

fn failure() -> Failure {
    Failure {
        stage: Stage::Build,
        kind: FailureKind::Hung,
        message: "it hangs".to_owned(),
        line_number: Some(3),
        lines: vec!["sleep 9".to_owned()],
    }
}

fn measures() -> Measures {
    Measures { user_seconds: 1.5, written_bytes: Some(4096), ..Measures::default() }
}

fn attempt() -> Attempt {
    Attempt::from_bytes([7; 16])
}

fn session() -> Session {
    Session::from(Attempt::from_bytes([9; 16]))
}

fn keep() -> KeepOrder {
    let command = |task: &str| CommandOrder {
        arguments: vec!["/bin/sh".to_owned(), "/kilnyard/texts/keep.sh".to_owned(), task.to_owned()],
        account: Account::Builder,
        directory: "/build".to_owned(),
        environment: Vec::new(),
    };
    let (key, owner) = ("0".repeat(64), "1".repeat(64));
    KeepOrder { key, owner, pack: command("pack"), report: command("report"), starts_afresh: true }
}

fn lease() -> Lease {
    let stage = |stage| StageOrder { stage, commands: vec![command("make", Account::Builder)] };
    let order = BuildOrder {
        package: "two".to_owned(),
        version: "2+bk1".to_owned(),
        family: FamilyOrder {
            name: "debian".to_owned(),
            facts: [("suffix".to_owned(), "+bk".to_owned())].into(),
        },
        key: Key { digest: HASH.to_owned(), lines: vec!["format kilnyard-key 2".to_owned()] },
        root: root(),
        work: Some(WorkOrder { inside: "/build".to_owned(), expected_bytes: 1 << 20 }),
        fetch: Some(FetchOrder {
            stage: stage(Stage::Fetch),
            folder: SharedFolder {
                name: "distfiles".to_owned(),
                inside: "/distfiles".to_owned(),
                names: None,
                content: None,
            },
            files: vec![FetchFile { name: "a/two.tar.gz".to_owned(), size_bytes: None }],
        }),
        stages: vec![stage(Stage::Unpack), stage(Stage::Build)],
        clients: vec!["/usr/bin/make".to_owned()],
        fakeroots: vec!["/usr/bin/fakeroot".to_owned()],
        output_folder: "/build".to_owned(),
        terms: Default::default(),
        keep: None,
    };
    let seen = StageSeen {
        stage: Stage::Build,
        cpu_seconds: 2.5,
        still_seconds: 0.0,
        silent_seconds: 1.0,
        memory_bytes: 1 << 30,
        written_bytes: 1 << 20,
    };
    let files = Files::Memory;
    let (written_bytes, checks_reproducible) = (1 << 20, true);
    Lease {
        build: 7,
        attempt: attempt(),
        rank_seconds: 12.5,
        run: 3,
        slot: 1,
        files,
        written_bytes,
        order,
        seen: vec![seen],
        checks_reproducible,
        to_test: None,
        is_captured: false,
        to_check: Vec::new(),
    }
}

#[test]
fn a_lease() {
    // As sent by programs from before the terms were added.
    check("lease", &lease());
    let mut special = lease();
    special.order.terms = BuildTerms {
        has_network: true,
        jobs_max: Some(2),
        wall_seconds_max: Some(3600),
        cpu_seconds_min: Some(600),
        hung_seconds_min: Some(60),
        silent_seconds_min: Some(300),
        memory_bytes_min: Some(1 << 30),
        written_bytes_min: Some(1 << 31),
        open_files_max: Some(1024),
        processes_max: Some(512),
        machine: Some(MachineTerms { cores: 1, memory_bytes: 2 << 30, is_optional: false, processor: None }),
    };
    check("lease-with-terms", &special);
    let mut keeping = lease();
    keeping.order.keep = Some(keep());
    check("lease-with-kept-work", &keeping);
}

#[test]
fn reports() {
    check("progress-stage-began", &Progress::StageBegan(Stage::Depends));
    check("progress-wants", &Progress::Wants(4));
    check("progress-sample", &Progress::Sample { processes: 9, runnable: 2, memory_bytes: 1 << 30 });
    let result = StageResult {
        stage: Stage::Build,
        started_seconds: 1_700_000_000.5,
        wall_seconds: 2.5,
        cpu_seconds: 4.0,
        memory_peak_bytes: 1 << 30,
        work_bytes: None,
        disk_bytes: Some(1 << 20),
        parallel_seconds: None,
        is_ok: true,
        log: Some("logs/3/two/7-build.log.zst".to_owned()),
        log_sha256: None,
        left_behind: Vec::new(),
        measures: measures(),
    };
    check("progress-stage-ended", &Progress::StageEnded(Box::new(result)));
}

#[test]
fn outputs_and_their_answers() {
    check("built", &Built { build: 7, outputs: vec![output()], is_repeated: false });
    let test = TestOrder {
        root: root(),
        inputs: vec![input("two_2+bk1_amd64.deb", &[])],
        texts: Vec::new(),
        stage: StageOrder { stage: Stage::Test, commands: vec![command("apt-get", Account::Root)] },
    };
    let answer = |refused: Option<&str>, test| Answer {
        refused: refused.map(str::to_owned),
        outputs: vec![output()],
        notes: vec!["three is not kept".to_owned()],
        test,
        requires: None,
    };
    check("answer", &answer(None, Test::Run(Box::new(test))));
    check("answer-impossible", &answer(None, Test::Impossible("it needs four".to_owned())));
    check("answer-refused", &answer(Some("not declared"), Test::Skip));
    let requires = Some(vec!["(five or six)".to_owned()]);
    check("answer-requires", &Answer { requires, ..Answer::refuse("its build requires more".to_owned()) });
}

#[test]
fn results() {
    let result = |outcome| BuildResult { build: 7, outcome, is_reproducible: Some(false), provenance: None };
    check("result", &result(Ok(vec![output()])));
    check("result-failed", &result(Err(failure())));
}

#[test]
fn messages_of_a_worker() {
    let (session, attempt) = (session(), attempt());
    let hello = Hello {
        worker: "kiln-3".to_owned(),
        process: "5f1c".to_owned(),
        versions: Versions { oldest: 1, newest: 1 },
        cores: 16,
        speed: 1.5,
        memory_bytes: Some(64 << 30),
        disk_bytes: None,
        host: None,
        warm: Vec::new(),
        kept: Vec::new(),
    };
    // As sent by programs from before the host was added.
    check("hello", &ToCoordinator::Hello(hello.clone()));
    let host = Some(Host { kernel: "Linux 6.1.0-18-amd64".to_owned(), cpu: "AMD EPYC 7B13".to_owned() });
    check("hello-of-host", &ToCoordinator::Hello(Hello { host, ..hello.clone() }));
    let (warm, kept) = (vec!["2".repeat(64)], vec![keep().key]);
    check("hello-with-kept-work", &ToCoordinator::Hello(Hello { warm, kept, ..hello }));
    let held = |phase| Held { attempt, phase };
    check(
        "offer",
        &ToCoordinator::Offer(Offer {
            session,
            number: 5,
            held: vec![held(BuildPhase::Waiting), held(BuildPhase::Building), held(BuildPhase::Ended)],
            slots_free: 14,
            pressure: Pressure::High,
            takes_more: true,
            cores: None,
        }),
    );
    let reports = vec![Progress::StageBegan(Stage::Build), Progress::Wants(2)];
    check("reports", &ToCoordinator::Progress(Reports { session, attempt, first: 4, reports }));
    let built = Built { build: 7, outputs: vec![output()], is_repeated: false };
    check("said-built", &ToCoordinator::Built { session, attempt, built });
    let result =
        BuildResult { build: 7, outcome: Ok(vec![output()]), is_reproducible: None, provenance: None };
    check("said-result", &ToCoordinator::Result { session, attempt, result: Box::new(result) });
    check("leave", &ToCoordinator::Leave { session });
}

#[test]
fn messages_of_a_coordinator() {
    let (session, attempt) = (session(), attempt());
    let process = || "5f1c".to_owned();
    let ranked = Ranked { attempt, memory_bytes: 1 << 30, memory_per_core_bytes: 1 << 28 };
    check(
        "welcome",
        &ToWorker::Welcome(Welcome {
            process: process(),
            session,
            version: 1,
            slots: 16,
            cores: 18,
            jobs_max: Some(8),
            lease_seconds: 120.0,
        }),
    );
    check("refused", &ToWorker::Refused { process: process(), reason: "it lacks family:debian".to_owned() });
    check("rejoin", &ToWorker::Rejoin { session });
    check("ranks", &ToWorker::Ranks { session, offer: 5, builds: vec![ranked] });
    check("announce", &ToWorker::Announce { session, lease: Box::new(lease()) });
    check("grant", &ToWorker::Grant { session, lease: Box::new(lease()) });
    check("revoke", &ToWorker::Revoke { session, attempt });
    check("cancel", &ToWorker::Cancel { session, attempt });
    check("received", &ToWorker::Received { session, attempt, next: 6 });
    let answer = Answer::keep(vec![output()]);
    check(
        "said-answer",
        &ToWorker::Answer { session, attempt, is_repeated: false, answer: Box::new(answer) },
    );
    check("acknowledged", &ToWorker::Acknowledged { session, attempt });
    let reason = "its lease is over".to_owned();
    check("superseded", &ToWorker::Superseded { session, attempt, reason });
}
