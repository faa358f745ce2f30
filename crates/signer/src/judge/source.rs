//! Where sources are from: the archives and trees that the policy names.

use super::{Court, Judged, Package, Prepared, is_declared};
use crate::memory::MemoryError;
use crate::message::{Build, Form, Refusal, Rule};
use crate::policy::matches;
use crate::sources::{self, ArchiveSource, vouchers_of};
use crate::statement::Statement;
use std::collections::HashSet;

impl Court<'_> {
    /// What is wrong with the source of a package: no archive of the policy has it, it does not declare the package, or its worker
    /// built something else. Where the policy names no archive, or leaves this source to the yard, its order says what it
    /// declares.
    pub(super) fn fault_of_source(
        &self,
        package: &Package,
        build: &Build,
        statement: Option<&Statement>,
    ) -> Result<Option<(Rule, String)>, MemoryError> {
        let Package { name, source, source_version, .. } = package;
        let undeclared = || Some((Rule::Undeclared, format!("{source} does not declare it")));
        let repository = self.repository;
        let vouchers = vouchers_of(repository);
        if vouchers.is_empty() || matches(&repository.own_sources, source) {
            return Ok(if is_declared(&build.declared, &name.name) { None } else { undeclared() });
        }
        let mut known = Vec::new();
        // A folder of a tree has no version.
        let versions = [Some(source_version.as_str()), without_number(source_version), Some("")];
        for version in versions.into_iter().flatten() {
            known.extend(self.memory.sources(&vouchers, source, version)?);
        }
        if known.is_empty() {
            let doubt = self.doubt.map(|doubt| format!(" ({doubt})")).unwrap_or_default();
            let reason = format!(
                "no archive or tree of the policy has the source {source} {source_version}, and own-sources does not name it{doubt}"
            );
            return Ok(Some((Rule::Source, reason)));
        }
        if build.statement.is_some() {
            // One that counts for nothing names no inputs.
            let used = statement.map(Statement::inputs).unwrap_or_default();
            known.retain(|known| known.control.is_empty() || used.contains(&known.control));
            if known.is_empty() {
                let reason = format!("its worker did not build the source {source} that the archive has");
                return Ok(Some((Rule::Source, reason)));
            }
        }
        let is_declared = known.iter().any(|known| is_declared(&known.declared, &name.name));
        Ok(if is_declared { None } else { undeclared() })
    }

    /// Refuses sources of the repository that are not what the archives have. Those of packages that are refused anyway will not be
    /// there when it is asked again.
    pub(super) fn judge_sources(&self, prepared: &Prepared, judged: &mut Judged) -> Result<(), MemoryError> {
        let vouchers = vouchers_of(self.repository);
        if vouchers.is_empty() || prepared.form != Form::Release {
            return Ok(());
        }
        let refused: HashSet<&str> = prepared
            .read
            .packages
            .iter()
            .filter(|package| judged.refused.contains(&package.name))
            .map(|package| package.source.as_str())
            .collect();
        let shown = self.memory.shown(self.name, &prepared.series)?;
        let mut refusals = Vec::new();
        for (path, text) in prepared.indexes.iter().filter(|(path, _)| path.ends_with("/Sources")) {
            let before = match shown.get(path) {
                Some(sha256) if *sha256 == crate::hash(text.as_bytes()) => continue,
                Some(sha256) => self.memory.body(sha256)?.unwrap_or_default(),
                None => String::new(),
            };
            match sources::new_sources(&before, text) {
                Err(reason) => refusals.push((None, format!("{path}: {reason}"))),
                Ok(sources) => {
                    for source in sources {
                        // A person who approves a package of a source approves the source.
                        let is_judged = !matches(&self.repository.own_sources, &source.name)
                            && !refused.contains(source.name.as_str())
                            && !judged
                                .approved_sources
                                .contains(&(source.name.clone(), source.version.clone()));
                        if !is_judged {
                            continue;
                        }
                        let ArchiveSource { name, version, .. } = &source;
                        let known = self.memory.sources(&vouchers, name, version)?;
                        // The files of one that a tree has are made from its commit.
                        let is_it =
                            |known: &ArchiveSource| known.files.is_empty() || known.files == source.files;
                        let names = [self.name, &prepared.series, name, version, &source.files].join("\n");
                        let id = crate::hash(format!("source\n{names}").as_bytes())[..16].to_owned();
                        if !known.iter().any(is_it) && self.memory.approved(&id)?.is_none() {
                            let reason = format!(
                                "{path}: no archive or tree of the policy has the source {name} {version} with these files, and own-sources does not name it"
                            );
                            refusals.push((Some(id), reason));
                        }
                    }
                }
            }
        }
        let refusal = |(id, reason)| Refusal { id, package: None, variant: None, rule: Rule::Source, reason };
        judged.refusals.extend(refusals.into_iter().map(refusal));
        Ok(())
    }
}

/// A version without the number of a rebuild, such as `+bk3`.
fn without_number(version: &str) -> Option<&str> {
    let (before, number) = version.rsplit_once('+')?;
    let digits = number.trim_start_matches(|character: char| character.is_ascii_lowercase());
    let is_number =
        digits.len() < number.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_is_of_the_version_without_its_number() {
        assert_eq!(without_number("1:2.0-1+bk12"), Some("1:2.0-1"));
        assert_eq!(without_number("2+b1"), Some("2"));
        for other in ["2", "2+1", "2+bk", "2+bk1x", "2+dfsg-1"] {
            assert_eq!(without_number(other), None, "{other}");
        }
    }
}
