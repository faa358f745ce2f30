//! Finds the triggers that unpacking a set of packages would have activated (deb-triggers(5)).

use super::ADMIN;
use super::facts::Facts;
use crate::Stack;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// A package's interest in a trigger, which is a name or a path.
#[derive(Debug)]
struct Interest {
    trigger: String,
    package: String,
    /// The activating package does not wait until the trigger is processed.
    is_noawait: bool,
}

/// Additions to dpkg's trigger database.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Triggers {
    /// Lines of `triggers/File`.
    pub(super) file: String,
    /// Lines `TRIGGER PACKAGE`, for the files in `triggers` that are named after their triggers.
    pub(super) explicit: String,
    /// Lines of `triggers/Unincorp`.
    pub(super) unincorporated: String,
}

/// The triggers that adding packages to a stack would activate. The inner error is an unknown directive, with the
/// index of its package.
pub(super) fn of(
    below: &Stack,
    packages: &[(usize, &Facts)],
) -> io::Result<Result<Triggers, (usize, String)>> {
    let mut interests = known(below)?;
    let mut triggers = Triggers::default();
    // `-`, or the packages that wait for the trigger.
    let mut activated: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut activate = |trigger: &str, by: &str, is_noawait: bool| {
        let who = if is_noawait { "-" } else { by };
        activated.entry(trigger.to_owned()).or_default().insert(who.to_owned());
    };
    let mut activations = Vec::new();
    for (place, facts) in packages {
        let package = facts.info_name();
        for line in facts.triggers.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            let mut words = line.split_whitespace();
            let (directive, trigger) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(directive), Some(trigger), None) => (directive, trigger.to_owned()),
                _ => {
                    return Ok(Err((*place, format!("its triggers file has the unsupported line `{line}`"))));
                }
            };
            let is_noawait = directive.ends_with("-noawait");
            match directive {
                "interest" | "interest-await" | "interest-noawait" => {
                    let suffix = if is_noawait { "/noawait" } else { "" };
                    let lines =
                        if trigger.starts_with('/') { &mut triggers.file } else { &mut triggers.explicit };
                    lines.push_str(&format!("{trigger} {package}{suffix}\n"));
                    interests.push(Interest { trigger, package: package.clone(), is_noawait });
                }
                "activate" | "activate-await" | "activate-noawait" => {
                    activations.push((trigger, package.clone(), is_noawait));
                }
                _ => {
                    return Ok(Err((*place, format!("its triggers file has the unsupported line `{line}`"))));
                }
            }
        }
    }
    for (trigger, package, is_noawait) in activations {
        for interest in interests.iter().filter(|interest| interest.trigger == trigger) {
            activate(&trigger, &package, is_noawait || interest.is_noawait);
        }
    }
    let folders: Vec<&Interest> =
        interests.iter().filter(|interest| interest.trigger.starts_with('/')).collect();
    for (_, facts) in packages {
        let package = facts.info_name();
        for interest in &folders {
            let path = &interest.trigger[1..];
            let is_below = |entry: &str| {
                entry.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            // A package with its own interest is always configured.
            if interest.package != package && facts.entries.iter().any(|entry| is_below(&entry.path)) {
                activate(&interest.trigger, &package, interest.is_noawait);
            }
        }
    }
    for (trigger, who) in activated {
        // A waiting package takes precedence over `-`.
        let waiting: Vec<&str> = who.iter().map(String::as_str).filter(|who| *who != "-").collect();
        let who = if waiting.is_empty() { "-".to_owned() } else { waiting.join(" ") };
        triggers.unincorporated.push_str(&format!("{trigger} {who}\n"));
    }
    Ok(Ok(triggers))
}

/// The interests of the installed packages.
fn known(below: &Stack) -> io::Result<Vec<Interest>> {
    let folder = format!("{ADMIN}/triggers");
    let mut interests = Vec::new();
    let mut add = |trigger: &str, package: &str| {
        let (package, is_noawait) = match package.strip_suffix("/noawait") {
            Some(package) => (package, true),
            None => (package, false),
        };
        interests.push(Interest { trigger: trigger.to_owned(), package: package.to_owned(), is_noawait });
    };
    for name in below.names(&folder)? {
        // dpkg's own files begin with a capital letter; triggers do not.
        if name == "File" {
            for line in below.read(&format!("{folder}/File"))?.unwrap_or_default().lines() {
                if let Some((trigger, package)) = line.split_once(' ') {
                    add(trigger, package.trim());
                }
            }
        } else if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            let text = below.read(&format!("{folder}/{name}"))?.unwrap_or_default();
            text.lines().for_each(|line| add(&name, line.trim()));
        }
    }
    Ok(interests)
}
