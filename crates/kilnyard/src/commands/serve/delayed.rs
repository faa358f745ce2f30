//! Publications that wait for a signer: they are made when it is back.

use crate::signals;
use crate::yard::Yard;
use kilnyard_family::FAMILIES;
use kilnyard_farm::door::Control;
use kilnyard_yard::signing::delayed::delayed;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often it is checked whether the signer is back.
const STEP: Duration = Duration::from_secs(2);
/// A signer that was heard within this time is there, in seconds.
const SILENT_SECONDS_MAX: f64 = 60.0;
/// The pause after an attempt.
const PAUSE: Duration = Duration::from_secs(30);

/// Publishes what waits, until this process ends.
pub fn watch(yard: Yard, control: Control) {
    std::thread::spawn(move || {
        let mut tried: Option<Instant> = None;
        while signals::count() == 0 {
            std::thread::sleep(STEP);
            // The signer may have been named after this started.
            let Ok(yard) = Yard::open(&yard.home, FAMILIES, &yard.environment) else { continue };
            let Some(signer) = yard.config.signer.clone() else { continue };
            let targets = yard.targets().unwrap_or_default();
            let waiting = targets.iter().filter(|target| delayed(target).is_some() && !target.is_locked());
            let waiting: Vec<&Yard> = waiting.collect();
            let is_there = || {
                let workers = control.status().map(|status| status.workers).unwrap_or_default();
                let mut seen = workers.into_iter().filter(|worker| worker.name == signer.name);
                seen.any(|worker| worker.silent_seconds.is_some_and(|silent| silent < SILENT_SECONDS_MAX))
            };
            if waiting.is_empty() || tried.is_some_and(|tried| tried.elapsed() < PAUSE) || !is_there() {
                continue;
            }
            tried = Some(Instant::now());
            for target in waiting {
                say!("the signer is back: publishing");
                if publish(&yard, target) {
                    tried = None;
                }
            }
        }
    });
}

/// Publishes a target. What fails is said by the command, and noted in the yard.
fn publish(yard: &Yard, target: &Yard) -> bool {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--yard").arg(&yard.home).arg("publish");
    command.args(target.target_name.iter().flat_map(|name| ["--target", name]));
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}
