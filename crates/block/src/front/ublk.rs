//! A device as a block device of the kernel, by ublk_drv: Linux 6.9 or later, and root.
//!
//! The kernel hands requests to threads of this process by io_uring, a queue to each thread. Nothing is between a file
//! system and the [`Disk`]: no loop device and no second file system. If flushes are neither kept nor logged, the kernel
//! ends them itself, and they are not counted.
//!
//! A device is removed at the end of the process. The kernel stops the device of a server that was killed, so that its
//! users get errors, but keeps its number and its control node: the next server removes those. Servers start one after
//! the other, under a lock, so that none takes a device that starts for one that is left behind.
//!
//! Known downside: the nodes /dev/ublkbN and /dev/ublkcN appear in devtmpfs alone, so a container needs the /dev of the
//! machine.

mod kernel;
mod queue;

use super::{Removal, Running};
use crate::disk::{BLOCK_BYTES, Disk};
use kernel::{Control, Information, Parameters, SECTOR_BYTES};
use queue::Queue;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// One answers while the other waits, as with FUSE.
const QUEUES: u16 = 2;
/// The requests of a queue at one time. With [`REQUEST_BYTES_MAX`], buffers take 8 MiB at most.
const DEPTH: u16 = 32;
/// The longest request with data; the kernel splits longer ones.
const REQUEST_BYTES_MAX: u32 = 128 << 10;
/// The longest request without data.
const DROPPED_BYTES_MAX: u64 = 1 << 30;

/// A device that was started.
pub(super) struct Device {
    added: Option<Added>,
    queues: usize,
    /// How the queues ended.
    ended: Receiver<io::Result<()>>,
}

impl Device {
    /// Makes the device and a link to it.
    pub(super) fn new(disk: &Arc<Disk>, link: &Path) -> io::Result<Device> {
        let mut control = Control::open()?;
        // The lock ends with this function.
        let lock = File::open(kernel::CONTROL)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        remove_dead(&mut control)?;
        let asked = Information {
            queues: QUEUES,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            ..Information::default()
        };
        let got = control.add(asked)?;
        let mut added = Added { control, number: Some(got.number), device: None, link: None };
        added.control.set(got.number, parameters(disk, &got))?;
        let device = File::options().read(true).write(true).open(format!("/dev/ublkc{}", got.number))?;
        let device = added.device.insert(Arc::new(device));
        let ended = serve(disk, device, &got)?;
        added.control.start(got.number)?;
        keep_a_tag(&got);
        symlink(format!("/dev/ublkb{}", got.number), link)?;
        added.link = Some(link.to_owned());
        Ok(Device { added: Some(added), queues: got.queues.into(), ended })
    }
}

impl Running for Device {
    fn run(self: Box<Self>) -> io::Result<()> {
        // All end when another program removes the device. The first that fails ends the process: the kernel stops the
        // device then.
        self.ended.iter().take(self.queues).collect()
    }

    fn removal(&mut self) -> Removal {
        let added = self.added.take();
        Box::new(move || added.map_or(Ok(()), |mut added| added.remove()))
    }
}

/// A device to remove, also if it could not be started.
struct Added {
    control: Control,
    /// Until it is removed.
    number: Option<u32>,
    /// No other device gets the number while this is open.
    device: Option<Arc<File>>,
    link: Option<PathBuf>,
}

impl Added {
    fn remove(&mut self) -> io::Result<()> {
        let removed = self.number.take().map_or(Ok(()), |number| self.control.remove(number));
        if let Some(link) = self.link.take() {
            // Its folder may be gone.
            let _ = std::fs::remove_file(link);
        }
        removed
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        // The error that ended the start is the one to report.
        let _ = self.remove();
    }
}

/// Leaves one tag of each queue with the kernel. Linux 6.12 notices by such a tag that a server was killed; otherwise, the
/// requests in progress fail after 30 seconds.
fn keep_a_tag(got: &Information) {
    let setting = format!("/sys/block/ublkb{}/queue/nr_requests", got.number);
    // Where /sys is read-only, as in containers, errors are late.
    let _ = std::fs::write(setting, (got.depth - 1).to_string());
}

/// Removes the devices of servers that were killed.
fn remove_dead(control: &mut Control) -> io::Result<()> {
    for entry in std::fs::read_dir("/dev")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse().ok());
        if let Some(number) = number.filter(|number| control.is_dead(*number)) {
            // One that remains takes a number, and does no other harm.
            let _ = control.remove(number);
        }
    }
    Ok(())
}

fn parameters(disk: &Disk, got: &Information) -> Parameters {
    let block_shift = BLOCK_BYTES.trailing_zeros() as u8;
    Parameters {
        // Without this, the kernel itself ends flushes.
        attributes: if disk.wants_flushes() { Parameters::VOLATILE_CACHE } else { 0 },
        // That of a loop device: images are made on one.
        logical_block_shift: SECTOR_BYTES.trailing_zeros() as u8,
        physical_block_shift: block_shift,
        best_request_shift: block_shift,
        least_request_shift: block_shift,
        request_sectors_max: got.request_bytes_max / SECTOR_BYTES as u32,
        sectors: disk.size_bytes() / SECTOR_BYTES,
        discard_bytes_min: BLOCK_BYTES as u32,
        discard_sectors_max: (DROPPED_BYTES_MAX / SECTOR_BYTES) as u32,
        zero_sectors_max: (DROPPED_BYTES_MAX / SECTOR_BYTES) as u32,
        ..Parameters::default()
    }
}

/// Starts the threads, and returns when all of them fetch requests.
fn serve(disk: &Arc<Disk>, device: &Arc<File>, got: &Information) -> io::Result<Receiver<io::Result<()>>> {
    let (end, ended) = sync_channel(got.queues.into());
    let (begin, begun) = sync_channel(got.queues.into());
    for number in 0..got.queues {
        let (depth, request_bytes_max) = (got.depth, got.request_bytes_max as usize);
        let (disk, device) = (disk.clone(), device.clone());
        let (begin, end): (SyncSender<_>, SyncSender<_>) = (begin.clone(), end.clone());
        std::thread::Builder::new().spawn(move || {
            match Queue::new(disk, device, number, depth, request_bytes_max) {
                Ok(queue) => {
                    // No thread receives these while the process ends.
                    let _ = begin.send(Ok(()));
                    let _ = end.send(queue.serve());
                }
                Err(error) => drop(begin.send(Err(error))),
            }
        })?;
    }
    // A thread that panics sends nothing.
    drop(begin);
    begun.iter().take(got.queues.into()).collect::<io::Result<()>>()?;
    Ok(ended)
}
