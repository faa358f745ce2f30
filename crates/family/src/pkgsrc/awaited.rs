//! Distfiles that a person has to get: which are missing here, and those that a person has given to the mirror of the site.

use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::pkgsrc::awaited::Awaited;
use kilnyard_ecosystem::pkgsrc::distinfo;
use kilnyard_mirror::Site;
use kilnyard_yard::mirror::site;
use kilnyard_yard::yard::Yard;
use std::path::{Component, Path, PathBuf};

/// What of these is not in the folder of distfiles. A directory that lacks nothing is left out.
pub fn missing(pkgsrc: &Pkgsrc, awaited: &[Awaited]) -> Vec<Awaited> {
    let lacks = |one: &Awaited| {
        let is_absent = |name: &&String| !pkgsrc.distfiles.join(name).is_file();
        let files: Vec<String> = one.files.iter().filter(is_absent).cloned().collect();
        (!files.is_empty()).then(|| Awaited { files, ..one.clone() })
    };
    awaited.iter().filter_map(lacks).collect()
}

/// Takes missing files from the mirror of the site, as far as it has them and they are what distinfo says.
pub fn take(yard: &Yard, pkgsrc: &Pkgsrc, awaited: &[Awaited], say: &dyn Fn(&str)) {
    let missing = missing(pkgsrc, awaited);
    let Some(site) = site(yard).filter(|_| !missing.is_empty()) else { return };
    for (one, name) in missing.iter().flat_map(|one| one.files.iter().map(move |name| (one, name))) {
        match take_one(pkgsrc, &site, &one.lists, name) {
            Ok(true) => say(&format!("{name} is from the mirror {}", site.url())),
            Ok(false) => {}
            Err(reason) => {
                say(&format!("note: {name} cannot be taken from the mirror {}: {reason}", site.url()))
            }
        }
    }
}

fn take_one(pkgsrc: &Pkgsrc, site: &Site, lists: &[PathBuf], name: &str) -> Result<bool, String> {
    let said = |error: std::io::Error| error.to_string();
    if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("its name is no path below a folder".to_owned());
    }
    let mut listed = Vec::new();
    for list in lists {
        let text = fs_err::read(pkgsrc.tree.join(list)).map_err(said)?;
        listed.extend(distinfo::parse(&text).map_err(|error| error.to_string())?);
    }
    let Some(file) = listed.into_iter().find(|file| file.name == name) else { return Ok(false) };
    let target = pkgsrc.distfiles.join(name);
    let folder = target.parent().unwrap_or(&pkgsrc.distfiles);
    fs_err::create_dir_all(folder).map_err(said)?;
    let part = tempfile::NamedTempFile::new_in(folder).map_err(said)?;
    // One byte more than the file should have shows that it is another one.
    if !site.take(name, file.size_bytes.unwrap_or(0).saturating_add(1), part.path())? {
        return Ok(false);
    }
    if !file.is(part.path()).map_err(said)? {
        return Err("it is not what distinfo says".to_owned());
    }
    let file = part.persist(&target).map_err(|error| error.to_string())?;
    // Users of roots read it.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.set_permissions(readable).and_then(|()| file.sync_all()).map_err(said)?;
    Ok(true)
}
