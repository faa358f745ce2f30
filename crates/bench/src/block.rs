//! Block devices: Kilnyard's server compared with nbdkit's, over NBD and below a file system.
//!
//! The load is fio's. The server's CPU time for each request is the figure that other load changes least. What a
//! contender needs and the machine lacks is skipped, with the reason.

mod device;
mod load;
mod nbd;

use crate::error::Result;
use crate::figures::{Report, ratios};
use crate::scratch::Scratch;
use crate::{Trial, check_interrupt};
use kilnyard_root::{FileSystem, Server, block};
use load::Load;
use serde_json::Map;

/// The size of the devices.
const DEVICE_BYTES: u64 = 4 << 30;
/// More memory than a load needs.
const MEMORY_BYTES: u64 = 4 << 30;
/// The memory of a device that needs three times as much.
const SCARCE_BYTES: u64 = 256 << 20;

/// Runs the benchmark.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let load = Load::found()?;
    let scratch = Scratch::within(trial.temporary, None)?;
    let mut report = Report {
        name: "block",
        series: Vec::new(),
        facts: Map::new(),
        notes: Vec::new(),
        target: "over NBD at most 0.93 of the CPU of nbdkit's memory plugin, and the IOPS of its cow"
            .to_owned(),
        is_met: Some(true),
    };
    nbd::measure(&scratch, &load, trial, &mut report)?;
    check_interrupt()?;
    let is_compared = nbd::has_nbdkit();
    match block::missing_requirement(Server::Kilnyard, FileSystem::Ext4) {
        None => device::measure(&scratch, &load, trial, &mut report)?,
        Some(lack) => report.notes.push(format!("skipped: file systems on devices: {lack}")),
    }
    if !is_compared {
        // Without the other server, nothing says how well this one does.
        report.is_met = report.is_met.filter(|is_met| !is_met);
    }
    Ok(report)
}

/// The median of the ratios of two series, pair by pair; absent if one of them was not measured.
fn ratio(report: &Report, key: &str, to: &str) -> Option<f64> {
    let values =
        |key: &str| report.series.iter().find(|series| series.key == key).map(|series| &series.values);
    crate::figures::Summary::of(&ratios(values(key)?, values(to)?)).map(|summary| summary.median)
}
