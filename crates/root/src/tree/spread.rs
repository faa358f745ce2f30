//! Places for trees that come and go.

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::os::fd::AsFd;

/// Has ext4 place the folders of this one in different parts of the disk, as those of home folders (`chattr +T`).
///
/// It keeps the inodes of removed files from new ones for a minute or so (`recently_deleted` in `fs/ext4/ialloc.c`), and checks each
/// of them for each new file in the same part of the disk. Where one tree of thousands of files follows another, that takes more than
/// twenty times the time of writing the files. Other file systems need no such hint, and folders of other users keep what they have.
pub fn spread(folder: impl AsFd) {
    if let Ok(flags) = ioctl_getflags(&folder)
        && !flags.contains(IFlags::TOPDIR)
    {
        let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ext4_spreads_its_folders() {
        const EXT4: i64 = 0xef53;
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let opened = std::fs::File::open(folder.path()).unwrap();
        for _ in 0..2 {
            spread(&opened);
            let is_ext4 = rustix::fs::fstatfs(&opened).unwrap().f_type == EXT4;
            let is_spread = ioctl_getflags(&opened).is_ok_and(|flags| flags.contains(IFlags::TOPDIR));
            assert_eq!(is_spread, is_ext4);
        }
        // A file has no such attribute, and nothing happens to it.
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        spread(std::fs::File::open(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
    }
}
