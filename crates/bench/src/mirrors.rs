//! The mirror of a site, and what a farm sends: herds, the cost of hits, changes of a tree, uploads over links with a delay.
//!
//! The mirror is `kilnyard mirror serve`, a process of its own; the door of a farm is real, as are its clients. The origin sends as
//! much as it is allowed to. Links are of two network namespaces and a relay between them, whose own ceiling is reported.

mod herd;
mod hits;
mod origin;
mod tree;
mod uploads;

use crate::child::this_program_alone;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::link::Link;
use crate::scratch::Scratch;
use crate::{Trial, check_interrupt};
use serde_json::{Map, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

/// A mirror that serves.
struct Mirror {
    process: Child,
    /// `ADDRESS:PORT`.
    address: String,
}

impl Mirror {
    /// Starts one in this folder, with this configuration.
    fn start(folder: &Path, configuration: &str) -> Result<Mirror> {
        let failed = "start a mirror";
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
        let file = folder.join("mirror.toml");
        let text = format!("listen = \"127.0.0.1:0\"\n{configuration}");
        fs_err::write(&file, text).context(Kind::Machine, failed)?;
        let mut command = this_program_alone(&["mirror", "serve", "--config"]);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for name in ["http_proxy", "https_proxy"] {
            command.env_remove(name);
        }
        let mut process = command.spawn().context(Kind::Machine, failed)?;
        let silent = || Error::new(Kind::Internal, format!("failed to {failed}"));
        let said = process.stderr.take().ok_or_else(silent)?;
        let mut line = String::new();
        let mut said = BufReader::new(said);
        said.read_line(&mut line).context(Kind::Machine, failed)?;
        // What it says later is read, so that it can say it.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.map(str::to_owned).ok_or_else(silent)?;
        Ok(Mirror { process, address })
    }

    /// The CPU time that it has used, in seconds.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs_err::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        // After the name, which may have spaces, come the state and ten numbers.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        // SAFETY: it reads a constant of the system.
        ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the benchmark.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let scratch = Scratch::within(trial.temporary, None)?;
    let mut report = Report {
        name: "mirror",
        series: Vec::new(),
        facts: Map::new(),
        notes: Vec::new(),
        target: "a herd of 64: one fetch, first bytes within 20 ms of a direct fetch, all within 1.1 of it"
            .to_owned(),
        is_met: Some(true),
    };
    herd::measure(&scratch, trial, &mut report)?;
    check_interrupt()?;
    hits::measure(&scratch, trial, &mut report)?;
    check_interrupt()?;
    tree::measure(&scratch, trial, &mut report)?;
    check_interrupt()?;
    trial.say("measuring the relay");
    match Link::ceiling() {
        Ok(rate) => {
            report.facts.insert("relay_bytes_per_second".to_owned(), json!(rate));
            report.series.push(Series::new(
                "relay_bytes",
                "the relay's own ceiling, each second",
                Unit::Bytes,
                vec![rate],
            ));
            uploads::measure(&scratch, trial, &mut report)?;
        }
        Err(error) => {
            report
                .notes
                .push(format!("no link could be made, so uploads were not measured: {}", error.one_line()));
            report.is_met = None;
        }
    }
    Ok(report)
}
