//! The numbers and structures of linux/ublk_cmd.h, and the commands that make, start and remove devices.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Where devices are made.
pub(super) const CONTROL: &str = "/dev/ublk-control";

const KIND: u32 = b'u' as u32;
const GET_INFORMATION: u32 = libc::_IOR::<Command>(KIND, 0x02) as u32;
const ADD: u32 = libc::_IOWR::<Command>(KIND, 0x04) as u32;
const START: u32 = libc::_IOWR::<Command>(KIND, 0x06) as u32;
const STOP: u32 = libc::_IOWR::<Command>(KIND, 0x07) as u32;
const SET_PARAMETERS: u32 = libc::_IOWR::<Command>(KIND, 0x08) as u32;
/// Does not wait until all processes have closed the device; from Linux 6.9 on.
const DELETE: u32 = libc::_IOR::<Command>(KIND, 0x14) as u32;
/// Waits for the first request of a tag.
pub(super) const FETCH: u32 = libc::_IOWR::<Answer>(KIND, 0x20) as u32;
/// Answers a request, and waits for the next one of its tag.
pub(super) const ANSWER: u32 = libc::_IOWR::<Answer>(KIND, 0x21) as u32;

pub(super) const READ: u8 = 0;
pub(super) const WRITE: u8 = 1;
pub(super) const FLUSH: u8 = 2;
pub(super) const DISCARD: u8 = 3;
pub(super) const WRITE_ZEROES: u8 = 5;

/// The unit of offsets and lengths in requests.
pub(super) const SECTOR_BYTES: u64 = 512;
/// The descriptions of a queue are mapped at a multiple of those that the largest queue has.
pub(super) const DEPTH_MAX: u64 = 4096;
/// The state of a device that was not started, or whose server is gone.
const STATE_DEAD: u16 = 0;
/// A new device gets the lowest number that is free.
const ANY: u32 = u32::MAX;
/// The command is for no queue in particular.
const NO_QUEUE: u16 = u16::MAX;
/// Marks devices of Kilnyard, in a field that the driver stores for servers and does not read.
const MARK: u64 = u64::from_le_bytes(*b"kilnyard");

#[repr(C)]
struct Command {
    device: u32,
    queue: u16,
    bytes: u16,
    address: u64,
    argument: [u64; 2],
}

/// The shape of a device and its state.
#[repr(C)]
#[derive(Default)]
pub(super) struct Information {
    /// The kernel makes no more queues than the machine has processors.
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) request_bytes_max: u32,
    pub(super) number: u32,
    pub(super) server: i32,
    pub(super) more_padding: u32,
    pub(super) flags: u64,
    pub(super) mark: u64,
    pub(super) owner: [u32; 2],
    pub(super) reserved: [u64; 2],
}

/// The properties of a device that its users see.
#[repr(C)]
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) bytes: u32,
    pub(super) kinds: u32,
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) best_request_shift: u8,
    pub(super) least_request_shift: u8,
    pub(super) request_sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) boundary: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_bytes_min: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zero_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
}

impl Parameters {
    /// Flushes mean something.
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    const BASIC: u32 = 1;
    const WITH_DISCARD: u32 = 1 << 1;
}

/// A request.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// The operation in the lowest byte, flags above it.
    pub(super) operation: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    pub(super) address: u64,
}

/// The content of [`FETCH`] and [`ANSWER`].
#[repr(C)]
pub(super) struct Answer {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes, or an error number below zero.
    pub(super) result: i32,
    /// The buffer of the next request.
    pub(super) address: u64,
}

impl Answer {
    pub(super) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }
}

/// Sends commands about devices to the driver, one at a time.
pub(super) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Fails without ublk_drv, or without root's rights.
    pub(super) fn open() -> io::Result<Control> {
        let file = File::options().read(true).write(true).open(CONTROL).map_err(|error| {
            io::Error::new(error.kind(), format!("{CONTROL}: {error} (the module is ublk_drv)"))
        })?;
        Ok(Control { file, ring: IoUring::builder().build(1)? })
    }

    /// Makes a device with what is asked for, or less of it.
    pub(super) fn add(&mut self, asked: Information) -> io::Result<Information> {
        let mut information = Information { number: ANY, mark: MARK, ..asked };
        // SAFETY: the kernel reads and writes one structure of this size.
        unsafe { self.send(ADD, ANY, (&raw mut information).cast(), size_of::<Information>(), 0)? };
        Ok(information)
    }

    pub(super) fn set(&mut self, device: u32, parameters: Parameters) -> io::Result<()> {
        let mut parameters = Parameters {
            bytes: size_of::<Parameters>() as u32,
            kinds: Parameters::BASIC | Parameters::WITH_DISCARD,
            discard_segments_max: 1,
            ..parameters
        };
        // SAFETY: the kernel reads one structure of this size.
        unsafe { self.send(SET_PARAMETERS, device, (&raw mut parameters).cast(), size_of::<Parameters>(), 0) }
    }

    /// Shows the device to the machine. All its queues must fetch requests already: the kernel looks for partitions.
    pub(super) fn start(&mut self, device: u32) -> io::Result<()> {
        // SAFETY: the command has no buffer.
        unsafe { self.send(START, device, std::ptr::null_mut(), 0, std::process::id().into()) }
    }

    /// Removes a device. What is dirty in its page cache is written before, if the queues still answer.
    pub(super) fn remove(&mut self, device: u32) -> io::Result<()> {
        for command in [STOP, DELETE] {
            // SAFETY: the commands have no buffer.
            match unsafe { self.send(command, device, std::ptr::null_mut(), 0, 0) } {
                // Another program removed it.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Whether this is a device of a server of Kilnyard that is gone, or that starts just now.
    pub(super) fn is_dead(&mut self, device: u32) -> bool {
        let mut known = Information::default();
        // SAFETY: the kernel writes one structure of this size.
        let asked = unsafe {
            self.send(GET_INFORMATION, device, (&raw mut known).cast(), size_of::<Information>(), 0)
        };
        asked.is_ok() && known.mark == MARK && known.state == STATE_DEAD
    }

    /// Performs a command.
    ///
    /// # Safety
    /// The buffer fits the command, and nothing else uses it meanwhile.
    unsafe fn send(
        &mut self,
        command: u32,
        device: u32,
        buffer: *mut u8,
        bytes: usize,
        argument: u64,
    ) -> io::Result<()> {
        let mut content = [0; 80];
        content[..4].copy_from_slice(&device.to_ne_bytes());
        content[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        content[6..8].copy_from_slice(&(bytes as u16).to_ne_bytes());
        content[8..16].copy_from_slice(&(buffer as u64).to_ne_bytes());
        content[16..24].copy_from_slice(&argument.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(content).build();
        // SAFETY: the caller vouches for the buffer, and this function returns when the kernel is done with it.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    if let Some(done) = self.ring.completion().next() {
                        return check(done.result()).map(|_| ());
                    }
                }
            }
        }
    }
}

/// The result of a command.
pub(super) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_numbers_are_those_of_the_kernel() {
        assert_eq!((size_of::<Command>(), size_of::<Information>(), size_of::<Parameters>()), (32, 64, 64));
        assert_eq!((size_of::<Asked>(), size_of::<Answer>()), (24, 16));
        assert_eq!((ADD, DELETE, FETCH), (0xc020_7504, 0x8020_7514, 0xc010_7520));
        let answer = Answer { queue: 1, tag: 2, result: -5, address: 7 };
        assert_eq!(answer.bytes()[..8], [1, 0, 2, 0, 0xfb, 0xff, 0xff, 0xff]);
    }
}
