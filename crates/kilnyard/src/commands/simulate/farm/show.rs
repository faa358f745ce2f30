//! The output of a simulated farm, for people and for programs.

use super::{Played, Taken};
use crate::words;
use serde::Serialize;
use std::fmt::Write;

/// What a simulated farm did.
#[derive(Serialize)]
pub struct Shown {
    makespan_seconds: f64,
    /// How long all yards of unfinished runs, two at least, had packages that could start.
    contended_seconds: f64,
    /// The share of all core time in which cores were unused although a package could start.
    idle_share: f64,
    yards: Vec<ShownYard>,
    pools: Vec<ShownPool>,
}

#[derive(Serialize)]
struct ShownYard {
    name: String,
    weight: f64,
    class: String,
    packages: usize,
    core_seconds: f64,
    begin_seconds: f64,
    end_seconds: f64,
    /// How long its run takes if there are no others.
    alone_seconds: f64,
    /// Its share of the core time that was used while all had packages that could start; absent if there was no such time.
    share: Option<f64>,
    /// The longest time with packages that could start, and no build.
    waited_seconds_max: f64,
}

#[derive(Serialize)]
struct ShownPool {
    name: String,
    cores: u32,
    most: u32,
    most_there: u32,
    started: u32,
    first_there_seconds: Option<f64>,
    there_core_seconds: f64,
    used_core_seconds: f64,
}

impl Shown {
    pub fn of(yards: &[&Taken<'_>], alone: &[f64], played: &Played) -> Shown {
        let Played { simulated, together, pools } = played;
        let contended: f64 = together.received.iter().map(|received| received.contended_core_seconds).sum();
        let mut first = 0;
        let of_yards = yards.iter().zip(alone).zip(&together.received).map(|((yard, alone), received)| {
            let own = first..first + yard.set.graph.len() as u32;
            first = own.end;
            let ends = simulated.builds.iter().filter(|built| own.contains(&built.package.0));
            let entitlement = yard.table.entitlement();
            ShownYard {
                name: yard.name.to_owned(),
                weight: entitlement.weight,
                class: entitlement.class.to_string(),
                packages: yard.set.graph.len(),
                core_seconds: received.core_seconds,
                begin_seconds: yard.table.begin_seconds,
                end_seconds: ends.map(|built| built.end_seconds).fold(0.0, f64::max),
                alone_seconds: *alone,
                share: (contended > 0.0).then(|| received.contended_core_seconds / contended),
                waited_seconds_max: received.waited_seconds_max,
            }
        });
        let of_yards = of_yards.collect();
        let of_pools = pools.iter().map(|pool| {
            let machines = &together.machines[pool.machines.start as usize..pool.machines.end as usize];
            ShownPool {
                name: pool.name.clone(),
                cores: pool.table.cores,
                most: pool.table.most,
                most_there: pool.most_there,
                started: pool.started,
                first_there_seconds: pool.first_there_seconds,
                there_core_seconds: machines.iter().map(|machine| machine.there_core_seconds).sum(),
                used_core_seconds: machines.iter().map(|machine| machine.used_core_seconds).sum(),
            }
        });
        let there: f64 = together.machines.iter().map(|machine| machine.there_core_seconds).sum();
        Shown {
            makespan_seconds: simulated.makespan_seconds,
            contended_seconds: together.contended_seconds,
            idle_share: if there > 0.0 { together.idle_core_seconds / there } else { 0.0 },
            yards: of_yards,
            pools: of_pools.collect(),
        }
    }

    pub fn as_json(&self) -> serde_json::Value {
        serde_json::json!(self)
    }

    pub fn as_text(&self) -> String {
        let mut text = String::new();
        let all: usize = self.yards.iter().map(|yard| yard.packages).sum();
        let _ = writeln!(
            text,
            "{} of {} take {}",
            words::count(all as u64, "package"),
            words::count(self.yards.len() as u64, "yard"),
            words::duration(self.makespan_seconds),
        );
        for yard in &self.yards {
            let took_seconds = yard.end_seconds - yard.begin_seconds;
            let _ = writeln!(
                text,
                "yard {} (weight {}, {}): {}, {} of work; takes {}, {:.2} times as long as alone",
                yard.name,
                yard.weight,
                yard.class,
                words::count(yard.packages as u64, "package"),
                words::duration(yard.core_seconds),
                words::duration(took_seconds),
                took_seconds / yard.alone_seconds.max(f64::MIN_POSITIVE),
            );
            if yard.begin_seconds > 0.0 {
                let _ = writeln!(text, "  begins after {}", words::duration(yard.begin_seconds));
            }
            let waited = words::duration(yard.waited_seconds_max);
            let _ = writeln!(text, "  longest time with packages that could start, and no build: {waited}");
        }
        if self.contended_seconds > 0.0 {
            let shares = self.yards.iter();
            let shares = shares.filter_map(|yard| Some(format!("{} {:.3}", yard.name, yard.share?)));
            let _ = writeln!(
                text,
                "while all had packages that could start ({}), of the core time: {}",
                words::duration(self.contended_seconds),
                shares.collect::<Vec<_>>().join(", "),
            );
        }
        let idle = self.idle_share * 100.0;
        let _ = writeln!(text, "cores unused although a package could start: {idle:.1} % of the time");
        for pool in &self.pools {
            let used = pool.used_core_seconds / pool.there_core_seconds.max(f64::MIN_POSITIVE) * 100.0;
            let _ = writeln!(
                text,
                "pool {} (up to {} of {}): {} started, {} at once; {:.0} core-hours, {used:.0} % of them used",
                pool.name,
                words::count(u64::from(pool.most), "worker"),
                words::count(u64::from(pool.cores), "core"),
                pool.started,
                pool.most_there,
                pool.there_core_seconds / 3600.0,
            );
        }
        text
    }
}
