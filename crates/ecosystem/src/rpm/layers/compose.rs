//! Finds the packages whose layers can be stacked, and what is still to be done over the stack.

use super::facts::{Facts, FileTrigger, Triggers, above};
use super::{BaseFacts, REGISTER, by_shell};
use crate::layering::merged_usr;
use crate::{Composition, Installed, Part, Stack};
use kilnyard_model::order::InputText;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Permissions, user and group of a folder.
type Attributes = (u32, u32, u32);

/// Those of a folder that no package owns.
const IMPLIED: Attributes = (0o755, 0, 0);

/// See [`crate::Layering::compose`].
pub(super) fn compose(
    base: &BaseFacts,
    below: &Stack,
    installed: Installed,
    packages: &[Part],
) -> io::Result<Composition> {
    let mut composition = Composition::default();
    let facts: Vec<Result<Facts, String>> = packages.iter().map(Facts::of_part).collect();
    let mut system = System::new(base, below, installed)?;
    // Two that replace each other are for rpm, which sees both.
    system.replaced.extend(facts.iter().flatten().flat_map(|facts| facts.obsoletes.iter().cloned()));
    // Those that rpm installs later have files, too.
    let mut count: HashMap<String, usize> = HashMap::new();
    for facts in facts.iter().flatten() {
        for entry in facts.entries.iter().filter(|entry| entry.folder.is_none()) {
            *count.entry(system.place(&entry.path)).or_default() += 1;
        }
    }
    let mut layered: Vec<&Facts> = Vec::new();
    let mut owned: BTreeMap<String, u32> = BTreeMap::new();
    for (place, facts) in facts.iter().enumerate() {
        let checked = match facts {
            Ok(Facts { reason: Some(reason), .. }) => Err(reason.clone()),
            Ok(facts) => system.check(facts, &count, &owned).map(|()| facts),
            Err(error) => Err(error.clone()),
        };
        match checked {
            Ok(facts) => {
                let folders = facts.entries.iter().filter_map(|entry| Some((&entry.path, entry.folder?)));
                owned.extend(folders.map(|(path, mode)| (system.place(path), mode)));
                composition.layered.push(place);
                layered.push(facts);
            }
            Err(reason) => composition.by_manager.push((place, reason)),
        }
    }
    if layered.is_empty() {
        return Ok(composition);
    }
    let runs_ldconfig = layered.iter().any(|facts| facts.runs_ldconfig || system.sets_off_ldconfig(facts));
    let names = match composition.by_manager.is_empty() {
        true => layered.iter().map(|facts| format!("{}\n", facts.name)).collect(),
        false => String::new(),
    };
    let text = |name: &str, text: String| InputText { name: format!("layers.{name}"), text };
    composition.texts = vec![
        text("folders", folders(&system, &layered, &owned)?),
        text("ldconfig", if runs_ldconfig { "ldconfig\n".to_owned() } else { String::new() }),
        text("names", names),
    ];
    composition.commands = vec![by_shell(REGISTER)];
    Ok(composition)
}

/// The folders that get other permissions than the uppermost layer gives them: a package that has files in a folder of another
/// one, or of the system, leaves it as it is.
fn folders(system: &System<'_>, layered: &[&Facts], owned: &BTreeMap<String, u32>) -> io::Result<String> {
    let mut uppermost: BTreeMap<String, Attributes> = BTreeMap::new();
    // The first one is topmost.
    for facts in layered {
        let own: HashMap<String, u32> = facts
            .entries
            .iter()
            .filter_map(|entry| Some((system.place(&entry.path), entry.folder?)))
            .collect();
        for (path, mode) in &own {
            uppermost.entry(path.clone()).or_insert((*mode, 0, 0));
        }
        for entry in &facts.entries {
            for folder in above(&system.place(&entry.path)).filter(|folder| !own.contains_key(*folder)) {
                if !uppermost.contains_key(folder) {
                    uppermost.insert(folder.to_owned(), IMPLIED);
                }
            }
        }
    }
    let mut text = String::new();
    for (path, there) in uppermost {
        let wanted = match (owned.get(&path), system.there(&path)?) {
            (Some(mode), _) => (*mode, 0, 0),
            (None, There::Folder(attributes, _)) => attributes,
            (None, There::Nothing | There::Other) => IMPLIED,
        };
        if wanted != there {
            let (mode, user, group) = wanted;
            text.push_str(&format!("{mode:o} {user}:{group} {path}\n"));
        }
    }
    Ok(text)
}

/// What is at a path in the stack below.
#[derive(Clone, Debug)]
enum There {
    Nothing,
    /// A folder, with the names in it.
    Folder(Attributes, Rc<BTreeSet<String>>),
    Other,
}

/// The system that is installed in the stack below.
struct System<'a> {
    below: &'a Stack<'a>,
    /// Cached lookups: packages have most folders in common.
    seen: RefCell<HashMap<String, There>>,
    /// The folders at the top that are links to those of the same name in `/usr`.
    links: HashSet<&'static str>,
    names: BTreeSet<String>,
    triggers: Triggers,
    /// Names of what packages of this round replace.
    replaced: HashSet<String>,
}

impl<'a> System<'a> {
    fn new(base: &BaseFacts, below: &'a Stack<'a>, installed: Installed) -> io::Result<System<'a>> {
        let BaseFacts { mut names, mut triggers } = base.clone();
        for description in installed().map_err(io::Error::other)? {
            let facts = Facts::parse(&description).map_err(io::Error::other)?;
            names.insert(facts.name);
            triggers.add(facts.triggers);
        }
        let mut links = HashSet::new();
        for top in crate::layering::OF_PROGRAMS {
            if let Some((found, metadata)) = below.find(top)?
                && metadata.is_symlink()
            {
                let target = fs_err::read_link(found)?;
                if target.strip_prefix("/").unwrap_or(&target) == Path::new("usr").join(top) {
                    links.insert(top);
                }
            }
        }
        let (seen, replaced) = Default::default();
        Ok(System { below, seen, links, names, triggers, replaced })
    }

    /// Where a path of a package is found.
    fn place(&self, path: &str) -> String {
        let top = path.split('/').next().unwrap_or_default();
        if self.links.contains(top) { merged_usr(path) } else { path.to_owned() }
    }

    fn there(&self, path: &str) -> io::Result<There> {
        if let Some(known) = self.seen.borrow().get(path) {
            return Ok(known.clone());
        }
        let there = match self.below.find(path)? {
            Some((_, metadata)) if metadata.is_dir() => {
                let attributes = self.below.attributes(&metadata);
                let attributes =
                    attributes.ok_or_else(|| io::Error::other(format!("/{path} has a foreign owner")))?;
                There::Folder(attributes, Rc::new(self.below.names(path)?))
            }
            Some(_) => There::Other,
            None => There::Nothing,
        };
        self.seen.borrow_mut().insert(path.to_owned(), there.clone());
        Ok(there)
    }

    /// Fails with the reason why a package cannot be a layer above this system and the other packages. `count` has the files of all
    /// packages, `owned` the folders of those that can be layers.
    fn check(
        &self,
        facts: &Facts,
        count: &HashMap<String, usize>,
        owned: &BTreeMap<String, u32>,
    ) -> Result<(), String> {
        if self.names.contains(&facts.name) {
            return Err("another version of it is installed".to_owned());
        }
        if let Some(name) = facts.obsoletes.iter().find(|name| self.names.contains(*name)) {
            return Err(format!("it replaces {name}, which is installed"));
        }
        if self.replaced.contains(&facts.name) {
            return Err("another package replaces it".to_owned());
        }
        if self.triggers.packages.contains(&facts.name) {
            return Err("an installed package has a trigger for it".to_owned());
        }
        if let Some((path, trigger)) = self.set_off(facts).find(|(_, trigger)| !trigger.is_ldconfig) {
            return Err(format!("it sets off the file trigger of {} for {path}", trigger.owner));
        }
        for entry in &facts.entries {
            let path = self.place(&entry.path);
            self.check_path(&path, entry.folder, count, owned)?;
        }
        Ok(())
    }

    fn check_path(
        &self,
        path: &str,
        folder: Option<u32>,
        count: &HashMap<String, usize>,
        owned: &BTreeMap<String, u32>,
    ) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let is_of_others = count.get(path).copied().unwrap_or_default();
        if is_of_others > usize::from(folder.is_none()) {
            return Err(format!("another package also has /{path}"));
        }
        for folder in above(path) {
            if matches!(self.there(folder).map_err(failed)?, There::Other) {
                return Err(format!("/{folder} exists and is not a folder"));
            }
            if count.contains_key(folder) {
                return Err(format!("/{folder} is not a folder in another package"));
            }
        }
        match folder {
            Some(mode) => match self.there(path).map_err(failed)? {
                // A link in the place of a folder that packages still have.
                There::Other if self.links.contains(path) => Ok(()),
                There::Other => Err(format!("/{path} exists and is not a folder")),
                _ if owned.get(path).is_some_and(|others| *others != mode) => {
                    Err(format!("another package has a different mode for /{path}"))
                }
                There::Folder(..) | There::Nothing => Ok(()),
            },
            None => {
                if owned.contains_key(path) {
                    return Err(format!("/{path} is a folder in another package"));
                }
                let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
                match self.there(parent).map_err(failed)? {
                    There::Folder(_, names) if names.contains(name) => Err(format!("/{path} exists already")),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The file triggers that a package sets off, with the first path each.
    fn set_off<'f>(&'f self, facts: &'f Facts) -> impl Iterator<Item = (String, &'f FileTrigger)> {
        self.triggers.files.iter().filter_map(|trigger| {
            // rpm compares all files of the header (`rpmfilesFindPrefix`).
            let paths = facts.entries.iter().map(|entry| &entry.path).chain(&facts.ghosts);
            let first =
                paths.map(|path| format!("/{path}")).find(|path| path.starts_with(&trigger.prefix))?;
            Some((first, trigger))
        })
    }

    fn sets_off_ldconfig(&self, facts: &Facts) -> bool {
        self.set_off(facts).any(|(_, trigger)| trigger.is_ldconfig)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpm::layers::facts::LayerPath;
    use kilnyard_model::order::Dependency;
    use std::path::PathBuf;

    /// A system with one layer: folders, a file, and a folder that is a link.
    fn system() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["usr/lib", "usr/share/open", "etc"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("etc/there"), "").unwrap();
        for (name, target) in [("lib", "usr/lib"), ("sbin", "elsewhere"), ("usr/linked", "share")] {
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(folder.path().join("usr/share/open"), mode).unwrap();
        folder
    }

    /// A package with these files, and folders (which end with a slash).
    fn package(name: &str, paths: &[&str]) -> Facts {
        let entry = |path: &&str| match path.strip_suffix('/') {
            Some(folder) => LayerPath { path: folder.to_owned(), folder: Some(0o755) },
            None => LayerPath { path: (*path).to_owned(), folder: None },
        };
        Facts::plain(name, paths.iter().map(entry).collect())
    }

    fn base() -> BaseFacts {
        let trigger = |prefix: &str, is_ldconfig| FileTrigger {
            prefix: prefix.to_owned(),
            is_ldconfig,
            owner: "base".to_owned(),
        };
        BaseFacts {
            names: ["base", "old"].map(str::to_owned).into(),
            triggers: Triggers {
                packages: ["watched".to_owned()].into(),
                files: [trigger("/usr/lib", true), trigger("/usr/share/info", false)].into(),
            },
        }
    }

    fn composed(packages: &[Facts], installed: &[Facts]) -> Composition {
        let system = system();
        let descriptions: Vec<String> =
            packages.iter().map(|facts| serde_json::to_string(facts).unwrap()).collect();
        let dependency = |facts: &Facts| Dependency {
            name: facts.name.clone(),
            version: "1-1".to_owned(),
            file: String::new(),
            sha256: String::new(),
            is_signed: false,
        };
        let dependencies: Vec<Dependency> = packages.iter().map(dependency).collect();
        let parts: Vec<Part> = dependencies
            .iter()
            .zip(&descriptions)
            .map(|(package, description)| Part { package, description })
            .collect();
        let layers = [PathBuf::from(system.path())];
        let inside = |_| Some(0);
        let below = Stack { layers: &layers, user_inside: &inside, group_inside: &inside };
        let installed = || Ok(installed.iter().map(|facts| serde_json::to_string(facts).unwrap()).collect());
        compose(&base(), &below, &installed, &parts).unwrap()
    }

    fn text<'a>(composition: &'a Composition, name: &str) -> &'a str {
        let name = format!("layers.{name}");
        &composition.texts.iter().find(|text| text.name == name).unwrap().text
    }

    #[test]
    fn plain_packages_are_stacked() {
        let one = package("one", &["usr/share/one/", "usr/share/one/x", "usr/share/open/x"]);
        let two = package("two", &["usr/share/one/", "usr/share/two"]);
        let composition = composed(&[one.clone(), two.clone()], &[]);
        assert_eq!((&composition.layered[..], composition.by_manager.len()), (&[0, 1][..], 0));
        assert_eq!(text(&composition, "names"), "one\ntwo\n");
        assert_eq!(text(&composition, "ldconfig"), "");
        // The system's folder stays as it is.
        assert_eq!(text(&composition, "folders"), "1777 0:0 usr/share/open\n");
        // What is in a folder of another package leaves it as that one has it.
        let mut closed = package("closed", &["usr/share/closed/"]);
        closed.entries[0].folder = Some(0o700);
        let within = package("within", &["usr/share/closed/x"]);
        assert_eq!(
            text(&composed(&[within.clone(), closed.clone()], &[]), "folders"),
            "700 0:0 usr/share/closed\n"
        );
        assert_eq!(text(&composed(&[closed, within], &[]), "folders"), "");
        // Libraries set off ldconfig: by a trigger, through the link of a merged /usr, or by themselves.
        for (path, runs) in [("usr/lib/libx.so", false), ("usr/share/x", true)] {
            let library = Facts { runs_ldconfig: runs, ..package("library", &[path]) };
            assert_eq!(text(&composed(&[library], &[]), "ldconfig"), "ldconfig\n", "{path}");
        }
        assert_eq!(composed(&[package("moved", &["lib/", "lib/x"])], &[]).layered, [0]);
    }

    #[test]
    fn what_rpm_does_more_for_is_left_to_it() {
        let reason = |facts: Facts| composed(&[facts], &[]).by_manager[0].1.clone();
        for (name, path, why) in [
            ("old", "usr/x", "another version of it is installed"),
            ("watched", "usr/x", "has a trigger for it"),
            ("new", "usr/share/info/x", "the file trigger of base for /usr/share/info/x"),
            ("new", "etc/there", "/etc/there exists already"),
            ("new", "usr/linked/x", "/usr/linked exists and is not a folder"),
            ("new", "sbin/x", "/sbin exists and is not a folder"),
            ("new", "etc/there/x", "/etc/there exists and is not a folder"),
            ("new", "usr/linked/", "/usr/linked exists and is not a folder"),
        ] {
            let said = reason(package(name, &[path]));
            assert!(said.contains(why), "{name} {path}: {said}");
        }
        let replaces = Facts { obsoletes: vec!["old".to_owned()], ..package("new", &["usr/x"]) };
        assert!(reason(replaces).contains("it replaces old"));
        // Of packages that share a path, rpm sees all.
        let twice = composed(&[package("one", &["usr/x"]), package("two", &["usr/x"])], &[]);
        assert_eq!((twice.layered.len(), twice.by_manager.len()), (0, 2));
        let mut other = package("other", &["usr/share/one/"]);
        other.entries[0].folder = Some(0o700);
        let modes = composed(&[package("one", &["usr/share/one/"]), other], &[]);
        assert_eq!((&modes.layered[..], modes.by_manager[0].0), (&[0][..], 1));
        let below = composed(&[package("one", &["usr/x"]), package("two", &["usr/x/y"])], &[]);
        assert_eq!((&below.layered[..], below.by_manager[0].0), (&[0][..], 1));
        let replaced = Facts { obsoletes: vec!["two".to_owned()], ..package("one", &["usr/x"]) };
        assert_eq!(composed(&[replaced, package("two", &["usr/y"])], &[]).by_manager[0].0, 1);
        // Also what was installed above the base counts.
        let trigger =
            FileTrigger { prefix: "/usr/new".to_owned(), is_ldconfig: false, owner: "late".to_owned() };
        let triggers = Triggers { packages: BTreeSet::new(), files: [trigger].into() };
        let late = Facts { triggers, ..package("late", &[]) };
        let said = composed(&[package("one", &["usr/new/x"])], &[late]).by_manager[0].1.clone();
        assert!(said.contains("the file trigger of late"), "{said}");
    }

    #[test]
    fn descriptions_of_other_versions_or_packages_are_left_to_rpm() {
        let facts = package("one", &["usr/x"]);
        let description = serde_json::to_string(&facts).unwrap();
        for (name, description) in [
            ("other", description.as_str()),
            ("one", "{}"),
            ("one", ""),
            ("one", &description.replace("\"format\":2", "\"format\":0")),
        ] {
            let package = Dependency {
                name: name.to_owned(),
                version: "1-1".to_owned(),
                file: String::new(),
                sha256: String::new(),
                is_signed: false,
            };
            assert!(
                Facts::of_part(&Part { package: &package, description }).is_err(),
                "{name} {description}"
            );
        }
    }
}
