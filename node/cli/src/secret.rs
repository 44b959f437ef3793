//! Where keys come from: a file that only its owner can read, or the environment. Never the command
//! line, which everybody on the machine can see.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Failure;

/// What a key is written as.
pub(crate) struct Secret {
    pub(crate) text: String,
    /// Where it was found, for messages.
    pub(crate) source: String,
}

/// The key in this file, or else in the environment variable DWELL_KEY, if there is one.
pub(crate) fn find(file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    let Some(path) = file else {
        let text = std::env::var("DWELL_KEY").ok();
        return Ok(text.map(|text| Secret { text, source: "DWELL_KEY".to_owned() }));
    };
    let shown = path.display();
    let reading = |error| Failure::usage(format!("--key-file {shown}: {error}"));
    let mode = std::fs::metadata(path).map_err(reading)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Failure::usage(format!(
            "--key-file {shown}: others can read it; chmod 600 {shown}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(reading)?;
    Ok(Some(Secret { text, source: format!("--key-file {shown}") }))
}
