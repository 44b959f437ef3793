//! Reads keys from a file that only its owner can read, or from the environment. Never from the
//! command line, which is visible to all users.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dwell_engine::protocol::Authentication;
use dwell_wire::hmac::SecretKey;

use crate::Failure;

/// The text of a key.
pub(crate) struct Secret {
    pub(crate) text: String,
    /// Source, for messages.
    pub(crate) source: String,
}

impl Secret {
    /// Reads the text as a key of a protocol.
    pub(crate) fn key(&self, authentication: &Authentication) -> Result<SecretKey, Failure> {
        let Self { text, source } = self;
        (authentication.parse_key)(text)
            .map_err(|error| Failure::usage(format!("{source}: {error}")))
    }
}

/// Reads the key from `file`, or else from the environment variable DWELL_KEY if it is set.
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
