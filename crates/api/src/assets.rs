//! The style sheet and the script of the pages. Their addresses have a hash of their content, so that browsers keep them.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The file at a path; absent if there is none.
pub(crate) fn find(path: &str) -> Option<Response> {
    let name = path.strip_prefix("/assets/")?;
    let asset = kilnyard_web::assets().into_iter().find(|asset| asset.name == name)?;
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Some((headers, asset.text).into_response())
}
