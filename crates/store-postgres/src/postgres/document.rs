//! Documents: what coordinators on several machines have in common.

use super::Postgres;
use super::link::sql;
use kilnyard_store::{Number, StoreError};
use tokio_postgres::Row;

/// A document of a farm.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// Grows with each change.
    pub version: Number,
    /// Any bytes.
    pub content: Vec<u8>,
}

impl Postgres {
    /// The names and versions of all documents, ordered by name.
    pub fn documents(&self) -> Result<Vec<(String, Number)>, StoreError> {
        let rows = self.rows(sql!("SELECT name, version FROM kilnyard.document ORDER BY name"))?;
        rows.iter().map(|row: &Row| Ok((self.get(row, 0)?, self.number_at(row, 1)?))).collect()
    }

    /// A document; absent if it was never saved.
    pub fn document(&self, name: &str) -> Result<Option<Document>, StoreError> {
        let rows = self.rows(sql!("SELECT version, content FROM kilnyard.document WHERE name = $1", name))?;
        let document =
            |row: &Row| Ok(Document { version: self.number_at(row, 0)?, content: self.get(row, 1)? });
        rows.first().map(document).transpose()
    }

    /// Saves a document, unless it has this content already. Returns its version.
    pub fn save_document(&self, name: &str, content: &[u8]) -> Result<Number, StoreError> {
        let save = "INSERT INTO kilnyard.document (name, version, content) VALUES ($1, 1, $2)
                    ON CONFLICT (name) DO UPDATE SET version = document.version + 1, content = excluded.content
                    WHERE document.content <> excluded.content";
        let version = "SELECT version FROM kilnyard.document WHERE name = $1";
        // If the answer is lost, the same content is saved again, which changes nothing.
        let rows =
            self.repeated(|link| link.all(&[sql!(save, name, content.to_vec()), sql!(version, name)]))?;
        let row = rows.last().and_then(|rows| rows.first());
        row.map_or_else(|| Err(self.unreadable("a document", "it is missing")), |row| self.number_at(row, 0))
    }

    /// Removes a document, if it exists.
    pub fn remove_document(&self, name: &str) -> Result<(), StoreError> {
        self.repeated(|link| link.one(sql!("DELETE FROM kilnyard.document WHERE name = $1", name)).map(drop))
    }
}
