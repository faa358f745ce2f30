//! Many clients ask for one file that the mirror does not have.

use super::Mirror;
use super::origin::Origin;
use crate::Trial;
use crate::error::Result;
use crate::figures::{Report, Series, Unit};
use crate::link::{failed, read_all};
use crate::scratch::Scratch;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The number of clients.
const CLIENTS: usize = 64;
/// The size of the file, and what its origin sends in a second, in bytes.
const SIZE: usize = 100 << 20;
const RATE: f64 = 20e6;

/// Fetches a file. Returns the seconds to the first byte and to the end, and its size.
fn fetch(address: &str, path: &str) -> std::io::Result<(f64, f64, u64)> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n\r\n")?;
    let (first, bytes) = read_all(&mut stream, began)?;
    Ok((first, began.elapsed().as_secs_f64(), bytes))
}

/// Adds its figures.
pub fn measure(scratch: &Scratch, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    let (mut firsts, mut later, mut whole, mut fetches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        crate::check_interrupt()?;
        trial.say(format!("herd: pair {pair} of {}", trial.pairs));
        let origin = Origin::start(SIZE, RATE)?;
        let address = origin.address.to_string();
        let direct = fetch(&address, "/d/pool/f").map_err(failed)?;
        let configuration = format!("[archive.d]\nurls = [\"http://{address}/d\"]\n");
        let mirror = Mirror::start(&scratch.path(&format!("herd-{pair}")), &configuration)?;
        let before = origin.requests.load(Ordering::SeqCst);
        let barrier = Barrier::new(CLIENTS);
        let herd = std::thread::scope(|scope| {
            let client = |_| {
                scope.spawn(|| {
                    barrier.wait();
                    fetch(&mirror.address, "/d/pool/f")
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            let join = |client: std::thread::ScopedJoinHandle<'_, _>| {
                client.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
            };
            clients.into_iter().map(join).collect::<std::io::Result<Vec<(f64, f64, u64)>>>()
        });
        let herd = herd.map_err(failed)?;
        let complete = herd.iter().all(|(_, _, bytes)| *bytes > SIZE as u64);
        let first = herd.iter().map(|(first, ..)| *first).fold(0.0, f64::max);
        let last = herd.iter().map(|(_, last, _)| *last).fold(0.0, f64::max);
        firsts.push(first);
        later.push(first - direct.0);
        whole.push(if complete { last / direct.1 } else { f64::INFINITY });
        fetches.push((origin.requests.load(Ordering::SeqCst) - before) as f64);
        drop(mirror);
        let _ = fs_err::remove_dir_all(scratch.path(&format!("herd-{pair}")));
    }
    let series = [
        Series::new("herd_fetches", "herd of 64 on 100 MiB at 20 MB/s: fetches", Unit::Ratio, fetches),
        Series::new("herd_first_seconds", "first byte, the last client's", Unit::Seconds, firsts),
        Series::new("herd_later_seconds", "the same, after a direct fetch's", Unit::Seconds, later),
        Series::new("herd_whole_ratio", "all done, against one direct fetch", Unit::Ratio, whole),
    ];
    let [fetches, _, later, whole] = &series;
    let (fetches, later, whole) = (fetches.median(), later.median(), whole.median());
    report.judge(fetches <= 1.0 && later <= 0.02 && whole <= 1.1, "the herd");
    report.series.extend(series);
    Ok(())
}
