//! Terms of a lease, which apply to its build alone: the network, other limits, fewer jobs.

use super::{Outcome, PACK, PROXY, RESOLV_CONF, Recorded, Trying, command, failed, kept, lease};
use kilnyard_model::order::{Account, BuildTerms, JOBS, RootOrder, Stage, StageOrder, TestOrder};
use kilnyard_model::result::FailureKind;
use kilnyard_protocol::{Answer, Lease, Test};
use std::io::Write;
use std::net::TcpListener;

/// A server on this machine that answers each connection with one line, and the shell commands that read the line.
fn served() -> std::io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = writeln!(&stream, "an answer");
        }
    });
    Ok(format!("bash -euc 'exec 3<>/dev/tcp/127.0.0.1/{port}; head -n 1 <&3'"))
}

fn with_terms(script: &str, terms: BuildTerms) -> Lease {
    let mut lease = lease(script);
    lease.order.terms = terms;
    lease
}

pub fn network_of_stages_alone() -> Outcome {
    let trying = Trying::new();
    let ask = served()?;
    let failure = failed(trying.perform(&lease(&ask), &Recorded::keeping_all()));
    assert_eq!((failure.kind, failure.stage), (FailureKind::Command, Stage::Build), "{failure:?}");
    assert!(!trying.log("build").contains("an answer"));
    let settings = "cat /kilnyard/texts/resolv.conf; echo proxy=${http_proxy:-none}";
    failed(trying.perform(&lease(settings), &Recorded::keeping_all()));
    assert!(!trying.log("build").contains("192.0.2."), "{}", trying.log("build"));

    let terms = BuildTerms { has_network: true, ..BuildTerms::default() };
    let allowed = with_terms(&format!("{ask}\n{settings}\n{PACK}"), terms);
    trying.perform(&allowed, &Recorded::keeping_all()).outcome.unwrap();
    let log = trying.log("build");
    for line in
        ["kilnyard: this stage has network access", "an answer", RESOLV_CONF, &format!("proxy={PROXY}")]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
    // The test of its outputs has none.
    let testing = Recorded::answering(move |built| {
        let order = TestOrder {
            root: RootOrder { folders: lease("").order.root.folders, ..lease("").order.root },
            inputs: Vec::new(),
            texts: Vec::new(),
            stage: StageOrder { stage: Stage::Test, commands: vec![command(Account::Root, &ask)] },
        };
        Ok(Answer { test: Test::Run(Box::new(order)), ..kept(built) })
    });
    let failure = failed(trying.perform(&with_terms(PACK, terms), &testing));
    assert_eq!((failure.kind, failure.stage), (FailureKind::Test, Stage::Test), "{failure:?}");
    assert!(!trying.log("test").contains("an answer") && !trying.log("test").contains("has network access"));
    Ok(())
}

pub fn a_lease_limits_its_own_build() -> Outcome {
    let trying = Trying::new();
    let kind = |script: &str, terms| {
        failed(trying.perform(&with_terms(script, terms), &Recorded::keeping_all())).kind
    };
    let usual = BuildTerms::default();
    let wall = BuildTerms { wall_seconds_max: Some(1), ..usual };
    assert_eq!(kind("sleep 30", wall), FailureKind::WallLimit);
    let still = BuildTerms { hung_seconds_min: Some(2), ..usual };
    assert_eq!(kind("sleep 30", still), FailureKind::Hung);
    let looping = BuildTerms { cpu_seconds_min: Some(1), ..usual };
    assert_eq!(kind("while :; do :; done", looping), FailureKind::CpuLimit);
    let written = BuildTerms { written_bytes_min: Some(1 << 20), ..usual };
    assert_eq!(kind("head -c 20M /dev/zero > big", written), FailureKind::DiskLimit);
    let files = BuildTerms { open_files_max: Some(64), ..usual };
    let open = "bash -c 'for i in $(seq 200); do exec {a}</dev/null || exit 1; done'";
    assert_eq!(kind(open, files), FailureKind::OpenFiles);
    // The settings of the worker allow all of that but the endless waiting.
    for (jobs_max, expected) in [(None, "jobs 3"), (Some(1), "jobs 1"), (Some(64), "jobs 3")] {
        let script = format!("echo jobs {JOBS}\nsleep 2\nhead -c 20M /dev/zero > big\n{open}\n{PACK}");
        let lease = with_terms(&script, BuildTerms { jobs_max, ..usual });
        trying.perform(&lease, &Recorded::keeping_all()).outcome.unwrap();
        assert!(trying.log("build").contains(&format!("{expected}\n")), "{}", trying.log("build"));
    }
    Ok(())
}
