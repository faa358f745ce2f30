//! ext4 on devices, with fio and tar as what a build does to it.

use super::load::{Load, memory_bytes, processes_in};
use super::{DEVICE_BYTES, MEMORY_BYTES, SCARCE_BYTES, ratio};
use crate::Trial;
use crate::child;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::scratch::Scratch;
use kilnyard_block::Counters;
use kilnyard_root::{FileSystem, Flushes, IdMap, Keeper, Operation, Server, Source, block};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What is unpacked: about as much as a base with compilers.
const UNPACKED_BYTES: u64 = 388_000_000;

/// `FITRIM` (linux/fs.h).
const TRIM: libc::c_ulong = 0xc018_5879;

/// What carries the file system.
#[derive(Clone, Copy, PartialEq)]
enum Contender {
    Own { memory_bytes_max: u64 },
    Nbdkit,
    File,
}

const CONTENDERS: [(&str, &str, Contender); 3] = [
    ("own", "Kilnyard", Contender::Own { memory_bytes_max: MEMORY_BYTES }),
    ("nbdkit", "nbdkit and nbdfuse", Contender::Nbdkit),
    ("file", "a file", Contender::File),
];

/// A mounted device.
struct Mounted {
    keeper: Keeper,
    /// The file system, as this process reaches it.
    path: PathBuf,
    servers: Vec<u32>,
}

fn at(name: &str) -> PathBuf {
    Path::new("device").join(name)
}

impl Mounted {
    fn start(scratch: &Scratch, contender: Contender) -> Result<Mounted> {
        let failed = "make a device";
        let folder = scratch.path("device");
        if folder.exists() {
            fs_err::remove_dir_all(&folder).context(Kind::Machine, failed)?;
        }
        for name in ["", "shown", "mounted"] {
            fs_err::create_dir(folder.join(name)).context(Kind::Machine, failed)?;
        }
        let (image, flushes) = (at("image"), Flushes::Discard);
        let file_system = FileSystem::Ext4;
        let mut operations =
            vec![Operation::Format { image: image.clone(), file_system, size_bytes: DEVICE_BYTES }];
        let source = match contender {
            Contender::Own { memory_bytes_max } => {
                operations.push(Operation::Show {
                    server: Server::Kilnyard,
                    image,
                    folder: at("shown"),
                    written: at(""),
                    memory_bytes_max,
                    flushes,
                    requests: None,
                    counters: at("counters"),
                });
                Source::Shown(at("shown"))
            }
            Contender::Nbdkit => {
                let (socket, written, requests) = (at("socket"), at(""), None);
                operations.push(Operation::Serve { image, socket, written, flushes, requests });
                Source::Served(at("socket"))
            }
            Contender::File => Source::File(image),
        };
        let (device, target) = (at("shown"), at("mounted"));
        operations.push(Operation::Attach { source, device: device.clone() });
        operations.push(Operation::Mount { device, target: target.clone(), file_system, flushes });
        let (ids, _) = IdMap::of_this_user("", 0);
        let own = scratch.path("");
        let keeper = Keeper::start(&own, &ids, operations).context(Kind::Machine, failed)?;
        let path = keeper.seen_from_outside(&target);
        let folder = fs_err::canonicalize(&own).or_internal(failed)?;
        Ok(Mounted { keeper, path, servers: processes_in(&folder) })
    }

    fn end(&self) -> Result<()> {
        self.keeper.end().context(Kind::Machine, "remove a device")
    }

    /// The options of fio for a file here.
    fn folder(&self) -> String {
        format!("--directory={}", self.path.display())
    }
}

pub(super) fn measure(scratch: &Scratch, load: &Load, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    let archive = scratch.path("archive.tar");
    pack(&archive)?;
    let mut contenders = CONTENDERS.to_vec();
    if let Some(lack) = block::missing_requirement(Server::Nbdkit, FileSystem::Ext4) {
        report.notes.push(format!("skipped: nbdkit below a file system: {lack}"));
        contenders.retain(|(.., contender)| *contender != Contender::Nbdkit);
    }
    let mut values = vec![[const { Vec::new() }; 5]; contenders.len()];
    let output = scratch.path("report");
    for round in 1..=trial.pairs {
        for ((_, label, contender), values) in contenders.iter().zip(&mut values) {
            trial.say(format_args!("ext4, round {round}: {label}"));
            let mounted = Mounted::start(scratch, *contender)?;
            let folder = mounted.folder();
            let direct = ["--ioengine=libaio", "--direct=1", "--iodepth=16", "--size=512m", &folder];
            let reached = load.writes(&output, &direct, &mounted.servers)?;
            let flushed = ["--ioengine=psync", "--fsync=32", "--size=512m", &folder];
            let after_flushes = load.writes(&output, &flushed, &mounted.servers)?;
            mounted.end()?;
            // A file system that was not used yet.
            let mounted = Mounted::start(scratch, *contender)?;
            let unpacked = unpack(&archive, &mounted.path)?;
            if matches!(contender, Contender::Own { .. }) {
                trim(&mounted, report)?;
            }
            mounted.end()?;
            let measured = [
                reached.per_second,
                reached.cpu_seconds,
                after_flushes.per_second,
                after_flushes.cpu_seconds,
                unpacked,
            ];
            for (values, value) in values.iter_mut().zip(measured) {
                values.push(value);
            }
        }
    }
    let figures = [
        ("ext4_per_second", "4 KiB writes", Unit::PerSecond),
        ("ext4_cpu_seconds", "CPU of a write", Unit::Seconds),
        ("ext4_flushed_per_second", "writes, a flush each 32", Unit::PerSecond),
        ("ext4_flushed_cpu_seconds", "CPU of such a write", Unit::Seconds),
        ("ext4_unpack_seconds", "unpack 388 MB and sync", Unit::Seconds),
    ];
    for (number, (key, what, unit)) in figures.into_iter().enumerate() {
        for ((name, label, contender), values) in contenders.iter().zip(&values) {
            // A file needs no server.
            if *contender != Contender::File || unit != Unit::Seconds || number == 4 {
                let label = format!("ext4 on {label}: {what}");
                report.series.push(Series::new(format!("{key}_{name}"), label, unit, values[number].clone()));
            }
        }
    }
    report.aim(
        "ext4: 3 times nbdkit's IOPS with flushes, a sixth of its CPU; without flushes more of one and less of the other; 388 MB in \
         0.9 of nbdkit's time",
    );
    for (key, is_met, what) in [
        ("ext4_flushed_per_second", (|ratio| ratio >= 3.0) as fn(f64) -> bool, "IOPS with flushes"),
        ("ext4_flushed_cpu_seconds", |ratio| ratio <= 1.0 / 6.0, "CPU with flushes"),
        ("ext4_per_second", |ratio| ratio >= 1.0, "IOPS without flushes"),
        ("ext4_cpu_seconds", |ratio| ratio <= 1.0, "CPU without flushes"),
        ("ext4_unpack_seconds", |ratio| ratio <= 0.9, "unpacking"),
    ] {
        if let Some(ratio) = ratio(report, &format!("{key}_own"), &format!("{key}_nbdkit")) {
            report.judge(is_met(ratio), &format!("{what}: {ratio:.2} of nbdkit's"));
        }
    }
    scarce(scratch, load, trial, report)
}

/// A root that needs three times the memory that it has, compared with a file on the disk.
fn scarce(scratch: &Scratch, load: &Load, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    let own = Contender::Own { memory_bytes_max: SCARCE_BYTES };
    let (mut own_seconds, mut file_seconds) = (Vec::new(), Vec::new());
    let output = scratch.path("report");
    for round in 1..=trial.pairs {
        for (label, contender, seconds) in
            [("Kilnyard", own, &mut own_seconds), ("a file", Contender::File, &mut file_seconds)]
        {
            trial.say(format_args!("768 MiB in 256 MiB of memory, round {round}: {label}"));
            let mounted = Mounted::start(scratch, contender)?;
            let folder = mounted.folder();
            // Written, and verified after all of it has reached the device.
            let options = ["--rw=randwrite", "--bs=64k", "--size=768m", "--end_fsync=1", "--verify=crc32c"];
            // Without a file of its state in the working folder.
            let stateless = "--verify_state_save=0";
            let began = Instant::now();
            load.run(
                &output,
                &[&options[..], &["--ioengine=psync", "--invalidate=1", stateless, &folder]].concat(),
            )?;
            seconds.push(began.elapsed().as_secs_f64());
            mounted.end()?;
            if contender == own {
                let counters = fs_err::read(scratch.path("device/counters")).or_internal("read counters")?;
                let counters: Counters = serde_json::from_slice(&counters).or_internal("read counters")?;
                report.judge(counters.memory_bytes_max <= SCARCE_BYTES, "memory of a root that needs more");
                report.judge(counters.spilled_bytes > 0, "the load did not need more memory than there was");
            }
        }
    }
    let label = "768 MiB written and verified";
    for (key, name, values) in [("own", "Kilnyard, 256 MiB", own_seconds), ("file", "a file", file_seconds)] {
        let label = format!("ext4 on {name}: {label}");
        report.series.push(Series::new(format!("scarce_seconds_{key}"), label, Unit::Seconds, values));
    }
    report.aim("with a third of the memory it needs, 1.15 of a file's time");
    if let Some(ratio) = ratio(report, "scarce_seconds_own", "scarce_seconds_file") {
        report.judge(ratio <= 1.15, &format!("a third of the memory: {ratio:.2} of a file's time"));
    }
    Ok(())
}

/// Packs files of this machine until they are large enough.
fn pack(archive: &Path) -> Result<()> {
    let failed = "pack files";
    let mut files = vec![PathBuf::from("/usr/lib")];
    let (mut list, mut bytes) = (String::new(), 0);
    while let Some(path) = files.pop() {
        let Ok(facts) = fs_err::symlink_metadata(&path) else { continue };
        if facts.is_dir() {
            let mut within: Vec<_> =
                fs_err::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            within.sort();
            files.extend(within.into_iter().rev());
        } else if facts.is_file() && bytes + facts.len() <= UNPACKED_BYTES {
            bytes += facts.len();
            list.push_str(&format!("{}\n", path.display()));
        }
    }
    if bytes < UNPACKED_BYTES / 2 {
        return Err(Error::new(Kind::Machine, "/usr/lib has too few files to unpack"));
    }
    let names = archive.with_extension("names");
    fs_err::write(&names, list).context(Kind::Machine, failed)?;
    let mut command = Command::new("tar");
    command.arg("--create").arg("--file").arg(archive).arg("--files-from").arg(&names);
    child::measure(command, None, &[0]).map(drop)
}

/// The time to unpack, until all is on the device.
fn unpack(archive: &Path, folder: &Path) -> Result<f64> {
    let mut command = Command::new("tar");
    command.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(folder);
    let began = Instant::now();
    child::measure(command, None, &[0])?;
    rustix::fs::syncfs(fs_err::File::open(folder).or_internal("open a device")?)
        .map_err(std::io::Error::from)
        .context(Kind::Machine, "flush a device")?;
    Ok(began.elapsed().as_secs_f64())
}

/// Removes all files, and judges whether their memory comes back.
fn trim(mounted: &Mounted, report: &mut Report) -> Result<()> {
    let memory =
        || mounted.servers.iter().filter_map(|number| memory_bytes(*number)).map(|(now, _)| now).max();
    let before = memory().unwrap_or(0);
    for entry in fs_err::read_dir(&mounted.path).or_internal("list a device")?.flatten() {
        fs_err::remove_dir_all(entry.path()).context(Kind::Machine, "remove files")?;
    }
    // As fstrim(8) does it, which would find the path in its own namespace.
    let mut range = [0, u64::MAX, 0];
    let folder = fs_err::File::open(&mounted.path).or_internal("open a device")?;
    // SAFETY: the request reads and writes three numbers (linux/fs.h, `fstrim_range`), which live until the end of the call.
    if unsafe { libc::ioctl(folder.as_raw_fd(), TRIM as _, &mut range) } != 0 {
        return Err(std::io::Error::last_os_error()).context(Kind::Machine, "discard free blocks");
    }
    let after = memory().unwrap_or(0);
    // What is left: the program, its buffers, and tables of the file system.
    let is_back = before > UNPACKED_BYTES / 2 && after < before / 10;
    report.judge(is_back, &format!("memory after a trim: {after} of {before} bytes"));
    Ok(())
}
