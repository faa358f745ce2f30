//! `kilnyard notify`: who is notified of what, and whether that works.

use super::{print, print_json};
use crate::cli;
use crate::error::{Error, Kind, Result};
use crate::words;
use crate::yard::Yard;
use kilnyard_model::foreign::Foreign;
use kilnyard_yard::notify::{deliver, delivered, trial};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

pub fn run(yard: &Yard, options: &cli::Notify) -> Result<ExitCode> {
    let tables = &yard.config.notify;
    if tables.is_empty() && options.test {
        return Err(Error::usage("this yard sends no notifications")
            .hint("[[notify]] in kilnyard.toml (docs/notify.md)"));
    }
    if options.test {
        let mut has_failed = false;
        for table in tables {
            match deliver::deliver(yard, table, &trial(yard), None, &AtomicBool::new(false)) {
                Ok(()) => print(&format!("{}: sent\n", table.title()))?,
                Err(reason) => {
                    has_failed = true;
                    print(&format!("{}: failed: {}\n", table.title(), Foreign(&reason)))?
                }
            };
        }
        return Ok(if has_failed { ExitCode::from(Kind::Machine as u8) } else { ExitCode::SUCCESS });
    }
    let known = delivered(yard)?;
    if options.json {
        let all = tables.iter().map(|table| {
            let title = table.title();
            json!({ "receiver": title, "on": table.on, "packages": table.packages, "delivered": known.get(&title) })
        });
        return print_json(&all.collect());
    }
    let mut text = String::new();
    for table in tables {
        let title = table.title();
        let last = known.get(&title);
        let sent = match last.and_then(|last| Some((last.delivered?, last.at_seconds?))) {
            Some((event, at)) => format!("event {event} was sent {}", words::time(at)),
            None => "nothing was sent yet".to_owned(),
        };
        let _ = writeln!(text, "{title}: {sent}");
        if let Some(failed) = last.and_then(|last| last.failed.as_ref()) {
            let _ = writeln!(text, "    it fails: {}", Foreign(failed));
        }
    }
    if tables.is_empty() {
        text.push_str("no notifications are sent: [[notify]] in kilnyard.toml (docs/notify.md)\n");
    }
    print(&text)
}
