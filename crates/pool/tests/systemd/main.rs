//! The driver `systemd` with a real systemd, which is booted in namespaces of its own: see `boot.sh`.

#[path = "../pilots/mod.rs"]
mod pilots;

use kilnyard_pool::{
    Driver, Launch, Limits, PilotName, PilotState, Surroundings, SystemdDriver, SystemdSettings, Units,
};
use pilots::{Pool, launch, terms};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/systemd/boot.sh");
const MAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/farm.sh");

struct Machine {
    process: Child,
    folder: TempDir,
}

impl Machine {
    fn start(test: &str) -> Option<Machine> {
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        let missing = ["mmdebstrap", "unshare", "nsenter"].into_iter().find(|program| !has(program));
        let reason = match (rustix::process::geteuid().is_root(), missing) {
            (false, _) => Some("it needs root".to_owned()),
            (true, missing) => missing.map(|program| format!("{program} is not installed")),
        };
        if let Some(reason) = reason {
            println!("skipped: {test}: {reason}");
            return None;
        }
        let cached = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-root");
        let root = std::env::var_os("KILNYARD_POOL_ROOT").map_or(cached, PathBuf::from);
        assert!(Command::new(MAKE).arg("make").arg(&root).status().unwrap().success(), "mmdebstrap failed");
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("shared")).unwrap();
        let process = Command::new(BOOT).args([&root, &path("work"), &path("shared")]).spawn().unwrap();
        let mut machine = Machine { process, folder };
        let unshare = machine.process.id();
        let mut first = String::new();
        machine.wait("it has a first process", || {
            first =
                fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap_or_default();
            // Before it becomes `unshare`, the script has children in this test's namespace.
            let status = fs::read_to_string(format!("/proc/{}/status", first.trim())).unwrap_or_default();
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            ids.is_some_and(|ids| ids.split_whitespace().skip(1).last() == Some("1"))
        });
        fs::create_dir(machine.path("bin")).unwrap();
        for program in ["systemctl", "systemd-run"] {
            let path = machine.path("bin").join(program);
            let text =
                format!("#!/bin/sh\nexec nsenter -t {} -m -p -n /usr/bin/{program} \"$@\"\n", first.trim());
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let systemctl = machine.path("bin/systemctl");
        machine.wait("it is booted", || {
            let state = Command::new(&systemctl).arg("is-system-running").output().unwrap();
            matches!(String::from_utf8_lossy(&state.stdout).trim(), "running" | "degraded")
        });
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_done() {
            assert!(Instant::now() < deadline, "not within 60 s: {what}");
            assert!(self.process.try_wait().unwrap().is_none(), "it has ended: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn driver(&self) -> SystemdDriver {
        let mut surroundings = Surroundings::default();
        let path = surroundings.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", self.path("bin").display());
        SystemdDriver::new(SystemdSettings {
            prefix: "kilnyard-lab".to_owned(),
            folder: self.path("shared").join("pilots"),
            units: Units::System,
            limits: Limits { memory_bytes: Some(1 << 28), cores: Some(1), grace_seconds: 2 },
            seconds_max: 10,
            surroundings,
        })
        .unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let id = self.process.id();
        for hierarchy in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"] {
            // The kernel removes its processes a moment later.
            let group = format!("{hierarchy}/kilnyard-test-{id}");
            let remove = "for try in 1 2 3 4 5 6 7 8 9 10; do find \"$1\" -depth -type d -exec rmdir {} + 2>/dev/null; \
                [ -e \"$1\" ] || exit 0; sleep 0.2; done";
            let _ = Command::new("sh").args(["-c", remove, "sh", &group]).status();
        }
    }
}

#[test]
fn units_start_end_and_stop() {
    let Some(mut machine) = Machine::start("units_start_end_and_stop") else { return };
    let driver = machine.driver();
    let described = driver.describe().unwrap();
    assert!(described.version.starts_with("systemd 2"), "{described:?}");
    assert!(
        described.places[0].cores.is_some() && described.places[0].memory_bytes.is_some(),
        "{described:?}"
    );
    assert_eq!(described.places[0].trouble, None);
    assert_eq!(driver.list().unwrap().pilots, []);

    let pilot = |count: u32| PilotName::parse(&format!("kilnyard-lab-f-g-{count}")).unwrap();
    let (one, shared) = (pilot(1), machine.path("shared"));
    fs::create_dir(shared.join("workers")).unwrap();
    driver.start(&one, &launch(&shared, &one)).unwrap();
    machine.wait("it works", || shared.join("starts").exists());
    assert_eq!(driver.list().unwrap().pilots[0].state, PilotState::Running);
    assert!(driver.start(&one, &launch(&shared, &one)).is_err());
    // What all users can see.
    let shown =
        Command::new(machine.path("bin/systemctl")).args(["show", "kilnyard-lab-f-g-1"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("MemoryMax=268435456") && shown.contains("KillMode=mixed"));
    assert!(!shown.contains("secret"));
    driver.stop(&one).unwrap();
    driver.stop(&pilot(9)).unwrap();
    machine.wait("it is gone", || driver.list().unwrap().pilots.is_empty());
    assert_eq!(fs::read_to_string(shared.join("drained")).unwrap(), "kilnyard-lab-f-g-1\n");
    assert!(!shared.join("pilots/kilnyard-lab-f-g-1").exists());

    let end = |text: &str, count: u32, machine: &mut Machine| {
        let command = ["sh", "-c", text].map(str::to_owned).to_vec();
        driver.start(&pilot(count), &Launch { command, ..Launch::default() }).unwrap();
        let mut reason = None;
        machine.wait("it ends", || {
            let listing = driver.list().unwrap();
            reason = listing.pilots.first().and_then(|one| one.reason.clone());
            reason.is_some()
        });
        assert_eq!(driver.list().unwrap().pilots, []);
        reason.unwrap()
    };
    assert_eq!(end("exit 3", 2, &mut machine), "exit-code, status 3");
    assert_eq!(end("kill -9 $PPID; sleep 100", 3, &mut machine), "signal, status 9");
}

#[test]
fn a_pool_of_units() {
    let Some(machine) = Machine::start("a_pool_of_units") else { return };
    let driver = machine.driver();
    let mut pool = Pool::new(&driver, terms(3), &machine.path("shared"));
    pool.want(5);
    pool.until("three pilots", 30, |figures| figures.there() == 3);
    pool.steps(2);
    assert_eq!(pool.figures().all(), 3);
    pool.want(1);
    pool.until("one pilot", 30, |figures| figures.all() == 1 && figures.there() == 1);
    pool.want(0);
    pool.until("none", 30, |figures| figures.all() == 0);
    pool.assert_none_twice();
}
