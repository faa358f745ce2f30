//! A worker needs only a lease, which arrives as a message, and a folder to build. The root consists of the machine's
//! own `/usr`, so that nothing has to be fetched.

#[path = "lease/client.rs"]
mod client;
#[path = "lease/terms.rs"]
mod terms;
#[path = "lease/trees.rs"]
mod trees;

use kilnyard_ecosystem::OutputBounds;
use kilnyard_mirror::{FileStore, Limits as MirrorLimits, Sha256Hex};
use kilnyard_model::artifact::Artifact;
use kilnyard_model::artifact::Checked;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{
    Account, BuildOrder, CommandOrder, FamilyOrder, Input, Key, Output, RootOrder, SharedFolder, Stage,
    StageOrder, TestOrder,
};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_process::weight::Weights;
use kilnyard_process::{LimitRules, LogLimits, read_log};
use kilnyard_protocol::{Answer, BuildResult, Built, Lease, Progress, Test, decode, encode};
use kilnyard_root::{IdMap, Making, Roots, probe};
use kilnyard_schedule::Files;
use kilnyard_worker::{BUILDER_ID, JobserverStyle, Link, Network, Settings, Share, Unprovided, Worker};
use libtest_mimic::{Arguments, Failed, Trial};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

type Outcome = Result<(), Failed>;

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    let need = missing();
    let trial =
        |name: &'static str, run: fn() -> Outcome| Trial::test(name, run).with_ignored_flag(need.is_some());
    let trials = vec![
        trial("a_lease_and_a_folder_are_enough", a_lease_and_a_folder_are_enough),
        trial("the_coordinator_decides_what_is_kept", the_coordinator_decides_what_is_kept),
        trial("an_answer_names_nothing_that_was_not_built", an_answer_names_nothing_else),
        trial("outputs_are_tested_as_the_answer_says", outputs_are_tested_as_the_answer_says),
        trial(
            "a_coordinator_that_does_not_know_a_test_answers_again",
            a_coordinator_that_does_not_know_a_test,
        ),
        trial("a_stage_that_fails_is_reported_with_its_line", a_stage_that_fails),
        trial("a_build_without_outputs_or_with_bad_ones_asks_nothing", bad_outputs),
        trial("two_builds_of_a_lease_are_compared", two_builds_are_compared),
        trial("an_unknown_family_builds_nothing", an_unknown_family),
        trial("a_cancelled_lease_ends_and_leaves_nothing", a_cancelled_lease),
        trial("a_lost_coordinator_is_not_a_fault_of_the_package", a_lost_coordinator),
        trial("a_lease_with_the_network_has_it_in_its_stages_alone", terms::network_of_stages_alone),
        trial("a_lease_limits_its_own_build", terms::a_lease_limits_its_own_build),
        trial("a_worker_takes_part_by_messages", client::a_worker_takes_part_by_messages),
        trial("a_worker_that_is_closed_leaves_no_build", client::a_worker_that_is_closed_leaves_no_build),
        trial(
            "each_hello_names_the_kept_work_of_its_time",
            client::each_hello_names_the_kept_work_of_its_time,
        ),
        trial("yards_of_a_worker_share_trees", trees::yards_of_a_worker_share_trees),
        trial(
            "trees_are_made_from_earlier_ones_by_patches",
            trees::trees_are_made_from_earlier_ones_by_patches,
        ),
        trial("a_worker_that_is_refused_says_why", client::a_worker_that_is_refused_says_why),
    ];
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    if let Some(reason) = need {
        eprintln!("skipped: all trials of leases: {reason}");
    }
    conclusion.exit();
}

fn ids() -> (IdMap, Option<String>) {
    let (ids, lack) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    (ids, lack.map(|lack| lack.to_string()))
}

fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Why roots cannot be made here.
fn missing() -> Option<String> {
    let (ids, lack) = ids();
    let tried = probe::try_root(open_folder().path(), &ids, &Making::default());
    lack.or_else(|| tried.err().map(|error| error.to_string())).or_else(|| {
        (!Path::new("/usr/bin/dpkg-deb").exists()).then(|| "dpkg-deb is not installed".to_owned())
    })
}

/// The base root of all trials.
static BASE: OnceLock<Artifact> = OnceLock::new();

struct Trying {
    folder: tempfile::TempDir,
    worker: Worker,
    store: Arc<FileStore>,
    /// The number of the last build.
    build: Cell<u64>,
}

impl Trying {
    fn new() -> Trying {
        let (folder, (ids, _)) = (open_folder(), ids());
        let base = folder.path().join("layers/made");
        for part in ["", "build", "dev", "etc", "kilnyard", "proc", "run", "sys", "tmp", "usr"] {
            fs::create_dir_all(base.join(part)).unwrap();
            probe::give_to_root(&base.join(part), &ids).unwrap();
        }
        fs::set_permissions(base.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        let builder = (ids.user_outside(BUILDER_ID), ids.group_outside(BUILDER_ID));
        chown(base.join("build"), builder.0, builder.1).unwrap();
        for link in ["bin", "lib", "lib64", "sbin"] {
            symlink(format!("usr/{link}"), base.join(link)).unwrap();
        }
        let store =
            Arc::new(FileStore::open(&folder.path().join("distfiles"), MirrorLimits::default()).unwrap());
        let settings = Settings {
            site: None,
            yard: folder.path().to_owned(),
            ids,
            folders: [("usr".to_owned(), "/usr".into())].into(),
            limits: LimitRules {
                wall_seconds_max: 60.0,
                cpu_seconds_min: 60.0,
                hung_seconds_min: 60.0,
                silent_seconds_min: 60.0,
                processes_max: 1000,
                memory_bytes_min: 1 << 30,
                written_bytes_min: 64 << 20,
                open_files_max: 1024,
                cpu_seconds_unknown_max: None,
                memory_bytes_max: None,
            },
            output_bounds: OutputBounds::WIDEST,
            log_limits: LogLimits::default(),
            roots: Roots::default(),
            works_in_memory: false,
            layers_bytes_max: 0,
            kept_bytes_max: 0,
            failed_roots_max: 1,
            nesting: BTreeSet::new(),
            jobserver: JobserverStyle::Off,
            jobs: 3,
            network: Network {
                resolv_conf: RESOLV_CONF.to_owned(),
                environment: vec![("http_proxy".to_owned(), PROXY.to_owned())],
            },
        };
        let worker = Worker::new(settings, store.clone());
        worker.sweep().unwrap();
        // The same tree gives the same artifact, whenever it is made.
        let packed = worker.trees().pack("layers/made", Some(0)).unwrap();
        assert_eq!(BASE.get_or_init(|| packed.clone()), &packed);
        Trying { folder, worker, store, build: Cell::new(6) }
    }

    /// Performs a lease, which is encoded and decoded first, with the next number.
    fn perform(&self, lease: &Lease, link: &Recorded) -> BuildResult {
        self.build.set(self.build.get() + 1);
        let lease = Lease { build: self.build.get(), ..lease.clone() };
        let lease: Lease = decode(&encode(&lease).unwrap()).unwrap();
        let share =
            Share { membership: Weights::find_among("lease", &[]).begin(lease.build), jobserver: None };
        let result = self.worker.perform(&lease, &share, &link.cancel, link);
        decode(&encode(&result).unwrap()).unwrap()
    }

    /// The log of a stage of the last build.
    fn log(&self, stage: &str) -> String {
        let name = format!("{}-{stage}.log", self.build.get());
        read_log(&self.folder.path().join("logs/3/one").join(name)).unwrap()
    }

    /// The remaining roots.
    fn roots(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("roots")).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn has(&self, output: &Output) -> bool {
        self.store.path(&Sha256Hex::parse(&output.sha256).unwrap()).is_file()
    }
}

type Answering = dyn Fn(&Built) -> Result<Answer, String>;
type Providing = dyn Fn(&TestOrder) -> Result<(), Unprovided>;

/// The coordinator's end: always answers the same way, and records the messages.
struct Recorded {
    answer: Box<Answering>,
    provide: Box<Providing>,
    cancel: AtomicBool,
    cancels_in: Option<Stage>,
    built: RefCell<Vec<Built>>,
    stages: RefCell<Vec<(Stage, bool)>>,
}

impl Recorded {
    fn answering(answer: impl Fn(&Built) -> Result<Answer, String> + 'static) -> Recorded {
        Recorded {
            answer: Box::new(answer),
            provide: Box::new(|_| Ok(())),
            cancel: AtomicBool::new(false),
            cancels_in: None,
            built: RefCell::default(),
            stages: RefCell::default(),
        }
    }

    fn keeping_all() -> Recorded {
        Recorded::answering(|built| Ok(kept(built)))
    }
}

impl Link for Recorded {
    fn report(&self, progress: Progress) {
        match decode(&encode(&progress).unwrap()).unwrap() {
            Progress::StageBegan(stage) if self.cancels_in == Some(stage) => {
                self.cancel.store(true, Ordering::Relaxed);
            }
            Progress::StageEnded(result) => self.stages.borrow_mut().push((result.stage, result.is_ok)),
            _ => {}
        }
    }

    fn built(&self, built: &Built, _: &Path) -> Result<Answer, String> {
        self.built.borrow_mut().push(built.clone());
        (self.answer)(built)
    }

    fn provide_test(&self, test: &TestOrder) -> Result<(), Unprovided> {
        (self.provide)(test)
    }

    fn check(&self, _: &Sha256Hex) -> Result<Checked, String> {
        Err("there is no store".to_owned())
    }
}

fn kept(built: &Built) -> Answer {
    Answer::keep(built.outputs.clone())
}

fn command(account: Account, script: &str) -> CommandOrder {
    CommandOrder {
        arguments: ["/bin/sh", "-euc", script].map(str::to_owned).into(),
        account,
        directory: "/build".to_owned(),
        environment: vec![("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned())],
    }
}

/// The network settings of the worker; no build without the network sees them.
const RESOLV_CONF: &str = "nameserver 192.0.2.53\n";
const PROXY: &str = "http://192.0.2.1:3128";

const PACK: &str = "mkdir -p p/DEBIAN p/usr
printf 'Package: one\\nVersion: 1+bk1\\nArchitecture: all\\nMaintainer: A <a@b.c>\\nDescription: d\\n' > p/DEBIAN/control
dpkg-deb --root-owner-group --build p one_1+bk1_all.deb";

fn lease(script: &str) -> Lease {
    let usr = SharedFolder { name: "usr".to_owned(), inside: "/usr".to_owned(), names: None, content: None };
    Lease {
        build: 7,
        attempt: Attempt::from_bytes([7; 16]),
        rank_seconds: 1.0,
        run: 3,
        slot: 0,
        files: Files::Disk,
        written_bytes: 0,
        order: BuildOrder {
            package: "one".to_owned(),
            version: "1+bk1".to_owned(),
            family: FamilyOrder {
                name: "debian".to_owned(),
                facts: [("suffix".to_owned(), "+bk".to_owned())].into(),
            },
            key: Key { digest: "k".to_owned(), lines: Vec::new() },
            root: RootOrder {
                layers: BASE.get().cloned().into_iter().collect(),
                folders: vec![usr],
                ..RootOrder::default()
            },
            work: None,
            fetch: None,
            stages: vec![StageOrder {
                stage: Stage::Build,
                commands: vec![command(Account::Builder, script)],
            }],
            clients: Vec::new(),
            fakeroots: Vec::new(),
            output_folder: "/build".to_owned(),
            terms: Default::default(),
            keep: None,
        },
        seen: Vec::new(),
        checks_reproducible: false,
        to_test: None,
        is_captured: false,
        to_check: Vec::new(),
    }
}

fn failed(result: BuildResult) -> Failure {
    result.outcome.expect_err("the build succeeded")
}

fn a_lease_and_a_folder_are_enough() -> Outcome {
    let (trying, link) = (Trying::new(), Recorded::keeping_all());
    let result = trying.perform(&lease(PACK), &link);
    let outputs = result.outcome.unwrap();
    assert_eq!((result.build, outputs.len(), result.is_reproducible), (7, 1, None));
    let output = &outputs[0];
    assert_eq!(
        [&output.name, &output.version, &output.architecture, &output.file],
        ["one", "1+bk1", "all", "one_1+bk1_all.deb"]
    );
    assert!(trying.has(output) && output.description.contains("Maintainer: A <a@b.c>"));
    let built = link.built.borrow();
    assert_eq!((built.len(), built[0].build, built[0].is_repeated), (1, 7, false));
    assert_eq!(*link.stages.borrow(), [(Stage::Build, true), (Stage::Collect, true)]);
    assert!(trying.log("build").contains("building package 'one'"));
    assert!(trying.log("collect").contains(&output.sha256));
    Ok(())
}

fn the_coordinator_decides_what_is_kept() -> Outcome {
    let trying = Trying::new();
    let refusing =
        Recorded::answering(|built| Ok(Answer { refused: Some("not declared".to_owned()), ..kept(built) }));
    let failure = failed(trying.perform(&lease(PACK), &refusing));
    assert_eq!((failure.kind, failure.stage), (FailureKind::Outputs, Stage::Collect));
    assert_eq!(failure.message, "not declared");
    assert!(!trying.has(&refusing.built.borrow()[0].outputs[0]), "a refused output was kept");
    assert!(trying.log("collect").contains("E: not declared"));
    // Keeps nothing, and gives a reason.
    let dropping = Recorded::answering(|built| {
        Ok(Answer { outputs: Vec::new(), notes: vec!["one is of two".to_owned()], ..kept(built) })
    });
    let result = trying.perform(&lease(PACK), &dropping);
    assert_eq!(result.outcome.unwrap(), []);
    assert!(!trying.has(&dropping.built.borrow()[0].outputs[0]));
    assert!(trying.log("collect").contains("one is of two"));
    Ok(())
}

fn an_answer_names_nothing_else() -> Outcome {
    let trying = Trying::new();
    fs::write(trying.folder.path().join("secret"), "secret").unwrap();
    let secret = Sha256Hex::of(b"secret").as_str().to_owned();
    let renamed = |file: &'static str, sha256: Option<String>| {
        Recorded::answering(move |built| {
            let mut answer = kept(built);
            answer.outputs[0].file = file.to_owned();
            if let Some(sha256) = &sha256 {
                answer.outputs[0].sha256.clone_from(sha256);
            }
            Ok(answer)
        })
    };
    for link in [renamed("../../../../secret", Some(secret)), renamed("p/DEBIAN/control", None)] {
        let failure = failed(trying.perform(&lease(PACK), &link));
        assert_eq!(failure.kind, FailureKind::Machine);
        assert!(failure.message.contains("which is not an output"), "{}", failure.message);
    }
    Ok(())
}

/// Keeps everything, and has it tested with this script.
fn testing(script: &'static str) -> Recorded {
    Recorded::answering(move |built| {
        let output = &built.outputs[0];
        let input = Input {
            name: output.file.clone(),
            sha256: output.sha256.clone(),
            size_bytes: output.size_bytes,
            urls: Vec::new(),
        };
        let commands = vec![command(Account::Root, script)];
        let order = TestOrder {
            root: lease("").order.root,
            inputs: vec![input],
            texts: Vec::new(),
            stage: StageOrder { stage: Stage::Test, commands },
        };
        Ok(Answer { test: Test::Run(Box::new(order)), ..kept(built) })
    })
}

fn a_coordinator_that_does_not_know_a_test() -> Outcome {
    let trying = Trying::new();
    let refusing = |times: u32| {
        let (store, left) = (trying.store.clone(), Cell::new(times));
        let provide = move |test: &TestOrder| {
            let sha256 = Sha256Hex::parse(&test.inputs[0].sha256).unwrap();
            assert!(store.contains(&sha256), "an output of this build has to be fetched");
            if left.get() == 0 {
                return Ok(());
            }
            left.set(left.get() - 1);
            Err(Unprovided::Refused("no build of this worker names it".to_owned()))
        };
        Recorded { provide: Box::new(provide), ..testing("true") }
    };
    let link = refusing(2);
    assert_eq!(trying.perform(&lease(PACK), &link).outcome.unwrap().len(), 1);
    assert_eq!(link.built.borrow().len(), 3, "each refusal reports the outputs again");
    let link = refusing(3);
    let failure = failed(trying.perform(&lease(PACK), &link));
    assert_eq!((failure.stage, failure.kind), (Stage::Collect, FailureKind::Machine));
    assert_eq!((&*failure.message, link.built.borrow().len()), ("no build of this worker names it", 3));
    let unreachable = |_: &TestOrder| Err(Unprovided::Failed("no connection".to_owned()));
    let link = Recorded { provide: Box::new(unreachable), ..testing("true") };
    let failure = failed(trying.perform(&lease(PACK), &link));
    assert_eq!((&*failure.message, link.built.borrow().len()), ("no connection", 1));
    Ok(())
}

fn outputs_are_tested_as_the_answer_says() -> Outcome {
    let trying = Trying::new();
    let link = testing("dpkg-deb --field /kilnyard/inputs/one_1+bk1_all.deb Package");
    assert_eq!(trying.perform(&lease(PACK), &link).outcome.unwrap().len(), 1);
    assert_eq!(link.stages.borrow().last(), Some(&(Stage::Test, true)));
    assert!(trying.log("test").lines().any(|line| line == "one"));
    let link = testing("echo 'error: it does not start' >&2; exit 3");
    let failure = failed(trying.perform(&lease(PACK), &link));
    assert_eq!((failure.stage, failure.kind), (Stage::Test, FailureKind::Test), "{failure:?}");
    let impossible = Recorded::answering(|built| {
        Ok(Answer { test: Test::Impossible("it needs two".to_owned()), ..kept(built) })
    });
    let failure = failed(trying.perform(&lease(PACK), &impossible));
    assert_eq!((failure.stage, failure.kind), (Stage::Test, FailureKind::Test));
    assert_eq!(failure.message, "the outputs cannot be installed: it needs two");
    Ok(())
}

fn a_stage_that_fails() -> Outcome {
    let (trying, link) = (Trying::new(), Recorded::keeping_all());
    let failure = failed(trying.perform(&lease("echo begin; echo 'x.c:3: error: bad' >&2; exit 2"), &link));
    assert_eq!((failure.stage, failure.kind), (Stage::Build, FailureKind::Command));
    assert!(failure.message.contains("x.c:3: error: bad") && failure.line_number.is_some(), "{failure:?}");
    assert!(link.built.borrow().is_empty());
    assert_eq!(*link.stages.borrow(), [(Stage::Build, false)]);
    // Only the package's last failed root is kept.
    failed(trying.perform(&lease("exit 2"), &link));
    assert!(trying.roots().contains(&"failed-one".to_owned()), "{:?}", trying.roots());
    Ok(())
}

fn bad_outputs() -> Outcome {
    let (trying, link) = (Trying::new(), Recorded::keeping_all());
    let failure = failed(trying.perform(&lease("echo no package > one_1_all.deb"), &link));
    assert_eq!((failure.stage, failure.kind), (Stage::Collect, FailureKind::Outputs), "{failure:?}");
    assert!(failure.message.contains("one_1_all.deb"), "{}", failure.message);
    let mut gone = lease("true");
    gone.order.output_folder = "/build/nothing".to_owned();
    let failure = failed(trying.perform(&gone, &link));
    assert!(failure.message.contains("no output folder"), "{}", failure.message);
    // A link as the output folder is not followed.
    let mut linked = lease("ln -s / /build/out");
    linked.order.output_folder = "/build/out".to_owned();
    assert_eq!(failed(trying.perform(&linked, &link)).kind, FailureKind::Outputs);
    // Writes more than the limit, in a command that ends before a sample is taken.
    let failure = failed(trying.perform(&lease("head -c 80M /dev/zero > all"), &link));
    assert_eq!(failure.kind, FailureKind::DiskLimit, "{failure:?}");
    assert!(link.built.borrow().is_empty());
    Ok(())
}

fn two_builds_are_compared() -> Outcome {
    let trying = Trying::new();
    for (more, is_reproducible) in [("", true), ("date +%N > p/usr/now; ", false)] {
        let link = Recorded::keeping_all();
        let mut twice = lease(&PACK.replace("dpkg-deb", &format!("{more}dpkg-deb")));
        twice.checks_reproducible = true;
        let result = trying.perform(&twice, &link);
        assert_eq!(result.outcome.unwrap().len(), 1);
        assert_eq!(result.is_reproducible, Some(is_reproducible), "{more}");
        let repeated: Vec<bool> = link.built.borrow().iter().map(|built| built.is_repeated).collect();
        assert_eq!(repeated, [false, true]);
    }
    Ok(())
}

fn an_unknown_family() -> Outcome {
    let (trying, link) = (Trying::new(), Recorded::keeping_all());
    let mut other = lease(PACK);
    other.order.family.name = "slackware".to_owned();
    let failure = failed(trying.perform(&other, &link));
    assert_eq!(failure.kind, FailureKind::Machine);
    assert!(failure.message.contains("the package family slackware"), "{}", failure.message);
    assert!(link.stages.borrow().is_empty());
    Ok(())
}

fn a_cancelled_lease() -> Outcome {
    let trying = Trying::new();
    let link = Recorded { cancels_in: Some(Stage::Build), ..Recorded::keeping_all() };
    let failure = failed(trying.perform(&lease("sleep 616201"), &link));
    assert_eq!(failure.kind, FailureKind::Cancelled);
    let is_there = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == b"sleep\x00616201\x00"));
    assert!(!is_there, "the command is still running");
    Ok(())
}

fn a_lost_coordinator() -> Outcome {
    let (trying, link) = (Trying::new(), Recorded::answering(|_| Err("there is no answer".to_owned())));
    let failure = failed(trying.perform(&lease(PACK), &link));
    assert_eq!((failure.stage, failure.kind), (Stage::Collect, FailureKind::Machine));
    assert!(failure.message.contains("there is no answer"), "{}", failure.message);
    assert!(!trying.has(&link.built.borrow()[0].outputs[0]));
    Ok(())
}
