//! Many processes that make calls at the same time: the cost compared with plain calls, and the speed of other
//! fakeroots.

use super::super::scratch::Scratch;
use super::client::PINNED;
use super::contender::{Contender, OURS, PLAIN};
use super::findings::{Findings, Judged};
use crate::error::{Error, Kind, Result};
use crate::words;

/// Numbers of parallel processes.
const PROCESSES: [u32; 4] = [1, 4, 16, 64];
/// Number of turns alone that each contender has per pair. The minimum counts.
const TURNS_ALONE: usize = 2;
/// Number of turns per pair that plain and Kilnyard have together. The mean counts.
const TURNS_TOGETHER: usize = 4;

/// The cost of a call when there are many processes.
#[derive(Clone, Copy)]
struct Needs {
    /// Time of the whole machine, in seconds.
    wall: f64,
    /// CPU time, in seconds.
    cpu: f64,
}

/// Measures once, for one pair.
///
/// For the comparison with plain, the same number of processes of each run at the same time on the same cores, so that
/// disturbances affect both. CPU time counts, since each has half of the machine. Other fakeroots have daemons, whose
/// CPU time is not included in theirs. Each contender therefore also runs alone, and wall time counts.
pub fn measure(scratch: &Scratch, contenders: &[Contender], findings: &mut Findings) -> Result<()> {
    let find = |name: &str| contenders.iter().find(|contender| contender.name == name);
    for processes in PROCESSES {
        let who = words::count(processes.into(), "process");
        let name = format!("stat_{processes}");
        for contender in contenders {
            let mut best = Ok(f64::INFINITY);
            for _ in 0..TURNS_ALONE {
                super::super::check_interrupt()?;
                let wall = |least: f64| Ok(least.min(stats(contender, scratch, processes, &[])?.wall));
                best = best.and_then(wall);
            }
            findings.take(&name, &format!("stat by {who}"), Judged::faster(processes), contender, best)?;
        }
        let (Some(plain), Some(ours)) = (find(PLAIN), find(OURS)) else { continue };
        let mut sums = [0.0; 2];
        for _ in 0..TURNS_TOGETHER {
            super::super::check_interrupt()?;
            let (without, with) = std::thread::scope(|scope| {
                let without = scope.spawn(|| stats(plain, scratch, processes, &[PINNED]));
                let with = stats(ours, scratch, processes, &[PINNED]);
                (without.join(), with)
            });
            let gone = |_| Err(Error::new(Kind::Internal, "a measuring thread panicked"));
            sums[0] += without.unwrap_or_else(gone)?.cpu;
            sums[1] += with?.cpu;
        }
        let label = format!("stat by {who}, CPU, alongside the other");
        for (contender, sum) in [plain, ours].into_iter().zip(sums) {
            let mean = sum / TURNS_TOGETHER as f64;
            findings.take(&format!("{name}_cpu"), &label, Judged::CallToPlain, contender, Ok(mean))?;
        }
    }
    Ok(())
}

fn stats(contender: &Contender, scratch: &Scratch, processes: u32, more: &[&str]) -> Result<Needs> {
    let processes = processes.to_string();
    match contender.client(scratch, &[&["many", &processes], more].concat())?[..] {
        [wall, cpu] => Ok(Needs { wall, cpu }),
        _ => Err(Error::new(Kind::Internal, "a client printed an unexpected number of figures")),
    }
}
