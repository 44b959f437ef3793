//! Limits of what a client may send, in size and time.

use std::time::Duration;

/// Maximum length of a form or a JSON object: a plan of a thousand lines takes a tenth of it.
const MAX_BODY_LEN: usize = 1 << 20;

/// Maximum length of the login form, which needs no session.
const MAX_LOGIN_LEN: usize = 4 << 10;

/// Maximum length of an imported file in bytes.
pub(crate) const MAX_IMPORT_LEN: usize = 256 << 20;

/// Paths that take files.
const IMPORT_PATHS: [&str; 2] = ["/data/import", "/api/v1/data/import"];

/// Time for a form or a JSON object to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum pause between two pieces of an imported file.
pub(crate) const PAUSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for the answer to begin, commands of dwell included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Time for a file to arrive and to be imported.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum length of the body in bytes.
    pub(crate) len: usize,
    /// How long the whole body may take; `None` for files, which are read as they arrive.
    pub(crate) body: Option<Duration>,
    /// How long the answer may take.
    pub(crate) answer: Duration,
}

impl Limits {
    /// Returns the limits of requests to a path.
    pub(crate) fn of(path: &str) -> Self {
        let small = Self { len: MAX_BODY_LEN, body: Some(BODY_TIMEOUT), answer: ANSWER_TIMEOUT };
        match path {
            path if IMPORT_PATHS.contains(&path) => {
                Self { len: MAX_IMPORT_LEN, body: None, answer: IMPORT_TIMEOUT }
            }
            "/login" => Self { len: MAX_LOGIN_LEN, ..small },
            _ => small,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_imports_may_be_large() {
        for path in IMPORT_PATHS {
            assert_eq!(Limits::of(path).len, MAX_IMPORT_LEN, "{path}");
        }
        for path in ["/", "/import/x", "/data/imports", "/experiments", "/api/v1/devices/import"] {
            assert_eq!(Limits::of(path).len, MAX_BODY_LEN, "{path}");
        }
        assert_eq!(Limits::of("/login").len, MAX_LOGIN_LEN);
    }
}
