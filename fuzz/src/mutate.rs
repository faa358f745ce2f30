//! Random mutations of seeds, for running targets without a fuzzer.

use fastrand::Rng;
use std::path::Path;
use std::{fs, io};

/// Maximum length of an input; bugs in parsers show with short ones.
const INPUT_BYTES_MAX: usize = 8192;

/// Maximum number of changes to one seed.
const CHANGES_MAX: usize = 6;

/// Byte sequences that have a meaning in the formats: separators, ends, special cases.
const TOKENS: [&[u8]; 24] = [
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\n ",
    b"\n.\n",
    b":",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b",",
    b"|",
    b"(",
    b")",
    b"../",
    b"\n%%\n",
    b"\x1b[",
    b"\xe2\x80\xae",
    b"<script>",
    b"-",
    b"~",
    b"0",
    b"99999999999999999999",
    b"\"",
];

/// The seeds of a target, sorted by file name.
pub fn seeds(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}

/// One of the seeds with a few changes, which may insert pieces of other seeds.
pub fn mutated(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut input = random.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..=CHANGES_MAX) {
        change(&mut input, seeds, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Rng) {
    let at = random.usize(0..=input.len());
    match random.u8(0..8) {
        0 if at < input.len() => input[at] ^= 1 << random.u8(0..8),
        1 if at < input.len() => input[at] = random.u8(..),
        2 => insert(input, at, TOKENS[random.usize(0..TOKENS.len())]),
        3 => drop(input.drain(piece(input, at, random))),
        4 => {
            let copied = input[piece(input, at, random)].to_vec();
            let to = random.usize(0..=input.len());
            insert(input, to, &copied);
        }
        5 => {
            let other = random.choice(seeds).cloned().unwrap_or_default();
            let from = random.usize(0..=other.len());
            insert(input, at, &other[piece(&other, from, random)]);
        }
        6 => swap_lines(input, random),
        _ => input.truncate(at),
    }
}

fn piece(input: &[u8], at: usize, random: &mut Rng) -> std::ops::Range<usize> {
    at..at + random.usize(0..=(input.len() - at).min(64))
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    drop(input.splice(at..at, bytes.iter().copied()));
}

fn swap_lines(input: &mut Vec<u8>, random: &mut Rng) {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.len() > 1 {
        let (one, other) = (random.usize(0..lines.len()), random.usize(0..lines.len()));
        lines.swap(one, other);
        *input = lines.concat();
    }
}
