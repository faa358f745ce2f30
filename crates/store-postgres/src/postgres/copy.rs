//! Copies all rows, to and from other stores.

use super::Postgres;
use super::link::{Failed, Link, Statement, Value, sql, storable};
use super::partition;
use kilnyard_store::copy::{Cell, EachRow, GENERATION_BITS, Head, Kind, LEFT_OUT, Rows, TABLES, Table};
use kilnyard_store::{Number, StoreError};
use tokio_postgres::Row;

/// How many rows are read or written together.
const ROWS: usize = 1000;
/// The tables that number their own rows.
const NUMBERED: [&str; 2] = ["scope", "request"];

impl Rows for Postgres {
    fn head(&self) -> Result<Head, StoreError> {
        let rows = self.rows(sql!("SELECT epoch, builds, runs, events FROM kilnyard.store"))?;
        let row = rows.first().ok_or_else(|| self.unreadable("a store", "its row is missing"))?;
        Ok(Head {
            scope: self.scope.clone(),
            epoch: self.number_at(row, 0)?,
            builds: self.number_at(row, 1)?,
            runs: self.number_at(row, 2)?,
            events: self.number_at(row, 3)?,
        })
    }

    fn each_row(&self, table: &Table, each: EachRow<'_>) -> Result<(), StoreError> {
        self.at_once_or_now(|store| {
            let (names, keys) = (table.names(), table.key_names());
            let name = table.name;
            store.rows(Statement::new(
                format!("DECLARE copied CURSOR FOR SELECT {names} FROM kilnyard.{name} ORDER BY {keys}"),
                Vec::new(),
            ))?;
            loop {
                let rows = store.rows(Statement::new(format!("FETCH {ROWS} FROM copied"), Vec::new()))?;
                for row in &rows {
                    let cells = table.columns.iter().enumerate();
                    each(
                        cells
                            .map(|(column, (_, kind))| store.cell(row, column, *kind))
                            .collect::<Result<_, _>>()?,
                    )?;
                }
                if rows.len() < ROWS {
                    break;
                }
            }
            store.rows(sql!("CLOSE copied")).map(drop)
        })
    }

    fn rows_at_once(
        &self,
        read: &mut dyn FnMut(&dyn Rows) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.at_once_or_now(|store| read(store))
    }

    fn fill(&mut self, from: &dyn Rows) -> Result<(), StoreError> {
        let head = from.head()?;
        let mut link = match self.link.borrow_mut().take() {
            Some(link) => link,
            None => Link::open(&self.address).map_err(|failed| self.wrap(failed))?,
        };
        link.batch("BEGIN").map_err(|failed| self.wrap(failed))?;
        let filled = self.fill_over(&mut link, &head, from);
        let ended = link.batch(if filled.is_ok() { "COMMIT" } else { "ROLLBACK" });
        filled?;
        ended.map_err(|failed| self.wrap(failed))
    }

    fn begin_generation(&mut self, minutes: u64) -> Result<(), StoreError> {
        let begin = "UPDATE kilnyard.store
                     SET epoch = greatest(epoch, $1), builds = builds + $2, events = events + $2, timeline = 0";
        let (epoch, left_out) = (minutes << GENERATION_BITS, LEFT_OUT);
        self.rows(sql!(begin, epoch, left_out)).map(drop)
    }
}

impl Postgres {
    fn cell(&self, row: &Row, column: usize, kind: Kind) -> Result<Cell, StoreError> {
        Ok(match kind {
            Kind::Int => self.get::<Option<i64>>(row, column)?.map_or(Cell::Null, Cell::Int),
            Kind::Bool => {
                self.get::<Option<bool>>(row, column)?.map_or(Cell::Null, |value| Cell::Int(i64::from(value)))
            }
            Kind::Real => self.get::<Option<f64>>(row, column)?.map_or(Cell::Null, Cell::Real),
            Kind::Text => self.get::<Option<String>>(row, column)?.map_or(Cell::Null, Cell::Text),
            Kind::Bytes => self.get::<Option<Vec<u8>>>(row, column)?.map_or(Cell::Null, Cell::Bytes),
        })
    }

    fn fill_over(&self, link: &mut Link, head: &Head, from: &dyn Rows) -> Result<(), StoreError> {
        let wrap = |failed: Failed| self.wrap(failed);
        link.one(sql!("SELECT epoch FROM kilnyard.store FOR UPDATE")).map_err(wrap)?;
        let has = "SELECT EXISTS (SELECT 1 FROM kilnyard.run) OR EXISTS (SELECT 1 FROM kilnyard.output)";
        if link.one(sql!(has)).map_err(wrap)?.first().is_some_and(|row| row.get(0)) {
            let what = "runs or outputs of its own".to_owned();
            return Err(StoreError::Used { store: self.address.to_string(), what });
        }
        for table in &TABLES {
            link.batch(&format!("DELETE FROM kilnyard.{}", table.name)).map_err(wrap)?;
            let mut waiting: Vec<Vec<Cell>> = Vec::with_capacity(ROWS);
            let mut place = None;
            from.each_row(table, &mut |row| {
                let of_row = place_of(table, &row);
                if of_row != place {
                    place = of_row;
                    of_row.map_or(Ok(()), |place| partition::ensure(link, place)).map_err(wrap)?;
                }
                waiting.push(row);
                match waiting.len() < ROWS {
                    true => Ok(()),
                    false => link.one(insert(table, &std::mem::take(&mut waiting))).map(drop).map_err(wrap),
                }
            })?;
            link.one(insert(table, &waiting)).map_err(wrap)?;
        }
        // Of the next event, too.
        partition::ensure(link, partition::place_of(head.events + 1)).map_err(wrap)?;
        for name in NUMBERED {
            let next = format!(
                "SELECT setval(pg_get_serial_sequence('kilnyard.{name}', 'number'), coalesce(max(number), 0) + 1, false)
                 FROM kilnyard.{name}"
            );
            link.one(Statement::new(next, Vec::new())).map_err(wrap)?;
        }
        link.one(sql!(
            "UPDATE kilnyard.store SET farm = $1, yard = $2, epoch = $3, builds = $4, runs = $5, events = $6",
            head.scope.farm.to_string(),
            head.scope.yard.to_string(),
            head.epoch + 1,
            head.builds,
            head.runs,
            head.events,
        ))
        .map(drop)
        .map_err(wrap)
    }
}

/// The partition of a row, if it is an event.
fn place_of(table: &Table, row: &[Cell]) -> Option<Number> {
    let seq = (table.name == "event").then(|| row.first().and_then(int)).flatten()?;
    u64::try_from(seq).ok().map(partition::place_of)
}

/// Adds rows, by columns.
fn insert(table: &Table, rows: &[Vec<Cell>]) -> Statement {
    let values: Vec<Value> = table
        .columns
        .iter()
        .enumerate()
        .map(|(column, (_, kind))| {
            let cells = rows.iter().map(|row| &row[column]);
            match kind {
                Kind::Int => Value::Ints(cells.map(int).collect()),
                Kind::Bool => Value::Bools(cells.map(|cell| int(cell).map(|number| number != 0)).collect()),
                Kind::Real => Value::Reals(
                    cells
                        .map(|cell| if let Cell::Real(number) = cell { Some(*number) } else { None })
                        .collect(),
                ),
                Kind::Text => Value::Texts(
                    cells
                        .map(|cell| if let Cell::Text(text) = cell { Some(storable(text)) } else { None })
                        .collect(),
                ),
                Kind::Bytes => Value::Blobs(
                    cells
                        .map(|cell| if let Cell::Bytes(bytes) = cell { Some(bytes.clone()) } else { None })
                        .collect(),
                ),
            }
        })
        .collect();
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    let (name, names, places) = (table.name, table.names(), places.join(", "));
    let text = format!(
        "INSERT INTO kilnyard.{name} ({names}) OVERRIDING SYSTEM VALUE SELECT * FROM unnest({places})"
    );
    Statement::new(text, values)
}

fn int(cell: &Cell) -> Option<i64> {
    if let Cell::Int(number) = cell { Some(*number) } else { None }
}
