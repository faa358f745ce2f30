//! `kilnyard publish`: writes the repository from what was built.

use super::print;
use crate::cli;
use crate::error::Result;
use crate::scan::Index;
use crate::yard::Yard;
use crate::{base, plan, publish, words};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Publish) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let store = yard.store()?;
    let distfiles = plan::open_distfiles(yard)?;
    let index = Index::open(yard)?;
    let workshop = plan::resolve(yard, &index, base::find(yard).unwrap_or_default(), &distfiles)?;
    if options.dry_run {
        return print(&publish::plan(yard, &store, &workshop, &distfiles)?);
    }
    let published = publish::publish(yard, &store, &workshop, &distfiles)?;
    let how = if published.is_changed { "published" } else { "unchanged" };
    tell!("{how}: {}", words::count(published.packages, "package"));
    print(&format!("{}\n", published.sources_line))
}
