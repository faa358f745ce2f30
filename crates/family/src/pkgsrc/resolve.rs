//! `kilnyard resolve`: resolves the dependencies of a scan file, without a yard.

use super::options::{Resolve, ScanFamily};
use kilnyard_ecosystem::pkgsrc::resolve::{Remark, Resolution, Resolved, Rules, Scanned, resolve};
use kilnyard_ecosystem::pkgsrc::scan_file::{ScanFile, Stanza};
use kilnyard_model::graph::PackageId;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::program::Program;
use kilnyard_yard::words;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Size of the output buffer.
const CHUNK_BYTES: usize = 1 << 20;
/// Number of remarks of each kind that are printed without --verbose: a hostile or broken scan has millions.
const REMARKS_MAX: usize = 20;

/// Number of members of a cycle that a stanza names: a cycle of all packages has as many stanzas as members.
const MEMBERS_MAX: usize = 20;

pub fn run(options: &Resolve, program: &dyn Program) -> Result<ExitCode> {
    let ScanFamily::Pkgsrc = options.ecosystem;
    let shown = options.import.display();
    let text = program.read(&options.import).context(Kind::Usage, format!("read {shown}"))?;
    let file = ScanFile::parse(&text).context(Kind::Usage, format!("read {shown}"))?;
    for (name, line) in &file.duplicates {
        say!(program, "warning: line {line}: duplicate package {name}; the first one is used");
    }
    let scanned: Vec<Scanned> = file.stanzas.iter().map(Scanned::from).collect();
    let rules = if options.pbulk_rules { Rules::Pbulk } else { Rules::Kilnyard };
    let resolved = resolve(&scanned, rules);
    export(&file.stanzas, &resolved, options.export.as_deref(), program)?;
    report(&scanned, &resolved, options.verbose, program);
    // pbulk exits with an error, too; but here the file is still written, and names the members.
    let has_cycle = resolved.outcomes.iter().any(|outcome| matches!(outcome, Resolution::InCycle(_)));
    Ok(if has_cycle { ExitCode::from(Kind::Packages as u8) } else { ExitCode::SUCCESS })
}

/// Writes the scan with its dependencies. A file is replaced atomically.
fn export(stanzas: &[Stanza], resolved: &Resolved, path: Option<&Path>, program: &dyn Program) -> Result<()> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        return program.write(&mut |out| write(stanzas, resolved, out)).map(|_| ());
    };
    let failed = format!("write {}", path.display());
    if fs_err::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        // A pipe or a device cannot be replaced by a rename.
        let file = File::options().write(true).open(path).context(Kind::Machine, &failed)?;
        return write(stanzas, resolved, file).context(Kind::Machine, &failed);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = File::create(&part)
        .and_then(|file| write(stanzas, resolved, file))
        .and_then(|()| std::fs::rename(&part, path));
    written.context(Kind::Machine, &failed).inspect_err(|_: &Error| {
        let _ = std::fs::remove_file(&part);
    })
}

fn write(stanzas: &[Stanza], resolved: &Resolved, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, out);
    for (number, stanza) in stanzas.iter().enumerate() {
        let reason = match &resolved.outcomes[number] {
            Resolution::Unresolved(unmet) => unmet.last().map(|unmet| unmet.fail_reason()),
            Resolution::InCycle(cycle) => {
                let mut members: Vec<&str> =
                    cycle.iter().take(MEMBERS_MAX).map(|id| stanzas[id.index()].name).collect();
                if cycle.len() > MEMBERS_MAX {
                    members.push("...");
                }
                Some(format!("\"it is in a cycle: {}\"", members.join(" -> ")))
            }
            _ => None,
        };
        let depends = if reason.is_some() { &[][..] } else { &resolved.depends[number] };
        let names = depends.iter().map(|id| stanzas[id.index()].name);
        stanza.write_resolved(&mut out, names, reason.as_deref())?;
    }
    out.flush()
}

fn report(scanned: &[Scanned], resolved: &Resolved, is_verbose: bool, program: &dyn Program) {
    let name = |id: PackageId| scanned[id.index()].name;
    let names =
        |ids: &[PackageId], between: &str| ids.iter().map(|id| name(*id)).collect::<Vec<_>>().join(between);
    let (mut buildable, mut left_out, mut unresolved, mut in_cycle, mut indirect) = (0, 0, 0, 0, 0);
    let mut printed_cycles: HashSet<Vec<PackageId>> = HashSet::new();
    let mut unmet_count = 0;
    for (number, outcome) in resolved.outcomes.iter().enumerate() {
        let id = PackageId(number as u32);
        match outcome {
            Resolution::Buildable => buildable += 1,
            Resolution::LeftOut(_) => left_out += 1,
            Resolution::Unresolved(unmet) => {
                unresolved += 1;
                for unmet in unmet {
                    if is_verbose || unmet_count < REMARKS_MAX {
                        say!(program, "{}: {unmet}", name(id));
                    }
                    unmet_count += 1;
                }
            }
            Resolution::InCycle(cycle) => {
                in_cycle += 1;
                let mut members = cycle[1..].to_vec();
                members.sort_unstable();
                if printed_cycles.insert(members) && (is_verbose || printed_cycles.len() <= REMARKS_MAX) {
                    say!(program, "cycle: {}", names(cycle, " -> "));
                }
            }
            Resolution::Indirect { .. } => {
                indirect += 1;
                if is_verbose {
                    say!(program, "left out: {}", names(&resolved.chain(id), " -> "));
                }
            }
        }
    }
    for (count, what) in [(unmet_count, "unmet dependencies"), (printed_cycles.len(), "cycles")] {
        if count > REMARKS_MAX && !is_verbose {
            say!(program, "and {} more {what} (--verbose lists them)", count - REMARKS_MAX);
        }
    }
    let elsewhere: Vec<String> = resolved
        .remarks
        .iter()
        .filter_map(|remark| match remark {
            Remark::Elsewhere { package, pattern, location, chosen } => Some(format!(
                "warning: {}: the best match for {pattern} is {} in {}, not in {location}",
                name(*package),
                name(*chosen),
                scanned[chosen.index()].location
            )),
            Remark::PassedOver { .. } => None,
        })
        .collect();
    let passed_over: Vec<String> = resolved
        .remarks
        .iter()
        .filter_map(|remark| match remark {
            Remark::PassedOver { pattern, chosen, passed_over } => Some(format!(
                "{pattern}: {} is used, because {} is not built",
                name(*chosen),
                name(*passed_over)
            )),
            Remark::Elsewhere { .. } => None,
        })
        .collect();
    for remarks in [&passed_over, &elsewhere] {
        let count = if is_verbose { remarks.len() } else { REMARKS_MAX.min(remarks.len()) };
        for remark in &remarks[..count] {
            say!(program, "{remark}");
        }
        if count < remarks.len() {
            say!(program, "and {} more of these (--verbose lists them)", remarks.len() - count);
        }
    }
    say!(
        program,
        "{}: {buildable} can be built, {left_out} are left out by their own makefiles, {unresolved} cannot be resolved, \
         {in_cycle} are in cycles, {indirect} depend on these",
        words::count(scanned.len() as u64, "package")
    );
}
