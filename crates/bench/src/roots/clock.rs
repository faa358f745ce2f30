//! Measures wall and CPU time together.

use super::super::child::all_cpu_seconds;
use std::ops::Add;
use std::time::Instant;

/// Wall and CPU time of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub wall_seconds: f64,
    /// User and system time of this process and of all descendants that were waited for.
    pub cpu_seconds: f64,
}

impl Add for Spent {
    type Output = Spent;

    fn add(self, other: Spent) -> Spent {
        Spent {
            wall_seconds: self.wall_seconds + other.wall_seconds,
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
        }
    }
}

/// Measures from its start.
pub struct Clock {
    started: Instant,
    cpu_seconds: f64,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { cpu_seconds: all_cpu_seconds(), started: Instant::now() }
    }

    pub fn spent(&self) -> Spent {
        let wall_seconds = self.started.elapsed().as_secs_f64();
        Spent { wall_seconds, cpu_seconds: all_cpu_seconds() - self.cpu_seconds }
    }
}
