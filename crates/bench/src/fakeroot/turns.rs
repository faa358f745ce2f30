//! Calls that are made, and programs that are started, a few by each contender in turn.
//!
//! A call takes some hundred nanoseconds and an exec some hundred microseconds, and what a fakeroot adds to either is a part of
//! that; a machine that others use too changes its pace by more from one quarter of a second to the next. So the clients of all
//! contenders are there at once, on one core, and each does a little when it is asked to: what disturbs one for longer than that
//! disturbs all. Where a process lies in memory makes it faster or slower too, so that there are several sets of them.

use super::super::scratch::Scratch;
use super::contender::{self, Contender};
use super::sides;
use crate::error::{Context, Error, Kind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Sets of clients, one after another.
const SETS: usize = 8;
/// How often everybody in a set has a turn.
const TURNS: usize = 50;

/// The seconds that one of what these words ask of a client takes, of each contender: the fifth percentile of a set, in the
/// median of the sets. Who fails has no more turns.
pub fn measure(contenders: &[Contender], scratch: &Scratch, words: &[&str]) -> Result<Vec<Result<f64>>> {
    let mut seconds: Vec<Result<Vec<f64>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..SETS {
        let mut clients: Vec<Option<(Client, Vec<f64>)>> = Vec::new();
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            let client = seconds.is_ok().then(|| Client::start(contender, scratch, words)).transpose();
            clients.push(client.unwrap_or_else(|error| give_up(seconds, error)).map(|new| (new, Vec::new())));
        }
        for _ in 0..TURNS {
            super::super::go_on()?;
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

/// One that waits for its turns.
struct Client {
    name: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(contender: &Contender, scratch: &Scratch, words: &[&str]) -> Result<Client> {
        let mut command = contender.client_command(scratch, words)?;
        sides::stay_on(&mut command, sides::cores()[0]);
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

    /// The seconds of all that it did in a turn, each.
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
        // It leaves when there is nothing more to be done.
        self.orders = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::fifth_percentile;

    #[test]
    fn one_in_twenty_is_faster() {
        let times: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(fifth_percentile(times), 5.0);
        assert_eq!((fifth_percentile(vec![7.0]), fifth_percentile(Vec::new())), (7.0, 0.0));
    }
}
