//! Times publications of many entries: all new, then one changed, then none changed.
//!
//! `cargo run --release --example publish_many -- 2000`

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kilnyard_publish::{BinaryEntry, ReleaseFacts, Signatures, Signer, SignerError, ToSign, plan};
use sha2::{Digest, Sha256};

/// Signing takes the same time for any repository and is not part of the measurement.
struct NoSigner;

impl Signer for NoSigner {
    fn sign(&self, _: &ToSign<'_>) -> Result<Signatures, SignerError> {
        Ok(Signatures { clear: Some(String::new()), detached: String::new() })
    }

    fn public_armored(&self) -> Result<String, SignerError> {
        Ok(String::new())
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry with a stanza of typical length whose text does not repeat.
fn entry(files: &Path, number: usize, version: usize) -> std::io::Result<BinaryEntry> {
    let name = format!("package-{number}");
    let file = files.join(format!("{name}_{version}_amd64.deb"));
    let content = format!("{name} {version}");
    fs::write(&file, &content)?;
    let words: Vec<String> =
        (0..8).map(|word| sha256(format!("{number}.{word}").as_bytes())[..10].to_owned()).collect();
    let dependencies: Vec<String> =
        (1..8).map(|step| format!("package-{} (>= 1.{}~)", number * step % 2000, number % 97)).collect();
    let stanza = format!(
        "Package: {name}\nSource: source-{}\nVersion: 1.{version}-1\nArchitecture: amd64\nInstalled-Size: {}\n\
         Maintainer: The Yard <yard@example.org>\nDepends: {}\nSection: devel\nPriority: optional\n\
         Homepage: https://example.org/{name}\nDescription: {}\n {}\n .\n This package is number {number} of many, and \
         this line is as long as such lines\n commonly are, so that the index has its usual size.\n",
        number / 3,
        number * 37 % 9000,
        dependencies.join(", "),
        words[..3].join(" "),
        words[3..].join(" "),
    );
    Ok(BinaryEntry {
        stanza,
        pool_path: format!("pool/main/p/{name}/{name}_{version}_amd64.deb"),
        file,
        sha256: sha256(content.as_bytes()),
        size_bytes: content.len() as u64,
        architecture: "amd64".into(),
        component: "main".into(),
        index: kilnyard_publish::BinaryIndex::Machine,
    })
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(2000), |count| count.parse())?;
    let directory = tempfile::tempdir()?;
    let (files, repository) = (directory.path().join("files"), directory.path().join("repository"));
    fs::create_dir(&files)?;
    let facts = ReleaseFacts {
        origin: "Yard".into(),
        label: "Yard".into(),
        suite: "stable".into(),
        codename: "kiln".into(),
        description: String::new(),
        architectures: vec!["amd64".into()],
        components: vec!["main".into()],
        date_seconds: 1_700_000_000,
        valid_until_seconds: None,
    };
    let mut entries = (0..count).map(|number| entry(&files, number, 1)).collect::<Result<Vec<_>, _>>()?;
    for what in ["all new", "one changed", "another changed", "none changed"] {
        if what == "one changed" || what == "another changed" {
            entries[count / 2] = entry(&files, count / 2, 2 + what.len())?;
        }
        let (begin, begin_cpu) = (Instant::now(), cpu());
        let publication = plan(&repository, &facts, &entries, &[], "")?;
        let (planned, planned_cpu) = (begin.elapsed(), cpu() - begin_cpu);
        publication.execute(&NoSigner)?;
        println!(
            "{what}: plan {planned:.0?} (cpu {planned_cpu:.0?}), all {:.0?} (cpu {:.0?}), {} steps",
            begin.elapsed(),
            cpu() - begin_cpu,
            publication.operations().len()
        );
    }
    for name in ["Packages", "Packages.xz", "Packages.zst"] {
        let size = fs::metadata(repository.join("dists/kiln/main/binary-amd64").join(name))?.len();
        println!("{name}: {size} bytes");
    }
    Ok(())
}
