//! Debian's version order (Debian Policy 5.6.12, deb-version(7)).
//!
//! A version is `[epoch:]upstream[-revision]`. Epochs compare as numbers. The other two parts are compared by
//! alternating runs: a run of non-digits (where `~` sorts before the end of the part, and letters before everything
//! else), then a run of digits by value. Versions are compared as text, without parsing them into an owned form
//! first: an archive holds 100,000 of them, and most are never compared.

use std::cmp::Ordering;

/// Compares two versions. Any text is accepted: even an invalid version has one fixed place in the order.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left_epoch, left_rest) = split_epoch(left);
    let (right_epoch, right_rest) = split_epoch(right);
    let (left_upstream, left_revision) = split_revision(left_rest);
    let (right_upstream, right_revision) = split_revision(right_rest);
    compare_digits(left_epoch.as_bytes(), right_epoch.as_bytes())
        .then_with(|| compare_part(left_upstream.as_bytes(), right_upstream.as_bytes()))
        .then_with(|| compare_part(left_revision.as_bytes(), right_revision.as_bytes()))
}

/// The version without its epoch, as used in file names.
pub fn without_epoch(version: &str) -> &str {
    split_epoch(version).1
}

/// Whether dpkg accepts the text as a version: an optional numeric epoch, a non-empty upstream part, and only the
/// characters that Policy allows.
pub fn is_valid(version: &str) -> bool {
    let (epoch, rest) = match version.split_once(':') {
        Some((epoch, rest)) => (epoch, rest),
        None => ("0", version),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '~' | ':');
    !rest.ends_with('-')
        && !epoch.is_empty()
        && epoch.bytes().all(|b| b.is_ascii_digit())
        && rest.starts_with(|c: char| c.is_ascii_alphanumeric())
        && rest.chars().all(allowed)
}

fn split_epoch(version: &str) -> (&str, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => (epoch, rest),
        _ => ("", version),
    }
}

fn split_revision(version: &str) -> (&str, &str) {
    version.rsplit_once('-').unwrap_or((version, ""))
}

/// The weight of a byte in a run of non-digits; the end of the part and digits weigh 0.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        None => 0,
        Some(b'~') => -1,
        Some(b) if b.is_ascii_digit() => 0,
        Some(b) if b.is_ascii_alphabetic() => i32::from(*b),
        Some(b) => i32::from(*b) + 256,
    }
}

fn compare_part(mut left: &[u8], mut right: &[u8]) -> Ordering {
    while !left.is_empty() || !right.is_empty() {
        while left.first().is_some_and(|b| !b.is_ascii_digit())
            || right.first().is_some_and(|b| !b.is_ascii_digit())
        {
            let order = weight(left.first()).cmp(&weight(right.first()));
            if order != Ordering::Equal {
                return order;
            }
            left = left.get(1..).unwrap_or_default();
            right = right.get(1..).unwrap_or_default();
        }
        let (left_digits, left_rest) = split_digits(left);
        let (right_digits, right_rest) = split_digits(right);
        let order = compare_digits(left_digits, right_digits);
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Compares digit strings of any length by value.
fn compare_digits(left: &[u8], right: &[u8]) -> Ordering {
    let left = &left[left.iter().position(|b| *b != b'0').unwrap_or(left.len())..];
    let right = &right[right.iter().position(|b| *b != b'0').unwrap_or(right.len())..];
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;

    const ASCENDING: &[&str] = &[
        "1.0~~",
        "1.0~~a",
        "1.0~",
        "1.0",
        "1.0-0.1",
        "1.0-1",
        "1.0-1+b1",
        "1.0-1+b10",
        "1.0-1+bk1",
        "1.0-1+deb12u1",
        "1.0-1.1",
        "1.0-10",
        "1.0a",
        "1.0+dfsg",
        "1.0.0",
        "1.00002",
        "1.10",
        "1:0.1",
        "1:1.2.13.dfsg-1",
        "1:1.2.13.dfsg-1+bk1",
        "2:0",
    ];

    #[test]
    fn order_is_ascending() {
        for (i, left) in ASCENDING.iter().enumerate() {
            for (j, right) in ASCENDING.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} against {right}");
            }
        }
    }

    #[test]
    fn leading_zeros_and_absent_parts_are_equal() {
        assert_eq!(compare("1.002", "1.2"), Ordering::Equal);
        assert_eq!(compare("0:1", "1"), Ordering::Equal);
        assert_eq!(compare("1", "1-0"), Ordering::Equal);
    }

    #[test]
    fn dpkg_agrees() {
        if Command::new("dpkg").arg("--version").output().is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: dpkg_agrees: dpkg is not installed");
            return;
        }
        let odd = ["1.0-", "0", "1.0+", "a", "1~rc1-1", "1.0-1~bpo12+1", "00001", "1.2.3.4.5.6.7"];
        let all: Vec<&str> = ASCENDING.iter().chain(odd.iter()).copied().filter(|v| is_valid(v)).collect();
        for (i, left) in all.iter().enumerate() {
            let right = all[(i * 7 + 3) % all.len()];
            let dpkg = |op: &str| {
                Command::new("dpkg").args(["--compare-versions", left, op, right]).status().unwrap().success()
            };
            let order = compare(left, right);
            assert_eq!(dpkg("lt"), order == Ordering::Less, "{left} lt {right}");
            assert_eq!(dpkg("eq"), order == Ordering::Equal, "{left} eq {right}");
        }
    }
}
