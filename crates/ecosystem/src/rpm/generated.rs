//! Requirements that a build finds out, by `%generate_buildrequires` of its spec file.
//!
//! rpmbuild ends with a list of them, if not all are installed: a source package without sources, which requires them. The package
//! is built again with them. A source package that was built to the end has the list, too: if what was installed has changed, so
//! may have what is required, and a build with more would differ from one in a fresh yard.

use super::recipe::Recipe;
use super::relation::Relation;
use super::rules::SOURCE;
use super::stages::REQUIREMENTS;
use super::workshop::described;
use crate::CollectError;
use kilnyard_model::order::Output;
use std::collections::BTreeSet;

/// The most requirements that a build may find out, and their longest text together, in bytes.
const REQUIREMENTS_MAX: usize = 4096;
const BYTES_MAX: usize = 256 << 10;

/// What a build requires beyond its recipe, if it is to be built again with that; `None` if it was built with it.
pub(super) fn found(recipe: &Recipe, outputs: &[Output]) -> Result<Option<Vec<String>>, CollectError> {
    let own = format!("{}.{SOURCE}", recipe.name);
    let Some(source) = outputs.iter().find(|output| output.architecture == SOURCE && output.name == own)
    else {
        return Ok(None);
    };
    let is_list = source.file.ends_with(REQUIREMENTS);
    // With `bootstrap` or without: the outputs do not say.
    let kinds = || std::iter::once(recipe).chain(recipe.bootstrap.as_deref());
    if !is_list && kinds().any(|kind| kind.generated.is_empty()) {
        return Ok(None);
    }
    let refused = |why: String| CollectError(format!("{}: {why}", source.file));
    if is_list && outputs.len() > 1 {
        return Err(refused("a list of requirements came with packages".to_owned()));
    }
    let described = described(&source.description)
        .ok_or_else(|| refused("its description is no entry of a repository".to_owned()))?;
    let plain = |text: &String| Relation::parse(text).map_or_else(|_| text.clone(), |one| one.to_string());
    let known: BTreeSet<String> =
        recipe.bootstrap.as_deref().unwrap_or(recipe).requires.iter().map(plain).collect();
    let mut all = BTreeSet::new();
    for entry in described.requires {
        let text = entry.map_err(|error| refused(error.to_string()))?.to_string();
        if text.chars().any(char::is_control) {
            return Err(refused("a requirement has control characters".to_owned()));
        }
        if !known.contains(&text) {
            all.insert(text);
        }
    }
    if all.len() > REQUIREMENTS_MAX || all.iter().map(String::len).sum::<usize>() > BYTES_MAX {
        return Err(refused(format!("it requires {} packages", all.len())));
    }
    let is_settled = !is_list && kinds().any(|kind| kind.generated.iter().all(|one| all.contains(one)));
    Ok((!is_settled).then(|| all.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn source(file: &str, requires: &[&str]) -> Output {
        let entries: String = requires.iter().map(|one| format!("<rpm:entry name=\"{one}\"/>")).collect();
        let description = format!(
            "<package type=\"rpm\"><name>hello</name><arch>src</arch><version epoch=\"0\" ver=\"1\" rel=\"1\"/>\
             <checksum type=\"sha256\" pkgid=\"YES\">abc</checksum><location href=\"Packages/{file}\"/>\
             <format><rpm:requires>{entries}</rpm:requires></format></package>\n"
        );
        Output {
            name: "hello.src".to_owned(),
            version: "1-1".to_owned(),
            architecture: SOURCE.to_owned(),
            file: file.to_owned(),
            sha256: "abc".to_owned(),
            size_bytes: 1,
            content: String::new(),
            description,
            digests: BTreeMap::new(),
        }
    }

    fn recipe(generated: &[&str]) -> Recipe {
        Recipe {
            name: "hello".to_owned(),
            requires: vec!["gcc".to_owned()],
            generated: generated.iter().map(|one| (*one).to_owned()).collect(),
            ..Recipe::default()
        }
    }

    #[test]
    fn a_list_has_what_the_recipe_lacks() {
        let list = |requires: &[&str]| source("hello-1-1.buildreqs.nosrc.rpm", requires);
        let found =
            |generated: &[&str], output| found(&recipe(generated), &[output]).map_err(|error| error.0);
        let asked = found(&[], list(&["gcc", "zlib", "(a or b)"])).unwrap();
        assert_eq!(asked.unwrap(), ["(a or b)", "zlib"]);
        assert!(found(&[], list(&["(a or"])).unwrap_err().contains("is not a relation"));
        let many: Vec<String> = (0..5000).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(found(&[], list(&many)).unwrap_err().contains("5000 packages"));
        let with_packages = [list(&["a"]), source("hello-1-1.src.rpm", &[])];
        assert!(super::found(&recipe(&[]), &with_packages).is_err());
    }

    #[test]
    fn a_source_package_shows_that_a_requirement_is_gone() {
        let found = |generated: &[&str], requires: &[&str]| {
            found(&recipe(generated), &[source("hello-1-1.src.rpm", requires)]).unwrap()
        };
        assert_eq!(found(&[], &["gcc", "zlib"]), None, "it was not asked for");
        assert_eq!(found(&["zlib"], &["gcc", "zlib"]), None);
        assert_eq!(found(&["a", "zlib"], &["gcc", "zlib"]), Some(vec!["zlib".to_owned()]));
        assert_eq!(found(&["zlib"], &["gcc"]), Some(Vec::new()));
    }
}
