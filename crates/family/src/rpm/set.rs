//! The set of a yard: sources of this machine, and those of the repositories that it names.

use super::recipes::{Recipes, of_repository};
use super::scan::{Index, Packages};
use super::{Rpm, base, keys, made, publish, requirements};
use kilnyard_ecosystem::LeftOut;
use kilnyard_ecosystem::rpm::universe::Package;
use kilnyard_ecosystem::rpm::{Recipe, Settings, Workshop};
use kilnyard_mirror::FileStore;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::collections::{BTreeMap, HashMap};

/// The settings of a yard.
pub fn settings(yard: &Yard, rpm: &Rpm) -> Result<Settings> {
    let packages = yard.config.tables.option_rules(&yard.home)?;
    let settings = rpm.settings(packages).context(Kind::Usage, "read the target")?;
    let keys = keys::of_packages(rpm)?;
    Ok(Settings { passes: yard.config.build.passes, keys, ..settings })
}

/// Reads the index and resolves the set.
pub fn resolve(yard: &Yard, rpm: &Rpm, distfiles: &FileStore) -> Result<Workshop> {
    let settings = settings(yard, rpm)?;
    let Packages { mut universe, sources, groups, .. } = Index::open(yard)?.read(yard, rpm)?;
    let (own, mut left_out) = Recipes::read(yard).own(distfiles)?;
    let names = yard.config.package_names(&yard.home)?;
    let mut newest: HashMap<&str, &Package> = HashMap::new();
    for source in &sources {
        let known = newest.entry(&source.name).or_insert(source);
        if source.evr.compare(&known.evr).is_gt() {
            *known = source;
        }
    }
    let wanted: Vec<String> = match names {
        // With sources of this machine, the repositories' are what they are built against.
        None if rpm.specs.is_some() => own.keys().cloned().collect(),
        None => newest.keys().map(|name| (*name).to_owned()).chain(own.keys().cloned()).collect(),
        Some(names) => {
            let (packed, plain): (Vec<String>, Vec<String>) =
                names.into_iter().partition(|name| name.ends_with(".src.rpm"));
            let of_files = own.values().filter(|recipe| !packed.is_empty() && recipe.spec.is_empty());
            of_files.map(|recipe| recipe.name.clone()).chain(plain).collect()
        }
    };
    let mut by_source: HashMap<&str, Vec<&Package>> = HashMap::new();
    for (_, package) in universe.packages() {
        by_source.entry(&package.source).or_default().push(package);
    }
    let mut recipes: BTreeMap<String, Recipe> = BTreeMap::new();
    for name in wanted {
        if let Some(recipe) = own.get(&name) {
            recipes.insert(name, recipe.clone());
            continue;
        }
        let of_repository = newest.get(name.as_str()).and_then(|source| {
            let file = source.location.rsplit('/').next().unwrap_or_default();
            of_repository(source, by_source.get(file).into_iter().flatten().copied(), &settings)
        });
        match of_repository {
            Some(recipe) => drop(recipes.insert(name, recipe)),
            None if left_out.iter().any(|left| left.name == name) => {}
            None => {
                let explanation = format!("no spec file, source package or repository has the source {name}");
                left_out.push(LeftOut { name, explanation });
            }
        }
    }
    drop(by_source);
    recipes.values_mut().for_each(|recipe| requirements::add(yard, recipe, &settings));
    let base = base::known(yard, rpm, &mut universe, &groups);
    let published = publish::revisions(yard, &settings)?;
    Ok(Workshop::new(settings, universe, recipes, base, published, &made::read(yard)).without(left_out))
}
