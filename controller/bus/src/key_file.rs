//! The file of accepted keys and the files of seeds on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::keys::{AcceptedKeys, KeysError, PublicKey, new_user_key, public_key_of};

/// A change of keys that failed. The file is as before.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// A file could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The keys do not allow the change, or the file is not as dwell writes it.
    #[error("{}: {source}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: KeysError,
    },
    /// The file has no seed of a user key.
    #[error("{} has no seed of a user key; move it away, and a new key is created", .0.display())]
    NoSeed(PathBuf),
}

impl KeyFileError {
    fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}

/// Reads a file of accepted keys. A missing one has none.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read_keys(path: &Path) -> Result<AcceptedKeys, KeyFileError> {
    match fs::read_to_string(path) {
        Ok(text) => AcceptedKeys::parse(&text)
            .map_err(|source| KeyFileError::Keys { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AcceptedKeys::default()),
        Err(error) => Err(KeyFileError::file("read", path)(error)),
    }
}

/// Changes a file of accepted keys. Changes of other processes are before or after it, and a reader
/// finds the old or the new file.
///
/// # Errors
/// See [`KeyFileError`].
pub fn change_keys<T>(
    path: &Path,
    change: impl FnOnce(&mut AcceptedKeys) -> Result<T, KeysError>,
) -> Result<T, KeyFileError> {
    let dir = dir_of(path);
    fs::create_dir_all(dir).map_err(KeyFileError::file("create", dir))?;
    let lock = File::open(dir).map_err(KeyFileError::file("open", dir))?;
    lock.lock().map_err(KeyFileError::file("lock", dir))?;
    let mut keys = read_keys(path)?;
    let outcome =
        change(&mut keys).map_err(|source| KeyFileError::Keys { path: path.to_owned(), source })?;
    // Public keys are not secret, and nats-server may run as another user.
    replace_file(path, &keys.to_text(), 0o644)?;
    Ok(outcome)
}

/// Replaces a file, so that a reader finds the old or the new content.
///
/// # Errors
/// [`KeyFileError::File`]; the old file is unchanged.
pub fn replace_file(path: &Path, text: &str, mode: u32) -> Result<(), KeyFileError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    // One that a killed process left may have other permissions.
    let _ = fs::remove_file(&partial);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&partial)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // The umask may forbid the server to read it.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&partial, path))
        .and_then(|()| File::open(dir_of(path))?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.map_err(KeyFileError::file("write", path))
}

/// Returns the public key of a seed file, which is created if it does not exist.
///
/// # Errors
/// The file cannot be used, or has no seed.
pub fn seed_file(path: &Path) -> Result<PublicKey, KeyFileError> {
    match fs::read_to_string(path) {
        Ok(seed) => public_key_of(&seed).map_err(|_| KeyFileError::NoSeed(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (seed, public) =
                new_user_key().map_err(|_| KeyFileError::NoSeed(path.to_owned()))?;
            let dir = dir_of(path);
            fs::create_dir_all(dir).map_err(KeyFileError::file("create", dir))?;
            replace_file(path, &format!("{seed}\n"), 0o600)?;
            Ok(public)
        }
        Err(error) => Err(KeyFileError::file("read", path)(error)),
    }
}

/// Returns the password in a file, which is created with a random one if it does not exist.
///
/// # Errors
/// The file cannot be used.
pub fn password_file(path: &Path) -> Result<String, KeyFileError> {
    match fs::read_to_string(path) {
        Ok(password) => Ok(password.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; 32];
            let source = Path::new("/dev/urandom");
            File::open(source)
                .and_then(|mut file| file.read_exact(&mut bytes))
                .map_err(KeyFileError::file("read", source))?;
            let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            replace_file(path, &format!("{password}\n"), 0o600)?;
            Ok(password)
        }
        Err(error) => Err(KeyFileError::file("read", path)(error)),
    }
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    }
}
