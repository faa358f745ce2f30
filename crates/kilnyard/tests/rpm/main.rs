//! RPM: repositories that are checked, and spec files that become a repository. All packages are real, made by rpmbuild.

#[path = "../support/mod.rs"]
mod support;

mod bootstrap;
mod builds;
mod check;
mod disasters;
mod downloads;
mod farm;
mod generated;
mod hostile;
mod layers;
mod learned;
mod signatures;

use support::{has, is_root, trials};

fn main() {
    let has_tools = has("rpmbuild") && has("createrepo_c");
    let mut cases = check::cases(has_tools);
    let has_builders = has_tools && has("dnf") && has("bsdtar") && has("debugedit") && is_root();
    cases.extend(builds::cases(has_builders));
    cases.extend(bootstrap::cases(has_builders));
    cases.extend(generated::cases(has_builders));
    cases.extend(layers::cases(has_builders));
    cases.extend(learned::cases(has_builders));
    cases.extend(hostile::cases(has_builders));
    cases.extend(signatures::cases(has_builders));
    cases.extend(farm::cases(has_builders));
    cases.extend(downloads::cases(has_builders));
    cases.extend(disasters::cases(has_builders));
    // They wait for half of their time.
    trials::run(cases, 3, builds::remove);
}
