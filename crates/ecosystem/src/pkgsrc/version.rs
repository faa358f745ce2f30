//! Versions and their order: dewey numbers, as `pkg_add` compares them (pkg_install, `lib/dewey.c`; described in
//! the pkgsrc guide, "Package versions").
//!
//! A version is a sequence of components. A run of digits is a number of any length; `.`, `_` and `pl` are 0;
//! `alpha`, `beta` and `rc` or `pre` sort before nothing at all, in this order; a letter is a 0 followed by its
//! position in the alphabet; other characters are ignored. Missing components are 0. `nbN`, the revision of the
//! package, is compared last, wherever it occurs.

use std::cmp::Ordering;

/// A parsed version.
#[derive(Clone, Debug, Default)]
pub struct Version {
    components: Vec<Component>,
    revision: Component,
}

/// A number: one that fits into 64 bits, or the digits of a larger one, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Component {
    Small(i64),
    Large(Box<str>),
}

impl Default for Component {
    fn default() -> Self {
        Component::Small(0)
    }
}

impl Ord for Component {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Component::Small(one), Component::Small(two)) => one.cmp(two),
            (Component::Small(_), Component::Large(_)) => Ordering::Less,
            (Component::Large(_), Component::Small(_)) => Ordering::Greater,
            (Component::Large(one), Component::Large(two)) => {
                one.len().cmp(&two.len()).then_with(|| one.cmp(two))
            }
        }
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Words that stand for a number. The first match counts.
const WORDS: [(&str, i64); 7] =
    [("alpha", -3), ("beta", -2), ("pre", -1), ("rc", -1), ("pl", 0), ("_", 0), (".", 0)];

/// Splits off the leading digits.
fn digits(text: &str) -> (Component, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = match digits.parse() {
        Ok(number) => Component::Small(number),
        Err(_) => {
            let significant = digits.trim_start_matches('0');
            significant.parse().map_or_else(
                |_| match significant {
                    "" => Component::Small(0),
                    _ => Component::Large(significant.into()),
                },
                Component::Small,
            )
        }
    };
    (number, rest)
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let beginning = text.get(..word.len())?;
    beginning.eq_ignore_ascii_case(word).then(|| &text[word.len()..])
}

impl Version {
    /// Parses a version; every text is one.
    pub fn parse(text: &str) -> Version {
        let mut version = Version::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first.is_ascii_digit() {
                let (number, after) = digits(rest);
                version.components.push(number);
                rest = after;
            } else if let Some((number, after)) =
                WORDS.iter().find_map(|(word, number)| Some((*number, strip_word(rest, word)?)))
            {
                version.components.push(Component::Small(number));
                rest = after;
            } else if let Some(after) = strip_word(rest, "nb") {
                (version.revision, rest) = digits(after);
            } else {
                if first.is_ascii_alphabetic() {
                    let place = first.to_ascii_lowercase() as i64 - 'a' as i64 + 1;
                    version.components.extend([Component::Small(0), Component::Small(place)]);
                }
                rest = &rest[first.len_utf8()..];
            }
        }
        version
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        const NOTHING: Component = Component::Small(0);
        let length = self.components.len().max(other.components.len());
        let component = |version: &'_ Version, index| -> Component {
            version.components.get(index).cloned().unwrap_or(NOTHING)
        };
        for index in 0..length {
            match (self.components.get(index), other.components.get(index)) {
                (Some(one), Some(two)) if one == two => {}
                (Some(Component::Small(one)), Some(Component::Small(two))) => return one.cmp(two),
                _ => match component(self, index).cmp(&component(other, index)) {
                    Ordering::Equal => {}
                    unequal => return unequal,
                },
            }
        }
        self.revision.cmp(&other.revision)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn ascending(versions: &[&str]) {
        for pair in versions.windows(2) {
            let (one, two) = (Version::parse(pair[0]), Version::parse(pair[1]));
            assert_eq!(one.cmp(&two), Ordering::Less, "{} {}", pair[0], pair[1]);
            assert_eq!(two.cmp(&one), Ordering::Greater, "{} {}", pair[1], pair[0]);
        }
    }

    #[track_caller]
    fn equal(one: &str, two: &str) {
        assert_eq!(Version::parse(one), Version::parse(two), "{one} {two}");
    }

    #[test]
    fn words_sort_in_their_order() {
        ascending(&[
            "1.0alpha",
            "1.0alpha2",
            "1.0beta",
            "1.0beta2",
            "1.0rc1",
            "1.0rc2",
            "1.0",
            "1.0nb1",
            "1.0nb2",
        ]);
        ascending(&["1.0", "1.0a", "1.0b", "1.1"]);
        equal("1.0pre1", "1.0rc1");
        equal("1.0RC1", "1.0rc1");
        equal("1.0pl1", "1.0.1");
        equal("1_0", "1.0");
        equal("1.0", "1.0.0.0");
        equal("1.0-", "1.0");
    }

    #[test]
    fn a_revision_is_compared_last_wherever_it_stands() {
        ascending(&["1.0nb99", "1.0.1", "1.0.1nb1"]);
        equal("1nb2.5", "1.5nb2");
        equal("1.0nb", "1.0nb0");
        equal("1.0nb1nb3", "1.0nb3");
    }

    #[test]
    fn numbers_have_any_length() {
        ascending(&[
            "20250101000000000000000000",
            "20250101000000000000000001",
            "20260101000000000000000000",
        ]);
        ascending(&["9223372036854775807", "9223372036854775808"]);
        equal("000000000000000000000000000001", "1");
        equal("000000000000000000000000000000", "0");
        ascending(&["1.0nb9", "1.0nb99999999999999999999999"]);
    }

    #[test]
    fn letters_of_other_scripts_count_for_nothing() {
        equal("1.0é", "1.0");
        equal("", "0");
    }

    proptest! {
        #[test]
        fn the_order_is_total(one in "[0-9a-z._]{0,8}(nb[0-9]{0,2})?", two in "[0-9a-z._]{0,8}", three in "[0-9a-z._]{0,8}") {
            let [one, two, three] = [one, two, three].map(|text| Version::parse(&text));
            prop_assert_eq!(one.cmp(&two), two.cmp(&one).reverse());
            if one <= two && two <= three {
                prop_assert!(one <= three);
            }
        }

        #[test]
        fn every_text_is_a_version(text in "\\PC{0,40}") {
            let version = Version::parse(&text);
            prop_assert_eq!(version.cmp(&version.clone()), Ordering::Equal);
        }
    }
}
