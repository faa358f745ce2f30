//! From calls that block to tasks of a runtime, each with a limit.

use crate::failure::Failure;
use std::future::Future;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// Threads for network traffic and checksums.
const THREADS: usize = 2;

/// Runs tasks on threads of its own, so that calls may come from any thread, one of another runtime, too.
#[derive(Debug)]
pub(crate) struct Link {
    /// Absent only while it is dropped.
    runtime: Option<Runtime>,
}

impl Link {
    pub fn open() -> io::Result<Link> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("kilnyard-object")
            .enable_all()
            .build()?;
        Ok(Link { runtime: Some(runtime) })
    }

    /// Begins a task, which fails after `limit`.
    pub fn begin<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Pending<T> {
        let (send, receive) = sync_channel(1);
        let task = self.runtime.as_ref().map(|runtime| {
            let task = runtime.spawn(async move {
                let outcome = match tokio::time::timeout(limit, work).await {
                    Ok(outcome) => outcome.map_err(Failure::Store),
                    Err(_) => Err(Failure::Silent(limit)),
                };
                // If nothing waits any more, the outcome is of no interest.
                let _ = send.send(outcome);
            });
            task.abort_handle()
        });
        Pending { receive, task }
    }

    /// Performs a task, which fails after `limit`.
    pub fn wait<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Failure> {
        self.begin(limit, work).wait()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Waiting for its threads is not allowed in a task of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A task that has begun. It is cancelled if this is dropped.
pub(crate) struct Pending<T> {
    receive: Receiver<Result<T, Failure>>,
    task: Option<AbortHandle>,
}

impl<T> Pending<T> {
    /// Waits for its end, which has a limit.
    pub fn wait(self) -> Result<T, Failure> {
        // Without an outcome, the task panicked.
        self.receive.recv().unwrap_or(Err(Failure::Ended))
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_end_in_time_and_a_panic_stays_in_its_task() {
        let link = Link::open().unwrap();
        assert_eq!(link.wait(Duration::from_secs(9), async { Ok(5) }).unwrap(), 5);
        let silent = link.wait(Duration::from_millis(10), std::future::pending::<object_store::Result<()>>());
        assert!(matches!(silent, Err(Failure::Silent(_))), "{silent:?}");
        let panicked = link.wait::<()>(Duration::from_secs(9), async { panic!("a test of panics") });
        assert!(matches!(panicked, Err(Failure::Ended)), "{panicked:?}");
    }

    #[test]
    fn it_works_and_is_dropped_in_a_task_of_another_runtime() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let link = Link::open().unwrap();
            assert_eq!(link.wait(Duration::from_secs(9), async { Ok(5) }).unwrap(), 5);
        });
    }
}
