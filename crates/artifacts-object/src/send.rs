//! Sends content whose hash is known, in one request or in parts.

use crate::Bucket;
use crate::client::RATE_MIN;
use crate::failure::Failure;
use crate::link::Pending;
use kilnyard_artifacts::ArtifactError;
use kilnyard_model::sha256::Sha256Hex;
use object_store::multipart::PartId;
use object_store::path::Path as Name;
use object_store::{PutMode, PutPayload};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

/// S3 allows no more.
const PARTS_MAX: u64 = 10_000;
/// Parts that are sent at a time. They are in memory.
const FLYING_MAX: usize = 3;
/// The server joins parts at this rate at least, in bytes per second: some copy them.
const JOIN_RATE_MIN: u64 = 8 << 20;

impl Bucket {
    /// Stores a file, unless the bucket has the artifact. It is hashed while it is sent, and stored only if its content has
    /// this hash. Nothing may write to the file meanwhile.
    ///
    /// # Errors
    /// The content differs, the file cannot be read, or the server cannot be reached or refused the content. Nothing is
    /// stored then, unless only the last answer of the server was lost.
    pub fn put_file(&self, path: &Path, sha256: &Sha256Hex) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("read {}", path.display()), source);
        let mut file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        self.send(&mut file, size_bytes, sha256)
    }

    /// Stores a file again, so that the artifact is as new as one that was missing.
    pub(crate) fn renew_file(&self, path: &Path, sha256: &Sha256Hex) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("read {}", path.display()), source);
        let mut file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        self.send_anyway(&mut file, size_bytes, sha256, PutMode::Overwrite)
    }

    /// Stores content of any hash. What does not fit into a part is kept in an unnamed file until its hash is known.
    pub(crate) fn insert_by(
        &self,
        from: &mut dyn Read,
        spool: &Path,
    ) -> Result<(Sha256Hex, u64), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("read content for {self}"), source);
        let part_bytes = self.address.options.part_bytes;
        let mut first = read_part(from, part_bytes).map_err(failed)?;
        if first.len() < part_bytes {
            let (sha256, size_bytes) = (Sha256Hex::of(&first), first.len() as u64);
            self.send(&mut first.as_slice(), size_bytes, &sha256)?;
            return Ok((sha256, size_bytes));
        }
        let spooled = |source| ArtifactError::io(format!("write a file in {}", spool.display()), source);
        let mut file = tempfile::tempfile_in(spool).map_err(spooled)?;
        let mut hasher = Sha256::new();
        let mut size_bytes = 0;
        while !first.is_empty() {
            hasher.update(&first);
            size_bytes += first.len() as u64;
            file.write_all(&first).map_err(spooled)?;
            first = read_part(from, part_bytes).map_err(failed)?;
        }
        file.rewind().map_err(spooled)?;
        let sha256 = Sha256Hex::finish(hasher);
        self.send(&mut file, size_bytes, &sha256)?;
        Ok((sha256, size_bytes))
    }

    /// Stores content if it has this hash, unless the bucket has the artifact. The size, in bytes, only decides about the
    /// size of parts.
    pub(crate) fn send(
        &self,
        from: &mut dyn Read,
        size_bytes: u64,
        sha256: &Sha256Hex,
    ) -> Result<(), ArtifactError> {
        if self.size_bytes(sha256)?.is_some() {
            return Ok(());
        }
        self.send_anyway(from, size_bytes, sha256, PutMode::Create)
    }

    fn send_anyway(
        &self,
        from: &mut dyn Read,
        size_bytes: u64,
        sha256: &Sha256Hex,
        mode: PutMode,
    ) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::io(format!("read artifact {sha256}"), source);
        let refused = |failure| self.error(format!("store artifact {sha256}"), failure);
        let part_bytes = part_bytes(self.address.options.part_bytes, size_bytes, PARTS_MAX);
        let mut part = read_part(from, part_bytes).map_err(failed)?;
        let mut hasher = Sha256::new_with_prefix(&part);
        let differs = |found: Sha256Hex| match found == *sha256 {
            true => Ok(()),
            false => Err(ArtifactError::Differs { expected: sha256.clone(), found }),
        };
        if part.len() < part_bytes {
            differs(Sha256Hex::finish(hasher))?;
            return self.send_whole(self.name(sha256), part, mode).map_err(refused);
        }
        let mut parts = Parts::begin(self, self.name(sha256)).map_err(refused)?;
        while !part.is_empty() {
            parts.send(part).map_err(refused)?;
            part = read_part(from, part_bytes).map_err(failed)?;
            hasher.update(&part);
        }
        differs(Sha256Hex::finish(hasher))?;
        parts.finish().map_err(refused)
    }

    /// Sends content that is not under its name yet. If the name is taken meanwhile, that is as good.
    fn send_whole(&self, name: Name, content: Vec<u8>, mode: PutMode) -> Result<(), Failure> {
        let payload = PutPayload::from(content);
        let sent = self.put(name.clone(), payload.clone(), mode);
        match sent {
            Err(failure) if failure.is_present() => match self.size_of(name.clone())? {
                Some(_) => Ok(()),
                // Another writer had begun, and failed.
                None => self.put(name, payload, PutMode::Overwrite),
            },
            // The server has no conditional requests. The content under this name is always the same.
            Err(failure) if failure.is_unknown() => self.put(name, payload, PutMode::Overwrite),
            outcome => outcome,
        }
    }

    pub(crate) fn put(&self, name: Name, payload: PutPayload, mode: PutMode) -> Result<(), Failure> {
        let objects = self.backend.objects.clone();
        let limit = self.limit(payload.content_length());
        self.link.wait(limit, async move { objects.put_opts(&name, payload, mode.into()).await.map(drop) })
    }

    /// How long a request with this much content may take.
    fn limit(&self, content_bytes: usize) -> Duration {
        self.patience() + Duration::from_secs(content_bytes as u64 / RATE_MIN)
    }
}

/// The size of parts for content of a size, so that there are not too many. All in bytes.
pub(crate) fn part_bytes(least: usize, size_bytes: u64, parts_max: u64) -> usize {
    usize::try_from(size_bytes.div_ceil(parts_max)).unwrap_or(usize::MAX).max(least)
}

/// Reads this many bytes, or fewer at the end.
fn read_part(from: &mut dyn Read, part_bytes: usize) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    from.take(part_bytes as u64).read_to_end(&mut part)?;
    Ok(part)
}

/// An upload in parts. It is removed from the server when this is dropped before it is finished.
pub(crate) struct Parts<'a> {
    bucket: &'a Bucket,
    name: Name,
    id: String,
    flying: VecDeque<Pending<PartId>>,
    sent: Vec<PartId>,
    size_bytes: u64,
    is_finished: bool,
}

impl Parts<'_> {
    pub fn begin(bucket: &Bucket, name: Name) -> Result<Parts<'_>, Failure> {
        let (parts, target) = (bucket.backend.parts.clone(), name.clone());
        let id = bucket.link.wait(bucket.patience(), async move { parts.create_multipart(&target).await })?;
        let (flying, sent) = (VecDeque::new(), Vec::new());
        Ok(Parts { bucket, name, id, flying, sent, size_bytes: 0, is_finished: false })
    }

    /// Begins to send the next part, after waiting until fewer are being sent.
    pub fn send(&mut self, content: Vec<u8>) -> Result<(), Failure> {
        while self.flying.len() >= FLYING_MAX {
            self.land()?;
        }
        let (parts, name, id) = (self.bucket.backend.parts.clone(), self.name.clone(), self.id.clone());
        let index = self.sent.len() + self.flying.len();
        self.size_bytes += content.len() as u64;
        let limit = self.bucket.limit(content.len());
        let payload = PutPayload::from(content);
        let sends = async move { parts.put_part(&name, &id, index, payload).await };
        self.flying.push_back(self.bucket.link.begin(limit, sends));
        Ok(())
    }

    /// Waits for the first of the parts that are being sent.
    fn land(&mut self) -> Result<(), Failure> {
        if let Some(first) = self.flying.pop_front() {
            self.sent.push(first.wait()?);
        }
        Ok(())
    }

    /// Makes the parts an object.
    pub fn finish(mut self) -> Result<(), Failure> {
        while !self.flying.is_empty() {
            self.land()?;
        }
        let (parts, name, id) = (self.bucket.backend.parts.clone(), self.name.clone(), self.id.clone());
        let sent = std::mem::take(&mut self.sent);
        let limit = self.bucket.patience() + Duration::from_secs(self.size_bytes / JOIN_RATE_MIN);
        let outcome =
            self.bucket.link.wait(limit, async move { parts.complete_multipart(&name, &id, sent).await });
        match outcome {
            Ok(_) => self.is_finished = true,
            // The answer to a first try may have been lost: the upload is gone then, and the object is there.
            Err(failure) if failure.is_absent() => match self.bucket.size_of(self.name.clone())? {
                Some(_) => self.is_finished = true,
                None => return Err(failure),
            },
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // Cancelled first: a part that arrives after the removal would be kept by some servers.
        self.flying.clear();
        let (parts, name, id) = (self.bucket.backend.parts.clone(), self.name.clone(), self.id.clone());
        // What cannot be removed now is removed by `sweep_incoming`. The server may be away, and the call took its time.
        let _ = self
            .bucket
            .link
            .wait(self.bucket.patience() / 4, async move { parts.abort_multipart(&name, &id).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_too_many_parts() {
        assert_eq!(part_bytes(5, 40, 10), 5);
        assert_eq!(part_bytes(5, 50, 10), 5);
        assert_eq!(part_bytes(5, 51, 10), 6);
        assert_eq!(part_bytes(5, 0, 10), 5);
    }

    #[test]
    fn a_part_is_full_or_the_last() {
        let mut from = io::Cursor::new(vec![1; 25]);
        let sizes: Vec<usize> = (0..4).map(|_| read_part(&mut from, 10).unwrap().len()).collect();
        assert_eq!(sizes, [10, 10, 5, 0]);
    }
}
