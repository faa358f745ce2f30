//! Copies a store to another one row by row, whatever their databases.
//!
//! All stores have the same tables and columns, apart from the row that they keep about themselves ([`Head`]). A copy is one
//! transaction of the store that is written, which must be new. Then the rows of both are read in the same order, and
//! compared by the hash of each table.

use crate::{Number, StoreError};
use kilnyard_model::identity::Scope;
use kilnyard_model::sha256::Sha256Hex;
use sha2::{Digest, Sha256};

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// A number, or 0 and 1 for false and true.
    Int(i64),
    /// A number of seconds.
    Real(f64),
    /// A text.
    Text(String),
    /// Compressed data.
    Bytes(Vec<u8>),
}

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Cell::Int`].
    Int,
    /// [`Cell::Int`], which is 0 or 1.
    Bool,
    /// [`Cell::Real`].
    Real,
    /// [`Cell::Text`].
    Text,
    /// [`Cell::Bytes`].
    Bytes,
}

/// A table that all stores have.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns of its key, by which rows are ordered, and then the others.
    pub columns: &'static [(&'static str, Kind)],
    /// The number of columns of its key.
    pub key: usize,
}

use Kind::{Bool, Bytes, Int, Real, Text};

const fn table(name: &'static str, key: usize, columns: &'static [(&'static str, Kind)]) -> Table {
    Table { name, columns, key }
}

/// All tables.
pub const TABLES: [Table; 15] = [
    table("scope", 1, &[("number", Int), ("farm", Text), ("yard", Text), ("target", Text)]),
    table(
        "run",
        1,
        &[
            ("number", Int),
            ("scope", Int),
            ("started", Real),
            ("ended", Real),
            ("state", Text),
            ("plan_digest", Text),
            ("cores", Int),
            ("slots", Int),
            ("expected", Real),
            ("bound", Real),
            ("forced", Text),
            ("commits", Text),
        ],
    ),
    table(
        "run_package",
        2,
        &[
            ("run", Int),
            ("name", Text),
            ("version", Text),
            ("state", Text),
            ("reason", Text),
            ("blamed", Text),
            ("estimate", Real),
            ("rank", Real),
            ("why", Text),
        ],
    ),
    table(
        "build",
        1,
        &[
            ("number", Int),
            ("scope", Int),
            ("run", Int),
            ("package", Text),
            ("version", Text),
            ("slot", Int),
            ("key", Text),
            ("started", Real),
            ("ended", Real),
            ("outcome", Text),
            ("failure", Text),
            ("reproducible", Bool),
            ("attempt", Text),
            ("worker", Text),
            ("cores", Int),
            ("kernel", Text),
            ("cpu", Text),
        ],
    ),
    table("stage", 2, &[("build", Int), ("position", Int), ("result", Text)]),
    table("duration", 2, &[("scope", Int), ("package", Text), ("wall", Real), ("cpu", Real)]),
    table("imported_duration", 2, &[("scope", Int), ("package", Text), ("wall", Real), ("cpu", Real)]),
    table("measured", 2, &[("scope", Int), ("package", Text), ("builds", Text)]),
    table(
        "current",
        2,
        &[
            ("scope", Int),
            ("package", Text),
            ("build", Int),
            ("recipe_version", Text),
            ("revision", Int),
            ("key", Text),
            ("key_lines", Text),
        ],
    ),
    table("output", 3, &[("scope", Int), ("package", Text), ("name", Text), ("output", Text)]),
    table(
        "provenance",
        2,
        &[
            ("scope", Int),
            ("package", Text),
            ("build", Int),
            ("worker", Text),
            ("pool", Text),
            ("key", Text),
            ("signature", Text),
            ("statement", Bytes),
        ],
    ),
    table("request", 1, &[("number", Int), ("scope", Int), ("kind", Text), ("package", Text), ("at", Real)]),
    table(
        "plan",
        1,
        &[
            ("scope", Int),
            ("digest", Text),
            ("made", Real),
            ("expected", Real),
            ("bound", Real),
            ("cuts", Text),
            ("path", Text),
            ("remarks", Text),
        ],
    ),
    table(
        "plan_package",
        2,
        &[
            ("scope", Int),
            ("name", Text),
            ("version", Text),
            ("state", Text),
            ("reason", Text),
            ("blamed", Text),
            ("estimate", Real),
            ("rank", Real),
            ("dependencies", Text),
            ("why", Text),
        ],
    ),
    table(
        "event",
        1,
        &[
            ("seq", Int),
            ("epoch", Int),
            ("type", Text),
            ("version", Int),
            ("scope", Int),
            ("run", Int),
            ("package", Text),
            ("build", Int),
            ("place", Int),
            ("at", Real),
            ("body", Text),
        ],
    ),
];

impl Table {
    /// The names of the columns, for SQL.
    pub fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// The names of the columns of its key, for SQL.
    pub fn key_names(&self) -> String {
        self.columns[..self.key].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// What a store keeps about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its ids. The target is that of the store's reader.
    pub scope: Scope,
    /// The latest epoch.
    pub epoch: Number,
    /// The highest number of a build that was used.
    pub builds: Number,
    /// The highest number of a run that was used.
    pub runs: Number,
    /// The highest number of an event that was used.
    pub events: Number,
}

/// Called with each row of a table.
pub type EachRow<'a> = &'a mut dyn FnMut(Vec<Cell>) -> Result<(), StoreError>;

/// The place of the generation in an epoch, in bits. A store begins another generation when it takes the place of one whose
/// numbers it may not know.
pub const GENERATION_BITS: u32 = 32;

/// How many numbers a new generation leaves out. Its predecessor may have used numbers that it does not know.
pub const LEFT_OUT: Number = 10_000;

/// A store that can be copied.
pub trait Rows {
    /// What it keeps about itself.
    fn head(&self) -> Result<Head, StoreError>;
    /// Calls `each` with the rows of a table, in the order of its key by bytes.
    fn each_row(&self, table: &Table, each: EachRow<'_>) -> Result<(), StoreError>;
    /// Calls `read` once, with a snapshot of the rows that does not change, even while other processes write.
    fn rows_at_once(
        &self,
        read: &mut dyn FnMut(&dyn Rows) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;
    /// Fills this store, which must have no runs and no outputs, with everything of another one, and takes over its ids. Its
    /// next epoch is above that of the other one. All or nothing.
    ///
    /// # Errors
    /// [`StoreError::Used`] if it has anything.
    fn fill(&mut self, from: &dyn Rows) -> Result<(), StoreError>;
    /// Makes all later epochs higher than those of every earlier store with these ids, and leaves out numbers: for a store that
    /// was restored from a backup, after which others were used. `minutes` are those since 1970.
    fn begin_generation(&mut self, minutes: u64) -> Result<(), StoreError>;
}

/// The number of rows of a table, and their hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digested {
    /// The table.
    pub table: &'static str,
    /// The number of rows.
    pub rows: u64,
    /// The SHA-256 of all values.
    pub sha256: Sha256Hex,
}

/// The rows of all tables, for a comparison.
pub fn digest(of: &dyn Rows) -> Result<Vec<Digested>, StoreError> {
    let one = |table: &Table| {
        let (mut rows, mut hash) = (0, Sha256::new());
        of.each_row(table, &mut |row| {
            rows += 1;
            row.iter().for_each(|cell| add(&mut hash, cell));
            Ok(())
        })?;
        Ok(Digested { table: table.name, rows, sha256: Sha256Hex::finish(hash) })
    };
    TABLES.iter().map(one).collect()
}

/// Adds a value, with its kind and its length, so that different rows have different texts.
fn add(hash: &mut Sha256, cell: &Cell) {
    let (kind, bytes) = match cell {
        Cell::Null => (b'n', Vec::new()),
        Cell::Int(number) => (b'i', number.to_be_bytes().to_vec()),
        Cell::Real(number) => (b'r', number.to_bits().to_be_bytes().to_vec()),
        Cell::Text(text) => (b't', text.clone().into_bytes()),
        Cell::Bytes(bytes) => (b'b', bytes.clone()),
    };
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}
