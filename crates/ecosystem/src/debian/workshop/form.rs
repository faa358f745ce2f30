//! The form of outputs: what a repository can serve, and readers of its indexes understand in one way.

use super::super::deb822::Stanza;
use super::super::published::maker;
use super::super::relation;
use super::Workshop;
use crate::CollectError;
use kilnyard_model::graph::PackageId;
use kilnyard_model::text;

impl Workshop {
    /// Checks that an output is a well-formed package of this source.
    pub(super) fn check_output(
        &self,
        package: PackageId,
        control: &Stanza,
        file: &str,
    ) -> Result<(), CollectError> {
        let made_by = maker(control).0.or(control.get("Package"));
        if made_by != Some(self.source(package).name()) {
            let made_by = text::line(made_by.unwrap_or("no source"));
            return Err(CollectError(format!("{file} claims to be made by {made_by}")));
        }
        self.check_form(control, file).map_err(|reason| CollectError(format!("{file} {reason}")))
    }

    /// Checks that an output can be published: one that cannot must fail its own build and no other. Names and
    /// versions follow Debian Policy 5.6; the reason reads after the file name.
    fn check_form(&self, control: &Stanza, file: &str) -> Result<(), String> {
        if let Some(fault) = control.fault() {
            return Err(fault);
        }
        let field = |name: &str| control.get(name).unwrap_or("");
        let (name, version, architecture) = (field("Package"), field("Version"), field("Architecture"));
        // Some readers ignore a value on the line after its field name.
        let is_on_same_line = |name: &str, value: &str| {
            let mut fields = control.text().lines().filter_map(|line| line.split_once(':'));
            fields.any(|(known, beside)| known.eq_ignore_ascii_case(name) && beside.trim() == value)
        };
        let late = [("Package", name), ("Version", version), ("Architecture", architecture)]
            .into_iter()
            .find(|(name, value)| !value.is_empty() && !is_on_same_line(name, value));
        if let Some((name, _)) = late {
            return Err(format!("has the value of {name} on a different line than the field name"));
        }
        if !relation::is_name(name) {
            return Err(format!("has the invalid package name `{name}`"));
        }
        let is_of_version = |c: char| c.is_ascii_alphanumeric() || ".+-:~".contains(c);
        if version.is_empty() || !version.chars().all(is_of_version) {
            return Err(format!("has the invalid version `{version}`"));
        }
        if architecture != "all" && architecture != self.settings.architecture {
            return Err(format!(
                "is for {architecture}, but this build is for {}",
                self.settings.architecture
            ));
        }
        if let Some(field) =
            ["Filename", "Size", "SHA256"].into_iter().find(|field| control.get(field).is_some())
        {
            return Err(format!("has the field {field}, which belongs in an index"));
        }
        let is_of_file = |c: char| c.is_ascii_alphanumeric() || "._+~%-".contains(c);
        if file.starts_with('.') || !file.chars().all(is_of_file) {
            return Err("has a file name that a mirror cannot serve".to_owned());
        }
        Ok(())
    }
}
