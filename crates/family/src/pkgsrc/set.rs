//! The set of a pkgsrc yard: directories of its index, with their dependencies.

use super::kit;
use super::scan::Index;
use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::debian::Base;
use kilnyard_ecosystem::pkgsrc::{FAMILY, ScanSettings, Settings, Workshop};
use kilnyard_mirror::Sha256Hex;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;

/// The settings of the pkgsrc module.
pub fn settings(yard: &Yard, pkgsrc: &Pkgsrc, base: &Base) -> Result<Settings> {
    let kit = kit::find(yard, pkgsrc, base);
    let digest = kit.as_ref().map_or("", |kit| &kit.digest);
    let layers = kit.iter().filter_map(|kit| kit.tree.clone()).chain(base.tree.clone());
    let mk_conf = match &pkgsrc.mk_conf {
        Some(path) => fs_err::read_to_string(path).context(Kind::Usage, "read mk-conf")?,
        None => String::new(),
    };
    fs_err::create_dir_all(&pkgsrc.distfiles).context(Kind::Machine, "make the folder of distfiles")?;
    Ok(Settings {
        tree: pkgsrc.tree.clone(),
        distfiles: pkgsrc.distfiles.clone(),
        layers: layers.collect(),
        layers_digest: Sha256Hex::of(format!("{digest} {}", base.digest).as_bytes()).as_str().to_owned(),
        prefix: pkgsrc.prefix.clone(),
        make: pkgsrc.make(),
        mk_conf,
        architecture: pkgsrc.root.architecture.clone(),
        target: pkgsrc.root.target(FAMILY).or_internal("name the target")?,
        packages: yard.config.tables.option_rules(&yard.home)?,
    })
}

/// See [`kilnyard_yard::family::Family::inputs`].
pub fn inputs(yard: &Yard, pkgsrc: &Pkgsrc, base: Option<&Base>) -> Result<String> {
    let settings = settings(yard, pkgsrc, base.unwrap_or(&Base::default()))?;
    let index = Index::open(yard)?.inputs(pkgsrc);
    let mut text = format!("{index}\n{} {}\n{}\n", settings.layers_digest, settings.make, settings.mk_conf);
    // Of the options of single packages, only these may come from files.
    let own = ScanSettings::of(&settings.packages);
    if !own.is_empty() {
        text.push_str(&format!("{}\n", own.line()));
    }
    Ok(text)
}

/// Reads the index and resolves the set.
pub fn resolve(yard: &Yard, pkgsrc: &Pkgsrc, base: &Base) -> Result<Workshop> {
    let index = Index::open(yard)?;
    let names = yard.config.package_names(&yard.home)?.map(|names| index.expand(&names));
    let scan = index.read(yard, pkgsrc)?;
    Workshop::new(settings(yard, pkgsrc, base)?, scan, names.as_deref())
        .context(Kind::Machine, "read the index")
        .map_err(|error| error.hint(Remedy::command("clean --index").then(" && ").then_command("scan")))
}
