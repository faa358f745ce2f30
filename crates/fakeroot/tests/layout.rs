//! The structures of calls, compared with those of the `libc` crate, and the layout of a session file.

use kilnyard_fakeroot::shared::abi;
use kilnyard_fakeroot::shared::layout::{self, Hash};
use kilnyard_fakeroot::shared::ownership::{narrow_number, pack_number, unpack_number, wide_number};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

#[test]
fn structures_match_libcs() {
    macro_rules! same {
        ($ours:ty, $theirs:ty: $($field:ident $other:ident),* $(,)?) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
            $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $other), stringify!($other));)*
        };
    }
    same!(abi::Stat, libc::stat: device st_dev, inode st_ino, links st_nlink, mode st_mode, user st_uid, group st_gid,
        number st_rdev, size st_size, block_size st_blksize, blocks st_blocks, accessed st_atime, modified st_mtime,
        changed st_ctime);
    same!(abi::Statx, libc::statx: mask stx_mask, block_size stx_blksize, attributes stx_attributes, links stx_nlink,
        user stx_uid, group stx_gid, mode stx_mode, inode stx_ino, size stx_size, blocks stx_blocks, born stx_btime,
        accessed stx_atime, changed stx_ctime, modified stx_mtime, number_major stx_rdev_major,
        number_minor stx_rdev_minor, device_major stx_dev_major, device_minor stx_dev_minor);
    assert_eq!(
        (abi::AT_EMPTY_PATH, abi::AT_SYMLINK_NOFOLLOW),
        (libc::AT_EMPTY_PATH, libc::AT_SYMLINK_NOFOLLOW)
    );
    assert_eq!((abi::STATX_BASIC, abi::STATX_BIRTH), (libc::STATX_BASIC_STATS, libc::STATX_BTIME));
}

#[test]
fn a_statx_fills_the_same_stat() {
    use std::os::unix::fs::MetadataExt;
    let name = std::ffi::CString::new(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (mut statx, mut stat) = (abi::Statx::default(), abi::Stat::default());
    // SAFETY: a path, and a structure of the correct layout, as the test above verifies.
    let result = unsafe {
        libc::statx(libc::AT_FDCWD, name.as_ptr(), 0, libc::STATX_BASIC_STATS, (&raw mut statx).cast())
    };
    assert_eq!(result, 0);
    stat.fill(&statx);
    let facts = std::fs::metadata(env!("CARGO_MANIFEST_DIR")).unwrap();
    assert_eq!(
        (stat.device, stat.inode, u64::from(stat.mode)),
        (facts.dev(), facts.ino(), u64::from(facts.mode()))
    );
    assert_eq!((stat.size, stat.blocks), (facts.size() as i64, facts.blocks() as i64));
    assert_eq!((stat.modified.seconds, stat.modified.nanoseconds), (facts.mtime(), facts.mtime_nsec()));
    assert_eq!((stat.changed.seconds, stat.accessed.nanoseconds), (facts.ctime(), facts.atime_nsec()));
}

/// Every word that the table can use is in one region, which consists of whole pages and does not overlap any other.
#[test]
fn regions_do_not_overlap() {
    let mut words = vec![0, layout::FILTER_AT, layout::INDEX_AT, layout::WINDOW_WORDS - 1];
    for level in 0..layout::LEVELS {
        for stripe in [0, layout::STRIPES - 1] {
            let part = layout::part_at(level, stripe);
            words.extend([part, part + layout::part_slots(level) - 1]);
        }
    }
    for power in 0..26 {
        words.extend([
            layout::node(1 << power, 0),
            layout::node((1 << (power + 1)) - 1, layout::NODE_WORDS - 1),
        ]);
    }
    words.extend(
        [0, 1, layout::ATTRIBUTES_STEP, layout::ATTRIBUTES_MAX - 1]
            .map(|at| layout::ATTRIBUTES_AT + at as usize),
    );
    let mut regions = BTreeMap::new();
    for word in words {
        let (first, length, number) = layout::region(word);
        assert!((first..first + length).contains(&word), "{word}");
        assert!(
            number < layout::REGIONS && first % layout::PAGE_WORDS == 0 && length % layout::PAGE_WORDS == 0
        );
        assert_eq!(*regions.entry(first).or_insert((length, number)), (length, number));
    }
    let ends: Vec<(usize, usize)> =
        regions.iter().map(|(first, (length, _))| (*first, first + length)).collect();
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    let mut numbers: Vec<usize> = regions.values().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), regions.len());
}

/// Consecutive inodes, as file systems assign them, use the filter and the stripes evenly.
#[test]
fn consecutive_inodes_spread() {
    let mut stripes = [0u32; layout::STRIPES];
    let mut bits = std::collections::BTreeSet::new();
    const INODES: u32 = 64_000;
    for inode in 0..u64::from(INODES) {
        let hash = Hash::of(0xfe01, 1_000_000 + inode);
        stripes[hash.stripe()] += 1;
        bits.insert(hash.filter());
    }
    assert!(stripes.iter().all(|count| (600..1400).contains(count)), "{stripes:?}");
    assert!(bits.len() > 58_000, "{}", bits.len());
}

proptest! {
    #[test]
    fn device_numbers_survive_their_packings(major in 0u32..4096, minor in 0u32..1 << 20) {
        prop_assert_eq!(unpack_number(pack_number(major, minor)), (major, minor));
        prop_assert_eq!(narrow_number(wide_number(major, minor)), (major, minor));
        prop_assert_eq!(wide_number(major, minor), libc::makedev(major, minor));
    }
}
