//! Images of layers.

use super::{Device, FileSystem};
use crate::sandbox::RunError;
use crate::{Content, Flushes, IdMap, Keeper, Operation, Source, remove_folder, used_bytes};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The folder on a device that holds a copy of the layers.
pub const TREE: &str = "tree";

/// Mount point of a writable image while it is made.
const MOUNTED: &str = "mounted";
/// The folder whose content is packed into a read-only image.
const PACKED: &str = "packed";

/// Overhead of a copy (inode tables, partly filled blocks): the size of the files divided by this.
const TABLES_PART: u64 = 8;
/// The size of an empty file system.
const EMPTY_BYTES: u64 = 16 << 20;
/// `mkfs.xfs` refuses to make a smaller file system; the log takes much of the space.
const XFS_BYTES_MIN: u64 = 320 << 20;
/// Image sizes are multiples of this.
const UNIT_BYTES: u64 = 1 << 20;

/// The operations that make an image. All paths are relative to the yard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlan {
    /// An existing folder. While the image is made, it also holds the mount point or the content to pack.
    folder: PathBuf,
    /// Performed by a keeper that ends immediately, and so undoes them.
    pub operations: Vec<Operation>,
}

impl ImagePlan {
    /// Plans an image of layers, uppermost first, under this name in a folder.
    pub fn new(yard: &Path, folder: &Path, name: &str, layers: &[PathBuf], device: &Device) -> ImagePlan {
        let image = folder.join(name);
        let operations = match device.file_system.is_written() {
            true => ImagePlan::written(yard, image, folder.join(MOUNTED), layers, device),
            false => ImagePlan::packed(image, folder.join(PACKED), layers),
        };
        ImagePlan { folder: folder.to_owned(), operations }
    }

    /// Formats a file, mounts it, and copies the layers into it.
    fn written(
        yard: &Path,
        image: PathBuf,
        at: PathBuf,
        layers: &[PathBuf],
        device: &Device,
    ) -> Vec<Operation> {
        let content_bytes = layers.iter().map(|layer| used_bytes(&yard.join(layer))).sum();
        let size_bytes = size_bytes(content_bytes, device);
        let file_system = device.file_system;
        let tree = at.join(TREE);
        // All written data must be in the image when it is detached.
        let flushes = Flushes::Keep;
        vec![
            Operation::Format { image: image.clone(), file_system, size_bytes },
            Operation::Attach { source: Source::File(image.clone()), device: image.clone() },
            Operation::Folder { path: at.clone() },
            Operation::Mount { device: image, target: at, file_system, flushes },
            Operation::Folder { path: tree.clone() },
            Operation::Copy { lower: layers.to_vec(), target: tree, content: Content::Own },
        ]
    }

    /// Packs a folder of hard links that shows the layers merged.
    fn packed(image: PathBuf, of: PathBuf, layers: &[PathBuf]) -> Vec<Operation> {
        let tree = of.join(TREE);
        vec![
            Operation::Folder { path: of.clone() },
            Operation::Folder { path: tree.clone() },
            Operation::Copy { lower: layers.to_vec(), target: tree, content: Content::Shared },
            Operation::Pack { folder: of, image },
        ]
    }

    /// Makes the image. After a failure, partial results are left in the folder.
    pub fn make(&self, yard: &Path, ids: &IdMap) -> Result<(), RunError> {
        Keeper::start(yard, ids, self.operations.clone())?.end()?;
        match fs_err::remove_dir(yard.join(&self.folder).join(MOUNTED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RunError::Files(error)),
            _ => remove_folder(yard, &self.folder.join(PACKED), ids),
        }
    }
}

/// The size of the image for layers of this size.
fn size_bytes(content_bytes: u64, device: &Device) -> u64 {
    let copied = content_bytes.saturating_add(content_bytes / TABLES_PART).saturating_add(EMPTY_BYTES);
    let wanted = copied.saturating_add(device.room_bytes);
    let least = match device.file_system {
        FileSystem::Ext4 | FileSystem::Erofs => 0,
        FileSystem::Xfs => XFS_BYTES_MIN,
    };
    wanted.max(least).div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_made_in_this_order() {
        let plan = ImagePlan::new(
            Path::new("/nowhere"),
            Path::new("images/x.part"),
            "image",
            &["layers/kit".into(), "layers/base".into()],
            &Device { room_bytes: 48 << 20, ..Device::default() },
        );
        let lines: Vec<String> = plan.operations.iter().map(ToString::to_string).collect();
        let expected = [
            "format images/x.part/image of 67108864 bytes as ext4",
            "attach the file images/x.part/image",
            "folder images/x.part/mounted",
            "mount ext4 of images/x.part/image at images/x.part/mounted, flushed",
            "folder images/x.part/mounted/tree",
            "copy layers/kit:layers/base to images/x.part/mounted/tree",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_read_only_image_is_packed_from_links() {
        let device = Device { file_system: FileSystem::Erofs, ..Device::default() };
        let layers = ["layers/kit".into(), "layers/base".into()];
        let plan =
            ImagePlan::new(Path::new("/nowhere"), Path::new("images/x.part"), "image", &layers, &device);
        let lines: Vec<String> = plan.operations.iter().map(ToString::to_string).collect();
        let expected = [
            "folder images/x.part/packed",
            "folder images/x.part/packed/tree",
            "hard-link layers/kit:layers/base to images/x.part/packed/tree",
            "pack images/x.part/packed into images/x.part/image as erofs",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_image_has_room_for_its_content_and_for_writes() {
        let device = |file_system| Device { file_system, room_bytes: 5, ..Device::default() };
        let least = size_bytes(800 << 20, &device(FileSystem::Ext4));
        assert_eq!(least, (800 + 100 + 16 + 1) << 20);
        assert_eq!(size_bytes(0, &device(FileSystem::Xfs)), XFS_BYTES_MIN);
        let huge = Device { room_bytes: u64::MAX, ..Device::default() };
        assert_eq!(size_bytes(u64::MAX, &huge), u64::MAX);
    }
}
