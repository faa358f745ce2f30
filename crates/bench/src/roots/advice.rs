//! Recommends a way to make roots: a pure function of the measurements.

use super::super::figures::{Summary, ratios};
use super::clock::Spent;
use crate::words;
use kilnyard_root::{Backend, Roots, Scratch};

/// To be recommended, a way must take at most this share of the plainest one's wall time. A smaller gain is not
/// worth the memory, and disappears among the other load of a machine.
const WORTH_RATIO_MAX: f64 = 0.95;
/// Maximum CPU time relative to the plainest way: with all cores busy, CPU time decides.
const CPU_RATIO_MAX: f64 = 1.05;
/// With fewer rounds, the spread is unknown.
const ROUNDS_MIN: usize = 3;
/// Maximum share of the machine's cores that other work may use during the measurement. This includes the
/// kernel's own threads, which write to disks.
const OTHERS_SHARE_MAX: f64 = 0.15;

/// A way that works here, with the cost of a whole build in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The way to make roots.
    pub roots: Roots,
    pub rounds: Vec<Spent>,
}

impl Candidate {
    /// Divides each round's value by that of the same round of another candidate.
    fn ratios(&self, other: &Candidate, of: fn(&Spent) -> f64) -> Option<Summary> {
        let values = |one: &Candidate| one.rounds.iter().map(of).collect::<Vec<_>>();
        Summary::of(&ratios(&values(self), &values(other)))
    }
}

/// A recommendation.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The recommended way to make roots.
    pub roots: Roots,
    /// The reason: a clause without a full stop.
    pub reason: String,
}

/// A candidate compared with the plainest one.
struct Compared<'a> {
    candidate: &'a Candidate,
    wall: Summary,
    cpu: Summary,
}

impl Compared<'_> {
    fn is_faster(&self) -> bool {
        self.wall.median <= WORTH_RATIO_MAX
    }

    /// Whether the gain exceeds the spread of the rounds, and every round has a gain.
    fn is_beyond_noise(&self) -> bool {
        self.wall.max < 1.0 && 1.0 - self.wall.median > self.wall.max - self.wall.min
    }

    fn is_affordable(&self) -> bool {
        self.cpu.median <= CPU_RATIO_MAX
    }
}

/// Recommends one of these candidates: the first, which is the plainest, unless another one is faster by more than
/// the spread of the rounds and takes no more CPU time. Fails if the measurements are inconclusive. `others_share` is
/// the share of the machine's cores that other work used during the measurement, if known.
pub fn advise(candidates: &[Candidate], others_share: Option<f64>) -> Result<Advice, String> {
    let (plainest, others) = candidates.split_first().ok_or("no root backend works on this machine")?;
    let rounds = plainest.rounds.len();
    if rounds < ROUNDS_MIN {
        return Err(format!(
            "{} cannot be distinguished from noise; use --pairs {ROUNDS_MIN}",
            words::count(rounds as u64, "round")
        ));
    }
    if let Some(share) = others_share.filter(|share| *share > OTHERS_SHARE_MAX) {
        return Err(format!(
            "other work used {:.0} % of the machine's cores during the measurement, more than {:.0} %",
            share * 100.0,
            OTHERS_SHARE_MAX * 100.0
        ));
    }
    let compared = |candidate| {
        let of = |of| Candidate::ratios(candidate, plainest, of).filter(|_| candidate.rounds.len() == rounds);
        Some(Compared {
            candidate,
            wall: of(|spent| spent.wall_seconds)?,
            cpu: of(|spent| spent.cpu_seconds)?,
        })
    };
    let mut compared: Vec<Compared> = others.iter().filter_map(compared).collect();
    compared.sort_by(|one, other| one.wall.median.total_cmp(&other.wall.median));
    let Some(next) = compared.first() else {
        return Ok(Advice {
            roots: plainest.roots,
            reason: "no other backend works on this machine".to_owned(),
        });
    };
    let affordable: Vec<&Compared> =
        compared.iter().filter(|one| one.is_faster() && one.is_affordable()).collect();
    if let Some(best) = affordable.iter().find(|one| one.is_beyond_noise()) {
        let (wall, cpu) = (best.wall.median, best.cpu.median);
        let than = plainest.roots;
        let reason = format!(
            "a build takes {wall:.2} of the wall time and {cpu:.2} of the CPU time that it takes with {than}"
        );
        return Ok(Advice { roots: best.candidate.roots, reason });
    }
    if let Some(noisy) = affordable.first() {
        let (roots, Summary { min, max, .. }) = (noisy.candidate.roots, noisy.wall);
        return Err(format!(
            "rounds differ by more than the gain: a build with {roots} took {min:.2} to {max:.2} of the time with {}",
            plainest.roots
        ));
    }
    let (roots, wall, cpu) = (next.candidate.roots, next.wall.median, next.cpu.median);
    let reason = format!(
        "no other way takes at most {WORTH_RATIO_MAX} of its wall time and {CPU_RATIO_MAX} of its CPU time; the next is \
         {roots}, at {wall:.2} and {cpu:.2}"
    );
    Ok(Advice { roots: plainest.roots, reason })
}

/// The settings of the table `root` for these roots, as keys and string values.
pub fn lines(roots: Roots) -> Vec<(&'static str, &'static str)> {
    match (roots.backend, roots.scratch) {
        (Backend::Overlay, Scratch::Disk) => vec![("backend", "overlay"), ("scratch", "disk")],
        (Backend::Overlay, Scratch::Memory) => vec![("backend", "overlay"), ("scratch", "memory")],
        (Backend::Tmpfs, _) => vec![("backend", "tmpfs")],
        (Backend::Copy, _) => vec![("backend", "copy")],
        (Backend::Block, _) => vec![("backend", "block")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Builds that take this many seconds, with one core busy half of the time.
    fn candidate(backend: Backend, scratch: Scratch, seconds: &[f64]) -> Candidate {
        let roots = Roots { backend, scratch, ..Roots::default() };
        let round =
            |wall_seconds: &f64| Spent { wall_seconds: *wall_seconds, cpu_seconds: wall_seconds / 2.0 };
        Candidate { roots, rounds: seconds.iter().map(round).collect() }
    }

    fn disk(seconds: &[f64]) -> Candidate {
        candidate(Backend::Overlay, Scratch::Disk, seconds)
    }

    fn memory(seconds: &[f64]) -> Candidate {
        candidate(Backend::Overlay, Scratch::Memory, seconds)
    }

    #[test]
    fn the_plainest_is_recommended_unless_another_is_clearly_faster() {
        assert!(advise(&[], None).is_err());
        let plainest = disk(&[10.0, 10.0, 10.0]);
        let alone = advise(std::slice::from_ref(&plainest), None).unwrap();
        assert_eq!((alone.roots, &*alone.reason), (plainest.roots, "no other backend works on this machine"));
        let copy = candidate(Backend::Copy, Scratch::Disk, &[30.0, 30.0, 30.0]);
        let advice = advise(&[plainest.clone(), memory(&[9.7, 9.6, 9.8]), copy], None).unwrap();
        assert_eq!(advice.roots, plainest.roots);
        assert!(advice.reason.ends_with("scratch in memory, at 0.97 and 0.97"), "{}", advice.reason);
    }

    #[test]
    fn a_way_that_is_faster_in_each_round_is_recommended() {
        // The second round is slower for all.
        let tmpfs = candidate(Backend::Tmpfs, Scratch::Disk, &[9.0, 36.0, 9.0]);
        let candidates = [disk(&[10.0, 40.0, 10.0]), tmpfs, memory(&[8.0, 32.0, 8.5])];
        let advice = advise(&candidates, Some(0.1)).unwrap();
        assert_eq!(advice.roots, candidates[2].roots);
        assert_eq!(
            advice.reason,
            "a build takes 0.80 of the wall time and 0.80 of the CPU time that it takes with overlay"
        );
    }

    #[test]
    fn nothing_is_recommended_within_noise() {
        let refused = |candidates: &[Candidate], share| advise(candidates, share).unwrap_err();
        // A single round may have any cause, however large the difference is.
        assert!(refused(&[disk(&[10.0]), memory(&[3.1])], None).contains("--pairs 3"));
        // Rounds that differ in direction or size.
        let wide = refused(&[disk(&[10.0; 3]), memory(&[9.0, 10.1, 9.0])], None);
        assert!(wide.contains("took 0.90 to 1.01 of the time with overlay"), "{wide}");
        assert!(refused(&[disk(&[10.0; 3]), memory(&[3.1, 9.9, 6.0])], None).contains("differ by more"));
        // Other load on the machine.
        let loaded = refused(&[disk(&[10.0; 3]), memory(&[5.0; 3])], Some(0.5));
        assert!(loaded.contains("other work used 50 %"), "{loaded}");
    }

    #[test]
    fn faster_ways_that_cost_cpu_time_are_not_recommended() {
        let mut block = candidate(Backend::Block, Scratch::Disk, &[3.1; 3]);
        block.rounds.iter_mut().for_each(|round| round.cpu_seconds = 6.0);
        let plainest = disk(&[10.0; 3]);
        let advice = advise(&[plainest.clone(), block.clone()], None).unwrap();
        assert_eq!(advice.roots, plainest.roots);
        assert!(advice.reason.ends_with("at 0.31 and 1.20"), "{}", advice.reason);
        // The next one is better in both.
        let roots = advise(&[plainest, block, memory(&[8.0; 3])], None).unwrap().roots;
        assert!(roots.is_in_memory());
    }

    #[test]
    fn a_way_without_all_rounds_is_not_recommended() {
        let candidates = [disk(&[10.0; 3]), candidate(Backend::Tmpfs, Scratch::Disk, &[1.0])];
        assert_eq!(advise(&candidates, None).unwrap().roots, candidates[0].roots);
    }

    #[test]
    fn the_lines_parse_as_the_same_roots() {
        for (backend, scratch) in [
            (Backend::Overlay, Scratch::Disk),
            (Backend::Overlay, Scratch::Memory),
            (Backend::Tmpfs, Scratch::Disk),
            (Backend::Copy, Scratch::Disk),
            (Backend::Block, Scratch::Disk),
        ] {
            let roots = Roots { backend, scratch, ..Roots::default() };
            let lines: String =
                lines(roots).iter().map(|(key, value)| format!("{key} = {value:?}\n")).collect();
            let text =
                format!("[debian]\nrelease = \"bookworm\"\nmirror = \"http://m.example/d\"\n[root]\n{lines}");
            assert_eq!(
                Config::parse(&text, std::path::Path::new("x"), kilnyard_family::FAMILIES).unwrap().roots,
                roots,
                "{text}"
            );
        }
    }
}
