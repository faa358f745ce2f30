//! What a worker signed about its build.

use crate::hash;
use crate::judge::Package;
use crate::message::{Build, Built};
use kilnyard_model::digests::{ENTRY, FILES, HEADER, NAME, PKG_HASH, SHA512, VERSION, text_of_files};
use kilnyard_model::provenance::Signed;
use serde_json::Value;
use std::collections::HashMap;

/// A statement whose signature was verified.
#[derive(Debug)]
pub struct Statement {
    value: Value,
    /// The place of each output, by its SHA-256.
    subjects: HashMap<String, usize>,
}

impl Statement {
    /// Verifies and reads what a worker signed.
    ///
    /// # Errors
    /// A sentence that says why it counts for nothing.
    pub fn read(signed: &Signed) -> Result<Statement, String> {
        if !kilnyard_farm::proof::is_signed(signed) {
            return Err("the signature of its worker is wrong".to_owned());
        }
        let value: Value = serde_json::from_str(&signed.statement)
            .map_err(|_| "its worker signed something else".to_owned())?;
        let mut subjects = HashMap::new();
        for (place, subject) in value["subject"].as_array().into_iter().flatten().enumerate() {
            if let Some(sha256) = subject["digest"]["sha256"].as_str() {
                subjects.entry(sha256.to_owned()).or_insert(place);
            }
        }
        Ok(Statement { value, subjects })
    }

    /// Checks that the worker built a package under its name, with its content, for the order of a
    /// build. `is_strict` requires everything that workers of this version sign.
    ///
    /// # Errors
    /// A sentence that names what differs.
    pub fn check(
        &self,
        build: &Build,
        package: &Package,
        built: &Built,
        is_strict: bool,
    ) -> Result<(), String> {
        let parameters = &self.value["predicate"]["buildDefinition"]["externalParameters"];
        if parameters["package"] != build.package.as_str() {
            return Err(format!(
                "its worker signed for the package {}, not {}",
                parameters["package"], build.package
            ));
        }
        // A rebuild has a number of its own after the version of its source, and so has what it makes.
        let version = parameters["version"].as_str().unwrap_or_default();
        let number = version.strip_prefix(&package.source_version);
        if !number.is_some_and(|number| package.version.ends_with(number)) {
            return Err(format!(
                "its worker signed for the version {version}, not {}",
                package.source_version
            ));
        }
        let place = self.subjects.get(&built.sha256).ok_or("its worker did not sign this content")?;
        let subject = &self.value["subject"][*place];
        if subject["name"] != package.file.as_str() {
            return Err(format!(
                "its worker built this content as {}, not as {}",
                subject["name"], package.file
            ));
        }
        let annotations = &subject["annotations"];
        let listed = &built.listed;
        let is_text = annotations[PKG_HASH] == listed.as_str();
        let is_file = *listed == built.sha256 || annotations[SHA512] == listed.as_str();
        let is_listed = match &built.header {
            Some(header) => annotations[HEADER] == header.as_str(),
            None if package.has_signature => is_text,
            None => is_file,
        };
        if !is_listed {
            return Err("its worker did not sign this content".to_owned());
        }
        for (name, found) in [(NAME, &package.name.name), (VERSION, &package.version)] {
            let signed = &annotations[name];
            if signed != found.as_str() && (is_strict || !signed.is_null()) {
                return Err(format!("its worker built it with the {name} {signed}, not {found}"));
            }
        }
        // A text of blocks has neither an entry in an index nor a list of files.
        if package.entry.is_empty() {
            return Ok(());
        }
        let is_missing = |name: &str| annotations[name].is_null() && !is_strict;
        if annotations[ENTRY] != package.entry.as_str() && !is_missing(ENTRY) {
            return Err("its worker did not sign this entry of the index".to_owned());
        }
        match &built.files {
            _ if is_missing(FILES) => Ok(()),
            None => Err("the list of its files, which its worker signed, is missing".to_owned()),
            Some(files) if annotations[FILES] != hash(text_of_files(files).as_bytes()).as_str() => {
                Err("its worker did not sign this list of files".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// The attempt that it is about.
    pub fn attempt(&self) -> Option<String> {
        let id = &self.value["predicate"]["runDetails"]["metadata"]["invocationId"];
        id.as_str().map(str::to_owned)
    }

    /// The SHA-256 of each file that it was built from.
    pub fn inputs(&self) -> Vec<String> {
        let dependencies = &self.value["predicate"]["buildDefinition"]["resolvedDependencies"];
        let digests = dependencies.as_array().into_iter().flatten().map(|one| &one["digest"]["sha256"]);
        digests.filter_map(|digest| digest.as_str().map(str::to_owned)).collect()
    }
}
