//! Who is measured: no fakeroot, ours, and those that are installed.

use super::super::scratch::Scratch;
use super::client::ARGUMENT;
use crate::error::{Context, Error, Kind, Result};
use std::process::{Command, Stdio};
use std::time::Instant;

pub const PLAIN: &str = "plain";
pub const OURS: &str = "kilnyard";

/// The name of a contender in names of figures.
pub fn key(name: &str) -> String {
    name.replace('-', "_")
}

/// That a client of a contender failed, with its last words; or that it was interrupted, as all of this is then.
pub fn failure(name: &str, status: &str, said: &[u8]) -> Error {
    if let Err(interrupted) = super::super::go_on() {
        return interrupted;
    }
    let said = String::from_utf8_lossy(said);
    let last = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    Error::new(Kind::Machine, format!("measure {name}: {status}{last}"))
}

/// Whether that is another fakeroot.
pub fn is_other(name: &str) -> bool {
    name != PLAIN && name != OURS
}

/// How long others may take for anything; fakeroot-tcp was seen to wait for its daemon for ever.
const OTHERS_SECONDS_MAX: &str = "180";

/// What comes before a client of ours.
const CLIENT_WORDS: [&str; 4] = ["/proc/self/exe", "fakeroot", "--static=off", "--"];

/// One way to run a command.
pub struct Contender {
    pub name: &'static str,
    /// What comes before the command.
    pub words: Vec<&'static str>,
}

impl Contender {
    /// Those that are there.
    pub fn all() -> Vec<Contender> {
        let known = [
            (PLAIN, vec![]),
            (OURS, vec!["/proc/self/exe", "fakeroot", "--"]),
            ("fakeroot-sysv", vec!["fakeroot-sysv", "--"]),
            ("fakeroot-tcp", vec!["fakeroot-tcp", "--"]),
            ("pseudo", vec!["fakeroot-pseudo"]),
        ];
        let known = known.into_iter().map(|(name, words)| Contender { name, words });
        known.filter(Contender::is_there).collect()
    }

    fn is_there(&self) -> bool {
        self.words.is_empty() || self.bounded(&["true"]).status().is_ok_and(|status| status.success())
    }

    /// A command by this way. Owners that root could really give are not tried: no ordinary user could.
    pub fn command(&self, more: &[&str]) -> Command {
        let words: Vec<&str> = self.words.iter().chain(more).copied().collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        command.env("FAKEROOTDONTTRYCHOWN", "1").env_remove("FAKEROOTKEY");
        command
    }

    /// The same for what takes long. Others are given up after a time.
    pub fn bounded(&self, more: &[&str]) -> Command {
        if !is_other(self.name) {
            return self.command(more);
        }
        let words = ["timeout", OTHERS_SECONDS_MAX].into_iter().chain(self.words.iter().copied()).collect();
        Contender { name: self.name, words }.command(more)
    }

    /// Runs this program as a client; the numbers that it prints.
    pub fn client(&self, scratch: &Scratch, words: &[&str]) -> Result<Vec<f64>> {
        let output = self.client_command(scratch, words)?.stderr(Stdio::piped()).output();
        let output = output.context(Kind::Machine, format!("run {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers
            .filter(|_| output.status.success())
            .ok_or_else(|| failure(self.name, &output.status.to_string(), &output.stderr))
    }

    /// This program as a client.
    pub fn client_command(&self, scratch: &Scratch, words: &[&str]) -> Result<Command> {
        let program = std::env::current_exe().or_internal("find this program")?;
        let program = program.to_string_lossy().into_owned();
        let words: Vec<&str> = [program.as_str(), ARGUMENT].iter().chain(words).copied().collect();
        // This program has system calls of its own, beside libc's that are measured, and would be answered for them.
        let mut command = if self.name == OURS {
            Contender { name: OURS, words: CLIENT_WORDS.to_vec() }.command(&words)
        } else {
            self.bounded(&words)
        };
        command.current_dir(scratch.path("."));
        Ok(command)
    }

    /// How long it takes to run `true`, at best.
    pub fn start(&self, scratch: &Scratch) -> Result<f64> {
        const STARTS: u32 = 8;
        let mut best = f64::INFINITY;
        for _ in 0..STARTS {
            let mut command = self.command(&["true"]);
            let started = Instant::now();
            let status = command.current_dir(scratch.path(".")).status();
            let status = status.context(Kind::Machine, format!("start {}", self.name))?;
            if !status.success() {
                return Err(failure(self.name, &status.to_string(), b""));
            }
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}
