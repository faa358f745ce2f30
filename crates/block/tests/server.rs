//! Servers as processes, with libnbd or the kernel as their client.

#[path = "server/kernel.rs"]
mod kernel;

use kilnyard_block::{Counters, Front, Service, become_server_if_asked};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The number of random requests; the variable overrides it.
const OPERATIONS: &str = "20000";
const OPERATIONS_VARIABLE: &str = "KILNYARD_BLOCK_OPERATIONS";
/// Twice the memory, so that blocks move to the file.
const SIZE_BYTES: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    become_server_if_asked();
    let trials: [(&str, fn()); 9] = [
        ("random_requests_are_answered_as_a_model_answers_them", a_model),
        ("libnbd_copies_and_maps_a_device", copied),
        ("a_client_that_breaks_the_protocol_harms_itself_alone", hostile),
        ("a_read_only_device_is_not_written", read_only),
        ("flushes_that_are_kept_write_to_the_file", kept_flushes),
        ("an_image_that_cannot_be_shown_is_named", refused),
        ("a_device_of_the_kernel_answers_as_a_model_does", kernel::a_model),
        ("a_device_of_the_kernel_ends_with_its_server", kernel::ends),
        ("a_device_of_the_kernel_over_nbd_answers_as_a_model_does", kernel::a_model_over_nbd),
    ];
    let trials = trials.map(|(name, test)| {
        let is_of_kernel = name.starts_with("a_device_of_the_kernel");
        let lack = is_of_kernel.then(|| kernel::lack(name.contains("nbd"))).flatten();
        if let Some(lack) = lack {
            eprintln!("skipped: {name}: {lack}");
        }
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(lack.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// A server and its folder.
struct Served {
    folder: TempDir,
    child: Child,
}

impl Served {
    fn start(keeps_flushes: bool) -> Served {
        Served::start_as(|folder| service(folder, keeps_flushes))
    }

    fn start_as(service: impl FnOnce(&Path) -> Service) -> Served {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("image"), content()).unwrap();
        let service = service(folder.path());
        let mut child = service.command().unwrap().spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !fs::metadata(&service.ready).is_ok_and(|ready| ready.len() > 0) {
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(2));
        }
        Served { folder, child }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// Ends it as the end of a machine does.
    fn end(mut self) -> Counters {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_slice(&fs::read(self.folder.path().join("counters")).unwrap()).unwrap()
    }
}

fn content() -> Vec<u8> {
    (0..SIZE_BYTES).map(|at| (at / 3) as u8 ^ (at >> 13) as u8).collect()
}

fn service(folder: &Path, keeps_flushes: bool) -> Service {
    Service {
        image: folder.join("image"),
        memory_bytes_max: 0,
        spill: folder.to_owned(),
        keeps_flushes,
        is_read_only: false,
        front: Front::Nbd { socket: folder.join("socket") },
        requests: Some(folder.join("requests")),
        counters: Some(folder.join("counters")),
        ready: folder.join("ready"),
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said.into_owned()
}

fn a_model() {
    for (seed, keeps_flushes) in [("1", false), ("2", true)] {
        let served = Served::start(keeps_flushes);
        let operations = std::env::var(OPERATIONS_VARIABLE).unwrap_or(OPERATIONS.to_owned());
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model.py");
        let socket = served.socket();
        let (socket, size) = (socket.to_str().unwrap(), SIZE_BYTES.to_string());
        let said = run("/usr/bin/python3", &[model, socket, &size, &operations, seed]);
        assert!(said.contains("equal"), "{said}");
        let counters = served.end();
        assert!(counters.spilled_bytes > 0 && counters.memory_bytes_max <= 16 << 20, "{counters:?}");
    }
}

fn copied() {
    let served = Served::start(false);
    let (uri, copy) = (served.uri(), served.folder.path().join("copy"));
    run("nbdcopy", &[&uri, copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == content());
    // Zeros are not sent: the second MiB takes no place afterwards.
    let mut other = content();
    other[1 << 20..2 << 20].fill(0);
    fs::write(&copy, &other).unwrap();
    run("nbdcopy", &[copy.to_str().unwrap(), &uri]);
    run("nbdcopy", &[&uri, copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == other);
    let map = run("nbdinfo", &["--map", &uri]);
    assert!(
        map.lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>()[..3] == ["1048576", "1048576", "3"]),
        "{map}"
    );
    assert!(fs::read(served.folder.path().join("image")).unwrap() == content());
    served.end();
}

fn hostile() {
    let served = Served::start(false);
    let connect = || {
        let mut client = UnixStream::connect(served.socket()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        client
    };
    let option = |number: u32, data: &[u8]| {
        [
            &0x4948_4156_454f_5054u64.to_be_bytes()[..],
            &number.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            data,
        ]
        .concat()
    };
    // In transmission at once, without the name of an export.
    let transmitting = || {
        let mut client = connect();
        client.write_all(&[&3u32.to_be_bytes()[..], &option(1, b"")].concat()).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        client
    };
    let request = |kind: u16, offset: u64, bytes: u32| {
        [
            &0x2560_9513u32.to_be_bytes()[..],
            &0u16.to_be_bytes(),
            &kind.to_be_bytes(),
            &7u64.to_be_bytes(),
            &offset.to_be_bytes(),
            &bytes.to_be_bytes(),
        ]
        .concat()
    };
    let ends = |mut client: UnixStream, sent: &[u8]| {
        // The server may be gone before all is sent.
        let _ = client.write_all(sent);
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        rest
    };
    assert_eq!(ends(connect(), &0xffff_ffffu32.to_be_bytes()), b"");
    assert_eq!(ends(connect(), &[&3u32.to_be_bytes()[..], b"GET / HTTP/1.0\r\n\r\n"].concat()), b"");
    let long = [&option(7, b"")[..12], &u32::MAX.to_be_bytes()].concat();
    assert_eq!(ends(connect(), &[&3u32.to_be_bytes()[..], &long].concat()), b"");
    assert_eq!(ends(transmitting(), &[0x11; 28]), b"");
    assert_eq!(ends(transmitting(), &request(1, 0, u32::MAX)), b"");
    // Requests that make no sense get an error, and the connection continues.
    let size = SIZE_BYTES as u64;
    let mut client = transmitting();
    for (kind, offset, bytes) in [
        (0, size, 1),
        (0, 0, u32::MAX),
        (0, u64::MAX, 4096),
        (4, size - 1, 2),
        (6, 4096, u32::MAX),
        (7, 0, 4096),
        (99, 0, 0),
    ] {
        client.write_all(&request(kind, offset, bytes)).unwrap();
        let mut reply = [0; 16];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[..8], &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22], "{kind} {offset} {bytes}");
    }
    client.write_all(&[&request(1, size - 1, 2)[..], b"xx"].concat()).unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    client.write_all(&request(0, size - 4, 4)).unwrap();
    let mut reply = [0; 20];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
    assert_eq!(reply[16..], content()[SIZE_BYTES - 4..]);
    drop(client);
    run("nbdinfo", &[&served.uri()]);
    assert_eq!(
        fs::metadata(served.socket())
            .map(|facts| std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o777)
            .unwrap(),
        0o600
    );
    served.end();
}

fn read_only() {
    let served = Served::start_as(|folder| Service { is_read_only: true, ..service(folder, false) });
    let script = "import errno, nbd, sys\nc = nbd.NBD(); c.set_strict_mode(0); c.connect_unix(sys.argv[1])\n\
                  assert c.is_read_only()\n\
                  for request in lambda: c.pwrite(b'x' * 4096, 0), lambda: c.trim(4096, 0), lambda: c.zero(4096, 0):\n\
                  \x20   try: request()\n\
                  \x20   except nbd.Error as error: assert error.errnum == errno.EPERM, error\n\
                  \x20   else: raise SystemExit('it was written')";
    run("/usr/bin/python3", &["-c", script, served.socket().to_str().unwrap()]);
    let copy = served.folder.path().join("copy");
    run("nbdcopy", &[&served.uri(), copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == content());
    let counters = served.end();
    assert_eq!((counters.writes, counters.spilled_bytes, counters.discarded_bytes), (0, 0, 0));
}

fn kept_flushes() {
    let served = Served::start(true);
    let script = "import nbd, sys; c = nbd.NBD(); c.connect_unix(sys.argv[1]); c.pwrite(b'x' * 8192, 4096)\n\
                  c.flush(); c.flush(); c.pwrite(b'y' * 4096, 4096); c.flush()";
    run("/usr/bin/python3", &["-c", script, served.socket().to_str().unwrap()]);
    let counters = served.end();
    assert_eq!((counters.flushes, counters.spilled_bytes, counters.rewritten_bytes), (3, 12288, 4096));
}

fn refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (None, "No such file or directory"),
        (Some(5000), "a device of 5000 bytes is no multiple of 4096"),
        (Some(0), "0 bytes"),
    ];
    for (bytes, expected) in cases {
        if let Some(bytes) = bytes {
            fs::write(folder.path().join("image"), vec![0; bytes]).unwrap();
        }
        let output = service(folder.path(), false).command().unwrap().output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert!(!folder.path().join("ready").exists());
    }
}
