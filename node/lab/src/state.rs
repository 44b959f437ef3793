//! Where labs are remembered: a directory per lab, written before anything is made, so that what a
//! killed `up` left behind can be found and removed.
//!
//! ```text
//! /run/dwell/labs/NAME/            root's labs
//! $XDG_RUNTIME_DIR/dwell/NAME/     everybody else's; or ~/.local/state/dwell, or /tmp/dwell-UID
//!   lock          held by whoever makes or removes the lab, and by every child of theirs
//!   lab.json      the lab (dwell.lab/1), first of all as an intent
//!   hosts         /etc/hosts of its nodes
//!   holder        the process that keeps a rootless lab's namespaces, and its user namespace
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

/// What tells a process inside a lab where the lab is kept.
pub(crate) const DIR_VARIABLE: &str = "DWELL_LAB_DIR";

/// The directory of one lab.
#[derive(Clone, Debug)]
pub struct LabDir {
    name: String,
    path: PathBuf,
}

/// The right to make or remove a lab. Children get it as their standard output, on which they say
/// nothing: so it is free only when the last of them has ended, killed or not.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// For a child.
    pub(crate) fn share(&self) -> Result<Stdio, LabError> {
        self.0.try_clone().map(Stdio::from).map_err(LabError::io("sharing the lab's lock"))
    }
}

impl LabDir {
    /// The directory of a lab to be made: there is none of that name, neither root's nor one's own.
    pub(crate) fn create(name: &str, rootless: bool) -> Result<(Self, Lock), LabError> {
        if find(name)?.is_some() {
            return Err(LabError::Exists(name.to_owned()));
        }
        let base = if rootless { own_base()? } else { root_base() };
        let what = || format!("making {}", base.display());
        fs::create_dir_all(&base).map_err(LabError::io(what()))?;
        let path = base.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LabError::Exists(name.to_owned()));
            }
            made => made.map_err(LabError::io(what()))?,
        }
        let dir = Self { name: name.to_owned(), path };
        let lock = dir.lock()?;
        Ok((dir, lock))
    }

    /// The directory at `path`, for the lab's own background processes.
    pub fn at(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        Some(Self { name, path: path.to_owned() })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file or directory in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock, waiting a while for a lab that is just being made or removed.
    pub(crate) fn lock(&self) -> Result<Lock, LabError> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let what = || format!("locking {}", self.path.display());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file("lock"))
            .map_err(LabError::io(what()))?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(LabError::Busy(self.name.clone())),
                Err(TryLockError::Error(error)) => return Err(LabError::io(what())(error)),
            }
        }
    }

    /// What was written of the lab; `None` when its making was cut short before that.
    ///
    /// # Errors
    /// The file cannot be read, or is not what dwell writes.
    pub fn read(&self) -> Result<Option<Lab>, LabError> {
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

    /// Writes the lab down.
    pub(crate) fn write(&self, lab: &Lab) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(lab).expect("a lab is plain data");
        self.write_file("lab.json", &text)
    }

    /// Writes a file so that a reader sees all of it or the one before.
    ///
    /// # Errors
    /// The disk is full, or the lab is gone.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<(), LabError> {
        let (path, draft) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || {
            File::create(&draft)?.write_all(content)?;
            fs::rename(&draft, &path)
        };
        write().map_err(LabError::io(format!("writing {}", path.display())))
    }

    /// Forgets the lab.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::io(format!("removing {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// The directory of the lab of that name, root's before one's own.
pub(crate) fn find(name: &str) -> Result<Option<LabDir>, LabError> {
    Ok(all()?.into_iter().find(|dir| dir.name == name))
}

/// The directories of all labs that can be seen, by name.
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
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        dirs.extend(paths.filter_map(|path| LabDir::at(&path)));
    }
    dirs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(dirs)
}

fn root_base() -> PathBuf {
    PathBuf::from("/run/dwell/labs")
}

/// Where somebody without privilege keeps labs: the first of these that is there and theirs.
fn own_base() -> Result<PathBuf, LabError> {
    let mine = |path: &Path| -> Option<u32> {
        let owner = fs::metadata(path).ok()?.uid();
        (owner == fs::metadata("/proc/self").ok()?.uid()).then_some(owner)
    };
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    // Inside a rootless lab we are root by name, and only this tells whose labs these are.
    if let Some(base) = variable(DIR_VARIABLE).and_then(|dir| dir.parent().map(Path::to_owned)) {
        return Ok(base);
    }
    if let Some(runtime) = variable("XDG_RUNTIME_DIR").filter(|path| mine(path).is_some()) {
        return Ok(runtime.join("dwell"));
    }
    if let Some(home) = variable("HOME").filter(|path| mine(path).is_some()) {
        return Ok(home.join(".local/state/dwell"));
    }
    // In a directory that everybody may write to, only one that is ours alone will do.
    let me = fs::metadata("/proc/self").map_err(LabError::io("reading /proc/self"))?.uid();
    let path = std::env::temp_dir().join(format!("dwell-{me}"));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(LabError::io(format!("making {}", path.display()))(error))
        }
        _ if mine(&path).is_some() => Ok(path),
        _ => Err(LabError::Unsupported(format!(
            "{} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of yours",
            path.display()
        ))),
    }
}
