//! The version of a database file, before the file is opened for writing.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// Returns `user_version` of an SQLite file; `None` if the file is missing or damaged, which is reported
/// when it is opened for use. Neither locks nor recovers the database, so the file stays as it is, and
/// changes in its log are not seen.
///
/// SQLite reads the file, because this process may have the database open: close(2) of another descriptor
/// removes the locks of the process, fcntl(2). A backup by another program would then take the log away
/// from the process, and what it stores would be lost.
pub fn stored_version(path: &Path) -> Option<u32> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(immutable_uri(path), flags).ok()?;
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).ok()
}

/// Returns the URI of a database that is only read, <https://sqlite.org/uri.html>.
fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn version_is_read_from_paths_of_any_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("50% ?#\u{fc}.sqlite");
        assert_eq!(stored_version(&path), None);
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", 7).unwrap();
        assert_eq!(stored_version(&path), Some(7));
        fs::write(dir.path().join("text"), "no database").unwrap();
        assert_eq!(stored_version(&dir.path().join("text")), None);
    }

    /// Posix locks of this process on a file, /proc/locks.
    fn locks(path: &Path) -> usize {
        use std::os::unix::fs::MetadataExt as _;
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|line| line.contains(&inode)).count()
    }

    #[test]
    fn locks_of_this_process_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sqlite");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA user_version = 3; BEGIN EXCLUSIVE").unwrap();
        let before = locks(&path);
        assert!(before > 0);
        assert_eq!(stored_version(&path), Some(3));
        assert_eq!(locks(&path), before);
    }
}
