//! The expected time of a build that was never recorded, from the index alone.
//!
//! The size of a source's compiled packages predicts the time of its build better than the size of the source, which
//! includes documents, data and translations. The archive's index has the sizes of both. Languages and tools, which
//! the build dependencies reveal, change the time per byte. The model is a product of powers, fitted by least squares
//! on the logarithms of the times in `prior/recorded.tsv`; docs/scheduling.md has the fit.

use super::relation;
use super::settings::Settings;
use super::source::Source;
use super::universe::{Origin, Universe};

/// Core-seconds that any build takes: configuring its dependencies, unpacking, packaging.
const BASE_SECONDS: f64 = 6.0;
/// Additional core-seconds for a source and packages of 1 MB each, without build dependencies.
const SECONDS_AT_MEGABYTES: f64 = 18.4;
/// Exponent of the size of the packed source.
const SOURCE_POWER: f64 = 0.165;
/// Exponent of the size of its binary packages.
const BINARY_POWER: f64 = 0.65;
/// Exponent of the number of build dependencies plus one: a program that uses many libraries has long compilations.
const DEPENDENCIES_POWER: f64 = 0.505;
/// Smaller sizes, in bytes, count as this one: such packages contain only documents and links.
const BYTES_MIN: f64 = 10_000.0;
/// The assumed size of the packages, as a fraction of the source's, if the archive has none of them.
const BINARY_SHARE: f64 = 0.5;

/// A property of a build that its build dependencies reveal.
#[derive(Debug, PartialEq)]
struct Trait {
    name: &'static str,
    /// Prefixes of the names of build dependencies.
    begin: &'static [&'static str],
    /// The build time, as a multiple of that without this trait.
    factor: f64,
}

const TRAITS: [Trait; 2] = [
    // Each module is compiled twice, with and without profiling.
    Trait { name: "Haskell", begin: &["ghc", "haskell-devscripts"], factor: 1.85 },
    // Programs with a copy of the language's run-time libraries, which make the packages large.
    Trait { name: "run-time", begin: &["golang-", "dh-golang", "ocaml", "dh-ocaml"], factor: 0.22 },
];

#[derive(Clone, Debug, PartialEq)]
struct Features {
    /// Size of the packed source.
    source_bytes: u64,
    /// Size of the archive's packages that it makes, if there are any.
    binary_bytes: Option<u64>,
    /// Number of build dependencies.
    dependencies: usize,
    traits: Vec<&'static Trait>,
}

impl Features {
    fn of(source: &Source, universe: &Universe, settings: &Settings) -> Features {
        let context = settings.context_of(source.name());
        let size = |output: &str| {
            let named = universe.named_as_output(output).iter();
            let archived = named.copied().find(|one| universe.origin(*one) == Origin::Archive)?;
            universe.stanza(archived).get("Size")?.parse::<u64>().ok()
        };
        let sizes = source.outputs(&context, settings.parts).into_iter().filter_map(size);
        let binary_bytes: u64 = sizes.fold(0, u64::saturating_add);
        let fields = source.request(settings.parts).needs;
        let clauses = fields.iter().flat_map(|field| relation::clauses(field, &context)).flatten();
        let needs: Vec<&str> = clauses.filter_map(|clause| clause.first().map(|atom| atom.name)).collect();
        let begins = |one: &Trait, need: &str| one.begin.iter().any(|begin| need.starts_with(begin));
        let shows = |one: &&Trait| needs.iter().any(|need| begins(one, need));
        let files = source.files().unwrap_or_default();
        Features {
            source_bytes: files.iter().fold(0, |sum, file| sum.saturating_add(file.size_bytes)),
            binary_bytes: Some(binary_bytes).filter(|bytes| *bytes > 0),
            dependencies: needs.len(),
            traits: TRAITS.iter().filter(shows).collect(),
        }
    }

    fn seconds(&self) -> f64 {
        let source = (self.source_bytes as f64).max(BYTES_MIN);
        let binary = self.binary_bytes.map_or(source * BINARY_SHARE, |bytes| (bytes as f64).max(BYTES_MIN));
        let factor: f64 = self.traits.iter().map(|one| one.factor).product();
        let megabytes = (source / 1e6).powf(SOURCE_POWER) * (binary / 1e6).powf(BINARY_POWER);
        let dependencies = (1.0 + self.dependencies as f64).powf(DEPENDENCIES_POWER);
        BASE_SECONDS + SECONDS_AT_MEGABYTES * megabytes * dependencies * factor
    }
}

/// Estimated core-seconds of a build of this source.
pub fn seconds(source: &Source, universe: &Universe, settings: &Settings) -> f64 {
    Features::of(source, universe, settings).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds on one core of a virtual machine (AMD EPYC, Debian 12, 2026): package, bytes of the packed source,
    /// bytes of the archive's architecture-dependent packages, number of build dependencies, traits, seconds of CPU
    /// time.
    const RECORDED: &str = include_str!("prior/recorded.tsv");

    fn recorded() -> Vec<(Features, f64)> {
        let parse = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [_, source, binary, dependencies, traits, seconds] = fields[..] else { panic!("{line}") };
            let features = Features {
                source_bytes: source.parse().unwrap(),
                binary_bytes: Some(binary.parse().unwrap()),
                dependencies: dependencies.parse().unwrap(),
                traits: TRAITS.iter().filter(|one| traits.split(' ').any(|name| name == one.name)).collect(),
            };
            (features, seconds.parse().unwrap())
        };
        RECORDED.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
    }

    /// The rank of each value, from 0.
    fn ranks(values: &[f64]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut ranks = vec![0.0; values.len()];
        order.into_iter().enumerate().for_each(|(rank, place)| ranks[place] = rank as f64);
        ranks
    }

    /// Spearman's rank correlation.
    fn correlation(one: &[f64], other: &[f64]) -> f64 {
        let (one, other) = (ranks(one), ranks(other));
        let count = one.len() as f64;
        let squares: f64 = one.iter().zip(&other).map(|(a, b)| (a - b) * (a - b)).sum();
        1.0 - 6.0 * squares / (count * (count * count - 1.0))
    }

    #[test]
    fn estimates_are_close_to_recorded_builds() {
        let builds = recorded();
        let (estimated, taken): (Vec<f64>, Vec<f64>) =
            builds.iter().map(|(features, seconds)| (features.seconds(), *seconds)).unzip();
        let by_size: Vec<f64> =
            builds.iter().map(|(features, _)| crate::prior::seconds_by_size(features.source_bytes)).collect();
        let (now, before) = (correlation(&estimated, &taken), correlation(&by_size, &taken));
        assert!(now >= 0.8 && now > before, "rank correlation {now}, by size {before}");
        let ratio = estimated.iter().sum::<f64>() / taken.iter().sum::<f64>();
        assert!((0.5..=2.0).contains(&ratio), "estimated total / recorded total = {ratio}");
    }

    #[test]
    fn odd_sizes_give_finite_estimates() {
        for (source_bytes, binary_bytes) in [(0, None), (0, Some(1)), (u64::MAX, Some(u64::MAX)), (1, None)] {
            let seconds =
                Features { source_bytes, binary_bytes, dependencies: 0, traits: Vec::new() }.seconds();
            assert!(
                seconds.is_finite() && seconds >= BASE_SECONDS,
                "{source_bytes} {binary_bytes:?}: {seconds}"
            );
        }
    }
}
