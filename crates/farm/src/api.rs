//! The bodies of requests and answers (`/v1`), as JSON.

use kilnyard_model::entitlement::Entitlement;
use kilnyard_model::holdings::Holdings;
use kilnyard_model::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::{Object, RefOr, Schema, schema::Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// The type of bodies that are not JSON.
pub const BYTES: &str = "application/octet-stream";

/// The header of answers to requests for messages that identifies the run: random text, absent without a run.
pub const RUN_HEADER: &str = "kilnyard-run";
/// The header of requests for another yard than that of the site at the address.
pub const YARD_HEADER: &str = "kilnyard-yard";

/// The header of each answer that names the epoch of the run, if several machines can lead: the farm's id, a dot, and the
/// number of the epoch.
pub const EPOCH_HEADER: &str = "kilnyard-epoch";
/// The header of a request for a file whose answer may refer to another server.
pub const DIRECT_HEADER: &str = "kilnyard-direct";
/// The value of that header in requests which only the other server can answer: how the file is stored there is the question.
pub const DIRECT_ONLY: &str = "only";

/// A worker wants to join.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Join {
    /// The secret of its token.
    pub secret: String,
    /// The name that it asks for.
    pub name: String,
    /// The public part of its key.
    pub key: String,
}

/// A challenge, and later the worker's proof.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// Random text.
    pub challenge: String,
}

/// A worker proves that it has its key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// Its name.
    pub worker: String,
    /// The challenge that it answers.
    pub challenge: String,
    /// The signature.
    pub proof: String,
    /// Its machine, for `kilnyard workers` alone.
    #[serde(default)]
    pub about: About,
}

/// A worker's machine and program, as it describes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct About {
    /// The cores for builds; 0 if it did not say.
    pub cores: u32,
    /// The memory that was available when it started, in bytes.
    pub memory_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The model of the CPU.
    pub cpu: String,
    /// The processor architecture of its programs.
    pub architecture: String,
    /// The version of Kilnyard.
    pub version: String,
    /// What else of it can make a build end otherwise, by name: settings of the kernel, limits. Unknown ones are absent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    /// Its clock, in seconds since 1970; absent if it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_seconds: Option<f64>,
}

impl About {
    /// The longest text of a field, in bytes.
    pub const BYTES_MAX: usize = 256;
    /// The most conditions.
    pub const CONDITIONS_MAX: usize = 32;

    /// Whether a door keeps it.
    pub(crate) fn is_short(&self) -> bool {
        let texts = [&self.kernel, &self.cpu, &self.architecture, &self.version];
        let is_printed = |text: &String| !text.chars().any(char::is_control);
        texts.into_iter().all(|text| text.len() <= About::BYTES_MAX)
            && self.conditions.len() <= About::CONDITIONS_MAX
            && self
                .conditions
                .iter()
                .flat_map(|(name, value)| [name, value])
                .all(|text| text.len() <= About::BYTES_MAX && is_printed(text))
            && self.clock_seconds.is_none_or(f64::is_finite)
    }
}

/// A session.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Began {
    /// What later requests of the worker contain.
    pub session: String,
    /// The content codings in which the door takes messages: `zstd`. Empty for a door from before they were added.
    #[serde(default)]
    pub encodings: Vec<String>,
    /// The addresses of all servers of the farm, this one included, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The address of the mirror of the worker's site, if it has one: there, files of builds are read with tickets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
}

/// The files that a worker wants to read at the mirror of its site.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TicketsFor {
    /// The hashes of their contents, in hexadecimal; at most [`BLOBS_MAX`].
    pub blobs: Vec<String>,
}

/// Tickets for files.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Tickets {
    /// In the order of the request; absent for a file that no build of the worker names.
    pub tickets: Vec<Option<String>>,
}

/// A yard that shares the workers of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct YardOffer {
    /// Its name, for the header `kilnyard-yard`; empty for the site's own yard.
    pub name: String,
    /// Stays the same for a yard, and is another one's if the name is.
    pub id: String,
    /// What it is entitled to.
    #[schema(value_type = Object)]
    pub entitlement: Entitlement,
    /// Whether it has packages that could start.
    pub has_ready: bool,
    /// Whether it starts nothing further for now: what it may use in a day is spent.
    #[serde(default)]
    pub is_spent: bool,
}

/// The yards that a worker takes part in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Yards {
    /// Changes whenever the rest does.
    pub version: String,
    /// Empty if the site serves one yard alone.
    pub yards: Vec<YardOffer>,
}

impl Yards {
    /// The list of these.
    pub fn of(yards: Vec<YardOffer>) -> Yards {
        let text = serde_json::to_string(&yards).unwrap_or_default();
        Yards { version: Sha256Hex::of(text.as_bytes()).to_string()[..16].to_owned(), yards }
    }
}

/// How long a request for the yards may wait.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitForYards {
    /// Seconds; at most 50 count.
    pub wait: u64,
    /// The version that the worker has: the answer comes when there is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// How long a request for a shell may wait.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Seconds; at most 50 count.
    pub wait: u64,
}

/// How long a request for messages may wait, and for which run.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitForMessage {
    /// Seconds; at most 50 count.
    pub wait: u64,
    /// The run that the last answer named, empty if it named none: if that is not the run any more, the answer comes at
    /// once. Absent: the run that is connected when the request arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// What a worker keeps, for `kilnyard workers` alone. Without `trees`, the request says nothing of it.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct Keeps {
    /// The hashes of the worker's trees, separated by commas; at most 16 count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<String>,
    /// The number of its layers of dependencies.
    pub layers: u64,
    /// Their size.
    pub layers_bytes: u64,
    /// The number of its files.
    pub files: u64,
    /// Their size.
    pub files_bytes: u64,
    /// The size of everything, with the trees.
    pub bytes: u64,
}

impl Keeps {
    pub(crate) fn of(holdings: &Holdings) -> Keeps {
        let trees = holdings.trees.iter().take(Holdings::TREES_MAX).map(Sha256Hex::as_str);
        Keeps {
            trees: Some(trees.collect::<Vec<_>>().join(",")),
            layers: holdings.layers,
            layers_bytes: holdings.layers_bytes,
            files: holdings.files,
            files_bytes: holdings.files_bytes,
            bytes: holdings.bytes,
        }
    }

    /// What the worker keeps, if the request says so. What is not a hash does not count.
    pub(crate) fn holdings(&self) -> Option<Holdings> {
        let trees = self.trees.as_ref()?.split(',').take(Holdings::TREES_MAX);
        Some(Holdings {
            trees: trees.filter_map(|tree| Sha256Hex::parse(tree).ok()).collect(),
            layers: self.layers,
            layers_bytes: self.layers_bytes,
            files: self.files,
            files_bytes: self.files_bytes,
            bytes: self.bytes,
        })
    }
}

/// A shell that a worker is asked to start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Shell {
    /// Its random id.
    pub id: String,
    /// The package and the command.
    pub order: serde_json::Value,
}

/// Where a part of a shell's input begins, and how long a request for it may wait.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Input {
    /// The number of bytes before it, all of which have arrived.
    pub offset: u64,
    /// Seconds; at most 50 count.
    pub wait: u64,
}

/// Where a part of a shell's output begins.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Output {
    /// The number of bytes before it.
    pub offset: u64,
}

/// A worker has joined.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Joined {
    /// Its name.
    pub worker: String,
}

/// The most files that a worker names at once.
pub const BLOBS_MAX: usize = 4096;

/// The files that a worker is about to store for a build.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Outputs {
    /// A build that the worker has.
    pub attempt: String,
    /// At most [`BLOBS_MAX`] files.
    pub blobs: Vec<Blob>,
    /// Whether the worker can send files to other servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
}

/// The most bytes of a batch, and of a file in it.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;
/// See [`BATCH_BYTES_MAX`].
pub const BATCHED_BYTES_MAX: u64 = 1 << 20;

/// For which build a batch of files is stored.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchFor {
    /// A build that the worker has.
    pub attempt: String,
}

/// How to send a file straight to the store that machines share.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Direct {
    /// The id of an upload in parts; absent if there is one part, which is all of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Each is a `PUT`. Afterwards, the server is asked to adopt the file.
    pub parts: Vec<DirectPart>,
}

/// A part of a file that is sent to the store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DirectPart {
    /// Where it is sent. Valid for some hours.
    pub url: String,
    /// The headers that the request must have: names and values.
    pub headers: Vec<(String, String)>,
    /// Where it begins in the file, in bytes.
    pub offset_bytes: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

/// A file that a worker has sent to the store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Uploaded {
    /// A build that the worker has.
    pub attempt: String,
    /// The size of the file, in bytes.
    pub size_bytes: u64,
    /// The id of an upload in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The `ETag` headers of the answers, in the order of the parts.
    pub etags: Vec<String>,
}

/// A file that a worker is about to store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Blob {
    /// The hash of its content, in hexadecimal.
    pub sha256: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

/// The files that the worker has to send. It has stored the others for this build, or its builds read them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Missing {
    /// In the order of the request.
    pub missing: Vec<Arrived>,
}

/// A file of which not everything has arrived.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Arrived {
    /// The hash of its content, in hexadecimal.
    pub sha256: String,
    /// The number of bytes that an interrupted upload has left: where to continue.
    pub arrived_bytes: u64,
    /// Another way to send all of it, if the worker asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
}

/// For which build a file is stored.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct For {
    /// A build that the worker has.
    pub attempt: String,
    /// The number of bytes of the file that come before the body, which is the rest of it. Absent if the body is all of
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// The reason of a refusal of a part of a log before which another one is missing.
pub const PART_MISSING: &str = "a part of the log before this one is missing";

/// Where a part of a log begins.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// The number of bytes before it. Absent for a whole log, compressed.
    pub offset: Option<u64>,
}

/// A body that is not JSON, for the description of requests alone.
pub enum Bytes {}

impl PartialSchema for Bytes {
    fn schema() -> RefOr<Schema> {
        let bytes = Object::builder().schema_type(Type::String).content_media_type(BYTES.to_owned());
        bytes.description(Some("Bytes.")).into()
    }
}

impl ToSchema for Bytes {}

/// The body of a refusal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// A clause for the worker's log.
    pub error: String,
    /// If the offset of a part is wrong: the number of bytes of the file that have arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_bytes: Option<u64>,
    /// If another server of the farm has the run: its address, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

impl Refused {
    /// A refusal with nothing but its reason.
    pub fn because(error: impl Into<String>) -> Refused {
        Refused { error: error.into(), arrived_bytes: None, leader: None }
    }
}

/// Golden files: each body as other programs of this version read and write it, and the description of all requests. A
/// changed file is a change of the protocol: a field may be added with a default, and anything else needs a new version.
/// `KILNYARD_UPDATE=1` writes the files.
#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;

    const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// The content of a golden file, which is this value.
    fn golden(name: &str, value: &Value) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
        if std::env::var_os("KILNYARD_UPDATE").is_some() {
            std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(value).unwrap())).unwrap();
        }
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(&serde_json::from_slice::<Value>(&text).unwrap(), value, "{name}");
        text
    }

    fn openapi() -> Value {
        serde_json::from_str(&crate::door::openapi().unwrap()).unwrap()
    }

    /// Compares a body with its golden file and with its schema.
    fn check<Body: Serialize + DeserializeOwned + ToSchema>(name: &str, body: &Body) {
        let value = serde_json::to_value(body).unwrap();
        let read: Body = serde_json::from_slice(&golden(name, &value)).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value, "{name}");
        let document = openapi();
        let schema = &document["components"]["schemas"][Body::name().as_ref()];
        let fields = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect()
        };
        let (known, needed) = (fields(&schema["properties"]), schema["required"].as_array());
        assert!(fields(&value).is_subset(&known), "{name}: {schema}");
        let needed = needed.into_iter().flatten().filter_map(Value::as_str);
        assert!(needed.into_iter().all(|field| value.get(field).is_some()), "{name}: {schema}");
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn bodies_that_begin_a_session() {
        check("join", &Join { secret: text(HASH), name: text("far"), key: text(HASH) });
        check("joined", &Joined { worker: text("far") });
        check("challenge", &Challenge { challenge: text(HASH) });
        let about = About {
            cores: 16,
            memory_bytes: Some(64 << 30),
            kernel: text("Linux 6.1.0-18-amd64"),
            cpu: text("AMD EPYC 7B13"),
            architecture: text("x86_64"),
            version: text("0.1.0"),
            conditions: [(text("page size"), text("4 KiB"))].into(),
            clock_seconds: Some(1_700_000_000.5),
        };
        let proof = |about| Proof { worker: text("far"), challenge: text(HASH), proof: text(HASH), about };
        check("proof", &proof(about));
        check(
            "began",
            &Began {
                session: text(HASH),
                encodings: vec![text("zstd")],
                addresses: Vec::new(),
                mirror: None,
            },
        );
        let addresses = vec![text("https://one:7878"), text("https://two:7878")];
        check(
            "began-addresses",
            &Began {
                session: text(HASH),
                encodings: vec![text("zstd")],
                addresses,
                mirror: Some(text("http://mirror:3142")),
            },
        );
    }

    #[test]
    fn what_a_worker_says_of_itself_is_bounded() {
        let about = |name: &str, value: &str| About {
            conditions: [(text(name), text(value))].into(),
            ..About::default()
        };
        assert!(About::default().is_short() && about("page size", "4 KiB").is_short());
        let long = "x".repeat(About::BYTES_MAX + 1);
        let many = (0..=About::CONDITIONS_MAX).map(|number| (number.to_string(), text("x"))).collect();
        let many = About { conditions: many, ..About::default() };
        let clock = About { clock_seconds: Some(f64::INFINITY), ..About::default() };
        for about in
            [about(&long, "x"), about("x", &long), about("x", "\u{1b}[2J"), about("x\n", "x"), many, clock]
        {
            assert!(!about.is_short(), "{about:?}");
        }
    }

    #[test]
    fn what_a_worker_keeps_is_read_from_its_request_and_bounded() {
        let trees = vec![Sha256Hex::parse(HASH).unwrap()];
        let kept = Holdings { trees, layers: 1, layers_bytes: 2, files: 3, files_bytes: 4, bytes: 9 };
        assert_eq!(Keeps::of(&kept).holdings(), Some(kept.clone()));
        assert_eq!(Keeps::default().holdings(), None);
        let trees = vec![kept.trees[0].clone(); 100];
        let many = Keeps::of(&Holdings { trees, ..kept.clone() });
        assert_eq!(many.holdings().unwrap().trees.len(), Holdings::TREES_MAX);
        let lie = Keeps { trees: Some(format!("{HASH},\u{1b}[2J,../x,")), ..Keeps::default() };
        let lie = lie.holdings().unwrap();
        assert_eq!(lie, Holdings { trees: kept.trees, ..Holdings::default() });
    }

    #[test]
    fn bodies_about_files() {
        check("tickets-for", &TicketsFor { blobs: vec![text(HASH)] });
        check("tickets", &Tickets { tickets: vec![Some(text("1700000000..00")), None] });
        let blobs = vec![Blob { sha256: text(HASH), size_bytes: 9 }];
        check("outputs", &Outputs { attempt: text("a"), blobs, direct: false });
        check(
            "missing",
            &Missing { missing: vec![Arrived { sha256: text(HASH), arrived_bytes: 4, direct: None }] },
        );
        let part = DirectPart {
            url: text("https://bucket.example/incoming/a/b?signature"),
            headers: vec![(text("x-amz-checksum-sha256"), text("value"))],
            offset_bytes: 0,
            size_bytes: 4,
        };
        let direct = Some(Direct { id: Some(text("id")), parts: vec![part] });
        check(
            "missing-direct",
            &Missing { missing: vec![Arrived { sha256: text(HASH), arrived_bytes: 0, direct }] },
        );
        let etags = vec![text("etag")];
        check("uploaded", &Uploaded { attempt: text("a"), size_bytes: 4, id: Some(text("id")), etags });
        check("refused", &Refused::because("no build of this worker names it"));
        let elsewhere = Refused::because("https://two:7878 has the run");
        check("refused-elsewhere", &Refused { leader: Some(text("https://two:7878")), ..elsewhere });
        check(
            "refused-offset",
            &Refused { arrived_bytes: Some(4), ..Refused::because("4 bytes have arrived") },
        );
    }

    /// Bodies of programs from before fields were added.
    #[test]
    fn earlier_bodies_are_read() {
        let began: Began = serde_json::from_str(r#"{"session":"s"}"#).unwrap();
        assert!(began.encodings.is_empty());
        let proof = r#"{"worker":"w","challenge":"c","proof":"p"}"#;
        assert_eq!(serde_json::from_str::<Proof>(proof).unwrap().about, About::default());
        assert_eq!(serde_json::from_str::<Refused>(r#"{"error":"no"}"#).unwrap().arrived_bytes, None);
    }

    #[test]
    fn the_description_of_all_requests() {
        let document = openapi();
        golden("openapi", &document);
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        // Everything but joining needs a session.
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, request) in item.as_object().unwrap() {
                let is_open = ["/v1/join", "/v1/challenge", "/v1/session"].contains(&path.as_str());
                assert_eq!(request.get("security").is_none(), is_open, "{method} {path}");
            }
        }
    }
}
