//! What a signer remembers: the indexes that it signed, every package in them, and the account.
//!
//! All of it is one SQLite database, so that a signature and what follows from it are recorded together. The file `account`
//! has the same lines as the database, for people and for copies; a line that a killed signer did not write there is
//! written when it starts.

mod sources;

use crate::account::{Account, Entry, Line};
use crate::hash;
use crate::judge::SIGNED_PACKAGES;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// The file of the database, in the signer's folder.
const DATABASE: &str = "memory.sqlite";
/// The file of the account, in the signer's folder.
pub const ACCOUNT: &str = "account";

/// How often, and after which pauses, a process tries to get the account.
const LOCK_STEPS: u32 = 100;
const LOCK_STEP: Duration = Duration::from_millis(100);

/// The most refusals without an id that a process records.
const REFUSED_MAX: u32 = 1000;
/// The longest text of a refusal in the account.
const TEXT_CHARACTERS_MAX: usize = 500;

/// The tables. Version 1.
const TABLES: &str = "
create table if not exists line (number integer primary key, text text not null) strict;
create table if not exists body (sha256 text primary key, text blob not null) strict;
create table if not exists shown (
    repository text not null, series text not null, path text not null, sha256 text not null,
    primary key (repository, series, path)) strict;
create table if not exists series (
    repository text not null, series text not null, date integer not null, text text not null,
    primary key (repository, series)) strict;
create table if not exists package (
    repository text not null, series text not null, name text not null, variant text not null,
    version text not null, source text not null, listed text not null, entry text not null,
    is_gone integer not null default 0, files blob,
    primary key (repository, series, name, variant)) strict;
create table if not exists replaced (
    repository text not null, series text not null, name text not null, variant text not null, listed text not null,
    primary key (repository, series, name, variant, listed)) strict, without rowid;
create table if not exists refusal (
    id text primary key, time integer not null, repository text not null, package text, rule text not null,
    reason text not null, approved_by text) strict;
pragma user_version = 1;
";

/// The memory of a signer.
#[derive(Debug)]
pub struct Memory {
    database: Connection,
    account: File,
    last: String,
    next: u64,
    /// Whether lines could not be written to the file.
    is_behind: bool,
    /// The number of refusals without an id that were recorded.
    refused: u32,
    /// The number of lines after the last seal.
    unsealed: u64,
}

/// An error of the memory. The text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file cannot be read or written.
    #[error("keep the account: {0}")]
    File(#[from] io::Error),
    /// The database cannot be read or written.
    #[error("use the signer's memory: {0}")]
    Database(#[from] rusqlite::Error),
    /// Another version wrote it.
    #[error("use the signer's memory: a later version of Kilnyard wrote it")]
    Later,
    /// Another process uses it.
    #[error("use the signer's memory: another process has it, such as a publication")]
    Busy,
    /// An earlier write failed.
    #[error("continue the account, since an earlier line could not be written; the next start repairs it")]
    Behind,
    /// The account is damaged.
    #[error("continue the account: {0}; restore it from a copy")]
    Damaged(String),
}

/// A package that was signed, in its highest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its version.
    pub version: String,
    /// The source that owns it.
    pub source: String,
    /// The digest of its file, as the index names it.
    pub listed: String,
    /// The SHA-256 of its entry; empty if it is not known.
    pub entry: String,
    /// Whether the last generation does not have it.
    pub is_gone: bool,
}

/// What a package is remembered by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Its name.
    pub name: String,
    /// Its architecture; in a pkgsrc repository, which may have a name in several versions, its version.
    pub variant: String,
}

/// A package, and the hashes of the paths of its files, as far as they are known.
pub type Remembered = (Name, Known, Option<Vec<u64>>);

/// What is remembered of a signed generation.
#[derive(Debug)]
pub struct Signed<'a> {
    /// Its repository.
    pub repository: &'a str,
    /// Its series.
    pub series: &'a str,
    /// The date of its text, in seconds since 1970.
    pub date: i64,
    /// The SHA-256 of its text.
    pub text: &'a str,
    /// Its indexes: path and text.
    pub indexes: &'a BTreeMap<String, String>,
    /// The digests of files that follow from them, by path.
    pub derived: &'a BTreeMap<String, String>,
    /// All packages of the generation; none if it is not one.
    pub all: Option<HashSet<Name>>,
    /// The packages that are new or have changed, with the hashes of the paths of their files.
    pub packages: Vec<Remembered>,
}

impl Memory {
    /// Opens the memory in a folder, and makes it if there is none.
    ///
    /// # Errors
    /// The files cannot be used, or the account is damaged.
    pub fn open(folder: &Path) -> Result<Memory, MemoryError> {
        let mut options = fs_err::OpenOptions::new();
        let mut account: File =
            options.read(true).append(true).create(true).open(folder.join(ACCOUNT))?.into_parts().0;
        lock(&account)?;
        let mut database = Connection::open(folder.join(DATABASE))?;
        let version: i64 = database.query_row("pragma user_version", [], |row| row.get(0))?;
        if version > 1 {
            return Err(MemoryError::Later);
        }
        database.execute_batch(
            "pragma journal_mode = wal; pragma synchronous = full; pragma temp_store = memory;",
        )?;
        database.execute_batch(TABLES)?;
        database.execute_batch(sources::TABLES)?;
        let (last, next) = catch_up(&mut database, &mut account)?;
        let unsealed = lines_since_seal(&database)?;
        Ok(Memory { database, account, last, next, is_behind: false, refused: 0, unsealed })
    }

    /// The files that are remembered of a series: digests by path, SHA-256 for indexes.
    pub fn shown(&self, repository: &str, series: &str) -> Result<BTreeMap<String, String>, MemoryError> {
        let mut query = self
            .database
            .prepare_cached("select path, sha256 from shown where repository = ? and series = ?")?;
        let rows = query.query_map([repository, series], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The text of an index, by its hash.
    pub fn body(&self, sha256: &str) -> Result<Option<String>, MemoryError> {
        let mut query = self.database.prepare_cached("select text from body where sha256 = ?")?;
        let packed: Option<Vec<u8>> = query.query_row([sha256], |row| row.get(0)).optional()?;
        let Some(packed) = packed else { return Ok(None) };
        Ok(Some(String::from_utf8(zstd::decode_all(&packed[..])?).map_err(io::Error::other)?))
    }

    /// The time of the first line of the account, in seconds since 1970; none without a line.
    pub fn began(&self) -> Result<Option<i64>, MemoryError> {
        let mut query = self.database.prepare_cached("select text from line where number = 1")?;
        let text: Option<String> = query.query_row([], |row| row.get(0)).optional()?;
        let line = text.and_then(|text| serde_json::from_str::<Line>(&text).ok());
        Ok(line.map(|line| line.time))
    }

    /// The date of the last signed text of a series, in seconds since 1970.
    pub fn date(&self, repository: &str, series: &str) -> Result<Option<i64>, MemoryError> {
        let mut query =
            self.database.prepare_cached("select date from series where repository = ? and series = ?")?;
        Ok(query.query_row([repository, series], |row| row.get(0)).optional()?)
    }

    /// The SHA-256 of the last signed text of a series.
    pub fn text(&self, repository: &str, series: &str) -> Result<Option<String>, MemoryError> {
        let mut query =
            self.database.prepare_cached("select text from series where repository = ? and series = ?")?;
        Ok(query.query_row([repository, series], |row| row.get(0)).optional()?)
    }

    /// A package in its highest version.
    pub fn known(&self, repository: &str, series: &str, name: &Name) -> Result<Option<Known>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select version, source, listed, entry, is_gone from package
             where repository = ? and series = ? and name = ? and variant = ?",
        )?;
        let found = query.query_row(params![repository, series, name.name, name.variant], |row| {
            Ok(Known {
                version: row.get(0)?,
                source: row.get(1)?,
                listed: row.get(2)?,
                entry: row.get(3)?,
                is_gone: row.get(4)?,
            })
        });
        Ok(found.optional()?)
    }

    /// All variants of a name: version, variant and source of each.
    pub fn versions(
        &self,
        repository: &str,
        series: &str,
        name: &str,
    ) -> Result<Vec<(String, String, String)>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select version, variant, source from package where repository = ? and series = ? and name = ?",
        )?;
        let rows =
            query.query_map([repository, series, name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The sources that own a name, in any variant of a series.
    pub fn owners(&self, repository: &str, series: &str, name: &str) -> Result<Vec<String>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select distinct source from package where repository = ? and series = ? and name = ?",
        )?;
        let rows = query.query_map([repository, series, name], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether a content of a package was signed, and replaced.
    pub fn is_replaced(
        &self,
        repository: &str,
        series: &str,
        name: &Name,
        listed: &str,
    ) -> Result<bool, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select 1 from replaced
             where repository = ? and series = ? and name = ? and variant = ? and listed = ?",
        )?;
        Ok(query.exists(params![repository, series, name.name, name.variant, listed])?)
    }

    /// The files of all packages of a series, as hashes of their paths: the packages that have each.
    pub fn files(&self, repository: &str, series: &str) -> Result<HashMap<u64, Vec<Name>>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select name, variant, files from package
             where repository = ? and series = ? and files is not null",
        )?;
        let mut rows = query.query([repository, series])?;
        let mut owners: HashMap<u64, Vec<Name>> = HashMap::new();
        while let Some(row) = rows.next()? {
            let name = Name { name: row.get(0)?, variant: row.get(1)? };
            let files: Vec<u8> = row.get(2)?;
            for file in files.chunks_exact(8) {
                let file = u64::from_be_bytes(file.try_into().unwrap_or_default());
                owners.entry(file).or_default().push(name.clone());
            }
        }
        Ok(owners)
    }

    /// Who approved what a refusal names; none if it was not approved.
    pub fn approved(&self, id: &str) -> Result<Option<String>, MemoryError> {
        let mut query = self.database.prepare_cached("select approved_by from refusal where id = ?")?;
        let found: Option<Option<String>> = query.query_row([id], |row| row.get(0)).optional()?;
        Ok(found.flatten())
    }

    /// The number of signatures since a time, in seconds since 1970.
    pub fn signatures_since(&self, time: i64) -> Result<u64, MemoryError> {
        let mut query = self.database.prepare_cached("select text from line order by number desc")?;
        let mut rows = query.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            let Ok(line) = serde_json::from_str::<Line>(&text) else { continue };
            if line.time < time {
                break;
            }
            // Packages that are signed one by one belong to a generation.
            count += u64::from(matches!(line.entry, Entry::Generation { .. } | Entry::Document { .. }));
        }
        Ok(count)
    }

    /// The number of lines after the last seal.
    pub fn unsealed(&self) -> u64 {
        self.unsealed
    }

    /// The number and hash of the last line.
    pub fn last(&self) -> (u64, &str) {
        (self.next - 1, &self.last)
    }

    /// Adds lines, and remembers a signed generation with them, durably: first in the database, then in the file.
    pub fn record(
        &mut self,
        time: i64,
        entries: Vec<Entry>,
        signed: Option<&Signed<'_>>,
    ) -> Result<(), MemoryError> {
        self.record_with(time, entries, |transaction| match signed {
            Some(signed) => remember(transaction, signed),
            None => Ok(()),
        })
    }

    /// Remembers refusals that a person can approve, with their lines.
    pub fn refuse(
        &mut self,
        time: i64,
        repository: &str,
        refusals: &[crate::message::Refusal],
    ) -> Result<(), MemoryError> {
        let entry = |refusal: &crate::message::Refusal| Entry::Refused {
            repository: shortened(repository),
            package: refusal.package.as_deref().map(shortened),
            rule: refusal.rule,
            reason: shortened(&refusal.reason),
        };
        // A coordinator that asks again gets the same answer, and adds nothing.
        let is_known = |refusal: &crate::message::Refusal| -> Result<bool, MemoryError> {
            let Some(id) = &refusal.id else { return Ok(false) };
            Ok(self.database.prepare_cached("select 1 from refusal where id = ?")?.exists([id])?)
        };
        let mut new = Vec::new();
        for refusal in refusals {
            if is_known(refusal)? {
                continue;
            }
            // A coordinator cannot fill the disk with its mistakes.
            self.refused += u32::from(refusal.id.is_none());
            if refusal.id.is_some() || self.refused <= REFUSED_MAX {
                new.push(refusal);
            }
        }
        let entries = new.iter().map(|refusal| entry(refusal)).collect();
        self.record_with(time, entries, |transaction| {
            let mut insert = transaction.prepare_cached(
                "insert or ignore into refusal (id, time, repository, package, rule, reason) values (?, ?, ?, ?, ?, ?)",
            )?;
            for refusal in &new {
                if let Some(id) = &refusal.id {
                    let rule = serde_json::to_value(refusal.rule).map_err(io::Error::other)?;
                    let rule = rule.as_str().unwrap_or_default();
                    insert.execute(params![id, time, repository, refusal.package, rule, refusal.reason])?;
                }
            }
            Ok(())
        })
    }

    /// Approves what was refused. Returns whether there is such a refusal.
    pub fn approve(&mut self, time: i64, id: &str, by: &str) -> Result<bool, MemoryError> {
        if !self.database.prepare_cached("select 1 from refusal where id = ?")?.exists([id])? {
            return Ok(false);
        }
        let entry = Entry::Approved { id: id.to_owned(), by: by.to_owned() };
        self.record_with(time, vec![entry], |transaction| {
            transaction.execute("update refusal set approved_by = ? where id = ?", [by, id])?;
            Ok(())
        })?;
        Ok(true)
    }

    /// Refusals without an approval: id, time, repository, package and reason.
    pub fn pending(&self) -> Result<Vec<Pending>, MemoryError> {
        let mut query = self.database.prepare_cached(
            "select id, time, repository, package, reason from refusal where approved_by is null order by time, id",
        )?;
        let rows = query.query_map([], |row| {
            Ok(Pending {
                id: row.get(0)?,
                time: row.get(1)?,
                repository: row.get(2)?,
                package: row.get(3)?,
                reason: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn record_with(
        &mut self,
        time: i64,
        entries: Vec<Entry>,
        also: impl FnOnce(&Transaction<'_>) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        if self.is_behind {
            return Err(MemoryError::Behind);
        }
        let (mut unsealed, transaction) = (self.unsealed, self.database.transaction()?);
        let (mut last, mut next, mut texts) = (self.last.clone(), self.next, String::new());
        {
            let mut insert = transaction.prepare_cached("insert into line (number, text) values (?, ?)")?;
            for entry in entries {
                unsealed = if matches!(entry, Entry::Seal { .. }) { 0 } else { unsealed + 1 };
                let line = Line { number: next, time, previous: last, entry };
                let text = serde_json::to_string(&line).map_err(io::Error::other)?;
                insert.execute(params![next as i64, text])?;
                last = hash(text.as_bytes());
                next += 1;
                texts.push_str(&text);
                texts.push('\n');
            }
        }
        also(&transaction)?;
        transaction.commit()?;
        (self.last, self.next, self.unsealed) = (last, next, unsealed);
        // Until it is opened again, which writes what is missing.
        self.is_behind = true;
        self.account.write_all(texts.as_bytes())?;
        self.account.sync_data()?;
        self.is_behind = false;
        Ok(())
    }
}

/// A refusal that can be approved.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Pending {
    /// Names it for the approval.
    pub id: String,
    /// When it was refused first, in seconds since 1970.
    pub time: i64,
    /// The repository.
    pub repository: String,
    /// The binary package.
    pub package: Option<String>,
    /// A sentence without its full stop.
    pub reason: String,
}

/// Waits for the only process that may continue the account at a time. The lock ends with the process.
fn lock(account: &File) -> Result<(), MemoryError> {
    for _ in 0..LOCK_STEPS {
        match account.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_STEP),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Err(MemoryError::Busy)
}

/// The beginning of a text that another process wrote.
fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

/// The number of lines after the last seal, which is one of the last lines.
fn lines_since_seal(database: &Connection) -> Result<u64, MemoryError> {
    let mut query = database.prepare("select text from line order by number desc")?;
    let mut rows = query.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let line = serde_json::from_str::<Line>(row.get_ref(0)?.as_str().unwrap_or_default());
        if line.is_ok_and(|line| matches!(line.entry, Entry::Seal { .. })) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn remember(transaction: &Transaction<'_>, signed: &Signed<'_>) -> Result<(), MemoryError> {
    let Signed { repository, series, date, text, indexes, derived, all, packages } = signed;
    transaction.execute(
        "insert or replace into series (repository, series, date, text) values (?, ?, ?, ?)",
        params![repository, series, date, text],
    )?;
    transaction.execute("delete from shown where repository = ? and series = ?", [repository, series])?;
    for (path, text) in *indexes {
        let sha256 = hash(text.as_bytes());
        let is_new = !transaction.prepare_cached("select 1 from body where sha256 = ?")?.exists([&sha256])?;
        if is_new {
            let packed = zstd::encode_all(text.as_bytes(), 3)?;
            transaction.execute("insert into body (sha256, text) values (?, ?)", params![sha256, packed])?;
        }
        transaction.execute(
            "insert into shown (repository, series, path, sha256) values (?, ?, ?, ?)",
            [repository, series, &path.as_str(), &sha256.as_str()],
        )?;
    }
    for (path, digest) in *derived {
        transaction.execute(
            "insert into shown (repository, series, path, sha256) values (?, ?, ?, ?)",
            [repository, series, &path.as_str(), &digest.as_str()],
        )?;
    }
    transaction.execute("delete from body where sha256 not in (select sha256 from shown)", [])?;
    put(transaction, repository, series, packages)?;
    // What was refused before is signed now, by another rule of the policy or in another version.
    let mut settled = transaction
        .prepare_cached("delete from refusal where repository = ? and package = ? and approved_by is null")?;
    for (name, ..) in packages {
        settled.execute([repository, &name.name.as_str()])?;
    }
    if let Some(all) = all {
        mark_gone(transaction, repository, series, all)?;
    }
    Ok(())
}

/// Remembers packages, and what they replace.
fn put(
    transaction: &Transaction<'_>,
    repository: &str,
    series: &str,
    packages: &[Remembered],
) -> Result<(), MemoryError> {
    let mut replaced = transaction.prepare_cached(
        "insert or ignore into replaced (repository, series, name, variant, listed)
         select repository, series, name, variant, listed from package
         where repository = ? and series = ? and name = ? and variant = ? and listed != ?",
    )?;
    let mut insert = transaction.prepare_cached(
        "insert or replace into package (repository, series, name, variant, version, source, listed, entry, files)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for (Name { name, variant }, known, files) in packages {
        replaced.execute(params![repository, series, name, variant, known.listed])?;
        let files: Option<Vec<u8>> =
            files.as_ref().map(|files| files.iter().flat_map(|file| file.to_be_bytes()).collect());
        let Known { version, source, listed, entry, .. } = known;
        insert.execute(params![repository, series, name, variant, version, source, listed, entry, files])?;
    }
    Ok(())
}

/// Marks the packages that a generation does not have: one that returns is judged again.
fn mark_gone(
    transaction: &Transaction<'_>,
    repository: &str,
    series: &str,
    all: &HashSet<Name>,
) -> Result<(), MemoryError> {
    let mut query = transaction
        .prepare_cached("select name, variant, is_gone from package where repository = ? and series = ?")?;
    let rows = query.query_map([repository, series], |row| {
        Ok((Name { name: row.get(0)?, variant: row.get(1)? }, row.get::<_, bool>(2)?))
    })?;
    let rows = rows.collect::<Result<Vec<(Name, bool)>, _>>()?;
    let mut mark = transaction.prepare_cached(
        "update package set is_gone = ? where repository = ? and series = ? and name = ? and variant = ?",
    )?;
    for (name, was_gone) in rows {
        let is_gone = !all.contains(&name);
        if is_gone != was_gone {
            mark.execute(params![is_gone, repository, series, name.name, name.variant])?;
        }
    }
    Ok(())
}

/// Makes the file and the database agree: each may lack the last lines of the other. Returns the hash of the last line and the
/// number of the next.
fn catch_up(database: &mut Connection, account: &mut File) -> Result<(String, u64), MemoryError> {
    let mut text = String::new();
    account.seek(SeekFrom::Start(0))?;
    account.read_to_string(&mut text)?;
    // A killed signer may have written a part of a line.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let (partial, text) = (text.len() > whole, &text[..whole]);
    let found = Account::check(text, None).map_err(|fault| MemoryError::Damaged(fault.to_string()))?;
    let in_file = found.lines.len() as u64;
    let remembered: Option<i64> = database.query_row("select max(number) from line", [], |row| row.get(0))?;
    let remembered = remembered.unwrap_or_default().unsigned_abs();
    let line_of = |number: u64| -> Result<Option<String>, MemoryError> {
        let mut query = database.prepare_cached("select text from line where number = ?")?;
        Ok(query.query_row([number as i64], |row| row.get(0)).optional()?)
    };
    // The last line that both have must be the same: then all before it are.
    let common = in_file.min(remembered);
    let in_text = text.lines().nth(common.saturating_sub(1) as usize);
    if common > 0 && line_of(common)?.as_deref() != in_text {
        return Err(MemoryError::Damaged(format!("its line {common} is not the one in the signer's memory")));
    }
    let (mut last, mut missing) = (found.last.clone(), String::new());
    for number in in_file + 1..=remembered {
        let line = line_of(number)?.unwrap_or_default();
        last = hash(line.as_bytes());
        missing.push_str(&line);
        missing.push('\n');
    }
    if in_file > remembered {
        import(database, text, &found.lines[remembered as usize..])?;
    }
    if partial {
        account.set_len(whole as u64)?;
    }
    if !missing.is_empty() {
        account.write_all(missing.as_bytes())?;
    }
    account.sync_data()?;
    Ok((last, in_file.max(remembered) + 1))
}

/// Takes over lines that another machine wrote. What they say of a series replaces what is remembered of it: its indexes must be
/// shown again.
fn import(database: &mut Connection, text: &str, lines: &[Line]) -> Result<(), MemoryError> {
    let transaction = database.transaction()?;
    let first = lines.first().map_or(0, |line| line.number) as usize;
    for (line, text) in lines.iter().zip(text.lines().skip(first.saturating_sub(1))) {
        transaction
            .execute("insert into line (number, text) values (?, ?)", params![line.number as i64, text])?;
        if let Entry::Generation { repository, series, text, .. }
        | Entry::Adopted { repository, series, text, .. } = &line.entry
        {
            transaction
                .execute("delete from shown where repository = ? and series = ?", [repository, series])?;
            transaction.execute(
                "insert or replace into series (repository, series, date, text) values (?, ?, ?, ?)",
                params![repository, series, line.time, text],
            )?;
        }
        let (repository, series, packages) = match &line.entry {
            Entry::Generation { repository, series, packages, .. } => (repository, series.as_str(), packages),
            Entry::Packages { repository, packages, .. } => (repository, SIGNED_PACKAGES, packages),
            _ => continue,
        };
        let known = |package: &crate::account::Package| {
            let name = Name { name: package.name.clone(), variant: package.variant.clone() };
            let (version, source) = (package.version.clone(), package.source.clone());
            let (listed, entry) = (package.listed.clone(), String::new());
            (name, Known { version, source, listed, entry, is_gone: false }, None)
        };
        put(&transaction, repository, series, &packages.iter().map(known).collect::<Vec<Remembered>>())?;
    }
    Ok(transaction.commit()?)
}
