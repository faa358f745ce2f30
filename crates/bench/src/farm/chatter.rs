//! Logs of builds that only wait: lines at a steady rate, some of them with the time at which they were written. They are
//! sent as real workers send theirs, by [`Streams`].

use kilnyard_farm::client::Client;
use kilnyard_farm::streams::Streams;
use kilnyard_model::attempt::Attempt;
use kilnyard_protocol::Lease;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a build writes.
const STEP: Duration = Duration::from_millis(100);
/// The beginning of lines with a time.
const MARK: &str = "written at ";
/// A line without a time.
const LINE: &str = "cc -O2 -g -Wall -fstack-protector-strong -D_FORTIFY_SOURCE=2 -c -o object.o source.c\n";

/// What the builds of a worker write.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Chatting {
    /// By each build.
    pub bytes_per_second: f64,
}

/// A line with the time at which it was written, in seconds since 1970.
fn mark(seconds: f64) -> String {
    format!("{MARK}{seconds:.6}\n")
}

/// The time of a line that has one.
pub fn written_seconds(line: &str) -> Option<f64> {
    line.strip_prefix(MARK)?.trim_end().parse().ok()
}

/// The logs of a worker's builds.
pub struct Chatter {
    chatting: Chatting,
    streams: Arc<Streams>,
    folder: PathBuf,
    logs: HashMap<Attempt, Log>,
    due: Instant,
}

struct Log {
    file: File,
    began: Instant,
    bytes: u64,
}

impl Chatter {
    pub fn new(chatting: Chatting, client: Arc<Client>, folder: PathBuf) -> Chatter {
        let streams = Streams::start(client);
        Chatter { chatting, streams, folder, logs: HashMap::new(), due: Instant::now() }
    }

    /// Begins the log of a build.
    pub fn begin(&mut self, lease: &Lease) -> io::Result<()> {
        let folder = self.folder.join(format!("logs/{}/{}", lease.run, lease.order.package));
        fs_err::create_dir_all(&folder)?;
        let prefix = format!("{}-", lease.build);
        let (file, _) = fs_err::File::create(folder.join(format!("{prefix}build.log")))?.into_parts();
        self.streams.begin(lease.attempt, folder, prefix);
        self.logs.insert(lease.attempt, Log { file, began: Instant::now(), bytes: 0 });
        Ok(())
    }

    pub fn end(&mut self, attempt: Attempt) {
        self.streams.end(attempt);
        self.logs.remove(&attempt);
    }

    /// When it writes next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Writes what is due.
    pub fn write(&mut self, now_seconds: f64) -> io::Result<()> {
        if Instant::now() < self.due {
            return Ok(());
        }
        self.due = Instant::now() + STEP;
        for log in self.logs.values_mut() {
            let due = (log.began.elapsed().as_secs_f64() * self.chatting.bytes_per_second) as u64;
            let mut text = mark(now_seconds);
            while log.bytes + (text.len() as u64) < due {
                text.push_str(LINE);
            }
            log.file.write_all(text.as_bytes())?;
            log.bytes += text.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line_is_read_back() {
        assert_eq!(written_seconds(&mark(1_700_000_000.25)), Some(1_700_000_000.25));
        assert_eq!(written_seconds(LINE), None);
        assert_eq!(written_seconds("written at noon"), None);
    }
}
