//! The exclusive use of a device by one run: a lock on a file beside the program. The kernel releases
//! it with the process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use anyhow::Context;
use dwell_protocol::Lease;

/// Name of the file.
const LEASE_FILE: &str = "lease";

/// Maximum length of a lease in bytes.
const MAX_LEN: u64 = 4_096;

/// A lease that this process holds.
#[derive(Debug)]
pub(super) struct DeviceLease(File);

/// Who holds the lease.
#[derive(Debug)]
pub(super) enum Taken {
    /// This process.
    Now(DeviceLease),
    /// Another run.
    ByOther(Lease),
}

/// Reads the argument.
pub(super) fn read(json: &str) -> Result<Lease, serde_json::Error> {
    serde_json::from_str(json)
}

impl DeviceLease {
    /// Takes the lease of this device.
    pub(super) fn take(lease: &Lease) -> anyhow::Result<Taken> {
        let program = std::env::current_exe().context("cannot locate this program")?;
        let dir = program.parent().unwrap_or(Path::new("/"));
        let path = dir.join(LEASE_FILE);
        Self::take_file(&path, lease).with_context(|| format!("cannot lock {}", path.display()))
    }

    fn take_file(path: &Path, lease: &Lease) -> io::Result<Taken> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).mode(0o600).open(path)?;
        // A node that runs by sudo must not lock out later nodes that do not.
        let dir = path.parent().map(fs::metadata).transpose()?;
        if let Some(dir) = dir
            && dir.uid() != file.metadata()?.uid()
        {
            let _ = fchown(&file, Some(dir.uid()), Some(dir.gid()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.take(MAX_LEN).read_to_string(&mut text)?;
                // The other process may not have written its lease yet.
                return Ok(Taken::ByOther(read(&text).unwrap_or_default()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(serde_json::to_string(lease)?.as_bytes())?;
        Ok(Taken::Now(Self(file)))
    }
}

impl Drop for DeviceLease {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_names_its_holder_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let lease = |run: &str| Lease { run: run.into(), owner: "a@b".into(), since: "now".into() };
        let Taken::Now(held) = DeviceLease::take_file(&path, &lease("1")).unwrap() else {
            panic!("the lease is free")
        };
        match DeviceLease::take_file(&path, &lease("2")).unwrap() {
            Taken::ByOther(other) => assert_eq!(other, lease("1")),
            Taken::Now(_) => panic!("the lease is held"),
        }
        drop(held);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        let again = DeviceLease::take_file(&path, &lease("2")).unwrap();
        assert!(matches!(again, Taken::Now(_)));
    }
}
