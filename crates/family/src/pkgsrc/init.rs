//! `kilnyard init pkgsrc`: makes a yard for a tree, optionally from another builder's configuration.

mod other;

use super::asking::check_categories;
use super::config::{Template, one_line, template};
use crate::FAMILIES;
use crate::debian::init::{check_release, mirror_for};
use crate::git::place::{address, place_text};
use clap::Args;
use kilnyard_ecosystem::pkgsrc::import::{ConfigKey, Imports, Wanted};
use kilnyard_yard::error::{Error, Result};
use kilnyard_yard::family::NewYard;
use kilnyard_yard::init;
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::CONFIG;
use other::Other;
use std::path::{Path, PathBuf};

/// The default tree.
const TREE: &str = "/usr/pkgsrc";

/// Arguments of `init pkgsrc`.
#[derive(Debug, Args)]
pub struct Init {
    /// Import the settings of a pbulk.conf; other options override them. Relative paths in it are relative to the
    /// current folder, as in pbulk.
    #[arg(long, value_name = "FILE", conflicts_with = "from_bob")]
    from_pbulk: Option<PathBuf>,
    /// Import the settings of bob's config.lua and the times of bob's builds; other options override the settings.
    /// Relative paths in it are relative to the current folder, as in bob.
    #[arg(long, value_name = "FILE")]
    from_bob: Option<PathBuf>,
    /// The tree's folder, or the repository to take it from, as git:PATH-OR-URL#BRANCH; /usr/pkgsrc by default.
    #[arg(long, value_name = "DIR|git:ADDRESS")]
    tree: Option<PathBuf>,
    /// An archive of a bootstrapped prefix; without it, the tree's bootstrap/bootstrap makes the kit.
    #[arg(long, value_name = "FILE")]
    bootstrap_kit: Option<PathBuf>,
    /// Where packages are installed; must be the prefix that the kit was bootstrapped with.
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// Path of the make program inside a root; PREFIX/bin/bmake by default.
    #[arg(long, value_name = "PATH")]
    make: Option<String>,
    /// Settings that make reads after the kit's mk.conf.
    #[arg(long, value_name = "FILE")]
    mk_conf: Option<PathBuf>,
    /// Where the tree's distfiles are kept; a folder of the yard by default.
    #[arg(long, value_name = "DIR")]
    distfiles: Option<PathBuf>,
    /// Debian release of the roots, by codename.
    #[arg(long, value_name = "NAME", default_value = "bookworm")]
    release: String,
    /// URL of the Debian archive; by default the mirror that this machine's apt uses.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Directories of the tree, such as mail/mutt, and categories, such as mail; the whole tree by default.
    #[arg(value_name = "LOCATION")]
    locations: Vec<String>,
}

impl Init {
    /// Checks the arguments and plans the new yard, from another builder's configuration if one is given.
    pub fn plan(&self, folder: &Path, program: &dyn Program) -> Result<NewYard> {
        let (other, imports) = Other::named(self, program.environment())?.unzip();
        let mut imports = imports.unwrap_or(Imports { wanted: Some(Wanted::All), ..Imports::default() });
        discard(&mut imports, self)?;
        let tree = imports.values.iter().find(|(key, _)| *key == ConfigKey::Tree);
        let tree = tree.map_or(TREE.to_owned(), |(_, tree)| tree.clone());
        // The first scan fetches a tree from git; `init::check` below validates its address.
        if address(Path::new(&tree)).is_none() {
            if !Path::new(&tree).join("mk").is_dir() {
                return Err(Error::usage(format!("{tree} is not a pkgsrc tree: it has no mk"))
                    .hint("--tree with the folder that contains mk and the categories, or git:PATH-OR-URL"));
            }
            check_categories(Path::new(&tree), &self.locations)?;
        }
        let report = other.as_ref().map(|other| other.report(&imports)).unwrap_or_default();
        let release = self.release.clone();
        let mirror = self.mirror.clone().unwrap_or_else(|| mirror_for(&release));
        let configuration = template(&Template {
            wanted: imports.wanted.clone(),
            values: imports.values,
            mirror: mirror.clone(),
            release: release.clone(),
            remarks: report.clone(),
        });
        init::check(folder, &configuration, FAMILIES).map_err(|error| match &other {
            Some(other) => error.hint(format!(
                "the option for this setting together with {}; it overrides the file",
                other.option
            )),
            None => error,
        })?;
        check_release(&release, &mirror, program)?;
        let made = format!("made the yard {} for the tree {tree}", folder.display());
        let (folder, is_unknown) = (folder.to_owned(), imports.wanted.is_none());
        let afterwards = move |program: &dyn Program| {
            report.iter().for_each(|line| program.say(&one_line(line)));
            if is_unknown {
                let path = folder.join(CONFIG);
                say!(program, "the set of packages is unknown: name them in {}", path.display());
            }
            other.map_or(Ok(()), |other| other.import_history(&folder, program))
        };
        Ok(NewYard { configuration, made, next: "build", afterwards: Box::new(afterwards) })
    }
}

/// Overrides settings of the other builder with options of the command line.
fn discard(imports: &mut Imports, options: &Init) -> Result<()> {
    let paths = [
        (ConfigKey::Tree, "--tree", &options.tree),
        (ConfigKey::BootstrapKit, "--bootstrap-kit", &options.bootstrap_kit),
        (ConfigKey::MkConf, "--mk-conf", &options.mk_conf),
        (ConfigKey::Distfiles, "--distfiles", &options.distfiles),
    ];
    let texts =
        [(ConfigKey::Prefix, "--prefix", &options.prefix), (ConfigKey::Make, "--make", &options.make)];
    let mut given = Vec::new();
    for (key, option, path) in paths {
        if let Some(path) = path {
            given.push((key, option, place_text(option, path)?));
        }
    }
    for (key, option, text) in texts {
        given.extend(text.clone().map(|text| (key, option, text)));
    }
    for (key, option, value) in given {
        imports.discard(key, &format!("overridden by {option}"));
        imports.values.push((key, value));
    }
    if !options.locations.is_empty() {
        for key in [ConfigKey::Packages, ConfigKey::PackagesFile] {
            imports.discard(key, "overridden by the command line");
        }
        imports.wanted = Some(Wanted::Some(options.locations.clone()));
    }
    if !imports.values.iter().any(|(key, _)| *key == ConfigKey::Tree) {
        imports.values.push((ConfigKey::Tree, TREE.to_owned()));
    }
    Ok(())
}
