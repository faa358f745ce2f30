//! The contenders: no fakeroot, Kilnyard's, and other installed ones.

use super::super::scratch::Scratch;
use super::client::ARGUMENT;
use crate::error::{Context, Error, Kind, Result};
use std::process::{Command, Stdio};
use std::time::Instant;

pub const PLAIN: &str = "plain";
pub const OURS: &str = "kilnyard";

/// The contender's name in keys of figures.
pub fn key(name: &str) -> String {
    name.replace('-', "_")
}

/// The error for a failed client, with its last line of output; or for an interrupt, if there was one.
pub fn failure(name: &str, status: &str, said: &[u8]) -> Error {
    if let Err(interrupted) = super::super::check_interrupt() {
        return interrupted;
    }
    let said = String::from_utf8_lossy(said);
    let last = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    Error::new(Kind::Machine, format!("{name} failed: {status}{last}"))
}

/// Whether this is another fakeroot.
pub fn is_other(name: &str) -> bool {
    name != PLAIN && name != OURS
}

/// Time limit for other fakeroots: fakeroot-tcp has been seen to wait for its daemon forever.
const OTHERS_SECONDS_MAX: &str = "180";

/// Words before the command for clients of Kilnyard's fakeroot.
const CLIENT_WORDS: [&str; 4] = ["/proc/self/exe", "fakeroot", "--static=off", "--"];

/// A way to run a command.
pub struct Contender {
    pub name: &'static str,
    /// Words before the command.
    pub words: Vec<&'static str>,
}

impl Contender {
    /// All contenders that are installed.
    pub fn all() -> Vec<Contender> {
        let known = [
            (PLAIN, vec![]),
            (OURS, vec!["/proc/self/exe", "fakeroot", "--"]),
            ("fakeroot-sysv", vec!["fakeroot-sysv", "--"]),
            ("fakeroot-tcp", vec!["fakeroot-tcp", "--"]),
            ("pseudo", vec!["fakeroot-pseudo"]),
        ];
        let known = known.into_iter().map(|(name, words)| Contender { name, words });
        known.filter(Contender::is_installed).collect()
    }

    fn is_installed(&self) -> bool {
        self.words.is_empty() || self.bounded(&["true"]).status().is_ok_and(|status| status.success())
    }

    /// Prepares a command to run this way. Real changes of ownership are not attempted, because an ordinary
    /// user could not make them.
    pub fn command(&self, more: &[&str]) -> Command {
        let words: Vec<&str> = self.words.iter().chain(more).copied().collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        command.env("FAKEROOTDONTTRYCHOWN", "1").env_remove("FAKEROOTKEY");
        command
    }

    /// Like [`command`](Self::command), for long commands. Other fakeroots are stopped at the time limit.
    pub fn bounded(&self, more: &[&str]) -> Command {
        if !is_other(self.name) {
            return self.command(more);
        }
        let words = ["timeout", OTHERS_SECONDS_MAX].into_iter().chain(self.words.iter().copied()).collect();
        Contender { name: self.name, words }.command(more)
    }

    /// Runs this program as a client. Returns the numbers that it prints.
    pub fn client(&self, scratch: &Scratch, words: &[&str]) -> Result<Vec<f64>> {
        let output = self.client_command(scratch, words)?.stderr(Stdio::piped()).output();
        let output = output.context(Kind::Machine, format!("run {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers
            .filter(|_| output.status.success())
            .ok_or_else(|| failure(self.name, &output.status.to_string(), &output.stderr))
    }

    /// Prepares this program to run as a client.
    pub fn client_command(&self, scratch: &Scratch, words: &[&str]) -> Result<Command> {
        let program = std::env::current_exe().or_internal("find this program")?;
        let program = program.to_string_lossy().into_owned();
        let words: Vec<&str> = [program.as_str(), ARGUMENT].iter().chain(words).copied().collect();
        // This program makes system calls directly, in addition to those through libc that are measured. Those
        // must not be intercepted.
        let mut command = if self.name == OURS {
            Contender { name: OURS, words: CLIENT_WORDS.to_vec() }.command(&words)
        } else {
            self.bounded(&words)
        };
        command.current_dir(scratch.path("."));
        Ok(command)
    }

    /// The minimum time to run `true`, in seconds.
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
