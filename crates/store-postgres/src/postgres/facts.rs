//! What a server promises, for people.

use super::link::sql;
use super::{Documents, Postgres};
use kilnyard_store::StoreError;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// How many answers are timed.
const TIMED: u32 = 5;

/// What a server promises, and how fast it answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Its version, such as `15.18`.
    pub version: String,
    /// The quickest of some answers.
    pub latency: Duration,
    /// Its time of day, in seconds since 1970, when it gave its last answer.
    pub clock_seconds: f64,
    /// Whether what it acknowledges survives a power cut: `fsync`, `full_page_writes` and `synchronous_commit` are on.
    pub is_durable: bool,
    /// Whether it waits for a replica before it acknowledges.
    pub has_synchronous_replica: bool,
    /// The size of the database, in bytes; absent if the user may not see it.
    pub database_bytes: Option<u64>,
    /// Whether the user may create tables in the schema.
    pub may_create: bool,
}

impl Documents {
    /// Asks the server. It is the one that may write: an address with several hosts leads to no other.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn facts(&self) -> Result<Facts, StoreError> {
        self.0.facts()
    }
}

impl Postgres {
    fn facts(&self) -> Result<Facts, StoreError> {
        let settings = "SELECT current_setting('server_version'),
                               current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
                                 AND current_setting('synchronous_commit') <> 'off',
                               current_setting('synchronous_standby_names') <> ''
                                 AND current_setting('synchronous_commit') NOT IN ('off', 'local'),
                               has_schema_privilege($1, 'CREATE')";
        let schema = self.repeated(|link| Ok(link.schema_name().to_owned()))?;
        let rows = self.rows(sql!(settings, schema))?;
        let row =
            rows.first().ok_or_else(|| self.unreadable("the settings of the server", "there are none"))?;
        let (mut latency, mut clock_seconds) = (Duration::MAX, 0.0);
        for _ in 0..TIMED {
            let asked = Instant::now();
            let now = self.rows(sql!("SELECT extract(epoch FROM clock_timestamp())::float8"))?;
            latency = latency.min(asked.elapsed());
            clock_seconds = now.first().map_or(Ok(0.0), |row| self.get(row, 0))?;
        }
        let size = self.over(|link| link.one(sql!("SELECT pg_database_size(current_database())")));
        let database_bytes = match size {
            Ok(rows) => rows.first().map(|row| self.number_at(row, 0)).transpose()?,
            Err(failed) if failed.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => None,
            Err(failed) => return Err(self.wrap(failed)),
        };
        let (version, is_durable): (String, bool) = (self.get(row, 0)?, self.get(row, 1)?);
        let (has_synchronous_replica, may_create) = (self.get(row, 2)?, self.get(row, 3)?);
        let version = version.split(' ').next().unwrap_or_default().to_owned();
        Ok(Facts {
            version,
            latency,
            clock_seconds,
            is_durable,
            has_synchronous_replica,
            database_bytes,
            may_create,
        })
    }
}
