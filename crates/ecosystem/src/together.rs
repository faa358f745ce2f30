//! Which outputs of a build can be installed together, for the test of their installation.

use kilnyard_model::order::Output;

/// The most groups of mutually exclusive outputs that are tested, each for itself.
const GROUPS_MAX: usize = 16;

/// Outputs that can be installed together, and what that takes.
#[derive(Debug, PartialEq)]
pub struct Group<'o, Closure> {
    /// At least one.
    pub members: Vec<&'o Output>,
    /// What was found for these members.
    pub closure: Closure,
}

/// Divides outputs into groups. `solve` finds what it takes to install some of them at once.
///
/// # Errors
/// An output cannot be installed even alone.
pub fn groups<'o, Closure, Impossible>(
    outputs: Vec<&'o Output>,
    mut solve: impl FnMut(&[&'o Output]) -> Result<Closure, Impossible>,
) -> Result<Vec<Group<'o, Closure>>, Impossible> {
    let (mut waiting, mut groups) = (outputs, Vec::new());
    while !waiting.is_empty() && groups.len() < GROUPS_MAX {
        if let Ok(closure) = solve(&waiting) {
            groups.push(Group { members: waiting, closure });
            break;
        }
        let mut members = vec![waiting[0]];
        let (mut closure, mut rest) = (solve(&members)?, Vec::new());
        for output in &waiting[1..] {
            members.push(output);
            match solve(&members) {
                Ok(larger) => closure = larger,
                Err(_) => rest.extend(members.pop()),
            }
        }
        groups.push(Group { members, closure });
        waiting = rest;
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(name: &str) -> Output {
        Output {
            name: name.to_owned(),
            version: String::new(),
            architecture: String::new(),
            file: String::new(),
            sha256: String::new(),
            size_bytes: 0,
            content: String::new(),
            description: String::new(),
            digests: Default::default(),
        }
    }

    /// The groups of outputs, of which two that begin with the same letter exclude each other, and a question mark cannot be
    /// installed.
    fn divided(names: &[&str]) -> Result<Vec<String>, ()> {
        let outputs: Vec<Output> = names.iter().map(|name| output(name)).collect();
        let found = groups(outputs.iter().collect(), |members| {
            let mut letters: Vec<char> = members.iter().filter_map(|one| one.name.chars().next()).collect();
            letters.sort_unstable();
            let is_possible = letters.windows(2).all(|pair| pair[0] != pair[1]) && !letters.contains(&'?');
            is_possible.then_some(members.len()).ok_or(())
        })?;
        let text = |group: Group<'_, usize>| {
            assert_eq!(group.closure, group.members.len());
            group.members.iter().map(|one| &*one.name).collect::<Vec<_>>().join(" ")
        };
        Ok(found.into_iter().map(text).collect())
    }

    #[test]
    fn mutually_exclusive_outputs_are_apart() {
        assert_eq!(divided(&[]).unwrap(), [""; 0]);
        assert_eq!(divided(&["a", "b", "c"]).unwrap(), ["a b c"]);
        assert_eq!(divided(&["a1", "a2", "b", "a3"]).unwrap(), ["a1 b", "a2", "a3"]);
        assert_eq!(divided(&["a", "?"]), Err(()));
        let many: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(divided(&many).unwrap().len(), GROUPS_MAX);
    }
}
