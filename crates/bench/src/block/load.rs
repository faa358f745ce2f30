//! The load: fio, and the CPU time of servers under it.

use crate::child;
use crate::error::{Context, Error, Kind, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds of one measurement.
const SECONDS: u32 = 3;

/// fio, which is installed.
pub(super) struct Load(PathBuf);

/// What a load reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Requests in a second.
    pub(super) per_second: f64,
    /// CPU time of the servers for a request.
    pub(super) cpu_seconds: f64,
}

impl Load {
    pub(super) fn found() -> Result<Load> {
        let path = Path::new("/usr/bin/fio");
        match path.is_file() {
            true => Ok(Load(path.to_owned())),
            false => Err(Error::new(Kind::Machine, "fio is not installed")),
        }
    }

    /// Random writes of 4 KiB for a few seconds, by these options of fio. `servers` are ids of processes.
    pub(super) fn writes(&self, output: &Path, options: &[&str], servers: &[u32]) -> Result<Reached> {
        let seconds = format!("--runtime={SECONDS}");
        let mut all = vec!["--rw=randwrite", "--bs=4k", "--time_based", &seconds];
        all.extend(options);
        let before = cpu_seconds(servers);
        let answer = self.run(output, &all)?;
        let used = cpu_seconds(servers) - before;
        let written = &answer["jobs"][0]["write"];
        let (Some(count), Some(per_second)) = (written["total_ios"].as_f64(), written["iops"].as_f64())
        else {
            return Err(Error::new(Kind::Machine, "fio reported no writes"));
        };
        Ok(Reached { per_second, cpu_seconds: used / count.max(1.0) })
    }

    /// Runs fio, and returns what it reports.
    pub(super) fn run(&self, output: &Path, options: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.0);
        command.args(["--name=load", "--output-format=json"]).args(options);
        child::measure(command, Some(output), &[0])?;
        let text = fs_err::read_to_string(output).or_internal("read fio's report")?;
        // Warnings may come before it.
        let start = text.find('{').unwrap_or(0);
        serde_json::from_str(&text[start..]).context(Kind::Machine, "read fio's report")
    }
}

/// CPU time of processes so far.
fn cpu_seconds(processes: &[u32]) -> f64 {
    let of = |number: &u32| {
        let stat = fs_err::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // After the name, which may have spaces, come the state and ten numbers.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    // SAFETY: it reads a constant of the system.
    processes.iter().map(of).sum::<f64>() / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// The memory of a process: now, and at most so far.
pub(super) fn memory_bytes(process: u32) -> Option<(u64, u64)> {
    let status = fs_err::read_to_string(format!("/proc/{process}/status")).ok()?;
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some((of("VmRSS:")?, of("VmHWM:")?))
}

/// The processes that have this working folder.
pub(super) fn processes_in(folder: &Path) -> Vec<u32> {
    let numbers = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let is_in =
        |number: &u32| fs_err::read_link(format!("/proc/{number}/cwd")).is_ok_and(|cwd| cwd == folder);
    numbers.filter(|number| *number != std::process::id()).filter(is_in).collect()
}
