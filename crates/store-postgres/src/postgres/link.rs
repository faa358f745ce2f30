//! A connection, and statements over it.

use crate::Address;
use kilnyard_store::StoreError;
use std::borrow::Cow;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// How long a call tries to reach the database, unless it must be certain of its outcome.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pauses between tries to connect.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];
/// How long a statement may take. Without an answer for longer, the connection is broken.
const STATEMENT_MAX: Duration = Duration::from_secs(120);

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub enum Value {
    Int(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
    Bool(Option<bool>),
    Bytes(Vec<u8>),
    /// Columns of several rows, for `unnest`.
    Ints(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
    Bools(Vec<Option<bool>>),
    Texts(Vec<Option<String>>),
    Blobs(Vec<Option<Vec<u8>>>),
}

impl Value {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Value::Int(value) => (value, Type::INT8),
            Value::Real(value) => (value, Type::FLOAT8),
            Value::Text(value) => (value, Type::TEXT),
            Value::Bool(value) => (value, Type::BOOL),
            Value::Bytes(value) => (value, Type::BYTEA),
            Value::Ints(value) => (value, Type::INT8_ARRAY),
            Value::Reals(value) => (value, Type::FLOAT8_ARRAY),
            Value::Bools(value) => (value, Type::BOOL_ARRAY),
            Value::Texts(value) => (value, Type::TEXT_ARRAY),
            Value::Blobs(value) => (value, Type::BYTEA_ARRAY),
        }
    }
}

/// PostgreSQL cannot store U+0000.
pub fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

macro_rules! values {
    ($($from:ty => $kind:ident, $with:expr;)*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$kind(Some($with(value)))
            }
        }
        impl From<Option<$from>> for Value {
            fn from(value: Option<$from>) -> Value {
                Value::$kind(value.map($with))
            }
        }
    )*};
}

values! {
    i64 => Int, |value| value;
    u32 => Int, i64::from;
    // Numbers only increase, and none is that large.
    u64 => Int, |value| i64::try_from(value).unwrap_or(i64::MAX);
    f64 => Real, |value| value;
    bool => Bool, |value| value;
    &str => Text, storable;
    &String => Text, |value: &String| storable(value);
    String => Text, |value: String| storable(&value);
}

impl From<Vec<i64>> for Value {
    fn from(values: Vec<i64>) -> Value {
        Value::Ints(values.into_iter().map(Some).collect())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Bytes(bytes)
    }
}

/// A column of texts, from the rows.
pub fn texts<'a, Row: 'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    text: impl Fn(&'a Row) -> Option<String>,
) -> Value {
    Value::Texts(rows.into_iter().map(|row| text(row).map(|text| storable(&text))).collect())
}

/// A column of numbers, from the rows.
pub fn reals<'a, Row: 'a>(rows: impl IntoIterator<Item = &'a Row>, number: impl Fn(&'a Row) -> f64) -> Value {
    Value::Reals(rows.into_iter().map(|row| Some(number(row))).collect())
}

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub struct Statement {
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

impl Statement {
    pub fn new(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Statement {
        Statement { sql: sql.into(), values }
    }
}

/// A statement with its parameters: `sql!("SELECT … $1", number)`.
macro_rules! sql {
    ($sql:expr $(, $value:expr)* $(,)?) => {
        $crate::postgres::link::Statement::new($sql, vec![$($crate::postgres::link::Value::from($value)),*])
    };
}
pub(super) use sql;

/// A connection with the thread of execution that it needs: it is served while a call waits for it.
pub struct Link {
    /// Present until this is dropped.
    runtime: Option<Runtime>,
    client: Client,
    /// The schema of the tables, if it is another one than statements name.
    schema: Option<String>,
    /// Its name, not quoted.
    schema_name: String,
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not block, so that a thread of another runtime may do it.
            runtime.shutdown_background();
        }
    }
}

impl Link {
    /// Connects, and tries again for a while.
    pub fn open(address: &Address) -> Result<Link, Failed> {
        let end = Instant::now() + PATIENCE;
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
        loop {
            match Link::connect(address) {
                Err(Failed::Database(error)) if is_passing(&error) && Instant::now() < end => {
                    std::thread::sleep(pauses.next().copied().unwrap_or_default());
                }
                other => return other,
            }
        }
    }

    fn connect(address: &Address) -> Result<Link, Failed> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failed::Machine)?;
        let (client, connection) = runtime.block_on(address.config().connect(address.tls()))?;
        // Its error is that of the statement that it breaks.
        runtime.spawn(async move { drop(connection.await) });
        let runtime = Some(runtime);
        Ok(Link { runtime, client, schema: address.other_schema(), schema_name: address.schema().to_owned() })
    }

    /// Whether the server has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The name of the schema of the tables.
    pub fn schema_name(&self) -> &str {
        &self.schema_name
    }

    /// Performs statements one after the other, sent together. Returns the rows of each. The first error is that of the
    /// first statement that failed; those after it may have been performed if this is not in a transaction.
    pub fn all(&self, statements: &[Statement]) -> Result<Vec<Vec<Row>>, Failed> {
        let typed: Vec<Vec<_>> =
            statements.iter().map(|statement| statement.values.iter().map(Value::typed).collect()).collect();
        let texts: Vec<Cow<'_, str>> =
            statements.iter().map(|statement| self.in_schema(&statement.sql)).collect();
        let queries = texts
            .iter()
            .zip(&typed)
            .map(|(sql, values)| -> Query<'_, Vec<Row>> { Box::pin(self.client.query_typed(sql, values)) });
        self.waited(in_order(queries.collect()))
    }

    /// Performs one statement.
    pub fn one(&self, statement: Statement) -> Result<Vec<Row>, Failed> {
        Ok(self.all(std::slice::from_ref(&statement))?.pop().unwrap_or_default())
    }

    /// Performs statements without parameters and results.
    pub fn batch(&self, sql: &str) -> Result<(), Failed> {
        self.waited(self.client.batch_execute(&self.in_schema(sql)))
    }

    /// Removes the schema with everything in it.
    pub fn remove_schema(&self) -> Result<(), Failed> {
        let schema = self.schema.as_deref().unwrap_or(&self.schema_name);
        self.waited(self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")))
    }

    /// A statement on the tables of this schema.
    fn in_schema<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        match &self.schema {
            // The program's statements have no text with these words: values are parameters.
            Some(schema) => {
                let own = format!("{schema}.");
                Cow::Owned(
                    sql.replace("kilnyard.", &own)
                        .replace("SCHEMA IF NOT EXISTS kilnyard", &format!("SCHEMA IF NOT EXISTS {schema}")),
                )
            }
            None => Cow::Borrowed(sql),
        }
    }

    fn waited<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        let limited = async { tokio::time::timeout(STATEMENT_MAX, work).await };
        match self.runtime.as_ref().map(|runtime| runtime.block_on(limited)) {
            Some(Ok(outcome)) => Ok(outcome?),
            Some(Err(_)) | None => Err(Failed::Silent),
        }
    }
}

/// A query that is sent when it is polled for the first time.
type Query<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'a>>;

/// Sends all queries in their order, and waits for their answers.
async fn in_order<T>(mut queries: Vec<Query<'_, T>>) -> Result<Vec<T>, Error> {
    let mut done: Vec<Option<Result<T, Error>>> = Vec::with_capacity(queries.len());
    std::future::poll_fn(|context| {
        for query in &mut queries {
            done.push(match Pin::as_mut(query).poll(context) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            });
        }
        Poll::Ready(())
    })
    .await;
    let mut answers = Vec::with_capacity(queries.len());
    for (query, done) in queries.into_iter().zip(done) {
        answers.push(match done {
            Some(outcome) => outcome?,
            None => query.await?,
        });
    }
    Ok(answers)
}

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("{}", in_full(.0))]
    Database(#[from] Error),
    #[error("the database gave no answer within {} s", STATEMENT_MAX.as_secs())]
    Silent,
    #[error("{0}")]
    Machine(std::io::Error),
    /// The store has no row.
    #[error("its row is missing")]
    NoRow,
}

/// An error with the message of the server, or the cause.
fn in_full(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}", said.message());
    }
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Whether the database may take the same statement later, over another connection.
fn is_passing(error: &Error) -> bool {
    let passing = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        // It is a replica now; another host may not be one.
        SqlState::READ_ONLY_SQL_TRANSACTION,
        // The same, for its timeline.
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
    ];
    match error.code() {
        Some(code) => passing.contains(code),
        // The connection could not be made, or broke.
        None => true,
    }
}

impl Failed {
    /// Whether the connection is of no more use, but another one may be.
    pub fn is_of_connection(&self) -> bool {
        match self {
            Failed::Database(error) => is_passing(error),
            Failed::Silent => true,
            Failed::Machine(_) | Failed::NoRow => false,
        }
    }

    /// The code of the server's error.
    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Failed::Database(error) => error.code(),
            _ => None,
        }
    }

    /// The unique constraint that was violated, if that is the error.
    pub fn violated(&self) -> Option<&str> {
        match self {
            Failed::Database(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                error.as_db_error()?.constraint()
            }
            _ => None,
        }
    }

    /// The error for callers.
    pub fn of(self, address: &Address) -> StoreError {
        let store = address.to_string();
        let full = [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY, SqlState::INSUFFICIENT_RESOURCES];
        let damaged = [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED];
        let code = match &self {
            Failed::Database(error) => error.code().cloned(),
            _ => None,
        };
        let is_busy = self.is_of_connection();
        let (reason, source) = (self.to_string(), Box::new(self));
        match code {
            Some(code) if full.contains(&code) => StoreError::Full { store, source },
            Some(code) if damaged.contains(&code) => StoreError::Damaged { store, reason },
            Some(SqlState::READ_ONLY_SQL_TRANSACTION) => StoreError::ReadOnly { store, source },
            _ if is_busy => StoreError::Busy { store, source },
            _ => StoreError::Other { store, source },
        }
    }
}
