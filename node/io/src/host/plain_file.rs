//! Opening files in a directory that other users may write: what they put in the place of a file is
//! neither followed nor waited for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file that is no symbolic link. Opening a FIFO or a device does not wait.
///
/// # Errors
/// `ELOOP` for a symbolic link, otherwise as open(2).
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Writes the entries of a directory to the medium. A file system that cannot is no error.
///
/// # Errors
/// As open(2) and fsync(2).
pub fn sync_dir(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        outcome => outcome,
    }
}
