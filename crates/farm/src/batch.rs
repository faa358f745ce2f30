//! Small files in one body: the hash of each as 32 bytes, its size as 4 bytes, the most significant first, and its content.

use crate::api::{BATCHED_BYTES_MAX, BLOBS_MAX};
use kilnyard_model::sha256::Sha256Hex;

/// The bytes before a content.
const HEAD: usize = 36;

/// Adds a file.
pub fn add(body: &mut Vec<u8>, sha256: &Sha256Hex, content: &[u8]) {
    let hash = crate::from_hex::<32>(sha256.as_str()).unwrap_or_default();
    body.extend(hash);
    body.extend((content.len() as u32).to_be_bytes());
    body.extend(content);
}

/// The files of a body.
///
/// # Errors
/// It is not of that form: a clause.
pub fn read(mut body: &[u8]) -> Result<Vec<(Sha256Hex, &[u8])>, String> {
    let mut files = Vec::new();
    while !body.is_empty() {
        let Some((head, rest)) = body.split_at_checked(HEAD) else {
            return Err("the batch ends early".to_owned());
        };
        let (hash, size) = head.split_at(32);
        let size = size.try_into().map_or(u32::MAX, u32::from_be_bytes);
        if u64::from(size) > BATCHED_BYTES_MAX || files.len() >= BLOBS_MAX {
            return Err(format!("a batch has at most {BLOBS_MAX} files of {BATCHED_BYTES_MAX} bytes"));
        }
        let content = rest.split_at_checked(size as usize);
        let (content, after) = content.ok_or_else(|| "the batch ends early".to_owned())?;
        let sha256 = Sha256Hex::parse(&crate::hex(hash)).map_err(|error| error.to_string())?;
        files.push((sha256, content));
        body = after;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_was_added_or_nothing() {
        let mut body = Vec::new();
        for content in [&b"one"[..], b"", b"three"] {
            add(&mut body, &Sha256Hex::of(content), content);
        }
        let files = read(&body).unwrap();
        let contents: Vec<&[u8]> = files.iter().map(|(_, content)| *content).collect();
        assert_eq!(contents, [&b"one"[..], b"", b"three"]);
        assert!(files.iter().all(|(sha256, content)| *sha256 == Sha256Hex::of(content)));
        assert_eq!(read(b"").unwrap().len(), 0);
        for cut in [1, 35, 36, 38, body.len() - 1] {
            assert!(read(&body[..cut]).is_err(), "{cut}");
        }
        let mut large = body.clone();
        large[32..36].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(read(&large).unwrap_err().contains("at most"));
        let empty = &body[HEAD + 3..2 * HEAD + 3];
        assert!(read(&empty.repeat(BLOBS_MAX)).is_ok() && read(&empty.repeat(BLOBS_MAX + 1)).is_err());
    }
}
