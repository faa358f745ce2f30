//! What only the process of a run knows: the stages that are running, and samples of their processes. It writes them down
//! once a second, for other processes on its machine. They are not decisions, and are not flushed to a disk.

use crate::yard::Yard;
use kilnyard_schema::run::Live;
use std::path::PathBuf;

/// The file, relative to the yard.
const FILE: &str = "state/live.json";
/// What is older, in seconds, is that of a run that was killed.
const OLD_SECONDS: f64 = 15.0;
/// The largest file that is read: 64 KiB for each of a thousand builds would be absurd.
const BYTES_MAX: u64 = 16 << 20;

fn path(yard: &Yard) -> PathBuf {
    yard.path(FILE)
}

/// Replaces what is written. A failure is of no importance: the next one follows.
pub fn write(yard: &Yard, live: &Live) {
    let (path, new) = (path(yard), yard.path("state/live.json.new"));
    let text = serde_json::to_vec(live).unwrap_or_default();
    if fs_err::write(&new, text).is_ok() {
        let _ = fs_err::rename(&new, path);
    }
}

/// Removes it, at the end of a run.
pub fn remove(yard: &Yard) {
    let _ = fs_err::remove_file(path(yard));
}

/// What is known of this run now; nothing on other machines, and if the run is over.
pub fn read(yard: &Yard, run: u64, now_seconds: f64) -> Live {
    use std::io::Read;
    let text = fs_err::File::open(path(yard)).and_then(|file| {
        let mut text = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut text).map(|_| text)
    });
    let live: Live = text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let is_fresh = live.run == run && (live.at_seconds - now_seconds).abs() < OLD_SECONDS;
    if is_fresh { live } else { Live { run, ..Live::default() } }
}
