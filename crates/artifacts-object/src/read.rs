//! Reads an object, and resumes where the connection broke.

use crate::Bucket;
use crate::failure::Failure;
use crate::link::Link;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path as Name;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that one task collects: a task for each piece from the network would cost more than the piece.
const CHUNK_BYTES: usize = 256 << 10;
/// The pause before a download is resumed.
const PAUSE: Duration = Duration::from_millis(200);

type Chunks = BoxStream<'static, object_store::Result<Vec<u8>>>;

/// The content of an object.
pub(crate) struct Reader {
    link: Arc<Link>,
    objects: Arc<dyn ObjectStore>,
    name: Name,
    /// Reads after "failed to", with the name of the bucket.
    action: String,
    secrets: Vec<String>,
    patience: Duration,
    size_bytes: u64,
    /// How much of it is in `chunk` or was read.
    at: u64,
    /// Absent after the connection broke.
    chunks: Option<Chunks>,
    chunk: Vec<u8>,
    /// How much of `chunk` was read.
    used: usize,
}

impl Reader {
    pub fn open(bucket: &Bucket, name: Name, action: String) -> Result<Reader, Failure> {
        let objects = bucket.backend.objects.clone();
        let patience = bucket.patience();
        let got = get(&bucket.link, patience, objects.clone(), name.clone(), None)?;
        Ok(Reader {
            link: bucket.link.clone(),
            objects,
            name,
            action,
            secrets: bucket.address.secrets(),
            patience,
            size_bytes: got.meta.size,
            at: 0,
            chunks: Some(chunks(got)),
            chunk: Vec::new(),
            used: 0,
        })
    }

    /// Gets more, which is empty only at the end.
    fn more(&mut self) -> Result<Vec<u8>, Failure> {
        let end = Instant::now() + self.patience;
        loop {
            let limit = end.saturating_duration_since(Instant::now()).min(self.patience / 2);
            let failure = match self.try_more(limit.max(PAUSE)) {
                Ok(chunk) => return Ok(chunk),
                Err(failure) => failure,
            };
            // An answer that says no is final; anything else may be different over another connection.
            if failure.is_absent() || failure.is_refusal() || Instant::now() + PAUSE >= end {
                return Err(failure);
            }
            self.chunks = None;
            std::thread::sleep(PAUSE);
        }
    }

    fn try_more(&mut self, limit: Duration) -> Result<Vec<u8>, Failure> {
        if self.at == self.size_bytes {
            return Ok(Vec::new());
        }
        let mut stream = match self.chunks.take() {
            Some(stream) => stream,
            None => {
                let range = GetRange::Bounded(self.at..self.size_bytes);
                let got = get(&self.link, limit, self.objects.clone(), self.name.clone(), Some(range))?;
                if got.meta.size != self.size_bytes {
                    return Err(Failure::Content(
                        "the object was replaced by one of another size".to_owned(),
                    ));
                }
                chunks(got)
            }
        };
        let (rest, chunk) = self.link.wait(limit, async move {
            let mut chunk = Vec::new();
            while chunk.len() < CHUNK_BYTES {
                match stream.next().await {
                    None => return Ok((None, chunk)),
                    Some(Ok(piece)) if chunk.is_empty() => chunk = piece,
                    Some(Ok(piece)) => chunk.extend_from_slice(&piece),
                    // What came before the failure counts; the stream itself is at its end.
                    Some(Err(_)) if !chunk.is_empty() => return Ok((None, chunk)),
                    Some(Err(error)) => return Err(error),
                }
            }
            Ok((Some(stream), chunk))
        })?;
        self.chunks = rest;
        let at = self.at + chunk.len() as u64;
        if at > self.size_bytes {
            return Err(Failure::Content("the server sent more than the object's size".to_owned()));
        }
        if chunk.is_empty() {
            return Err(Failure::Content("the download ended early".to_owned()));
        }
        self.at = at;
        Ok(chunk)
    }
}

fn get(
    link: &Link,
    limit: Duration,
    objects: Arc<dyn ObjectStore>,
    name: Name,
    range: Option<GetRange>,
) -> Result<GetResult, Failure> {
    link.wait(
        limit,
        async move { objects.get_opts(&name, GetOptions { range, ..GetOptions::default() }).await },
    )
}

fn chunks(got: GetResult) -> Chunks {
    got.into_stream().map(|piece| piece.map(|bytes| bytes.to_vec())).boxed()
}

impl Read for Reader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.used == self.chunk.len() {
            self.chunk = self.more().map_err(|failure| {
                let text = format!("failed to {}: {}", self.action, failure.words(&self.secrets));
                io::Error::new(failure.kind(), text)
            })?;
            self.used = 0;
        }
        let count = bytes.len().min(self.chunk.len() - self.used);
        bytes[..count].copy_from_slice(&self.chunk[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
