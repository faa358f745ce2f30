//! Runs a bucket against real servers: S3Proxy, and versitygw if it is installed.

mod failures;
#[path = "../server/mod.rs"]
mod server;
mod stores;
mod uploads;

use kilnyard_artifacts_object::{Address, Bucket, Credentials, Options};
use kilnyard_model::sha256::Sha256Hex;
use libtest_mimic::{Arguments, Failed, Trial};
use server::{Kind, Server};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The least size of parts.
const PART_BYTES: usize = 5 << 20;

/// Started for the first trial that runs, and ended with the process.
type Shared = OnceLock<Result<Arc<Server>, String>>;
static S3PROXY: Shared = OnceLock::new();
static VERSITY: Shared = OnceLock::new();

/// A server, and a name for the buckets of one trial.
struct Stand {
    server: Arc<Server>,
    name: String,
}

impl Stand {
    fn options(&self) -> Options {
        let (key_id, secret) = (self.server.key_id.clone(), self.server.secret.clone());
        Options {
            endpoint: Some(self.server.endpoint()),
            credentials: Some(Credentials { key_id, secret, token: None }),
            allows_http: true,
            part_bytes: PART_BYTES,
            ..Options::default()
        }
    }

    /// The name of a bucket of this trial, which is made.
    fn place(&self, name: &str) -> String {
        let place = format!("{}-{name}", self.name);
        self.server.bucket(&place);
        place
    }

    /// A new bucket.
    fn bucket(&self, name: &str) -> Bucket {
        open(&self.place(name), self.options())
    }
}

/// Opens a bucket that exists, with a prefix.
fn open(place: &str, options: Options) -> Bucket {
    let address = Address::parse(&format!("s3://{place}/farm/one"), options).unwrap();
    Bucket::open(address, &std::env::temp_dir()).unwrap()
}

/// Content that is the same for the same seed, with its hash.
fn content(seed: u64, size_bytes: usize) -> (Vec<u8>, Sha256Hex) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let bytes: Vec<u8> = std::iter::repeat_with(next).take(size_bytes).collect();
    let sha256 = Sha256Hex::of(&bytes);
    (bytes, sha256)
}

type Test = fn(&Stand);

const TESTS: [(&str, Test); 19] = [
    ("the-suite-passes", stores::the_suite_passes),
    ("files-are-sent-in-parts", stores::files_are_sent_in_parts),
    ("a-file-of-another-hash-is-not-stored", stores::a_file_of_another_hash_is_not_stored),
    ("large-content-is-inserted", stores::large_content_is_inserted),
    ("many-are-listed", stores::many_are_listed),
    ("little-is-missing", stores::little_is_missing),
    ("a-presigned-read", uploads::a_presigned_read),
    ("a-presigned-upload", uploads::a_presigned_upload),
    ("a-presigned-upload-in-parts", uploads::a_presigned_upload_in_parts),
    ("wrong-uploads-are-not-adopted", uploads::wrong_uploads_are_not_adopted),
    ("abandoned-uploads-are-removed", uploads::abandoned_uploads_are_removed),
    ("arguments-are-checked", uploads::arguments_are_checked),
    ("a-broken-download-is-resumed", failures::a_broken_download_is_resumed),
    ("errors-name-the-bucket", failures::errors_name_the_bucket),
    ("a-server-is-silent", failures::a_server_is_silent),
    ("certificates-are-verified", failures::certificates_are_verified),
    ("a-server-is-away", failures::a_server_is_away),
    ("the-server-is-killed", failures::the_server_is_killed),
    ("the-client-is-killed", failures::the_client_is_killed),
];

fn main() {
    // A child of `the_client_is_killed`.
    if let [_, put, arguments @ ..] = &std::env::args().collect::<Vec<_>>()[..]
        && put == "put"
    {
        return failures::put(arguments);
    }
    let mut trials = Vec::new();
    for (kind, server) in [(Kind::S3Proxy, &S3PROXY), (Kind::Versity, &VERSITY)] {
        if let Err(reason) = kind.find() {
            match kind {
                Kind::S3Proxy => println!("skipped: {reason}"),
                Kind::Versity => println!("not run with versitygw, which is optional: {reason}"),
            }
            continue;
        }
        trials.extend(TESTS.iter().map(|(name, test)| {
            let name = format!("{}-{name}", format!("{kind:?}").to_lowercase());
            Trial::test(name.clone(), move || {
                let server = server.get_or_init(|| Server::start(kind).map(Arc::new));
                let server = server.clone().map_err(Failed::from)?;
                // Names of buckets have at most 63 characters.
                test(&Stand { server, name: name.chars().take(50).collect() });
                Ok(())
            })
        }));
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    for server in [&S3PROXY, &VERSITY] {
        if let Some(Ok(server)) = server.get() {
            server.end();
        }
    }
    conclusion.exit();
}

/// A temporary file with this content.
fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn patience(seconds: u64, options: Options) -> Options {
    Options { patience: Duration::from_secs(seconds), ..options }
}
