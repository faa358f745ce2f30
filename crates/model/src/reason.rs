//! Why a package stands where it stands, as data.
//!
//! Stores keep reasons and programs read them as data, so that no decision follows from English text. The words that people read are made
//! here alone, by [`Display`](fmt::Display): one line, but for explanations, which have a line for each step.

use crate::difference::Difference;
use crate::order::Stage;
use crate::result::{BuildOutcome, Failure, FailureKind, PackageState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many differences between two keys a reason names; further ones are counted.
const DIFFERENCES_MAX: usize = 5;

/// Why a package stands where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing has been decided.
    #[default]
    Undecided,
    /// It is built: a command forced it.
    Forced,
    /// It is built: there was no build of it before.
    FirstBuild,
    /// It is built: its last build left no outputs, or they are no longer kept.
    NoOutputs {
        /// The last build.
        build: u64,
        /// Its run.
        run: u64,
        /// How it ended.
        outcome: BuildOutcome,
    },
    /// It is built: a file of its outputs is missing, or its size changed.
    Broken {
        /// The file.
        file: String,
    },
    /// It is built: an input changed.
    Changed {
        /// The first differences; empty if only the form of keys changed.
        differences: Vec<Difference>,
        /// How many more there are.
        more: u64,
    },
    /// It is built if the content of these packages changes, which are built first.
    Depends {
        /// The packages.
        packages: Vec<String>,
    },
    /// Its dependencies are there, and its key is being worked out.
    Prepares,
    /// It waits again for a package that failed before.
    Waits {
        /// The package.
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
        /// The explanation, a line for each step.
        explanation: String,
    },
    /// It is blocked by another package.
    Blocked {
        /// Its own dependency.
        dependency: String,
        /// The package to blame, which may be the same.
        culprit: String,
        /// The state of that package.
        state: PackageState,
    },
    /// A stage failed.
    Failed(StageFailed),
    /// Its worker was lost, more often than is retried.
    WorkerLost,
    /// It is retried.
    Again {
        /// What went wrong.
        cause: FailureKind,
        /// What changes on the retry.
        how: Again,
        /// What failed; absent if a worker was lost.
        failed: Option<StageFailed>,
    },
    /// Its fetch was cancelled.
    FetchCancelled,
    /// Its build was cancelled.
    BuildCancelled,
    /// It waits for a worker again, since one gave it back before it started.
    GivenBack,
    /// A request asked to skip it.
    SkipRequested,
    /// A request asked to try it again.
    RetryRequested,
    /// A reason of which only the words are known: an earlier version recorded it, or a later one with kinds that this one does not know.
    Words {
        /// The words.
        text: String,
    },
}

/// A stage that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFailed {
    /// The stage.
    pub stage: Stage,
    /// What went wrong: one sentence.
    pub message: String,
}

impl From<&Failure> for StageFailed {
    fn from(failure: &Failure) -> StageFailed {
        StageFailed { stage: failure.stage, message: failure.message.clone() }
    }
}

/// What changes on a retry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Again {
    /// Nothing: it starts at once.
    AtOnce,
    /// No other build runs beside it.
    Alone,
    /// It waits first.
    After {
        /// How long.
        pause_seconds: f64,
    },
}

impl Reason {
    /// A reason to build, from the differences of two keys.
    pub fn changed(mut differences: Vec<Difference>) -> Reason {
        let more = differences.len().saturating_sub(DIFFERENCES_MAX) as u64;
        differences.truncate(DIFFERENCES_MAX);
        Reason::Changed { differences, more }
    }

    /// A package cannot be resolved or built, with the explanation.
    pub fn impossible(explanation: impl Into<String>) -> Reason {
        Reason::Impossible { explanation: explanation.into() }
    }

    /// Its words up to the end of the first line.
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
            Reason::Changed { differences, .. } if differences.is_empty() => {
                f.write_str("the form of its key changed")
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
                write!(f, "it is built again if the content of {} changes", packages.join(", "))
            }
            Reason::Prepares => f.write_str("its dependencies are there"),
            Reason::Waits { package } => write!(f, "it waits for {package}"),
            Reason::NothingChanged => f.write_str("nothing changed"),
            Reason::SameDependencies => f.write_str("its dependencies were rebuilt with the same content"),
            Reason::SameContent => f.write_str("rebuilt with the same content; the earlier outputs stay"),
            Reason::Impossible { explanation } => f.write_str(explanation),
            Reason::Blocked { dependency, culprit, state } if dependency == culprit => {
                write!(f, "it needs {culprit}, which is {state}")
            }
            Reason::Blocked { dependency, culprit, state } => {
                write!(f, "it needs {dependency}, which needs {culprit}, which is {state}")
            }
            Reason::Failed(failed) => failed.fmt(f),
            Reason::WorkerLost => f.write_str(circumstance(FailureKind::Lost)),
            Reason::Again { cause, how, failed } => {
                f.write_str("again")?;
                match how {
                    Again::AtOnce => {}
                    Again::Alone => f.write_str(", alone")?,
                    Again::After { pause_seconds } => write!(f, " in {pause_seconds} s")?,
                }
                write!(f, ", since {}", circumstance(*cause))?;
                match failed {
                    Some(failed) => write!(f, ": {failed}"),
                    None => Ok(()),
                }
            }
            Reason::FetchCancelled => f.write_str("its fetch was cancelled"),
            Reason::BuildCancelled => f.write_str("its build was cancelled"),
            Reason::GivenBack => f.write_str("its worker gave it back before it started"),
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

/// What went wrong, as a clause.
fn circumstance(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Memory => "it ran out of memory",
        FailureKind::Disk => "the disk was full",
        FailureKind::Signal => "a signal ended it",
        FailureKind::Network => "the network failed",
        FailureKind::Machine => "the machine was at fault",
        FailureKind::Lost => "worker lost",
        _ => "such failures are retried",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::Change;

    fn difference(name: &str) -> Difference {
        Difference { kind: "depends".to_owned(), name: name.to_owned(), change: Change::Changed }
    }

    /// One reason of each kind, with its words.
    fn all() -> Vec<(Reason, &'static str)> {
        let failed = || StageFailed { stage: Stage::Build, message: "cc ended with 1".to_owned() };
        let blocked = |dependency: &str| Reason::Blocked {
            dependency: dependency.to_owned(),
            culprit: "attr".to_owned(),
            state: PackageState::Failed,
        };
        let no_outputs = |outcome| Reason::NoOutputs { build: 7, run: 3, outcome };
        let again = |cause, how, failed| Reason::Again { cause, how, failed };
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
                Reason::changed(vec![difference("a"), difference("b")]),
                "dependency a changed; dependency b changed",
            ),
            (Reason::changed(Vec::new()), "the form of its key changed"),
            (
                Reason::Depends { packages: vec!["a".to_owned(), "b".to_owned()] },
                "it is built again if the content of a, b changes",
            ),
            (Reason::Prepares, "its dependencies are there"),
            (Reason::Waits { package: "a".to_owned() }, "it waits for a"),
            (Reason::NothingChanged, "nothing changed"),
            (Reason::SameDependencies, "its dependencies were rebuilt with the same content"),
            (Reason::SameContent, "rebuilt with the same content; the earlier outputs stay"),
            (Reason::impossible("a needs b\n  there is no b"), "a needs b\n  there is no b"),
            (blocked("attr"), "it needs attr, which is failed"),
            (blocked("acl"), "it needs acl, which needs attr, which is failed"),
            (Reason::Failed(failed()), "build failed: cc ended with 1"),
            (Reason::WorkerLost, "worker lost"),
            (
                again(FailureKind::Machine, Again::AtOnce, Some(failed())),
                "again, since the machine was at fault: build failed: cc ended with 1",
            ),
            (
                again(FailureKind::Memory, Again::Alone, Some(failed())),
                "again, alone, since it ran out of memory: build failed: cc ended with 1",
            ),
            (
                again(FailureKind::Network, Again::After { pause_seconds: 20.0 }, Some(failed())),
                "again in 20 s, since the network failed: build failed: cc ended with 1",
            ),
            (again(FailureKind::Lost, Again::AtOnce, None), "again, since worker lost"),
            (Reason::FetchCancelled, "its fetch was cancelled"),
            (Reason::BuildCancelled, "its build was cancelled"),
            (Reason::GivenBack, "its worker gave it back before it started"),
            (Reason::SkipRequested, "skipped on request"),
            (Reason::RetryRequested, "retry requested"),
            (Reason::Words { text: "as it was".to_owned() }, "as it was"),
        ]
    }

    #[test]
    fn each_reason_has_its_words() {
        for (reason, words) in all() {
            assert_eq!(reason.to_string(), words);
        }
        assert_eq!(Reason::impossible("a needs b\n  there is no b").first_line(), "a needs b");
    }

    #[test]
    fn each_reason_comes_back_from_json_as_it_was() {
        for (reason, _) in all() {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason, "{text}");
        }
        // Stores have these texts.
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
