//! Provenance: who built outputs, from what, signed by the worker that did.
//!
//! The statement is in-toto's, version 1, with a predicate of SLSA provenance, version 1; it is signed in an envelope of
//! DSSE, version 1. Worker and coordinator derive the statement from the order, so that only the signature is sent: a
//! worker cannot sign another account than that of its order.
//!
//! Sources: <https://github.com/in-toto/attestation/tree/main/spec/v1>, <https://slsa.dev/spec/v1.0/provenance>,
//! <https://github.com/secure-systems-lab/dsse/blob/master/protocol.md>.

use crate::attempt::Attempt;
use crate::digests;
use crate::order::{BuildOrder, FolderContent, Output};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The type of the signed text.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The name of the base root among the resolved dependencies.
const BASE_ROOT: &str = "base root";

/// A signed statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The statement, as JSON. Not sent: see the module documentation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statement: String,
    /// The public part of the worker's key, in hexadecimal (Ed25519).
    pub key: String,
    /// The signature of [`signed_bytes`], in hexadecimal.
    pub signature: String,
}

/// What a build was made from, and by whom: a statement without its outputs. The fields are those of the specifications, in
/// this order, so that two programs derive the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: Vec<Resource>,
    #[serde(rename = "predicateType")]
    predicate_type: &'static str,
    predicate: Predicate,
}

/// A file, by name and hash.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Resource {
    name: String,
    digest: Digest,
    /// Further digests of an output.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Digest {
    sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    build_definition: BuildDefinition,
    run_details: RunDetails,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition {
    build_type: &'static str,
    external_parameters: ExternalParameters,
    internal_parameters: InternalParameters,
    resolved_dependencies: Vec<Resource>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ExternalParameters {
    family: String,
    package: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct InternalParameters {
    key: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RunDetails {
    builder: Builder,
    metadata: Metadata,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Builder {
    id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    invocation_id: String,
}

fn resource(name: &str, sha256: &str) -> Resource {
    Resource {
        name: name.to_owned(),
        digest: Digest { sha256: sha256.to_owned() },
        annotations: BTreeMap::new(),
    }
}

impl Account {
    /// The account of the build of an order.
    pub fn of(order: &BuildOrder, attempt: Attempt, worker: &str) -> Account {
        let root = &order.root;
        let layers = root.layers.iter().map(|layer| resource(BASE_ROOT, layer.sha256.as_str()));
        let inputs = root.inputs.iter().map(|input| resource(&input.name, &input.sha256));
        let folders = root.folders.iter().flat_map(|folder| match &folder.content {
            Some(FolderContent::Tree(tree)) => vec![resource(&folder.name, tree.sha256.as_str())],
            Some(FolderContent::Layers(layers)) => {
                layers.iter().map(|layer| resource(&folder.name, layer.sha256.as_str())).collect()
            }
            Some(FolderContent::Files(files)) => {
                files.iter().map(|file| resource(&file.name, file.artifact.sha256.as_str())).collect()
            }
            None => Vec::new(),
        });
        Account {
            kind: "https://in-toto.io/Statement/v1",
            subject: Vec::new(),
            predicate_type: "https://slsa.dev/provenance/v1",
            predicate: Predicate {
                build_definition: BuildDefinition {
                    build_type: "urn:kilnyard:build:1",
                    external_parameters: ExternalParameters {
                        family: order.family.name.clone(),
                        package: order.package.clone(),
                        version: order.version.clone(),
                    },
                    internal_parameters: InternalParameters { key: order.key.digest.clone() },
                    resolved_dependencies: layers.chain(inputs).chain(folders).collect(),
                },
                run_details: RunDetails {
                    builder: Builder { id: format!("urn:kilnyard:worker:{worker}") },
                    metadata: Metadata { invocation_id: attempt.to_string() },
                },
            },
        }
    }

    /// The statement about these outputs, as JSON.
    pub fn statement(&self, outputs: &[Output]) -> String {
        let described = |output: &Output| {
            let mut annotations = output.digests.clone();
            annotations.remove(digests::BLOCKS);
            annotations.insert(digests::NAME.to_owned(), output.name.clone());
            annotations.insert(digests::VERSION.to_owned(), output.version.clone());
            Resource { annotations, ..resource(&output.file, &output.sha256) }
        };
        let subject = outputs.iter().map(described).collect();
        // Strings alone: this cannot fail.
        serde_json::to_string(&Account { subject, ..self.clone() }).unwrap_or_default()
    }
}

/// What a signature of a statement signs: DSSE's pre-authentication encoding.
pub fn signed_bytes(statement: &str) -> Vec<u8> {
    format!("DSSEv1 {} {PAYLOAD_TYPE} {} {statement}", PAYLOAD_TYPE.len(), statement.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{FamilyOrder, Input, Key, RootOrder};
    use serde_json::Value;

    fn order() -> BuildOrder {
        let input = Input { name: "a.deb".into(), sha256: "1".repeat(64), size_bytes: 1, urls: Vec::new() };
        BuildOrder {
            package: "zlib".into(),
            version: "1".into(),
            family: FamilyOrder { name: "family".into(), facts: Default::default() },
            key: Key { digest: "k".into(), lines: Vec::new() },
            root: RootOrder { inputs: vec![input], ..RootOrder::default() },
            work: None,
            fetch: None,
            stages: Vec::new(),
            clients: Vec::new(),
            fakeroots: Vec::new(),
            output_folder: String::new(),
            terms: Default::default(),
            keep: None,
        }
    }

    #[test]
    fn a_statement_names_outputs_and_inputs() {
        let output = Output {
            name: "zlib1g".into(),
            version: "1".into(),
            architecture: "any".into(),
            file: "zlib1g_1.deb".into(),
            sha256: "2".repeat(64),
            size_bytes: 7,
            content: String::new(),
            description: String::new(),
            digests: BTreeMap::from([(digests::FILES.to_owned(), "3".repeat(64))]),
        };
        let attempt = Attempt::from_bytes([7; 16]);
        let account = Account::of(&order(), attempt, "far");
        let text = account.statement(std::slice::from_ref(&output));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["subject"][0]["digest"]["sha256"], "2".repeat(64));
        assert_eq!(value["subject"][0]["annotations"]["files"], "3".repeat(64));
        let definition = &value["predicate"]["buildDefinition"];
        assert_eq!(definition["resolvedDependencies"][0]["name"], "a.deb");
        assert_eq!(definition["externalParameters"]["package"], "zlib");
        assert_eq!(value["predicate"]["runDetails"]["builder"]["id"], "urn:kilnyard:worker:far");
        // Both sides derive the same text.
        assert_eq!(text, Account::of(&order(), attempt, "far").statement(&[output]));
        assert_ne!(account, Account::of(&order(), Attempt::from_bytes([8; 16]), "far"));
        assert_ne!(account, Account::of(&order(), attempt, "near"));
    }

    #[test]
    fn the_signed_bytes_are_those_of_the_specification() {
        let bytes = String::from_utf8(signed_bytes("{}")).unwrap();
        assert_eq!(bytes, "DSSEv1 28 application/vnd.in-toto+json 2 {}");
    }
}
