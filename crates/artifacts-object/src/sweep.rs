//! Removes what abandoned uploads left.

use crate::Bucket;
use crate::address::Place;
use crate::bucket::modified_seconds;
use crate::failure::Failure;
use futures_util::StreamExt;
use jiff::Timestamp;
use kilnyard_artifacts::ArtifactError;
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::path::Path as Name;
use object_store::signer::{Method, SignedUrlOptions};
use serde::Deserialize;
use std::time::Duration;

/// How long the URL of one request is valid.
const VALID: Duration = Duration::from_secs(300);
/// The longest answer that is read, in bytes: a thousand uploads have a megabyte.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What [`Bucket::sweep_incoming`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Uploads that were never adopted, and objects of examinations that were interrupted.
    pub objects: u64,
    /// Uploads in parts that were never finished, by other machines or by killed processes.
    pub uploads: u64,
}

/// The answer to a listing of uploads in parts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
    #[serde(default, rename = "Upload")]
    uploads: Vec<Unfinished>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Unfinished {
    key: String,
    upload_id: String,
    initiated: String,
}

impl Bucket {
    /// Removes uploads that began before this time, in seconds since 1970 by the server's clock: those that were not
    /// adopted, and on S3 those in parts that were not finished, artifacts' own too. It must be long ago: an upload may take
    /// as long as its URLs are valid. Google's storage needs a rule of the bucket for unfinished parts; Azure's removes them
    /// after a week.
    ///
    /// # Errors
    /// The server cannot be reached or refused a request. Some may have been removed.
    pub fn sweep_incoming(&self, before_seconds: f64) -> Result<Swept, ArtifactError> {
        self.sweep(before_seconds)
            .map_err(|failure| self.error("remove abandoned uploads".to_owned(), failure))
    }

    fn sweep(&self, before_seconds: f64) -> Result<Swept, Failure> {
        let mut swept = Swept::default();
        let mut old = Vec::new();
        for below in ["incoming", "examine"] {
            self.each_object(self.under(below), &mut |object| {
                if modified_seconds(object) < before_seconds {
                    old.push(object.location.clone());
                }
                true
            })?;
        }
        for name in old {
            self.delete(name)?;
            swept.objects += 1;
        }
        if matches!(self.address.place, Place::S3 { .. }) {
            for (name, id) in self.unfinished(before_seconds)? {
                self.abort(name, &id)?;
                swept.uploads += 1;
            }
        }
        Ok(swept)
    }

    /// Uploads in parts below the prefix that began before this time: names and ids.
    pub(crate) fn unfinished(&self, before_seconds: f64) -> Result<Vec<(Name, String)>, Failure> {
        let below: Vec<String> = ["incoming", "sha256", "examine"]
            .iter()
            .map(|folder| format!("{}/", self.under(folder)))
            .collect();
        let mut found = Vec::new();
        let mut markers = None;
        loop {
            let page = self.page(markers.as_ref())?;
            for upload in page.uploads {
                let began: Timestamp = upload.initiated.parse().map_err(|_| {
                    Failure::Content(format!("an upload has no readable time: {:?}", upload.initiated))
                })?;
                let is_ours = below.iter().any(|folder| upload.key.starts_with(folder));
                if is_ours && (began.as_millisecond() as f64) < before_seconds * 1000.0 {
                    found.push((Name::from(upload.key), upload.upload_id));
                }
            }
            let next = (page.next_key_marker, page.next_upload_id_marker);
            // A server that does not advance would be asked forever.
            if !page.is_truncated || markers.as_ref() == Some(&next) {
                return Ok(found);
            }
            markers = Some(next);
        }
    }

    /// Some servers ignore the prefix.
    fn page(&self, markers: Option<&(String, String)>) -> Result<Page, Failure> {
        let mut options = SignedUrlOptions::default().with_query([("uploads", "")]);
        if !self.address.prefix.is_empty() {
            options = options.with_query([("prefix", format!("{}/", self.address.prefix))]);
        }
        if let Some((key, id)) = markers {
            options = options.with_query([("key-marker", key), ("upload-id-marker", id)]);
        }
        let url = self.sign(Method::GET, Name::default(), VALID, options)?;
        let (status, text) = self.request(Method::GET, &url, &[], Vec::new())?;
        if status != 200 {
            return Err(answered(status, &text));
        }
        quick_xml::de::from_str(&text).map_err(|error| Failure::Content(format!("malformed answer: {error}")))
    }

    /// One request to a presigned URL: the status of its answer, and its text.
    pub(crate) fn request(
        &self,
        method: Method,
        url: &str,
        headers: &[(&'static str, String)],
        content: Vec<u8>,
    ) -> Result<(u16, String), Failure> {
        let mut request = HttpRequest::new(HttpRequestBody::from(content));
        *request.method_mut() = method;
        let malformed = |reason: String| Failure::Content(format!("malformed request: {reason}"));
        *request.uri_mut() = url.parse().map_err(|_| malformed("its address".to_owned()))?;
        for (name, value) in headers {
            let value = value.parse().map_err(|_| malformed(format!("its header {name}")))?;
            request.headers_mut().insert(*name, value);
        }
        let http = self.backend.http.clone();
        let (status, bytes) = self.link.wait(self.patience(), async move {
            let failed = |source| object_store::Error::Generic { store: "HTTP", source };
            let answer = http.execute(request).await.map_err(|error| failed(Box::new(error)))?;
            let status = answer.status().as_u16();
            let mut pieces = answer.into_body().bytes_stream();
            let mut bytes = Vec::new();
            while let Some(piece) = pieces.next().await {
                bytes.extend_from_slice(&piece.map_err(|error| failed(Box::new(error)))?);
                if bytes.len() > ANSWER_BYTES_MAX {
                    return Err(failed("the answer is too long".into()));
                }
            }
            Ok((status, bytes))
        })?;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// An answer that is an error, in the form of the library's errors.
pub(crate) fn answered(status: u16, text: &str) -> Failure {
    let text = format!("Server returned non-2xx status code: {status}: {text}");
    Failure::Store(object_store::Error::Generic { store: "HTTP", source: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_of_uploads_is_read() {
        let xml = r#"<?xml version="1.0"?><ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Bucket>b</Bucket><KeyMarker/><NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>n</NextUploadIdMarker>
            <IsTruncated>true</IsTruncated>
            <Upload><Key>a/b&amp;c</Key><UploadId>i</UploadId><Owner><ID>o</ID></Owner><Initiated>2026-11-26T16:00:00.000Z</Initiated></Upload>
            <Upload><Key>d</Key><UploadId>j</UploadId><Initiated>2026-11-26T16:00:01Z</Initiated></Upload>
            </ListMultipartUploadsResult>"#;
        let page: Page = quick_xml::de::from_str(xml).unwrap();
        assert!(page.is_truncated && page.next_key_marker == "k" && page.next_upload_id_marker == "n");
        let keys: Vec<&str> = page.uploads.iter().map(|upload| upload.key.as_str()).collect();
        assert_eq!(keys, ["a/b&c", "d"]);
        let empty: Page = quick_xml::de::from_str("<ListMultipartUploadsResult/>").unwrap();
        assert!(!empty.is_truncated && empty.uploads.is_empty());
    }
}
