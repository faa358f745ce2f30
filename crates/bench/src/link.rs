//! A link of a known delay and rate, for benchmarks: two network namespaces of this process, a TUN device in each, and a relay that
//! passes packets between them.
//!
//! Unlike a proxy, it is a link for TCP: windows, slow start and the number of connections matter as they do on a real one. A
//! queue of a bounded time is in front of it, as in a router; what does not fit is lost.
//!
//! Known downside: the relay needs a part of a core, and its own ceiling is that of the link ([`Link::ceiling`]).

use crate::error::{Context, Error, Kind, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The addresses of the two ends.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// See [`NEAR`].
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The largest packet, in bytes, as in Ethernet.
const PACKET_BYTES: usize = 1500;
/// The shortest queue in front of the link.
const QUEUE_MIN: Duration = Duration::from_millis(50);
/// How often the relay checks whether it ends, in milliseconds.
const POLL_MILLISECONDS: i32 = 100;
/// What measures the ceiling, in bytes.
const CEILING_BYTES: usize = 300 << 20;

/// An end of a link.
struct End {
    namespace: File,
    device: Arc<OwnedFd>,
}

/// See the module documentation.
pub struct Link {
    near: End,
    far: End,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Packets on their way, with the time when each arrives.
#[derive(Default)]
struct Way {
    packets: Mutex<VecDeque<(Instant, Vec<u8>)>>,
    filled: Condvar,
}

impl Link {
    /// A link with this delay there and back together, and this rate each way in bytes a second, if it is bounded.
    ///
    /// # Errors
    /// The user is not root, or the kernel has no TUN devices.
    pub fn open(round_trip: Duration, bytes_per_second: Option<f64>) -> Result<Link> {
        let failed = "make a link between two network namespaces";
        let end = |own, other| -> Result<End> {
            let made = std::thread::spawn(move || make(own, other)).join();
            let made = made.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            made.context(Kind::Machine, failed).map_err(|error| error.hint("root, and /dev/net/tun"))
        };
        let (near, far) = (end(NEAR, FAR)?, end(FAR, NEAR)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let way = Arc::new(Way::default());
            let (from, to) = (from.device.clone(), to.device.clone());
            let (over, reading) = (is_over.clone(), way.clone());
            let delay = round_trip / 2;
            threads.push(std::thread::spawn(move || take(&from, &reading, delay, bytes_per_second, &over)));
            let over = is_over.clone();
            threads.push(std::thread::spawn(move || give(&to, &way, &over)));
        }
        Ok(Link { near, far, is_over, threads })
    }

    /// Runs this at the near end, and with it the threads and processes that it starts.
    pub fn near<T: Send>(&self, run: impl FnOnce() -> T + Send) -> Result<T> {
        within(&self.near, run)
    }

    /// Runs this at the far end, and with it the threads and processes that it starts.
    pub fn far<T: Send>(&self, run: impl FnOnce() -> T + Send) -> Result<T> {
        within(&self.far, run)
    }

    /// The bytes a second of one connection over a relay without delay or bound.
    pub fn ceiling() -> Result<f64> {
        let failed = "measure the relay";
        let link = Link::open(Duration::ZERO, None)?;
        let listener = link.far(|| TcpListener::bind((FAR, 0)))?.context(Kind::Machine, failed)?;
        let address = listener.local_addr().context(Kind::Machine, failed)?;
        let took = std::thread::scope(|scope| -> io::Result<f64> {
            let taking = scope.spawn(move || io::copy(&mut listener.accept()?.0, &mut io::sink()));
            let began = Instant::now();
            let sent = link.near(|| -> io::Result<()> {
                let (mut stream, part) = (TcpStream::connect(address)?, vec![0; 1 << 20]);
                (0..CEILING_BYTES >> 20).try_for_each(|_| stream.write_all(&part))
            });
            sent.map_err(|error| io::Error::other(error.one_line()))??;
            taking.join().map_err(|_| io::Error::other("a thread panicked"))??;
            Ok(began.elapsed().as_secs_f64())
        });
        Ok(CEILING_BYTES as f64 / took.context(Kind::Machine, failed)?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Makes an end, in a thread that ends afterwards: the namespace stays as long as it is open.
fn make(own: Ipv4Addr, other: Ipv4Addr) -> io::Result<End> {
    // SAFETY: it changes the namespace of this thread alone.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    // SAFETY: the path ends with a zero, and the descriptor is new.
    let device = unsafe {
        let opened = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK);
        check(opened)?;
        OwnedFd::from_raw_fd(opened)
    };
    // SAFETY: an all-zero request is valid, and it outlives the call.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"kiln") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        check(libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &request))?;
    }
    let ip = |arguments: &[&str]| -> io::Result<()> {
        let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(io::Error::other(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
            }
        }
    };
    let own = own.to_string();
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &own, "peer", &other.to_string(), "dev", "kiln"])?;
    ip(&["link", "set", "kiln", "mtu", &PACKET_BYTES.to_string(), "txqueuelen", "10000", "up"])?;
    Ok(End { namespace: File::open("/proc/thread-self/ns/net")?, device: Arc::new(device) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn within<T: Send>(end: &End, run: impl FnOnce() -> T + Send) -> Result<T> {
    let entered = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the descriptor is open, and it changes the namespace of this thread alone.
            check(unsafe { libc::setns(end.namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
            Ok::<T, io::Error>(run())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    });
    entered.context(Kind::Machine, "enter a network namespace")
}

/// Takes packets from a device.
fn take(from: &OwnedFd, way: &Way, delay: Duration, rate: Option<f64>, is_over: &AtomicBool) {
    let queue_max = QUEUE_MIN.max(delay * 2);
    let (mut packet, mut free) = ([0; PACKET_BYTES + 64], Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let mut polled = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one descriptor, and it outlives the call.
        if unsafe { libc::poll(&mut polled, 1, POLL_MILLISECONDS) } <= 0 {
            continue;
        }
        loop {
            // SAFETY: the buffer has this size.
            let read = unsafe { libc::read(from.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len()) };
            let Some(size) = usize::try_from(read).ok().filter(|size| *size > 0) else { break };
            let now = Instant::now();
            if free > now + queue_max {
                continue;
            }
            free = free.max(now);
            if let Some(rate) = rate {
                free += Duration::from_secs_f64(size as f64 / rate);
            }
            let mut packets = way.packets.lock().unwrap_or_else(PoisonError::into_inner);
            packets.push_back((free + delay, packet[..size].to_vec()));
            if packets.len() == 1 {
                way.filled.notify_one();
            }
        }
    }
    way.filled.notify_one();
}

/// Gives packets to a device when they have arrived.
fn give(to: &OwnedFd, way: &Way, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let due = {
            let mut packets = way.packets.lock().unwrap_or_else(PoisonError::into_inner);
            let step = Duration::from_millis(POLL_MILLISECONDS as u64);
            if packets.is_empty() {
                let waited = way.filled.wait_timeout(packets, step);
                packets = waited.map_or_else(|error| error.into_inner().0, |(packets, _)| packets);
            }
            let now = Instant::now();
            let count = packets.iter().take_while(|(at, _)| *at <= now).count();
            match (count, packets.front()) {
                (0, Some((at, _))) => Err(*at - now),
                _ => Ok(packets.drain(..count).collect::<Vec<_>>()),
            }
        };
        match due {
            Err(left) => std::thread::sleep(left),
            Ok(due) => {
                for (_, packet) in due {
                    // SAFETY: the buffer has this size. What a device does not take is lost, as on a link.
                    unsafe { libc::write(to.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
                }
            }
        }
    }
}

/// Reads a stream to its end, and notes when the first byte came after a moment.
pub fn read_all(stream: &mut impl Read, began: Instant) -> io::Result<(f64, u64)> {
    let (mut part, mut first, mut bytes) = (vec![0; 256 << 10], None, 0_u64);
    loop {
        match stream.read(&mut part)? {
            0 => return Ok((first.unwrap_or(f64::INFINITY), bytes)),
            count => {
                first = first.or_else(|| Some(began.elapsed().as_secs_f64()));
                bytes += count as u64;
            }
        }
    }
}

/// The failure of a benchmark of connections.
pub fn failed(error: io::Error) -> Error {
    let mut made = Error::new(Kind::Machine, "failed to measure connections");
    made.causes.push(error.to_string());
    made
}
