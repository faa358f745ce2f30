//! The workers of a site.

use super::{Shell, Tab};
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use maud::html;
use serde_json::Value;

/// The most workers that are listed.
const WORKERS_MAX: usize = 500;

/// The workers, as `kilnyard workers --json` prints them, and the builds of this machine's own.
pub fn workers(shell: &Shell, workers: &Value, builds: &[(String, u64)]) -> String {
    let empty = Vec::new();
    let all = workers["workers"].as_array().unwrap_or(&empty);
    let text = |value: &Value| clean::name(value.as_str().unwrap_or(""), NAME_CHARACTERS_MAX);
    let header = html! { h1 { "Workers" } };
    let content = html! {
        @if !builds.is_empty() {
            section {
                h2 { "At work" }
                ul.found {
                    @for (worker, count) in builds {
                        li { b { (clean::name(worker, NAME_CHARACTERS_MAX)) } " " span.remark { (words::counted(*count, "build", "builds")) } }
                    }
                }
            }
        }
        section {
            h2 { "Members of the farm" " " span.count { (words::count(all.len() as u64)) } }
            @if all.is_empty() { p.empty { "No other machine has joined: " code { "kilnyard workers token" } " admits one." } }
            @else {
                div.scroll role="region" aria-label="Workers, scrollable" tabindex="0" {
                    table.dense {
                        thead {
                            tr {
                                th scope="col" { "Worker" }
                                th scope="col" { "State" }
                                th.number scope="col" { "Builds" }
                                th.number scope="col" { "Cores" }
                                th scope="col" { "Pool" }
                                th scope="col" { "Machine" }
                            }
                        }
                        tbody {
                            @for worker in all.iter().take(WORKERS_MAX) {
                                tr {
                                    th scope="row" { (text(&worker["name"])) }
                                    td { (condition(worker)) }
                                    td.number { (worker["builds"].as_u64().unwrap_or(0)) }
                                    td.number { (worker["about"]["cores"].as_u64().unwrap_or(0)) }
                                    td { (text(&worker["pool"])) }
                                    td { (text(&worker["about"]["cpu"])) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    shell.page(&format!("Workers of {}", shell.title), Tab::Workers, header, content)
}

/// What a worker does, in a word or two.
fn condition(worker: &Value) -> String {
    // Silent for longer than this, in seconds, it is not connected any more.
    const SILENT_MAX: f64 = 40.0;
    let held = &worker["held"];
    if let Some(word) = held.as_str() {
        return clean::name(word, NAME_CHARACTERS_MAX);
    }
    if let Some(reason) = held.as_object().and_then(|held| held.get("quarantined")).and_then(Value::as_str) {
        return format!("quarantined: {}", clean::line(reason, 200));
    }
    match worker["silent_seconds"].as_f64() {
        None => "not connected".to_owned(),
        Some(seconds) if seconds > SILENT_MAX => format!("silent for {}", words::duration(seconds)),
        Some(_) => "connected".to_owned(),
    }
}
