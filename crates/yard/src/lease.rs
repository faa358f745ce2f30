//! Makes leases that any machine can perform: folders of this machine that an order names become artifacts.

use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_artifacts::{Artifacts, Folder, Storage, copy};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::order::{BuildOrder, FolderContent, FolderFile, Input, SharedFolder};
use kilnyard_root::archive::pack_shared;
use std::io::{self, BufWriter, PipeWriter};
use std::path::Path;

/// Copies everything that an order needs into a store of artifacts, and returns the order with references to
/// the content.
pub fn complete(yard: &Yard, distfiles: &FileStore, order: BuildOrder, to: &Folder) -> Result<BuildOrder> {
    let failed = "copy what the build needs";
    let archives = yard.trees().archives();
    for tree in &order.root.layers {
        copy(tree, &archives, to, Storage::Compressed).context(Kind::Machine, failed)?;
    }
    for input in &order.root.inputs {
        let artifact = of_input(input)?;
        match copy(&artifact, distfiles.artifacts(), to, Storage::Plain) {
            // The other machine fetches it from the same addresses as this one.
            Err(_) if !input.urls.is_empty() => {}
            copied => copied.context(Kind::Machine, format!("copy {}", input.name))?,
        }
    }
    let mut order = order;
    // If files still have to be fetched, the building machine fetches them into a folder of its own.
    let fetched = order.fetch.as_ref().map(|fetch| fetch.folder.name.clone());
    for folder in &mut order.root.folders {
        if fetched.as_deref() != Some(folder.name.as_str()) {
            folder.content = Some(content(yard, folder, to)?);
        }
    }
    Ok(order)
}

/// The artifact with an input's content.
pub fn of_input(input: &Input) -> Result<Artifact> {
    let sha256 = Sha256Hex::parse(&input.sha256).context(Kind::Machine, format!("find {}", input.name))?;
    Ok(Artifact { sha256, size_bytes: input.size_bytes, media: Media::Bytes })
}

/// The folder of a yard for the content of folders that other machines need.
pub const SHARED: &str = "state/shared";

/// Copies a folder of this machine into a store of artifacts, as far as an order needs it.
///
/// # Errors
/// The folder is missing, or cannot be read or copied.
pub fn content(yard: &Yard, folder: &SharedFolder, to: &Folder) -> Result<FolderContent> {
    let folders = yard.config.family.folders();
    let lacks = || Error::new(Kind::Internal, format!("this machine has no folder `{}`", folder.name));
    let source = folders.get(&folder.name).ok_or_else(lacks)?;
    let Some(names) = &folder.names else { return Ok(FolderContent::Tree(packed(source, to)?)) };
    let file = |name: &String| {
        let path = source.join(name);
        let failed = || format!("copy {}", path.display());
        let mut file = match fs_err::File::open(&path) {
            // The build reports it, if it needs it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.context(Kind::Machine, failed())?,
        };
        let (sha256, size_bytes) = to.insert(&mut file, Storage::Plain).context(Kind::Machine, failed())?;
        let artifact = Artifact { sha256, size_bytes, media: Media::Bytes };
        Ok(Some(FolderFile { name: name.clone(), artifact }))
    };
    let files: Vec<Option<FolderFile>> = names.iter().map(file).collect::<Result<_>>()?;
    Ok(FolderContent::Files(files.into_iter().flatten().collect()))
}

/// Packs a tree of recipes into the store.
fn packed(source: &Path, to: &Folder) -> Result<Artifact> {
    packed_by(source, to, |writer| pack_shared(source, writer))
}

/// Packs a tree, or a part of it, into the store.
pub(crate) fn packed_by(
    source: &Path,
    to: &Folder,
    pack: impl FnOnce(BufWriter<PipeWriter>) -> io::Result<()> + Send,
) -> Result<Artifact> {
    let failed = format!("pack {}", source.display());
    let (mut reader, writer) = io::pipe().context(Kind::Machine, &failed)?;
    let (sha256, size_bytes) = std::thread::scope(|scope| {
        let packing = scope.spawn(|| pack(BufWriter::new(writer)));
        let kept = to.insert(&mut reader, Storage::Compressed);
        // If `insert` failed, this makes the writer fail instead of blocking.
        drop(reader);
        let packed = packing.join().unwrap_or_else(|_| Err(io::Error::other("a bug in Kilnyard")));
        match (packed, kept) {
            (Ok(()), Ok(kept)) => Ok(kept),
            (Err(error), Ok((sha256, _))) => {
                // The store has a truncated archive under the hash of its content.
                let _ = to.remove(&sha256);
                Err(error).context(Kind::Machine, &failed)
            }
            (_, Err(error)) => Err(error).context(Kind::Machine, &failed),
        }
    })?;
    Ok(Artifact { sha256, size_bytes, media: Media::Tree })
}
