//! The row of the leader.
//!
//! Its time is that of the database, so that clocks of other machines do not matter. No lock of a session takes part: a
//! connection pool may give each transaction to another session.

use super::Postgres;
use super::link::{Failed, Link, sql};
use kilnyard_store::copy::{GENERATION_BITS, LEFT_OUT};
use kilnyard_store::{Holder, Leader, Leadership, Number, SILENT_SECONDS_MAX, StoreError};
use tokio_postgres::error::SqlState;

/// The timeline of a server: it grows when a replica takes the place of the server. The first eight digits of the names of
/// its log files.
const TIMELINE: &str = "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8";
/// The same for servers that have no such files. Epochs of a replica that takes such a server's place may repeat.
pub(super) const NO_TIMELINE: &str = "0::int8";
/// Whether the caller takes the place of the leader.
enum Claim {
    Granted(Leadership, i64),
    Led(Holder, f64),
}

impl Postgres {
    /// The expression for the timeline of this server.
    pub(super) fn timeline_of(&self, link: &Link) -> Result<&'static str, Failed> {
        if let Some(known) = self.timeline_sql.get() {
            return Ok(known);
        }
        let known = match link.one(sql!(format!("SELECT {TIMELINE}"))) {
            Ok(_) => TIMELINE,
            Err(Failed::Database(error))
                if [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INSUFFICIENT_PRIVILEGE]
                    .iter()
                    .any(|code| error.code() == Some(code)) =>
            {
                NO_TIMELINE
            }
            Err(failed) => return Err(failed),
        };
        self.timeline_sql.set(Some(known));
        Ok(known)
    }

    pub(super) fn take_lead(&mut self, holder: &Holder) -> Result<Leadership, StoreError> {
        // If the answer to the commit is lost, another epoch is taken: the first one was not used.
        let claim = self.repeated(|link| {
            let timeline = self.timeline_of(link)?;
            let claim = claim(link, timeline, holder);
            link.batch(if matches!(claim, Ok(Claim::Granted(..))) { "COMMIT" } else { "ROLLBACK" })?;
            claim
        })?;
        match claim {
            Claim::Granted(lead, timeline) => {
                (self.epoch, self.timeline) = (lead.epoch, timeline);
                Ok(lead)
            }
            Claim::Led(holder, silent_seconds) => {
                Err(StoreError::Led { store: self.address.to_string(), holder, silent_seconds })
            }
        }
    }

    /// Shows that this leader is there, or that it leaves.
    pub(super) fn show(&mut self, leaves: bool) -> Result<(), StoreError> {
        let own = self.epoch;
        let show = "UPDATE kilnyard.store SET renewed = clock_timestamp(), has_left = $2 WHERE epoch = $1 RETURNING epoch";
        let rows = self.repeated(|link| link.one(sql!(show, own, leaves)))?;
        if own == 0 || rows.is_empty() {
            let latest = self.of_store("SELECT epoch FROM kilnyard.store")?;
            return Err(StoreError::Fenced { store: self.address.to_string(), own, latest });
        }
        if leaves {
            self.epoch = 0;
        }
        Ok(())
    }

    pub(super) fn read_leader(&self) -> Result<Option<Leader>, StoreError> {
        let sql = "SELECT epoch, holder, holder_name, has_left,
                          extract(epoch FROM clock_timestamp() - renewed)::float8
                   FROM kilnyard.store WHERE renewed IS NOT NULL";
        let rows = self.rows(sql!(sql))?;
        let leader = |row| {
            Ok(Leader {
                epoch: self.number_at(row, 0)?,
                holder: Holder { id: self.get(row, 1)?, name: self.get(row, 2)? },
                has_left: self.get(row, 3)?,
                silent_seconds: self.get(row, 4)?,
            })
        };
        rows.first().map(leader).transpose()
    }
}

/// Becomes the leader in a transaction that the caller ends.
fn claim(link: &Link, timeline: &str, holder: &Holder) -> Result<Claim, Failed> {
    let select = format!(
        "SELECT epoch, builds, timeline, {timeline}, holder, holder_name,
                renewed IS NOT NULL AND NOT has_left,
                coalesce(extract(epoch FROM clock_timestamp() - renewed), 0)::float8
         FROM kilnyard.store FOR UPDATE"
    );
    let rows = link.all(&[sql!("BEGIN"), sql!(select)])?;
    let row = rows.last().and_then(|rows| rows.first()).ok_or(Failed::NoRow)?;
    let number = |column| row.try_get::<_, i64>(column);
    let (epoch, builds) = (number(0)? as Number, number(1)? as Number);
    let (known, timeline) = (number(2)?, number(3)?);
    let leader = Holder { id: row.try_get(4)?, name: row.try_get(5)? };
    let (is_there, silent_seconds): (bool, f64) = (row.try_get(6)?, row.try_get(7)?);
    if is_there && leader.id != holder.id && silent_seconds <= SILENT_SECONDS_MAX {
        return Ok(Claim::Led(leader, silent_seconds));
    }
    let is_new = known != 0 && known != timeline;
    let left_out = if is_new { LEFT_OUT } else { 0 };
    let epoch = if is_new { (((epoch >> GENERATION_BITS) + 1) << GENERATION_BITS) + 1 } else { epoch + 1 };
    link.one(sql!(
        "UPDATE kilnyard.store
         SET epoch = $1, builds = builds + $2, events = events + $2, runs = runs + least($2, 1), timeline = $3,
             holder = $4, holder_name = $5, renewed = clock_timestamp(), has_left = false",
        epoch,
        left_out,
        timeline,
        &holder.id,
        &holder.name
    ))?;
    Ok(Claim::Granted(Leadership { epoch, next_build: builds + left_out + 1 }, timeline))
}
