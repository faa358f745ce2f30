//! `kilnyard people`: the tokens with which people and programs make requests over the network.

use super::{print, print_json, serve};
use crate::cli::{People, PeopleAction};
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::words;
use crate::yard::Yard;
use kilnyard_api::bodies::OWN_YARD;
use kilnyard_api::tokens::{Terms, Token, Tokens};
use kilnyard_model::scope::Scope;
use kilnyard_yard::image::Admitted;
use kilnyard_yard::remedy::Remedy;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

/// A day, in seconds.
const DAY: u64 = 86_400;
/// Reads after "failed to".
const READING: &str = "read the tokens of people";

pub fn run(yard: &Yard, options: &People) -> Result<ExitCode> {
    let tokens = Tokens::open(&door::folder(yard));
    let Some(action) = &options.action else {
        // Those of the machine's other servers, too.
        if door::folder(yard).exists() {
            share(yard)?;
        }
        return list(&tokens, options.json);
    };
    if door::roster_folder(yard) != door::folder(yard) {
        let message = "this yard is served by another one, whose tokens count";
        return Err(Error::usage(message).hint("the same command in the yard of the site, with --only"));
    }
    serve::folder(yard)?;
    share(yard)?;
    let code = match action {
        PeopleAction::Token { name, scopes, only, days } => {
            let now = words::now_seconds() as u64;
            let terms = terms(yard, name, scopes, only, now + u64::from(*days) * DAY)?;
            issue(&tokens, terms, now, options.json)?
        }
        PeopleAction::Remove { word } => {
            let removed = tokens.remove(word).context(Kind::Machine, "remove the token")?;
            if removed.is_empty() {
                return Err(Error::usage(format!("there is no token {}", word.escape_debug()))
                    .hint(Remedy::command("people")));
            }
            print(&format!("removed: {}\n", removed.join(", ")))?
        }
    };
    share(yard)?;
    Ok(code)
}

/// Shares the tokens with the other machines of the yard, if it has them: before this command says what it did.
fn share(yard: &Yard) -> Result<()> {
    let documents = yard.documents()?;
    documents.map_or(Ok(()), |documents| Admitted::default().share(&yard.home, &documents))
}

/// What a token allows until this time, in seconds since 1970.
fn terms(yard: &Yard, name: &str, scopes: &[Scope], only: &[String], ends_seconds: u64) -> Result<Terms> {
    let yards = &yard.config.farm.yards;
    if let Some(unknown) = only.iter().find(|only| *only != OWN_YARD && !yards.contains_key(*only)) {
        let known: Vec<&str> = std::iter::once(OWN_YARD).chain(yards.keys().map(String::as_str)).collect();
        return Err(Error::usage(format!("there is no yard {}", unknown.escape_debug()))
            .hint(format!("one of: {}", known.join(", "))));
    }
    let yards = (!only.is_empty()).then(|| only.iter().cloned().collect());
    Ok(Terms { name: name.to_owned(), scopes: scopes.iter().copied().collect(), yards, ends_seconds })
}

fn issue(tokens: &Tokens, terms: Terms, now_seconds: u64, as_json: bool) -> Result<ExitCode> {
    let issued = tokens.issue(terms, now_seconds).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::usage(error.to_string()),
        _ => Error::new(Kind::Machine, format!("failed to write the token: {error}")),
    });
    let (token, text) = issued?;
    match as_json {
        true => {
            let mut described = described(&token);
            described["token"] = text.into();
            print_json(&described)
        }
        // Nothing else, for `> FILE`.
        false => print(&format!("{text}\n")),
    }
}

fn described(token: &Token) -> serde_json::Value {
    json!({
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "yards": token.yards,
        "made_seconds": token.made_seconds,
        "ends_seconds": token.ends_seconds,
    })
}

fn list(tokens: &Tokens, as_json: bool) -> Result<ExitCode> {
    let all = tokens.all().context(Kind::Machine, READING)?;
    if as_json {
        return print_json(&all.iter().map(described).collect());
    }
    if all.is_empty() {
        say!("there are no tokens: {}", words::command("people token NAME"));
    }
    let mut text = String::new();
    let now = words::now_seconds() as u64;
    for Token { id, name, scopes, yards, ends_seconds, .. } in &all {
        let scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
        let yards = yards.as_ref().map_or_else(
            || "all yards".to_owned(),
            |yards| yards.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        );
        let ends = match now < *ends_seconds {
            true => format!("until {}", words::time(*ends_seconds as f64)),
            false => "expired".to_owned(),
        };
        let _ = writeln!(text, "{id}  {name}  {}  {yards}  {ends}", scopes.join(","));
    }
    print(&text)
}
