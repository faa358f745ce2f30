//! Outputs that a worker stores at the door of its farm, over links with a delay.

use crate::error::{Context, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::link::{FAR, Link};
use crate::scratch::Scratch;
use crate::{Trial, check_interrupt};
use kilnyard_farm::client::Client;
use kilnyard_farm::door::{ClientCertificates, Door};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_farm::relay::{self, Allowed, First};
use kilnyard_farm::roster::Terms;
use kilnyard_mirror::Sha256Hex;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Small files: their number, size in bytes, the delay of the link, and the seconds that are the aim.
const SMALL: (usize, usize, Duration, f64) = (1000, 4 << 10, Duration::from_millis(20), 0.5);
/// Large ones: their number, size in bytes, the delay and rate of the link, and the part of the rate that is the aim.
const LARGE: (usize, usize, Duration, f64, f64) = (20, 50_000_000, Duration::from_millis(100), 40e6, 0.9);
/// The build for which they are stored.
const ATTEMPT: &str = "a";

/// A door at the far end of a link, and a worker at the near one, with a build.
struct Farm {
    client: Client,
    is_over: Arc<AtomicBool>,
    door: Option<JoinHandle<()>>,
    _run: UnixStream,
}

impl Farm {
    fn open(link: &Link, folder: &Path) -> Result<Farm> {
        let failed = "open the door of a farm";
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
        let listen = SocketAddr::from((FAR, 0));
        let open = || Door::open(folder, listen, "own", ClientCertificates::Optional, || 1.0);
        let door = link.far(open)?.context(Kind::Machine, failed)?;
        let (address, fingerprint) = (door.address(), door.identity().fingerprint());
        let token = door.roster().issue(fingerprint, Terms::default(), 1).context(Kind::Machine, failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let door = std::thread::spawn(move || {
            let _ = door.answer(&|| over.load(Ordering::Relaxed));
        });
        let key = WorkerKey::open(&folder.join("worker.key")).context(Kind::Machine, failed)?;
        // Its threads are at the near end, too.
        let client = link.near(|| Client::new(&format!("https://{address}"), fingerprint, "worker", key))?;
        let client = client.context(Kind::Machine, failed)?;
        client.join(&token.secret).context(Kind::Machine, failed)?;
        let logs = Some("logs/1/p/2-".to_owned());
        let allowed = Allowed { attempt: ATTEMPT.to_owned(), reads: Vec::new(), logs };
        let first = First::Run {
            yard: folder.join("yard"),
            distfiles: folder.join("distfiles"),
            archives: Vec::new(),
            allowed: vec![("worker".to_owned(), allowed)],
            epoch: None,
        };
        let mut run = relay::connect(folder).context(Kind::Machine, failed)?;
        relay::write(&mut run, &first, b"").context(Kind::Machine, failed)?;
        // Until the run is known, and the connection is made.
        while client.receive(false).is_ok_and(|received| received.run.is_none()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Farm { client, is_over, door: Some(door), _run: run })
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.door.take().map(JoinHandle::join);
    }
}

/// Files of this size, each with another content.
fn files(folder: &Path, count: usize, size: usize) -> Result<Vec<(Sha256Hex, PathBuf)>> {
    let failed = "write files to upload";
    fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
    let file = |number: usize| {
        let path = folder.join(number.to_string());
        let mut content = vec![b'k'; size];
        content[..8].copy_from_slice(&(number as u64).to_le_bytes());
        fs_err::write(&path, &content).context(Kind::Machine, failed)?;
        Ok((Sha256Hex::of(&content), path))
    };
    (0..count).map(file).collect()
}

/// Adds its figures.
pub fn measure(scratch: &Scratch, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    report.aim("1,000 uploads of 4 KiB at 20 ms in 0.5 s; 20 of 50 MB at 100 ms with 90 % of the link");
    let (count, size, delay, aim) = SMALL;
    let small = files(&scratch.path("small"), count, size)?;
    let mut values = Vec::new();
    for pair in 1..=trial.pairs {
        check_interrupt()?;
        trial.say(format!("small uploads: {pair} of {}", trial.pairs));
        values.push(upload(&Link::open(delay, None)?, &scratch.path("small-farm"), &small)?);
    }
    let series =
        Series::new("uploads_small_seconds", "1,000 uploads of 4 KiB at 20 ms", Unit::Seconds, values);
    report.judge(series.median() <= aim, "small uploads");
    report.series.push(series);
    let (count, size, delay, rate, aim) = LARGE;
    let large = files(&scratch.path("large"), count, size)?;
    check_interrupt()?;
    trial.say("large uploads");
    let seconds = upload(&Link::open(delay, Some(rate))?, &scratch.path("large-farm"), &large)?;
    let part = (count * size) as f64 / rate / seconds;
    let label = "20 uploads of 50 MB at 100 ms and 40 MB/s: part of the link";
    report.series.push(Series::new("uploads_large_part", label, Unit::Percent, vec![part]));
    report.judge(part >= aim, "large uploads");
    Ok(())
}

/// The seconds that it takes to store these files.
fn upload(link: &Link, folder: &Path, files: &[(Sha256Hex, PathBuf)]) -> Result<f64> {
    let farm = Farm::open(link, folder)?;
    let began = Instant::now();
    farm.client.store_all(ATTEMPT, files).context(Kind::Machine, "upload files")?;
    let seconds = began.elapsed().as_secs_f64();
    drop(farm);
    fs_err::remove_dir_all(folder).context(Kind::Machine, "remove uploaded files")?;
    Ok(seconds)
}
