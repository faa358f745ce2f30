//! A separate user id for each build.
//!
//! All roots of a yard map to the same outside ids, since they share layers. But package code runs as the builder, and
//! no file of a layer belongs to the builder. The builder of each build can therefore map to a different outside id,
//! from a range that no package has files of. Two builds, of one yard or of two, then share no per-user limit of the
//! kernel, and a process that escaped from one build could not touch the files of another.
//!
//! An id is claimed by binding a name in the abstract socket namespace (unix(7)), which leaves no file and which the
//! kernel releases with the process. A user who binds all the names can only keep builds from having their own ids:
//! then, and if there is only one id, builds share the builder's id.

use crate::BUILDER_ID;
use kilnyard_root::IdMap;
use rand::RngCore;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// The inside ids that builders can swap with: those that systemd gives to running services (`DynamicUser=`, systemd's
/// UIDS-GIDS), so that no package has files of them.
const FIRST: u32 = 61_184;
const COUNT: u32 = 4_336;

/// Maximum number of ids tried. Even with a thousand builds on the machine, three of four are free.
const TRIES_MAX: u32 = 16;

/// The file in a root's folder that records the id that its builder swapped with.
const FILE: &str = "builder";

/// The ids of one build.
#[derive(Debug)]
pub(crate) struct Apart {
    /// The map for its sandboxes.
    pub(crate) ids: IdMap,
    /// The inside id that the builder swapped with.
    pub(crate) number: u32,
    /// Holds the claimed name.
    _name: UnixListener,
}

impl Apart {
    /// Claims a builder id for a build in a yard with these ids. `None` if the map has no such ids, or none is free.
    pub(crate) fn claim(ids: &IdMap) -> Option<Apart> {
        let start = rand::rngs::OsRng.next_u32() % COUNT;
        (0..TRIES_MAX).find_map(|offset| {
            let number = FIRST + (start + offset) % COUNT;
            let name = format!("kilnyard-builder-{}", ids.user_outside(number)?);
            let address = SocketAddr::from_abstract_name(name).ok()?;
            let name = UnixListener::bind_addr(&address).ok()?;
            Some(Apart { ids: ids.with_swapped(BUILDER_ID, number)?, number, _name: name })
        })
    }

    /// Records the claimed id in a root's folder.
    pub(crate) fn note(&self, folder: &Path) -> io::Result<()> {
        fs_err::write(folder.join(FILE), self.number.to_string())
    }
}

/// The ids of an existing root: those of its yard, with the recorded id of its builder.
pub(crate) fn noted(folder: &Path, ids: &IdMap) -> IdMap {
    let number = fs_err::read_to_string(folder.join(FILE)).ok().and_then(|text| text.parse().ok());
    let number = number.filter(|number| (FIRST..FIRST + COUNT).contains(number));
    number.and_then(|number| ids.with_swapped(BUILDER_ID, number)).unwrap_or_else(|| ids.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_root::Mapper;

    fn ids(first: u32) -> IdMap {
        let lines = vec![(0, first, 65_536)];
        IdMap { users: lines.clone(), groups: lines, mapper: Mapper::Root }
    }

    #[test]
    fn each_build_has_its_own_builder_id() {
        // A range that no yard uses.
        let ids = ids(0x7000_0000);
        let claims: Vec<Apart> = (0..100).filter_map(|_| Apart::claim(&ids)).collect();
        assert_eq!(claims.len(), 100);
        let mut builders: Vec<u32> =
            claims.iter().map(|claim| claim.ids.user_outside(BUILDER_ID).unwrap()).collect();
        builders.sort_unstable();
        builders.dedup();
        assert_eq!(builders.len(), 100);
        assert!(claims.iter().all(|claim| claim.ids.user_outside(0) == Some(0x7000_0000)));
    }

    #[test]
    fn a_map_of_one_id_has_no_other_builder() {
        assert!(Apart::claim(&IdMap::alone(1000, 1000)).is_none());
    }

    #[test]
    fn only_recorded_ids_of_the_range_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let ids = ids(0x7100_0000);
        assert_eq!(noted(folder.path(), &ids), ids);
        let claim = Apart::claim(&ids).unwrap();
        claim.note(folder.path()).unwrap();
        assert_eq!(noted(folder.path(), &ids), claim.ids);
        for text in ["0", "1000", "70000", "-1", "x"] {
            fs_err::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(noted(folder.path(), &ids), ids, "{text}");
        }
    }
}
