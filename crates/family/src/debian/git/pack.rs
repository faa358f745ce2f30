//! Makes a source package from a commit: `dpkg-source --build` in a sandbox that has the machine's programs, no
//! network, and the ids of a root. No code of the source runs: dpkg-source reads it, and applies its patches.
//!
//! The result follows from the commit: the tree is exported without attributes, owners and times come from the commit
//! and the changelog, and one thread compresses.

use crate::debian::Debian;
use crate::debian::scan::Index;
use crate::git::{Copy, Failed};
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::packaging::{self, Changelog};
use kilnyard_ecosystem::debian::suites::is_suite_name;
use kilnyard_ecosystem::git::{GitAddress, Repository};
use kilnyard_mirror::{Sha256Hex, Wanted};
use kilnyard_model::text;
use kilnyard_process::End;
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Access, Operation, Sandbox, View, remove_folder};
use kilnyard_yard::error::Error;
use kilnyard_yard::layers::make_layer;
use kilnyard_yard::mirror::client;
use kilnyard_yard::yard::Yard;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Working folder of the sandbox.
const WORK: &str = "roots/git";
/// Where the sandbox shows it: see the base root, which hides the same folder.
const SHOWN: &str = "/sys";
/// The exported tree, in the working folder.
const TREE: &str = "tree.tar";
/// Lines of dpkg-source's messages that a reason shows.
const LINES_SHOWN: usize = 6;
/// How much of its messages is kept.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The compressions of upstream archives, most common first.
const COMPRESSIONS: [&str; 4] = ["xz", "gz", "bz2", "lzma"];
/// The compression level of upstream archives that are exported from a tag: xz's default.
const XZ_LEVEL: u32 = 6;

/// `$1` is the name of the folder, which becomes that of the tarball of a native package; `$2` is how many folders lead to the package in
/// the archive.
const BUILD: &str = r#"
mkdir "$1"
tar --extract --file=tree.tar --directory="$1" --no-same-owner --strip-components="$2"
rm tree.tar
exec dpkg-source --threads-max=1 --compression=xz --build "$1"
"#;

/// A commit to make a source package from.
pub struct Pack<'a> {
    pub yard: &'a Yard,
    pub debian: &'a Debian,
    pub rule: &'a GitAddress,
    pub copy: &'a Copy<'a>,
    pub commit: &'a str,
    pub cancel: &'a AtomicBool,
}

/// The form of a source package (dpkg-source(1)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Native,
    Quilt,
}

impl Pack<'_> {
    /// A file of the package, as text; absent if there is none.
    fn file(&self, path: &str) -> Option<String> {
        match &self.rule.folder {
            Some(folder) => self.copy.file(self.commit, &format!("{folder}/{path}")),
            None => self.copy.file(self.commit, path),
        }
    }

    /// The first entry of the commit's changelog.
    pub fn changelog(&self) -> Result<Changelog, Failed> {
        let text = self.file("debian/changelog");
        let text = text.ok_or_else(|| Failed::Reason("it has no debian/changelog".to_owned()))?;
        Changelog::parse(&text).map_err(|reason| Failed::Reason(format!("debian/changelog {reason}")))
    }

    /// Makes the source package in a folder, and returns the path of its `.dsc`.
    pub fn make(&self, changelog: &Changelog, target: &Path) -> Result<PathBuf, Failed> {
        let ids = self.yard.ids();
        let failed = |error: &dyn std::fmt::Display| Failed::Reason(format!("failed to prepare: {error}"));
        let remove = || remove_folder(&self.yard.folder, WORK.as_ref(), &ids);
        remove().map_err(|error| failed(&error))?;
        fs_err::create_dir_all(self.yard.path("roots")).map_err(|error| failed(&error))?;
        make_layer(self.yard, &ids, WORK).map_err(|error| failed(&error))?;
        let made = self.make_within(changelog, target);
        // The next source package removes what is left.
        let _ = remove();
        made
    }

    fn make_within(&self, changelog: &Changelog, target: &Path) -> Result<PathBuf, Failed> {
        let work = self.yard.path(WORK);
        if self.format()? == Format::Quilt {
            self.find_original(changelog, &work)?;
        }
        self.copy.export(self.commit, self.rule.folder.as_deref(), "", &work.join(TREE))?;
        self.build(changelog)?;
        keep(&work, target)
    }

    fn format(&self) -> Result<Format, Failed> {
        let text = self.file("debian/source/format").unwrap_or_default();
        match text.lines().next().unwrap_or_default().trim() {
            "3.0 (native)" => Ok(Format::Native),
            "3.0 (quilt)" => Ok(Format::Quilt),
            // 3.0 (git) and others run programs on the tree.
            other => Err(Failed::Reason(format!(
                "debian/source/format is `{}`, but only 3.0 (native) and 3.0 (quilt) are supported",
                text::line(other)
            ))),
        }
    }

    /// Puts the upstream archive into the working folder: from the tag of its version, from the folder that contains
    /// the repository, or from the yard's archives.
    fn find_original(&self, changelog: &Changelog, work: &Path) -> Result<(), Failed> {
        let stem = format!("{}_{}.orig.tar", changelog.source, changelog.upstream());
        let gbp_conf = self.file("debian/gbp.conf").unwrap_or_default();
        let tag = packaging::upstream_tag(&gbp_conf, changelog.upstream());
        let tagged = tag.as_ref().and_then(|tag| self.copy.commit(&format!("refs/tags/{tag}")));
        if let Some(commit) = tagged {
            let folder = format!("{}-{}", changelog.source, changelog.upstream());
            let plain = work.join(&stem);
            self.copy.export(&commit, None, &folder, &plain)?;
            let packed = compress(&plain, &work.join(format!("{stem}.xz")));
            return packed.map_err(|error| Failed::Reason(format!("failed to write {stem}.xz: {error}")));
        }
        if let Some(file) = self.beside(&stem) {
            let name = file.file_name().unwrap_or_default();
            let copied = fs_err::copy(&file, work.join(name));
            return copied.map(drop).map_err(|error| Failed::Reason(error.to_string()));
        }
        if self.fetch_original(&changelog.source, &stem, work)? {
            return Ok(());
        }
        let tag = tag.map_or("debian/gbp.conf names no usable upstream-tag".to_owned(), |tag| {
            format!("the repository has no tag {tag}")
        });
        Err(Failed::Reason(format!(
            "there is no upstream archive: {tag}, and no {stem}.* is next to it or in an archive"
        )))
    }

    /// Fetches the upstream archive of any version of the source that the yard's archives have. False if there is none.
    fn fetch_original(&self, source: &str, stem: &str, work: &Path) -> Result<bool, Failed> {
        let failed = |error: Error| Failed::Reason(error.message);
        let index = Index::open(self.yard).map_err(failed)?;
        let (sources, suites) = index.sources(self.yard, self.debian).map_err(failed)?;
        for (found, suite) in sources.stanzas(source) {
            let files = found.files().unwrap_or_default().into_iter();
            let is_original = |name: &str| COMPRESSIONS.iter().any(|end| name == format!("{stem}.{end}"));
            let Some(file) = files.into_iter().find(|file| is_original(&file.name)) else { continue };
            let Some(suite) = suites.get(suite).filter(|_| is_suite_name(found.directory())) else {
                continue;
            };
            let Ok(sha256) = Sha256Hex::parse(&file.sha256) else { continue };
            let url = |mirror: &String| {
                format!("{}/{}/{}", mirror.trim_end_matches('/'), found.directory(), file.name)
            };
            let urls = suite.mirrors.iter().map(url).collect();
            let wanted = Wanted { urls, sha256, size_bytes: file.size_bytes, name: file.name.clone() };
            client(self.yard).fetch_checked(&wanted, &work.join(&file.name), &|_| {}, self.cancel).map_err(
                |error| match error.is_cancelled() {
                    true => Failed::Cancelled,
                    false => Failed::Reason(format!("failed to {error}")),
                },
            )?;
            return Ok(true);
        }
        Ok(false)
    }

    /// An upstream archive next to the package's folder in a repository of this machine, or in the yard.
    fn beside(&self, stem: &str) -> Option<PathBuf> {
        let mut folders = vec![self.yard.home.clone()];
        if let Repository::Folder(path) = &self.rule.repository {
            let package = self.yard.home.join(path).join(self.rule.folder.as_deref().unwrap_or_default());
            folders.extend(package.parent().map(Path::to_owned));
        }
        let named =
            folders.iter().flat_map(|folder| COMPRESSIONS.map(|end| folder.join(format!("{stem}.{end}"))));
        named.into_iter().find(|file| file.is_file())
    }

    fn build(&self, changelog: &Changelog) -> Result<(), Failed> {
        let ids = self.yard.ids();
        let folder = format!("{}-{}", changelog.source, changelog.upstream());
        let depth = self.rule.folder.as_ref().map_or(0, |folder| folder.split('/').count()).to_string();
        let arguments = ["/bin/sh", "-eu", "-c", BUILD, "sh", &folder, &depth].map(str::to_owned).into();
        let show = Operation::Bind { source: WORK.into(), target: SHOWN.into(), access: Access::Write };
        let mut sandbox = Sandbox::of_machine(&self.yard.folder, &ids, Task::Program(arguments));
        sandbox.view = View::Root(vec![show]);
        sandbox.directory = SHOWN.into();
        sandbox.has_network = false;
        sandbox.environment = [
            ("PATH", "/usr/bin:/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("HOME", "/nonexistent"),
            ("TMPDIR", SHOWN),
            // Some sources have different patches for each vendor.
            ("DEB_VENDOR", "Debian"),
            ("SOURCE_DATE_EPOCH", &changelog.date_seconds.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let mut said = Said(Vec::new());
        let limits = self.yard.config.limits().limits(None);
        let outcome = kilnyard_process::run(&sandbox, &mut said, limits, self.cancel, None, &mut |_| ());
        match outcome.end {
            End::Exit(0) => Ok(()),
            End::Cancelled => Err(Failed::Cancelled),
            End::SandboxFailed(reason) | End::LogFailed(reason) => Err(Failed::Reason(reason)),
            _ => {
                let text = String::from_utf8_lossy(&said.0).into_owned();
                let lines: Vec<String> = text.lines().map(text::line).collect();
                // The names of the changed files precede the error.
                let begins = |line: &String| line.contains("error: ") || line.contains("changes detected");
                let first = lines.iter().position(begins);
                let first = first.unwrap_or(lines.len().saturating_sub(LINES_SHOWN));
                let said = lines[first..].iter().filter(|line| !line.contains(" info: "));
                let shown: Vec<&str> = said.take(LINES_SHOWN).map(|line| line.trim()).collect();
                Err(Failed::Reason(format!("failed to make the source package: {}", shown.join("; "))))
            }
        }
    }
}

/// The beginning of a command's output.
struct Said(Vec<u8>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses a file, and removes it.
fn compress(plain: &Path, target: &Path) -> io::Result<()> {
    let mut packed = liblzma::write::XzEncoder::new(fs_err::File::create(target)?, XZ_LEVEL);
    io::copy(&mut fs_err::File::open(plain)?, &mut packed)?;
    packed.finish()?;
    fs_err::remove_file(plain)
}

/// Moves the `.dsc` and the files that it lists from the working folder to their place.
fn keep(work: &Path, target: &Path) -> Result<PathBuf, Failed> {
    let failed = |error: io::Error| Failed::Reason(format!("failed to store the source package: {error}"));
    let entries = fs_err::read_dir(work).map_err(failed)?.flatten();
    let dsc = entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "dsc"));
    let dsc = dsc.ok_or_else(|| Failed::Reason("dpkg-source made no .dsc".to_owned()))?;
    // The sandbox has ended: nothing changes between the check and the copy.
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let text = fs_err::read_to_string(&dsc).map_err(failed)?;
    let listed = Stanza::new(text.trim_end()).get("Checksums-Sha256").unwrap_or("").to_owned();
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    let part = target.with_extension("part");
    let _ = fs_err::remove_dir_all(&part);
    fs_err::create_dir_all(&part).map_err(failed)?;
    for name in names.chain(dsc.file_name().and_then(|name| name.to_str())) {
        let from = work.join(name);
        if name.contains('/') || !is_file(&from) {
            return Err(Failed::Reason(format!("the source package lists {}", text::line(name))));
        }
        fs_err::copy(&from, part.join(name)).map_err(failed)?;
    }
    let _ = fs_err::remove_dir_all(target);
    fs_err::rename(&part, target).map_err(failed)?;
    Ok(target.join(dsc.file_name().unwrap_or_default()))
}
