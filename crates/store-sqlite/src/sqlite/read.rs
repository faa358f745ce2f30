//! Reads rows.

use super::Sqlite;
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::order::Key;
use kilnyard_model::provenance::Signed;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, PackageState};
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, LastBuild, Measurement, Number, OutputRow, PackageRow, Plan, PlanRow, PlanRowSeen,
    RunRow, RunState, StoreError,
};
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Params, Row};
use std::collections::HashMap;

fn lines(text: &str, separator: char) -> Vec<String> {
    text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The columns of a package.
const PACKAGE: &str = "name, version, state, reason, blamed, estimate, rank, why";

/// Decodes a row that starts with the columns of [`PACKAGE`].
fn package_row(row: &Row) -> rusqlite::Result<Option<PackageRow>> {
    let state = row.get_ref(2)?.as_str()?;
    Ok(PackageState::parse(state).map(|state| PackageRow {
        name: row.get_unwrap(0),
        version: row.get_unwrap(1),
        state,
        reason: reason(row.get_ref_unwrap(7), row.get_ref_unwrap(3)),
        blamed: row.get_unwrap(4),
        estimate_seconds: row.get_unwrap(5),
        rank_seconds: row.get_unwrap(6),
    }))
}

/// The recorded reason, or its text if this version cannot decode the data or there is none.
fn reason(data: ValueRef, words: ValueRef) -> Reason {
    let known = data.as_str().ok().and_then(|text| serde_json::from_str(text).ok());
    known.unwrap_or_else(|| Reason::Words { text: words.as_str().unwrap_or_default().to_owned() })
}

/// A build's random id; `None` if the text is not a valid id.
pub(super) fn attempt(value: ValueRef) -> Option<Attempt> {
    value.as_str().ok().and_then(|text| Attempt::parse(text).ok())
}

impl Sqlite {
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let query = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(values)?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(read(row)?);
            }
            Ok(all)
        };
        query().map_err(|e| self.wrap(e))
    }

    pub(super) fn read_runs(&self, count_max: Option<i64>) -> Result<Vec<RunRow>, StoreError> {
        let sql = "SELECT number, started, ended, state, plan_digest, cores, slots, expected, bound, forced,
                     commits
                   FROM run WHERE scope = ?2 ORDER BY number DESC LIMIT ?1";
        let rows = self.rows(sql, (count_max.unwrap_or(-1), self.number), |row| {
            let state: String = row.get(3)?;
            let (forced, commits): (Option<String>, Option<String>) = (row.get(9)?, row.get(10)?);
            Ok(RunRow {
                number: row.get::<_, i64>(0)? as Number,
                started_seconds: row.get(1)?,
                ended_seconds: row.get(2)?,
                state: RunState::parse(&state).unwrap_or(RunState::Interrupted),
                plan_digest: row.get(4)?,
                cores: row.get(5)?,
                slots: row.get(6)?,
                expected_seconds: row.get(7)?,
                bound_seconds: row.get(8)?,
                // If the text cannot be decoded, the run counts as one that forced nothing.
                forced: forced.and_then(|text| serde_json::from_str(&text).ok()),
                commits: commits.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
            })
        })?;
        Ok(rows)
    }

    pub(super) fn read_last_builds(&self) -> Result<Vec<LastBuild>, StoreError> {
        // With max(), SQLite takes the other columns from the row of the maximum.
        let sql = "SELECT package, max(number), run, outcome FROM build WHERE scope = ?1 GROUP BY package";
        self.rows(sql, [self.number], |row| {
            Ok(LastBuild {
                package: row.get(0)?,
                number: row.get::<_, i64>(1)? as Number,
                run: row.get::<_, i64>(2)? as Number,
                outcome: BuildOutcome::parse(row.get_ref(3)?.as_str()?),
            })
        })
    }

    pub(super) fn read_packages(
        &self,
        run: Number,
        name: Option<&str>,
    ) -> Result<Vec<PackageRow>, StoreError> {
        let select = format!("SELECT {PACKAGE} FROM run_package WHERE run = ?1");
        let rows = match name {
            Some(name) => self.rows(&format!("{select} AND name = ?2"), (run as i64, name), package_row),
            None => self.rows(&format!("{select} ORDER BY name"), (run as i64,), package_row),
        };
        self.known(rows?)
    }

    pub(super) fn read_packages_in_state(
        &self,
        run: Number,
        state: PackageState,
    ) -> Result<Vec<PackageRow>, StoreError> {
        let sql = format!("SELECT {PACKAGE} FROM run_package WHERE run = ?1 AND state = ?2 ORDER BY name");
        self.known(self.rows(&sql, (run as i64, state.as_str()), package_row)?)
    }

    fn known<T>(&self, rows: Vec<Option<T>>) -> Result<Vec<T>, StoreError> {
        rows.into_iter().collect::<Option<_>>().ok_or_else(|| self.unreadable("a state", "unknown name"))
    }

    pub(super) fn read_counts(&self, run: Number) -> Result<Vec<(PackageState, u64)>, StoreError> {
        let sql = "SELECT state, count(*) FROM run_package WHERE run = ?1 GROUP BY state";
        let rows = self.rows(sql, (run as i64,), |row| {
            let (state, count): (String, i64) = (row.get(0)?, row.get(1)?);
            Ok(PackageState::parse(&state).map(|state| (state, count as u64)))
        })?;
        self.known(rows)
    }

    pub(super) fn read_builds(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<BuildRow>, StoreError> {
        let sql = format!(
            "SELECT number, run, package, version, slot, key, started, ended, outcome, failure, reproducible,
                    attempt, worker, cores, kernel, cpu
             FROM build WHERE {condition}"
        );
        let mut failures: Vec<Option<String>> = Vec::new();
        let mut builds = self.rows(&sql, values, |row| {
            failures.push(row.get(9)?);
            Ok(BuildRow {
                number: row.get::<_, i64>(0)? as Number,
                attempt: attempt(row.get_ref(11)?),
                run: row.get::<_, i64>(1)? as Number,
                package: row.get(2)?,
                version: row.get(3)?,
                worker: row.get(12)?,
                cores: row.get(13)?,
                host: match (row.get(14)?, row.get(15)?) {
                    (Some(kernel), Some(cpu)) => Some(Host { kernel, cpu }),
                    _ => None,
                },
                slot: row.get(4)?,
                key: row.get(5)?,
                started_seconds: row.get(6)?,
                ended_seconds: row.get(7)?,
                outcome: BuildOutcome::parse(row.get_ref(8)?.as_str()?),
                failure: None,
                is_reproducible: row.get(10)?,
                stages: Vec::new(),
            })
        })?;
        for (build, failure) in builds.iter_mut().zip(failures) {
            build.failure = match failure {
                Some(text) => Some(serde_json::from_str(&text).map_err(|e| self.unreadable("a failure", e))?),
                None => None,
            };
            let sql = "SELECT result FROM stage WHERE build = ?1 ORDER BY position";
            for text in self.rows(sql, (build.number as i64,), |row| row.get::<_, String>(0))? {
                build.stages.push(serde_json::from_str(&text).map_err(|e| self.unreadable("a stage", e))?);
            }
        }
        Ok(builds)
    }

    pub(super) fn read_made_by(&self, worker: &str) -> Result<Vec<(String, Number)>, StoreError> {
        let sql = "SELECT package, number FROM build
             WHERE scope = ?2 AND worker = ?1 AND outcome IN ('built', 'unchanged')";
        self.rows(sql, (worker, self.number), |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as Number)))
    }

    pub(super) fn read_cpu_seconds(&self, began_from: f64, ended_from: f64) -> Result<f64, StoreError> {
        let sql = "SELECT coalesce(sum(json_extract(stage.result, '$.cpu_seconds')), 0.0)
             FROM build JOIN stage ON stage.build = build.number
             WHERE build.scope = ?1 AND build.started >= ?2 AND (build.ended IS NULL OR build.ended >= ?3)";
        let rows = self.rows(sql, (self.number, began_from, ended_from), |row| row.get(0))?;
        Ok(rows.first().copied().unwrap_or(0.0))
    }

    pub(super) fn read_pools(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        let sql = "SELECT package, worker, pool FROM provenance JOIN current USING (scope, package, build)
             WHERE scope = ?1";
        self.rows(sql, (self.number,), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    pub(super) fn read_provenance(&self, package: &str) -> Result<Option<Provenance>, StoreError> {
        let sql = "SELECT provenance.build, worker, pool, provenance.key, signature, statement
             FROM provenance JOIN current USING (scope, package, build)
             WHERE scope = ?2 AND package = ?1";
        let row = self.connection.query_row(sql, (package, self.number), |row| {
            let statement: Vec<u8> = row.get(5)?;
            let (key, signature) = (row.get(3)?, row.get(4)?);
            let made = Provenance {
                package: package.to_owned(),
                build: row.get::<_, i64>(0)? as Number,
                worker: row.get(1)?,
                pool: row.get(2)?,
                signed: Signed { statement: String::new(), key, signature },
            };
            Ok((made, statement))
        });
        let Some((mut made, statement)) = row.optional().map_err(|e| self.wrap(e))? else { return Ok(None) };
        let statement = zstd::decode_all(&statement[..]).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        made.signed.statement = statement.unwrap_or_default();
        Ok(Some(made))
    }

    pub(super) fn read_current(&self, name: Option<&str>) -> Result<Vec<Current>, StoreError> {
        // By the primary key, SQLite would read each row of the scope whole, including the lines of its key. The plus
        // sign makes it scan the table instead, where it skips these lines.
        let (lines_column, condition) = match name {
            Some(_) => ("key_lines", "scope = ?2 AND package = ?1"),
            None => ("''", "+scope = ?2 AND ?1 IS NULL"),
        };
        let sql = format!(
            "SELECT package, build, recipe_version, revision, key, {lines_column} FROM current WHERE {condition}"
        );
        let mut all = self.rows(&sql, (name, self.number), |row| {
            Ok(Current {
                package: row.get(0)?,
                build: row.get::<_, i64>(1)? as Number,
                recipe_version: row.get(2)?,
                revision: row.get(3)?,
                key: Key { digest: row.get(4)?, lines: lines(&row.get::<_, String>(5)?, '\n') },
                outputs: Vec::new(),
            })
        })?;
        let mut outputs: HashMap<String, Vec<_>> = HashMap::new();
        for row in self.read_outputs(name)? {
            outputs.entry(row.package).or_default().push(row.output);
        }
        for current in &mut all {
            current.outputs = outputs.remove(&current.package).unwrap_or_default();
        }
        Ok(all)
    }

    pub(super) fn read_outputs(&self, package: Option<&str>) -> Result<Vec<OutputRow>, StoreError> {
        let sql = "SELECT package, output FROM output WHERE scope = ?2 AND (?1 IS NULL OR package = ?1)
                   ORDER BY name, package";
        let rows =
            self.rows(sql, (package, self.number), |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        rows.into_iter()
            .map(|(package, text)| {
                let output = serde_json::from_str(&text).map_err(|e| self.unreadable("an output", e))?;
                Ok(OutputRow { package, output })
            })
            .collect()
    }

    pub(super) fn read_durations(&self) -> Result<Vec<(String, f64, f64)>, StoreError> {
        let sql = "SELECT package, wall, cpu FROM duration WHERE scope = ?1
                   UNION ALL
                   SELECT package, wall, cpu FROM imported_duration
                   WHERE scope = ?1 AND package NOT IN (SELECT package FROM duration WHERE scope = ?1)";
        self.rows(sql, [self.number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    pub(super) fn read_measured(&self) -> Result<Vec<(String, Vec<Measurement>)>, StoreError> {
        let rows = self.rows(
            "SELECT package, builds FROM measured WHERE scope = ?1 ORDER BY package",
            [self.number],
            |row| Ok((row.get(0)?, row.get::<_, String>(1)?)),
        )?;
        let read = |(package, text): (String, String)| {
            let builds = serde_json::from_str(&text).map_err(|e| self.unreadable("a measurement", e))?;
            Ok((package, builds))
        };
        rows.into_iter().map(read).collect()
    }

    pub(super) fn read_plan(&self) -> Result<Option<Plan>, StoreError> {
        let Some(mut plan) = self.read_plan_head()? else { return Ok(None) };
        plan.packages = self.read_plan_packages(None)?;
        Ok(Some(plan))
    }

    pub(super) fn read_plan_head(&self) -> Result<Option<Plan>, StoreError> {
        let sql = "SELECT digest, made, expected, bound, cuts, path, remarks FROM plan WHERE scope = ?1";
        let plan = self.connection.query_row(sql, [self.number], |row| {
            Ok(Plan {
                digest: row.get(0)?,
                made_seconds: row.get(1)?,
                expected_seconds: row.get(2)?,
                bound_seconds: row.get(3)?,
                cuts: lines(&row.get::<_, String>(4)?, '\n'),
                remarks: lines(&row.get::<_, String>(6)?, '\n'),
                path: lines(&row.get::<_, String>(5)?, ' '),
                packages: Vec::new(),
            })
        });
        plan.optional().map_err(|e| self.wrap(e))
    }

    pub(super) fn read_each_planned(
        &self,
        each: &mut dyn FnMut(PlanRowSeen) -> bool,
    ) -> Result<(), StoreError> {
        let mut query = || {
            let sql =
                format!("SELECT {PACKAGE}, dependencies FROM plan_package WHERE scope = ?1 ORDER BY name");
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query([self.number])?;
            while let Some(row) = rows.next()? {
                let text = |column: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
                let Some(state) = PackageState::parse(text(2)?) else { return Ok(false) };
                let seen = PlanRowSeen {
                    name: text(0)?,
                    version: text(1)?,
                    state,
                    reason: &reason(row.get_ref(7)?, row.get_ref(3)?),
                    estimate_seconds: row.get(5)?,
                    rank_seconds: row.get(6)?,
                    dependencies: text(8)?,
                };
                if !each(seen) {
                    break;
                }
            }
            Ok(true)
        };
        let is_known = query().map_err(|e| self.wrap(e))?;
        self.known(vec![is_known.then_some(())]).map(|_| ())
    }

    pub(super) fn read_plan_packages(&self, name: Option<&str>) -> Result<Vec<PlanRow>, StoreError> {
        let select = format!("SELECT {PACKAGE}, dependencies FROM plan_package WHERE scope = ?1");
        let rows = match name {
            Some(name) => self.rows(&format!("{select} AND name = ?2"), (self.number, name), plan_row),
            None => self.rows(&format!("{select} ORDER BY name"), [self.number], plan_row),
        };
        self.known(rows?)
    }
}

fn plan_row(row: &Row) -> rusqlite::Result<Option<PlanRow>> {
    let dependencies = lines(row.get_ref(8)?.as_str()?, ' ');
    Ok(package_row(row)?.map(|package| PlanRow { package, dependencies }))
}
