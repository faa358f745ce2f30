//! Storing the outputs of a build: only those that are missing, and only the rest of what was interrupted.

use super::{Client, ClientError, broken, judged, sent};
use crate::api::{BLOBS_MAX, BatchFor, Blob, Direct, For, Missing, Outputs, Refused};
use crate::batch;
use kilnyard_model::sha256::Sha256Hex;
use reqwest::StatusCode;
use reqwest::blocking::Body;
use std::collections::HashMap;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The most files that are sent at once. The door takes 16 of a worker, which has several builds.
const UPLOADS_MAX: usize = 4;

/// Files up to this size, in bytes, are sent many in a request, of about the other size.
const SMALL_BYTES: u64 = 256 << 10;
const PARCEL_BYTES: u64 = 2 << 20;

/// A file, its hash, and the number of bytes of it that have arrived.
#[derive(Clone, Copy)]
struct Rest<'a> {
    sha256: &'a Sha256Hex,
    path: &'a Path,
    offset: u64,
}

/// What is sent in one piece.
enum Parcel<'a> {
    /// A file, here or to the store that machines share.
    One(Rest<'a>, Option<Direct>),
    /// Small files in one request.
    Batch(Vec<Rest<'a>>),
}

/// Joins small files of which nothing has arrived, as far as they go to the door.
fn parcels<'a>(missing: Vec<(Rest<'a>, Option<Direct>)>) -> Result<Vec<Parcel<'a>>, ClientError> {
    let (mut parcels, mut batch, mut batch_bytes) = (Vec::new(), Vec::new(), 0);
    for (rest, direct) in missing {
        let size_bytes = fs_err::metadata(rest.path)?.len();
        if size_bytes > SMALL_BYTES || rest.offset > 0 || direct.is_some() {
            parcels.push(Parcel::One(rest, direct));
            continue;
        }
        if batch_bytes + size_bytes > PARCEL_BYTES {
            parcels.push(Parcel::Batch(std::mem::take(&mut batch)));
            batch_bytes = 0;
        }
        batch.push(rest);
        batch_bytes += size_bytes;
    }
    match batch.len() {
        0 => {}
        1 => parcels.extend(batch.pop().map(|rest| Parcel::One(rest, None))),
        _ => parcels.push(Parcel::Batch(batch)),
    }
    Ok(parcels)
}

impl Client {
    /// Stores a file under its hash, for a build.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn store(&self, attempt: &str, sha256: &Sha256Hex, path: &Path) -> Result<(), ClientError> {
        self.store_all(attempt, &[(sha256.clone(), path.to_owned())])
    }

    /// Stores files under their hashes, for a build: those that the door asks for, several at once. An upload whose
    /// connection breaks continues where it stopped, now or when this is called again.
    ///
    /// # Errors
    /// See [`ClientError`]. The error of one file ends the others too, when those that are being sent have arrived; what has
    /// arrived is not sent again.
    pub fn store_all(&self, attempt: &str, files: &[(Sha256Hex, PathBuf)]) -> Result<(), ClientError> {
        for files in files.chunks(BLOBS_MAX) {
            let parcels = parcels(self.missing(attempt, files)?)?;
            let count = parcels.len().min(UPLOADS_MAX);
            let queue = Mutex::new(parcels.into_iter());
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let work = || {
                while let Some(parcel) = next() {
                    self.send_parcel(attempt, parcel).inspect_err(|_| while next().is_some() {})?;
                }
                Ok(())
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
                let stopped = |_| Err(ClientError::Failed("a thread of the upload panicked".to_owned()));
                let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(stopped));
                let failed: Vec<ClientError> = ended.filter_map(Result::err).collect();
                // A refusal counts most: repeating it does not help.
                failed.into_iter().min_by_key(ClientError::is_passing).map_or(Ok(()), Err)
            })?;
        }
        Ok(())
    }

    fn send_parcel(&self, attempt: &str, parcel: Parcel<'_>) -> Result<(), ClientError> {
        match parcel {
            Parcel::One(rest, direct) => match direct {
                Some(direct) if self.upload_directly(attempt, (rest.sha256, rest.path), &direct)? => Ok(()),
                _ => self.upload(attempt, rest),
            },
            Parcel::Batch(files) => match self.send_batch(attempt, &files) {
                // A door from before there were batches; or a file has changed, which its own upload says.
                Err(ClientError::Refused(_)) => files.iter().try_for_each(|rest| self.upload(attempt, *rest)),
                sent => sent,
            },
        }
    }

    /// Sends small files in one request.
    fn send_batch(&self, attempt: &str, files: &[Rest<'_>]) -> Result<(), ClientError> {
        let mut body = Vec::new();
        for rest in files {
            batch::add(&mut body, rest.sha256, &fs_err::read(rest.path)?);
        }
        let of = BatchFor { attempt: attempt.to_owned() };
        let url = self.at("/v1/blobs/batch");
        let request = || self.http.post(url.clone()).query(&of).body(body.clone());
        self.in_session(&request).map(drop)
    }

    /// Asks the door which of these files are missing. One from before it could be asked gets all of them.
    fn missing<'a>(
        &self,
        attempt: &str,
        files: &'a [(Sha256Hex, PathBuf)],
    ) -> Result<Vec<(Rest<'a>, Option<Direct>)>, ClientError> {
        let mut blobs = Vec::new();
        for (sha256, path) in files {
            blobs.push(Blob { sha256: sha256.to_string(), size_bytes: fs_err::metadata(path)?.len() });
        }
        let outputs = Outputs { attempt: attempt.to_owned(), blobs, direct: self.outside.is_some() };
        let url = self.at("/v1/blobs");
        let answer =
            self.answer(&|| self.http.post(url.clone()).timeout(super::SILENT_MAX).json(&outputs), sent)?;
        let whole = |(sha256, path): &'a (Sha256Hex, PathBuf)| Rest { sha256, path, offset: 0 };
        // Each file once, even if it has several names.
        let mut whole: HashMap<&str, Rest<'a>> =
            files.iter().map(|file| (file.0.as_str(), whole(file))).collect();
        if [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&answer.status()) {
            return Ok(whole.into_values().map(|rest| (rest, None)).collect());
        }
        let missing: Missing = judged(answer)?.json().map_err(broken)?;
        let rest = missing.missing.into_iter().filter_map(|arrived| {
            let rest = Rest { offset: arrived.arrived_bytes, ..whole.remove(arrived.sha256.as_str())? };
            Some((rest, arrived.direct))
        });
        Ok(rest.collect())
    }

    /// Sends the rest of a file. If the connection breaks, it asks what has arrived, and continues there, as long as each
    /// try but one brings the end closer.
    fn upload(&self, attempt: &str, rest: Rest<'_>) -> Result<(), ClientError> {
        let file = [(rest.sha256.clone(), rest.path.to_owned())];
        let (mut offset, mut may_stop) = (rest.offset, true);
        loop {
            let (next, error) = match self.send_rest(attempt, Rest { offset, ..rest }) {
                Ok(None) => return Ok(()),
                Ok(Some(arrived_bytes)) => {
                    let reason = "the door has less of the file than it said";
                    (arrived_bytes, ClientError::Failed(reason.to_owned()))
                }
                Err(error) if error.is_passing() => match self.missing(attempt, &file)?.first() {
                    None => return Ok(()),
                    Some((rest, _)) => (rest.offset, error),
                },
                Err(error) => return Err(error),
            };
            if next <= offset && !std::mem::replace(&mut may_stop, false) {
                return Err(error);
            }
            offset = next;
        }
    }

    /// Sends the rest of a file, once. Returns the number of bytes that have arrived, if it is less than the offset.
    fn send_rest(&self, attempt: &str, rest: Rest<'_>) -> Result<Option<u64>, ClientError> {
        let Rest { sha256, path, offset } = rest;
        let of = For { attempt: attempt.to_owned(), offset: Some(offset) };
        let url = self.at(&format!("/v1/blobs/{sha256}"));
        let open = || -> io::Result<Body> {
            let mut file = fs_err::File::open(path)?;
            let rest_bytes = file.metadata()?.len().saturating_sub(offset);
            file.seek(io::SeekFrom::Start(offset))?;
            Ok(Body::sized(file, rest_bytes))
        };
        // Errors of the file show when it is read: first here.
        open()?;
        let request =
            || self.http.put(url.clone()).query(&of).body(open().unwrap_or_else(|_| Body::from("")));
        // Not repeated at once: part of it may have arrived.
        let answer = self.answer(&request, |request| request().send().map_err(broken))?;
        if answer.status() != StatusCode::CONFLICT {
            return judged(answer).map(|_| None);
        }
        let refused: Refused = answer.json().map_err(broken)?;
        refused.arrived_bytes.map(Some).ok_or(ClientError::Refused(refused.error))
    }
}
