use super::*;
use proptest::prelude::*;
use std::io::Write;

const SIZE: u64 = 3 << 20;

fn base() -> (File, Vec<u8>) {
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..SIZE).map(|at| (at / 7) as u8 ^ (at >> 12) as u8).collect();
    // The device is longer than its base.
    file.write_all(&content[..SIZE as usize - 5000]).unwrap();
    let mut shown = content;
    shown[SIZE as usize - 5000..].fill(0);
    (file, shown)
}

fn disk(size_bytes: u64, base: Option<File>, keeps_flushes: bool, folder: &std::path::Path) -> Disk {
    let spill = folder.to_owned();
    Disk::new(Options {
        base,
        size_bytes,
        memory_bytes_max: 0,
        spill,
        keeps_flushes,
        is_read_only: false,
        requests: None,
    })
    .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    Zero(u64, u64),
    Discard(u64, u64),
    Flush,
    Demote,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..SIZE, prop_oneof![Just(4096u64), 1..9000u64, 1..2_000_000u64], any::<bool>());
    let range = range.prop_map(|(at, bytes, is_aligned)| {
        let at = if is_aligned { at / BLOCK_BYTES * BLOCK_BYTES } else { at };
        (at, bytes.min(SIZE - at))
    });
    prop_oneof![
        3 => range.clone().prop_map(|(at, bytes)| Step::Read(at, bytes)),
        5 => (range.clone(), any::<u8>()).prop_map(|((at, bytes), byte)| Step::Write(at, bytes, byte)),
        1 => range.clone().prop_map(|(at, bytes)| Step::Zero(at, bytes)),
        1 => range.prop_map(|(at, bytes)| Step::Discard(at, bytes)),
        1 => Just(Step::Flush),
        2 => Just(Step::Demote),
    ]
}

proptest! {
    #[test]
    fn a_device_is_what_was_written(steps in prop::collection::vec(step(), 1..60), keeps in any::<bool>(), memory_mib in 1..4u64) {
        let folder = tempfile::tempdir().unwrap();
        let (base, mut model) = base();
        let mut disk = disk(SIZE, Some(base), keeps, folder.path());
        // Room for one request in a region, so that others go past a full memory.
        disk.memory_bytes_max = memory_mib << 20;
        let range = |at: u64, bytes: u64| at as usize..(at + bytes) as usize;
        for step in steps {
            match step {
                Step::Read(at, bytes) => {
                    let mut read = vec![1; bytes as usize];
                    disk.read(at, &mut read).unwrap();
                    prop_assert!(read == model[range(at, bytes)]);
                }
                Step::Write(at, bytes, byte) => {
                    let data: Vec<u8> = (0..bytes).map(|number| byte.wrapping_add(number as u8)).collect();
                    disk.write(at, &data).unwrap();
                    model[range(at, bytes)].copy_from_slice(&data);
                }
                Step::Zero(at, bytes) => {
                    disk.zero(at, bytes).unwrap();
                    model[range(at, bytes)].fill(0);
                }
                Step::Discard(at, bytes) => {
                    disk.discard(at, bytes).unwrap();
                    let (first, end) = whole_blocks(at, bytes);
                    if first < end {
                        model[range(first, end - first)].fill(0);
                    }
                }
                Step::Flush => disk.flush().unwrap(),
                Step::Demote => disk.demote(DEMOTED_BYTES).unwrap(),
            }
            let in_memory: u64 = (0..disk.regions.len()).map(|number| disk.region(number).memory_bytes()).sum();
            prop_assert_eq!(disk.memory_bytes(), in_memory);
        }
        let mut all = vec![1; SIZE as usize];
        disk.read(0, &mut all).unwrap();
        prop_assert!(all == model);
        let (mut at, mut extents) = (0, Vec::new());
        disk.extents(0, SIZE, |extent| { extents.push(extent); true }).unwrap();
        for extent in extents {
            let bytes = range(at, extent.bytes);
            prop_assert!(!extent.is_zero || model[bytes].iter().all(|byte| *byte == 0));
            at += extent.bytes;
        }
        prop_assert_eq!(at, SIZE);
    }
}

#[test]
fn memory_stays_below_its_limit_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let size = MEMORY_BYTES_MIN * 4;
    let disk = disk(size, None, false, folder.path());
    let content = |block: u64, thread: u64| [(block ^ thread) as u8; BLOCK_BYTES as usize];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let disk = &disk;
            scope.spawn(move || {
                // Each thread has every fourth block, in an order that is far from theirs.
                let count = size / BLOCK_BYTES / 4;
                for number in 0..count {
                    let block = (number * 5003 % count) * 4 + thread;
                    disk.write(block * BLOCK_BYTES, &content(block, thread)).unwrap();
                }
            });
        }
    });
    let counters = disk.counters();
    assert!(counters.memory_bytes_max <= MEMORY_BYTES_MIN, "{counters:?}");
    assert!(counters.spilled_bytes >= size - MEMORY_BYTES_MIN, "{counters:?}");
    let mut read = vec![0; BLOCK_BYTES as usize];
    for block in 0..size / BLOCK_BYTES {
        disk.read(block * BLOCK_BYTES, &mut read).unwrap();
        assert_eq!(read, content(block, block % 4), "block {block}");
    }
    disk.discard(0, size).unwrap();
    assert_eq!(disk.memory_bytes(), 0);
}

#[test]
fn a_block_that_is_used_stays_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let disk = disk(MEMORY_BYTES_MIN * 4, None, false, folder.path());
    let hot = [9; BLOCK_BYTES as usize];
    disk.write(0, &hot).unwrap();
    for block in 1..MEMORY_BYTES_MIN * 4 / BLOCK_BYTES {
        disk.write(block * BLOCK_BYTES, &[1; BLOCK_BYTES as usize]).unwrap();
        disk.read(0, &mut [0; 8]).unwrap();
    }
    assert_eq!(disk.counters().restored_bytes, 0);
}

#[test]
fn what_is_outside_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let disk = disk(1 << 20, None, false, folder.path());
    for (offset, bytes) in [(1 << 20, 1), (u64::MAX, 1), ((1 << 20) - 1, 2), (4096, u64::MAX - 4095)] {
        let error = disk.zero(offset, bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{offset} {bytes}");
    }
    disk.write(1 << 20, &[]).unwrap();
    let none = Options {
        base: None,
        size_bytes: 4097,
        memory_bytes_max: 0,
        spill: folder.path().to_owned(),
        keeps_flushes: false,
        is_read_only: false,
        requests: None,
    };
    assert!(Disk::new(none).is_err());
}
