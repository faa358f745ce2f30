//! Debian's version order, compared with a second implementation of the rules.

use crate::text;
use kilnyard_ecosystem::debian::version::{compare, is_valid, without_epoch};
use std::cmp::Ordering;

/// Three versions, one per line: the order is total, and agrees with a slow comparison by keys.
pub fn version(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let versions: [&str; 3] = std::array::from_fn(|_| lines.next().unwrap_or(""));
    for left in versions {
        assert_eq!(compare(left, left), Ordering::Equal, "{left:?}");
        assert!(left.ends_with(without_epoch(left)));
        for right in versions {
            let order = compare(left, right);
            assert_eq!(order, compare(right, left).reverse(), "{left:?} {right:?}");
            assert_eq!(order, slow(left, right), "{left:?} {right:?}");
            for third in versions {
                if order.is_le() && compare(right, third).is_le() {
                    assert!(compare(left, third).is_le(), "{left:?} {right:?} {third:?}");
                }
            }
        }
        if is_valid(left) {
            // A version that Kilnyard derives is valid, and later; a version for tests is earlier.
            for (suffix, order) in [("+bk1", Ordering::Greater), ("~1", Ordering::Less)] {
                let other = format!("{left}{suffix}");
                assert!(is_valid(&other), "{other:?}");
                assert_eq!(compare(&other, left), order, "{other:?}");
            }
        }
    }
}

/// Alternating runs as keys that compare as lists: the weights of the non-digits with an end mark, then the number.
type Runs = Vec<(Vec<u32>, (usize, String))>;

fn slow(left: &str, right: &str) -> Ordering {
    let key = |version: &str| {
        let (epoch, rest) = match version.split_once(':') {
            Some((epoch, rest)) if epoch.chars().all(|c| c.is_ascii_digit()) => (epoch, rest),
            _ => ("", version),
        };
        let (upstream, revision) = match rest.rfind('-') {
            Some(dash) => (&rest[..dash], &rest[dash + 1..]),
            None => (rest, ""),
        };
        (number(epoch), runs(upstream), runs(revision))
    };
    let (left, right) = (key(left), key(right));
    left.0
        .cmp(&right.0)
        .then_with(|| compare_runs(left.1, right.1))
        .then_with(|| compare_runs(left.2, right.2))
}

fn number(digits: &str) -> (usize, String) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits.to_owned())
}

fn runs(part: &str) -> Runs {
    let mut runs = Vec::new();
    let mut rest = part;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let weights = text.bytes().map(|byte| match byte {
            b'~' => 0,
            b'A'..=b'Z' | b'a'..=b'z' => 1000 + u32::from(byte),
            _ => 2000 + u32::from(byte),
        });
        // The end sorts after a tilde and before everything else.
        runs.push((weights.chain([1]).collect(), number(&after[..end])));
        rest = &after[end..];
    }
    runs
}

fn compare_runs(mut left: Runs, mut right: Runs) -> Ordering {
    let len = left.len().max(right.len());
    let nothing = (vec![1], number(""));
    left.resize(len, nothing.clone());
    right.resize(len, nothing);
    left.cmp(&right)
}
