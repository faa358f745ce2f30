//! The rows of `squeue` and `sinfo`, in formats of ours.
//!
//! Names of jobs are any text, even with line breaks. Each row therefore begins with a word that no continuation of a name begins
//! with by accident, and a name of ours has none of the characters that separate fields. A user who makes jobs to confuse this
//! could stop our jobs anyway, since only jobs of this user are listed.

use crate::name::begins_with;
use crate::{LISTED_MAX, Listed, PilotName, PilotState, Place};

/// The first field of a row.
const ROW: &str = "kilnyard-row";
/// The format of `squeue` that [`jobs`] reads: id, user, state, name, reason.
pub(super) const JOBS: &str = "--format=kilnyard-row|%i|%U|%T|%j|%r";
/// The format of `sinfo` that [`places`] reads: partition, nodes, cores, megabytes, availability, state, reason.
pub(super) const PLACES: &str = "--format=kilnyard-row|%R|%D|%c|%m|%a|%T|%E";

/// A job with the name of a pilot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub id: String,
    pub name: PilotName,
    pub state: PilotState,
    /// Slurm's word for the state.
    pub word: String,
    pub reason: Option<String>,
}

impl Job {
    pub fn listed(&self) -> Listed {
        let reason = match (&self.reason, self.state) {
            (Some(reason), PilotState::Ended) => Some(format!("{}: {reason}", self.word)),
            (None, PilotState::Ended) => Some(self.word.clone()),
            (reason, _) => reason.clone(),
        };
        Listed { name: self.name.clone(), state: self.state, reason, copies: 1 }
    }
}

/// The jobs of this user whose names begin with the prefix.
pub(super) fn jobs(text: &str, prefix: &str, uid: u32) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for row in rows(text)? {
        let fields: Vec<&str> = row.splitn(5, '|').collect();
        let name = fields.get(3).copied().unwrap_or("");
        // The row of a foreign name with a line break is short; its rest is a line of its own.
        if fields.len() >= 4 && !begins_with(prefix, name) {
            continue;
        }
        let [id, user, word, _, reason] = fields[..] else {
            return Err(format!("a row has {} fields: {}", fields.len(), crate::text::reason(row)));
        };
        if user != uid.to_string() {
            return Err(format!("a job of user {} in the list of user {uid}", crate::text::reason(user)));
        }
        let is_id = !id.is_empty() && id.len() <= 20 && id.bytes().all(|byte| byte.is_ascii_digit());
        let name = PilotName::parse(name).ok().filter(|_| is_id);
        let name = name.ok_or_else(|| format!("not a job of ours: {}", crate::text::reason(row)))?;
        let reason = crate::text::reason(reason);
        let reason = (!reason.is_empty() && reason != "None").then_some(reason);
        jobs.push(Job {
            id: id.to_owned(),
            name,
            state: state(word),
            word: crate::text::reason(word),
            reason,
        });
        if jobs.len() > LISTED_MAX {
            return Err(format!("more than {LISTED_MAX} jobs"));
        }
    }
    Ok(jobs)
}

/// An unknown state is that of a job that exists: what a new version of Slurm adds is not forgotten.
fn state(word: &str) -> PilotState {
    match word {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" => PilotState::Queued,
        "COMPLETING" | "STAGE_OUT" => PilotState::Ending,
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL" | "OUT_OF_MEMORY"
        | "PREEMPTED" | "REVOKED" | "TIMEOUT" => PilotState::Ended,
        _ => PilotState::Running,
    }
}

/// The partitions, with their nodes of one kind and state in a place each.
pub(super) fn places(text: &str) -> Result<Vec<Place>, String> {
    let place = |row: &str| {
        let fields: Vec<&str> = row.splitn(7, '|').collect();
        let [name, count, cores, megabytes, available, state, reason] = fields[..] else {
            return Err(format!("a row has {} fields: {}", fields.len(), crate::text::reason(row)));
        };
        // `16+` is at least 16; `idle*` does not answer.
        let number = |text: &str| text.trim_end_matches('+').parse::<u64>().ok();
        let small = |text: &str| number(text).and_then(|number| u32::try_from(number).ok());
        let is_usable = matches!(state, "idle" | "mixed" | "allocated" | "completing") && available == "up";
        let trouble = || match reason {
            "" | "none" => format!("{available}, {state}"),
            reason => format!("{available}, {state}: {reason}"),
        };
        Ok(Place {
            name: crate::text::reason(name),
            count: small(count),
            cores: small(cores),
            memory_bytes: number(megabytes).map(|megabytes| megabytes.saturating_mul(1 << 20)),
            trouble: (!is_usable).then(|| crate::text::reason(&trouble())),
        })
    };
    rows(text)?.into_iter().take(LISTED_MAX).map(place).collect()
}

/// The rows, without their first field. Other lines continue a name.
fn rows(text: &str) -> Result<Vec<&str>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("it ends within a line".to_owned());
    }
    let row = |line| str::strip_prefix(line, ROW)?.strip_prefix('|');
    let rows: Vec<&str> = text.lines().filter_map(row).collect();
    match rows.is_empty() && !text.is_empty() {
        true => Err(format!("it is not in the requested format: {}", crate::text::reason(text))),
        false => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_rows_are_read() {
        // Of Slurm 22.05.8.
        let text = "kilnyard-row|3|0|FAILED|a\nb|c\\x|BadConstraints\n\
            kilnyard-row|1|0|PENDING|kilnyard-lab-f-g-1|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions\n\
            kilnyard-row|2|0|RUNNING|kilnyard-lab-f-g-2|None\n\
            kilnyard-row|4_7|0|RUNNING|array|None\n\
            kilnyard-row|5|0|TIMEOUT|kilnyard-lab-f-g-3|TimeLimit\n\
            kilnyard-row|6|0|NEW_STATE|kilnyard-lab-f-g-4|\n";
        let jobs = jobs(text, "kilnyard-lab", 0).unwrap();
        let listed: Vec<_> =
            jobs.iter().map(|job| (job.id.as_str(), job.state, job.listed().reason)).collect();
        let waits =
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions";
        assert_eq!(
            listed,
            [
                ("1", PilotState::Queued, Some(waits.to_owned())),
                ("2", PilotState::Running, None),
                ("5", PilotState::Ended, Some("TIMEOUT: TimeLimit".to_owned())),
                ("6", PilotState::Running, None),
            ]
        );
    }

    #[test]
    fn what_is_not_in_the_format_is_an_error() {
        for text in [
            "kilnyard-row|1|0|RUNNING|kilnyard-lab-f-g-1|None",
            "slurm_load_jobs error: Unable to contact slurm controller\n",
            "kilnyard-row|1|0|RUNNING|kilnyard-lab-f-g-1\n",
            "kilnyard-row|x|0|RUNNING|kilnyard-lab-f-g-1|None\n",
            "kilnyard-row||0|RUNNING|kilnyard-lab-f-g-1|None\n",
            "kilnyard-row|1|7|RUNNING|kilnyard-lab-f-g-1|None\n",
            "kilnyard-row|1|0|RUNNING|kilnyard-lab-A|None\n",
            "kilnyard-row\n",
        ] {
            assert!(jobs(text, "kilnyard-lab", 0).is_err(), "{text:?}");
        }
        assert_eq!(jobs("", "kilnyard-lab", 0), Ok(Vec::new()));
        assert_eq!(jobs("kilnyard-row|1|7|RUNNING|other|None\n", "kilnyard-lab", 0), Ok(Vec::new()));
    }

    #[test]
    fn partitions_are_places() {
        let text =
            "kilnyard-row|lab|2|8|4000|up|idle|none\nkilnyard-row|big|1|16+|64000+|up|drained*|bad memory\n";
        let places = places(text).unwrap();
        assert_eq!(
            (places[0].count, places[0].cores, places[0].memory_bytes),
            (Some(2), Some(8), Some(4000 << 20))
        );
        assert_eq!(places[0].trouble, None);
        assert_eq!(places[1].trouble.as_deref(), Some("up, drained*: bad memory"));
        assert!(super::places("lab\n").is_err());
    }
}
