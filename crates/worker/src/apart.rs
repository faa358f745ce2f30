//! Ids of its own for each build.
//!
//! All roots of a yard have the same ids outside, since they share layers. But whose code a build runs is the builder's, and
//! none of the layers' files are: so the builder of each build is another id outside, of those that no package has files of.
//! Two builds, of one yard or of two, then share no limit that the kernel counts by user, and a process that got out
//! of one could not touch what the other wrote.
//!
//! An id is claimed by binding a name in the machine's abstract namespace of sockets (unix(7)), which the kernel gives up with
//! the process and which leaves no file. A user who takes all of the names keeps builds from having ids of their own, and from
//! nothing else: then, and where there is one id alone, builds share the builder's.

use crate::BUILDER_ID;
use kilnyard_root::IdMap;
use rand::RngCore;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// The ids, counted inside, whose places builders can take: those that systemd gives to services while they run (`DynamicUser=`,
/// systemd's UIDS-GIDS), so that no file of a package is theirs.
const FIRST: u32 = 61_184;
const COUNT: u32 = 4_336;

/// How many ids are tried. Even with a thousand builds on the machine, three of four are free.
const TRIES_MAX: u32 = 16;

/// The file of a root's folder that says whose place its builder has taken.
const FILE: &str = "builder";

/// The ids of one build.
#[derive(Debug)]
pub(crate) struct Apart {
    /// The map of its sandboxes.
    pub(crate) ids: IdMap,
    /// Whose place the builder has taken, counted inside.
    pub(crate) number: u32,
    /// Holds the name.
    _name: UnixListener,
}

impl Apart {
    /// Ids of its own for a build whose yard has these; none where there are none, or none is free.
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

    /// Notes in a root's folder whose place its builder has taken.
    pub(crate) fn note(&self, folder: &Path) -> io::Result<()> {
        fs_err::write(folder.join(FILE), self.number.to_string())
    }
}

/// The ids of a root that is there: those of its yard, but for a builder that is noted.
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
    fn each_build_has_a_builder_of_its_own_until_it_ends() {
        // A range that no yard has.
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
    fn who_has_one_id_shares_it() {
        assert!(Apart::claim(&IdMap::alone(1000, 1000)).is_none());
    }

    #[test]
    fn what_is_noted_is_read_and_nothing_else_is() {
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
