//! Performs a publication.

use crate::index::{self, Form};
use crate::{KEY_FILE, Operation, Publication, PublishError, Signer};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

impl Publication {
    /// Performs all steps; whether anything changed.
    pub fn execute(&self, signer: &dyn Signer) -> Result<bool, PublishError> {
        for operation in &self.operations {
            self.perform(operation, signer)?;
        }
        Ok(!self.operations.is_empty())
    }

    fn perform(&self, operation: &Operation, signer: &dyn Signer) -> Result<(), PublishError> {
        let at = |path: &Path| self.repository.join(path);
        match operation {
            Operation::Sweep { path } | Operation::Forget { path } => {
                let path = at(path);
                fs::remove_dir_all(&path).map_err(|source| disk("remove", &path, source))
            }
            Operation::Pool { file, path, .. } => {
                let target = at(path);
                put(file, &target).map_err(|source| disk("put into the pool", &target, source))
            }
            Operation::Generation { path, before } => {
                self.generation(&at(path), before.as_deref().map(at).as_deref(), signer)
            }
            Operation::Key => {
                let text = signer.public_armored().map_err(PublishError::Sign)?;
                let path = at(Path::new(KEY_FILE));
                write_whole(&path, text.as_bytes()).map_err(|source| disk("write", &path, source))
            }
            Operation::Switch { link, generation } => {
                let link = at(link);
                switch(&link, generation).map_err(|source| disk("switch", &link, source))
            }
        }
    }

    fn generation(
        &self,
        folder: &Path,
        before: Option<&Path>,
        signer: &dyn Signer,
    ) -> Result<(), PublishError> {
        let failed = |source| disk("write", folder, source);
        let mut listed = Vec::new();
        for file in &self.indexes {
            let path = folder.join(&file.path);
            let parent = path.parent().unwrap_or(folder).to_owned();
            let by_hash = parent.join("by-hash/SHA256");
            fs::create_dir_all(&by_hash).map_err(failed)?;
            for form in Form::ALL {
                let bytes = form.pack(&file.text).map_err(failed)?;
                let hash = index::hash(&bytes);
                let plain = format!("{}{}", path.display(), form.suffix());
                write_synced(Path::new(&plain), &bytes).map_err(failed)?;
                link(Path::new(&plain), &by_hash.join(&hash)).map_err(failed)?;
                listed.push((format!("{}{}", file.path, form.suffix()), bytes.len() as u64, hash));
            }
            if let Some(before) = before {
                let earlier = before.join(&file.path);
                let earlier = earlier.parent().unwrap_or(before).join("by-hash/SHA256");
                carry_over(&earlier, &by_hash).map_err(failed)?;
            }
            sync(&by_hash).map_err(failed)?;
            sync(&parent).map_err(failed)?;
        }
        let release = index::release(&self.facts, &listed);
        let clear = signer.sign_clear(&release).map_err(PublishError::Sign)?;
        let detached = signer.sign_detached(release.as_bytes()).map_err(PublishError::Sign)?;
        for (name, text) in [("Release", &release), ("Release.gpg", &detached), ("InRelease", &clear)] {
            write_synced(&folder.join(name), text.as_bytes()).map_err(failed)?;
        }
        sync(folder).map_err(failed)?;
        sync(folder.parent().unwrap_or(folder)).map_err(failed)
    }
}

fn disk(action: &'static str, path: &Path, source: io::Error) -> PublishError {
    PublishError::Disk { action, path: path.to_owned(), source }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = part_of(path);
    write_synced(&part, bytes)?;
    fs::rename(&part, path)
}

/// Links a file to a second name; a name that is there already leads to the same content.
fn link(file: &Path, name: &Path) -> io::Result<()> {
    match fs::hard_link(file, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Makes the indexes of earlier generations reachable by their hashes: those that the generation before had
/// itself and those that it carried. The ones that only forgotten generations had fall away by their age.
fn carry_over(earlier: &Path, by_hash: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(earlier) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let keep = (crate::GENERATIONS_KEPT - 1) * Form::ALL.len();
    for (_, file) in files.iter().rev().take(keep) {
        link(file, &by_hash.join(file.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn put(file: &Path, target: &Path) -> io::Result<()> {
    let folder = target.parent().unwrap_or(target);
    fs::create_dir_all(folder)?;
    let part = part_of(target);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if fs::hard_link(file, &part).is_err() {
        fs::copy(file, &part)?;
        sync(&part)?;
    }
    fs::rename(&part, target)?;
    sync(folder)
}

fn switch(link: &Path, generation: &Path) -> io::Result<()> {
    let folder = link.parent().unwrap_or(link);
    fs::create_dir_all(folder)?;
    let part = part_of(link);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(Path::new("..").join(generation), &part)?;
    fs::rename(&part, link)?;
    sync(folder)
}
