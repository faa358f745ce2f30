//! Relations and repositories of RPM.

use kilnyard_ecosystem::rpm::check::check;
use kilnyard_ecosystem::rpm::metadata::{MetadataError, filelists, primary, repomd};
use kilnyard_ecosystem::rpm::relation::Relation;
use kilnyard_ecosystem::rpm::universe::Universe;
use kilnyard_ecosystem::rpm::version::Evr;
use std::collections::HashSet;

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
