//! A device as a file in a FUSE mount.
//!
//! The file is opened with direct I/O, so that the kernel keeps no second copy of its content; the loop device above it has
//! the page cache of the file system.

use super::Running;
use crate::disk::{BLOCK_BYTES, Disk};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, Session, SessionACL, WriteFlags,
};
use rustix::mount::{MountFlags, mount};
use std::cell::RefCell;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How long the kernel may keep attributes, which never change.
const KEPT: Duration = Duration::from_secs(1 << 30);
/// The longest request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// One answers while the other waits: with one alone, a third fewer writes followed by flushes are answered.
const THREADS: usize = 2;
/// The requests in progress at one time.
const REQUESTS_MAX: u16 = 64;
const DISK: INodeNo = INodeNo(2);

thread_local! {
    /// For the content of a thread's next reply.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system.
struct Shown {
    disk: Arc<Disk>,
    name: OsString,
}

/// A mount whose requests are not answered yet.
pub(super) struct Mounted(Session<Shown>);

impl Mounted {
    /// Mounts the file system; only root may do that.
    pub(super) fn new(disk: Arc<Disk>, folder: &Path, name: &str) -> io::Result<Mounted> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
        mount("kilnyard-block", folder, "fuse", flags, options.as_c_str())?;
        let shown = Shown { disk, name: name.into() };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        Session::from_fd(shown, OwnedFd::from(device), SessionACL::Owner, config).map(Mounted)
    }
}

impl Running for Mounted {
    fn run(self: Box<Self>) -> io::Result<()> {
        self.0.run()
    }
}

impl Shown {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_disk = inode == DISK;
        let size = if is_disk { self.disk.size_bytes() } else { 0 };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_disk { FileType::RegularFile } else { FileType::Directory },
            perm: if is_disk { 0o600 } else { 0o700 },
            nlink: if is_disk { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn end(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Shown {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An older kernel takes less; it then splits requests.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(REQUESTS_MAX);
        let _ = config.set_congestion_threshold(REQUESTS_MAX);
        // Without this, the kernel sends one request after the other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match parent == INodeNo::ROOT && name == self.name {
            true => reply.entry(&KEPT, &self.attributes(DISK), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A read may reach beyond the end of a file.
        let bytes = u64::from(size).min(self.disk.size_bytes().saturating_sub(offset)) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < bytes {
                buffer.resize(bytes, 0);
            }
            let buffer = &mut buffer[..bytes];
            match self.disk.read(offset, buffer) {
                Ok(()) => reply.data(buffer),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.disk.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The end of a descriptor, not a request for durability.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        end(self.disk.flush(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let is_whole = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        let done = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE if is_whole => self.disk.discard(offset, length),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => self.disk.zero(offset, length),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        end(done, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.disk.size_bytes() / BLOCK_BYTES;
        // The size of a block is that of discards, for the loop device.
        reply.statfs(blocks, 0, 0, 2, 0, BLOCK_BYTES as u32, 255, BLOCK_BYTES as u32);
    }
}
