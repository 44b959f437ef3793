//! `openapi.json` is what the server serves. `BLESS=1` rewrites it.

use std::{env, fs};

#[test]
fn committed_description_is_the_servers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let now = dwell_server::api::openapi();
    if env::var_os("BLESS").is_some() {
        fs::write(path, &now).unwrap();
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(committed == now, "openapi.json differs from the server; BLESS=1 rewrites it");
}
