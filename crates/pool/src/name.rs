//! Names of pilots. The caller chooses a pilot's name before it is started, so that it can be found again whatever the
//! manager answered.

use crate::PoolError;
use std::fmt;

/// The longest name, in bytes. Kubernetes derives names of pods from it, which have at most 63.
pub const NAME_BYTES_MAX: usize = 57;
/// The longest prefix of a pool's names, in bytes: what remains is for the other parts.
pub const PREFIX_BYTES_MAX: usize = 28;
/// The longest form or generation, in bytes.
pub const PART_BYTES_MAX: usize = 8;

/// The name of a pilot: lower-case letters, digits and `-`, at most [`NAME_BYTES_MAX`] bytes. It begins with a letter and
/// ends with a letter or digit, so it is valid as the name of a Slurm job, a Kubernetes Job and a systemd unit, and
/// needs no quotes in a shell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PilotName(String);

impl PilotName {
    /// Fails if the text is not a valid name.
    pub fn parse(text: &str) -> Result<PilotName, PoolError> {
        let is_valid = text.len() <= NAME_BYTES_MAX && is_label(text);
        match is_valid {
            true => Ok(PilotName(text.to_owned())),
            false => Err(PoolError::Name(crate::text::excerpt(text.as_bytes(), NAME_BYTES_MAX * 2))),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PilotName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Lower-case letters, digits and `-`, from a letter to a letter or digit.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-')
}

fn is_part(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty() && text.len() <= PART_BYTES_MAX && text.bytes().all(is_plain)
}

/// The names of a pool's pilots: `PREFIX-FORM-GENERATION-COUNT`.
///
/// The *prefix* belongs to one pool of one yard. The *form* identifies what pilots are started with, so that pilots of an
/// older configuration are recognized by their names alone, with any manager. The *generation* is random for each
/// process that starts pilots: a process that has forgotten its count never uses a name again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
    form: String,
    generation: String,
}

impl Names {
    /// The prefix is a name of at most [`PREFIX_BYTES_MAX`] bytes. Form and generation are lower-case letters and digits,
    /// from one to [`PART_BYTES_MAX`]. Fails if one of them is not.
    pub fn new(prefix: &str, form: &str, generation: &str) -> Result<Names, PoolError> {
        if prefix.len() > PREFIX_BYTES_MAX || !is_label(prefix) {
            return Err(PoolError::invalid("prefix", prefix, "lower-case letters, digits and -, at most 28"));
        }
        for (what, part) in [("form", form), ("generation", generation)] {
            if !is_part(part) {
                return Err(PoolError::invalid(what, part, "one to eight lower-case letters and digits"));
            }
        }
        let (prefix, form, generation) = (prefix.to_owned(), form.to_owned(), generation.to_owned());
        Ok(Names { prefix, form, generation })
    }

    /// The prefix, without the `-` that follows it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names that follow when pilots are started with something else.
    pub fn with_form(&self, form: &str) -> Result<Names, PoolError> {
        Names::new(&self.prefix, form, &self.generation)
    }

    /// The name of the pilot with this number.
    pub fn nth(&self, count: u32) -> PilotName {
        let Names { prefix, form, generation } = self;
        PilotName(format!("{prefix}-{form}-{generation}-{count}"))
    }

    /// Whether the name is one of this pool. The parts after the prefix have no `-`, so the names of a pool `lab` are
    /// never those of `lab-2`.
    pub fn own(&self, name: &PilotName) -> bool {
        self.parts(name).is_some()
    }

    /// Whether the pilot was started with something else than the next ones will be.
    pub fn is_drifted(&self, name: &PilotName) -> bool {
        self.parts(name).is_some_and(|[form, _, _]| form != self.form)
    }

    fn parts<'name>(&self, name: &'name PilotName) -> Option<[&'name str; 3]> {
        let rest = name.0.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let parts: Vec<&str> = rest.split('-').collect();
        let [form, generation, count] = parts[..] else { return None };
        let is_count = count.parse::<u32>().is_ok_and(|number| number.to_string() == count);
        (is_part(form) && is_part(generation) && is_count).then_some([form, generation, count])
    }
}

/// Which names a driver lists: those that begin with the prefix of its pool and `-`. Others are never touched.
pub(crate) fn begins_with(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_everywhere() {
        for text in ["a", "kilnyard-lab-1", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(PilotName::parse(text).unwrap().as_str(), text);
        }
        let bad = ["", "-a", "a-", "1a", "A", "a b", "a\nb", "a.b", "a/b", "ä", "--wrap=x", "a'b", "a|b"];
        for text in bad.into_iter().chain([&*"a".repeat(NAME_BYTES_MAX + 1)]) {
            assert!(PilotName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pool_knows_its_names() {
        let names = Names::new("kilnyard-lab", "f1", "g1").unwrap();
        let name = names.nth(12);
        assert_eq!(name.as_str(), "kilnyard-lab-f1-g1-12");
        assert!(names.own(&name) && !names.is_drifted(&name));
        let other = Names::new("kilnyard-lab-2", "f1", "g1").unwrap();
        assert!(!names.own(&other.nth(1)) && !other.own(&name));
        assert!(names.with_form("f2").unwrap().is_drifted(&name));
        for text in
            ["kilnyard-lab-f1-g1-x", "kilnyard-lab-f1-g1-01", "kilnyard-lab", "kilnyard-lab-f1-g1-4294967296"]
        {
            assert!(!names.own(&PilotName::parse(text).unwrap()), "{text}");
        }
        let longest = Names::new(&"p".repeat(PREFIX_BYTES_MAX), "ffffffff", "gggggggg").unwrap();
        assert!(PilotName::parse(longest.nth(u32::MAX).as_str()).is_ok());
    }

    #[test]
    fn parts_are_checked() {
        for (prefix, form, generation) in [
            ("", "f", "g"),
            ("p", "", "g"),
            ("p", "f", ""),
            ("p", "f-", "g"),
            ("p-", "f", "g"),
            ("p", "F", "g"),
        ] {
            assert!(Names::new(prefix, form, generation).is_err(), "{prefix} {form} {generation}");
        }
    }
}
