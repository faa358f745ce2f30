//! Images of layers, for roots on block devices. They are stored with the dependency layers, within the same bound.

use super::{DEPENDENCIES, Layers, LayersInUse, Of};
use kilnyard_mirror::Sha256Hex;
use kilnyard_root::sandbox::RunError;
use kilnyard_root::{Device, FileSystem, Form, IdMap, ImagePlan, Operation, Sandbox, TREE, View, probe};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The image's file name in its layer.
const FILE: &str = "image";
/// Where a virtual machine has it mounted: a folder next to it, which does not exist here.
const MOUNTED: &str = "mounted";

/// An image that roots can be made of. It is not removed before this is dropped.
#[derive(Debug)]
pub struct Image {
    /// Relative to the yard.
    path: PathBuf,
    /// The layers in it, the lowest ones of a root.
    holds: Vec<PathBuf>,
    _held: Option<LayersInUse>,
}

impl Image {
    /// Makes an image in an existing folder of the yard. The caller removes that folder.
    pub fn make(
        yard: &Path,
        folder: &Path,
        ids: &IdMap,
        layers: &[String],
        device: &Device,
    ) -> Result<Image, RunError> {
        plan(yard, folder, layers, device).make(yard, ids)?;
        Ok(Image::made(folder, layers))
    }

    /// An existing image that [`Image::make`] made of these layers in a folder.
    pub fn made(folder: &Path, layers: &[String]) -> Image {
        Image { path: folder.join(FILE), holds: paths(layers), _held: None }
    }

    /// Replaces the layers of a root that are in the image by the image.
    pub(crate) fn below(&self, layers: &[String]) -> Vec<PathBuf> {
        let above = layers.len().saturating_sub(self.holds.len());
        layers[..above].iter().map(PathBuf::from).chain([self.path.clone()]).collect()
    }
    /// A sandbox that finds the layers on the disk of its machine, with that disk. The image must be read-only.
    pub(crate) fn on_disk(&self, sandbox: &Sandbox) -> (Sandbox, kilnyard_vm::Image) {
        let at = self.path.with_file_name(MOUNTED);
        let mut sandbox = sandbox.clone();
        if let View::Root(operations) = &mut sandbox.view {
            for operation in operations {
                if let Operation::Overlay { lower, .. } = operation
                    && lower.ends_with(&self.holds)
                {
                    lower.truncate(lower.len() - self.holds.len());
                    lower.push(at.join(TREE));
                }
            }
        }
        let (file, at) = (sandbox.folder.join(&self.path), sandbox.folder.join(at));
        (sandbox, kilnyard_vm::Image { file, at })
    }
}

/// The device of images for virtual machines.
pub(crate) const OF_MACHINES: Device = Device { file_system: FileSystem::Erofs, ..Device::STANDARD };

/// The layers of a root that go into its image: all but the dependency layers, which differ between roots.
pub(crate) fn imaged(layers: &[String]) -> &[String] {
    let above = layers.iter().take_while(|layer| Path::new(layer).starts_with(DEPENDENCIES)).count();
    &layers[above..]
}

/// The image for a root with these layers, and the plan to make it. `None` if the form of the root has no image.
pub(crate) fn planned(yard: &Path, layers: &[String], form: Form) -> Option<(Image, ImagePlan)> {
    let Form::Image(device) = form else { return None };
    let layers = imaged(layers);
    let folder = Path::new(DEPENDENCIES).join(name(layers, &device)).join("files");
    Some((Image::made(&folder, layers), plan(yard, &folder, layers, &device)))
}

fn plan(yard: &Path, folder: &Path, layers: &[String], device: &Device) -> ImagePlan {
    ImagePlan::new(yard, folder, FILE, &paths(layers), device)
}

fn paths(layers: &[String]) -> Vec<PathBuf> {
    layers.iter().map(PathBuf::from).collect()
}

fn name(layers: &[String], device: &Device) -> String {
    let Device { file_system, room_bytes, .. } = device;
    // A read-only file system needs no free space.
    let room_bytes = if file_system.is_written() { *room_bytes } else { 0 };
    let text = format!("{file_system} {room_bytes} {layers:?}");
    format!("images/{}", Sha256Hex::of(text.as_bytes()).as_str())
}

impl Layers {
    /// The image for a root with these layers, which is made if it does not exist. `None` if cancelled.
    pub(crate) fn image(
        &self,
        layers: &[String],
        device: &Device,
        cancel: &AtomicBool,
    ) -> Result<Option<Image>, RunError> {
        let layers = imaged(layers);
        let name = name(layers, device);
        // Other builds that need the same image wait for it.
        let Some(_claim) = self.claim(vec![name.clone()], cancel) else { return Ok(None) };
        let mut held = self.hold(std::slice::from_ref(&name));
        if held.is_none() {
            let part = self.new_part(&name);
            let made = self.make_image(&part, layers, device);
            let kept = made.and_then(|()| Ok(self.keep(&name, &self.yard.join(&part), Of::Image)?));
            if let Err(error) = kept {
                // The next sweep removes what could not be removed now.
                self.remove(&part);
                return Err(error);
            }
            held = self.hold(std::slice::from_ref(&name));
            // The next sweep removes what could not be removed now.
            let _ = self.evict();
        }
        let held = held.ok_or_else(|| io::Error::other("a new image was removed in the meantime"))?;
        let path = self.files(&name).join(FILE);
        Ok(Some(Image { path, holds: paths(layers), _held: Some(held) }))
    }

    fn make_image(&self, part: &Path, layers: &[String], device: &Device) -> Result<(), RunError> {
        fs_err::create_dir(self.yard.join(part))?;
        probe::give_to_root(&self.yard.join(part), &self.ids)?;
        // A virtual machine of an ordinary user has the ids of a root in their order.
        let ids = if self.ids.is_ordinary() { self.ids.in_order() } else { self.ids.clone() };
        plan(&self.yard, part, layers, device).make(&self.yard, &ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_layers_are_stacked_above_an_image() {
        let layers = ["layers/dependencies/sets/1/files", "layers/kit-1", "layers/base-1"].map(str::to_owned);
        assert_eq!(imaged(&layers), ["layers/kit-1", "layers/base-1"]);
        let (image, _) = planned(Path::new("/nowhere"), &layers, Form::Image(Device::default())).unwrap();
        let below = image.below(&layers);
        assert_eq!((below.len(), &below[0]), (2, &PathBuf::from(&layers[0])));
        assert!(below[1].starts_with("layers/dependencies/images"));
        // A different base or size gives a different image.
        let name_of =
            |layers: &[String], room_bytes| name(layers, &Device { room_bytes, ..Device::default() });
        assert_ne!(name_of(&layers, 1), name_of(&layers, 2));
        assert_ne!(name_of(&layers, 1), name_of(&layers[1..], 1));
        assert!(planned(Path::new("/nowhere"), &layers, Form::Overlay).is_none());
    }
}
