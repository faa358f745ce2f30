//! Uploads by machines that are not trusted: presigned, to a name of their own, verified before they become artifacts.

use crate::Bucket;
use crate::address::Place;
use crate::failure::Failure;
use crate::send::part_bytes;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kilnyard_artifacts::{ArtifactError, Artifacts, Folder, Part, Storage, Upload, copy};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::sha256::Sha256Hex;
use object_store::multipart::PartId;
use object_store::path::Path as Name;
use object_store::signer::{HeaderName, HeaderValue, Method, SignedUrlOptions};
use std::io::Read;
use std::time::Duration;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 64;
/// Each part has a URL of some hundred bytes, in one message.
const PARTS_MAX: u64 = 1000;
/// The most that one request may store, in bytes; a part is one.
const WHOLE_BYTES_MAX: u64 = 5 << 30;
/// The longest `ETag`, in bytes: a hash and the number of parts, in most servers.
const ETAG_BYTES_MAX: usize = 1024;
/// The header of S3's protocol with the SHA-256 of a request's content.
pub(crate) const CHECKSUM: &str = "x-amz-checksum-sha256";

impl Bucket {
    /// Lets a machine upload content of this hash and size, in bytes, for a time up to a week. Only [`Bucket::adopt`] with
    /// the same token makes it an artifact. The token is 1 to 64 of `A-Z a-z 0-9 - _`; each upload by another machine needs
    /// another one. A `Whole` may be sent again until its time is over, an upload in parts is closed when it is finished.
    ///
    /// # Errors
    /// The token or the time cannot be used, the content is too large (more than 5 GiB, on S3 5000 GiB), or the
    /// server cannot be reached.
    pub fn upload(
        &self,
        token: &str,
        sha256: &Sha256Hex,
        size_bytes: u64,
        valid: Duration,
    ) -> Result<Upload, ArtifactError> {
        let action = format!("begin an upload of artifact {sha256}");
        let name = self.incoming(token, sha256, &action)?;
        let refused = |failure| self.error(action.clone(), failure);
        let is_s3 = matches!(self.address.place, Place::S3 { .. });
        let size_bytes_max = if is_s3 { WHOLE_BYTES_MAX * PARTS_MAX } else { WHOLE_BYTES_MAX };
        if size_bytes > size_bytes_max {
            let reason = format!("its size is more than {} GiB", size_bytes_max >> 30);
            return Err(self.invalid(&action, &reason));
        }
        if is_s3 && size_bytes >= self.address.options.part_bytes as u64 {
            return self.upload_parts(name, size_bytes, valid).map_err(refused);
        }
        let headers = match &self.address.place {
            Place::S3 { .. } => vec![(CHECKSUM, checksum(sha256))],
            Place::Google { .. } => Vec::new(),
            Place::Azure { .. } => vec![("x-ms-blob-type", "BlockBlob".to_owned())],
        };
        let mut options = SignedUrlOptions::default();
        if is_s3 {
            options = signed_headers(&headers).map_err(refused)?;
        }
        let url = self.sign(Method::PUT, name, valid, options).map_err(refused)?;
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Upload::Whole { url, headers })
    }

    fn upload_parts(&self, name: Name, size_bytes: u64, valid: Duration) -> Result<Upload, Failure> {
        let part_bytes = part_bytes(self.address.options.part_bytes, size_bytes, PARTS_MAX) as u64;
        let (store, target) = (self.backend.plain_parts.clone(), name.clone());
        let id = self.link.wait(self.patience(), async move { store.create_multipart(&target).await })?;
        let part = |index: u64| {
            let offset_bytes = index * part_bytes;
            let query = [("partNumber", (index + 1).to_string()), ("uploadId", id.clone())];
            let options = SignedUrlOptions::default().with_query(query);
            let url = self.sign(Method::PUT, name.clone(), valid, options)?;
            let size_bytes = part_bytes.min(size_bytes - offset_bytes);
            Ok(Part { url, headers: Vec::new(), offset_bytes, size_bytes })
        };
        match (0..size_bytes.div_ceil(part_bytes)).map(part).collect() {
            Ok(parts) => Ok(Upload::Parts { id, part_bytes, parts }),
            Err(failure) => {
                // What cannot be removed now is removed by `sweep_incoming`.
                let _ = self.abort(name, &id);
                Err(failure)
            }
        }
    }

    /// Joins the parts of an upload, when all were sent. `etags` are the `ETag` headers of the answers, in the order of the
    /// parts. The upload can be adopted then.
    ///
    /// # Errors
    /// A part is missing or too small, there is no such upload, or the server cannot be reached.
    pub fn finish_parts(
        &self,
        token: &str,
        sha256: &Sha256Hex,
        id: &str,
        etags: &[String],
    ) -> Result<(), ArtifactError> {
        let action = format!("finish the upload of artifact {sha256}");
        let name = self.incoming(token, sha256, &action)?;
        if etags.is_empty() || etags.len() as u64 > PARTS_MAX {
            return Err(self.invalid(&action, "the number of its parts is not between 1 and 1000"));
        }
        if etags.iter().any(|etag| etag.is_empty() || etag.len() > ETAG_BYTES_MAX) {
            return Err(self.invalid(&action, "the tag of a part is empty or too long"));
        }
        let (parts, target, id) = (self.backend.plain_parts.clone(), name.clone(), id.to_owned());
        let sent = etags.iter().map(|etag| PartId { content_id: etag.clone() }).collect();
        // Some servers copy the parts, whose size is not known here.
        let limit = self.patience() * 10;
        let joined = self.link.wait(limit, async move { parts.complete_multipart(&target, &id, sent).await });
        match joined {
            Ok(_) => Ok(()),
            // It was finished before, and only the answer was lost.
            Err(failure) if failure.is_absent() => match self.size_of(name) {
                Ok(Some(_)) => Ok(()),
                _ => Err(self.error(action, failure)),
            },
            Err(failure) => Err(self.error(action, failure)),
        }
    }

    /// Removes an upload in parts that was not finished. One that does not exist is removed already.
    ///
    /// # Errors
    /// The server cannot be reached or refused the request.
    pub fn abort_parts(&self, token: &str, sha256: &Sha256Hex, id: &str) -> Result<(), ArtifactError> {
        let action = format!("remove the upload of artifact {sha256}");
        let name = self.incoming(token, sha256, &action)?;
        self.abort(name, id).map_err(|failure| self.error(action, failure))
    }

    pub(crate) fn abort(&self, name: Name, id: &str) -> Result<(), Failure> {
        let (parts, id) = (self.backend.plain_parts.clone(), id.to_owned());
        match self.link.wait(self.patience(), async move { parts.abort_multipart(&name, &id).await }) {
            Err(failure) if failure.is_absent() => Ok(()),
            outcome => outcome,
        }
    }

    /// Makes an upload an artifact, if it has the hash and the size in bytes that it should have. Its content is read into
    /// `into`, which keeps it, and sent from there: what was verified is what is stored. The upload is removed, also if it
    /// is wrong.
    ///
    /// If the bucket has the artifact already, that is read into `into`, and the upload is not read.
    ///
    /// # Errors
    /// [`ArtifactError::Missing`] if nothing was uploaded. [`ArtifactError::Differs`] or [`ArtifactError::Size`] if the
    /// upload is wrong, which is removed then. Otherwise the server cannot be reached or refused a request, or `into` cannot
    /// be written; the upload is still there then.
    pub fn adopt(
        &self,
        token: &str,
        sha256: &Sha256Hex,
        size_bytes: u64,
        into: &Folder,
    ) -> Result<(), ArtifactError> {
        let action = format!("adopt the upload of artifact {sha256}");
        let name = self.incoming(token, sha256, &action)?;
        let artifact = Artifact { sha256: sha256.clone(), size_bytes, media: Media::Bytes };
        if self.contains(sha256)? {
            copy(&artifact, self, into, Storage::Plain)?;
        } else {
            let incoming = Incoming { bucket: self, name: name.clone() };
            match copy(&artifact, &incoming, into, Storage::Plain) {
                Ok(()) => {}
                Err(wrong @ (ArtifactError::Differs { .. } | ArtifactError::Size { .. })) => {
                    // The caller must learn that it is wrong; what is left is removed by `sweep_incoming`.
                    let _ = self.delete(name);
                    return Err(wrong);
                }
                Err(error) => return Err(error),
            }
            self.send(&mut into.open(sha256)?, size_bytes, sha256)?;
        }
        self.delete(name).map_err(|failure| self.error(action, failure))
    }

    /// The name of an upload.
    fn incoming(&self, token: &str, sha256: &Sha256Hex, action: &str) -> Result<Name, ArtifactError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_plain) {
            return Err(self.invalid(action, "the token is not 1 to 64 of A-Z a-z 0-9 - _"));
        }
        Ok(self.under(&format!("incoming/{token}/{sha256}")))
    }
}

/// The only upload of a token, as a store that can be read.
struct Incoming<'a> {
    bucket: &'a Bucket,
    name: Name,
}

impl Artifacts for Incoming<'_> {
    fn contains(&self, sha256: &Sha256Hex) -> Result<bool, ArtifactError> {
        let size = self.bucket.size_of(self.name.clone());
        let size = size
            .map_err(|failure| self.bucket.error(format!("find the upload of artifact {sha256}"), failure))?;
        Ok(size.is_some())
    }

    fn open(&self, sha256: &Sha256Hex) -> Result<Box<dyn Read + Send + '_>, ArtifactError> {
        Ok(Box::new(self.bucket.reader(self.name.clone(), sha256)?))
    }

    fn insert(&self, _: &mut dyn Read, _: Storage) -> Result<(Sha256Hex, u64), ArtifactError> {
        Err(self.bucket.invalid("store an upload", "uploads are stored by other machines"))
    }
}

/// The value of [`CHECKSUM`].
pub(crate) fn checksum(sha256: &Sha256Hex) -> String {
    let digits = sha256.as_str().as_bytes();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
    BASE64_STANDARD.encode(bytes)
}

/// Headers that are part of a signature.
pub(crate) fn signed_headers(headers: &[(&'static str, String)]) -> Result<SignedUrlOptions, Failure> {
    headers.iter().try_fold(SignedUrlOptions::default(), |options, (name, value)| {
        let value = HeaderValue::from_str(value).map_err(|error| Failure::Content(error.to_string()))?;
        Ok(options.with_signed_header(HeaderName::from_static(name), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_nothing_is_as_published() {
        assert_eq!(checksum(&Sha256Hex::of(b"")), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn presigned_urls_are_not_printed() {
        let part = Part { url: "signed".to_owned(), headers: Vec::new(), offset_bytes: 0, size_bytes: 5 };
        let whole = Upload::Whole { url: "signed".to_owned(), headers: Vec::new() };
        let parts = Upload::Parts { id: "signed".to_owned(), part_bytes: 5, parts: vec![part.clone()] };
        let said = format!("{part:?} {whole:?} {parts:?}");
        assert!(!said.contains("signed"), "{said}");
    }
}
