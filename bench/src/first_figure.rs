//! Time until the first figure of a page is visible in Chromium.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/node/first-figure.mjs");
const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../controller/web/test/browser.mjs");

/// Returns milliseconds from the start of a page to its first figure, by the page's clock. `page` is the
/// path of a file, or an address that begins with `http:`.
/// Without a browser, returns `None` and prints the reason on standard error.
pub(crate) fn first_figure_ms(page: impl AsRef<OsStr>) -> Result<Option<f64>> {
    let output = Command::new("node").arg(SCRIPT).arg(BROWSER).arg(page).output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            eprint!("cannot run a browser: {}", String::from_utf8_lossy(&output.stderr));
            return Ok(None);
        }
        Err(error) => {
            eprintln!("cannot run node: {error}");
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map(Some).with_context(|| format!("'{}' is not a time", text.trim()))
}
