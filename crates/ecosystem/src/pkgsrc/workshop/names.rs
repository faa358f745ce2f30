//! Selects the packages of a scan that are in a set, and names them.
//!
//! A package is named after its directory, such as `mail/mutt`, whatever its version. In a directory with several
//! packages, each one's own name is appended: `devel/py-hg:py39-hg`, with the version if only that distinguishes
//! them.
//!
//! A requested directory adds all of its packages; every other package is added because a package of the set
//! depends on it, and only the chosen one.

use super::WEIGHT_USUAL;
use super::{LeftOutPackage, Package, Scan, Workshop, split};
use crate::pkgsrc::awaited::Awaited;
use crate::pkgsrc::recipe_files::RecipeFiles;
use crate::pkgsrc::resolve::{RecipeVerdict, Remark, Resolution, Resolved, Rules, Scanned, Unmet, resolve};
use crate::pkgsrc::scan_file::{ScanFile, ScanFileError, Stanza};
use crate::pkgsrc::settings::Settings;
use crate::pkgsrc::stages::Recipe;
use crate::{LeftOut, hex};
use kilnyard_model::graph::{Graph, PackageId};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

impl Workshop {
    /// Resolves a scan. The set consists of the packages in these directories and their dependencies, or of
    /// everything.
    pub fn new(settings: Settings, scan: Scan, wanted: Option<&[String]>) -> Result<Workshop, ScanFileError> {
        let files = RecipeFiles::new(&settings.tree);
        let mut packages = Vec::new();
        let mut graph = Graph::new();
        let mut left_out = Vec::new();
        let mut left_out_packages = Vec::new();
        let mut remarks = Vec::new();
        if !scan.text.is_empty() {
            let file = ScanFile::parse(&scan.text)?;
            let mut scanned: Vec<Scanned> = file.stanzas.iter().map(Scanned::from).collect();
            let awaited: HashSet<&str> = scan.awaited.iter().map(|one| one.location.as_str()).collect();
            for one in scanned.iter_mut().filter(|one| awaited.contains(one.location)) {
                if one.verdict == RecipeVerdict::Buildable {
                    one.verdict = RecipeVerdict::Awaits;
                }
            }
            let resolved = resolve(&scanned, Rules::Kilnyard);
            let names = names(&file.stanzas);
            let mut in_graph = HashMap::new();
            let members = members(&file.stanzas, &resolved, wanted);
            for duplicate in &file.duplicates {
                remarks.push(format!("{} occurs twice; the first one counts", duplicate.0));
            }
            remarks.extend(remarks_of(&file.stanzas, &resolved, &members));
            for number in members {
                match &resolved.outcomes[number] {
                    Resolution::Buildable => {
                        in_graph.insert(number, graph.add(&names[number]));
                        packages.push(package(&file.stanzas[number], &scan.text));
                    }
                    outcome => {
                        left_out_packages.push(LeftOutPackage {
                            stanza: place(&file.stanzas[number], &scan.text),
                            is_indirect: matches!(outcome, Resolution::Indirect { .. }),
                            fail_reason: match outcome {
                                Resolution::Unresolved(unmet) => {
                                    unmet.last().map(|unmet| unmet.fail_reason())
                                }
                                _ => None,
                            },
                        });
                        left_out.push(LeftOut {
                            name: names[number].clone(),
                            explanation: explanation(number, &file.stanzas, &resolved, &names, &scan),
                        });
                    }
                }
            }
            for (number, id) in &in_graph {
                for dependency in &resolved.depends[*number] {
                    // The dependencies of a buildable package are buildable and in the set.
                    if let Some(dependency) = in_graph.get(&dependency.index()) {
                        graph.depend(*id, *dependency);
                    }
                }
            }
        }
        for (location, said) in &scan.failed {
            left_out
                .push(LeftOut { name: location.clone(), explanation: format!("its scan failed: {said}") });
        }
        let distfiles = packages.iter().map(|_| OnceLock::new()).collect();
        let trees: String = settings.layers.iter().map(|tree| format!("{}\n", tree.sha256)).collect();
        Ok(Workshop {
            root_digest: hex(&Sha256::digest(trees)),
            settings,
            scan,
            wanted: wanted.map(<[String]>::to_vec),
            packages,
            graph,
            left_out,
            remarks,
            left_out_packages,
            files,
            distfiles,
        })
    }
}

/// The numbers of the set's packages.
fn members(stanzas: &[Stanza], resolved: &Resolved, wanted: Option<&[String]>) -> Vec<usize> {
    let Some(wanted) = wanted else { return (0..stanzas.len()).collect() };
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let mut is_member = vec![false; stanzas.len()];
    let mut open: Vec<usize> =
        (0..stanzas.len()).filter(|number| wanted.contains(stanzas[*number].location)).collect();
    while let Some(number) = open.pop() {
        if !is_member[number] {
            is_member[number] = true;
            open.extend(resolved.depends[number].iter().map(|id| id.index()));
        }
    }
    (0..stanzas.len()).filter(|number| is_member[*number]).collect()
}

/// The resolver's remarks about packages of the set.
fn remarks_of(stanzas: &[Stanza], resolved: &Resolved, members: &[usize]) -> Vec<String> {
    let members: HashSet<usize> = members.iter().copied().collect();
    let is_member = |id: &PackageId| members.contains(&id.index());
    let name = |id: &PackageId| stanzas[id.index()].name;
    let sentence = |remark: &Remark| match remark {
        Remark::Elsewhere { package, pattern, location, chosen } if is_member(package) => Some(format!(
            "{}: the best match for {pattern} is {} in {}, not in {location}",
            name(package),
            name(chosen),
            stanzas[chosen.index()].location
        )),
        Remark::PassedOver { pattern, chosen, passed_over } if is_member(chosen) => {
            Some(format!("{pattern}: {} is used, because {} is not built", name(chosen), name(passed_over)))
        }
        _ => None,
    };
    resolved.remarks.iter().filter_map(sentence).collect()
}

fn names(stanzas: &[Stanza]) -> Vec<String> {
    let mut of_location: HashMap<&str, u32> = HashMap::new();
    let mut of_base: HashMap<(&str, &str), u32> = HashMap::new();
    for stanza in stanzas {
        *of_location.entry(stanza.location).or_default() += 1;
        *of_base.entry((stanza.location, split(stanza.name).0)).or_default() += 1;
    }
    let name = |stanza: &Stanza| {
        let (location, base) = (stanza.location, split(stanza.name).0);
        match (of_location[location], of_base[&(location, base)]) {
            (1, _) => location.to_owned(),
            (_, 1) => format!("{location}:{base}"),
            _ => format!("{location}:{}", stanza.name),
        }
    };
    stanzas.iter().map(name).collect()
}

/// The position of a stanza in the text that it was read from.
fn place(stanza: &Stanza, text: &[u8]) -> std::ops::Range<usize> {
    let start = stanza.offset(text);
    start..start + stanza.text().len()
}

/// More than any recipe has; an absurdly high estimate would distort all others.
const WEIGHT_MAX: u32 = 100_000;

fn package(stanza: &Stanza, text: &[u8]) -> Package {
    let field = |name: &str| stanza.get(name).map_or(String::new(), |value| value.trim().to_owned());
    let restricted = Some(field("NO_BIN_ON_FTP")).filter(|reason| !reason.is_empty());
    let recipe = Recipe {
        location: stanza.location.to_owned(),
        selection: field("MULTI_VERSION").split_ascii_whitespace().map(str::to_owned).collect(),
        usergroup_phase: field("USERGROUP_PHASE"),
        installs_as_root: field("USE_DESTDIR") == "destdir",
        is_bootstrap: field("BOOTSTRAP_PKG").eq_ignore_ascii_case("yes"),
    };
    Package {
        name: stanza.name.to_owned(),
        recipe,
        restricted,
        weight: field("PBULK_WEIGHT").parse().map_or(WEIGHT_USUAL, |weight: u32| weight.clamp(1, WEIGHT_MAX)),
        stanza: place(stanza, text),
        files: OnceLock::new(),
    }
}

/// Number of unmet dependencies in a package's explanation. All its dependents share the explanation, and only a
/// hostile or broken tree has more.
const UNMET_SHOWN_MAX: usize = 20;

/// Explains why a package is left out, down to the cause.
fn explanation(
    number: usize,
    stanzas: &[Stanza],
    resolved: &Resolved,
    names: &[String],
    scan: &Scan,
) -> String {
    let chain = resolved.chain(PackageId(number as u32));
    let mut lines: Vec<String> = chain
        .windows(2)
        .map(|pair| format!("it needs {}, which is left out", names[pair[1].index()]))
        .collect();
    let last = chain.last().map_or(number, |id| id.index());
    let stanza = &stanzas[last];
    let said = |text: &[u8]| String::from_utf8_lossy(text).trim_matches('"').to_owned();
    match &resolved.outcomes[last] {
        Resolution::LeftOut(RecipeVerdict::Skipped) => {
            lines.push(format!("it is skipped: {}", said(stanza.skip_reason)))
        }
        Resolution::LeftOut(RecipeVerdict::Awaits) => {
            let awaited = scan.awaited.iter().find(|one| one.location == stanza.location);
            lines.extend(awaited.map(Awaited::explanation));
        }
        Resolution::LeftOut(_) => lines.push(format!("it is known to fail: {}", said(stanza.fail_reason))),
        Resolution::Unresolved(unmet) => {
            for unmet in unmet.iter().take(UNMET_SHOWN_MAX) {
                lines.push(unmet.to_string());
                if let Unmet::NoMatch { location, .. } = &**unmet
                    && let Some((_, said)) = scan.failed.iter().find(|(other, _)| other == location)
                {
                    lines.push(format!("the scan of {location} failed: {said}"));
                }
            }
            if unmet.len() > UNMET_SHOWN_MAX {
                lines.push(format!("and {} more unmet dependencies", unmet.len() - UNMET_SHOWN_MAX));
            }
        }
        Resolution::InCycle(cycle) => {
            let members: Vec<&str> = cycle.iter().map(|id| names[id.index()].as_str()).collect();
            lines.push(format!("it is in a cycle: {}", members.join(" -> ")));
        }
        Resolution::Buildable | Resolution::Indirect { .. } => {}
    }
    lines.join("\n")
}
