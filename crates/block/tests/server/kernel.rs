//! Devices of ublk_drv, and of nbd with the server of NBD. They are root's, and need the kernel to have them: `modprobe ublk_drv
//! nbd`.

use super::{PATIENCE, SIZE_BYTES, Served, content, run, service};
use kilnyard_block::{Front, Service};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const OPERATIONS: usize = 2000;
/// More than a server has requests at one time.
const USERS: usize = 96;
/// How long they use a device before its server is killed.
const LOADED: Duration = Duration::from_millis(300);
const LONGEST_BYTES: usize = 512 << 10;
const DIRECT_BYTES: usize = 64 << 10;
// linux/fs.h
const DROP_CACHE: libc::c_ulong = 0x1261;
const DISCARD: libc::c_ulong = 0x1277;
const ZERO: libc::c_ulong = 0x127f;

/// The numbers of devices belong to the whole machine: another test would get those that one of these waits for.
static NUMBERS: Mutex<()> = Mutex::new(());

/// A device of nbd.
const NBD: &str = "/dev/nbd0";

/// Why there are no such devices here.
pub fn lack(is_nbd: bool) -> Option<&'static str> {
    let (device, lack) = match is_nbd {
        false => {
            ("/dev/ublk-control", "no /dev/ublk-control: the kernel has no ublk_drv, or it is not loaded")
        }
        true => (NBD, "no /dev/nbd0: the kernel has no nbd, or it is not loaded"),
    };
    match Path::new(device).exists() {
        true if rustix::process::geteuid().is_root() => None,
        true => Some("needs root"),
        false => Some(lack),
    }
}

fn shown(folder: &Path, keeps_flushes: bool) -> Service {
    Service { front: Front::Ublk { link: folder.join("device") }, ..service(folder, keeps_flushes) }
}

fn open(served: &Served) -> File {
    File::options().read(true).write(true).open(served.folder.path().join("device")).unwrap()
}

fn ask(device: &File, request: libc::c_ulong, range: [u64; 2]) {
    // SAFETY: the descriptor is open, and the kernel reads two numbers at most.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request as _, range.as_ptr()) };
    assert!(result == 0, "{request:#x} {range:?}: {}", std::io::Error::last_os_error());
}

/// The content, from the server.
fn read(device: &File) -> Vec<u8> {
    device.sync_all().unwrap();
    ask(device, DROP_CACHE, [0; 2]);
    let mut bytes = vec![0; SIZE_BYTES];
    device.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Numbers by xorshift (Marsaglia, "Xorshift RNGs", 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Compares a device with a model of it, and ends its server.
fn compare(served: Served, device: File, seed: u64, end: impl FnOnce()) {
    let (mut model, mut numbers) = (content(), Numbers(seed));
    assert!(read(&device) == model);
    for operation in 0..OPERATIONS {
        let shift = numbers.below(LONGEST_BYTES.ilog2() as usize + 1);
        let length = numbers.below(1 << shift) + 1;
        let from = numbers.below(SIZE_BYTES - length);
        // In whole blocks, as the kernel wants it.
        let (first, end) = (from.next_multiple_of(4096), (from + length) / 4096 * 4096);
        match numbers.below(16) {
            0 | 1 if first < end => {
                let request = if operation % 2 == 0 { DISCARD } else { ZERO };
                ask(&device, request, [first as u64, (end - first) as u64]);
                model[first..end].fill(0);
            }
            2..6 => {
                let mut bytes = vec![0; length];
                device.read_exact_at(&mut bytes, from as u64).unwrap();
                assert!(bytes == model[from..from + length], "seed {seed}, {operation}: {from}+{length}");
            }
            6 if operation % 8 == 0 => device.sync_all().unwrap(),
            7 if operation % 16 == 0 => ask(&device, DROP_CACHE, [0; 2]),
            _ => {
                model[from..from + length].fill(operation as u8);
                device.write_all_at(&model[from..from + length], from as u64).unwrap();
            }
        }
    }
    assert!(read(&device) == model, "seed {seed}");
    assert!(fs::read(served.folder.path().join("image")).unwrap() == content());
    drop(device);
    end();
    let counters = served.end();
    assert!(counters.spilled_bytes > 0 && counters.memory_bytes_max <= 16 << 20, "{counters:?}");
    assert!(counters.flushes > 0 && counters.discarded_bytes > 0, "{counters:?}");
}

pub fn a_model() {
    let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    for (seed, keeps_flushes) in [(1, false), (2, true)] {
        let served = Served::start_as(|folder| shown(folder, keeps_flushes));
        let device = open(&served);
        compare(served, device, seed, || ());
    }
}

/// Attaches a server of NBD, which several connections use at once.
fn attach(served: &Served) -> File {
    let socket = served.socket();
    run("nbd-client", &["-unix", socket.to_str().unwrap(), NBD, "-C", "4", "-b", "4096"]);
    File::options().read(true).write(true).open(NBD).unwrap()
}

fn detach() {
    run("nbd-client", &["-d", NBD]);
}

pub fn a_model_over_nbd() {
    let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    for (seed, keeps_flushes) in [(3, false), (4, true)] {
        let served = Served::start(keeps_flushes);
        let device = attach(&served);
        compare(served, device, seed, detach);
    }
    // Killed: its user gets errors, and the device serves the next one.
    let mut served = Served::start(false);
    let device = attach(&served);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    wait_until("the user had errors", || {
        ask(&device, DROP_CACHE, [0; 2]);
        device.read_exact_at(&mut [0; 4096], 0).is_err()
    });
    drop(device);
    // The kernel may have done so.
    let _ = Command::new("nbd-client").args(["-d", NBD]).output();
    let served = Served::start(false);
    let device = attach(&served);
    assert!(read(&device) == content());
    drop(device);
    detach();
    served.end();
}

/// The nodes of a device: that of its content, and that of its server.
fn nodes(served: &Served) -> [PathBuf; 2] {
    let node = fs::read_link(served.folder.path().join("device")).unwrap();
    let control = node.to_str().unwrap().replace("ublkb", "ublkc");
    [node, control.into()]
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn wait_until_gone(path: &Path) {
    wait_until(&format!("{} was gone", path.display()), || !path.exists());
}

/// Reads past the page cache, so that each reader has one request in progress.
fn use_until_it_fails(device: &Path, user: usize) -> JoinHandle<()> {
    let device = File::options().read(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
    std::thread::spawn(move || {
        let mut memory = vec![0; 2 * DIRECT_BYTES];
        let aligned = memory.as_ptr().align_offset(DIRECT_BYTES);
        let bytes = &mut memory[aligned..][..DIRECT_BYTES];
        while device.read_exact_at(bytes, (user * DIRECT_BYTES) as u64).is_ok() {}
    })
}

pub fn ends() {
    let _alone = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    // By a signal, while a user has it open and did not write everything.
    let mut served = Served::start_as(|folder| shown(folder, false));
    let (device, [node, control]) = (open(&served), nodes(&served));
    device.write_all_at(&[7; 8192], 4096).unwrap();
    kill_process(Pid::from_child(&served.child), Signal::TERM).unwrap();
    assert!(served.child.wait().unwrap().success());
    assert!(!node.exists() && !served.folder.path().join("device").is_symlink());
    assert!(device.write_all_at(&[7; 8192], 4096).and_then(|()| device.sync_all()).is_err());
    drop(device);
    wait_until_gone(&control);
    // With the thread that started it.
    let mut served = std::thread::spawn(|| Served::start_as(|folder| shown(folder, false))).join().unwrap();
    assert!(served.child.wait().unwrap().success());
    assert!(!served.folder.path().join("device").is_symlink());
    // Killed: its user gets errors, and the next server removes what is left.
    let mut served = Served::start_as(|folder| shown(folder, false));
    let (device, [node, control]) = (open(&served), nodes(&served));
    let users = (0..USERS).map(|user| use_until_it_fails(&node, user)).collect::<Vec<_>>();
    std::thread::sleep(LOADED);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    wait_until_gone(&node);
    wait_until("the users had errors", || users.iter().all(JoinHandle::is_finished));
    assert!(device.sync_all().is_err());
    assert!(control.exists());
    drop(device);
    let next = Served::start_as(|folder| shown(folder, false));
    assert!(nodes(&next)[1] == control || !control.exists());
    next.end();
    wait_until_gone(&control);
}
