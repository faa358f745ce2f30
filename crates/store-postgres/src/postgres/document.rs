//! Documents: what coordinators on several machines have in common.

use super::Postgres;
use super::link::sql;
use crate::Address;
use kilnyard_model::identity::FarmId;
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

/// The documents of a farm, apart from the records of its targets.
#[derive(Debug)]
pub struct Documents(pub(super) Postgres);

impl Documents {
    /// Opens the documents of a store, which is created or migrated as in [`Postgres::open`].
    ///
    /// # Errors
    /// See [`Postgres::open`].
    pub fn open(address: &Address) -> Result<Documents, StoreError> {
        Postgres::open_without_rows(address).map(Documents)
    }

    /// The id of the farm.
    pub fn farm(&self) -> FarmId {
        self.0.scope.farm
    }

    /// The names and versions of all documents, ordered by name.
    pub fn documents(&self) -> Result<Vec<(String, Number)>, StoreError> {
        let rows = self.0.rows(sql!("SELECT name, version FROM kilnyard.document ORDER BY name"))?;
        rows.iter().map(|row: &Row| Ok((self.0.get(row, 0)?, self.0.number_at(row, 1)?))).collect()
    }

    /// A document; absent if it was never saved.
    pub fn document(&self, name: &str) -> Result<Option<Document>, StoreError> {
        let rows =
            self.0.rows(sql!("SELECT version, content FROM kilnyard.document WHERE name = $1", name))?;
        let document =
            |row: &Row| Ok(Document { version: self.0.number_at(row, 0)?, content: self.0.get(row, 1)? });
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
            self.0.repeated(|link| link.all(&[sql!(save, name, content.to_vec()), sql!(version, name)]))?;
        let row = rows.last().and_then(|rows| rows.first());
        match row {
            Some(row) => self.0.number_at(row, 0),
            None => Err(self.0.unreadable("a document", "it is missing")),
        }
    }

    /// Saves a document unless there is one of this name. Returns the content of the one that is there.
    pub fn claim_document(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, StoreError> {
        let save = "INSERT INTO kilnyard.document (name, version, content) VALUES ($1, 1, $2)
                    ON CONFLICT (name) DO NOTHING";
        self.0.repeated(|link| link.one(sql!(save, name, content.to_vec())).map(drop))?;
        let found = self.document(name)?;
        found.map_or_else(|| Err(self.0.unreadable("a document", "it is missing")), |found| Ok(found.content))
    }

    /// Removes a document, if it exists.
    pub fn remove_document(&self, name: &str) -> Result<(), StoreError> {
        self.0
            .repeated(|link| link.one(sql!("DELETE FROM kilnyard.document WHERE name = $1", name)).map(drop))
    }
}
