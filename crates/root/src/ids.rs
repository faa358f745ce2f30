//! Maps the ids of a root's users to ids outside the root.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The number of ids in a root: enough for every id that Debian assigns, up to 65534.
pub const IDS_COUNT: u32 = 65_536;

/// The first outside id for builds run by root, if `/etc/subuid` gives root no range. It is above the
/// ranges that `useradd` assigns (100000 to 600100000, login.defs(5)) and those of systemd-nspawn
/// (524288 to 1879048191, systemd's UIDS-GIDS), and below 2^31, from where some tools take ids for negative.
const FIRST_ID_OF_ROOT: u32 = 0x7800_0000;
/// The end of the range that begins at [`FIRST_ID_OF_ROOT`], exclusive.
const END_OF_ROOT: u32 = 0x8000_0000;

/// The privilege by which an id map is written, which decides what the map may contain (user_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mapper {
    /// Root of the machine: any ids.
    Root,
    /// `newuidmap` and `newgidmap`, for an ordinary user: the user's own id and a range assigned to the user.
    Helper,
    /// An ordinary user without these programs or a range: only the user's own id. All files of a root then belong to
    /// its root user; a fakeroot simulates any other owner.
    Alone,
}

/// A map of ids for a user namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// Lines of `uid_map`: inside, outside, count (user_namespaces(7)).
    pub users: Vec<(u32, u32, u32)>,
    /// Lines of `gid_map`.
    pub groups: Vec<(u32, u32, u32)>,
    /// The privilege by which the maps are written.
    pub mapper: Mapper,
}

/// Why an ordinary user has only one id for a root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// `newuidmap` or `newgidmap` is missing.
    #[error("newuidmap and newgidmap are not installed")]
    NoHelper,
    /// The user has no range of ids, or only smaller ones.
    #[error("{file} has no range of at least {IDS_COUNT} ids for the user {user}")]
    NoRange {
        /// `/etc/subuid` or `/etc/subgid`.
        file: &'static str,
        /// The user's name or number.
        user: String,
    },
}

impl IdMap {
    /// The map for the user of this process, and, if it has only one id, the reason. `name` is the user's name as in
    /// `/etc/subuid`. `range` is an index below [`IdMap::ranges_of_this_user`]; any larger value selects the first
    /// range.
    pub fn of_this_user(name: &str, range: u32) -> (IdMap, Option<IdError>) {
        // SAFETY: these calls have no preconditions and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let range = if range < IdMap::ranges_of_this_user(name) { range } else { 0 };
        if user == 0 {
            let of = |file| vec![(0, ids_of_root(file).0 + range * IDS_COUNT, IDS_COUNT)];
            let ids = IdMap { users: of("/etc/subuid"), groups: of("/etc/subgid"), mapper: Mapper::Root };
            return (ids, None);
        }
        match IdMap::by_helper(name, user, group, range) {
            Ok(ids) => (ids, None),
            Err(error) => (IdMap::alone(user, group), Some(error)),
        }
    }

    /// The number of disjoint id ranges that this user has for roots; at least 1.
    pub fn ranges_of_this_user(name: &str) -> u32 {
        // SAFETY: the call has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let count = |file| match user {
            0 => ids_of_root(file).1 / IDS_COUNT,
            // The root user inside is the user itself, so a range needs one id less.
            _ => range_of(file, name, user).map_or(1, |(_, count)| count.saturating_add(1) / IDS_COUNT),
        };
        count("/etc/subuid").min(count("/etc/subgid")).max(1)
    }

    /// The map of an ordinary user without a range of ids.
    pub fn alone(user: u32, group: u32) -> IdMap {
        IdMap { users: vec![(0, user, 1)], groups: vec![(0, group, 1)], mapper: Mapper::Alone }
    }

    fn by_helper(name: &str, user: u32, group: u32, range: u32) -> Result<IdMap, IdError> {
        if !["newuidmap", "newgidmap"].iter().all(|p| Path::new("/usr/bin").join(p).exists()) {
            return Err(IdError::NoHelper);
        }
        let line = |file: &'static str, own: u32| match range_of(file, name, user) {
            Some((first, _)) => Ok(vec![(0, own, 1), (1, first + range * IDS_COUNT, IDS_COUNT - 1)]),
            None => Err(IdError::NoRange { file, user: name.to_owned() }),
        };
        let (users, groups) = (line("/etc/subuid", user)?, line("/etc/subgid", group)?);
        Ok(IdMap { users, groups, mapper: Mapper::Helper })
    }

    /// This map with the outside ids of two users, and of the groups with the same numbers, exchanged. `None` if
    /// the map lacks one of them.
    pub fn with_swapped(&self, one: u32, other: u32) -> Option<IdMap> {
        let users = swapped(&self.users, one, other)?;
        Some(IdMap { users, groups: swapped(&self.groups, one, other)?, mapper: self.mapper })
    }

    /// A map of the same ids in their order, whose root user is the user of this process.
    pub fn in_order(&self) -> IdMap {
        // SAFETY: these calls have no preconditions and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        IdMap { users: ordered(&self.users, user), groups: ordered(&self.groups, group), mapper: self.mapper }
    }

    /// This map as root of a user namespace with the other map writes it. `None` if that namespace lacks one of the ids.
    pub fn within(&self, space: &IdMap) -> Option<IdMap> {
        let users = seen(&self.users, &space.users)?;
        Some(IdMap { users, groups: seen(&self.groups, &space.groups)?, mapper: Mapper::Root })
    }

    /// Whether the map is for an ordinary user of the machine.
    pub fn is_ordinary(&self) -> bool {
        self.mapper != Mapper::Root
    }

    /// Whether the map has only one id, so that all files of a root belong to one user.
    pub fn has_one_id(&self) -> bool {
        self.mapper == Mapper::Alone
    }

    /// Maps a user id of the root to the id outside.
    pub fn user_outside(&self, inside: u32) -> Option<u32> {
        outside(&self.users, inside)
    }

    /// Maps a user id outside to the id in the root.
    pub fn user_inside(&self, outside: u32) -> Option<u32> {
        inside(&self.users, outside)
    }

    /// Maps a group id outside to the id in the root.
    pub fn group_inside(&self, outside: u32) -> Option<u32> {
        inside(&self.groups, outside)
    }

    /// Maps a group id of the root to the id outside.
    pub fn group_outside(&self, inside: u32) -> Option<u32> {
        outside(&self.groups, inside)
    }
}

fn outside(lines: &[(u32, u32, u32)], id: u32) -> Option<u32> {
    lines.iter().find_map(|(inside, outside, count)| {
        (id >= *inside && id - inside < *count).then(|| outside + (id - inside))
    })
}

fn inside(lines: &[(u32, u32, u32)], id: u32) -> Option<u32> {
    lines.iter().find_map(|(inside, outside, count)| {
        (id >= *outside && id - outside < *count).then(|| inside + (id - outside))
    })
}

fn ordered(lines: &[(u32, u32, u32)], own: u32) -> Vec<(u32, u32, u32)> {
    let mut parts: Vec<(u32, u32)> = lines.iter().map(|&(_, outside, count)| (outside, count)).collect();
    parts.sort_unstable_by_key(|&(outside, _)| (outside != own, outside));
    let mut ordered: Vec<(u32, u32, u32)> = Vec::new();
    let mut next = 0;
    for (outside, count) in parts {
        match ordered.last_mut() {
            Some((_, first, length)) if *first != own && *first + *length == outside => *length += count,
            _ => ordered.push((next, outside, count)),
        }
        next += count;
    }
    ordered
}

fn seen(lines: &[(u32, u32, u32)], space: &[(u32, u32, u32)]) -> Option<Vec<(u32, u32, u32)>> {
    let seen = |&(own, outside, count): &(u32, u32, u32)| {
        let first = inside(space, outside)?;
        (inside(space, outside + (count - 1)) == Some(first + (count - 1))).then_some((own, first, count))
    };
    lines.iter().map(seen).collect()
}

fn swapped(lines: &[(u32, u32, u32)], one: u32, other: u32) -> Option<Vec<(u32, u32, u32)>> {
    let (of_one, of_other) = (outside(lines, one)?, outside(lines, other)?);
    let mut cut = vec![(one, of_other, 1), (other, of_one, 1)];
    for &(inside, outside, count) in lines {
        let end = inside + count;
        // Cut points: the ranges between the two ids, and on either side of them.
        let mut marks = vec![inside, one, one + 1, other, other + 1, end];
        marks.retain(|mark| (inside..=end).contains(mark));
        marks.sort_unstable();
        marks.dedup();
        let pieces = marks.windows(2).filter(|piece| piece[0] != one && piece[0] != other);
        cut.extend(pieces.map(|piece| (piece[0], outside + (piece[0] - inside), piece[1] - piece[0])));
    }
    cut.sort_unstable();
    Some(cut)
}

/// The range of outside ids for builds run by root: the first id and the count.
fn ids_of_root(file: &str) -> (u32, u32) {
    range_of(file, "root", 0).unwrap_or((FIRST_ID_OF_ROOT, END_OF_ROOT - FIRST_ID_OF_ROOT))
}

/// The first range of a user in `/etc/subuid` or `/etc/subgid` that is large enough: its first id and the count.
fn range_of(file: &str, name: &str, id: u32) -> Option<(u32, u32)> {
    let text = fs_err::read_to_string(file).ok()?;
    text.lines().find_map(|line| range_in(line, name, id))
}

fn range_in(line: &str, name: &str, id: u32) -> Option<(u32, u32)> {
    let mut parts = line.split(':');
    let (user, first, count) = (parts.next()?, parts.next()?, parts.next()?);
    let is_own = user == name || user.parse() == Ok(id);
    let (first, count): (u32, u32) = (first.parse().ok()?, count.trim().parse().ok()?);
    // The largest 32-bit value is not a valid id (user_namespaces(7)).
    let count = count.min(u32::MAX - first);
    (is_own && count >= IDS_COUNT - 1).then_some((first, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_seen_from_a_namespace_of_the_same_ids() {
        // SAFETY: these calls have no preconditions and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let line = |own| vec![(0, own, 1), (1, 100_000, 65_535)];
        let map = IdMap { users: line(user), groups: line(group), mapper: Mapper::Helper };
        let swapped = map.with_swapped(1000, 61_200).unwrap().with_swapped(0, 7).unwrap();
        assert_eq!(swapped.in_order(), map);
        let seen = swapped.within(&map).unwrap();
        assert_eq!(seen.mapper, Mapper::Root);
        for id in 0..65_536 {
            assert_eq!(seen.user_outside(id), map.user_inside(swapped.user_outside(id).unwrap()), "{id}");
            assert_eq!(seen.group_outside(id), map.group_inside(swapped.group_outside(id).unwrap()), "{id}");
        }
        assert_eq!(IdMap { users: vec![(0, 99_999, 2)], ..map.clone() }.within(&map), None);
    }

    #[test]
    fn two_users_change_places() {
        let map = IdMap {
            users: vec![(0, 1000, 1), (1, 100_000, 65_535)],
            groups: vec![(0, 100_000, 65_536)],
            mapper: Mapper::Helper,
        };
        let swapped = map.with_swapped(1000, 61_200).unwrap();
        for id in 0..65_536 {
            let before = match id {
                1000 => 61_200,
                61_200 => 1000,
                other => other,
            };
            assert_eq!(swapped.user_outside(id), map.user_outside(before), "{id}");
            assert_eq!(swapped.group_outside(id), map.group_outside(before), "{id}");
        }
        assert_eq!(swapped.users.iter().map(|(.., count)| count).sum::<u32>(), 65_536);
        assert_eq!(swapped.with_swapped(1000, 61_200).unwrap().user_outside(1000), map.user_outside(1000));
        assert_eq!(map.with_swapped(1000, 70_000), None);
        assert_eq!(IdMap::alone(5, 5).with_swapped(0, 1), None);
        // The first and the last id work too.
        assert_eq!(map.with_swapped(0, 65_535).unwrap().user_outside(65_535), Some(1000));
    }

    #[test]
    fn lines_of_a_user_give_ranges() {
        let range = |line| range_in(line, "anna", 1000);
        assert_eq!(range("anna:100000:65536"), Some((100_000, 65_536)));
        assert_eq!(range("1000:5:200000 "), Some((5, 200_000)));
        assert_eq!(range("anna:4294901760:65536"), Some((4_294_901_760, 65_535)));
        for line in ["", "anna", "anna:1", "anna:1:2:3", "berta:100000:65536", "anna:x:65536", "anna:1:-1"] {
            assert_eq!(range(line), None, "{line}");
        }
        assert_eq!(range("anna:4294967295:65536"), None);
    }

    #[test]
    fn no_id_is_in_two_ranges() {
        let name = std::env::var("USER").unwrap_or_default();
        let count = IdMap::ranges_of_this_user(&name);
        let of = |range| IdMap::of_this_user(&name, range).0;
        if count > 1 {
            let (first, second, last) = (of(0), of(1), of(count - 1));
            let ends = |ids: &IdMap| (ids.user_outside(1).unwrap(), ids.user_outside(65_535).unwrap());
            assert!(ends(&first).1 < ends(&second).0 && ends(&second).0 <= ends(&last).0);
            assert!(ends(&last).1 < u32::MAX);
        }
        // An index past the end selects the first range.
        assert_eq!(of(count), of(0));
        assert_eq!(of(u32::MAX), of(0));
    }

    #[test]
    fn ids_outside_follow_the_lines() {
        let map = IdMap {
            users: vec![(0, 1000, 1), (1, 100_000, 65_535)],
            groups: vec![(0, 100_000, 65_536)],
            mapper: Mapper::Helper,
        };
        assert_eq!(map.user_outside(0), Some(1000));
        assert_eq!(map.user_outside(1000), Some(100_999));
        assert_eq!(map.user_outside(65_536), None);
        assert_eq!(map.group_outside(65_535), Some(165_535));
        for user in [0, 1, 65_535] {
            assert_eq!(map.user_inside(map.user_outside(user).unwrap()), Some(user));
        }
        assert_eq!((map.user_inside(1001), map.group_inside(100_000)), (None, Some(0)));
    }
}
