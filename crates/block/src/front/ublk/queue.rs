//! One queue of a device: a thread that answers its requests.

use super::kernel::{ANSWER, Answer, Asked, DEPTH_MAX, FETCH, check};
use super::kernel::{DISCARD, FLUSH, READ, SECTOR_BYTES, WRITE, WRITE_ZEROES};
use crate::Disk;
use crate::memory::Memory;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A queue that fetches requests. It stays in the thread that made it: the kernel answers no other.
pub(super) struct Queue {
    disk: Arc<Disk>,
    device: Arc<File>,
    number: u16,
    depth: u16,
    request_bytes_max: usize,
    ring: IoUring,
    asked: Descriptions,
    /// A piece for each tag. Pages take memory once a request needed them.
    buffers: Memory,
}

impl Queue {
    /// Lets the kernel have all tags.
    pub(super) fn new(
        disk: Arc<Disk>,
        device: Arc<File>,
        number: u16,
        depth: u16,
        request_bytes_max: usize,
    ) -> io::Result<Queue> {
        let mut queue = Queue {
            disk,
            number,
            depth,
            request_bytes_max,
            // Requests arrive while this thread waits for them, and never interrupt it.
            ring: IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(depth.into())?,
            asked: Descriptions::new(&device, number, depth)?,
            buffers: Memory::new(usize::from(depth) * request_bytes_max)?,
            device,
        };
        for tag in 0..depth {
            queue.push(FETCH, tag, 0)?;
        }
        queue.ring.submit()?;
        // Only a tag that was refused returns before the device was started.
        let refused = queue.ring.completion().next();
        match refused {
            Some(entry) => Err(check(entry.result()).err().unwrap_or(io::ErrorKind::Unsupported.into())),
            None => Ok(queue),
        }
    }

    /// Answers requests until the device is removed.
    pub(super) fn serve(mut self) -> io::Result<()> {
        let mut fetching = self.depth;
        while fetching > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            loop {
                let Some(entry) = self.ring.completion().next() else { break };
                let tag = entry.user_data() as u16;
                match check(entry.result()) {
                    Ok(_) => {
                        let result = self.answer(tag);
                        self.push(ANSWER, tag, result)?;
                    }
                    // The device is removed.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => fetching -= 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, tag: u16) -> i32 {
        let asked = self.asked.read(tag);
        // SAFETY: the piece is this tag's, and the kernel does not use it until the answer is sent.
        let buffer = unsafe { self.buffers.slice(self.place(tag), self.request_bytes_max) };
        match perform(&self.disk, asked, buffer) {
            Ok(()) => (u64::from(asked.sectors) * SECTOR_BYTES) as i32,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn place(&self, tag: u16) -> usize {
        usize::from(tag) * self.request_bytes_max
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let address = self.buffers.address() + self.place(tag) as u64;
        let answer = Answer { queue: self.number, tag, result, address };
        let entry = opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), command)
            .cmd(answer.bytes())
            .build()
            .user_data(tag.into());
        // SAFETY: the buffer lives as long as the ring, and is not used while the kernel has its tag.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }
}

/// Does what a request asks for.
fn perform(disk: &Disk, asked: Asked, buffer: &mut [u8]) -> io::Result<()> {
    // A flush has no place: the kernel names the last of all sectors.
    let offset = asked.first_sector.saturating_mul(SECTOR_BYTES);
    let bytes = u64::from(asked.sectors) * SECTOR_BYTES;
    let data = buffer.get_mut(..bytes as usize).ok_or(io::Error::from_raw_os_error(libc::EINVAL));
    match asked.operation as u8 {
        READ => disk.read(offset, data?),
        WRITE => disk.write(offset, data?),
        FLUSH => disk.flush(),
        DISCARD => disk.discard(offset, bytes),
        WRITE_ZEROES => disk.zero(offset, bytes),
        _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    }
}

/// The requests of a queue by their tags, in memory that the kernel writes.
struct Descriptions {
    at: NonNull<Asked>,
    depth: u16,
    bytes: usize,
}

impl Descriptions {
    fn new(device: &File, queue: u16, depth: u16) -> io::Result<Descriptions> {
        let page = rustix::param::page_size();
        let bytes = (usize::from(depth) * size_of::<Asked>()).next_multiple_of(page);
        let step = (DEPTH_MAX as usize * size_of::<Asked>()).next_multiple_of(page);
        let (null, descriptor) = (std::ptr::null_mut(), device.as_raw_fd());
        let place = (usize::from(queue) * step) as libc::off_t;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe { libc::mmap(null, bytes, libc::PROT_READ, libc::MAP_SHARED, descriptor, place) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Descriptions { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?, depth, bytes })
    }

    fn read(&self, tag: u16) -> Asked {
        assert!(tag < self.depth);
        // SAFETY: the mapping has a description for each tag, which the kernel wrote before it sent the tag.
        unsafe { self.at.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(Options {
            base: None,
            size_bytes: 1 << 20,
            memory_bytes_max: 0,
            spill: folder.path().to_owned(),
            keeps_flushes: false,
            is_read_only: false,
            requests: None,
        })
        .unwrap();
        let mut buffer = [7; 4096];
        let mut ask = |operation: u8, first_sector, sectors| {
            let asked = Asked { operation: 0xff00 | u32::from(operation), sectors, first_sector, address: 0 };
            perform(&disk, asked, &mut buffer).map_err(|error| error.raw_os_error())
        };
        assert_eq!(ask(WRITE, 2047, 1), Ok(()));
        assert_eq!(ask(WRITE_ZEROES, 0, 2048), Ok(()));
        assert_eq!(ask(FLUSH, u64::MAX, 0), Ok(()));
        for (operation, first, sectors, expected) in [
            (READ, 2047, 2, libc::EINVAL),
            (READ, u64::MAX, 1, libc::EINVAL),
            (READ, 0, 9, libc::EINVAL),
            (WRITE, 0, 9, libc::EINVAL),
            (DISCARD, 1, 2048, libc::EINVAL),
            (11, 0, 8, libc::EOPNOTSUPP),
        ] {
            assert_eq!(ask(operation, first, sectors), Err(Some(expected)), "{operation} {first} {sectors}");
        }
        assert_eq!(ask(READ, 2047, 1), Ok(()));
        assert_eq!(buffer[..513], [&[0; 512][..], &[7]].concat());
    }
}
