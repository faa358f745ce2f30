//! Benchmarks our pkgsrc patterns and scan files against those of the crate `pkgsrc`, for docs/pkgsrc.md.
//!
//!     cargo run --release -p kilnyard-ecosystem --example pkgsrc_crate -- pscan.zst

use kilnyard_ecosystem::pkgsrc::pattern::{PackageName, Pattern};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How many times each implementation is timed, alternating; the best time counts.
const ROUNDS: u32 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: pkgsrc_crate PSCAN.zst")?;
    let text = zstd::decode_all(std::fs::File::open(path)?)?;
    let file = ScanFile::parse(&text)?;
    let mut patterns: Vec<&str> = file
        .stanzas
        .iter()
        .flat_map(|stanza| stanza.all_depends.split_ascii_whitespace())
        .filter_map(|word| Some(word.rsplit_once(':')?.0))
        .collect();
    patterns.sort_unstable();
    patterns.dedup();
    // Candidates by package name, as a resolver keeps them, and each pattern with the candidates that it may match.
    let mut by_base: HashMap<&str, Vec<PackageName>> = HashMap::new();
    for stanza in &file.stanzas {
        let name = PackageName::new(stanza.name);
        by_base.entry(stanza.name.rsplit_once('-').map_or("", |(base, _)| base)).or_default().push(name);
    }
    let base = |pattern: &str| {
        pattern.find(['<', '>', '[', '{']).map(|at| pattern[..at].trim_end_matches('-').to_owned())
    };
    let pairs: Vec<(&str, Vec<PackageName>)> = patterns
        .iter()
        .filter_map(|pattern| Some((*pattern, by_base.get(&*base(pattern)?)?.clone())))
        .collect();
    let compared: usize = pairs.iter().map(|(_, names)| names.len()).sum();
    println!("{} packages, {} patterns, {compared} comparisons", file.stanzas.len(), patterns.len());

    let mut best = [Duration::MAX; 6];
    for _ in 0..ROUNDS {
        let ours: Vec<Pattern> =
            timed(&mut best[0], || pairs.iter().map(|(p, _)| Pattern::parse(p).unwrap()).collect());
        let theirs: Vec<pkgsrc::Pattern> =
            timed(&mut best[1], || pairs.iter().map(|(p, _)| pkgsrc::Pattern::new(p).unwrap()).collect());
        let matches_ours = timed(&mut best[2], || {
            (0..100).map(|_| count(&pairs, &ours, |pattern, name| pattern.matches(name))).sum::<usize>()
        });
        let matches_theirs = timed(&mut best[3], || {
            (0..100)
                .map(|_| count(&pairs, &theirs, |pattern, name| pattern.matches(name.text())))
                .sum::<usize>()
        });
        println!("{matches_ours} and {matches_theirs} matches");
        timed(&mut best[4], || black_box(ScanFile::parse(&text).map(|file| file.stanzas.len())))?;
        timed(&mut best[5], || {
            black_box(pkgsrc::ScanIndex::from_reader(&text[..]).filter(Result::is_ok).count())
        });
    }
    for (what, ours, theirs) in
        [("patterns", 0, 1), ("all comparisons, 100 times", 2, 3), ("scan file", 4, 5)]
    {
        println!("{what}: ours {:?}, theirs {:?}", best[ours], best[theirs]);
    }
    Ok(())
}

fn timed<T>(best: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    *best = begun.elapsed().min(*best);
    done
}

fn count<P>(
    pairs: &[(&str, Vec<PackageName>)],
    patterns: &[P],
    matches: impl Fn(&P, &PackageName) -> bool,
) -> usize {
    let of = |((_, names), pattern): (&(&str, Vec<PackageName>), &P)| {
        names.iter().filter(|name| matches(pattern, name)).count()
    };
    pairs.iter().zip(patterns).map(of).sum()
}
