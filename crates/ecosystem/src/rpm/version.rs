//! Versions: an epoch, a version and a release, and the ranges of them that relations name.
//!
//! Rules: rpm's `docs/man/rpm-version.7` and `rpmdsCompare` (lib/rpmds.c). A missing epoch is 0. A missing release is
//! any: `4` and `4-2` are equal if one of them is in a relation.

use std::cmp::Ordering;
use std::fmt;

/// A version of a package, or in a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evr {
    epoch: Box<str>,
    version: Box<str>,
    release: Box<str>,
}

impl Evr {
    /// From three parts; those that are missing are empty.
    pub fn new(epoch: &str, version: &str, release: &str) -> Evr {
        let epoch = epoch.trim_start_matches('0');
        Evr { epoch: epoch.into(), version: version.into(), release: release.into() }
    }

    /// From text such as `1:2.0~rc1-3.fc42`: an epoch is digits before a colon, a release is after the last hyphen.
    pub fn parse(text: &str) -> Evr {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (epoch, rest) = match text[digits..].strip_prefix(':') {
            Some(rest) => (&text[..digits], rest),
            None => ("", text),
        };
        let (version, release) = rest.rsplit_once('-').unwrap_or((rest, ""));
        Evr::new(epoch, version, release)
    }

    /// The version alone.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Which of two packages' versions is newer.
    pub fn compare(&self, other: &Evr) -> Ordering {
        let by_epoch = compare(&self.epoch, &other.epoch);
        let by_version = || compare(&self.version, &other.version);
        by_epoch.then_with(by_version).then_with(|| compare(&self.release, &other.release))
    }
}

impl fmt::Display for Evr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.epoch.is_empty() {
            write!(f, "{}:", self.epoch)?;
        }
        f.write_str(&self.version)?;
        match &*self.release {
            "" => Ok(()),
            release => write!(f, "-{release}"),
        }
    }
}

/// Compares a version with a version, or a release with a release.
fn compare(one: &str, other: &str) -> Ordering {
    rpm_version::Evr::new("", one, "").cmp(&rpm_version::Evr::new("", other, ""))
}

/// The comparisons that a range allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sense {
    /// Versions below.
    pub less: bool,
    /// The version itself.
    pub equal: bool,
    /// Versions above.
    pub greater: bool,
}

impl Sense {
    /// From the operator of a spec file.
    pub fn of_operator(operator: &str) -> Option<Sense> {
        let (less, equal, greater) = match operator {
            "<" => (true, false, false),
            "<=" | "=<" => (true, true, false),
            "=" | "==" => (false, true, false),
            ">=" | "=>" => (false, true, true),
            ">" => (false, false, true),
            _ => return None,
        };
        Some(Sense { less, equal, greater })
    }

    /// From the `flags` of an entry in a repository's metadata.
    pub fn of_flags(flags: &str) -> Option<Sense> {
        let operator = match flags {
            "LT" => "<",
            "LE" => "<=",
            "EQ" => "=",
            "GE" => ">=",
            "GT" => ">",
            _ => return None,
        };
        Sense::of_operator(operator)
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is_part, sign) in [(self.less, "<"), (self.greater, ">"), (self.equal, "=")] {
            if is_part {
                f.write_str(sign)?;
            }
        }
        Ok(())
    }
}

/// A range of versions, such as `>= 2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The comparisons.
    pub sense: Sense,
    /// What is compared with.
    pub evr: Evr,
}

impl Range {
    /// The range of one version.
    pub fn exactly(evr: Evr) -> Range {
        Range { sense: Sense { equal: true, ..Sense::default() }, evr }
    }

    /// Whether a provided range has a version that this one, of a requirement, also has.
    pub fn meets(&self, provided: &Range) -> bool {
        let (own, other) = (self.sense, provided.sense);
        if (own.less && other.less) || (own.greater && other.greater) {
            return true;
        }
        let of_version = compare(&provided.evr.epoch, &self.evr.epoch)
            .then_with(|| compare(&provided.evr.version, &self.evr.version));
        let by_release = || match (&*provided.evr.release, &*self.evr.release) {
            ("", "") => Some(Ordering::Equal),
            ("", _) | (_, "") => None,
            (provided, own) => Some(compare(provided, own)),
        };
        match if of_version == Ordering::Equal { by_release() } else { Some(of_version) } {
            Some(Ordering::Less) => own.less || other.greater,
            Some(Ordering::Equal) => own.equal && other.equal,
            Some(Ordering::Greater) => own.greater || other.less,
            // The side without a release stands for all of them.
            None if provided.evr.release.is_empty() => other.equal,
            None => own.equal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered() {
        let rising = ["1.a", "1.0~rc1", "1.0~rc1^git2", "1.0", "1.0^git2", "1.0.1", "1.10", "0:2", "1:0.1"];
        for pair in rising.windows(2) {
            assert_eq!(Evr::parse(pair[0]).compare(&Evr::parse(pair[1])), Ordering::Less, "{pair:?}");
        }
        assert_eq!(Evr::parse("0:1-2").compare(&Evr::parse("1-2")), Ordering::Equal);
        assert_eq!(Evr::parse("3:1.2-4.fc42").to_string(), "3:1.2-4.fc42");
        assert_eq!(Evr::parse("01:1").to_string(), "1:1");
    }

    #[test]
    fn ranges_meet() {
        let range = |text: &str| {
            let (operator, version) = text.split_once(' ').unwrap();
            Range { sense: Sense::of_operator(operator).unwrap(), evr: Evr::parse(version) }
        };
        for (wanted, provided, meets) in [
            (">= 2", "= 2", true),
            ("> 2", "= 2", false),
            ("= 2", "= 2-5", true),
            ("> 2", "= 2-5", false),
            ("> 2-5", "= 2", true),
            ("< 2", ">= 1", true),
            ("< 1", ">= 1", false),
            ("> 3", "< 2", false),
            ("> 3", "> 9", true),
            ("= 1:1", "= 2", false),
            ("= 2~rc1", "= 2", false),
        ] {
            assert_eq!(range(wanted).meets(&range(provided)), meets, "{wanted} by {provided}");
        }
    }
}
