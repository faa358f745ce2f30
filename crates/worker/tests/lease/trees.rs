//! Trees that the yards of a worker share.

use crate::{Outcome, ids, open_folder};
use kilnyard_artifacts::{Folder, Storage, copy, patch};
use kilnyard_model::order::TreePatch;
use kilnyard_root::{IdMap, probe};
use kilnyard_worker::{Trees, YARDS};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder with a place for layers.
fn made(folder: PathBuf, ids: &IdMap) -> PathBuf {
    fs::create_dir_all(folder.join("layers/archives")).unwrap();
    probe::give_to_root(&folder.join("layers"), ids).unwrap();
    folder
}

/// What is in the folder of layers, without the archives.
fn layers(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("layers")).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "archives");
    names.sort_unstable();
    names
}

pub fn yards_of_a_worker_share_trees() -> Outcome {
    let (site, (ids, _)) = (open_folder(), ids());
    let site = made(site.path().to_owned(), &ids);
    let tree = site.join("layers/made");
    fs::create_dir_all(tree.join("usr")).unwrap();
    fs::write(tree.join("usr/file"), "content").unwrap();
    for part in ["", "usr", "usr/file"] {
        probe::give_to_root(&tree.join(part), &ids).unwrap();
    }
    let of_site = Trees::new(&site, &ids).of_site(Some(&site));
    let tree = [of_site.pack("layers/made", None).unwrap()];
    let layer = of_site.ensure(&tree).unwrap().remove(0);
    let nothing = Folder::open(&site.join("nothing")).unwrap();
    let yard = |name: &str| made(site.join(YARDS).join(name), &ids);
    let (two, three) = (yard("two"), yard("three"));
    // Without the site, there is nothing to take it from.
    assert!(Trees::new(&two, &ids).fetch(&tree, &[], &nothing).is_err());
    let of_two = Trees::new(&two, &ids).of_site(Some(&site));
    of_two.fetch(&tree, &[], &nothing).unwrap();
    assert!(of_two.is_whole(&tree[0]) && !of_two.has_archive(&tree[0]));
    let file = |folder: &Path| fs::metadata(folder.join(&layer).join("usr/file")).unwrap().ino();
    assert_eq!(file(&two), file(&site));
    let linked = layers(&two);
    assert_eq!(linked, [layer.replace("layers/", ""), format!("{}.manifest", layer.replace("layers/", ""))]);
    // From one that has lost a file, no other yard takes it.
    fs::remove_file(two.join(&layer).join("usr/file")).unwrap();
    fs::remove_dir_all(site.join(&layer)).unwrap();
    let of_three = Trees::new(&three, &ids).of_site(Some(&site));
    assert!(of_three.fetch(&tree, &[], &nothing).is_err());
    assert_eq!(layers(&three), Vec::<String>::new());
    // The removal of one yard's layer is no loss for another.
    of_site.ensure(&tree).unwrap();
    of_three.fetch(&tree, &[], &nothing).unwrap();
    fs::remove_dir_all(site.join(&layer)).unwrap();
    assert_eq!(fs::read_to_string(three.join(&layer).join("usr/file")).unwrap(), "content");
    Ok(())
}

pub fn trees_are_made_from_earlier_ones_by_patches() -> Outcome {
    let (folder, (ids, _)) = (open_folder(), ids());
    let yard = made(folder.path().join("yard"), &ids);
    let pack = |name: &str, text: &str| {
        let layer = format!("layers/{name}");
        fs::create_dir_all(yard.join(&layer)).unwrap();
        fs::write(yard.join(&layer).join("file"), text.repeat(10_000)).unwrap();
        for part in ["", "file"] {
            probe::give_to_root(&yard.join(&layer).join(part), &ids).unwrap();
        }
        Trees::new(&yard, &ids).pack(&layer, None).unwrap()
    };
    let (former, tree) =
        (pack("former", "a line of a file\n"), pack("latter", "a line of a file\nanother\n"));
    let archives = Trees::new(&yard, &ids).archives();
    let artifact = patch::make(&former, &tree, &archives, u64::MAX).unwrap().unwrap();
    // What the worker reads from has the patch, and not the tree.
    let store = Folder::open(&folder.path().join("store")).unwrap();
    copy(&artifact, &archives, &store, Storage::Plain).unwrap();
    let leading = TreePatch { from: former.clone(), to: tree.sha256.clone(), artifact };
    let worker = made(folder.path().join("worker"), &ids);
    let trees = Trees::new(&worker, &ids);
    let wanted = [tree.clone()];
    // Without the earlier tree, the whole one is needed.
    assert!(trees.fetch(&wanted, std::slice::from_ref(&leading), &store).is_err());
    copy(&former, &archives, &trees.archives(), Storage::Compressed).unwrap();
    assert!(trees.fetch(&wanted, &[], &store).is_err());
    // A patch that makes something else is found out, and the whole tree fetched.
    let wrong = TreePatch { artifact: former.clone(), ..leading.clone() };
    assert!(trees.fetch(&wanted, std::slice::from_ref(&wrong), &store).is_err());
    trees.fetch(&wanted, &[wrong, leading], &store).unwrap();
    let layer = trees.ensure(&wanted).unwrap().remove(0);
    assert!(fs::read_to_string(worker.join(layer).join("file")).unwrap().ends_with("another\n"));
    Ok(())
}
