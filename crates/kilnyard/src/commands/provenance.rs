//! `kilnyard provenance`: who built the outputs of a package, from what, and with which signature.

use super::{print, print_json, unknown};
use crate::cli;
use crate::error::{Error, Kind, Result};
use crate::words;
use crate::yard::{Yard, store_error};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kilnyard_farm::proof::is_signed;
use kilnyard_model::foreign::Foreign;
use kilnyard_model::provenance::{PAYLOAD_TYPE, Signed};
use kilnyard_store::Provenance;
use kilnyard_yard::remedy::Remedy;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::ProvenanceOf) -> Result<ExitCode> {
    let (store, package) = (yard.store()?, &options.package);
    let Some(found) = store.provenance(package).map_err(store_error)? else {
        if store.current(package).map_err(store_error)?.is_none()
            && store.planned(package).map_err(store_error)?.is_none()
        {
            return Err(unknown(yard, &*store, package)?);
        }
        return Err(Error::usage(format!("the provenance of {package} is not known")).hint(
            Remedy::command(format!("build --force {package}"))
                .then(", which records it: an earlier version built its outputs, or nothing did"),
        ));
    };
    if !is_signed(&found.signed) {
        return Err(Error::new(
            Kind::Machine,
            format!("the provenance of {package} is not what its worker signed"),
        )
        .hint("the store may be damaged: `kilnyard doctor`"));
    }
    if options.json {
        return print_json(&envelope(&found.signed));
    }
    print(&as_text(&found)?)
}

/// The signed statement in an envelope of DSSE.
fn envelope(signed: &Signed) -> Value {
    // It was checked.
    let bytes = |hex: &str| -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
    };
    json!({
        "payloadType": PAYLOAD_TYPE,
        "payload": STANDARD.encode(&signed.statement),
        "signatures": [{ "keyid": signed.key, "sig": STANDARD.encode(bytes(&signed.signature)) }],
    })
}

fn as_text(found: &Provenance) -> Result<String> {
    let Provenance { package, build, worker, pool, signed } = found;
    let failed = |error: serde_json::Error| Error::new(Kind::Internal, format!("read a statement: {error}"));
    let statement: Value = serde_json::from_str(&signed.statement).map_err(failed)?;
    let definition = &statement["predicate"]["buildDefinition"];
    let mut text = format!(
        "{package} {}\n  built by {worker} of pool {pool}, in build {build}\n  signed by Ed25519 key {}\n",
        Foreign(definition["externalParameters"]["version"].as_str().unwrap_or_default()),
        signed.key
    );
    let mut list = |title: &str, resources: &Value| {
        let resources = resources.as_array().cloned().unwrap_or_default();
        let _ = writeln!(text, "  {title}:");
        for resource in resources {
            let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (name, sha256) = (field(&resource["name"]), field(&resource["digest"]["sha256"]));
            let _ = writeln!(text, "    {sha256}  {}", Foreign(&name));
        }
    };
    list("outputs, by SHA-256", &statement["subject"]);
    list("built from", &definition["resolvedDependencies"]);
    let _ = writeln!(
        text,
        "the signature is valid; as an in-toto statement for other programs: {}",
        words::command(&format!("provenance {package} --json"))
    );
    Ok(text)
}
