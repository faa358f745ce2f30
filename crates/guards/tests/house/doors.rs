//! Only the top floor accesses the outside world: it reads the environment, prints, and ends the process. The pure
//! crates, which only decide, do not access the system at all.

use crate::floors::{PURE, table_of_the_repository};
use crate::source::{Kind, SourceFile, Token, crate_of, expect_none, program, tokens};

/// An access that is reserved to the top floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Variables, arguments, the home and temporary folders.
    Environment,
    /// Standard input, output and error.
    Print,
    /// The end of the process.
    Exit,
    /// Files, processes, threads, the clock: for pure crates.
    System,
}

use Door::{Environment, Exit, Print};

/// Files below the top floor that are exempt, with the reason.
const ALLOWED: &[(&str, &[Door], &str)] = &[
    (
        "crates/bench/src/fakeroot/client.rs",
        &[Environment, Print, Exit],
        "a separate process: its arguments are the calls to make, its output the times; a forked child exits there",
    ),
    (
        "crates/fakeroot/preload/environment.rs",
        &[Environment],
        "a library inside other programs: it has no other way to find its session",
    ),
    (
        "crates/process/src/inspector.rs",
        &[Environment, Print, Exit],
        "a separate process: its arguments are the question, its output the answer",
    ),
    (
        "crates/process/src/weight/namespace.rs",
        &[Exit],
        "a forked child must not return into its parent's code",
    ),
    (
        "crates/root/src/sandbox.rs",
        &[Environment, Print, Exit],
        "a separate process: its arguments describe the sandbox",
    ),
    (
        "crates/root/src/sandbox/inner.rs",
        &[Environment, Print, Exit],
        "process 1 of a sandbox: it answers on its output, and sets PATH for the command",
    ),
    ("crates/root/src/sandbox/keep.rs", &[Print], "a keeper runs until its input ends"),
    (
        "crates/root/src/sandbox/outer.rs",
        &[Print, Exit],
        "a separate process: it reports on standard error and with its exit code",
    ),
    (
        "crates/yard/src/signing/process.rs",
        &[Environment, Print, Exit],
        "a separate process: its arguments name its folder, and it answers on its output",
    ),
    (
        "crates/block/src/service.rs",
        &[Environment, Print, Exit],
        "a separate process: its argument describes its device, and its parent reads its errors",
    ),
    ("crates/vm/src/guest.rs", &[Print, Exit], "process 1 of another machine, whose console the host reads"),
    (
        "crates/vm/src/console.rs",
        &[Environment, Print, Exit],
        "a separate process: its argument describes a machine, and its terminal is that of the command there",
    ),
    ("crates/vm/src/bin/kilnyard-guest.rs", &[Print], "a program: it says that it is no command"),
    ("crates/process/src/terminal.rs", &[Print], "the terminal of this process, for a command elsewhere"),
];

/// Token sequences, and the door that each goes through.
const PATHS: &[(&[&str], Door)] = &[
    (&["process", ":", ":", "exit"], Exit),
    (&["process", ":", ":", "abort"], Exit),
    (&["print", "!"], Print),
    (&["println", "!"], Print),
    (&["eprint", "!"], Print),
    (&["eprintln", "!"], Print),
    (&["dbg", "!"], Print),
    (&["stdin", "(", ")"], Print),
    (&["stdout", "(", ")"], Print),
    (&["stderr", "(", ")"], Print),
    (&["STDIN_FILENO"], Print),
    (&["STDOUT_FILENO"], Print),
    (&["STDERR_FILENO"], Print),
    (&["_exit"], Exit),
    (&["SYS_exit_group"], Exit),
    (&["getenv"], Environment),
    (&["environ"], Environment),
    (&["std", ":", ":", "fs"], Door::System),
    (&["std", ":", ":", "net"], Door::System),
    (&["std", ":", ":", "process"], Door::System),
    (&["std", ":", ":", "thread"], Door::System),
    (&["std", ":", ":", "env"], Door::System),
    (&["std", ":", ":", "os"], Door::System),
    (&["std", ":", ":", "io"], Door::System),
    (&["Instant", ":", ":", "now"], Door::System),
    (&["SystemTime", ":", ":", "now"], Door::System),
];

/// The items of `std::env` that access the environment; the current folder does not count.
const VARIABLES: [&str; 11] = [
    "var",
    "var_os",
    "vars",
    "vars_os",
    "args",
    "args_os",
    "temp_dir",
    "home_dir",
    "set_var",
    "remove_var",
    "as",
];

/// The doors that these tokens go through, with the line and the words.
fn passages(tokens: &[Token]) -> Vec<(Door, usize, String)> {
    let is = |at: usize, text: &str| {
        tokens.get(at).is_some_and(|token| token.kind == Kind::Code && token.text == text)
    };
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let line = tokens[at].line;
        // A field or a method with this name does not count: `command.stdout(file)`.
        let is_member = at > 0 && is(at - 1, ".");
        for (path, door) in PATHS {
            if !is_member && path.iter().enumerate().all(|(offset, word)| is(at + offset, word)) {
                found.push((*door, line, path.concat()));
            }
        }
        if is(at, "env") && is(at + 1, ":") && is(at + 2, ":") {
            let named: Vec<&Token> = match is(at + 3, "{") {
                true => tokens[at + 4..].iter().take_while(|token| token.text != "}").collect(),
                false => tokens[at + 3..].iter().take(1).collect(),
            };
            let named = named.iter().map(|token| token.text.as_str());
            found.extend(
                named
                    .filter(|name| *name == "*" || VARIABLES.contains(name))
                    .map(|name| (Environment, line, format!("env::{name}"))),
            );
        } else if is(at, "env") && is(at + 1, "as") {
            found.push((Environment, line, "env as".to_owned()));
        }
    }
    found
}

/// `top` are the crates of the top floor.
fn complaints(files: &[SourceFile], top: &[String], allowed: &[(&str, &[Door], &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut used = Vec::new();
    for file in files.iter().filter(|file| !top.iter().any(|name| name == crate_of(&file.path))) {
        for (door, line, words) in passages(&tokens(&file.text)) {
            if door == Door::System {
                if PURE.contains(&crate_of(&file.path)) {
                    complaints.push(format!(
                        "{}:{line}: `{words}` in a pure crate: let its caller do this and pass the result",
                        file.path
                    ));
                }
            } else if allowed.iter().any(|(path, doors, _)| *path == file.path && doors.contains(&door)) {
                used.push((file.path.clone(), door));
            } else {
                complaints.push(format!(
                    "{}:{line}: `{words}` below the top floor: pass it as an argument, or return the text to print",
                    file.path
                ));
            }
        }
    }
    for (path, doors, _) in allowed {
        let idle = doors.iter().filter(|door| !used.iter().any(|(file, used)| file == path && used == *door));
        complaints.extend(idle.map(|door| format!("{path} no longer has {door:?}: remove it from the list")));
    }
    complaints
}

#[test]
fn only_the_top_floor_accesses_the_outside_world() {
    let table = table_of_the_repository();
    let highest = table.values().map(|row| row.floor).max().expect("a table of floors");
    let mut top: Vec<String> =
        table.iter().filter(|(_, row)| row.floor == highest).map(|(name, _)| name.clone()).collect();
    top.push("guards".to_owned());
    expect_none(complaints(&program(), &top, ALLOWED));
}

#[test]
fn a_passage_below_the_top_floor_is_found() {
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let bad = "use std::env::{self, var_os};\nfn a() {\n  std::env::args();\n  eprintln!(\"x\");\n  std::io::stdout();\n  \
        std::process::exit(1);\n}\nuse std::env as e;\n";
    let good = "// std::process::exit\nfn a() { command.stdout(file); child.stdout(); env::current_dir(); \"println!\"; }\n\
        #[cfg(test)] mod tests { fn a() { println!(); } }\n";
    let files = [
        file("crates/root/src/bad.rs", bad),
        file("crates/root/src/good.rs", good),
        file("crates/root/src/listed.rs", "fn a() { std::process::exit(1) }"),
        file("crates/kilnyard/src/top.rs", bad),
        file("crates/model/src/pure.rs", "fn a() { std::time::Instant::now(); }"),
    ];
    let allowed: [(&str, &[Door], &str); 1] = [("crates/root/src/listed.rs", &[Exit, Print], "")];
    let found = complaints(&files, &["kilnyard".to_owned()], &allowed);
    let expected = [
        "crates/root/src/bad.rs:1: `env::var_os`",
        "crates/root/src/bad.rs:3: `env::args`",
        "crates/root/src/bad.rs:4: `eprintln!`",
        "crates/root/src/bad.rs:5: `stdout()`",
        "crates/root/src/bad.rs:6: `process::exit`",
        "crates/root/src/bad.rs:8: `env as`",
        "crates/model/src/pure.rs:1: `Instant::now`",
        "crates/root/src/listed.rs no longer has Print",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (complaint, start) in found.iter().zip(expected) {
        assert!(complaint.starts_with(start), "{complaint}");
    }
}
