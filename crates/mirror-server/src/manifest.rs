//! Manifests in the format of tooltool: a JSON list of files, each with its name, size and digest.

use crate::expected::{Expected, FileDigest};
use crate::route::Manifests;
use kilnyard_model::sha256::Sha256Hex;
use serde::Deserialize;
use std::io;
use std::path::Path;

/// A file of a manifest. Further fields say what is done with it afterwards.
#[derive(Deserialize)]
struct Listed {
    size: u64,
    algorithm: String,
    digest: String,
}

/// Adds the files of a manifest, by the path that clients ask for: `ALGORITHM/DIGEST`.
///
/// # Errors
/// It cannot be read.
pub fn add(manifests: &mut Manifests, path: &Path) -> io::Result<()> {
    let failed = |reason: String| io::Error::other(format!("{}: {reason}", path.display()));
    let listed: Vec<Listed> =
        serde_json::from_slice(&fs_err::read(path)?).map_err(|error| failed(error.to_string()))?;
    for Listed { size, algorithm, digest } in listed {
        let parsed = match algorithm.as_str() {
            "sha512" => FileDigest::sha512(&digest),
            "sha256" => Sha256Hex::parse(&digest).ok().map(FileDigest::Sha256),
            _ => return Err(failed(format!("{algorithm} is neither sha512 nor sha256"))),
        };
        let parsed = parsed.ok_or_else(|| failed(format!("{digest} is not a digest of {algorithm}")))?;
        let key = format!("{algorithm}/{}", digest.to_ascii_lowercase());
        manifests.insert(key, Expected { digest: parsed, size: Some(size) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_and_mistakes_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("releng.manifest");
        let digest = "A".repeat(128);
        let text = format!(
            "[{{\"filename\":\"gcc.tar.xz\",\"size\":3,\"algorithm\":\"sha512\",\"digest\":\"{digest}\",\"unpack\":true,\"visibility\":\"public\"}}]"
        );
        fs_err::write(&path, &text).unwrap();
        let mut manifests = Manifests::new();
        add(&mut manifests, &path).unwrap();
        let found = manifests.get(&format!("sha512/{}", "a".repeat(128))).unwrap();
        assert_eq!(found.size, Some(3));
        for (from, to, says) in
            [("sha512", "md5", "md5 is neither"), ("\"A", "\"x", "is not a digest"), ("[", "{", "expected")]
        {
            fs_err::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = add(&mut manifests, &path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
