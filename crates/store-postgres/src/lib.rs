//! The store of a farm: [`Postgres`] implements [`Store`](kilnyard_store::Store) with a PostgreSQL database.
//!
//! A decision is one transaction, which PostgreSQL has synced to its disk before the call returns. It begins by locking the
//! only row of the table `store`, which has the epoch, the highest build number and the number of the latest event: so
//! transactions that write events commit one after the other, and readers never miss an event with a lower number.
//!
//! If the connection breaks, the call connects again and continues. A transaction also writes a random id, by which it
//! learns whether it was committed when the answer was lost; so it is never applied twice.
//!
//! Nothing belongs to a session of the server: there are no named statements, no settings and no session locks, so that
//! connections may pass through a pooler. Only what waits for events listens, over a connection of its own, and polls where
//! a pooler passes on no notifications.
//!
//! Known downsides: statements are parsed by the server each time, so the rows of a transaction are written with one for each
//! kind. The character U+0000, which PostgreSQL cannot store, becomes U+FFFD.

mod address;
mod postgres;

pub use address::{Address, AddressError, SCHEMA};
pub use postgres::{Document, Documents, Facts, Postgres};
