//! `kilnyard init rpm`: makes a yard of RPM packages.

use super::config::{Signed, Template};
use crate::FAMILIES;
use crate::git::place::place_text;
use clap::Args;
use kilnyard_ecosystem::rpm::mock_cfg::{self, MockConfig, MockError};
use kilnyard_mirror::without_password;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::family::NewYard;
use kilnyard_yard::init;
use kilnyard_yard::program::Program;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The folder of mock's own configuration.
const MOCK: &str = "/etc/mock";
/// The longest file of mock's configuration that is read.
const MOCK_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `init rpm`.
#[derive(Debug, Args)]
pub struct Init {
    /// Address of a repository: the folder that has repodata. Repositories of sources are named the same way.
    #[arg(long = "repo", value_name = "URL", required_unless_present = "mock_cfg")]
    repositories: Vec<String>,
    /// Configuration of mock, whose release, architecture and repositories are carried over as far as they are plain. What is
    /// not carried over is listed with its line and the reason.
    #[arg(long, value_name = "FILE")]
    mock_cfg: Option<PathBuf>,
    /// Name of the distribution's release, such as fc42.
    #[arg(long, value_name = "NAME")]
    release: Option<String>,
    /// Folder with spec files: its own, and those in each folder of it, next to the files that they list. Or the repository to take it
    /// from, as git:PATH-OR-URL#BRANCH.
    #[arg(long, alias = "spec", value_name = "FOLDER|git:ADDRESS")]
    specs: Option<PathBuf>,
    /// Address of a file in the distribution's lookaside cache, with {name}, {file}, {type} and {digest} in it: for files that
    /// dist-git's lists `sources` name.
    #[arg(long, value_name = "URL")]
    lookaside: Option<String>,
    /// Package of the base root, or a group with @; the default is @buildsys-build. It may be repeated, or list several with commas.
    #[arg(long = "root-package", value_name = "NAME", value_delimiter = ',')]
    root_packages: Vec<String>,
    /// Value of %dist, such as .fc42.
    #[arg(long, value_name = "TEXT")]
    dist: Option<String>,
    /// Sources to build: names of spec files' packages or of the repositories' sources, or .src.rpm files. Without any, all.
    #[arg(value_name = "SOURCE")]
    packages: Vec<String>,
    /// File with the public keys that sign the repositories.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// What these keys sign, which is verified then: metadata (the default), packages, or both with a comma.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "keys", hide_possible_values = true)]
    signed: Vec<Signed>,
}

impl Init {
    /// Checks the arguments and plans the new yard.
    pub fn plan(&self, folder: &Path) -> Result<NewYard> {
        let mock = self.mock_cfg.as_deref().map(read_mock).transpose()?.unwrap_or_default();
        let given = self.keys.iter().map(|key| init::path_text(key)).collect::<Result<Vec<_>>>()?;
        let of_mock = mock.keys.iter().cloned();
        let keys: Vec<String> = given.into_iter().chain(of_mock).collect();
        let of_mock = if keys.is_empty() { Vec::new() } else { signed_of(&mock) };
        let signed = if self.signed.is_empty() { of_mock } else { self.signed.clone() };
        // Both, since a list of mirrors is carried over as one of them.
        let addresses = self.repositories.iter().chain(&mock.repositories);
        let repositories: Vec<String> = addresses.map(|address| absolute(address)).collect::<Result<_>>()?;
        if repositories.is_empty() {
            let left = lines_of(&mock).join("\n");
            return Err(Error::usage(format!(
                "the configuration of mock names no repository that can be carried over\n{left}"
            ))
            .hint("--repo URL in addition"));
        }
        let release = self.release.as_deref().or(mock.release.as_deref()).unwrap_or("unnamed");
        let specs = self.specs.as_deref().map(|place| place_text("--specs", place)).transpose()?;
        let packages = self.packages.iter().map(|name| source(name)).collect::<Result<Vec<_>>>()?;
        let builds = specs.is_some() || !packages.is_empty();
        let root_packages = match self.root_packages.is_empty() {
            true => mock.root_packages.clone(),
            false => self.root_packages.clone(),
        };
        let configuration = Template {
            release: release.to_owned(),
            architecture: mock.architecture.clone(),
            repositories: repositories.clone(),
            keys,
            signed,
            specs,
            packages,
            root_packages,
            lookaside: self.lookaside.clone(),
            dist: self.dist.clone().or_else(|| mock.release.as_ref().map(|dist| format!(".{dist}"))),
        }
        .text();
        init::check(folder, &configuration, FAMILIES)?;
        let shown: Vec<String> = repositories.iter().map(|address| without_password(address)).collect();
        let made = format!("made the yard {} of {}", folder.display(), shown.join(", "));
        let left = lines_of(&mock);
        let afterwards = move |program: &dyn Program| {
            left.iter().for_each(|line| program.say(line));
            Ok(())
        };
        // All sources of a distribution take a while: what cannot be built is known before.
        let next = if builds { "build" } else { "check" };
        Ok(NewYard { configuration, made, next, afterwards: Box::new(afterwards) })
    }
}

/// What is not carried over, a line each.
fn lines_of(mock: &MockConfig) -> Vec<String> {
    let lines = mock.left.iter().map(|left| {
        format!("{}:{} is not carried over: {}: {}", left.file, left.line, left.reason, left.text)
    });
    lines.collect()
}

/// What keys sign, as mock's configuration has it; none for what is usual.
fn signed_of(mock: &MockConfig) -> Vec<Signed> {
    match (mock.signs_metadata, mock.signs_packages) {
        (true, true) => vec![Signed::Metadata, Signed::Packages],
        (false, true) => vec![Signed::Packages],
        (_, false) => Vec::new(),
    }
}

/// Reads a configuration of mock. What it includes is next to it, or in mock's own folder.
fn read_mock(path: &Path) -> Result<MockConfig> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut open = |name: &str| {
        let candidates = [folder.join(name), Path::new(MOCK).join(name)];
        let found = candidates.iter().find(|path| path.is_file()).unwrap_or(&candidates[0]);
        let failed = |error: io::Error| MockError(format!("{}: {error}", found.display()));
        let file = fs_err::File::open(found).map_err(failed)?;
        let mut text = String::new();
        let bytes = file.take(MOCK_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        match bytes as u64 > MOCK_BYTES_MAX {
            true => Err(MockError(format!("{} has more than {MOCK_BYTES_MAX} bytes", found.display()))),
            false => Ok(text),
        }
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    mock_cfg::read(&name, &mut open).context(Kind::Usage, format!("read {}", path.display()))
}

/// A source as the configuration names it.
fn source(name: &str) -> Result<String> {
    match name.ends_with(".src.rpm") {
        true => init::path_text(Path::new(name)),
        false => Ok(name.to_owned()),
    }
}

/// A folder of this machine becomes an address.
fn absolute(address: &str) -> Result<String> {
    match address.contains("://") || address.starts_with("file:") {
        true => Ok(address.to_owned()),
        false => Ok(format!("file://{}", init::path_text(Path::new(address))?)),
    }
}
