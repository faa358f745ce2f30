//! How much CPU time each rank has. Pure.

/// How many times the CPU time of the next rank a build has, where both want all of one CPU: the first has three
/// quarters of what all of them get. Steeper would be closer to the ideal of the plan, in which the first has
/// whatever it can use; but the scale ends soon, and builds below its end are equal.
const DIVISOR: u64 = 4;

/// What the nice level rises with each rank. A level is a factor of about 1.25 (sched(7)), five of them are 3.05: the
/// nearest to [`DIVISOR`] that leaves room for five ranks.
const LEVELS_A_RANK: i32 = 5;
/// The highest nice level (sched(7)).
pub(super) const LEVEL_MAX: i32 = 19;

// Both scales end at about a 1,024th of the first, far above what the kernel would take. A group whose weight is
// raised has to wait for its turn by the old one: on Linux 6.18, one that was raised from 2 to 102,400 had nothing at
// all for seconds while one of lower rank ran, one from 25 had nothing for a tenth of a second at times, and one from
// 100 was never seen to wait.

/// The numbers that a kind of control group takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    first: u64,
    least: u64,
    most: u64,
    default: u64,
}

impl Scale {
    /// `cpu.weight` of version 2: 1 to 10,000, and 100 by default (Documentation/admin-guide/cgroup-v2.rst).
    pub(super) const VERSION_2: Scale = Scale { first: 10_000, least: 10, most: 10_000, default: 100 };

    /// `cpu.shares` of version 1: 2 to 262,144, and 1,024 by default (kernel/sched/sched.h: MIN_SHARES, MAX_SHARES).
    /// The first has what is the same to the kernel as the first of version 2, so that both share alike.
    pub(super) const VERSION_1: Scale = Scale { first: 102_400, least: 100, most: 262_144, default: 1024 };

    /// Of the build of this rank, 0 being the first.
    pub(super) fn of_rank(self, rank: usize) -> u64 {
        let divisor = u32::try_from(rank).ok().and_then(|rank| DIVISOR.checked_pow(rank));
        divisor.map_or(self.least, |divisor| (self.first / divisor).max(self.least))
    }

    /// Of a build that has no rank.
    pub(super) fn least(self) -> u64 {
        self.least
    }

    /// Of the group that holds all builds, against others of this machine. The weight of a group is shared by the CPUs
    /// that it is busy on, so that one group busy on all of them would count no more than one process on one of them.
    pub(super) fn of_all(self, cpus: usize) -> u64 {
        self.default.saturating_mul(cpus.max(1) as u64).min(self.most)
    }
}

/// The nice levels of builds in rank order, given the levels that those have which cannot be lowered (0 where it can).
/// No build has a lower level than one before it.
pub(super) fn levels(base: i32, floors: &[i32]) -> Vec<i32> {
    let mut next = base;
    let rise = |floor: &i32| {
        let level = next.max(*floor).min(LEVEL_MAX);
        next = level + LEVELS_A_RANK;
        level
    };
    floors.iter().map(rise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_rank_has_a_quarter_of_the_one_before_until_the_least() {
        let weights = |scale: Scale| (0..8).map(|rank| scale.of_rank(rank)).collect::<Vec<u64>>();
        assert_eq!(weights(Scale::VERSION_2), [10_000, 2500, 625, 156, 39, 10, 10, 10]);
        assert_eq!(weights(Scale::VERSION_1), [102_400, 25_600, 6400, 1600, 400, 100, 100, 100]);
        assert_eq!(Scale::VERSION_2.of_rank(usize::MAX), 10);
        assert_eq!(Scale::VERSION_2.of_all(32), 3200);
        assert_eq!(Scale::VERSION_2.of_all(1000), 10_000);
        assert_eq!(Scale::VERSION_1.of_all(0), 1024);
    }

    #[test]
    fn levels_rise_with_rank_and_never_turn_it_round() {
        assert_eq!(levels(0, &[0; 6]), [0, 5, 10, 15, 19, 19]);
        assert_eq!(levels(3, &[0; 3]), [3, 8, 13]);
        // The first was the third before, and could not be lowered.
        assert_eq!(levels(0, &[10, 0, 5]), [10, 15, 19]);
        assert_eq!(levels(0, &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn levels_are_in_order_and_above_their_floors(base in 0..20, floors in prop::collection::vec(0..20, 0..12)) {
            let levels = levels(base, &floors);
            prop_assert!(levels.is_sorted());
            prop_assert!(levels.iter().zip(&floors).all(|(level, floor)| level >= floor && *level <= LEVEL_MAX));
        }
    }
}
