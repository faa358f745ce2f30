//! Calls and program starts, a few by each contender in turn.
//!
//! A call takes several hundred nanoseconds and an exec several hundred microseconds, and a fakeroot adds a fraction of
//! that. The speed of a shared machine changes by more within a quarter of a second. The clients of all contenders
//! therefore exist at the same time, on one core, and each does a little work when prompted by a line of input: a
//! disturbance that lasts longer than that affects all. The position of a process in memory also makes it faster or
//! slower, so several sets of clients are used.

use super::super::scratch::Scratch;
use super::contender::{self, Contender};
use super::sides;
use crate::error::{Context, Error, Kind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Number of sets of clients, one after another.
const SETS: usize = 8;
/// Number of turns that each client of a set has.
const TURNS: usize = 50;

/// Measures what these arguments make a client do once. Returns the seconds for each contender: the median over the
/// sets of a set's fifth percentile. A contender that fails gets no further turns.
pub fn measure(contenders: &[Contender], scratch: &Scratch, words: &[&str]) -> Result<Vec<Result<f64>>> {
    let mut seconds: Vec<Result<Vec<f64>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..SETS {
        let mut clients: Vec<Option<(Client, Vec<f64>)>> = Vec::new();
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            let client = seconds.is_ok().then(|| Client::start(contender, scratch, words)).transpose();
            clients.push(client.unwrap_or_else(|error| give_up(seconds, error)).map(|new| (new, Vec::new())));
        }
        for _ in 0..TURNS {
            super::super::check_interrupt()?;
            for (client, seconds) in clients.iter_mut().zip(&mut seconds) {
                let Some((running, times)) = client else { continue };
                match running.turn() {
                    Ok(more) => times.extend(more),
                    Err(error) => *client = give_up(seconds, error),
                }
            }
        }
        for (seconds, client) in seconds.iter_mut().zip(clients) {
            if let (Ok(seconds), Some((_, times))) = (seconds, client) {
                seconds.push(fifth_percentile(times));
            }
        }
    }
    Ok(seconds.into_iter().map(|seconds| seconds.map(|seconds| super::median(&seconds))).collect())
}

fn give_up<T>(seconds: &mut Result<Vec<f64>>, error: Error) -> Option<T> {
    *seconds = Err(error);
    None
}

fn fifth_percentile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 20).copied().unwrap_or(0.0)
}

/// A client that waits for its turns.
struct Client {
    name: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(contender: &Contender, scratch: &Scratch, words: &[&str]) -> Result<Client> {
        let mut command = contender.client_command(scratch, words)?;
        sides::pin_command(&mut command, sides::cores()[0]);
        let failed = || format!("start {}", contender.name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context(Kind::Machine, failed())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(answers)) => Ok(Client {
                name: contender.name,
                child,
                orders: Some(orders),
                answers: BufReader::new(answers),
            }),
            _ => Err(Error::new(Kind::Internal, failed())),
        }
    }

    /// Takes a turn. Returns the seconds of each of its parts.
    fn turn(&mut self) -> Result<Vec<f64>> {
        let mut line = String::new();
        let asked = self.orders.as_mut().map(|orders| orders.write_all(b"\n"));
        let answered = asked.transpose().and_then(|_| self.answers.read_line(&mut line));
        let times: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        match (answered, times) {
            (Ok(_), Some(times)) if !times.is_empty() => Ok(times),
            _ => Err(self.why_it_failed()),
        }
    }

    fn why_it_failed(&mut self) -> Error {
        self.orders = None;
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let mut said = Vec::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_end(&mut said);
        }
        contender::failure(self.name, &status, &said)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The client exits at the end of its input.
        self.orders = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::fifth_percentile;

    #[test]
    fn the_fifth_percentile_is_above_one_in_twenty() {
        let times: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(fifth_percentile(times), 5.0);
        assert_eq!((fifth_percentile(vec![7.0]), fifth_percentile(Vec::new())), (7.0, 0.0));
    }
}
