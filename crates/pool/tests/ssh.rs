//! The driver `ssh` with real servers: two sshd of the test's own, with keys of its own, as an ordinary user where the test is root.

mod pilots;

use kilnyard_pool::{
    Driver, Launch, Limits, Manner, PilotName, PilotState, PoolError, SshDriver, SshHost, SshSettings,
    Surroundings,
};
use pilots::{Pool, launch, terms};
use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The ordinary user as which a test of root logs in; only the server's view of the accounts has it.
const USER: (u32, &str) = (61_234, "kilnyard-test");

/// Two hosts, which are servers on this machine, each with a folder of pilots.
struct Hosts {
    folder: TempDir,
    servers: Vec<(u16, Option<Child>)>,
    user: String,
    is_root: bool,
}

fn sshd() -> Option<PathBuf> {
    let places = std::env::var("KILNYARD_SSHD").ok().into_iter().chain(["/usr/sbin/sshd".to_owned()]);
    places.map(PathBuf::from).find(|path| path.exists())
}

impl Hosts {
    fn start(test: &str) -> Option<Hosts> {
        let Some(sshd) = sshd() else {
            println!("skipped: {test}: /usr/sbin/sshd (openssh-server) is not installed");
            return None;
        };
        let is_root = rustix::process::geteuid().is_root();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let user = match is_root {
            true => USER.1.to_owned(),
            false => String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout)
                .unwrap()
                .trim()
                .to_owned(),
        };
        let mut hosts = Hosts { folder, servers: Vec::new(), user, is_root };
        for key in ["host", "user"] {
            let path = hosts.path(key);
            let keygen =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
            assert!(keygen.unwrap().success());
        }
        for name in ["shared", "pilots0", "pilots1"] {
            fs::create_dir(hosts.path(name)).unwrap();
            hosts.give(&hosts.path(name));
        }
        fs::copy(hosts.path("user.pub"), hosts.path("authorized")).unwrap();
        let host_key = fs::read_to_string(hosts.path("host.pub")).unwrap();
        let mut known = String::new();
        for at in 0..2 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            known.push_str(&format!("[127.0.0.1]:{port} {host_key}"));
            let configuration = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
                 StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n",
                hosts.path("host").display(),
                hosts.path("authorized").display(),
            );
            fs::write(hosts.path(&format!("sshd{at}")), configuration).unwrap();
            hosts.servers.push((port, None));
        }
        fs::write(hosts.path("known"), known).unwrap();
        let mut accounts = fs::read_to_string("/etc/passwd").unwrap();
        accounts.push_str(&format!("{}:x:{1}:{1}::/:/bin/sh\n", USER.1, USER.0));
        if !accounts.contains("\nsshd:") {
            accounts.push_str("sshd:x:61235:61235::/run/sshd:/usr/sbin/nologin\n");
        }
        fs::write(hosts.path("passwd"), accounts).unwrap();
        hosts.servers.iter_mut().enumerate().for_each(|(at, (port, child))| {
            *child = Some(serve(&sshd, &hosts.folder.path().join(format!("sshd{at}")), *port));
        });
        Some(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// To the user that the servers log in.
    fn give(&self, path: &Path) {
        if self.is_root {
            chown(path, Some(USER.0), Some(USER.0)).unwrap();
        }
    }

    fn end(&mut self, at: usize) {
        let mut child = self.servers[at].1.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn restart(&mut self, at: usize) {
        let (port, configuration) = (self.servers[at].0, self.path(&format!("sshd{at}")));
        self.servers[at].1 = Some(serve(&sshd().unwrap(), &configuration, port));
    }

    /// One host for each server. They share a machine, so each needs a folder of its own: one driver for each.
    fn driver(&self, at: &[usize], slots: u32, change: impl FnOnce(&mut SshSettings)) -> SshDriver {
        let mut surroundings = Surroundings::default();
        surroundings.environment.insert("HOME".to_owned(), self.folder.path().to_str().unwrap().to_owned());
        let hosts = at.iter().map(|at| SshHost {
            address: format!("{}@127.0.0.1", self.user),
            port: Some(self.servers[*at].0),
            slots,
        });
        let known = format!("UserKnownHostsFile={}", self.path("known").display());
        let key = self.path("user").to_str().unwrap().to_owned();
        let options = ["-F", "none", "-o", &known, "-o", "IdentitiesOnly=yes", "-i", &key];
        let mut settings = SshSettings {
            prefix: "kilnyard-lab".to_owned(),
            hosts: hosts.collect(),
            folder: Some(self.path(&format!("pilots{}", at[0])).to_str().unwrap().to_owned()),
            manner: Manner::Detached,
            limits: Limits { memory_bytes: None, cores: None, grace_seconds: 2 },
            options: options.map(str::to_owned).to_vec(),
            seconds_max: 10,
            surroundings,
        };
        change(&mut settings);
        SshDriver::new(settings).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (_, child) in &mut self.servers {
            if let Some(child) = child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn serve(sshd: &Path, configuration: &Path, port: u16) -> Child {
    // As root, in a mount namespace with the test's own accounts and `/run/sshd`.
    let own = r#"mount --bind "$1" /etc/passwd && mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && shift && exec "$@""#;
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", own, "sh"])
                .arg(configuration.with_file_name("passwd"))
                .arg(sshd);
            command
        }
        false => Command::new(sshd),
    };
    let mut child = command
        .args(["-D", "-e", "-f"])
        .arg(configuration)
        .stdin(Stdio::null())
        .stderr(fs::File::create(configuration.with_extension("log")).unwrap())
        .spawn()
        .unwrap();
    wait("the server listens", || {
        assert!(
            child.try_wait().unwrap().is_none(),
            "{}",
            fs::read_to_string(configuration.with_extension("log")).unwrap()
        );
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    child
}

fn name(text: &str) -> PilotName {
    PilotName::parse(text).unwrap()
}

fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn script(text: &str) -> Launch {
    Launch { command: ["sh", "-c", text].map(str::to_owned).to_vec(), ..Launch::default() }
}

#[test]
fn a_pilot_outlives_the_connection_and_the_server() {
    let Some(mut hosts) = Hosts::start("a_pilot_outlives_the_connection_and_the_server") else { return };
    let driver = hosts.driver(&[0], 2, |_| {});
    let described = driver.describe().unwrap();
    assert!(described.version.starts_with("OpenSSH"), "{described:?}");
    assert!(described.places[0].cores.is_some() && described.places[0].trouble.is_none(), "{described:?}");
    assert!(
        described.places[0].memory_bytes.unwrap() > 1 << 28 && described.notes.len() == 1,
        "{described:?}"
    );

    let (one, shared) = (name("kilnyard-lab-f-g-1"), hosts.path("shared"));
    fs::create_dir(shared.join("workers")).unwrap();
    hosts.give(&shared.join("workers"));
    driver.start(&one, &launch(&shared, &one)).unwrap();
    assert!(driver.start(&one, &launch(&shared, &one)).unwrap_err().line().contains("`exists`"));
    wait("it works", || shared.join("starts").exists());
    let token = hosts.path("pilots0/kilnyard-lab-f-g-1/files/token").metadata().unwrap();
    assert_eq!(token.permissions().mode() & 0o777, 0o600);
    if hosts.is_root {
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&token), USER.0);
    }
    let shown = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(!shown.contains("secret of kilnyard-lab-f-g-1") && !shown.contains("it's secret"));

    // Another process of ours, which knows nothing, finds it after the server was killed.
    hosts.end(0);
    let error = driver.list().unwrap();
    assert_eq!((error.pilots[0].state, error.away.len()), (PilotState::Unknown, 1), "{error:?}");
    hosts.restart(0);
    let other = hosts.driver(&[0], 2, |_| {});
    assert_eq!(other.list().unwrap().pilots[0].state, PilotState::Running);
    other.stop(&name("kilnyard-lab-f-g-2")).unwrap();
    other.stop(&one).unwrap();
    let mut last = None;
    wait("it ends", || {
        let pilots = other.list().unwrap().pilots;
        last = pilots.first().cloned().or(last.take());
        pilots.is_empty()
    });
    assert_eq!(last.unwrap().reason.as_deref(), Some("exit code 0"));
    assert_eq!(fs::read_to_string(shared.join("drained")).unwrap(), "kilnyard-lab-f-g-1\n");
    let left: Vec<_> =
        fs::read_dir(hosts.path("pilots0")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn pilots_end_in_every_way() {
    let Some(hosts) = Hosts::start("pilots_end_in_every_way") else { return };
    let driver = hosts.driver(&[0], 9, |_| {});
    let ends = BTreeMap::from([
        ("kilnyard-lab-f-g-1", "echo 'the yard refused the token' >&2; exit 3"),
        ("kilnyard-lab-f-g-2", "kill -9 $PPID; sleep 100"),
        ("kilnyard-lab-f-g-3", "trap '' TERM; while :; do sleep 0.1; done"),
    ]);
    for (pilot, text) in &ends {
        driver.start(&name(pilot), &script(text)).unwrap();
    }
    let mut reasons = BTreeMap::new();
    let mut read = |driver: &SshDriver| {
        for one in driver.list().unwrap().pilots {
            if one.state == PilotState::Ended {
                reasons.insert(one.name.as_str().to_owned(), one.reason.unwrap());
            }
        }
        reasons.clone()
    };
    // Of the second, a process of the pilot holds the lock: it is not gone as long as that lives.
    wait("the first has ended", || read(&driver).contains_key("kilnyard-lab-f-g-1"));
    assert_eq!(
        read(&driver)["kilnyard-lab-f-g-1"],
        "exit code 3; its log ends with: the yard refused the token"
    );
    // The third ignores SIGTERM, and is killed two seconds later.
    driver.stop(&name("kilnyard-lab-f-g-3")).unwrap();
    wait("the third is killed", || read(&driver).contains_key("kilnyard-lab-f-g-3"));
    assert_eq!(read(&driver)["kilnyard-lab-f-g-3"], "killed");
    driver.stop(&name("kilnyard-lab-f-g-2")).ok();
    let _ = Command::new("pkill").args(["-KILL", "-f", "kill -9 \\$PPID; sleep 100"]).status();
}

#[test]
fn slots_are_counted_by_the_host() {
    let Some(hosts) = Hosts::start("slots_are_counted_by_the_host") else { return };
    let (driver, other) = (hosts.driver(&[0], 2, |_| {}), hosts.driver(&[0], 2, |_| {}));
    other.list().unwrap();
    for count in 0..2 {
        driver.start(&name(&format!("kilnyard-lab-f-g-{count}")), &script("exec sleep 100")).unwrap();
    }
    // The other process does not know that yet.
    let error = other.start(&name("kilnyard-lab-f-h-1"), &script("exec sleep 100")).unwrap_err();
    assert!(
        matches!(&error, PoolError::NoHost { reason, .. } if reason.ends_with("is full")),
        "{}",
        error.line()
    );
    for count in 0..2 {
        other.stop(&name(&format!("kilnyard-lab-f-g-{count}"))).unwrap();
    }
    wait("both are gone", || driver.list().unwrap().pilots.is_empty());
}

#[test]
fn a_host_that_is_down_affects_only_itself() {
    let Some(mut hosts) = Hosts::start("a_host_that_is_down_affects_only_itself") else { return };
    let shared = hosts.path("shared");
    // The second host is a port without a server; both would have the same folder.
    hosts.end(1);
    let driver = hosts.driver(&[0, 1], 2, |_| {});
    let mut pool = Pool::new(&driver, terms(4), &shared);
    hosts.give(&shared.join("workers"));
    pool.want(4);
    pool.until("two pilots on the host that is there", 30, |figures| figures.there() == 2);
    pool.steps(3);
    let figures = pool.figures();
    assert!(figures.there() == 2 && figures.troubles[0].contains("Connection refused"), "{figures:?}");
    assert!(figures.troubles.iter().any(|trouble| trouble.contains("no host takes")), "{figures:?}");
    // The host with pilots goes down: they work, nothing is concluded.
    let before = pool.alive();
    hosts.end(0);
    pool.steps(3);
    assert_eq!((pool.alive(), pool.figures().there()), (before, 2));
    hosts.restart(0);
    pool.want(0);
    pool.until("all are gone", 30, |figures| figures.there() == 0);
    pool.assert_none_twice();
}

#[test]
fn connections_that_fail_say_why() {
    let Some(hosts) = Hosts::start("connections_that_fail_say_why") else { return };
    let list = |change: &dyn Fn(&mut SshSettings)| {
        let listing = hosts.driver(&[0], 1, change).list().unwrap();
        assert_eq!((listing.pilots.len(), listing.away.len()), (0, 1), "{listing:?}");
        listing.away.into_iter().next().unwrap()
    };
    let unknown = list(&|settings| settings.options[3] = "UserKnownHostsFile=/dev/null".to_owned());
    assert!(unknown.contains("Host key verification failed"), "{unknown}");
    let refused = list(&|settings| settings.options.truncate(6));
    assert!(refused.contains("Permission denied"), "{refused}");
    let closed = list(&|settings| settings.folder = Some("/proc/nowhere".to_owned()));
    assert!(closed.contains("exit code 71"), "{closed}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let late = list(&|settings| (settings.hosts[0].port, settings.seconds_max) = (Some(port), 2));
    assert!(late.contains("2 s") || late.contains("timed out"), "{late}");
}
