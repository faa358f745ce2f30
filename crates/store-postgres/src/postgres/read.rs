//! Reads rows.

use super::Postgres;
use super::link::{Statement, sql};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::host::Host;
use kilnyard_model::order::Key;
use kilnyard_model::provenance::Signed;
use kilnyard_model::reason::Reason;
use kilnyard_model::result::{BuildOutcome, PackageState, StageResult};
use kilnyard_store::Provenance;
use kilnyard_store::{
    BuildRow, Current, LastBuild, Measurement, Number, OutputRow, PackageRow, Plan, PlanRow, PlanRowSeen,
    RunRow, RunState, StoreError,
};
use std::collections::HashMap;
use tokio_postgres::Row;

/// How many rows of a plan are read together.
const PLAN_ROWS: i64 = 1000;

fn lines(text: &str, separator: char) -> Vec<String> {
    text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The recorded reason, or its text if this version cannot decode the data or there is none.
fn reason(data: Option<&str>, words: &str) -> Reason {
    let known = data.and_then(|text| serde_json::from_str(text).ok());
    known.unwrap_or_else(|| Reason::Words { text: words.to_owned() })
}

/// A build's random id; `None` if the text is not a valid id.
pub(super) fn attempt(text: Option<&str>) -> Option<Attempt> {
    text.and_then(|text| Attempt::parse(text).ok())
}

/// The columns of a build, in the order in which `builds` reads them.
macro_rules! builds {
    ($condition:literal) => {
        concat!(
            "SELECT number, run, package, version, slot, key, started, ended, outcome, failure, reproducible,
                    attempt, worker, cores, kernel, cpu
             FROM kilnyard.build WHERE ",
            $condition
        )
    };
}

impl Postgres {
    fn small(&self, row: &Row, column: usize) -> Result<u32, StoreError> {
        let number: i64 = self.get(row, column)?;
        u32::try_from(number).map_err(|error| self.unreadable("a number", error))
    }

    fn decoded<T: serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        text: &str,
    ) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.unreadable(what, error))
    }

    fn state(&self, row: &Row, column: usize) -> Result<PackageState, StoreError> {
        PackageState::parse(self.get(row, column)?).ok_or_else(|| self.unreadable("a state", "unknown name"))
    }

    pub(super) fn read_runs(&self, count_max: Option<i64>) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT number, started, ended, state, plan_digest, cores, slots, expected, bound, forced, commits
             FROM kilnyard.run WHERE scope = $1 ORDER BY number DESC LIMIT $2",
            self.number,
            count_max,
        ))?;
        let run = |row: &Row| {
            let state: &str = self.get(row, 3)?;
            let (forced, commits): (Option<&str>, Option<&str>) = (self.get(row, 9)?, self.get(row, 10)?);
            Ok(RunRow {
                number: self.number_at(row, 0)?,
                started_seconds: self.get(row, 1)?,
                ended_seconds: self.get(row, 2)?,
                state: RunState::parse(state).unwrap_or(RunState::Interrupted),
                plan_digest: self.get(row, 4)?,
                cores: self.small(row, 5)?,
                slots: self.small(row, 6)?,
                expected_seconds: self.get(row, 7)?,
                bound_seconds: self.get(row, 8)?,
                // If the text cannot be decoded, the run counts as one that forced nothing.
                forced: forced.and_then(|text| serde_json::from_str(text).ok()),
                commits: commits.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            })
        };
        rows.iter().map(run).collect()
    }

    pub(super) fn read_last_builds(&self) -> Result<Vec<LastBuild>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT DISTINCT ON (package) package, number, run, outcome FROM kilnyard.build
             WHERE scope = $1 ORDER BY package, number DESC",
            self.number,
        ))?;
        let build = |row: &Row| {
            Ok(LastBuild {
                package: self.get(row, 0)?,
                number: self.number_at(row, 1)?,
                run: self.number_at(row, 2)?,
                outcome: BuildOutcome::parse(self.get(row, 3)?),
            })
        };
        rows.iter().map(build).collect()
    }

    /// Decodes rows that begin with: name, version, state, reason, blamed, estimate, rank, why.
    fn package_row(&self, row: &Row) -> Result<PackageRow, StoreError> {
        Ok(PackageRow {
            name: self.get(row, 0)?,
            version: self.get(row, 1)?,
            state: self.state(row, 2)?,
            reason: reason(self.get(row, 7)?, self.get(row, 3)?),
            blamed: self.get(row, 4)?,
            estimate_seconds: self.get(row, 5)?,
            rank_seconds: self.get(row, 6)?,
        })
    }

    fn package_rows(&self, statement: Statement) -> Result<Vec<PackageRow>, StoreError> {
        self.rows(statement)?.iter().map(|row| self.package_row(row)).collect()
    }

    pub(super) fn read_packages(
        &self,
        run: Number,
        name: Option<&str>,
    ) -> Result<Vec<PackageRow>, StoreError> {
        self.package_rows(sql!(
            "SELECT name, version, state, reason, blamed, estimate, rank, why FROM kilnyard.run_package
             WHERE run = $1 AND ($2 IS NULL OR name = $2) ORDER BY name",
            run,
            name,
        ))
    }

    pub(super) fn read_packages_in_state(
        &self,
        run: Number,
        state: PackageState,
    ) -> Result<Vec<PackageRow>, StoreError> {
        self.package_rows(sql!(
            "SELECT name, version, state, reason, blamed, estimate, rank, why FROM kilnyard.run_package
             WHERE run = $1 AND state = $2 ORDER BY name",
            run,
            state.as_str(),
        ))
    }

    pub(super) fn read_counts(&self, run: Number) -> Result<Vec<(PackageState, u64)>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT state, count(*) FROM kilnyard.run_package WHERE run = $1 GROUP BY state ORDER BY state",
            run,
        ))?;
        rows.iter().map(|row| Ok((self.state(row, 0)?, self.number_at(row, 1)?))).collect()
    }

    pub(super) fn read_builds_of(&self, name: &str, count_max: usize) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds(sql!(
            builds!("scope = $1 AND package = $2 ORDER BY number DESC LIMIT $3"),
            self.number,
            name,
            count_max as u64,
        ))
    }

    /// The builds of a run: all by number, or the open ones by slot.
    pub(super) fn read_builds_in(&self, run: Number, is_open: bool) -> Result<Vec<BuildRow>, StoreError> {
        self.read_builds(match is_open {
            true => sql!(builds!("run = $1 AND ended IS NULL ORDER BY slot"), run),
            false => sql!(builds!("run = $1 ORDER BY number"), run),
        })
    }

    fn read_builds(&self, statement: Statement) -> Result<Vec<BuildRow>, StoreError> {
        let rows = self.rows(statement)?;
        let build = |row: &Row| {
            let failure: Option<&str> = self.get(row, 9)?;
            Ok(BuildRow {
                number: self.number_at(row, 0)?,
                attempt: attempt(self.get(row, 11)?),
                run: self.number_at(row, 1)?,
                package: self.get(row, 2)?,
                version: self.get(row, 3)?,
                worker: self.get(row, 12)?,
                cores: self.small(row, 13)?,
                host: match (self.get(row, 14)?, self.get(row, 15)?) {
                    (Some(kernel), Some(cpu)) => Some(Host { kernel, cpu }),
                    _ => None,
                },
                slot: self.small(row, 4)?,
                key: self.get(row, 5)?,
                started_seconds: self.get(row, 6)?,
                ended_seconds: self.get(row, 7)?,
                outcome: BuildOutcome::parse(self.get(row, 8)?),
                failure: failure.map(|text| self.decoded("a failure", text)).transpose()?,
                is_reproducible: self.get(row, 10)?,
                stages: Vec::new(),
            })
        };
        let mut builds = rows.iter().map(build).collect::<Result<Vec<BuildRow>, StoreError>>()?;
        let numbers: Vec<i64> = builds.iter().map(|build| build.number as i64).collect();
        let mut stages: HashMap<i64, Vec<StageResult>> = HashMap::new();
        for row in self.rows(sql!(
            "SELECT build, result FROM kilnyard.stage WHERE build = ANY($1) ORDER BY build, position",
            numbers,
        ))? {
            let stage = self.decoded("a stage", self.get(&row, 1)?)?;
            stages.entry(self.get(&row, 0)?).or_default().push(stage);
        }
        for build in &mut builds {
            build.stages = stages.remove(&(build.number as i64)).unwrap_or_default();
        }
        Ok(builds)
    }

    pub(super) fn read_made_by(&self, worker: &str) -> Result<Vec<(String, Number)>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT package, number FROM kilnyard.build
             WHERE scope = $2 AND worker = $1 AND outcome IN ('built', 'unchanged') ORDER BY number",
            worker,
            self.number,
        ))?;
        rows.iter().map(|row| Ok((self.get(row, 0)?, self.number_at(row, 1)?))).collect()
    }

    pub(super) fn read_cpu_seconds(&self, began_from: f64, ended_from: f64) -> Result<f64, StoreError> {
        let rows = self.rows(sql!(
            "SELECT coalesce(sum((stage.result::jsonb ->> 'cpu_seconds')::double precision), 0.0)
             FROM kilnyard.build JOIN kilnyard.stage ON stage.build = build.number
             WHERE build.scope = $1 AND build.started >= $2 AND (build.ended IS NULL OR build.ended >= $3)",
            self.number,
            began_from,
            ended_from,
        ))?;
        rows.first().map_or(Ok(0.0), |row| self.get(row, 0))
    }

    pub(super) fn read_pools(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT package, worker, pool
             FROM kilnyard.provenance JOIN kilnyard.current USING (scope, package, build)
             WHERE scope = $1 ORDER BY package",
            self.number,
        ))?;
        rows.iter().map(|row| Ok((self.get(row, 0)?, self.get(row, 1)?, self.get(row, 2)?))).collect()
    }

    pub(super) fn read_provenance(&self, package: &str) -> Result<Option<Provenance>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT build, worker, pool, provenance.key, signature, statement
             FROM kilnyard.provenance JOIN kilnyard.current USING (scope, package, build)
             WHERE scope = $2 AND package = $1",
            package,
            self.number,
        ))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let statement: &[u8] = self.get(row, 5)?;
        let statement = zstd::decode_all(statement).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(Some(Provenance {
            package: package.to_owned(),
            build: self.number_at(row, 0)?,
            worker: self.get(row, 1)?,
            pool: self.get(row, 2)?,
            signed: Signed {
                statement: statement.unwrap_or_default(),
                key: self.get(row, 3)?,
                signature: self.get(row, 4)?,
            },
        }))
    }

    pub(super) fn read_current(&self, name: Option<&str>) -> Result<Vec<Current>, StoreError> {
        // The lines of keys are long, and wanted only of one package.
        let rows = self.rows(sql!(
            "SELECT package, build, recipe_version, revision, key, CASE WHEN $2 IS NULL THEN '' ELSE key_lines END
             FROM kilnyard.current WHERE scope = $1 AND ($2 IS NULL OR package = $2)",
            self.number,
            name,
        ))?;
        let current = |row: &Row| {
            Ok(Current {
                package: self.get(row, 0)?,
                build: self.number_at(row, 1)?,
                recipe_version: self.get(row, 2)?,
                revision: self.small(row, 3)?,
                key: Key { digest: self.get(row, 4)?, lines: lines(self.get(row, 5)?, '\n') },
                outputs: Vec::new(),
            })
        };
        let mut all = rows.iter().map(current).collect::<Result<Vec<Current>, StoreError>>()?;
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
        let rows = self.rows(sql!(
            "SELECT package, output FROM kilnyard.output
             WHERE scope = $1 AND ($2 IS NULL OR package = $2) ORDER BY name, package",
            self.number,
            package,
        ))?;
        let output = |row: &Row| {
            let output = self.decoded("an output", self.get(row, 1)?)?;
            Ok(OutputRow { package: self.get(row, 0)?, output })
        };
        rows.iter().map(output).collect()
    }

    pub(super) fn read_durations(&self) -> Result<Vec<(String, f64, f64)>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT package, wall, cpu FROM kilnyard.duration WHERE scope = $1
             UNION ALL
             SELECT package, wall, cpu FROM kilnyard.imported_duration AS imported
             WHERE scope = $1 AND NOT EXISTS (
               SELECT 1 FROM kilnyard.duration WHERE scope = $1 AND duration.package = imported.package
             )",
            self.number,
        ))?;
        rows.iter().map(|row| Ok((self.get(row, 0)?, self.get(row, 1)?, self.get(row, 2)?))).collect()
    }

    pub(super) fn read_measured(&self) -> Result<Vec<(String, Vec<Measurement>)>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT package, builds FROM kilnyard.measured WHERE scope = $1 ORDER BY package",
            self.number,
        ))?;
        let measured = |row: &Row| Ok((self.get(row, 0)?, self.decoded("a measurement", self.get(row, 1)?)?));
        rows.iter().map(measured).collect()
    }

    pub(super) fn read_plan(&self) -> Result<Option<Plan>, StoreError> {
        let Some(mut plan) = self.read_plan_head()? else { return Ok(None) };
        plan.packages = self.plan_rows(sql!(
            "SELECT name, version, state, reason, blamed, estimate, rank, why, dependencies
             FROM kilnyard.plan_package WHERE scope = $1 ORDER BY name",
            self.number,
        ))?;
        Ok(Some(plan))
    }

    pub(super) fn read_plan_head(&self) -> Result<Option<Plan>, StoreError> {
        let rows = self.rows(sql!(
            "SELECT digest, made, expected, bound, cuts, path, remarks FROM kilnyard.plan WHERE scope = $1",
            self.number,
        ))?;
        let plan = |row: &Row| {
            Ok(Plan {
                digest: self.get(row, 0)?,
                made_seconds: self.get(row, 1)?,
                expected_seconds: self.get(row, 2)?,
                bound_seconds: self.get(row, 3)?,
                cuts: lines(self.get(row, 4)?, '\n'),
                remarks: lines(self.get(row, 6)?, '\n'),
                path: lines(self.get(row, 5)?, ' '),
                packages: Vec::new(),
            })
        };
        rows.first().map(plan).transpose()
    }

    pub(super) fn read_each_planned(
        &self,
        each: &mut dyn FnMut(PlanRowSeen) -> bool,
    ) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let rows = self.rows(sql!(
                "SELECT name, version, state, reason, blamed, estimate, rank, why, dependencies
                 FROM kilnyard.plan_package WHERE scope = $1 AND ($2 IS NULL OR name > $2) ORDER BY name LIMIT $3",
                self.number,
                after.clone(),
                PLAN_ROWS,
            ))?;
            for row in &rows {
                let seen = PlanRowSeen {
                    name: self.get(row, 0)?,
                    version: self.get(row, 1)?,
                    state: self.state(row, 2)?,
                    reason: &reason(self.get(row, 7)?, self.get(row, 3)?),
                    estimate_seconds: self.get(row, 5)?,
                    rank_seconds: self.get(row, 6)?,
                    dependencies: self.get(row, 8)?,
                };
                if !each(seen) {
                    return Ok(());
                }
            }
            let Some(last) = rows.last() else { return Ok(()) };
            after = self.get(last, 0)?;
        }
    }

    pub(super) fn read_planned(&self, name: &str) -> Result<Option<PlanRow>, StoreError> {
        let rows = self.plan_rows(sql!(
            "SELECT name, version, state, reason, blamed, estimate, rank, why, dependencies
             FROM kilnyard.plan_package WHERE scope = $1 AND name = $2",
            self.number,
            name,
        ));
        Ok(rows?.pop())
    }

    /// Checks what the database does not check itself: that numbers were counted, and that rows have those that they belong
    /// to.
    pub(super) fn check_rows(&self) -> Result<(), StoreError> {
        let rows = self.rows(sql!(
            "SELECT 'there are builds with numbers above the highest used one' FROM kilnyard.store
             WHERE builds < (SELECT max(number) FROM kilnyard.build)
             UNION ALL
             SELECT 'there are runs with numbers above the highest used one' FROM kilnyard.store
             WHERE runs < (SELECT max(number) FROM kilnyard.run)
             UNION ALL
             SELECT 'there are events with numbers above the highest used one' FROM kilnyard.store
             WHERE events < (SELECT max(seq) FROM kilnyard.event)
             UNION ALL
             SELECT 'a build is of a run that is missing'
             WHERE EXISTS (SELECT run FROM kilnyard.build EXCEPT SELECT number FROM kilnyard.run)
             UNION ALL
             SELECT 'a stage is of a build that is missing'
             WHERE EXISTS (SELECT build FROM kilnyard.stage EXCEPT SELECT number FROM kilnyard.build)
             UNION ALL
             SELECT 'an output is of a package without a build'
             WHERE EXISTS (SELECT scope, package FROM kilnyard.output EXCEPT SELECT scope, package FROM kilnyard.current)"
        ))?;
        match rows.first() {
            Some(row) => {
                Err(StoreError::Damaged { store: self.address.to_string(), reason: self.get(row, 0)? })
            }
            None => Ok(()),
        }
    }

    fn plan_rows(&self, statement: Statement) -> Result<Vec<PlanRow>, StoreError> {
        let planned = |row: &Row| {
            let dependencies = lines(self.get(row, 8)?, ' ');
            Ok(PlanRow { package: self.package_row(row)?, dependencies })
        };
        self.rows(statement)?.iter().map(planned).collect()
    }
}
