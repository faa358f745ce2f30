//! Relations, repositories and package files of RPM.

use crate::deb::SCRATCH;
use kilnyard_ecosystem::rpm::check::check;
use kilnyard_ecosystem::rpm::metadata::{MetadataError, filelists, primary, repomd};
use kilnyard_ecosystem::rpm::relation::Relation;
use kilnyard_ecosystem::rpm::universe::Universe;
use kilnyard_ecosystem::rpm::version::Evr;
use kilnyard_ecosystem::rpm::{FAMILY, PackageFile, output_of, signature};
use kilnyard_ecosystem::{OutputBounds, Part, Rules, Stack, rules};
use kilnyard_model::order::{Dependency, FamilyOrder};
use std::collections::HashSet;
use std::path::Path;

/// A parsed relation prints to text that parses to the same relation; versions have a total order.
pub fn rpm_relation(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(relation) = Relation::parse(text) {
        let printed = relation.to_string();
        assert_eq!(Relation::parse(&printed).as_ref(), Ok(&relation), "{printed:?}");
    }
    let (one, other) = text.split_once(' ').unwrap_or((text, ""));
    let (one, other) = (Evr::parse(one), Evr::parse(other));
    assert_eq!(one.compare(&other), other.compare(&one).reverse());
    assert!(one.compare(&one).is_eq());
}

/// Locations stay within the repository, and what is left out of an installation has a reason.
pub fn rpm_metadata(data: &[u8]) {
    let is_contained = |path: &str| !path.starts_with('/') && !path.split('/').any(|part| part == "..");
    for listed in repomd(&mut &*data).unwrap_or_default().values() {
        assert!(is_contained(&listed.location) && listed.sha256.len() == 64);
    }
    let wanted = HashSet::from(["/usr/bin/a".to_owned()]);
    let _ = filelists(&mut &*data, &wanted, &mut |_, path| {
        assert!(wanted.contains(path));
        Ok(())
    });
    let mut universe = Universe::new();
    let _ = primary(&mut &*data, &mut |package| {
        assert!(is_contained(&package.location) && !package.name.is_empty());
        universe.add(package).map(drop).map_err(|error| MetadataError(error.to_string()))
    });
    universe.finish();
    let packages = universe.packages().count();
    let verdicts = check(&mut universe, &[]);
    assert_eq!(verdicts.checked, packages);
    assert!(verdicts.broken.iter().all(|broken| !broken.explanation.is_empty()));
}

/// A packet of a signature of version 4, by no key.
const PACKET: &[u8] = &[0xc2, 5, 4, 0, 22, 10, 0];

/// A package file that is accepted has its paths within a root. A signature in it is taken out without a trace, and a package that
/// becomes a layer has one line of each list.
pub fn rpm_package(data: &[u8]) {
    let folder = tempfile::tempdir_in(SCRATCH).unwrap();
    let file = folder.path().join("x.rpm");
    std::fs::write(&file, data).unwrap();
    if let Ok(output) = output_of(&file, OutputBounds::WIDEST) {
        assert!(!output.description.contains('\0') && output.size_bytes == data.len() as u64);
        assert_eq!(output.content.len(), 64);
    }
    if let Ok(package) = PackageFile::read(&file, OutputBounds::WIDEST) {
        assert!(package.paths.iter().all(|path| path.split('/').all(|part| part != "..")));
    }
    be_a_layer(&file);
    let (signed, again) = (folder.path().join("signed"), folder.path().join("again"));
    if signature::sign(&file, &signed, PACKET).is_ok() {
        assert!(signature::unsign(&signed, &again).unwrap().is_some());
        assert_eq!(std::fs::read(&again).unwrap(), data);
        // Whatever follows the signatures is not read for that.
        if let Ok(header) = signature::header_of(&file) {
            assert_eq!(signature::signatures_of(&signed).unwrap(), (header, vec![PACKET.to_vec()]));
        }
    }
}

fn be_a_layer(file: &Path) {
    let facts = [("installed", "old"), ("triggers", "{\"packages\":[],\"files\":[]}")];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let order = FamilyOrder { name: FAMILY.to_owned(), facts };
    let rules: Box<dyn Rules> = rules(&order).expect("rules of these facts");
    let layering = rules.layering().expect("layers");
    let Ok(description) = layering.describe(file) else { return };
    let package = Dependency {
        name: "plain".into(),
        version: "1:1-1".into(),
        file: "x.rpm".into(),
        sha256: "0".into(),
        is_signed: false,
    };
    let part = Part { package: &package, description: &description };
    let below = Stack { layers: &[], user_inside: &|_| None, group_inside: &|_| None };
    let composition =
        layering.compose(&below, &|| Ok(Vec::new()), &[part]).expect("there are no layers to read");
    assert_eq!(composition.layered.len() + composition.by_manager.len(), 1);
    if !composition.layered.is_empty() {
        let folders = &composition.texts[0].text;
        assert!(
            folders.lines().all(|line| line.split(' ').count() >= 3 && !line.contains("..")),
            "{folders:?}"
        );
        let (places, unpacking) = layering.unpack(&[part]);
        assert_eq!((&places[..], unpacking.texts[0].text.lines().count()), (&[0][..], 1));
    }
}
