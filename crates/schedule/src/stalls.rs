//! Builds that stall the machine that they run on: each trap of an emulated instruction stops other cores too.
//!
//! The model: a build that takes a time with one core takes longer with each doubling of the machine's cores, whichever of
//! them it uses, and so does everything else on the machine meanwhile. Its two constants are fitted to a Raspbian package
//! whose build caused about a million traps of CP15 barriers a second, and took 9 h 24 min on 64 cores and about 6 h on 8
//! ("9 h 24 on 64 cores", a release engineer's report). With one core it took 3 h 40 min, in a virtual machine, which the
//! constants do not know: [`Stalling::prediction`] says how far off the model is there.

/// The traps a second of the observed build.
const OBSERVED_TRAPS: f64 = 1e6;
/// Cores and hours of the observations that the constants are fitted to.
const OBSERVED: [(u32, f64); 2] = [(8, 6.0), (64, 9.4)];
/// The hours on one core that they are compared with.
const ON_ONE_CORE: f64 = 3.0 + 40.0 / 60.0;

/// The fitted constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stalling {
    /// The time of the observed build without stalls, in hours.
    pub alone_hours: f64,
    /// What each doubling of the cores adds to it, in hours.
    pub doubling_hours: f64,
}

impl Default for Stalling {
    fn default() -> Stalling {
        let [(few, short), (many, long)] = OBSERVED;
        let (few, many) = (doublings(few), doublings(many));
        let doubling_hours = (long - short) / (many - few);
        Stalling { alone_hours: short - doubling_hours * few, doubling_hours }
    }
}

fn doublings(cores: u32) -> f64 {
    f64::from(cores.max(1)).log2()
}

impl Stalling {
    /// By how much everything on a machine takes longer while builds cause this many traps a second in all.
    pub fn factor(&self, traps_per_second: f64, cores: u32) -> f64 {
        let observed = self.doubling_hours / self.alone_hours * doublings(cores);
        1.0 + observed * traps_per_second.max(0.0) / OBSERVED_TRAPS
    }

    /// The predicted and the measured time of the observed build on one core, in seconds.
    pub fn prediction(&self) -> (f64, f64) {
        (self.alone_hours * 3600.0, ON_ONE_CORE * 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_give_what_was_observed() {
        let fitted = Stalling::default();
        for (cores, hours) in OBSERVED {
            assert!((fitted.alone_hours * fitted.factor(OBSERVED_TRAPS, cores) - hours).abs() < 1e-9);
        }
        assert_eq!(fitted.factor(OBSERVED_TRAPS, 1), 1.0);
        assert_eq!(fitted.factor(0.0, 64), 1.0);
        let (predicted, measured) = fitted.prediction();
        assert!((predicted / measured - 0.709).abs() < 0.001, "{predicted} {measured}");
    }
}
