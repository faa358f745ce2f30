//! Signing packages of a tree one by one: the whole way, compared with hashing them once.

use crate::child::{children_cpu_seconds, own_cpu_seconds};
use crate::debian::empty_yard;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::scratch::Scratch;
use crate::yard::store_error;
use crate::{BenchOptions, Trial, init, mirror};
use kilnyard_ecosystem::hash_of;
use kilnyard_ecosystem::pkgsrc::signed;
use kilnyard_family::pkgsrc::publish::builds::TreeCommits;
use kilnyard_family::pkgsrc::publish::signed::{BATCH, sign_missing};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::digests::{BLOCKS, PKG_HASH};
use kilnyard_model::order::Output;
use kilnyard_signer::message::{self, Ask, Build, BuildTexts, Built, PackageText, Question, VERSION};
use kilnyard_store::{Holder, OutputRow};
use kilnyard_yard::signing::{OWN_REPOSITORY, Signing};
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

/// The signatures of one second of the signer's CPU time that are the aim.
const PER_SECOND_MIN: f64 = 2000.0;

/// The packages of a whole tree, and their mean size: 3.5 GB.
const TREE: (usize, usize) = (30_000, 117_000);
/// The bytes that a signer gets for these that are the aim.
const SENT_BYTES_MAX: f64 = 10e6;

/// Runs the benchmark in a yard of its own.
pub fn measure(options: &BenchOptions, trial: &Trial<'_>) -> Result<Report> {
    let (packages, bytes) = (options.packages as usize, options.kib as usize * 1024);
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = empty_yard(&scratch, trial)?;
    init::make_key(&yard.home)?;
    let distfiles = mirror::open_files(&yard)?;
    trial.say(format!("writing {packages} packages"));
    let rows = (0..packages).map(|number| row(&distfiles, number, bytes)).collect::<Result<Vec<_>>>()?;
    let mut store = yard.store()?;
    store.lead(&Holder::named("benchmark")).map_err(store_error)?;
    let (mut whole, mut hashing, mut rate, mut wall) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        crate::check_interrupt()?;
        trial.say(format!("pair {pair} of {}", trial.pairs));
        let before = own_cpu_seconds();
        for row in &rows {
            hash(&distfiles, row)?;
        }
        hashing.push(own_cpu_seconds() - before);
        // A new signer, which has signed none of them, or the given one. Files are removed at the end: ext4 searches long for
        // the place of a new file after many were removed.
        for folder in ["signed", "state/signer"].iter().filter(|folder| yard.path(folder).exists()) {
            let aside = yard.path(&format!("{}-before-{pair}", folder.replace('/', "-")));
            fs_err::rename(yard.path(folder), aside).or_internal("set a folder aside")?;
        }
        if options.signer.is_none() {
            init::make_key(&yard.home)?;
        }
        let (own, children, started) = (own_cpu_seconds(), children_cpu_seconds(), Instant::now());
        let signing = match &options.signer {
            Some(folder) => Signing::open_folder(folder, OWN_REPOSITORY)?,
            None => Signing::open(&yard)?,
        };
        let refused = sign_missing(&yard, &*store, &distfiles, &signing, (&rows, &TreeCommits::default()))?;
        // Its CPU time counts once it has ended.
        drop(signing);
        let signer = children_cpu_seconds() - children;
        wall.push(started.elapsed().as_secs_f64());
        whole.push(own_cpu_seconds() - own + signer);
        rate.push(packages as f64 / signer);
        if !refused.is_empty() {
            return Err(Error::new(Kind::Internal, format!("the signer refused {}", refused[0].reason)));
        }
    }
    let ratio = ratios(&whole, &hashing);
    let rate = Series::new(
        "signed_per_cpu_second",
        "signatures in a CPU second of the signer",
        Unit::PerSecond,
        rate,
    );
    let sent = sent_bytes()? as f64;
    let wall_each = wall.iter().map(|seconds| packages as f64 / seconds).collect();
    let is_met = rate.median() >= PER_SECOND_MIN && sent <= SENT_BYTES_MAX;
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(packages));
    facts.insert("bytes".to_owned(), json!(bytes));
    Ok(Report {
        name: "signing",
        series: vec![
            Series::new("hashing_cpu_seconds", "SHA-512 of all packages, CPU", Unit::Seconds, hashing),
            Series::new("whole_cpu_seconds", "the whole way, CPU", Unit::Seconds, whole),
            Series::new("whole_wall_seconds", "the whole way, wall", Unit::Seconds, wall),
            Series::new("ratio", "CPU, the whole way / SHA-512", Unit::Ratio, ratio),
            rate,
            Series::new(
                "packages_per_second",
                "packages signed and written in a second",
                Unit::PerSecond,
                wall_each,
            ),
            Series::new("sent_bytes", "sent for 3.5 GB in 30,000 packages", Unit::Bytes, vec![sent]),
        ],
        facts,
        notes: vec![format!("{packages} packages of {} KiB, signed and written", options.kib)],
        target: format!(
            "{PER_SECOND_MIN} signatures in a CPU second of the signer, and {} MB for 30,000 packages",
            SENT_BYTES_MAX / 1e6
        ),
        is_met: Some(is_met),
    })
}

/// The bytes that a signer gets for the packages of a whole tree, of which only the digests matter.
fn sent_bytes() -> Result<u64> {
    let (count, size) = TREE;
    let mut sent = 0;
    for first in (0..count).step_by(BATCH) {
        let builds = (first..count.min(first + BATCH)).map(|number| {
            let name = format!("synthetic-{number:05}-1.0");
            let digest = |what: &str| hex(&Sha512::digest(format!("{name} {what}")));
            let blocks: Vec<String> =
                (0..size.div_ceil(signed::BLOCK_BYTES)).map(|block| digest(&block.to_string())).collect();
            let text = signed::text(&name, size as u64, &blocks);
            let (sha256, listed) = (digest("file")[..64].to_owned(), digest("text")[..64].to_owned());
            let built = Built { sha256, listed, header: None, files: None };
            let source = format!("bench/{name}");
            let build = Build {
                package: source.clone(),
                source,
                declared: vec![name.clone()],
                outputs: vec![built],
                statement: None,
            };
            BuildTexts { build, texts: vec![PackageText { text, file: format!("{name}.tgz") }] }
        });
        let ask = Ask::Packages { builds: builds.collect() };
        let question = Question { version: VERSION, repository: "yard".to_owned(), ask };
        let mut frame = Vec::new();
        message::write(&mut frame, &question).or_internal("measure a message")?;
        sent += frame.len() as u64;
    }
    Ok(sent)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digests that are kept of a package when it is adopted.
fn digests(name: &str, bytes: &[u8]) -> BTreeMap<String, String> {
    let mut reader = signed::HashingBlocks::new(bytes);
    // Reading from memory cannot fail.
    let _ = std::io::copy(&mut reader, &mut std::io::sink());
    let blocks = reader.finish();
    let text = signed::text(name, bytes.len() as u64, &blocks);
    BTreeMap::from([(BLOCKS.to_owned(), blocks.concat()), (PKG_HASH.to_owned(), hash_of(&text))])
}

/// Hashes a package once.
fn hash(distfiles: &FileStore, row: &OutputRow) -> Result<()> {
    let path = distfiles.path(&Sha256Hex::parse(&row.output.sha256).or_internal("read a package")?);
    let mut file = fs_err::File::open(path).or_internal("read a package")?;
    let (mut hash, mut part) = (Sha512::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut part).or_internal("read a package")? {
            0 => break,
            count => hash.update(&part[..count]),
        }
    }
    std::hint::black_box(hash.finalize());
    Ok(())
}

/// A package that was never built, and its file.
fn row(distfiles: &FileStore, number: usize, size: usize) -> Result<OutputRow> {
    let failed = "write the packages of the benchmark";
    let mut bytes = vec![0_u8; size];
    // Different in each, and not compressible: xorshift (Marsaglia, 2003).
    let mut state = number as u64 + 1;
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let sha256 = Sha256Hex::of(&bytes);
    let path = distfiles.path(&sha256);
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
    }
    fs_err::write(path, &bytes).context(Kind::Machine, failed)?;
    let name = format!("synthetic-{number:05}");
    Ok(OutputRow {
        package: format!("bench/{name}"),
        output: Output {
            file: format!("{name}-1.0.tgz"),
            version: "1.0".to_owned(),
            architecture: "x86_64".to_owned(),
            sha256: sha256.as_str().to_owned(),
            size_bytes: size as u64,
            content: String::new(),
            description: format!("PKGNAME={name}-1.0\nPKGPATH=bench/{name}\n"),
            digests: digests(&format!("{name}-1.0"), &bytes),
            name,
        },
    })
}
