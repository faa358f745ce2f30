//! Which way to make roots is recommended: a pure function of figures.

use super::super::figures::{Summary, ratios};
use super::clock::Spent;
use crate::words;
use kilnyard_root::{Backend, Roots, Scratch};

/// A way must take at most so much of the wall time of the plainest one to be recommended in its place: less is not
/// worth the memory, and is lost in what else a machine does.
const WORTH_RATIO_MAX: f64 = 0.95;
/// It may take so much of the CPU time of the plainest one: with all cores at work, CPU time decides.
const CPU_RATIO_MAX: f64 = 1.05;
/// Fewer rounds say nothing of how far one differs from the next.
const ROUNDS_MIN: usize = 3;
/// Other work may use so much of the machine's cores while it is measured. The kernel's own threads count as others: they
/// write to disks.
const OTHERS_SHARE_MAX: f64 = 0.15;

/// A way that works here, and what a whole build took in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The way to make them.
    pub roots: Roots,
    pub rounds: Vec<Spent>,
}

impl Candidate {
    /// What each round is to the same round of another one.
    fn ratios(&self, other: &Candidate, of: fn(&Spent) -> f64) -> Option<Summary> {
        let values = |one: &Candidate| one.rounds.iter().map(of).collect::<Vec<_>>();
        Summary::of(&ratios(&values(self), &values(other)))
    }
}

/// What is recommended.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The way to make roots.
    pub roots: Roots,
    /// The reason, a sentence without its end.
    pub reason: String,
}

/// A candidate beside the plainest one.
struct Compared<'a> {
    candidate: &'a Candidate,
    wall: Summary,
    cpu: Summary,
}

impl Compared<'_> {
    fn is_faster(&self) -> bool {
        self.wall.median <= WORTH_RATIO_MAX
    }

    /// Whether what it gains is more than rounds differ by, and the same in every round.
    fn is_beyond_noise(&self) -> bool {
        self.wall.max < 1.0 && 1.0 - self.wall.median > self.wall.max - self.wall.min
    }

    fn is_affordable(&self) -> bool {
        self.cpu.median <= CPU_RATIO_MAX
    }
}

/// Recommends one of these, the plainest first: that one, unless another one is faster by more than rounds differ by, and takes
/// no more CPU time. An error says why these figures decide nothing. `others_share` is how much of the machine's cores
/// other work used meanwhile, if that is known.
pub fn advise(candidates: &[Candidate], others_share: Option<f64>) -> Result<Advice, String> {
    let (plainest, others) = candidates.split_first().ok_or("no way to make roots works here")?;
    let rounds = plainest.rounds.len();
    if rounds < ROUNDS_MIN {
        return Err(format!(
            "{} cannot be told from noise: --pairs {ROUNDS_MIN}",
            words::count(rounds as u64, "round")
        ));
    }
    if let Some(share) = others_share.filter(|share| *share > OTHERS_SHARE_MAX) {
        return Err(format!(
            "other work used {:.0} % of the machine's cores meanwhile, and {:.0} % is the most",
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
        return Ok(Advice { roots: plainest.roots, reason: "nothing else works here".to_owned() });
    };
    let affordable: Vec<&Compared> =
        compared.iter().filter(|one| one.is_faster() && one.is_affordable()).collect();
    if let Some(best) = affordable.iter().find(|one| one.is_beyond_noise()) {
        let (wall, cpu) = (best.wall.median, best.cpu.median);
        let than = plainest.roots;
        let reason = format!(
            "a build takes {wall:.2} of the wall time and {cpu:.2} of the CPU time that it takes by {than}"
        );
        return Ok(Advice { roots: best.candidate.roots, reason });
    }
    if let Some(noisy) = affordable.first() {
        let (roots, Summary { min, max, .. }) = (noisy.candidate.roots, noisy.wall);
        return Err(format!(
            "rounds differ by more than is gained: a build by {roots} took {min:.2} to {max:.2} of the time by {}",
            plainest.roots
        ));
    }
    let (roots, wall, cpu) = (next.candidate.roots, next.wall.median, next.cpu.median);
    let reason = format!(
        "nothing else takes at most {WORTH_RATIO_MAX} of its wall time and {CPU_RATIO_MAX} of its CPU time; the next is \
         {roots}, at {wall:.2} and {cpu:.2}"
    );
    Ok(Advice { roots: plainest.roots, reason })
}

/// The settings of the table `root` that say so: keys, and values, which are strings.
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

    /// Builds that take so long, with half of it on a core.
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
    fn the_plainest_stays_where_nothing_is_clearly_faster() {
        assert!(advise(&[], None).is_err());
        let plainest = disk(&[10.0, 10.0, 10.0]);
        let alone = advise(std::slice::from_ref(&plainest), None).unwrap();
        assert_eq!((alone.roots, &*alone.reason), (plainest.roots, "nothing else works here"));
        let copy = candidate(Backend::Copy, Scratch::Disk, &[30.0, 30.0, 30.0]);
        let advice = advise(&[plainest.clone(), memory(&[9.7, 9.6, 9.8]), copy], None).unwrap();
        assert_eq!(advice.roots, plainest.roots);
        assert!(advice.reason.ends_with("scratch in memory, at 0.97 and 0.97"), "{}", advice.reason);
    }

    #[test]
    fn what_is_faster_round_by_round_is_recommended() {
        // The second round was slower for all.
        let tmpfs = candidate(Backend::Tmpfs, Scratch::Disk, &[9.0, 36.0, 9.0]);
        let candidates = [disk(&[10.0, 40.0, 10.0]), tmpfs, memory(&[8.0, 32.0, 8.5])];
        let advice = advise(&candidates, Some(0.1)).unwrap();
        assert_eq!(advice.roots, candidates[2].roots);
        assert_eq!(
            advice.reason,
            "a build takes 0.80 of the wall time and 0.80 of the CPU time that it takes by overlay"
        );
    }

    #[test]
    fn nothing_is_recommended_within_noise() {
        let refused = |candidates: &[Candidate], share| advise(candidates, share).unwrap_err();
        // One run may have any cause, however large the difference is.
        assert!(refused(&[disk(&[10.0]), memory(&[3.1])], None).contains("--pairs 3"));
        // Rounds that disagree, in direction or in size.
        let wide = refused(&[disk(&[10.0; 3]), memory(&[9.0, 10.1, 9.0])], None);
        assert!(wide.contains("took 0.90 to 1.01 of the time by overlay"), "{wide}");
        assert!(refused(&[disk(&[10.0; 3]), memory(&[3.1, 9.9, 6.0])], None).contains("differ by more"));
        // Others load the machine.
        let loaded = refused(&[disk(&[10.0; 3]), memory(&[5.0; 3])], Some(0.5));
        assert!(loaded.contains("other work used 50 %"), "{loaded}");
    }

    #[test]
    fn wall_time_that_costs_cpu_time_is_not_recommended() {
        let mut block = candidate(Backend::Block, Scratch::Disk, &[3.1; 3]);
        block.rounds.iter_mut().for_each(|round| round.cpu_seconds = 6.0);
        let plainest = disk(&[10.0; 3]);
        let advice = advise(&[plainest.clone(), block.clone()], None).unwrap();
        assert_eq!(advice.roots, plainest.roots);
        assert!(advice.reason.ends_with("at 0.31 and 1.20"), "{}", advice.reason);
        // The next one may be had for both.
        let roots = advise(&[plainest, block, memory(&[8.0; 3])], None).unwrap().roots;
        assert!(roots.is_in_memory());
    }

    #[test]
    fn a_way_that_never_came_to_an_end_is_not_recommended() {
        let candidates = [disk(&[10.0; 3]), candidate(Backend::Tmpfs, Scratch::Disk, &[1.0])];
        assert_eq!(advise(&candidates, None).unwrap().roots, candidates[0].roots);
    }

    #[test]
    fn the_lines_are_read_as_what_they_are_for() {
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
