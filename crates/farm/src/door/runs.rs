//! The connections of runs, and of commands that ask for the status.

use super::{Files, Shared, shells};
use crate::relay::{First, Status, ToDoor, WorkerStatus, frame, receive};
use kilnyard_artifacts::Folder;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// The most messages of workers that wait for the run, of up to 64 MiB each. Workers that send more wait too.
const WAITING_MAX: usize = 8;

/// Accepts connections on the yard's socket.
pub async fn accept(shared: Arc<Shared>, socket: UnixListener) {
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            // A run that ended, or a program of another version.
            let _ = serve(&shared, stream).await;
        });
    }
}

async fn serve(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    match receive::<First>(&mut reader).await? {
        None => Ok(()),
        Some((First::Status, _)) => writer.write_all(&frame(&status(shared)?, b"")?).await,
        Some((First::Shell { worker, order }, _)) => {
            shells::serve(shared, &worker, order, &mut reader, &mut writer).await
        }
        Some((First::Run { yard, distfiles, archives, allowed, epoch }, _)) => {
            let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(WAITING_MAX);
            let archives = archives.iter().map(|folder| Folder::at(folder)).collect();
            let files = Files { yard, distfiles: Folder::at(&distfiles), archives };
            let attempts = allowed.iter().map(|(worker, allowed)| (worker.clone(), allowed.attempt.clone()));
            let attempts = attempts.collect();
            let run = shared.state().connect(files, allowed, epoch, sender);
            shared.uploads.keep(&attempts);
            let writing = tokio::spawn(async move {
                while let Some(bytes) = receiver.recv().await {
                    if writer.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
            let ended = async {
                while let Some((header, message)) = receive::<ToDoor>(&mut reader).await? {
                    let ended = header.ends.clone().map(|attempt| (header.to.clone(), attempt));
                    shared.state().deliver(header, message);
                    if let Some((worker, attempt)) = ended {
                        shared.uploads.end(&worker, &attempt);
                    }
                }
                Ok(())
            };
            let ended = ended.await;
            shared.state().disconnect(run);
            writing.abort();
            ended
        }
    }
}

pub fn status(shared: &Shared) -> io::Result<Status> {
    let members = shared.roster.members()?;
    let now = Instant::now();
    // What a worker does for further yards counts too: it is not idle. Before the state is locked.
    let yards = shared.yards.statuses(shared);
    let of_yards: Vec<_> = members.iter().map(|member| shared.yards.seen(&member.name, now)).collect();
    let state = shared.state();
    let workers = members.into_iter().zip(of_yards).map(|(member, (builds, silent))| {
        let seen = state.seen(&member.name, now);
        let silent = seen.silent.into_iter().chain(silent).min();
        WorkerStatus {
            pool: member.pool,
            roles: member.roles,
            held: member.held,
            about: seen.about,
            clock_ahead_seconds: seen.clock_ahead_seconds,
            holdings: seen.holdings,
            is_ending: seen.is_ending,
            joined_seconds: member.joined_seconds,
            silent_seconds: silent.map(|silent| silent.as_secs_f64()),
            builds: seen.builds + builds,
            name: member.name,
        }
    });
    let workers = workers.collect();
    Ok(Status {
        address: Some(shared.address.to_string()),
        has_run: state.run().is_some(),
        workers,
        pools: state.pools.clone(),
        yards,
    })
}
