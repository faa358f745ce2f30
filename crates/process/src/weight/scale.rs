//! CPU time by rank. Pure.

/// The ratio of CPU time between one rank and the next, if both want all of one CPU: the first gets three quarters of
/// what all builds get. A steeper scale would be closer to the plan's ideal, in which the first gets whatever it can
/// use. But the scale is short, and builds below its end are equal.
const DIVISOR: u64 = 4;

/// The step in nice level from one rank to the next. One level is a factor of about 1.25 (sched(7)), so five are
/// 3.05: the closest to [`DIVISOR`] that leaves room for five ranks.
const LEVELS_A_RANK: i32 = 5;
/// The highest nice level (sched(7)).
pub(super) const LEVEL_MAX: i32 = 19;

// Both scales end at about 1/1,024 of the first, far above what the kernel accepts. A group whose weight is raised
// must first wait for its turn under the old weight: on Linux 6.18, a group raised from 2 to 102,400 got no CPU time
// for seconds while one of lower rank ran, one raised from 25 sometimes got none for a tenth of a second, and one
// raised from 100 was never seen to wait.

/// The range of weights for one version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    first: u64,
    least: u64,
    most: u64,
    default: u64,
}

impl Scale {
    /// `cpu.weight` of cgroup v2: 1 to 10,000, default 100 (Documentation/admin-guide/cgroup-v2.rst).
    pub(super) const VERSION_2: Scale = Scale { first: 10_000, least: 10, most: 10_000, default: 100 };

    /// `cpu.shares` of cgroup v1: 2 to 262,144, default 1,024 (kernel/sched/sched.h: MIN_SHARES, MAX_SHARES). The
    /// first value means the same to the kernel as the first of v2, so that both share alike.
    pub(super) const VERSION_1: Scale = Scale { first: 102_400, least: 100, most: 262_144, default: 1024 };

    /// The weight of a rank; rank 0 is the first.
    pub(super) fn of_rank(self, rank: usize) -> u64 {
        let divisor = u32::try_from(rank).ok().and_then(|rank| DIVISOR.checked_pow(rank));
        divisor.map_or(self.least, |divisor| (self.first / divisor).max(self.least))
    }

    /// The weight of a build without a rank.
    pub(super) fn least(self) -> u64 {
        self.least
    }

    /// The weight of the group that holds all builds, relative to other groups of the machine. The kernel divides a
    /// group's weight among the CPUs where the group is busy, so with the default weight a group busy on all CPUs
    /// would get no more than a single process on one of them.
    pub(super) fn of_all(self, cpus: usize) -> u64 {
        self.default.saturating_mul(cpus.max(1) as u64).min(self.most)
    }
}

/// The nice levels of builds in rank order. `floors` has the current levels where they cannot be lowered, and at
/// most the base level where they can. No build gets a lower level than the one before it.
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
    fn each_rank_has_a_quarter_of_the_rank_before_down_to_the_least() {
        let weights = |scale: Scale| (0..8).map(|rank| scale.of_rank(rank)).collect::<Vec<u64>>();
        assert_eq!(weights(Scale::VERSION_2), [10_000, 2500, 625, 156, 39, 10, 10, 10]);
        assert_eq!(weights(Scale::VERSION_1), [102_400, 25_600, 6400, 1600, 400, 100, 100, 100]);
        assert_eq!(Scale::VERSION_2.of_rank(usize::MAX), 10);
        assert_eq!(Scale::VERSION_2.of_all(32), 3200);
        assert_eq!(Scale::VERSION_2.of_all(1000), 10_000);
        assert_eq!(Scale::VERSION_1.of_all(0), 1024);
    }

    #[test]
    fn levels_rise_with_rank_and_never_reverse_it() {
        assert_eq!(levels(0, &[0; 6]), [0, 5, 10, 15, 19, 19]);
        assert_eq!(levels(3, &[0; 3]), [3, 8, 13]);
        // The first was third before, and could not be lowered.
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
