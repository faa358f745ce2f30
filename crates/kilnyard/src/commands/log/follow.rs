//! `kilnyard log --follow`: prints the log of a running build as it grows, one stage after another.

use crate::commands::print;
use crate::error::{Context, Kind, Result};
use crate::signals;
use crate::yard::{Yard, store_error};
use kilnyard_model::foreign;
use kilnyard_model::order::Stage;
use kilnyard_store::{BuildRow, Store};
use std::process::ExitCode;
use std::time::Duration;

/// How often the log is checked for new lines.
const STEP: Duration = Duration::from_millis(200);

/// A log that is being printed.
struct Followed {
    /// Its path, relative to the yard.
    path: String,
    /// The number of bytes that were printed.
    printed: usize,
}

/// Follows the running build of a package until it ends, or this process is interrupted, which does not end the build.
/// Returns none if the package is not being built.
pub fn run(yard: &Yard, store: &dyn Store, package: &str, wanted: Option<Stage>) -> Result<Option<ExitCode>> {
    signals::install();
    let last = || Ok(store.builds_of(package, 1).map_err(store_error)?.pop());
    let Some(first) = last()?.filter(|build: &BuildRow| build.ended_seconds.is_none()) else {
        return Ok(None);
    };
    let mut followed: Option<Followed> = None;
    loop {
        // Before the log is read, which is then complete if the build has ended.
        let is_there = yard.is_locked();
        let build = last()?.filter(|build| build.number == first.number);
        let open = build.as_ref().filter(|build| build.ended_seconds.is_none());
        let stages = Stage::ALL.into_iter().filter(|stage| wanted.is_none_or(|wanted| wanted == *stage));
        let path = open.and_then(|build| stages.filter_map(|stage| yard.open_log(build, stage)).next());
        let is_new = |path: &String| followed.as_ref().is_none_or(|followed| followed.path != *path);
        if let Some(path) = path.filter(is_new) {
            if let Some(last) = &mut followed {
                last.print(yard, true)?;
            }
            followed = Some(Followed { path, printed: 0 });
        }
        let is_over = open.is_none() || !is_there || signals::count() > 0;
        if let Some(followed) = &mut followed {
            followed.print(yard, is_over)?;
        }
        if is_over {
            return Ok(Some(ExitCode::SUCCESS));
        }
        std::thread::sleep(STEP);
    }
}

impl Followed {
    /// Prints the new lines; the last one only when it is complete, or nothing more will come.
    fn print(&mut self, yard: &Yard, is_over: bool) -> Result<()> {
        let path = yard.path(&self.path);
        let text = kilnyard_process::read_log_from(&path, self.printed as u64);
        let text = match text {
            // A worker on another machine may not have sent anything yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            text => text.context(Kind::Machine, "read the log")?,
        };
        let end = match is_over {
            true => text.len(),
            false => text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        };
        self.printed += end;
        // As in `kilnyard log`: a terminal would obey control sequences of a build.
        print(&foreign::log(&String::from_utf8_lossy(&text[..end]))).map(drop)
    }
}
