//! Sends the image of a yard.

use super::list::Lister;
use super::{COMPRESSION, CONTENT, DOCUMENT, Entry, Image};
use crate::error::{Context, Kind, Result};
use crate::yard::{Yard, fresh_since_seconds, store_error};
use kilnyard_artifacts::{ArtifactError, Depot};
use kilnyard_mirror::Sha256Hex;
use kilnyard_store_postgres::Documents;
use std::collections::HashSet;

/// Reads after "failed to".
const SENDING: &str = "send the image of the yard";

/// What was sent.
#[derive(Debug, Default)]
pub struct Sent {
    lister: Lister,
    image: Option<Image>,
}

impl Sent {
    /// Sends the image if it has changed, and the yard has not changed since the last call. Returns whether it was sent. `still`
    /// says whether this machine has the yard.
    ///
    /// # Errors
    /// A file cannot be read, or a store cannot be written.
    pub fn send(
        &mut self,
        yard: &Yard,
        documents: &Documents,
        depot: &dyn Depot,
        still: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        let listed = self.lister.list(yard, self.image.as_ref()).context(Kind::Machine, SENDING)?;
        let Some((image, contents)) = listed else { return Ok(false) };
        if self.image.as_ref() == Some(&image) {
            self.lister.sent();
            return Ok(false);
        }
        let known = documents.documents().map_err(store_error)?;
        let known: HashSet<&str> = known.iter().filter_map(|(name, _)| name.strip_prefix(CONTENT)).collect();
        let mut named = HashSet::new();
        for (path, entry) in &image.0 {
            let Entry::File { sha256, is_document, .. } = entry else { continue };
            if *is_document {
                named.insert(sha256.as_str());
                if let Some(content) = contents.get(sha256).filter(|_| !known.contains(sha256.as_str())) {
                    let name = format!("{CONTENT}{sha256}");
                    documents.save_document(&name, content).map_err(store_error)?;
                }
                continue;
            }
            let hash = Sha256Hex::parse(sha256).or_internal(SENDING)?;
            match depot.deposit(&yard.home.join(path), &hash, fresh_since_seconds()) {
                // It has changed: the next list shows that.
                Err(ArtifactError::Differs { .. }) => return Ok(false),
                deposited => deposited.context(Kind::Machine, SENDING)?,
            }
        }
        // Files may have taken long.
        if !still()? {
            return Ok(false);
        }
        let text = serde_json::to_vec(&image).or_internal(SENDING)?;
        let packed = zstd::encode_all(&text[..], COMPRESSION).or_internal(SENDING)?;
        documents.save_document(DOCUMENT, &packed).map_err(store_error)?;
        for name in known.into_iter().filter(|name| !named.contains(name)) {
            documents.remove_document(&format!("{CONTENT}{name}")).map_err(store_error)?;
        }
        self.image = Some(image);
        self.lister.sent();
        Ok(true)
    }
}
