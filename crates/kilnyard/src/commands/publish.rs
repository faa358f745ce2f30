//! `kilnyard publish`: writes the repository from the current outputs.

use super::print;
use crate::cli;
use crate::error::{Kind, Result};
use crate::family::Publishing;
use crate::yard::{Yard, bring, store_error};
use crate::{mirror, signals, words};
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Publish) -> Result<ExitCode> {
    let _lock = yard.lock()?;
    let mut store = yard.store()?;
    if options.continued {
        // Other servers then receive the yard from here. Publishing may take longer than a leader may be silent, so it
        // leaves at once.
        store.lead(&yard.as_holder()?).map_err(store_error)?;
        store.leave().map_err(store_error)?;
    }
    let distfiles = mirror::open_files(yard)?;
    let set = yard.config.family.resolve(yard, &distfiles)?;
    if options.dry_run {
        let plan = set.plan_publication(yard, &*store, &distfiles)?;
        if plan.is_empty() {
            say!("nothing to publish: the repository is up to date");
        }
        return print(&plan);
    }
    bring(&*store, &distfiles, signals::cancel())?;
    let published = match set.publish(yard, &*store, &distfiles)? {
        Publishing::Done(published) => published,
        Publishing::Delayed(reason) => {
            say!("not published yet: the signer is away: {reason}");
            return Ok(ExitCode::from(Kind::Machine as u8));
        }
    };
    let run = store.last_run().map_err(store_error)?.map(|run| run.number);
    super::build::note_published(&mut *store, run, &published);
    for remark in &published.remarks {
        say!("note: {remark}");
    }
    for refused in &published.refused {
        say!("the signer refuses {}", refused.line(yard));
    }
    let how = if published.is_changed { "published" } else { "unchanged" };
    say!("{how}: {}", words::count(published.packages, "package"));
    print(&format!("{}\n", published.line))?;
    Ok(if published.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}
