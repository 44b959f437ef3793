//! Headers of every answer.

use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::Response;

/// Nothing inline, nothing evaluated, nothing from or to another site.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// Headers that no handler changes. `same-origin` as referrer policy: with `no-referrer`, browsers
/// send `Origin: null` with our own forms.
const FIXED: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Headers for answers that do not state their own.
const DEFAULT: [(HeaderName, &str); 2] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::CACHE_CONTROL, "no-store"),
];

/// Adds the headers to an answer.
pub(crate) async fn add(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in DEFAULT {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
