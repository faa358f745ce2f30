//! Many processes that call at once: what that costs beside plain, and how fast others are.

use super::super::scratch::Scratch;
use super::client::PINNED;
use super::contender::{Contender, OURS, PLAIN};
use super::findings::{Findings, Judged};
use crate::error::{Error, Kind, Result};
use crate::words;

/// Processes at once.
const PROCESSES: [u32; 4] = [1, 4, 16, 64];
/// How often everybody has a turn alone, in each pair; the smallest time counts.
const TURNS_ALONE: usize = 2;
/// And how often plain and ours have one together; the mean counts.
const TURNS_TOGETHER: usize = 4;

/// What many processes need for a call.
#[derive(Clone, Copy)]
struct Needs {
    /// The time of the whole machine, in seconds.
    wall: f64,
    /// The time of a core.
    cpu: f64,
}

/// Measures once, for a pair.
///
/// Against plain, as many processes of each are there at once, on the same cores, so that what disturbs one disturbs both, and CPU
/// time counts, as each has half of the machine. Others have daemons, whose CPU time is not theirs: everybody alone, and the time
/// that passes counts.
pub fn measure(scratch: &Scratch, contenders: &[Contender], findings: &mut Findings) -> Result<()> {
    let find = |name: &str| contenders.iter().find(|contender| contender.name == name);
    for processes in PROCESSES {
        let who = words::count(processes.into(), "process");
        let name = format!("stat_{processes}");
        for contender in contenders {
            let mut best = Ok(f64::INFINITY);
            for _ in 0..TURNS_ALONE {
                super::super::go_on()?;
                let wall = |least: f64| Ok(least.min(stats(contender, scratch, processes, &[])?.wall));
                best = best.and_then(wall);
            }
            findings.take(&name, &format!("stat by {who}"), Judged::faster(processes), contender, best)?;
        }
        let (Some(plain), Some(ours)) = (find(PLAIN), find(OURS)) else { continue };
        let mut sums = [0.0; 2];
        for _ in 0..TURNS_TOGETHER {
            super::super::go_on()?;
            let (without, with) = std::thread::scope(|scope| {
                let without = scope.spawn(|| stats(plain, scratch, processes, &[PINNED]));
                let with = stats(ours, scratch, processes, &[PINNED]);
                (without.join(), with)
            });
            let gone = |_| Err(Error::new(Kind::Internal, "a thread that measures ended early"));
            sums[0] += without.unwrap_or_else(gone)?.cpu;
            sums[1] += with?.cpu;
        }
        let label = format!("stat by {who}, CPU, beside as many of the other");
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
        _ => Err(Error::new(Kind::Internal, "a client with another number of figures")),
    }
}
