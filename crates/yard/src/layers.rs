//! Layers: folders that roots are stacked on. A layer is made once and kept, with a record of it.

use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_model::artifact::Artifact;
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Flushes, IdMap, Nesting, Sandbox, User, View, probe, remove_folder};
use kilnyard_worker::remove_or_set_aside;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::slice;

/// The builder's user and group id in a root.
const BUILDER: u32 = kilnyard_worker::BUILDER_ID;

/// The files of a layer, as its record names them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedTree {
    /// Absent for a layer made by a version that packed no trees.
    #[serde(default)]
    pub tree: Option<Artifact>,
    /// The folder of such a layer, relative to the yard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layer: Option<String>,
}

impl RecordedTree {
    /// A layer whose files are this tree.
    pub fn new(tree: Artifact) -> RecordedTree {
        RecordedTree { tree: Some(tree), layer: None }
    }

    /// Whether the layer's files exist, unpacked or as an archive.
    pub fn is_there(&self, yard: &Yard) -> bool {
        match (&self.tree, &self.layer) {
            (Some(tree), _) => yard.trees().has(tree),
            (None, Some(layer)) => yard.path(layer).is_dir(),
            (None, None) => false,
        }
    }

    /// The layer's folder, relative to the yard, if it exists now.
    fn layer(&self, yard: &Yard) -> Option<String> {
        let layer = self.tree.as_ref().map(|tree| yard.trees().layer(tree)).or_else(|| self.layer.clone());
        layer.filter(|layer| yard.path(layer).is_dir())
    }

    /// Unpacks the layer if needed. Returns none if it has to be made again. `what` names it in messages.
    pub fn unpacked(
        self,
        yard: &Yard,
        ids: &IdMap,
        what: &str,
        say: &dyn Fn(&str),
    ) -> Result<Option<RecordedTree>> {
        let trees = yard.trees();
        if let Some(layer) = self.layer(yard) {
            check_owners(yard, &layer, ids)?;
        }
        match (&self.tree, &self.layer) {
            (Some(tree), _) => match trees.ensure(slice::from_ref(tree)) {
                Ok(_) => Ok(Some(self)),
                Err(error) => {
                    say(&format!("cannot unpack the archive of the {what}, making it again: {error}"));
                    let removed = trees.archives().remove(&tree.sha256);
                    removed.context(Kind::Machine, format!("make the {what} again")).map(|()| None)
                }
            },
            (None, Some(layer)) if kilnyard_worker::find_damage(&yard.folder, layer).is_none() => {
                say(&format!("packing the {what} made by an earlier version; this happens once"));
                Ok(Some(RecordedTree::new(keep_tree(yard, ids, layer, None)?)))
            }
            _ => Ok(None),
        }
    }
}

/// Packs a folder of the yard as a tree and replaces the folder by the tree's layer. If `made_since_seconds` is
/// given, file times since then are not recorded, as they only say when the layer was made.
pub fn keep_tree(
    yard: &Yard,
    ids: &IdMap,
    folder: &str,
    made_since_seconds: Option<u64>,
) -> Result<Artifact> {
    let trees = yard.trees();
    let kept = trees.pack(folder, made_since_seconds).and_then(|tree| {
        // This machine builds on the same files that other machines get.
        trees.ensure(slice::from_ref(&tree))?;
        Ok(tree)
    });
    let tree = kept.context(Kind::Machine, format!("keep {folder}"))?;
    remove(yard, ids, folder)?;
    Ok(tree)
}

/// A suffix for names of layers whose files have other owners than their packages say. Such a layer is a
/// different one.
pub fn owners(ids: &IdMap) -> &'static str {
    if ids.has_one_id() { "-alone" } else { "" }
}

/// Fails if the layer's files belong to ids that roots no longer have: changing `/etc/subuid` changes these
/// ids.
pub fn check_owners(yard: &Yard, layer: &str, ids: &IdMap) -> Result<()> {
    match strangers(&yard.path(layer), ids) {
        None => Ok(()),
        Some((path, user, group)) => {
            let mut error = Error::new(
                Kind::Machine,
                "the layers of this yard belong to ids that its roots no longer have",
            );
            error.causes.push(format!("{path} belongs to user {user} and group {group}"));
            let ranges = |ids: &[(u32, u32, u32)]| {
                let ranges = ids.iter().map(|(_, first, count)| match count {
                    1 => first.to_string(),
                    count => format!("{first} to {}", first.saturating_add(count - 1)),
                });
                ranges.collect::<Vec<_>>().join(", ")
            };
            let (users, groups) = (ranges(&ids.users), ranges(&ids.groups));
            error.causes.push(format!("roots have users {users} and groups {groups}"));
            Err(error.hint(
                "undo the change to /etc/subuid and /etc/subgid, or to the primary group; or, as root, remove the yard's folders layers and \
                 roots: they are made again",
            ))
        }
    }
}

/// Finds a file of a base that has the wrong owner for roots with these ids. Returns its path, user and group.
fn strangers(base: &Path, ids: &IdMap) -> Option<(String, u32, u32)> {
    // With a single id, one user owns everything, and there is no separate builder.
    let builder = if ids.has_one_id() { 0 } else { BUILDER };
    [(base.to_owned(), 0), (base.join("build"), builder)].into_iter().find_map(|(path, id)| {
        let metadata = fs_err::symlink_metadata(&path).ok()?;
        let (user, group) = (metadata.uid(), metadata.gid());
        // With a single id, groups are made up: files there have the group of their folder, or the user's group
        // at the time.
        let is_own_group = ids.has_one_id() || ids.group_inside(group) == Some(id);
        let is_own = ids.user_inside(user) == Some(id) && is_own_group;
        (!is_own).then(|| (path.display().to_string(), user, group))
    })
}

/// Removes partial layers that a killed process left.
pub fn remove_parts(yard: &Yard, ids: &IdMap) -> Result<()> {
    let entries = fs_err::read_dir(yard.path("layers")).context(Kind::Machine, "list the layers")?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".part") && entry.path().is_dir() {
            remove_or_set_aside(&yard.folder, &Path::new("layers").join(name), ids);
        } else if name.ends_with(".part.tar") {
            fs_err::remove_file(entry.path()).context(Kind::Machine, "remove a partial archive")?;
        }
    }
    Ok(())
}

/// Creates the folder of a new layer.
pub fn make_layer(yard: &Yard, ids: &IdMap, layer: &str) -> Result<()> {
    let path = yard.path(layer);
    let made = fs_err::create_dir(&path).and_then(|()| probe::give_to_root(&path, ids));
    made.context(Kind::Machine, "create the folder of a layer")
}

/// A sandbox that sees the machine's own files and has the ids of a root. Layers are made in it.
pub fn machine_sandbox(yard: &Yard, ids: &IdMap, task: Task) -> Sandbox {
    Sandbox {
        folder: yard.folder.clone(),
        ids: ids.clone(),
        keeper: None,
        view: View::Machine,
        user: User::Root,
        task,
        directory: yard.folder.clone(),
        environment: vec![("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())],
        is_interactive: false,
        has_network: false,
        flushes: Flushes::Discard,
        nesting: Nesting::Refused,
    }
}

/// Unpacks an archive of the yard into a layer, with the ids of the root. Device nodes are skipped: they cannot
/// be created there and are not needed.
pub fn unpack(yard: &Yard, ids: &IdMap, tar: &Path, layer: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let readable = std::fs::Permissions::from_mode(0o644);
    fs_err::set_permissions(tar, readable).context(Kind::Machine, "open the archive")?;
    let arguments =
        ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--exclude=./dev/*", "--directory"];
    let relative = tar.strip_prefix(&yard.folder).unwrap_or(tar).display().to_string();
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    if ids.has_one_id() {
        // No other user could own files.
        arguments.insert(1, "--no-same-owner".to_owned());
    }
    arguments.extend([layer.to_owned(), "--file".to_owned(), relative]);
    let mut sandbox = machine_sandbox(yard, ids, Task::Program(arguments));
    sandbox.directory = ".".into();
    sandbox.run().map(|_| ()).context(Kind::Machine, "unpack the archive of a layer")
}

/// Removes a layer. If this is interrupted, the rest is recognizable as a partial layer.
pub fn remove(yard: &Yard, ids: &IdMap, layer: &str) -> Result<()> {
    let failed = format!("remove {layer}");
    let gone = format!("{}.part", layer.trim_end_matches(".part"));
    // An interruption must not leave part of a layer under the name of a whole one.
    if gone != layer {
        remove_folder(&yard.folder, gone.as_ref(), ids).context(Kind::Machine, &failed)?;
        fs_err::rename(yard.path(layer), yard.path(&gone)).context(Kind::Machine, &failed)?;
    }
    remove_folder(&yard.folder, gone.as_ref(), ids).context(Kind::Machine, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_root::Mapper;

    #[test]
    fn a_base_with_foreign_ids_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("build")).unwrap();
        let metadata = std::fs::metadata(folder.path()).unwrap();
        let (user, group) = (metadata.uid(), metadata.gid());
        let map = |inside, mapper| IdMap {
            users: vec![(inside, user, 1)],
            groups: vec![(inside, group, 1)],
            mapper,
        };
        assert_eq!(strangers(folder.path(), &map(0, Mapper::Alone)), None);
        let of_another_group = IdMap { groups: vec![(0, group + 1, 1)], ..map(0, Mapper::Alone) };
        assert_eq!(strangers(folder.path(), &of_another_group), None);
        let (base, build) = (folder.path().display().to_string(), folder.path().join("build"));
        // The build folder belongs to the builder, where there is one.
        assert_eq!(
            strangers(folder.path(), &map(0, Mapper::Helper)),
            Some((build.display().to_string(), user, group))
        );
        assert_eq!(strangers(folder.path(), &map(7, Mapper::Root)), Some((base.clone(), user, group)));
        std::fs::remove_dir(&build).unwrap();
        assert_eq!(strangers(folder.path(), &map(0, Mapper::Helper)), None);
        let of_another_group = IdMap { groups: vec![(0, group + 1, 1)], ..map(0, Mapper::Helper) };
        assert_eq!(strangers(folder.path(), &of_another_group), Some((base, user, group)));
    }
}
