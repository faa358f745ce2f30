//! The sources of archives that a signer has seen.

use super::{Memory, MemoryError};
use crate::sources::ArchiveSource;
use rusqlite::params;

/// The tables, which earlier versions do not have.
pub(super) const TABLES: &str = "
create table if not exists source_index (
    archive text not null, sha256 text not null, primary key (archive, sha256)) strict, without rowid;
create table if not exists source (
    archive text not null, name text not null, version text not null, files text not null,
    control text not null, declared text not null,
    primary key (archive, name, version, files)) strict, without rowid;
";

impl Memory {
    /// Whether what has this key was seen with the signature of one of these archives or trees.
    pub fn knows_evidence(&self, archives: &[String], sha256: &str) -> Result<bool, MemoryError> {
        let mut query =
            self.database.prepare_cached("select 1 from source_index where archive = ? and sha256 = ?")?;
        for archive in archives {
            if query.exists([archive.as_str(), sha256])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Remembers the sources of an index.
    pub fn remember_sources(
        &mut self,
        archive: &str,
        sha256: &str,
        sources: &[ArchiveSource],
    ) -> Result<(), MemoryError> {
        let transaction = self.database.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "insert or ignore into source (archive, name, version, files, control, declared) values (?, ?, ?, ?, ?, ?)",
            )?;
            for source in sources {
                let ArchiveSource { name, version, files, control, declared } = source;
                insert.execute(params![archive, name, version, files, control, declared.join(" ")])?;
            }
            transaction.execute(
                "insert or ignore into source_index (archive, sha256) values (?, ?)",
                [archive, sha256],
            )?;
        }
        Ok(transaction.commit()?)
    }

    /// What these archives say of a source in this version. Two archives may have it with other files.
    pub fn sources(
        &self,
        archives: &[String],
        name: &str,
        version: &str,
    ) -> Result<Vec<ArchiveSource>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select files, control, declared from source where archive = ? and name = ? and version = ?",
        )?;
        let mut found = Vec::new();
        for archive in archives {
            let rows = query.query_map([archive.as_str(), name, version], |row| {
                let declared: String = row.get(2)?;
                let declared = declared.split_whitespace().map(str::to_owned).collect();
                let (name, version) = (name.to_owned(), version.to_owned());
                Ok(ArchiveSource { name, version, files: row.get(0)?, control: row.get(1)?, declared })
            })?;
            for row in rows {
                found.push(row?);
            }
        }
        Ok(found)
    }
}
