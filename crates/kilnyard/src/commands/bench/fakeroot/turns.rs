//! Calls that are made, and programs that are started, a few by each contender in turn.
//!
//! A call takes some hundred nanoseconds and an exec some hundred microseconds, and what a fakeroot adds to either is a part of
//! that; a machine that others use too changes its pace by more from one quarter of a second to the next. So the clients of all
//! contenders are there at once, on one core, and each does a little when it is asked to: what disturbs one for longer than that
//! disturbs all. Where a process lies in memory makes it faster or slower too, so that there are several sets of them.

use super::super::figures::Summary;
use super::super::scratch::Scratch;
use super::contender::Contender;
use super::sides;
use crate::error::{Context, Error, Kind, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Sets of clients, one after another.
const SETS: usize = 8;
/// How often everybody in a set has a turn.
const TURNS: usize = 50;

/// The seconds that one of what these words ask of a client takes, of each contender: the fifth percentile of a set, in the
/// median of the sets.
pub fn measure(contenders: &[Contender], scratch: &Scratch, words: &[&str]) -> Result<Vec<f64>> {
    let mut seconds = vec![Vec::new(); contenders.len()];
    for _ in 0..SETS {
        let started: Result<Vec<Client>> =
            contenders.iter().map(|contender| Client::start(contender, scratch, words)).collect();
        let mut clients = started?;
        let mut times = vec![Vec::new(); clients.len()];
        for _ in 0..TURNS {
            super::super::go_on()?;
            for (client, times) in clients.iter_mut().zip(&mut times) {
                times.extend(client.turn()?);
            }
        }
        seconds.iter_mut().zip(times).for_each(|(seconds, times)| seconds.push(fifth_percentile(times)));
    }
    Ok(seconds.iter().map(|seconds| Summary::of(seconds).map_or(0.0, |summary| summary.median)).collect())
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
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context(Kind::Machine, failed())?;
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
        let failed = || format!("measure {}", self.name);
        let mut line = String::new();
        if let Some(orders) = &mut self.orders {
            orders.write_all(b"\n").context(Kind::Machine, failed())?;
            self.answers.read_line(&mut line).context(Kind::Machine, failed())?;
        }
        let times: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        times.filter(|times| !times.is_empty()).ok_or_else(|| Error::new(Kind::Machine, failed()))
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
