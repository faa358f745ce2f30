//! Differences between two keys, as data.

use crate::order::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A changed input of a build. Its text is made for display only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The kind of input, as in the lines of keys.
    pub kind: String,
    /// The name of the input.
    pub name: String,
    /// Whether it was added, removed or changed.
    pub change: Change,
}

/// How an input of a build changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The earlier key does not have it.
    New,
    /// Only the earlier key has it.
    Gone,
    /// Its hash differs.
    Changed,
    /// Its value differs, and the value is readable.
    Value {
        /// The current value; empty if it is not set.
        is: String,
        /// The value in the earlier key; empty if it was not set.
        was: String,
    },
}

/// The kind of lines about options.
const OPTION: &str = "option";
/// A key has one line of this kind, for the base root, with a hash instead of a name.
const ROOT: &str = "root";

impl Key {
    /// The differences from an earlier key, in order; removed inputs come last.
    pub fn differences(&self, earlier: &Key) -> Vec<Difference> {
        let [now, before] = self.comparable(earlier);
        let (now, before) = (inputs(now), inputs(before));
        let mut differences = Vec::new();
        let mut add = |(kind, name): &(&str, &str), change| {
            differences.push(Difference { kind: (*kind).to_owned(), name: (*name).to_owned(), change });
        };
        for (thing, value) in &now {
            match before.get(thing) {
                Some(old) if old == value => {}
                Some(old) if matches!(thing.0, OPTION | "recipe") => {
                    add(thing, Change::Value { is: (*value).to_owned(), was: (*old).to_owned() });
                }
                Some(_) => add(thing, Change::Changed),
                // Options are in a key only if they are set.
                None if thing.0 == OPTION => {
                    add(thing, Change::Value { is: (*value).to_owned(), was: String::new() });
                }
                None => add(thing, Change::New),
            }
        }
        for thing in before.keys().filter(|thing| !now.contains_key(*thing) && thing.0 != ROOT) {
            match before.get(thing) {
                Some(old) if thing.0 == OPTION => {
                    add(thing, Change::Value { is: String::new(), was: (*old).to_owned() });
                }
                _ => add(thing, Change::Gone),
            }
        }
        differences
    }
}

/// The values of a key's lines, by kind and name.
fn inputs(lines: Vec<&str>) -> BTreeMap<(&str, &str), &str> {
    let mut inputs = BTreeMap::new();
    for line in lines {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or("");
        inputs.insert((word(), word()), word());
    }
    inputs
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { kind, name, change } = self;
        let thing = match kind.as_str() {
            "depends" => "dependency",
            "source" => "source file",
            other => other,
        };
        match change {
            Change::Value { is, was } if was.is_empty() => write!(f, "{kind} {name} was set to {is}"),
            Change::Value { is, was } if is.is_empty() => write!(f, "{kind} {name} was unset; it was {was}"),
            Change::Value { is, was } => write!(f, "{kind} {name} changed from {was} to {is}"),
            _ if kind == ROOT => f.write_str("the base root changed"),
            Change::New => write!(f, "{thing} {name} was added"),
            Change::Gone => write!(f, "{thing} {name} was removed"),
            Change::Changed => write!(f, "{thing} {name} changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_each_changed_input() {
        let key = |lines: &[&str]| Key {
            digest: String::new(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let before = key(&[
            "option checks false",
            "option old 1",
            "depends zlib1g set aa",
            "depends old archive bb",
            "root 1",
        ]);
        let now = key(&[
            "option checks true",
            "option new a b",
            "depends zlib1g set cc",
            "depends new archive bb",
            "root 2",
        ]);
        let differences = now.differences(&before);
        let words: Vec<String> = differences.iter().map(Difference::to_string).collect();
        assert_eq!(
            words,
            [
                "dependency new was added",
                "dependency zlib1g changed",
                "option checks changed from false to true",
                "option new was set to a b",
                "the base root changed",
                "dependency old was removed",
                "option old was unset; it was 1",
            ]
        );
        assert!(now.differences(&now).is_empty());
        let text = serde_json::to_string(&differences).unwrap();
        assert!(text.contains(r#"{"kind":"depends","name":"old","change":"gone"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Vec<Difference>>(&text).unwrap(), differences);
    }
}
