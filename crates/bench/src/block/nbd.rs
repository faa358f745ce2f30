//! Servers of NBD exports, with fio as the client.

use super::load::{Load, memory_bytes};
use super::{DEVICE_BYTES, MEMORY_BYTES, SCARCE_BYTES, ratio};
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::scratch::Scratch;
use kilnyard_block::{Front, Service};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to become ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that is being measured.
#[derive(Clone, Copy, PartialEq)]
enum Contender {
    Own { memory_bytes_max: u64 },
    Cow,
    Memory,
}

const CONTENDERS: [(&str, &str, Contender); 4] = [
    ("own", "Kilnyard", Contender::Own { memory_bytes_max: MEMORY_BYTES }),
    ("own_spilling", "Kilnyard, 256 MiB and a file", Contender::Own { memory_bytes_max: SCARCE_BYTES }),
    ("cow", "nbdkit, cow of 4 KiB", Contender::Cow),
    ("memory", "nbdkit, memory", Contender::Memory),
];

/// Whether there is a server to compare with.
pub(super) fn has_nbdkit() -> bool {
    Path::new("/usr/sbin/nbdkit").is_file() || Path::new("/usr/bin/nbdkit").is_file()
}

pub(super) fn measure(scratch: &Scratch, load: &Load, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    let image = scratch.path("image");
    let made = File::create_new(&image).and_then(|file| file.set_len(DEVICE_BYTES));
    made.context(Kind::Machine, "make an image")?;
    let has_nbdkit = has_nbdkit();
    if !has_nbdkit {
        report.notes.push("skipped: nbdkit is not installed".to_owned());
    }
    let measured: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|(.., contender)| has_nbdkit || matches!(contender, Contender::Own { .. }))
        .collect();
    for (flushes, suffix, option) in [("", "", None), (", a flush each 32", "_flushed", Some("--fsync=32"))] {
        let mut values = vec![(Vec::new(), Vec::new()); measured.len()];
        for round in 1..=trial.pairs {
            for ((_, label, contender), (rates, costs)) in measured.iter().zip(&mut values) {
                trial.say(format_args!("NBD{flushes}, round {round}: {label}"));
                let server = start(scratch, &image, *contender)?;
                let uri = format!("--uri=nbd+unix:///?socket={}", scratch.path("socket").display());
                let mut options = vec!["--ioengine=nbd", "--iodepth=32", "--size=1g", &uri];
                options.extend(option);
                let reached = load.writes(&scratch.path("report"), &options, &[server.0.id()])?;
                rates.push(reached.per_second);
                costs.push(reached.cpu_seconds);
                if *contender == (Contender::Own { memory_bytes_max: SCARCE_BYTES }) {
                    let most = memory_bytes(server.0.id()).map_or(u64::MAX, |(_, most)| most);
                    // Beyond the blocks: the program, its buffers and the states of blocks.
                    report.judge(most < SCARCE_BYTES + (32 << 20), "memory of the server that spills");
                }
            }
        }
        for ((key, label, _), (rates, costs)) in measured.iter().zip(values) {
            let name = format!("NBD, 4 KiB writes{flushes}: {label}");
            report.series.push(Series::new(
                format!("nbd{suffix}_{key}_per_second"),
                &name,
                Unit::PerSecond,
                rates,
            ));
            let name = format!("{name}, CPU of a write");
            report.series.push(Series::new(
                format!("nbd{suffix}_{key}_cpu_seconds"),
                name,
                Unit::Seconds,
                costs,
            ));
        }
    }
    if let Some(cost) = ratio(report, "nbd_own_cpu_seconds", "nbd_memory_cpu_seconds") {
        report.judge(cost <= 0.93, &format!("CPU over NBD: {cost:.2} of the memory plugin's"));
    }
    if let Some(rate) = ratio(report, "nbd_own_per_second", "nbd_cow_per_second") {
        report.judge(rate >= 1.0, &format!("IOPS over NBD: {rate:.2} of cow's"));
    }
    Ok(())
}

/// A server, which is killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(scratch: &Scratch, image: &Path, contender: Contender) -> Result<Server> {
    let (socket, ready) = (scratch.path("socket"), scratch.path("ready"));
    for path in [&socket, &ready] {
        if path.exists() {
            fs_err::remove_file(path).or_internal("remove a socket")?;
        }
    }
    let nbdkit = |arguments: &[&str]| {
        let mut command = Command::new("nbdkit");
        command.arg("--foreground").arg("--unix").arg(&socket).arg("--pidfile").arg(&ready).args(arguments);
        command.env("TMPDIR", scratch.path(""));
        command
    };
    let mut command = match contender {
        Contender::Own { memory_bytes_max } => Service {
            image: image.to_owned(),
            memory_bytes_max,
            spill: scratch.path(""),
            keeps_flushes: false,
            is_read_only: false,
            front: Front::Nbd { socket: socket.clone() },
            requests: None,
            counters: None,
            ready: ready.clone(),
        }
        .command()
        .or_internal("describe a server")?,
        Contender::Cow => {
            let file = format!("file={}", image.display());
            let filters = ["--filter=fua", "--filter=cow", "file", &file];
            nbdkit(&[&filters[..], &["cow-block-size=4096", "fuamode=discard"]].concat())
        }
        Contender::Memory => {
            nbdkit(&["--filter=fua", "memory", &DEVICE_BYTES.to_string(), "fuamode=discard"])
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = Server(command.spawn().context(Kind::Machine, "start a server")?);
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::metadata(&ready).is_ok_and(|ready| ready.len() > 0) {
        if server.0.try_wait().or_internal("wait for a server")?.is_some() || Instant::now() > deadline {
            return Err(Error::new(Kind::Machine, "a server did not become ready"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}
