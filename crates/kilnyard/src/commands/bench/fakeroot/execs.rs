//! Programs that are started, a few by each contender in turn.
//!
//! An exec takes some hundred microseconds, and what a fakeroot adds to it is a twentieth of that; a machine that others use too
//! changes its pace by more from one quarter of a second to the next. So the clients of all contenders are there at once, on one
//! core, and each starts a few programs when it is asked to: what disturbs one for longer than that disturbs all.

use super::super::scratch::Scratch;
use super::contender::Contender;
use super::sides;
use crate::error::{Context, Error, Kind, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// How often everybody has a turn; each starts [`super::client::EXECS`] programs.
const TURNS: usize = 400;
/// The core that all of it runs on.
const CORE: usize = 0;

/// The fifth percentile of the seconds that starting a program in one of the [`super::client::WAYS`] and waiting for its end
/// takes, of each contender.
pub fn measure(contenders: &[Contender], scratch: &Scratch, way: &str) -> Result<Vec<f64>> {
    let started: Result<Vec<Client>> =
        contenders.iter().map(|contender| Client::start(contender, scratch, way)).collect();
    let mut clients = started?;
    let mut times = vec![Vec::new(); clients.len()];
    for _ in 0..TURNS {
        super::super::go_on()?;
        for (client, times) in clients.iter_mut().zip(&mut times) {
            times.extend(client.turn()?);
        }
    }
    Ok(times.into_iter().map(fifth_percentile).collect())
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
    fn start(contender: &Contender, scratch: &Scratch, way: &str) -> Result<Client> {
        let mut command = contender.client_command(scratch, &["exec", way])?;
        sides::stay_on(&mut command, CORE);
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

    /// The seconds of each program of a turn.
    fn turn(&mut self) -> Result<Vec<f64>> {
        let failed = || format!("start programs with {}", self.name);
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
