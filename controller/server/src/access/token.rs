//! The access token: made by `dwell serve token`, stored as its SHA-256 only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::secret;

/// Name of the file in the data directory.
const FILE_NAME: &str = "serve-token";

/// First word of the file: its format and version.
const FILE_FORMAT: &str = "dwell.token/1";

/// Start of every token, by which people and scanners of secrets recognise one.
const PREFIX: &str = "dwell_";

/// Maximum length of a presented token in bytes. Longer texts are wrong without being hashed.
const MAX_TOKEN_LEN: usize = 256;

/// Why the token cannot be written or read.
#[derive(Debug, Error)]
pub enum TokenError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file has other content.
    #[error("{} has an unknown format; replace it with `dwell serve token`", .0.display())]
    Format(PathBuf),
}

/// A token that has just been made.
#[derive(Debug)]
pub struct NewToken {
    /// The token. It is stored nowhere.
    pub text: String,
    /// Whether an older token is now invalid.
    pub replaced: bool,
}

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenHash([u8; secret::SECRET_LEN]);

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(secret::digest(token))
    }

    /// Whether this is the hash of `token`. The duration does not depend on where they differ.
    pub(crate) fn matches(&self, token: &str) -> bool {
        token.len() <= MAX_TOKEN_LEN && self.equals(&Self::of(token))
    }

    /// Compares in constant time.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        secret::equal(&self.0, &other.0)
    }
}

/// Makes a token of 256 random bits and stores its SHA-256 in the data directory, which is created if
/// needed. An older token becomes invalid. The file belongs to the owner of the directory: root may make
/// the token of a service.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn create(data: &Path) -> Result<NewToken, TokenError> {
    let text = format!("{PREFIX}{}", secret::hex(&secret::random()));
    let content = format!("{FILE_FORMAT} sha256 {}\n", secret::hex(&TokenHash::of(&text).0));
    let path = file(data);
    let partial = data.join(format!("{FILE_NAME}.{}", std::process::id()));
    fs::create_dir_all(data).map_err(failed("create", data))?;
    let replaced = path.exists();
    let _ = fs::remove_file(&partial);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            let (owner, own) = (fs::metadata(data)?, file.metadata()?);
            if owner.uid() != own.uid() {
                fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            }
            file.sync_all()
        })
        .and_then(|()| fs::rename(&partial, &path))
        .and_then(|()| File::open(data)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.map_err(failed("write", &path))?;
    Ok(NewToken { text, replaced })
}

/// Returns the hash of the token of a data directory; `None` if there is no token.
///
/// # Errors
/// The file exists but cannot be read, or has another format.
pub(crate) fn read(data: &Path) -> Result<Option<TokenHash>, TokenError> {
    let path = file(data);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let mut words = text.split_whitespace();
    let known = words.next() == Some(FILE_FORMAT) && words.next() == Some("sha256");
    let hash = words.next().filter(|_| known).and_then(secret::from_hex);
    hash.map(|hash| Some(TokenHash(hash))).ok_or(TokenError::Format(path))
}

/// Whether a data directory has a token.
pub fn exists(data: &Path) -> bool {
    file(data).exists()
}

fn file(data: &Path) -> PathBuf {
    data.join(FILE_NAME)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TokenError {
    move |source| TokenError::File { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_hash_is_stored_and_only_for_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("new/data");
        assert!(read(&data).unwrap().is_none());
        let token = create(&data).unwrap();
        assert!(!token.replaced);
        assert_eq!(token.text.len(), PREFIX.len() + 64);
        let mode = fs::metadata(file(&data)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stored = fs::read_to_string(file(&data)).unwrap();
        assert!(!stored.contains(&token.text[PREFIX.len()..]), "{stored}");
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn new_token_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let old = create(dir.path()).unwrap().text;
        let new = create(dir.path()).unwrap();
        assert!(new.replaced);
        let hash = read(dir.path()).unwrap().unwrap();
        assert!(hash.matches(&new.text));
        for wrong in [old.as_str(), "", "dwell_", &new.text[1..], &new.text.to_uppercase()] {
            assert!(!hash.matches(wrong), "{wrong}");
        }
        assert!(!hash.matches(&format!("{}{}", new.text, "0".repeat(MAX_TOKEN_LEN))));
    }

    #[test]
    fn damaged_file_is_an_error_and_not_a_missing_token() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["", "dwell.token/1 sha256", "dwell.token/1 sha256 00", "x sha256 00"] {
            fs::write(file(dir.path()), content).unwrap();
            assert!(matches!(read(dir.path()), Err(TokenError::Format(_))), "{content}");
        }
    }
}
