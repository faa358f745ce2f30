//! The database, the store of artifacts, the pools on demand and the mirror of a yard, if it has any.

use crate::commands::serve::driver;
use crate::error::Error;
use crate::words;
use crate::yard::{Documents, Yard};
use kilnyard_artifacts::{Finding as OfStore, Outcome};
use kilnyard_pool::Description;
use kilnyard_yard::finding::Finding;

/// A clock that differs by more makes times in the records of different machines hard to compare, in seconds.
const CLOCK_SECONDS_MAX: f64 = 2.0;
/// A decision waits for a few answers of the database; slower ones are noticed, in seconds.
const LATENCY_SECONDS_MAX: f64 = 0.05;

/// Tries both.
pub fn examine(yard: &Yard) -> Vec<Finding> {
    let mut findings = Vec::new();
    match yard.documents() {
        Ok(None) => {}
        Ok(Some(documents)) => findings.extend(database(yard, &documents)),
        Err(error) => findings.push(failed("database", &error)),
    }
    match yard.depot() {
        Ok(None) => {}
        Ok(Some(depot)) => findings.extend(artifacts(&depot.name(), &depot.examine())),
        Err(error) => findings.push(failed("artifacts", &error)),
    }
    findings.extend(pools(yard));
    findings.extend(mirror(yard));
    findings
}

/// Whether the mirror of the site answers.
fn mirror(yard: &Yard) -> Option<Finding> {
    let site = kilnyard_yard::mirror::site(yard)?;
    if site.answers() {
        return Some(Finding::new("mirror", true, format!("{} answers", site.url())));
    }
    let text = format!("{} does not answer: files are fetched at their origins", site.url());
    let help = match yard.config.mirror.listen {
        Some(_) => "kilnyard serve, which has it",
        None => "kilnyard mirror serve, on its machine",
    };
    Some(Finding::new("mirror", false, text).help(help))
}

/// What the managers of machines say of themselves.
fn pools(yard: &Yard) -> Vec<Finding> {
    let pools = yard.config.farm.pool.iter();
    let pools = pools.filter_map(|(name, pool)| Some((name, pool.demand.as_ref()?)));
    let mut findings = Vec::new();
    for (name, demand) in pools {
        let described = match driver(yard, "kilnyard-doctor", demand) {
            Ok(driver) => driver.describe().map_err(|error| error.line()),
            Err(error) => Err(error.one_line()),
        };
        match described {
            Ok(Description { manager, version, places, notes }) => {
                let mut text = format!("{name}: {manager} {version}");
                let usable = places.iter().filter(|place| place.trouble.is_none()).count();
                if !places.is_empty() {
                    text += &format!(", {usable} of {} usable", words::count(places.len() as u64, "place"));
                }
                findings.push(Finding::new("pool", places.is_empty() || usable > 0, text));
                let troubles = places
                    .iter()
                    .filter_map(|place| Some(format!("{}: {}", place.name, place.trouble.as_ref()?)));
                for note in troubles.chain(notes) {
                    findings.push(Finding::new("pool", true, format!("{name}: {note}")));
                }
            }
            Err(error) => findings.push(Finding::new("pool", false, format!("{name}: {error}"))),
        }
    }
    findings
}

fn failed(name: &'static str, error: &Error) -> Finding {
    let finding = Finding::new(name, false, error.one_line());
    match error.hints.first() {
        Some(hint) => finding.help(hint.clone()),
        None => finding,
    }
}

fn database(yard: &Yard, documents: &Documents) -> Vec<Finding> {
    let facts = match documents.facts() {
        Ok(facts) => facts,
        Err(error) => return vec![failed("database", &crate::yard::store_error(error))],
    };
    let place = yard.store_name().unwrap_or_default();
    let size = facts.database_bytes.map(|bytes| format!(", {}", words::size(bytes))).unwrap_or_default();
    let latency_seconds = facts.latency.as_secs_f64();
    let is_quick = latency_seconds <= LATENCY_SECONDS_MAX;
    let text =
        format!("PostgreSQL {} at {place}: answers in {:.2} ms{size}", facts.version, latency_seconds * 1e3);
    let mut answers = Finding::new("database", is_quick, text);
    if !is_quick {
        answers = answers.help("a database that is nearer: each decision waits for several answers");
    }
    let ahead_seconds = facts.clock_seconds - words::now_seconds();
    let is_same = ahead_seconds.abs() <= CLOCK_SECONDS_MAX;
    let text = match is_same {
        true => "that of this machine, within two seconds".to_owned(),
        false if ahead_seconds > 0.0 => format!("{} ahead of this machine", words::duration(ahead_seconds)),
        false => format!("{} behind this machine", words::duration(-ahead_seconds)),
    };
    let mut clock = Finding::new("database clock", is_same, text);
    if !is_same {
        clock = clock.help("the same time server for both machines");
    }
    let durable = match (facts.is_durable, facts.has_synchronous_replica) {
        (false, _) => {
            Finding::new("database durability", false, "what it acknowledges can be lost in a power cut")
                .help("fsync, full_page_writes and synchronous_commit = on in postgresql.conf")
        }
        (true, true) => {
            Finding::new("database durability", true, "it waits for a replica, which can take its place")
        }
        (true, false) => {
            let text = "no synchronous replica: if its disk is lost, so are its last records, whose packages are built again";
            Finding::new("database durability", true, text)
        }
    };
    let mut rights = Finding::new(
        "database rights",
        facts.may_create,
        match facts.may_create {
            true => "tables can be made",
            false => "this user may not make tables, which later versions need",
        },
    );
    if !facts.may_create {
        rights = rights.help("GRANT CREATE ON SCHEMA, as the owner of the database");
    }
    vec![answers, clock, durable, rights]
}

/// One finding for what works, and one for each thing that does not.
fn artifacts(name: &str, found: &[OfStore]) -> Vec<Finding> {
    let works = found.iter().filter(|finding| finding.outcome == Outcome::Works).count();
    let text = format!("{name}: {} of {} work", works, words::count(found.len() as u64, "trial"));
    let mut findings = vec![Finding::new("artifacts", works > 0, text)];
    for finding in found.iter().filter(|finding| finding.outcome != Outcome::Works) {
        let is_usable = matches!(finding.outcome, Outcome::Missing(_));
        let made = Finding::new("artifacts", is_usable, finding.to_string());
        findings.push(match is_usable {
            true => made,
            false => made.help("another server: outputs could be lost or changed in this one"),
        });
    }
    findings
}
