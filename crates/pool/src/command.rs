//! A manager that is a program of the site.
//!
//! The program is called as `PROGRAM [ARGUMENT…] VERB`, and exits with 0 if it did what it was asked. What it writes to standard
//! error is shown to the user if it did not. It must exit by itself: a pilot that it starts as a process of its own must be in
//! the background, with other standard streams. After `seconds_max` it is killed with its process group.
//!
//! | verb | standard input | standard output |
//! |---|---|---|
//! | `start` | `{"name": "…", "command": ["…"], "environment": {"…": "…"}, "files": {"token": "BASE64"}}` | not read |
//! | `list` | `{"prefix": "…"}` | `{"pilots": [{"name": "…", "state": "queued", "reason": "…"}]}` |
//! | `stop` | `{"name": "…"}` | not read |
//! | `describe` | `{}` | `{"manager": "…", "version": "…", "places": [], "notes": ["…"]}` |
//!
//! - The pilot of a `start` runs `command` in an empty folder of its own, where `files` are in `files/`, readable by its user
//!   alone. Environment and files can be secret: they come on standard input so that no other user sees them.
//! - A `state` is `queued`, `running`, `ending`, `ended` or `unknown` (the part of the manager that has it does not answer). The
//!   `reason` is optional. A name that is listed twice counts as two pilots.
//! - A `list` must be complete, or fail. Names that do not begin with the prefix and `-` are ignored.
//! - A `stop` of a name that does not exist succeeds.
//! - A place is `{"name": "…", "count": 4, "cores": 16, "memory-bytes": 68719476736, "trouble": "…"}`, all optional but the name.
//!
//! Unknown keys are rejected, so that a misspelt one is noticed.

use crate::call::{Call, Said};
use crate::name::begins_with;
use crate::{
    Description, Driver, LISTED_MAX, Launch, Listed, Listing, PilotName, PilotState, Place, PoolError,
    Surroundings,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most output of a call, in bytes: a listing of [`LISTED_MAX`] pilots with a reason each.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// A program of the site as the manager; the module documentation has its protocol.
#[derive(Clone, Debug)]
pub struct CommandDriver {
    /// The program, by path or searched in `PATH`, and arguments before the verb.
    pub program: Vec<String>,
    /// The prefix of the pool's names.
    pub prefix: String,
    /// How long a call may take, in seconds.
    pub seconds_max: u64,
    /// What the program is started with.
    pub surroundings: Surroundings,
}

#[derive(Serialize)]
struct Start<'start> {
    name: &'start str,
    command: &'start [String],
    environment: &'start BTreeMap<String, String>,
    files: BTreeMap<&'start str, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    pilots: Vec<One>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    name: String,
    state: State,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Queued,
    Running,
    Ending,
    Ended,
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    manager: String,
    version: String,
    #[serde(default)]
    places: Vec<DescribedPlace>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DescribedPlace {
    name: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    cores: Option<u32>,
    #[serde(default)]
    memory_bytes: Option<u64>,
    #[serde(default)]
    trouble: Option<String>,
}

impl CommandDriver {
    fn call(&self, verb: &str, input: &impl Serialize) -> Result<Said, PoolError> {
        let Some((program, arguments)) = self.program.split_first() else {
            return Err(PoolError::invalid("program", "", "a program and its arguments"));
        };
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.push(verb);
        // Maps of strings always have a form in JSON.
        let input = serde_json::to_vec(input).unwrap_or_default();
        let call = Call {
            program,
            arguments: &arguments,
            input: &input,
            surroundings: &self.surroundings,
            seconds_max: self.seconds_max,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        call.run()
    }

    fn answer<'said, T: Deserialize<'said>>(&self, verb: &str, said: &'said Said) -> Result<T, PoolError> {
        serde_json::from_slice(&said.stdout).map_err(|error| PoolError::Answer {
            program: format!("{} {verb}", self.program.first().map_or("", String::as_str)),
            reason: crate::text::reason(&error.to_string()),
        })
    }
}

impl Driver for CommandDriver {
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError> {
        launch.check()?;
        let files = launch
            .files
            .iter()
            .map(|(name, content)| (name.as_str(), BASE64_STANDARD.encode(content)))
            .collect();
        let Launch { command, environment, .. } = launch;
        self.call("start", &Start { name: name.as_str(), command, environment, files }).map(drop)
    }

    fn list(&self) -> Result<Listing, PoolError> {
        let said = self.call("list", &BTreeMap::from([("prefix", &self.prefix)]))?;
        let list: List = self.answer("list", &said)?;
        listing(list, &self.prefix).map_err(|reason| PoolError::Answer {
            program: format!("{} list", self.program.first().map_or("", String::as_str)),
            reason,
        })
    }

    fn stop(&self, name: &PilotName) -> Result<(), PoolError> {
        self.call("stop", &BTreeMap::from([("name", name.as_str())])).map(drop)
    }

    fn describe(&self) -> Result<Description, PoolError> {
        let said = self.call("describe", &BTreeMap::<&str, &str>::new())?;
        let described: Described = self.answer("describe", &said)?;
        let line = |text: &String| crate::text::reason(text);
        let place = |place: &DescribedPlace| Place {
            name: line(&place.name),
            count: place.count,
            cores: place.cores,
            memory_bytes: place.memory_bytes,
            trouble: place.trouble.as_ref().map(line),
        };
        Ok(Description {
            manager: line(&described.manager),
            version: line(&described.version),
            places: described.places.iter().take(LISTED_MAX).map(place).collect(),
            notes: described.notes.iter().take(100).map(line).collect(),
        })
    }
}

/// A name of ours that is not valid is an error, since a pilot would be overlooked; other names do not matter.
fn listing(list: List, prefix: &str) -> Result<Listing, String> {
    let ours: Vec<One> = list.pilots.into_iter().filter(|one| begins_with(prefix, &one.name)).collect();
    if ours.len() > LISTED_MAX {
        return Err(format!("it has more than {LISTED_MAX} pilots"));
    }
    let listed = ours.into_iter().map(|one| {
        let name = PilotName::parse(&one.name).map_err(|error| error.to_string())?;
        let state = match one.state {
            State::Queued => PilotState::Queued,
            State::Running => PilotState::Running,
            State::Ending => PilotState::Ending,
            State::Ended => PilotState::Ended,
            State::Unknown => PilotState::Unknown,
        };
        Ok(Listed { name, state, reason: one.reason.map(|reason| crate::text::reason(&reason)), copies: 1 })
    });
    Ok(Listing::of(listed.collect::<Result<Vec<Listed>, String>>()?))
}
