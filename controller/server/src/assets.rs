//! Files that pages load: style sheets, scripts and the runtime of figures. Their addresses contain
//! their hash, so browsers keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const APP_STYLE: &str = include_str!("../assets/app.css");
const APP_SCRIPT: &str = include_str!("../assets/app.js");

/// An embedded file.
pub(crate) struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
    hash: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    const CSS: &str = "text/css; charset=utf-8";
    const JS: &str = "text/javascript; charset=utf-8";
    let files = [
        ("page.css", CSS, dwell_report::assets::STYLE),
        ("app.css", CSS, APP_STYLE),
        ("app.js", JS, APP_SCRIPT),
        ("page.js", JS, dwell_report::assets::SCRIPT),
        ("vega.js", JS, dwell_report::assets::RUNTIME),
    ];
    let asset = |(name, kind, content): (&'static str, _, &'static str)| {
        let digest = Sha256::digest(content);
        let hash = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Asset { name, kind, content, hash }
    };
    files.into_iter().map(asset).collect()
});

/// Returns the address of a file.
pub(crate) fn url(name: &str) -> String {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    found.map_or_else(String::new, |asset| format!("/assets/{}/{name}", asset.hash))
}

/// Sends a file.
pub(crate) async fn asset(Path((hash, name)): Path<(String, String)>) -> Response {
    let found = ASSETS.iter().find(|asset| asset.name == name && asset.hash == hash);
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let cached = (header::CACHE_CONTROL, "public, max-age=31536000, immutable");
    ([(header::CONTENT_TYPE, asset.kind), cached], asset.content).into_response()
}
