//! Time until the first figure of a report is visible in Chromium.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/node/first-figure.mjs");
const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../controller/web/test/browser.mjs");

/// Returns milliseconds from the start of the page to its first figure, by the page's clock.
/// Without a browser, returns `None` and prints the reason on standard error.
pub(super) fn first_figure_ms(html: &Path) -> Result<Option<f64>> {
    let output = Command::new("node").arg(SCRIPT).arg(BROWSER).arg(html).output();
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
