//! The driver `slurm` with Debian's Slurm: slurmctld and two slurmd in private namespaces. See `farm.sh`.
//!
//! The installation is made once, by mmdebstrap, in cargo's folder for tests; `KILNYARD_POOL_ROOT` names another place.

#[path = "../pilots/mod.rs"]
mod pilots;

use kilnyard_pool::{Driver, Launch, PilotName, PilotState, SlurmDriver, SlurmSettings, Surroundings};
use pilots::{Pool, launch, terms};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/farm.sh");
const PROGRAMS: [&str; 5] = ["sbatch", "squeue", "scancel", "sinfo", "scontrol"];

/// The installation, or why there is none.
fn root() -> Result<&'static Path, &'static str> {
    static ROOT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Err("it needs root".to_owned());
        }
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if let Some(missing) = ["mmdebstrap", "unshare", "nsenter"].into_iter().find(|program| !has(program))
        {
            return Err(format!("{missing} is not installed"));
        }
        let cached = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-root");
        let root = std::env::var_os("KILNYARD_POOL_ROOT").map_or(cached, PathBuf::from);
        let made = Command::new(SCRIPT).arg("make").arg(&root).status().unwrap();
        assert!(made.success(), "mmdebstrap failed");
        Ok(root)
    });
    root.as_deref().map_err(String::as_str)
}

/// A running cluster of two nodes with 16 cores each.
struct Farm {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Farm {
    /// None, with a printed reason, where there cannot be one.
    fn start(test: &str) -> Option<Farm> {
        let root = match root() {
            Ok(root) => root,
            Err(reason) => {
                println!("skipped: {test}: {reason}");
                return None;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("shared")).unwrap();
        let mut process = Command::new(SCRIPT)
            .arg("run")
            .args([root, &path("work"), &path("shared")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let mut farm = Farm { process, input, output, folder };
        assert_eq!(farm.line(), "ready");
        // unshare waits for the first process of the cluster.
        let unshare = farm.process.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        let first = children.trim();
        fs::create_dir(farm.path("bin")).unwrap();
        for program in PROGRAMS {
            let path = farm.path("bin").join(program);
            let text = format!("#!/bin/sh\nexec nsenter -t {first} -m -p -n /usr/bin/{program} \"$@\"\n");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(farm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// `kill NAME` or `start NAME`.
    fn ask(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        assert_eq!(self.line(), format!("done {what}"));
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(self.path("bin").join(program)).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn driver(&self, change: impl FnOnce(&mut SlurmSettings)) -> SlurmDriver {
        let mut surroundings = Surroundings::default();
        let path = surroundings.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", self.path("bin").display());
        let mut settings = SlurmSettings {
            prefix: "kilnyard-lab".to_owned(),
            folder: self.path("shared").join("pilots"),
            cores: 1,
            memory_bytes: 100 << 20,
            minutes_max: 10,
            notice_seconds: 60,
            partition: Some("lab".to_owned()),
            account: None,
            options: Vec::new(),
            seconds_max: 20,
            surroundings,
        };
        change(&mut settings);
        SlurmDriver::new(settings).unwrap()
    }

    fn pool<'driver>(&self, driver: &'driver SlurmDriver, most: u32) -> Pool<'driver> {
        Pool::new(driver, terms(most), &self.path("shared"))
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn name(text: &str) -> PilotName {
    PilotName::parse(text).unwrap()
}

fn wait(what: &str, seconds: u64, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !is_done() {
        assert!(Instant::now() < deadline, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_pilot_starts_is_listed_and_stops() {
    let Some(farm) = Farm::start("a_pilot_starts_is_listed_and_stops") else { return };
    let driver = farm.driver(|_| {});
    let described = driver.describe().unwrap();
    assert!(described.version.starts_with("slurm-wlm 2"), "{described:?}");
    let place = &described.places[0];
    assert_eq!(
        (place.name.as_str(), place.count, place.cores, &place.trouble),
        ("lab", Some(2), Some(16), &None)
    );
    assert!(described.notes[0].contains("does not confine"), "{:?}", described.notes);
    assert_eq!(driver.list().unwrap().pilots, []);

    let one = name("kilnyard-lab-f-g-1");
    let shared = farm.path("shared");
    fs::create_dir(shared.join("workers")).unwrap();
    driver.start(&one, &launch(&shared, &one)).unwrap();
    wait("it runs", 10, || {
        driver.list().unwrap().pilots.first().is_some_and(|one| one.state == PilotState::Running)
    });
    wait("it works", 10, || shared.join("starts").exists());
    assert!(driver.start(&one, &launch(&shared, &one)).is_err(), "a name is used once");
    // What the user, and operators, can see of it.
    let mut seen = farm.run("scontrol", &["show", "job", "--details"]);
    seen += &farm.run("scontrol", &["write", "batch_script", "1", "-"]);
    assert!(seen.contains("a worker of Kilnyard") && seen.contains("JobName=kilnyard-lab-f-g-1"), "{seen}");
    let arguments = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    seen += &String::from_utf8_lossy(&arguments.stdout);
    assert!(!seen.contains("secret of kilnyard-lab-f-g-1\n") && !seen.contains("it's secret"));
    assert_eq!(shared.join("pilots").metadata().unwrap().permissions().mode() & 0o777, 0o700);

    // Neither names of others nor numbers of ours stop it.
    driver.stop(&name("kilnyard-lab-f-g-2")).unwrap();
    let other =
        Command::new(farm.path("bin/scancel")).args(["--user=0", "--name=other", "1"]).output().unwrap();
    assert!(driver.list().unwrap().pilots[0].state == PilotState::Running, "{other:?}");

    driver.stop(&one).unwrap();
    wait("it is gone", 10, || driver.list().unwrap().pilots.iter().all(|one| one.state == PilotState::Ended));
    assert_eq!(fs::read_to_string(shared.join("drained")).unwrap(), "kilnyard-lab-f-g-1\n");
    wait("its folder is removed", 5, || !shared.join("pilots/kilnyard-lab-f-g-1").exists());
    driver.stop(&one).unwrap();
}

#[test]
fn jobs_have_user_namespaces_and_fail_with_a_reason() {
    let Some(farm) = Farm::start("jobs_have_user_namespaces_and_fail_with_a_reason") else { return };
    let driver = farm.driver(|_| {});
    let end = |count: u32, script: &str| {
        let name = name(&format!("kilnyard-lab-f-g-{count}"));
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        driver.start(&name, &Launch { command, ..Launch::default() }).unwrap();
        let mut reason = None;
        wait("it ends", 15, || {
            let listing = driver.list().unwrap();
            let listed = listing.pilots.into_iter().find(|one| one.name == name).unwrap();
            reason = listed.reason;
            listed.state == PilotState::Ended
        });
        reason.unwrap()
    };
    // As root, and as an ordinary user.
    let enter = "unshare -Urmp --fork sh -c 'mount -t tmpfs none /mnt && mount -t proc none /proc'";
    assert_eq!(end(1, enter), "COMPLETED");
    assert_eq!(end(2, &format!("setpriv --reuid 65534 --regid 65534 --clear-groups {enter}")), "COMPLETED");
    let reason = end(3, "echo 'kilnyard: the yard refused the token' >&2; exit 3");
    assert_eq!(reason, "FAILED: NonZeroExitCode; its log ends with: kilnyard: the yard refused the token");
    let reason = end(4, "kill -9 $$");
    assert!(reason.starts_with("FAILED: "), "{reason}");

    // More than the nodes have: Slurm refuses it, or queues it and says why.
    let large = farm.driver(|settings| settings.memory_bytes = 64 << 30);
    let error =
        large.start(&name("kilnyard-lab-f-g-5"), &launch(&farm.path("shared"), &name("a"))).unwrap_err();
    assert!(error.line().contains("Memory specification can not be satisfied"), "{}", error.line());
    let wide = farm.driver(|settings| settings.cores = 99);
    wide.start(&name("kilnyard-lab-f-g-6"), &launch(&farm.path("shared"), &name("a"))).unwrap();
    let listing = driver.list().unwrap();
    let queued = listing.pilots.iter().find(|one| one.state == PilotState::Queued).unwrap();
    assert_eq!(queued.reason.as_deref(), Some("PartitionConfig"));
    driver.stop(&queued.name).unwrap();
    // A job of this user with a name that imitates the list.
    let odd = "--job-name=a\nkilnyard-lab-f-g-7|RUNNING";
    farm.run("sbatch", &["--wrap=sleep 100", odd]);
    assert!(driver.list().unwrap().pilots.iter().all(|one| one.state == PilotState::Ended));
}

/// The finding that this driver is made for: a controller that is killed right after it acknowledged a job forgets it.
#[test]
fn a_controller_that_is_killed_after_each_submission_loses_no_pilot() {
    lose_none("a_controller_that_is_killed_after_each_submission_loses_no_pilot", |count| count <= 20);
}

/// The same with one kill, at the 20th submission: most of those before are forgotten, too.
#[test]
fn a_controller_that_is_killed_after_twenty_submissions_loses_no_pilot() {
    lose_none("a_controller_that_is_killed_after_twenty_submissions_loses_no_pilot", |count| count == 20);
}

/// The controller is killed and started right after the acknowledged submissions that `is_killed` names, by number.
fn lose_none(test: &str, is_killed: fn(u32) -> bool) {
    let Some(mut farm) = Farm::start(test) else { return };
    let driver = farm.driver(|settings| settings.seconds_max = 8);
    let mut terms = terms(20);
    terms.starts_at_once_max = 20;
    let mut pool = Pool::new(&driver, terms, &farm.path("shared"));
    let (mut submissions, mut kills) = (0, 0);
    let mut kill = |_: &PilotName| {
        submissions += 1;
        if is_killed(submissions) {
            kills += 1;
            farm.ask("kill slurmctld");
            farm.ask("start slurmctld");
        }
    };
    pool.want_with(20, &mut kill);
    pool.until_with("twenty pilots", 400, |figures| figures.there() == 20, &mut kill);
    assert!(kills > 0);
    pool.assert_none_twice();
    let figures = pool.figures();
    println!(
        "{kills} kills: {} submissions acknowledged, {} forgotten, {} not acknowledged; 20 pilots work",
        pool.acknowledged, figures.lost_total, figures.failed_total
    );
    assert_eq!(pool.alive().len(), 20);
    pool.want(0);
    pool.until("all are gone", 120, |figures| figures.all() == 0);
    assert_eq!(pool.alive().len(), 0);
    pool.assert_none_twice();
}

#[test]
fn a_controller_that_is_away_changes_nothing() {
    let Some(mut farm) = Farm::start("a_controller_that_is_away_changes_nothing") else { return };
    let driver = farm.driver(|settings| settings.seconds_max = 2);
    let mut pool = farm.pool(&driver, 6);
    pool.want(3);
    pool.until("three pilots", 60, |figures| figures.there() == 3);
    // The controller writes its state every five seconds.
    pool.steps(8);
    let before = pool.alive();
    farm.ask("kill slurmctld");
    pool.want(6);
    pool.steps(8);
    let figures = pool.figures();
    assert!(pool.alive().is_superset(&before) && figures.troubles[0].contains("squeue"), "{figures:?}");
    farm.ask("start slurmctld");
    pool.until("six pilots", 60, |figures| figures.there() == 6);
    assert!(pool.alive().is_superset(&before));
    pool.assert_none_twice();
}

#[test]
fn a_node_that_is_killed_or_drained_loses_only_its_pilots() {
    let Some(mut farm) = Farm::start("a_node_that_is_killed_or_drained_loses_only_its_pilots") else {
        return;
    };
    let driver = farm.driver(|settings| settings.cores = 4);
    let mut pool = farm.pool(&driver, 6);
    pool.want(6);
    pool.until("six pilots", 60, |figures| figures.there() == 6);
    let before = pool.alive();

    // A slurmd that is started again finds its jobs.
    farm.ask("kill-slurmd n1");
    farm.ask("start n1");
    pool.steps(3);
    assert_eq!((pool.alive(), pool.figures().there()), (before.clone(), 6));

    // The node is gone with all that ran there: four fit on the other one.
    farm.ask("kill n1");
    pool.until("Slurm and workers agree on four", 90, |figures| figures.there() == 4 && figures.queued == 2);
    assert!(pool.figures().ended_total >= 1, "{:?}", pool.figures());
    pool.assert_none_twice();
    farm.ask("start n1");
    pool.until("six pilots again", 90, |figures| figures.there() == 6);

    // A drained node keeps what runs, and gets nothing new.
    farm.run("scontrol", &["update", "NodeName=n2", "State=DRAIN", "Reason=test"]);
    let before = pool.alive();
    pool.steps(3);
    assert_eq!(pool.alive(), before);
    assert!(driver.describe().unwrap().places.iter().any(|place| place.trouble.is_some()));
    pool.want(0);
    pool.until("all are gone", 60, |figures| figures.all() == 0);
    pool.assert_none_twice();
}

#[test]
fn a_time_limit_is_noticed_in_time() {
    let Some(farm) = Farm::start("a_time_limit_is_noticed_in_time") else { return };
    let driver = farm.driver(|settings| (settings.minutes_max, settings.notice_seconds) = (1, 20));
    let mut pool = farm.pool(&driver, 1);
    pool.want(1);
    pool.until("a pilot", 60, |figures| figures.there() == 1);
    let first = pool.alive();
    let began = Instant::now();
    pool.until("it has ended by itself", 90, |figures| figures.ended_total == 1);
    let drained = fs::read_to_string(pool.shared.join("drained")).unwrap();
    assert_eq!(drained.trim(), first.first().unwrap().as_str());
    println!(
        "SIGTERM came {:.0} s after the start of a pilot with 60 s, 20 s of notice",
        began.elapsed().as_secs_f64()
    );
    pool.until("another one", 60, |figures| figures.there() == 1);
    assert_ne!(pool.alive(), first);
    pool.assert_none_twice();
}
