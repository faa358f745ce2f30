//! Composes dpkg's database for stacked packages, and finds the packages that cannot be stacked.

use super::facts::Facts;
use super::{ADMIN, configure, triggers};
use crate::layering::merged_usr;
use crate::{Composition, Part, Stack};
use kilnyard_model::order::InputText;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Permissions, user and group of a folder.
type Attributes = (u32, u32, u32);

/// See [`crate::Layering::compose`].
pub(super) fn compose(below: &Stack, packages: &[Part]) -> io::Result<Composition> {
    let mut composition = Composition::default();
    let mut layered: Vec<(usize, Facts)> = Vec::new();
    let system = System::read(below)?;
    let mut files: HashSet<String> = HashSet::new();
    let mut folders: BTreeMap<String, Attributes> = BTreeMap::new();
    for (place, part) in packages.iter().enumerate() {
        let checked = Facts::of_part(part).and_then(|facts| {
            if let Some(reason) = facts.obstacle() {
                return Err(reason.clone());
            }
            system.check(&facts, &files, &folders)?;
            Ok(facts)
        });
        match checked {
            Ok(facts) => {
                for entry in &facts.entries {
                    let path = merged_usr(&entry.path);
                    match entry.folder {
                        Some(attributes) => drop(folders.insert(path, attributes)),
                        None => drop(files.insert(path)),
                    }
                }
                layered.push((place, facts));
            }
            Err(reason) => composition.by_manager.push((place, reason)),
        }
    }
    let triggers = loop {
        let parts: Vec<(usize, &Facts)> = layered.iter().map(|(place, facts)| (*place, facts)).collect();
        match triggers::of(below, &parts)? {
            Ok(triggers) => break triggers,
            Err((place, reason)) => {
                layered.retain(|(other, _)| *other != place);
                composition.by_manager.push((place, reason));
            }
        }
    };
    // Existing folders keep their owner and permissions, even if packages say otherwise.
    let mut kept = BTreeMap::new();
    for entry in layered.iter().flat_map(|(_, facts)| &facts.entries) {
        let Some(attributes) = entry.folder else { continue };
        let path = merged_usr(&entry.path);
        match system.there(&path)? {
            Some(There::Folder(there)) if there != attributes && !path.is_empty() => {
                kept.insert(path, there);
            }
            _ => {}
        }
    }
    let kept: String = kept
        .into_iter()
        .map(|(path, (mode, user, group))| format!("{mode:o} {user}:{group} {path}\n"))
        .collect();
    if !layered.is_empty() {
        let text = |name: &str, text: String| InputText { name: format!("layers.{name}"), text };
        composition.texts = vec![
            text("status", layered.iter().map(|(_, facts)| facts.status()).collect()),
            text("unincorporated", triggers.unincorporated),
            text("file-triggers", triggers.file),
            text("triggers", triggers.explicit),
            text("folders", kept),
        ];
        composition.commands = vec![configure()];
    }
    composition.layered = layered.into_iter().map(|(place, _)| place).collect();
    Ok(composition)
}

/// The kind of file at a path in the stack below.
#[derive(Clone, Copy, Debug)]
enum There {
    Folder(Attributes),
    Other,
}

/// The system that is installed in the stack below.
struct System<'a> {
    below: &'a Stack<'a>,
    /// Cached lookups: packages have most folders in common.
    seen: RefCell<HashMap<String, Option<There>>>,
    /// Names of all packages in the database.
    names: HashSet<String>,
    /// Paths of installed packages, without a leading slash, with `/bin`, `/lib` and the like moved below `/usr`.
    paths: HashSet<String>,
    /// Paths with special treatment: diversions, and owners set by an administrator.
    special: HashSet<String>,
}

impl<'a> System<'a> {
    fn read(below: &'a Stack<'a>) -> io::Result<System<'a>> {
        let read =
            |name: &str| Ok::<_, io::Error>(below.read(&format!("{ADMIN}/{name}"))?.unwrap_or_default());
        let names = states(&read("status")?).into_keys().collect();
        let mut paths = HashSet::new();
        for name in below.names(&format!("{ADMIN}/info"))?.iter().filter(|name| name.ends_with(".list")) {
            let list = read(&format!("info/{name}"))?;
            paths.extend(list.lines().map(|path| merged_usr(path.trim_start_matches('/'))));
        }
        let path_of = |path: &str| merged_usr(path.trim_start_matches('/'));
        // `diversions` has three lines per entry: from, to, package; `statoverride` has user, group, mode and path
        // on one line.
        let mut special: HashSet<String> =
            read("diversions")?.lines().filter(|line| line.starts_with('/')).map(path_of).collect();
        special.extend(read("statoverride")?.lines().filter_map(|line| line.split(' ').nth(3)).map(path_of));
        Ok(System { below, seen: RefCell::default(), names, paths, special })
    }

    fn there(&self, path: &str) -> io::Result<Option<There>> {
        if let Some(known) = self.seen.borrow().get(path) {
            return Ok(*known);
        }
        let there = match self.below.find(path)? {
            Some((_, metadata)) if metadata.is_dir() => {
                let attributes = self.below.attributes(&metadata);
                Some(There::Folder(
                    attributes.ok_or_else(|| io::Error::other(format!("/{path} has a foreign owner")))?,
                ))
            }
            Some(_) => Some(There::Other),
            None => None,
        };
        self.seen.borrow_mut().insert(path.to_owned(), there);
        Ok(there)
    }

    /// Fails with the reason why a package cannot be a layer above this system and the other packages.
    fn check(
        &self,
        facts: &Facts,
        files: &HashSet<String>,
        folders: &BTreeMap<String, Attributes>,
    ) -> Result<(), String> {
        if self.names.contains(facts.field("Package")) {
            return Err("another version of it, or the remains of one, is already installed".to_owned());
        }
        for entry in &facts.entries {
            let path = merged_usr(&entry.path);
            if self.special.contains(&path) {
                return Err(format!("/{path} is diverted or has an overridden owner"));
            }
            match entry.folder {
                None if self.paths.contains(&path)
                    || files.contains(&path)
                    || folders.contains_key(&path) =>
                {
                    return Err(format!("another package also has /{path}"));
                }
                Some(_) if files.contains(&path) => {
                    return Err(format!("/{path} is not a folder in another package"));
                }
                Some(attributes) => match self.there(&path).map_err(|error| error.to_string())? {
                    Some(There::Other) if !is_of_programs(&entry.path) => {
                        return Err(format!("/{path} exists and is not a folder"));
                    }
                    None if folders.get(&path).is_some_and(|others| *others != attributes) => {
                        return Err(format!("another package has a different owner or mode for /{path}"));
                    }
                    _ => {}
                },
                None if entry.is_link => {
                    if let Some(There::Folder(_)) = self.there(&path).map_err(|error| error.to_string())? {
                        return Err(format!("/{path} is an existing folder"));
                    }
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Whether a path is one of the top-level folders that are links into `/usr`.
fn is_of_programs(path: &str) -> bool {
    !path.contains('/') && merged_usr(path) != path
}

/// Package names and states from dpkg's status file.
pub(super) fn states(status: &str) -> HashMap<String, String> {
    let mut states = HashMap::new();
    let mut name = None;
    for line in status.lines() {
        if let Some(package) = line.strip_prefix("Package: ") {
            name = Some(package.trim().to_owned());
        } else if let (Some(state), Some(name)) = (line.strip_prefix("Status: "), &name) {
            states.insert(name.clone(), state.trim().to_owned());
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_model::order::Dependency;
    use std::path::{Path, PathBuf};

    /// A system with one layer and one installed package, `there`.
    fn system() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let stanza = "Package: there\nStatus: install ok installed\nVersion: 1\n\nPackage: gone\nStatus: deinstall ok config-files\n";
        write("var/lib/dpkg/status", stanza);
        write("var/lib/dpkg/info/there.list", "/.\n/usr\n/usr/bin\n/bin/tool\n");
        write("var/lib/dpkg/triggers/File", "/usr/share/man there\n");
        write("var/lib/dpkg/triggers/ldconfig", "there/noawait\n");
        write("var/lib/dpkg/triggers/Unincorp", "");
        write("var/lib/dpkg/diversions", "/usr/bin/moved\n/usr/bin/moved.real\nthere\n");
        write("usr/bin/tool", "");
        write("usr/share/man/x", "");
        std::os::unix::fs::symlink("share", folder.path().join("usr/linked")).unwrap();
        folder
    }

    /// A package with these files, and folders (which end with a slash).
    fn description(name: &str, paths: &[&str], triggers: &str, conffiles: &[&str]) -> String {
        let entries: Vec<serde_json::Value> = paths
            .iter()
            .map(|path| match path.strip_suffix('/') {
                Some(path) => serde_json::json!({"path": path, "folder": [0o755, 0, 0]}),
                None => serde_json::json!({"path": path, "folder": null}),
            })
            .collect();
        serde_json::json!({
            "format": 1, "reason": null, "untried": null, "entries": entries, "conffiles": conffiles,
            "triggers": triggers, "control": format!("Package: {name}\nVersion: 2\n"),
        })
        .to_string()
    }

    fn composed(system: &Path, descriptions: &[String]) -> Composition {
        let package = |description: &String| Dependency {
            name: Facts::parse(description)
                .map_or_else(|_| "x".to_owned(), |facts| facts.field("Package").to_owned()),
            version: "2".to_owned(),
            file: String::new(),
            sha256: String::new(),
            is_signed: false,
        };
        let packages: Vec<Dependency> = descriptions.iter().map(package).collect();
        let parts: Vec<Part> = packages
            .iter()
            .zip(descriptions)
            .map(|(package, description)| Part { package, description })
            .collect();
        let layers = [PathBuf::from(system)];
        let inside = |_| Some(0);
        let below = Stack { layers: &layers, user_inside: &inside, group_inside: &inside };
        compose(&below, &parts).unwrap()
    }

    fn text<'a>(composition: &'a Composition, name: &str) -> &'a str {
        let name = format!("layers.{name}");
        &composition.texts.iter().find(|text| text.name == name).unwrap().text
    }

    #[test]
    fn the_database_equals_the_result_of_unpacking() {
        let system = system();
        let one = description(
            "one",
            &["", "usr/", "usr/share/", "usr/share/man/", "usr/share/man/one.1", "etc/", "etc/one"],
            "activate-noawait ldconfig\ninterest-noawait one-trigger # a word\n",
            &["etc/one"],
        );
        let two = description(
            "two",
            &["usr/", "usr/lib/", "usr/lib/two"],
            "activate one-trigger\ninterest /etc\n",
            &[],
        );
        let composition = composed(system.path(), &[one, two]);
        assert_eq!((&composition.layered[..], composition.by_manager.len()), (&[0, 1][..], 0));
        assert_eq!(
            text(&composition, "status"),
            "Package: one\nVersion: 2\nStatus: install ok unpacked\nConffiles:\n /etc/one newconffile\n\n\
             Package: two\nVersion: 2\nStatus: install ok unpacked\n\n"
        );
        assert_eq!(text(&composition, "file-triggers"), "/etc two\n");
        assert_eq!(text(&composition, "triggers"), "one-trigger one/noawait\n");
        // A package is not listed if it activates a trigger without waiting, or activates one that needs no
        // waiting.
        assert_eq!(
            text(&composition, "unincorporated"),
            "/etc one\n/usr/share/man one\nldconfig -\none-trigger -\n"
        );
    }

    #[test]
    fn paths_that_dpkg_treats_specially_are_left_to_it() {
        let system = system();
        for (paths, triggers, reason) in [
            (&["usr/bin/tool"][..], "", "another package also has /usr/bin/tool"),
            (&["bin/", "bin/tool"], "", "another package also has /usr/bin/tool"),
            (&["usr/bin/moved"], "", "diverted"),
            (&["usr/linked/", "usr/linked/x"], "", "is not a folder"),
            (&["usr/share/x"], "interest a b", "its triggers"),
            (&["usr/share/x"], "frobnicate a", "its triggers"),
        ] {
            let composition = composed(system.path(), &[description("new", paths, triggers, &[])]);
            let (place, said) = composition.by_manager.first().unwrap();
            assert!(*place == 0 && said.contains(reason), "{said}");
            assert!(composition.layered.is_empty() && composition.commands.is_empty());
        }
        for name in ["there", "gone"] {
            let composition = composed(system.path(), &[description(name, &["usr/share/x"], "", &[])]);
            assert!(composition.by_manager[0].1.contains("is already installed"), "{composition:?}");
        }
        let twice = ["one", "two"].map(|name| description(name, &["usr/share/x"], "", &[]));
        let composition = composed(system.path(), &twice);
        assert_eq!((&composition.layered[..], composition.by_manager[0].0), (&[0][..], 1));
    }

    #[test]
    fn packages_with_an_invalid_description_are_left_to_the_package_manager() {
        let system = system();
        let composition = composed(system.path(), &["{}".to_owned(), String::new()]);
        assert_eq!(composition.by_manager.len(), 2);
    }
}
