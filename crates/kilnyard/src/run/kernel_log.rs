//! Split locks that the kernel's log has of a run.

use kilnyard_hazard::split_lock::{SplitLock, of_record};
use kilnyard_process::now_seconds;
use kilnyard_store::BuildRow;
use std::collections::BTreeMap;
use std::io::Read;

/// The log; only root may read it, unless `kernel.dmesg_restrict` is 0.
const LOG: &str = "/dev/kmsg";
/// The longest record (`CONSOLE_EXT_LOG_MAX` of the kernel).
const RECORD_BYTES_MAX: usize = 8192;
/// The most records that are read: a ring of a megabyte has fewer.
const RECORDS_MAX: usize = 100_000;

/// How many processes of each program took split locks since a time (in seconds since 1970), and the packages that were being built
/// on this machine then.
pub fn split_locks(
    locks: Vec<SplitLock>,
    builds: &[BuildRow],
    own_name: &str,
    since_seconds: f64,
) -> Vec<(String, usize, Vec<String>)> {
    let started_seconds = now_seconds() - uptime_seconds().unwrap_or(0.0);
    let mut found: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for lock in locks {
        let at_seconds = started_seconds + lock.at_microseconds as f64 / 1e6;
        if at_seconds < since_seconds {
            continue;
        }
        let is_running = |build: &&BuildRow| {
            build.worker.as_deref().is_none_or(|name| name == own_name)
                && build.started_seconds <= at_seconds
                && build.ended_seconds.is_none_or(|ended| at_seconds <= ended)
        };
        let (count, packages) = found.entry(lock.program).or_default();
        *count += 1;
        for build in builds.iter().filter(is_running) {
            if !packages.contains(&build.package) {
                packages.push(build.package.clone());
            }
        }
    }
    // Other programs of the machine take split locks, too.
    found.retain(|_, (_, packages)| !packages.is_empty());
    found.into_iter().map(|(program, (count, packages))| (program, count, packages)).collect()
}

/// What the log has; nothing if it must not be read.
pub fn read() -> Vec<SplitLock> {
    let mut options = fs_err::OpenOptions::new();
    fs_err::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let Ok(mut log) = options.read(true).open(LOG) else { return Vec::new() };
    let (mut locks, mut record) = (Vec::new(), [0; RECORD_BYTES_MAX]);
    for _ in 0..RECORDS_MAX {
        match log.read(&mut record) {
            Ok(count @ 1..) => locks.extend(of_record(&String::from_utf8_lossy(&record[..count]))),
            // Records were overwritten; the next ones follow.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            _ => break,
        }
    }
    locks
}

fn uptime_seconds() -> Option<f64> {
    fs_err::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::result::BuildOutcome;

    fn build(package: &str, started_seconds: f64, ended_seconds: Option<f64>) -> BuildRow {
        BuildRow {
            number: 1,
            attempt: None,
            run: 1,
            package: package.to_owned(),
            version: "1".to_owned(),
            worker: Some("here".to_owned()),
            cores: 2,
            host: None,
            slot: 0,
            key: String::new(),
            started_seconds,
            ended_seconds,
            outcome: BuildOutcome::Built,
            failure: None,
            is_reproducible: None,
            stages: Vec::new(),
        }
    }

    #[test]
    fn programs_are_named_with_what_was_built_when_they_ran() {
        let (now, up) = (now_seconds(), uptime_seconds().unwrap());
        let lock = |program: &str, ago_seconds: f64| SplitLock {
            program: program.to_owned(),
            process: 1,
            at_microseconds: ((up - ago_seconds) * 1e6) as u64,
        };
        let elsewhere = BuildRow { worker: Some("other".to_owned()), ..build("elsewhere", now - 60.0, None) };
        let builds = [
            build("wild", now - 20.0, Some(now - 5.0)),
            build("before", now - 60.0, Some(now - 30.0)),
            elsewhere,
        ];
        let locks = vec![lock("cc1", 10.0), lock("cc1", 12.0), lock("game", 2.0), lock("old", 40.0)];
        let found = split_locks(locks, &builds, "here", now - 25.0);
        assert_eq!(found, [("cc1".to_owned(), 2, vec!["wild".to_owned()])]);
    }
}
