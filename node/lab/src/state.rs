//! Directories of labs. Each is written before anything else is created, so that the remains of a
//! killed `up` can be found and removed.
//!
//! ```text
//! /run/dwell/labs/NAME/            labs of root
//! $XDG_RUNTIME_DIR/dwell/labs/     labs of other users; or ~/.local/state/dwell, or /tmp/dwell-UID
//!   lock          held by the process that creates or removes the lab, and by its children
//!   lab.json      the lab (dwell.lab/1), at first as planned
//!   hosts         /etc/hosts of its nodes
//!   holder        the namespace keeper of a rootless lab, and its user namespace
//!   babel.pid     the supervisor of babeld; babel-K.pid babeld of node K
//!   device-K.pid  the supervisor of the device of node K, and other files of `device.rs`
//!   link-K.pid    the process of TAP link K; link-K.json its counters, link-K.events its log
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::description::Lab;
use crate::error::LabError;

/// Environment variable with the lab's directory, for processes inside a lab.
pub(crate) const DIR_VARIABLE: &str = "DWELL_LAB_DIR";

/// The directory of one lab.
#[derive(Clone, Debug)]
pub struct LabDir {
    name: String,
    path: PathBuf,
}

/// Lock (flock(2)) for creating or removing a lab. Children inherit it as standard output, to which
/// they print nothing, so it is held until the last of them ends. Objects that an `ip` creates after
/// its parent was killed are therefore removed too.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Returns a copy for a child.
    pub(crate) fn share(&self) -> Result<Stdio, LabError> {
        self.0.try_clone().map(Stdio::from).map_err(LabError::io("sharing the lab's lock"))
    }
}

impl LabDir {
    /// Creates the directory of a new lab, unless root or this user has a lab of this name.
    pub(crate) fn create(name: &str, rootless: bool) -> Result<(Self, Lock), LabError> {
        if find(name)?.is_some() {
            return Err(LabError::Exists(name.to_owned()));
        }
        let base = if rootless { own_base()? } else { root_base() };
        let what = || format!("creating {}", base.display());
        let mode = if rootless { 0o700 } else { 0o755 };
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(&base);
        made.map_err(LabError::io(what()))?;
        if rootless && own_base()? != base {
            return Err(LabError::Busy(name.to_owned()));
        }
        let path = base.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LabError::Exists(name.to_owned()));
            }
            made => made.map_err(LabError::io(what()))?,
        }
        let dir = Self { name: name.to_owned(), path };
        let lock = dir.lock()?.ok_or_else(|| LabError::Busy(name.to_owned()))?;
        Ok((dir, lock))
    }

    /// Returns the directory at `path`, for the lab's own background processes.
    pub fn at(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        Some(Self { name, path: path.to_owned() })
    }

    /// Returns the lab's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a file or directory in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, waiting for a lab that is being created or removed; `None` if it was removed
    /// in the process.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, LabError> {
        const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => LabError::not_ours(&self.name),
            _ => LabError::io(format!("locking {}", self.path.display()))(error),
        };
        let path = self.file("lock");
        let file = match OpenOptions::new().create(true).append(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => return Err(LabError::Busy(self.name.clone())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        let ours = file.metadata().map_err(failed)?.ino();
        let current = fs::metadata(&path).map(|file| file.ino());
        Ok((current.ok() == Some(ours)).then_some(Lock(file)))
    }

    /// Reads the lab's description; `None` if its creation was interrupted before it was written.
    ///
    /// # Errors
    /// The file cannot be read, or is not in dwell's format.
    pub(crate) fn read(&self) -> Result<Option<Lab>, LabError> {
        let path = self.file("lab.json");
        match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(lab) => Ok(Some(lab)),
                Err(error) => Err(LabError::State { path, error }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::io(format!("reading {}", path.display()))(error)),
        }
    }

    /// Writes the lab's description.
    pub(crate) fn write(&self, lab: &Lab) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(lab).expect("a lab is plain data");
        self.write_file("lab.json", &text)
    }

    /// Writes a file atomically: readers see the previous content or all of the new one.
    ///
    /// # Errors
    /// The disk is full, or the lab is gone.
    pub(crate) fn write_file(&self, name: &str, content: &[u8]) -> Result<(), LabError> {
        let (path, draft) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || {
            File::create(&draft)?.write_all(content)?;
            fs::rename(&draft, &path)
        };
        write().map_err(LabError::io(format!("writing {}", path.display())))
    }

    /// Removes the lab's directory, which is renamed first: an interrupted removal does not block a
    /// new lab, and no other process can restore a file.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        // Another process may be removing an earlier lab of this name.
        let is_fine = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty)
        };
        // No lab has a dot in its name.
        let gone = self.path.with_file_name(format!(".{}.gone", self.name));
        // An earlier removal may have been interrupted.
        let _ = fs::remove_dir_all(&gone);
        let outcome = match fs::rename(&self.path, &gone) {
            Ok(()) => fs::remove_dir_all(&gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        match outcome {
            Err(error) if !is_fine(&error) || self.path.exists() => {
                Err(LabError::io(format!("removing {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the directory of the lab of this name; root's labs come first.
pub(crate) fn find(name: &str) -> Result<Option<LabDir>, LabError> {
    Ok(all()?.into_iter().find(|dir| dir.name == name))
}

/// Returns the directories of all visible labs, sorted by name.
pub(crate) fn all() -> Result<Vec<LabDir>, LabError> {
    let mut bases = vec![root_base()];
    bases.extend(own_base().ok().filter(|own| *own != root_base()));
    let mut dirs = Vec::new();
    for base in bases {
        let entries = match fs::read_dir(&base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(LabError::io(format!("reading {}", base.display()))(error)),
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_lab(path));
        dirs.extend(paths.filter_map(|path| LabDir::at(&path)));
    }
    dirs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(dirs)
}

fn root_base() -> PathBuf {
    PathBuf::from("/run/dwell/labs")
}

/// Returns the directory of an unprivileged user's labs: the first candidate that exists and
/// belongs to the user.
fn own_base() -> Result<PathBuf, LabError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    // Inside a rootless lab this process is root by name; only this variable leads to
    // the labs of its user.
    if let Some(base) = variable(DIR_VARIABLE).and_then(|dir| dir.parent().map(Path::to_owned)) {
        return Ok(base);
    }
    let me = fs::metadata("/proc/self").map_err(LabError::io("reading /proc/self"))?.uid();
    let owner = |path: &Path| fs::symlink_metadata(path).ok().map(|file| file.uid());
    if let Some(runtime) = variable("XDG_RUNTIME_DIR").filter(|path| owner(path) == Some(me)) {
        return Ok(runtime.join("dwell/labs"));
    }
    if let Some(home) = variable("HOME").filter(|path| owner(path) == Some(me)) {
        return Ok(home.join(".local/state/dwell/labs"));
    }
    // Any user may write to the parent directory, so another may have created this one.
    let path = std::env::temp_dir().join(format!("dwell-{me}"));
    let ours = fs::symlink_metadata(&path).map(|file| file.is_dir() && file.uid() == me);
    if ours.unwrap_or(true) {
        return Ok(path.join("labs"));
    }
    Err(LabError::Unsupported(format!(
        "{} is not a directory that you own; set XDG_RUNTIME_DIR to one",
        path.display()
    )))
}

/// Lab names become part of namespace names. A lab name may contain hyphens; a node name may not.
pub(crate) fn is_lab_name(name: &str) -> bool {
    (1..=20).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Whether this is a directory that [`LabDir::create`] created; anything else beside the labs is
/// left alone. A directory without a lock is empty: its creation was interrupted earlier.
fn is_lab(path: &Path) -> bool {
    let is_name = path.file_name().and_then(|name| name.to_str()).is_some_and(is_lab_name);
    let is_dir = fs::symlink_metadata(path).is_ok_and(|file| file.is_dir());
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    is_name && is_dir && (path.join("lock").exists() || is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_names_are_valid_in_namespace_names() {
        for good in ["a", "demo", "rtt-2", "7"] {
            assert!(is_lab_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a/b", "a b", "..", "ä", &"x".repeat(21)] {
            assert!(!is_lab_name(bad), "{bad}");
        }
    }

    #[test]
    fn directory_that_is_not_a_lab_is_ignored() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, file: Option<&str>| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            file.map(|file| File::create(path.join(file)).unwrap());
            path
        };
        assert!(is_lab(&make("whole", Some("lock"))));
        assert!(is_lab(&make("cut-short", None)));
        assert!(!is_lab(&make("holiday-pictures", Some("beach.jpg"))));
        assert!(!is_lab(&make("not_a_name", Some("lock"))));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path().join("whole"), &link).unwrap();
        assert!(!is_lab(&link));
    }

    #[test]
    fn lock_of_removed_lab_is_none() {
        let base = tempfile::tempdir().unwrap();
        let dir = LabDir::at(&base.path().join("lab")).unwrap();
        fs::create_dir(dir.path()).unwrap();
        let first = dir.lock().unwrap().expect("the lock is free");
        let waiting = dir.clone();
        let second = std::thread::spawn(move || waiting.lock());
        // Whether the other thread waits already or comes later, it must not get a lock.
        dir.remove().unwrap();
        drop(first);
        assert!(matches!(second.join().unwrap(), Ok(None)));
    }
}
