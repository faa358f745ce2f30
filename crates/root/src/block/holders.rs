//! Waits for mounts and devices that the kernel releases asynchronously, and names the processes that hold them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A release takes longer only on an extremely overloaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The first polling interval; it doubles each time.
const INTERVAL_MIN: Duration = Duration::from_micros(200);
const INTERVAL_MAX: Duration = Duration::from_millis(20);
/// The maximum number of holders that an error names.
const NAMED_MAX: usize = 5;

/// Polls until a condition is true; `false` if it is still not true after [`PATIENCE`].
pub(super) fn wait_until(mut is_true: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let (deadline, mut interval) = (Instant::now() + PATIENCE, INTERVAL_MIN);
    while !is_true()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(interval);
        interval = (interval * 2).min(INTERVAL_MAX);
    }
    Ok(true)
}

/// The error for a mount or device that was not released in time.
pub(super) fn held(what: &str, holders: &[String]) -> io::Error {
    let who = match holders {
        [] => "an unknown process".to_owned(),
        holders => holders.join(", "),
    };
    io::Error::other(format!("{what} is still in use after {} s, by {who}", PATIENCE.as_secs()))
}

/// Ids and names of processes that have the file system of this device mounted, or have a file on it or the device
/// itself open.
pub(super) fn of_device(device: u64) -> Vec<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounted = format!(" {major}:{minor} ");
    of(&|process| {
        let mounts = std::fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        mounts.contains(&mounted)
            || has_open(process, &|metadata| metadata.dev() == device || metadata.rdev() == device)
    })
}

fn has_open(process: &Path, is_it: &dyn Fn(&std::fs::Metadata) -> bool) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let paths = files.map(|entry| entry.path()).chain([process.join("cwd"), process.join("root")]);
    paths.into_iter().any(|path| std::fs::metadata(path).is_ok_and(|metadata| is_it(&metadata)))
}

fn of(is_holder: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let holders = numbers.map(|entry| entry.path()).filter(|path| is_holder(path));
    let named = holders.map(|path| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let number = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{number} ({})", name.trim())
    });
    named.take(NAMED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_named() {
        let file = tempfile::tempfile().unwrap();
        let holders = of_device(file.metadata().unwrap().dev());
        let own = format!("{} (", std::process::id());
        // Other processes may use the same disk and be listed first.
        assert!(holders.len() == NAMED_MAX || holders.iter().any(|holder| holder.starts_with(&own)));
        let text = held("/dev/loop7", &holders[..1]).to_string();
        assert!(text.starts_with("/dev/loop7 is still in use after 20 s, by "), "{text}");
        assert!(held("x", &[]).to_string().ends_with("by an unknown process"));
    }
}
