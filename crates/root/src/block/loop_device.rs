//! Loop devices that clear themselves (loop(4)).

use super::holders;
use crate::sandbox::system::check;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

// linux/loop.h
const CONFIGURE: libc::c_ulong = 0x4c0a;
const GET_FREE: libc::c_ulong = 0x4c82;
const CLEARS_ITSELF: u32 = 4;
const DIRECT: u32 = 16;

/// Attempts to get a free device: another program may take it first.
const TRIES_MAX: usize = 64;

#[repr(C)]
struct Information {
    device: u64,
    inode: u64,
    own_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    cipher_name: [u8; 64],
    key: [u8; 32],
    more: [u64; 2],
}

#[repr(C)]
struct Configuration {
    file: u32,
    block_size: u32,
    information: Information,
    reserved: [u64; 8],
}

/// A device backed by a file. It clears itself once this value is dropped and its file system is unmounted.
pub(super) struct LoopDevice {
    number: i32,
    device: File,
}

impl LoopDevice {
    /// Makes a device for a file. It uses direct I/O if the file allows that, so that data is not cached twice.
    pub(super) fn show(file: &Path) -> io::Result<LoopDevice> {
        let file = OpenOptions::new().read(true).write(true).open(file)?;
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
        for _ in 0..TRIES_MAX {
            // SAFETY: the descriptor is open; the request takes no argument.
            let number = check(unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE as _) })?;
            let device = OpenOptions::new().read(true).write(true).open(node(number))?;
            match configure(&device, &file) {
                Ok(()) => return Ok(LoopDevice { number, device }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(super) fn node(&self) -> PathBuf {
        node(self.number)
    }

    /// Closes it and waits until the kernel has released it.
    pub(super) fn clear(self) -> io::Result<()> {
        let number = self.device.metadata()?.rdev();
        let shown = format!("/sys/block/loop{}/loop/backing_file", self.number);
        drop(self.device);
        if holders::wait_until(|| Ok(!Path::new(&shown).exists()))? {
            return Ok(());
        }
        Err(holders::held(&node(self.number).display().to_string(), &holders::of_device(number)))
    }
}

fn node(number: i32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn configure(device: &File, file: &File) -> io::Result<()> {
    // SAFETY: the structure holds only integers and arrays of integers, for which all bits zero are a valid value.
    let mut configuration: Configuration = unsafe { std::mem::zeroed() };
    configuration.file = file.as_raw_fd() as u32;
    configuration.information.flags = CLEARS_ITSELF | DIRECT;
    // SAFETY: both descriptors are open; the request reads the structure, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE as _, &configuration) };
    check(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_a_configuration_of_this_size() {
        assert_eq!((size_of::<Information>(), size_of::<Configuration>()), (232, 304));
    }
}
