//! Waits for events.
//!
//! A transaction that writes events notifies the channel of its schema, once and without content: a notification only wakes.
//! What waits has a connection of its own for that, since notifications come to the session that listens. A pooler that gives
//! each transaction to another session does not pass them on, and one can be lost together with its connection. So this
//! also polls: seldom while notifications have announced all events, and often after one that was not announced, or
//! before the first one.
//!
//! Known downsides: the server commits transactions that notify one after the other, also those of several stores. Behind such
//! a pooler, one of its sessions keeps listening in vain.

use super::Postgres;
use super::link::{Failed, sql};
use crate::Address;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_store::{Number, StoreError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_postgres::{AsyncMessage, Client};

/// The interval at which the store is polled if notifications do not come.
const POLL: Duration = Duration::from_millis(100);
/// The interval if they do.
const POLL_HEARD: Duration = Duration::from_secs(5);
/// How long it takes at most to listen.
const LISTEN_MAX: Duration = Duration::from_secs(10);
/// The interval of trials to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(60);
/// The digits of the hash in the name of a channel, which the server limits to 63 bytes.
const CHANNEL_DIGITS: usize = 32;

/// The channel of the store in a schema. Schemas have names that channels cannot have.
pub(super) fn channel_of(schema: &str) -> String {
    format!("kilnyard_{}", &Sha256Hex::of(schema.as_bytes()).as_str()[..CHANNEL_DIGITS])
}

/// A connection that listens.
struct Listener {
    /// Present until this is dropped.
    runtime: Option<Runtime>,
    /// The connection ends with it.
    _client: Client,
    /// Has a message if there were notifications; ends with the connection.
    wakes: Receiver<()>,
}

impl Listener {
    fn open(address: &Address) -> Result<Listener, Failed> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failed::Machine)?;
        let listened = runtime.block_on(async {
            let (client, mut connection) = address.config().connect(address.tls()).await?;
            // One message stands for all notifications until it is taken.
            let (wake, wakes) = channel(1);
            tokio::spawn(async move {
                while let Some(Ok(message)) =
                    std::future::poll_fn(|context| connection.poll_message(context)).await
                {
                    if matches!(message, AsyncMessage::Notification(_)) {
                        let _ = wake.try_send(());
                    }
                }
            });
            // A channel has a name without quotes.
            let listen = format!("LISTEN {}", channel_of(address.schema()));
            match tokio::time::timeout(LISTEN_MAX, client.batch_execute(&listen)).await {
                Ok(listens) => listens.map(|()| (client, wakes)).map_err(Failed::from),
                Err(_) => Err(Failed::Silent),
            }
        });
        let (client, wakes) = listened?;
        Ok(Listener { runtime: Some(runtime), _client: client, wakes })
    }

    /// Waits for a notification. None if the connection has ended.
    fn wait(&mut self, at_most: Duration) -> Option<bool> {
        let Listener { runtime, wakes, .. } = self;
        let limited = async { tokio::time::timeout(at_most, wakes.recv()).await };
        match runtime.as_ref()?.block_on(limited) {
            Ok(Some(())) => Some(true),
            Ok(None) => None,
            Err(_) => Some(false),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not block, so that a thread of another runtime may do it.
            runtime.shutdown_background();
        }
    }
}

/// What a store knows about notifications.
#[derive(Default)]
pub(super) struct Waiting {
    listener: Option<Listener>,
    /// When it last tried to listen.
    tried: Option<Instant>,
    /// Whether the latest events were announced.
    is_heard: bool,
}

impl Waiting {
    /// Waits for a notification, or for the time to poll. Returns whether there was one.
    fn wait(&mut self, at_most: Duration) -> bool {
        let at_most = at_most.min(if self.is_heard { POLL_HEARD } else { POLL });
        match &mut self.listener {
            Some(listener) => match listener.wait(at_most) {
                Some(is_notified) => {
                    self.is_heard |= is_notified;
                    return is_notified;
                }
                None => (self.listener, self.is_heard) = (None, false),
            },
            None => std::thread::sleep(at_most),
        }
        false
    }

    /// Listens, unless it does or has just tried.
    fn listen(&mut self, address: &Address) {
        if self.listener.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= LISTEN_AGAIN) {
            self.tried = Some(Instant::now());
            // Without it, this polls.
            self.listener = Listener::open(address).ok();
        }
    }
}

impl Postgres {
    /// See [`Store::wait_for_events`](kilnyard_store::Store::wait_for_events).
    pub(super) fn wait(&self, after: Number, at_most: Duration) -> Result<(), StoreError> {
        let mut waiting = self.waiting.borrow_mut();
        let began = Instant::now();
        // Before the number is read, so that no event is missed in between.
        waiting.listen(&self.address);
        let mut is_notified = true;
        while self.of_store("SELECT events FROM kilnyard.store")? <= after {
            let left = at_most.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            is_notified = waiting.wait(left);
        }
        waiting.is_heard &= is_notified;
        Ok(())
    }

    /// The statement that wakes what waits for the events of a transaction.
    pub(super) fn notify(&self) -> super::link::Statement {
        sql!("SELECT pg_notify($1, '')", channel_of(self.address.schema()))
    }
}
