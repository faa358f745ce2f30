//! Names of groups. A name records the owner and creator of its group, so that groups left behind by a killed
//! Kilnyard can be recognized and removed.

use crate::processes::Process;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The prefix of all names.
const PREFIX: &str = "kilnyard-";
/// The owner of the groups of commands that run outside a build's group.
pub(crate) const COMMANDS: &str = "command";
/// The subgroup for Kilnyard's own processes.
pub(crate) const SUPERVISOR: &str = "supervisor";
/// How much of the owner goes into a name; cgroup file systems allow 255 bytes.
const OWNER_CHARS_MAX: usize = 100;

/// The process that created a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maker {
    /// The pid namespace of its process id. A process of another container cannot be looked up here.
    namespace: u64,
    number: u32,
    /// Its start time, because process ids are reused.
    started: u64,
}

impl Maker {
    fn this_process() -> Maker {
        let number = std::process::id();
        let started = Process::of(number).map_or(0, |process| process.started);
        Maker { namespace: pid_namespace(), number, started }
    }

    /// Whether it is certainly gone.
    fn is_gone(&self) -> bool {
        self.namespace == pid_namespace()
            && Process::of(self.number)
                .is_none_or(|process| process.started != self.started || process.is_dead)
    }
}

fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// A unique name for a new group of this process.
pub(crate) fn new(owner: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let maker = Maker::this_process();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let owner = word(owner);
    format!("{PREFIX}{owner}-{}-{}-{}-{count}", maker.namespace, maker.number, maker.started)
}

/// Whether the group of this name was created for this owner by a process that is gone.
pub(crate) fn is_stale(name: &str, owner: &str) -> bool {
    maker_of(name, owner).is_some_and(|maker| maker.is_gone())
}

fn maker_of(name: &str, owner: &str) -> Option<Maker> {
    let (found, maker) = owner_and_maker(name)?;
    (found == word(owner)).then_some(maker)
}

fn owner_and_maker(name: &str) -> Option<(&str, Maker)> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplitn(5, '-');
    let mut next = || parts.next().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let _count: u64 = next()?.parse().ok()?;
    let started = next()?.parse().ok()?;
    let number = next()?.parse().ok()?;
    let namespace = next()?.parse().ok()?;
    Some((parts.next()?, Maker { namespace, number, started }))
}

/// Whether this is the group that a Kilnyard moved itself into, and may therefore manage.
pub(crate) fn is_supervisor(folder: &Path) -> bool {
    let name = |folder: &Path| folder.file_name()?.to_str().map(str::to_owned);
    let above = folder.parent().and_then(name).unwrap_or_default();
    name(folder).as_deref() == Some(SUPERVISOR) && owner_and_maker(&above).is_some()
}

/// The owner in a form that is safe in a file name.
fn word(owner: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-' { c } else { '_' };
    owner.chars().take(OWNER_CHARS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_groups_of_the_same_owner_and_of_ended_processes_are_abandoned() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (number, started) = (child.id(), Process::of(child.id()).unwrap().started);
        let name =
            |owner: &str, started: u64| format!("kilnyard-{owner}-{}-{number}-{started}-0", pid_namespace());
        assert!(!is_stale(&new("yard"), "yard"));
        assert!(!is_stale(&name("yard", started), "yard"), "its creator lives");
        assert!(is_stale(&name("yard", started + 1), "yard"), "the number was reused");
        child.kill().unwrap();
        // Even before it has been waited for.
        while Process::of(number).is_some_and(|process| !process.is_dead) {
            std::thread::yield_now();
        }
        assert!(is_stale(&name("yard", started), "yard"));
        child.wait().unwrap();
        assert!(is_stale(&name("yard", started), "yard"));
        assert!(!is_stale(&name("yard-2", started), "yard"));
        assert!(!is_stale(&name("yard", started), "yard-2"));
        assert!(!is_stale(&format!("kilnyard-yard-1-{number}-{started}-0"), "yard"), "another container's");
        assert!(!is_stale("kilnyard-yard-1-2-3-4-5", "yard"));
        assert!(!is_stale("kilnyard-yard---", "yard"));
    }

    #[test]
    fn a_supervisor_is_recognized_by_its_parent_group() {
        let is_one = |path: &str| is_supervisor(Path::new(path));
        assert!(is_supervisor(&Path::new("/c").join(new("a-yard")).join(SUPERVISOR)));
        assert!(is_one("/c/kilnyard-yard-1-2-3-4/supervisor"));
        for other in ["/c/supervisor", "/c/kilnyard-yard/supervisor", "/c/kilnyard-yard-1-2-3-4/other", "/"] {
            assert!(!is_one(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_one_path_component_and_records_its_maker(owner in "\\PC{0,300}", other in "[a-z0-9-]{0,9}") {
            let name = new(&owner);
            prop_assert!(name.len() < 255 && !name.contains('/'), "{name}");
            prop_assert_eq!(maker_of(&name, &owner), Some(Maker::this_process()));
            prop_assert!(word(&owner) == other || maker_of(&name, &other).is_none());
        }
    }
}
