//! Which way to make roots is recommended: a pure function of figures.

use super::super::figures::{Summary, ratios};
use kilnyard_root::{Backend, Roots, Scratch};

/// A way must take at most so much of the wall time of the plainest one to be recommended in its place: less is not
/// worth the memory, and is lost in what else a machine does.
const WORTH_RATIO_MAX: f64 = 0.95;
/// The same where there are few rounds: one build differs from the next by some percent, whatever its root.
const WORTH_RATIO_MAX_OF_FEW: f64 = 0.85;
/// Fewer rounds are few.
const ROUNDS_MIN: usize = 3;

/// A way that works here, and the seconds of a whole build in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub roots: Roots,
    pub seconds: Vec<f64>,
}

/// What is recommended.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub roots: Roots,
    /// The reason, a sentence without its end.
    pub reason: String,
}

/// Recommends one of these, the plainest first: that one, unless another one is faster by more than is lost in noise, and in
/// every round.
pub fn advise(candidates: &[Candidate]) -> Option<Advice> {
    let (plainest, others) = candidates.split_first()?;
    let is_few = plainest.seconds.len() < ROUNDS_MIN;
    let worth = if is_few { WORTH_RATIO_MAX_OF_FEW } else { WORTH_RATIO_MAX };
    let ratio = |one: &Candidate| Summary::of(&ratios(&one.seconds, &plainest.seconds));
    let fastest = others
        .iter()
        .filter_map(|one| Some((one, ratio(one)?)))
        .min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    let advice = |one: &Candidate, reason| Some(Advice { roots: one.roots, reason });
    match fastest {
        Some((one, Summary { median, max, .. })) if median <= worth && max < 1.0 => {
            let reason = format!("a build takes {median:.2} of the time that it takes by {}", plainest.roots);
            advice(one, reason)
        }
        Some((one, Summary { median, .. })) => {
            let more = match is_few {
                true => format!(" ({WORTH_RATIO_MAX} would be enough with {ROUNDS_MIN} rounds)"),
                false => " and less in every round".to_owned(),
            };
            let next = one.roots;
            let reason = format!(
                "nothing else takes at most {worth} of its time{more}; the next is {next}, at {median:.2}"
            );
            advice(plainest, reason)
        }
        None => advice(plainest, "nothing else works here".to_owned()),
    }
}

/// The lines of the table `root` that say so: keys, and values as TOML has them.
pub fn lines(roots: Roots) -> Vec<(&'static str, &'static str)> {
    match (roots.backend, roots.scratch) {
        (Backend::Overlay, Scratch::Disk) => vec![("backend", "\"overlay\""), ("scratch", "\"disk\"")],
        (Backend::Overlay, Scratch::Memory) => vec![("backend", "\"overlay\""), ("scratch", "\"memory\"")],
        (Backend::Tmpfs, _) => vec![("backend", "\"tmpfs\"")],
        (Backend::Copy, _) => vec![("backend", "\"copy\"")],
        (Backend::Block, _) => vec![("backend", "\"block\"")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn candidate(backend: Backend, scratch: Scratch, seconds: &[f64]) -> Candidate {
        let roots = Roots { backend, scratch, ..Roots::default() };
        Candidate { roots, seconds: seconds.to_vec() }
    }

    #[test]
    fn the_plainest_stays_where_nothing_is_clearly_faster() {
        assert_eq!(advise(&[]), None);
        let disk = candidate(Backend::Overlay, Scratch::Disk, &[10.0, 10.0, 10.0]);
        let alone = advise(std::slice::from_ref(&disk)).unwrap();
        assert_eq!((alone.roots, &*alone.reason), (disk.roots, "nothing else works here"));
        let little = candidate(Backend::Overlay, Scratch::Memory, &[9.7, 9.6, 9.8]);
        let copy = candidate(Backend::Copy, Scratch::Disk, &[30.0, 30.0, 30.0]);
        let advice = advise(&[disk.clone(), little, copy]).unwrap();
        assert_eq!(advice.roots, disk.roots);
        assert!(advice.reason.ends_with("scratch in memory, at 0.97"), "{}", advice.reason);
    }

    #[test]
    fn what_is_faster_round_by_round_is_recommended() {
        // The second round was under load for both.
        let disk = candidate(Backend::Overlay, Scratch::Disk, &[10.0, 40.0, 10.0]);
        let memory = candidate(Backend::Overlay, Scratch::Memory, &[8.0, 32.0, 8.5]);
        let tmpfs = candidate(Backend::Tmpfs, Scratch::Disk, &[9.0, 36.0, 9.0]);
        let advice = advise(&[disk, tmpfs, memory.clone()]).unwrap();
        assert_eq!(advice.roots, memory.roots);
        assert_eq!(advice.reason, "a build takes 0.80 of the time that it takes by overlay");
    }

    #[test]
    fn few_rounds_and_rounds_that_disagree_need_more_to_convince() {
        let disk = |rounds: usize| candidate(Backend::Overlay, Scratch::Disk, &vec![10.0; rounds]);
        let memory = |seconds: &[f64]| candidate(Backend::Overlay, Scratch::Memory, seconds);
        let is_memory = |candidates: &[Candidate]| advise(candidates).unwrap().roots.is_in_memory();
        assert!(!is_memory(&[disk(1), memory(&[9.0])]));
        assert!(is_memory(&[disk(1), memory(&[8.4])]));
        assert!(is_memory(&[disk(3), memory(&[9.0, 9.1, 9.0])]));
        assert!(!is_memory(&[disk(3), memory(&[9.0, 10.1, 9.0])]));
    }

    #[test]
    fn a_way_that_never_came_to_an_end_is_not_recommended() {
        let disk = candidate(Backend::Overlay, Scratch::Disk, &[10.0]);
        let none = candidate(Backend::Tmpfs, Scratch::Disk, &[]);
        assert_eq!(advise(&[disk.clone(), none]).unwrap().roots, disk.roots);
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
                lines(roots).iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            let text =
                format!("[debian]\nrelease = \"bookworm\"\nmirror = \"http://m.example/d\"\n[root]\n{lines}");
            assert_eq!(Config::parse(&text, std::path::Path::new("x")).unwrap().roots, roots, "{text}");
        }
    }
}
