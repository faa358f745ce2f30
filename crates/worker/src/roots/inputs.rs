//! Files that a root is given before its commands run.

use super::RootFolder;
use kilnyard_model::order::{Input, InputText};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl RootFolder {
    /// Puts inputs into the root's input folder, as hard links if possible, and texts into a separate folder: sources
    /// and archives choose the names of inputs, and writing a text under such a name would overwrite a file of the
    /// file store.
    pub fn provide(
        &self,
        inputs: &[Input],
        texts: &[InputText],
        file_of: &dyn Fn(&Input) -> PathBuf,
    ) -> io::Result<()> {
        let folder = self.path().join("inputs");
        for input in inputs {
            provide_input(&file_of(input), &folder.join(safe_name(&input.name)?))?;
        }
        let folder = self.path().join("texts");
        for text in texts {
            fs_err::write(folder.join(safe_name(&text.name)?), &text.text)?;
        }
        Ok(())
    }

    /// Puts a file into the root's folder of texts, as a hard link if possible. Commands can only read it.
    pub(crate) fn provide_file(&self, name: &str, file: &Path) -> io::Result<()> {
        provide_input(file, &self.path().join("texts").join(safe_name(name)?))
    }
}

/// Never writes into an existing file: it may be a file of the store.
fn provide_input(source: &Path, target: &Path) -> io::Result<()> {
    match fs_err::hard_link(source, target) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        // They may be on different file systems, or the file may have the maximum number of links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            match fs_err::OpenOptions::new().write(true).create_new(true).open(target) {
                Ok(mut file) => return io::copy(&mut fs_err::File::open(source)?, &mut file).map(|_| ()),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(_) => {}
            }
        }
        Err(_) => {}
    }
    match is_same_content(source, target)? {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "two inputs of the source have the same name `{}`, but different content",
            target.file_name().unwrap_or_default().to_string_lossy()
        ))),
    }
}

fn is_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let facts = [fs_err::symlink_metadata(one)?, fs_err::symlink_metadata(other)?];
    if facts[0].dev() == facts[1].dev() && facts[0].ino() == facts[1].ino() {
        return Ok(true);
    }
    if facts[0].len() != facts[1].len() {
        return Ok(false);
    }
    let open = |path: &Path| fs_err::File::open(path).map(|file| BufReader::new(file).bytes());
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(true),
            (one, other) if one == other => {}
            _ => return Ok(false),
        }
    }
}

fn safe_name(name: &str) -> io::Result<&str> {
    let is_safe = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    is_safe.then_some(name).ok_or_else(|| io::Error::other(format!("`{name}` is not a file name")))
}
