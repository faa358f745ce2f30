//! Images of layers.

use super::{Device, FileSystem};
use crate::sandbox::RunError;
use crate::{Content, Flushes, IdMap, Keeper, Operation, Source, remove_folder, used_bytes};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The folder of a device that its layers are copied to.
pub const TREE: &str = "tree";

/// The folder that an image is mounted at while it is written.
const MOUNTED: &str = "mounted";
/// The folder that an image is made of which is not written.
const PACKED: &str = "packed";

/// What a copy takes beside what the files take, as a divisor: tables of files, and ends of blocks.
const TABLES_PART: u64 = 8;
/// What a file system takes that is empty.
const EMPTY_BYTES: u64 = 16 << 20;
/// Its makers refuse to make a smaller one, and it needs the rest for its log.
const XFS_BYTES_MIN: u64 = 320 << 20;
/// Sizes are whole multiples of it.
const UNIT_BYTES: u64 = 1 << 20;

/// How an image is made. All paths are relative to the yard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlan {
    /// The folder that it is made in, which is there: beside the image there is a folder to mount it at meanwhile, or with what it is
    /// made of.
    folder: PathBuf,
    /// What is done, and taken back at once.
    pub operations: Vec<Operation>,
}

impl ImagePlan {
    /// An image with this name of layers, the uppermost first, in a folder.
    pub fn new(yard: &Path, folder: &Path, name: &str, layers: &[PathBuf], device: &Device) -> ImagePlan {
        let image = folder.join(name);
        let operations = match device.file_system.is_written() {
            true => ImagePlan::written(yard, image, folder.join(MOUNTED), layers, device),
            false => ImagePlan::packed(image, folder.join(PACKED), layers),
        };
        ImagePlan { folder: folder.to_owned(), operations }
    }

    /// It is mounted, and written to.
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
        // What is written has to be in the image when it is detached.
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

    /// It is made of a folder that shows what the layers show together.
    fn packed(image: PathBuf, of: PathBuf, layers: &[PathBuf]) -> Vec<Operation> {
        let tree = of.join(TREE);
        vec![
            Operation::Folder { path: of.clone() },
            Operation::Folder { path: tree.clone() },
            Operation::Copy { lower: layers.to_vec(), target: tree, content: Content::Shared },
            Operation::Pack { folder: of, image },
        ]
    }

    /// Makes it. What is left when it failed is in the folder.
    pub fn make(&self, yard: &Path, ids: &IdMap) -> Result<(), RunError> {
        Keeper::start(yard, ids, self.operations.clone())?.end()?;
        match fs_err::remove_dir(yard.join(&self.folder).join(MOUNTED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RunError::Files(error)),
            _ => remove_folder(yard, &self.folder.join(PACKED), ids),
        }
    }
}

/// How large a device has to be.
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
    fn an_image_that_is_not_written_is_made_of_links() {
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
    fn there_is_room_for_what_is_there_and_for_what_comes() {
        let device = |file_system| Device { file_system, room_bytes: 5, ..Device::default() };
        let least = size_bytes(800 << 20, &device(FileSystem::Ext4));
        assert_eq!(least, (800 + 100 + 16 + 1) << 20);
        assert_eq!(size_bytes(0, &device(FileSystem::Xfs)), XFS_BYTES_MIN);
        let huge = Device { room_bytes: u64::MAX, ..Device::default() };
        assert_eq!(size_bytes(u64::MAX, &huge), u64::MAX);
    }
}
