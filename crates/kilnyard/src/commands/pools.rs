//! `kilnyard pools`: the pools whose workers are started on demand.

use super::workers::asked;
use super::{print, print_json};
use crate::cli;
use crate::error::{Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_farm::relay::PoolStatus;
use kilnyard_model::foreign::Foreign;
use kilnyard_yard::remedy::Remedy;
use std::fmt::Write;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Pools) -> Result<ExitCode> {
    let configured = yard.config.farm.has_demand();
    let Some(status) = asked(yard) else {
        let message = match configured {
            true => "no server starts workers now",
            false => "no pool has a driver that starts workers",
        };
        let hint = match configured {
            true => Remedy::command("serve"),
            false => Remedy::from("[farm.pool.NAME.demand] in kilnyard.toml; see docs/pools.md"),
        };
        return Err(Error::new(Kind::Usage, message).hint(hint));
    };
    if options.json.json {
        return print_json(&serde_json::to_value(&status.pools).unwrap_or_default());
    }
    let mut text = String::new();
    if status.pools.is_empty() {
        text += "no pool has a driver that starts workers: [farm.pool.NAME.demand] in kilnyard.toml\n";
    }
    for pool in &status.pools {
        describe(&mut text, pool);
    }
    print(&text)
}

fn describe(text: &mut String, pool: &PoolStatus) {
    let PoolStatus { name, driver, least, most, wanted, why, started, there, busy, away, ending, .. } = pool;
    let _ = writeln!(
        text,
        "{name} ({driver}, {least} to {most}): {wanted} wanted, {there} there, {busy} of them build"
    );
    let parts = [(*started, "being started"), (*away, "not connected"), (*ending, "being ended")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !parts.is_empty() {
        let _ = writeln!(text, "  {}", parts.join(", "));
    }
    if !why.is_empty() {
        let _ = writeln!(text, "  wanted: {}", Foreign(why));
    }
    for trouble in &pool.troubles {
        let _ = writeln!(text, "  trouble: {}", Foreign(trouble));
    }
    for (package, lack) in &pool.misses {
        let _ = writeln!(text, "  {package} fits no worker: {}", Foreign(lack));
    }
    let totals = [
        (pool.started_total, "started"),
        (pool.failed_total, "failed to start"),
        (pool.lost_total, "lost before they joined"),
        (pool.ended_total, "ended"),
    ];
    let totals: Vec<String> = totals
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !totals.is_empty() {
        let _ = writeln!(text, "  since the server began: {}", totals.join(", "));
    }
}

/// The end of a figure's name, its description, and the figure.
type Figure = (&'static str, &'static str, fn(&PoolStatus) -> u64);

/// The figures of all pools for Prometheus, in its text format.
pub fn metrics(pools: &[PoolStatus]) -> String {
    let mut text = String::new();
    let gauges: [Figure; 7] = [
        ("wanted", "Workers that are wanted.", |pool| pool.wanted.into()),
        ("starting", "Workers that were started and have not joined yet.", |pool| pool.started.into()),
        ("there", "Connected workers that take builds.", |pool| pool.there.into()),
        ("busy", "Connected workers that build.", |pool| pool.busy.into()),
        ("away", "Workers that have joined, and are not connected.", |pool| pool.away.into()),
        ("ending", "Workers that get no more builds, or are being ended.", |pool| pool.ending.into()),
        ("most", "The most workers that there may be.", |pool| pool.most.into()),
    ];
    for (name, help, of) in gauges {
        series(&mut text, pools, (&format!("kilnyard_pool_{name}"), "gauge", help), of);
    }
    let counters: [Figure; 4] = [
        ("started", "Starts that were requested.", |pool| pool.started_total),
        ("failed", "Starts that failed.", |pool| pool.failed_total),
        ("lost", "Workers that were gone before they joined.", |pool| pool.lost_total),
        ("ended", "Workers that ended after they had joined.", |pool| pool.ended_total),
    ];
    for (name, help, of) in counters {
        series(&mut text, pools, (&format!("kilnyard_pool_{name}_total"), "counter", help), of);
    }
    text
}

fn series(
    text: &mut String,
    pools: &[PoolStatus],
    (name, kind, help): (&str, &str, &str),
    of: fn(&PoolStatus) -> u64,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for pool in pools {
        // Names of pools have neither quotes nor backslashes.
        let _ = writeln!(text, "{name}{{pool=\"{}\"}} {}", pool.name, of(pool));
    }
}
