//! What machines read: instructions of files, and requests to block devices.

use kilnyard_block::nbd::talk;
use kilnyard_block::{Disk, Options, Summary};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const SIZE_BYTES: u64 = 64 << 10;
/// What a client may cause to be sent back.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// An ELF file is searched without a crash, and no instruction is counted in more bytes than there are.
pub fn hazards(data: &[u8]) {
    if let Some((_, found)) = kilnyard_hazard::scan_file(data) {
        assert!(found.code_bytes <= data.len() as u64);
        assert!(found.counts.values().sum::<u64>() <= data.len() as u64 / 2 + 1);
    }
}

/// A client that sends anything leaves a device that works, with nothing beyond its size.
pub fn nbd(data: &[u8]) {
    let options = Options {
        base: None,
        size_bytes: SIZE_BYTES,
        memory_bytes_max: 0,
        spill: std::env::temp_dir(),
        keeps_flushes: false,
        is_read_only: false,
        requests: None,
    };
    let disk = Disk::new(options).unwrap();
    let (mut client, server) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let mut reading = client.try_clone().unwrap();
        scope.spawn(move || {
            let mut answer = Vec::new();
            let _ = Read::by_ref(&mut reading).take(ANSWER_BYTES_MAX as u64).read_to_end(&mut answer);
            // More would block the server, whose client has to end instead.
            let _ = reading.shutdown(Shutdown::Both);
        });
        scope.spawn(|| {
            let _ = client.write_all(data);
            let _ = client.shutdown(Shutdown::Write);
        });
        let _ = talk(&disk, server);
    });
    disk.write(4096, &[7; 4096]).unwrap();
    let mut read = [0; 4096];
    disk.read(4096, &mut read).unwrap();
    assert_eq!(read, [7; 4096]);
    assert!(disk.memory_bytes() <= SIZE_BYTES);
}

/// A log of requests is summarised, or its first wrong line is named.
pub fn requests(data: &[u8]) {
    match Summary::read(data).unwrap() {
        Ok(summary) => {
            assert!(summary.touched_bytes <= 1 << 40);
            assert!(summary.hot.len() <= 10);
        }
        Err(error) => assert!(error.number <= data.iter().filter(|byte| **byte == b'\n').count() as u64),
    }
}
