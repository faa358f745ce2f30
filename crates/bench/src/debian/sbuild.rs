//! Builds a package with sbuild in `unshare` mode, as a Debian developer would. sbuild unpacks a tarball of the
//! release, upgrades it, installs the dependencies with apt, builds, and discards everything. The steps after a build
//! (lintian, piuparts, autopkgtest) are left out.

use crate::child;
use crate::error::{Context, Error, Kind, Result};
use crate::mirror;
use crate::overhead::{Peer, PeerBuild};
use crate::scratch::Scratch;
use crate::shape::Shape;
use crate::subject;
use crate::yard::Yard;
use kilnyard_family::debian::Debian;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::order::BuildOrder;
use std::path::{Path, PathBuf};
use std::process::Command;

/// sbuild as a peer, with the path of a tarball of the release.
pub struct Sbuild<'a>(pub &'a Path);

struct Build {
    /// A tarball of the release.
    chroot: PathBuf,
    release: String,
    jobs: u32,
    /// The folder with the source. Outputs are written there too.
    folder: PathBuf,
    description: String,
}

impl Peer for Sbuild<'_> {
    fn name(&self) -> &'static str {
        "sbuild"
    }

    fn prepare(&self, scratch: &Scratch, yard: &Yard, order: &BuildOrder) -> Result<Box<dyn PeerBuild>> {
        let chroot = self.0;
        let failed = "prepare a build with sbuild";
        let Some(Debian { release, .. }) = yard.config.family.of() else {
            return Err(Error::usage("sbuild only builds Debian packages").hint("without --sbuild-chroot"));
        };
        if !chroot.is_file() {
            let missing = format!("{} is not a tarball of the release", chroot.display());
            return Err(Error::usage(missing).hint(format!("mmdebstrap --variant=buildd {release} FILE.tar")));
        }
        // sbuild runs in another folder.
        let chroot = fs_err::canonicalize(chroot).context(Kind::Machine, failed)?;
        let folder = scratch.path(&format!("sbuild-{}", order.package));
        fs_err::create_dir(&folder).context(Kind::Machine, failed)?;
        let distfiles = mirror::open_files(yard)?;
        for input in &order.root.inputs {
            let hash = Sha256Hex::parse(&input.sha256).or_internal(failed)?;
            fs_err::copy(distfiles.path(&hash), folder.join(&input.name)).context(Kind::Machine, failed)?;
        }
        let is_description = |name: &&String| name.ends_with(".dsc");
        let description = order.root.inputs.iter().map(|input| &input.name).find(is_description);
        let description = description
            .cloned()
            .ok_or_else(|| Error::new(Kind::Internal, "the source has no description (.dsc)"))?;
        let jobs = Shape::of(yard).jobs;
        let release = release.clone();
        Ok(Box::new(Build { chroot, release, jobs, folder, description }))
    }
}

impl PeerBuild for Build {
    fn cpu_seconds(&self) -> Result<f64> {
        let log = self.folder.join("log");
        let mut command = Command::new("sbuild");
        command
            .args(["--chroot-mode=unshare", "--batch", "--nolog", "--no-source"])
            .args(["--no-run-lintian", "--no-run-piuparts", "--no-run-autopkgtest"])
            .arg(format!("--dist={}", self.release))
            .arg(format!("--chroot={}", self.chroot.display()))
            .arg(format!("--jobs={}", self.jobs))
            .arg(&self.description)
            .current_dir(&self.folder);
        let used = child::measure(command, Some(&log), &[0]).map_err(|mut error| {
            let text = fs_err::read(&log).unwrap_or_default();
            error.causes.extend(subject::last_lines(&String::from_utf8_lossy(&text)));
            error
        })?;
        Ok(used.cpu_seconds)
    }
}
