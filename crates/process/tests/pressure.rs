//! The memory of a real group with a limit, and a process that the kernel kills for exceeding it.

use kilnyard_process::pressure;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Enough for a shell and its commands, and far less than the machine has.
const LIMIT_BYTES: u64 = 48 << 20;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("print-memory") {
        println!("{}\n{}", pressure::total_bytes().unwrap(), pressure::available_bytes().unwrap());
        return;
    }
    let need = Group::make("test-of-need").err();
    let test = |name: &'static str, run: fn() -> Result<(), Failed>| {
        if let Some(reason) = &need {
            eprintln!("skipped: {name}: {reason}");
        }
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("a_groups_limit_bounds_what_there_is", a_groups_limit_bounds_what_there_is),
        test("a_process_killed_for_memory_is_counted", a_process_killed_for_memory_is_counted),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// A group with a limit, below the one that this test is in.
struct Group(PathBuf);

impl Group {
    fn make(name: &str) -> Result<Group, String> {
        let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let path = own.lines().find_map(|line| line.split_once(":memory:"));
        let (_, path) = path.ok_or("the memory controller has no cgroup v1")?;
        let base = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/'));
        let group = Group(base.join(format!("kilnyard-{name}-{}", std::process::id())));
        let failed = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
        std::fs::create_dir(&group.0).map_err(|error| failed(&group.0, error))?;
        for (file, value) in
            [("memory.limit_in_bytes", LIMIT_BYTES.to_string()), ("memory.swappiness", "0".into())]
        {
            let file = group.0.join(file);
            std::fs::write(&file, value).map_err(|error| failed(&file, error))?;
        }
        Ok(group)
    }

    /// Runs a shell command in the group.
    fn run(&self, command: &str) -> std::io::Result<Output> {
        let enter = r#"echo $$ > "$0/cgroup.procs" && "#;
        Command::new("sh").arg("-c").arg(format!("{enter}{command}")).arg(&self.0).output()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn a_groups_limit_bounds_what_there_is() -> Result<(), Failed> {
    assert!(pressure::total_bytes() > Some(LIMIT_BYTES), "the machine has less than the test's group");
    let group = Group::make("test-of-limits")?;
    let program = std::env::current_exe()?;
    let output = group.run(&format!("exec '{}' print-memory", program.display()))?;
    let printed = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> = printed.lines().map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(numbers[0], LIMIT_BYTES);
    assert!(0 < numbers[1] && numbers[1] < LIMIT_BYTES, "the program itself uses some: {numbers:?}");
    Ok(())
}

fn a_process_killed_for_memory_is_counted() -> Result<(), Failed> {
    let before = pressure::killed_for_memory().ok_or("the kernel does not count kills")?;
    let group = Group::make("test-of-kills")?;
    // tail buffers an unterminated line as a whole.
    let output = group.run("head -c 300M /dev/zero | tail -n 1 | wc -c")?;
    assert_ne!(String::from_utf8(output.stdout)?.trim(), "314572800", "the limit did not hold");
    assert!(pressure::killed_for_memory() > Some(before));
    Ok(())
}
