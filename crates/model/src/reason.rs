//! Why a package is in its state, as data.
//!
//! Stores and programs handle reasons as data, so that no decision depends on English text. Only this module makes
//! their text, by [`Display`](fmt::Display): one line, except for explanations, which have one line per step.

use crate::difference::Difference;
use crate::order::Stage;
use crate::result::{BuildOutcome, Failure, FailureKind, PackageState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many differences between two keys, or new requirements, a reason names; the others are only counted.
const DIFFERENCES_MAX: usize = 5;

/// Why a package is in its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing has been decided.
    #[default]
    Undecided,
    /// It is built: a command forced it.
    Forced,
    /// It is built: it was never built before.
    FirstBuild,
    /// It is built: its last build left no outputs, or they are no longer kept.
    NoOutputs {
        /// The number of the last build.
        build: u64,
        /// The run that started that build.
        run: u64,
        /// The outcome of that build.
        outcome: BuildOutcome,
    },
    /// It is built: a file of its outputs is missing, or its size changed.
    Broken {
        /// The name of the file.
        file: String,
    },
    /// It is built: a worker that is not trusted any more made it, or something that it was built with.
    Revoked {
        /// The worker's name.
        worker: String,
        /// The package of the worker that it was built with; absent if the worker made this one.
        package: Option<String>,
    },
    /// It is built: a worker of a pool that is not trusted made it, and other packages need it now.
    Untrusted {
        /// The worker's name.
        worker: String,
    },
    /// Another worker built it; this one tests it.
    TestElsewhere {
        /// The worker that built it.
        worker: String,
        /// Why it was built.
        reason: Box<Reason>,
    },
    /// It was built, and is built again in another pool, to compare.
    Verify {
        /// The worker that built it.
        worker: String,
        /// That worker's pool.
        pool: String,
        /// Why it was built.
        reason: Box<Reason>,
    },
    /// It is built: an input changed.
    Changed {
        /// The first differences; empty if only the key format changed.
        differences: Vec<Difference>,
        /// The number of further differences.
        more: u64,
    },
    /// It is built if the content of these packages changes, which are built first.
    Depends {
        /// Their names; never empty.
        packages: Vec<String>,
    },
    /// Its dependencies are available, and its key is being computed.
    Prepares,
    /// Its build named requirements that its recipe does not have, and it is built again with them.
    Requires {
        /// The first new ones, as its family writes them.
        requirements: Vec<String>,
        /// The number of further ones.
        more: u64,
    },
    /// It waits for a package that failed and is built again.
    Waits {
        /// The name of a package of the set.
        package: String,
    },
    /// It is up to date: no input changed.
    NothingChanged,
    /// It is up to date: its dependencies were rebuilt with the same content.
    SameDependencies,
    /// It was rebuilt with the same content.
    SameContent,
    /// It cannot be resolved or built.
    Impossible {
        /// One line per step.
        explanation: String,
    },
    /// It is blocked by another package.
    Blocked {
        /// The direct dependency through which it is blocked.
        dependency: String,
        /// The package that is to blame, which may be the same.
        culprit: String,
        /// The state of the package that is to blame.
        state: PackageState,
    },
    /// A stage failed.
    Failed(StageFailed),
    /// Its worker was lost, and there are no retries left.
    WorkerLost,
    /// It is retried.
    // The name in the events of existing stores.
    #[serde(rename = "again")]
    Retry {
        /// The cause of the failure.
        cause: FailureKind,
        /// How it is retried.
        how: RetryPlan,
        /// The stage that failed; absent if a worker was lost.
        failed: Option<StageFailed>,
    },
    /// Its fetch was cancelled.
    FetchCancelled,
    /// Its build was cancelled.
    BuildCancelled,
    /// It waits for a worker again, since one returned it before it started.
    GivenBack,
    /// A user requested to skip it.
    SkipRequested,
    /// A user requested to retry it.
    RetryRequested,
    /// Text only: an earlier version recorded the reason as text, or a later one recorded a kind that this version
    /// does not know.
    Words {
        /// The text, as it is displayed.
        text: String,
    },
}

/// A stage that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFailed {
    /// The stage that failed.
    pub stage: Stage,
    /// The cause, in one sentence.
    pub message: String,
}

impl From<&Failure> for StageFailed {
    fn from(failure: &Failure) -> StageFailed {
        StageFailed { stage: failure.stage, message: failure.message.clone() }
    }
}

/// How a package is retried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryPlan {
    /// As soon as a slot is free.
    AtOnce,
    /// While no other build runs.
    Alone,
    /// After a pause.
    After {
        /// At least this long; the build still waits for a slot.
        pause_seconds: f64,
    },
}

impl Reason {
    /// Makes [`Reason::Changed`] from the differences of two keys.
    pub fn changed(mut differences: Vec<Difference>) -> Reason {
        let more = differences.len().saturating_sub(DIFFERENCES_MAX) as u64;
        differences.truncate(DIFFERENCES_MAX);
        Reason::Changed { differences, more }
    }

    /// Makes [`Reason::Requires`].
    pub fn requires(mut requirements: Vec<String>) -> Reason {
        let more = requirements.len().saturating_sub(DIFFERENCES_MAX) as u64;
        requirements.truncate(DIFFERENCES_MAX);
        Reason::Requires { requirements, more }
    }

    /// Makes [`Reason::Impossible`].
    pub fn impossible(explanation: impl Into<String>) -> Reason {
        Reason::Impossible { explanation: explanation.into() }
    }

    /// The first line of the text.
    pub fn first_line(&self) -> String {
        self.to_string().lines().next().unwrap_or("").to_owned()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Undecided => Ok(()),
            Reason::Forced => f.write_str("a rebuild was requested"),
            Reason::FirstBuild => f.write_str("first build"),
            Reason::NoOutputs { build, run, outcome } => match outcome {
                BuildOutcome::Failed => write!(f, "no outputs yet: build {build} in run {run} failed"),
                BuildOutcome::Lost | BuildOutcome::Building => {
                    write!(f, "no outputs yet: build {build} in run {run} was interrupted")
                }
                BuildOutcome::Built | BuildOutcome::Unchanged | BuildOutcome::Unknown(_) => {
                    write!(f, "the outputs of build {build} in run {run} are no longer kept")
                }
            },
            Reason::Broken { file } => write!(f, "{file} is missing or damaged"),
            Reason::Untrusted { worker } => {
                write!(f, "{worker}, whose pool is not trusted, made it, and other packages need it now")
            }
            Reason::TestElsewhere { worker, .. } => {
                write!(f, "{worker} built it, and another worker tests it")
            }
            Reason::Verify { worker, pool, .. } => {
                write!(f, "{worker} of pool {pool} built it, and another pool builds it again, to compare")
            }
            Reason::Revoked { worker, package: None } => write!(f, "{worker}, which was revoked, made it"),
            Reason::Revoked { worker, package: Some(package) } => {
                write!(f, "it was built with {package}, which the revoked worker {worker} made")
            }
            Reason::Changed { differences, .. } if differences.is_empty() => {
                f.write_str("the key format changed")
            }
            Reason::Changed { differences, more } => {
                for (place, difference) in differences.iter().enumerate() {
                    let separator = if place == 0 { "" } else { "; " };
                    write!(f, "{separator}{difference}")?;
                }
                if *more > 0 {
                    write!(f, "; and {more} more")?;
                }
                Ok(())
            }
            Reason::Depends { packages } => {
                write!(f, "rebuilt if the content of {} changes", packages.join(", "))
            }
            Reason::Prepares => f.write_str("its dependencies are available"),
            Reason::Requires { requirements, .. } if requirements.is_empty() => {
                f.write_str("its build requires less than an earlier one")
            }
            Reason::Requires { requirements, more } => {
                write!(f, "its build requires {}", requirements.join(", "))?;
                match more {
                    0 => f.write_str(", too"),
                    more => write!(f, " and {more} more, too"),
                }
            }
            Reason::Waits { package } => write!(f, "waiting for {package}"),
            Reason::NothingChanged => f.write_str("nothing changed"),
            Reason::SameDependencies => f.write_str("its dependencies were rebuilt with the same content"),
            Reason::SameContent => f.write_str("rebuilt with the same content; the earlier outputs stay"),
            Reason::Impossible { explanation } => f.write_str(explanation),
            Reason::Blocked { dependency, culprit, state } if dependency == culprit => {
                write!(f, "it needs {culprit} ({state})")
            }
            Reason::Blocked { dependency, culprit, state } => {
                write!(f, "it needs {dependency}, which needs {culprit} ({state})")
            }
            Reason::Failed(failed) => failed.fmt(f),
            Reason::WorkerLost => f.write_str(circumstance(FailureKind::Lost)),
            Reason::Retry { cause, how, failed } => {
                f.write_str("retrying")?;
                match how {
                    RetryPlan::AtOnce => {}
                    RetryPlan::Alone => f.write_str(" alone")?,
                    RetryPlan::After { pause_seconds } => write!(f, " in {pause_seconds} s")?,
                }
                write!(f, " ({})", circumstance(*cause))?;
                match failed {
                    Some(failed) => write!(f, ": {failed}"),
                    None => Ok(()),
                }
            }
            Reason::FetchCancelled => f.write_str("fetch cancelled"),
            Reason::BuildCancelled => f.write_str("build cancelled"),
            Reason::GivenBack => f.write_str("its worker returned it before it started"),
            Reason::SkipRequested => f.write_str("skipped on request"),
            Reason::RetryRequested => f.write_str("retry requested"),
            Reason::Words { text } => f.write_str(text),
        }
    }
}

impl fmt::Display for StageFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.stage, self.message)
    }
}

/// The cause of a retry, in a few words.
fn circumstance(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Memory => "out of memory",
        FailureKind::Disk => "disk full",
        FailureKind::Signal => "killed by a signal",
        FailureKind::Network => "network failure",
        FailureKind::Machine => "machine failure",
        FailureKind::Lost => "worker lost",
        _ => "temporary failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::Change;

    fn difference(name: &str) -> Difference {
        Difference { kind: "depends".to_owned(), name: name.to_owned(), change: Change::Changed }
    }

    /// One reason of each kind, with its text.
    fn all() -> Vec<(Reason, &'static str)> {
        let failed = || StageFailed { stage: Stage::Build, message: "cc exited with 1".to_owned() };
        let blocked = |dependency: &str| Reason::Blocked {
            dependency: dependency.to_owned(),
            culprit: "attr".to_owned(),
            state: PackageState::Failed,
        };
        let no_outputs = |outcome| Reason::NoOutputs { build: 7, run: 3, outcome };
        let again = |cause, how, failed| Reason::Retry { cause, how, failed };
        vec![
            (Reason::Undecided, ""),
            (Reason::Forced, "a rebuild was requested"),
            (Reason::FirstBuild, "first build"),
            (no_outputs(BuildOutcome::Failed), "no outputs yet: build 7 in run 3 failed"),
            (no_outputs(BuildOutcome::Lost), "no outputs yet: build 7 in run 3 was interrupted"),
            (no_outputs(BuildOutcome::Building), "no outputs yet: build 7 in run 3 was interrupted"),
            (no_outputs(BuildOutcome::Built), "the outputs of build 7 in run 3 are no longer kept"),
            (Reason::Broken { file: "a.deb".to_owned() }, "a.deb is missing or damaged"),
            (
                Reason::Untrusted { worker: "w".to_owned() },
                "w, whose pool is not trusted, made it, and other packages need it now",
            ),
            (
                Reason::TestElsewhere { worker: "w".to_owned(), reason: Box::new(Reason::Forced) },
                "w built it, and another worker tests it",
            ),
            (
                Reason::Verify {
                    worker: "w".to_owned(),
                    pool: "p".to_owned(),
                    reason: Box::new(Reason::Forced),
                },
                "w of pool p built it, and another pool builds it again, to compare",
            ),
            (Reason::Revoked { worker: "w".to_owned(), package: None }, "w, which was revoked, made it"),
            (
                Reason::Revoked { worker: "w".to_owned(), package: Some("a".to_owned()) },
                "it was built with a, which the revoked worker w made",
            ),
            (
                Reason::changed(vec![difference("a"), difference("b")]),
                "dependency a changed; dependency b changed",
            ),
            (Reason::changed(Vec::new()), "the key format changed"),
            (
                Reason::Depends { packages: vec!["a".to_owned(), "b".to_owned()] },
                "rebuilt if the content of a, b changes",
            ),
            (Reason::Prepares, "its dependencies are available"),
            (Reason::Waits { package: "a".to_owned() }, "waiting for a"),
            (Reason::requires(vec!["a".to_owned(), "b".to_owned()]), "its build requires a, b, too"),
            (Reason::NothingChanged, "nothing changed"),
            (Reason::SameDependencies, "its dependencies were rebuilt with the same content"),
            (Reason::SameContent, "rebuilt with the same content; the earlier outputs stay"),
            (Reason::impossible("a needs b\n  there is no b"), "a needs b\n  there is no b"),
            (blocked("attr"), "it needs attr (failed)"),
            (blocked("acl"), "it needs acl, which needs attr (failed)"),
            (Reason::Failed(failed()), "build failed: cc exited with 1"),
            (Reason::WorkerLost, "worker lost"),
            (
                again(FailureKind::Machine, RetryPlan::AtOnce, Some(failed())),
                "retrying (machine failure): build failed: cc exited with 1",
            ),
            (
                again(FailureKind::Memory, RetryPlan::Alone, Some(failed())),
                "retrying alone (out of memory): build failed: cc exited with 1",
            ),
            (
                again(FailureKind::Network, RetryPlan::After { pause_seconds: 20.0 }, Some(failed())),
                "retrying in 20 s (network failure): build failed: cc exited with 1",
            ),
            (again(FailureKind::Lost, RetryPlan::AtOnce, None), "retrying (worker lost)"),
            (Reason::FetchCancelled, "fetch cancelled"),
            (Reason::BuildCancelled, "build cancelled"),
            (Reason::GivenBack, "its worker returned it before it started"),
            (Reason::SkipRequested, "skipped on request"),
            (Reason::RetryRequested, "retry requested"),
            (Reason::Words { text: "as it was".to_owned() }, "as it was"),
        ]
    }

    #[test]
    fn each_reason_has_its_text() {
        for (reason, text) in all() {
            assert_eq!(reason.to_string(), text);
        }
        assert_eq!(Reason::impossible("a needs b\n  there is no b").first_line(), "a needs b");
    }

    #[test]
    fn each_reason_survives_json() {
        for (reason, _) in all() {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason, "{text}");
        }
        // Stores contain these texts.
        let text = |reason: &Reason| serde_json::to_string(reason).unwrap();
        assert_eq!(text(&Reason::FirstBuild), r#"{"kind":"first-build"}"#);
        let failed = StageFailed { stage: Stage::Test, message: "no".to_owned() };
        assert_eq!(text(&Reason::Failed(failed)), r#"{"kind":"failed","stage":"test","message":"no"}"#);
    }

    #[test]
    fn many_differences_are_counted() {
        let differences = (0..8).map(|number| difference(&format!("d{number}"))).collect();
        let reason = Reason::changed(differences);
        assert!(reason.to_string().ends_with("dependency d4 changed; and 3 more"), "{reason}");
    }
}
