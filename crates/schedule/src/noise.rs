//! Random deviations of build times from their estimates; the same seed gives the same times.

use crate::work::Work;

/// Multiplies each work by a random factor, whose logarithm is normally distributed with mean 0 and this standard
/// deviation.
pub fn noisy(works: &[Work], sigma: f64, seed: u64) -> Vec<Work> {
    let mut random = Random { state: seed };
    works.iter().map(|work| work.scaled((sigma * random.normal()).exp())).collect()
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct Random {
    state: u64,
}

impl Random {
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in (0, 1).
    fn uniform(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        ((self.bits() >> 11) as f64 + 0.5) / STEPS
    }

    /// A number of the standard normal distribution (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Basis;

    #[test]
    fn noise_follows_its_size_and_seed() {
        let works = vec![Work::serial(1.0, Basis::Recorded); 20_000];
        let noise = noisy(&works, 0.5, 7);
        assert_eq!(noise, noisy(&works, 0.5, 7));
        assert_ne!(noise, noisy(&works, 0.5, 8));
        let logs: Vec<f64> = noise.iter().map(|work| work.core_seconds().ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
        assert!(mean.abs() < 0.02 && (variance.sqrt() - 0.5).abs() < 0.02, "{mean} {variance}");
    }
}
