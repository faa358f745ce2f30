//! Copies all rows, to and from other stores.

use super::{Sqlite, database};
use kilnyard_store::copy::{Cell, EachRow, GENERATION_BITS, Head, Kind, LEFT_OUT, Rows, TABLES, Table};
use kilnyard_store::{Number, StoreError};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, TransactionBehavior, params, params_from_iter};

/// The tables that count their own rows, and the columns that they count.
const COUNTED: [(&str, &str); 3] = [("run", "number"), ("event", "seq"), ("request", "number")];

impl Rows for Sqlite {
    fn head(&self) -> Result<Head, StoreError> {
        let number = |sql: &str| -> Result<Number, StoreError> {
            let number: i64 =
                self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.wrap(e))?;
            Ok(number as Number)
        };
        let counted = |name: &str| {
            number(&format!("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{name}'), 0)"))
        };
        Ok(Head {
            scope: self.scope.clone(),
            epoch: number("SELECT epoch FROM store")?,
            builds: number("SELECT builds FROM store")?,
            runs: counted("run")?,
            events: counted("event")?,
        })
    }

    fn each_row(&self, table: &Table, each: EachRow<'_>) -> Result<(), StoreError> {
        let sql = format!("SELECT {} FROM {} ORDER BY {}", table.names(), table.name, table.key_names());
        let mut statement = self.connection.prepare(&sql).map_err(|e| self.wrap(e))?;
        let mut rows = statement.query([]).map_err(|e| self.wrap(e))?;
        while let Some(row) = rows.next().map_err(|e| self.wrap(e))? {
            let cells = table.columns.iter().enumerate().map(|(column, (name, kind))| {
                let value = row.get_ref(column).map_err(|e| self.wrap(e))?;
                cell(value, *kind)
                    .ok_or_else(|| self.unreadable("a row", format!("{}.{name} is no {kind:?}", table.name)))
            });
            each(cells.collect::<Result<Vec<Cell>, StoreError>>()?)?;
        }
        Ok(())
    }

    fn rows_at_once(
        &self,
        read: &mut dyn FnMut(&dyn Rows) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let _snapshot = self.snapshot()?;
        read(self)
    }

    fn fill(&mut self, from: &dyn Rows) -> Result<(), StoreError> {
        let head = from.head()?;
        let path = self.path.clone();
        let wrap = |error| database(&path, error);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(wrap)?;
        let has = "SELECT EXISTS (SELECT 1 FROM run) OR EXISTS (SELECT 1 FROM output)";
        if transaction.query_row(has, [], |row| row.get(0)).map_err(wrap)? {
            let what = "runs or outputs of its own".to_owned();
            return Err(StoreError::Used { store: path.display().to_string(), what });
        }
        for table in &TABLES {
            transaction.execute(&format!("DELETE FROM {}", table.name), []).map_err(wrap)?;
            insert_all(&transaction, table, from, &wrap)?;
        }
        for (table, column) in COUNTED {
            let counted = match table {
                "run" => head.runs as i64,
                "event" => head.events as i64,
                // The next request may have any number above those that wait.
                _ => 0,
            };
            let sql = format!(
                "INSERT INTO sqlite_sequence (name, seq)
                 SELECT ?1, max(?2, coalesce((SELECT max({column}) FROM {table}), 0))"
            );
            transaction.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [table]).map_err(wrap)?;
            transaction.execute(&sql, params![table, counted]).map_err(wrap)?;
        }
        transaction
            .execute(
                "UPDATE store SET farm = ?1, yard = ?2, epoch = ?3, builds = ?4",
                params![
                    head.scope.farm.to_string(),
                    head.scope.yard.to_string(),
                    head.epoch as i64 + 1,
                    head.builds as i64
                ],
            )
            .map_err(wrap)?;
        transaction.commit().map_err(wrap)
    }

    fn begin_generation(&mut self, minutes: u64) -> Result<(), StoreError> {
        let path = self.path.clone();
        let wrap = |error| database(&path, error);
        let transaction = self.connection.transaction().map_err(wrap)?;
        let begin = "UPDATE store SET epoch = max(epoch, ?1), builds = builds + ?2";
        let (epoch, left_out) = ((minutes << GENERATION_BITS) as i64, LEFT_OUT as i64);
        transaction.execute(begin, params![epoch, left_out]).map_err(wrap)?;
        let events = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'event'";
        transaction.execute(events, [left_out]).map_err(wrap)?;
        transaction.commit().map_err(wrap)
    }
}

fn insert_all(
    connection: &Connection,
    table: &Table,
    from: &dyn Rows,
    wrap: &dyn Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    let places: Vec<String> = (1..=table.columns.len()).map(|place| format!("?{place}")).collect();
    let sql = format!("INSERT INTO {} ({}) VALUES ({})", table.name, table.names(), places.join(", "));
    let mut insert = connection.prepare(&sql).map_err(wrap)?;
    from.each_row(table, &mut |row| {
        insert.execute(params_from_iter(row.into_iter().map(Stored))).map(drop).map_err(wrap)
    })
}

/// A value as SQLite stores it.
struct Stored(Cell);

impl ToSql for Stored {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match &self.0 {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Int(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Real(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

fn cell(value: ValueRef<'_>, kind: Kind) -> Option<Cell> {
    Some(match (value, kind) {
        (ValueRef::Null, _) => Cell::Null,
        (ValueRef::Integer(number), Kind::Int | Kind::Bool) => Cell::Int(number),
        (ValueRef::Real(number), Kind::Real) => Cell::Real(number),
        (ValueRef::Text(text), Kind::Text) => Cell::Text(std::str::from_utf8(text).ok()?.to_owned()),
        (ValueRef::Blob(bytes), Kind::Bytes) => Cell::Bytes(bytes.to_vec()),
        _ => return None,
    })
}
