//! `kilnyard root plan`: shows how the root of a package would be made and removed.

use super::{print, print_json, unknown_package};
use crate::cli;
use crate::error::{Error, Result};
use crate::plan::{self, Forced};
use crate::words::{count, size};
use crate::yard::{Yard, store_error};
use crate::{mirror, worker};
use kilnyard_root::Operation;
use kilnyard_worker::{BuildFacts, RootFolder};
use kilnyard_yard::remedy::Remedy;
use serde_json::json;
use std::process::ExitCode;

pub fn plan(yard: &Yard, options: &cli::RootPlan) -> Result<ExitCode> {
    let name = &options.package;
    if yard.config.family.trees(yard).is_none() {
        return Err(Error::usage("there is no base root yet").hint(Remedy::command("build")));
    }
    let mut store = yard.store()?;
    let mut planned = plan::make(yard, &mirror::open_files(yard)?, &mut *store, &Forced::Nothing)?;
    let graph = planned.workshop.graph();
    let Some(id) = graph.find(name) else {
        let known: Vec<String> = graph.packages().map(|id| graph.name(id).to_owned()).collect();
        return Err(plan::reused(&*planned.workshop, name).unwrap_or_else(|| unknown_package(name, &known)));
    };
    // Roots do not depend on the package's revision.
    let order = planned.stock.order(id, 1);
    let mut order = order.map_err(|impossible| Error::usage(impossible.explanation))?;
    yard.config.tables.complete(&mut order, &planned.traps);
    let build = store.next_build().map_err(store_error)?;
    let local = worker::local(yard, &order.root, false)?;
    let facts = BuildFacts {
        order: &order,
        local: &local,
        roots: yard.config.roots,
        works_in_memory: yard.config.build.work_in_memory,
        written_bytes: planned.written_bytes(id),
    };
    let root = RootFolder::planned(&yard.folder, &build.to_string(), &yard.ids(), &facts);
    let plan = root.plan();
    let machine = order.terms.machine;
    let image = RootFolder::planned_image(&yard.folder, &local.layers, yard.config.roots);
    let image = image.filter(|_| machine.is_none());
    let parts = [
        ("image", "once for all roots of these layers", image.map_or(Vec::new(), |plan| plan.operations)),
        ("once", "once, by Kilnyard", plan.make.clone()),
        ("held", "once, held until the root is removed", plan.hold.clone()),
        ("each-command", "before each command", root.entering()),
        (
            "of-builder",
            "before each of the builder's, then",
            root.entering_of_builder().into_iter().collect(),
        ),
        ("at-the-end", "at the end", plan.removing()),
    ];
    if options.json {
        let mut value = json!({
            "package": name,
            "version": order.version,
            "roots": yard.config.roots,
            "machine": machine,
        });
        for (key, _, operations) in &parts {
            value[*key] = json!(operations);
        }
        return print_json(&value);
    }
    let how = match machine {
        Some(machine) => format!(
            "in a virtual machine of {} and {}",
            count(machine.cores.into(), "core"),
            size(machine.memory_bytes)
        ),
        None => format!("by {}", yard.config.roots),
    };
    let mut text = format!("the root of {name} {}, {how}\n", order.version);
    for (_, title, operations) in parts.iter().filter(|(_, _, operations)| !operations.is_empty()) {
        text.push_str(&format!("{title}\n"));
        text.extend(operations.iter().map(|operation: &Operation| format!("  {operation}\n")));
    }
    print(&text)
}
