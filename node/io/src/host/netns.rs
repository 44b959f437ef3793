//! Network namespaces, and the user and mount namespaces that accompany them without root:
//! identifying them, running code in one, moving the whole process.
//!
//! A namespace is named by a file: `/run/netns/NAME`, `/proc/PID/ns/net`. Its inode number
//! identifies the namespace.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Runs `work` on a new thread in the network namespace at `path`; processes started by `work` are
/// created there too. /sys is not remounted (unlike with `ip netns exec`): it still shows the
/// namespace that mounted it.
///
/// # Errors
/// The file is missing, is not a network namespace, or may not be entered.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    run_on_thread(|| {
        set(&namespace, libc::CLONE_NEWNET)?;
        Ok(work())
    })
}

/// Runs `work` on a new thread in a new network namespace, whose only interface is a loopback that
/// is down; processes started by `work` are created there too. The namespace ends with the thread
/// and those processes.
///
/// # Errors
/// EPERM without the privilege.
pub fn within_new<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    run_on_thread(|| {
        enter_new()?;
        Ok(work())
    })
}

/// Moves the calling thread into the network namespace at `path`. For a single-threaded process
/// that is about to exec.
///
/// # Errors
/// As for [`within`].
pub fn enter(path: &Path) -> io::Result<()> {
    set(&File::open(path)?, libc::CLONE_NEWNET)
}

/// Moves this process into the user, mount and network namespaces of process `pid`, except those
/// that it is already in. Only for a single-threaded process: the kernel refuses others.
///
/// # Errors
/// The process is gone or belongs to another user, or this process has several threads.
pub fn enter_process(pid: u32) -> io::Result<()> {
    // All are opened before the first is entered: afterwards /proc may look different.
    let mut namespaces = Vec::new();
    let kinds =
        [("user", libc::CLONE_NEWUSER), ("mnt", libc::CLONE_NEWNS), ("net", libc::CLONE_NEWNET)];
    for (name, kind) in kinds {
        let theirs = PathBuf::from(format!("/proc/{pid}/ns/{name}"));
        if inode(&theirs)? != inode(&PathBuf::from(format!("/proc/self/ns/{name}")))? {
            namespaces.push((File::open(theirs)?, kind));
        }
    }
    let here = WorkingDirectory::current()?;
    namespaces.iter().try_for_each(|(namespace, kind)| set(namespace, *kind))?;
    here.restore();
    Ok(())
}

/// Working directory of a process. Entering a mount namespace moves the process to its root.
struct WorkingDirectory {
    directory: File,
    path: Option<PathBuf>,
}

impl WorkingDirectory {
    fn current() -> io::Result<Self> {
        let directory = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(".")?;
        Ok(Self { directory, path: std::env::current_dir().ok() })
    }

    /// Returns by path, so that the directory has a name here. If the path leads elsewhere, as
    /// below a private /run, returns to the directory itself. A directory that may not be entered
    /// could not have been the working directory before.
    fn restore(&self) {
        let is_same = |path: &PathBuf| {
            let (Ok(there), Ok(ours)) = (fs::metadata(path), self.directory.metadata()) else {
                return false;
            };
            (there.dev(), there.ino()) == (ours.dev(), ours.ino())
        };
        let by_path = self.path.as_ref().filter(|path| is_same(path));
        if by_path.is_none_or(|path| std::env::set_current_dir(path).is_err()) {
            // SAFETY: the descriptor is open for the length of the call; no memory is touched.
            unsafe { libc::fchdir(self.directory.as_raw_fd()) };
        }
    }
}

/// Returns the inode number of the namespace at `path`.
///
/// # Errors
/// The file is missing or not accessible.
pub fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

/// Returns the inode number of this thread's network namespace.
///
/// # Errors
/// /proc is not mounted.
pub fn own_inode() -> io::Result<u64> {
    inode(Path::new("/proc/thread-self/ns/net"))
}

/// Whether this process may create network namespaces. Tested by creating one and returning at
/// once. No thread is started, because what follows may need a single-threaded process.
pub fn may_create() -> bool {
    let Ok(home) = File::open("/proc/thread-self/ns/net") else { return false };
    if unshare(libc::CLONE_NEWNET).is_err() {
        return false;
    }
    // A process that may create a namespace may also re-enter its previous one.
    set(&home, libc::CLONE_NEWNET).is_ok()
}

/// Moves the calling thread into a new network namespace, whose only interface is a loopback that
/// is down.
///
/// # Errors
/// EPERM without the privilege.
pub fn enter_new() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// Makes this unprivileged process root of new user, mount and network namespaces; outside, it
/// keeps its user. Only for a single-threaded process.
///
/// # Errors
/// The kernel or the distribution forbids user namespaces.
pub fn become_root_of_new_namespaces() -> io::Result<()> {
    // SAFETY: both calls only read the process's credentials and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Mounts an empty, private /run for this process. The directory `keep` stays visible if it is
/// below /run. For a process in its own mount namespace.
///
/// # Errors
/// Mounting is not permitted, or `keep` does not exist.
pub fn private_run(keep: &Path) -> io::Result<()> {
    let run = Path::new("/run");
    // Opened before the new /run hides it.
    let kept = keep.starts_with(run).then(|| File::open(keep)).transpose()?;
    mount(Some(Path::new("dwell")), run, Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
    let Some(kept) = kept else { return Ok(()) };
    fs::create_dir_all(keep)?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
    mount(Some(&source), keep, None, libc::MS_BIND | libc::MS_REC)
}

/// Mounts `file` over `place`, for this process and its children only. Later mounts and unmounts of
/// other processes still propagate here, so that nothing they remove is kept alive.
///
/// # Errors
/// Not permitted, or either file is missing.
pub fn overlay(file: &Path, place: &Path) -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE)?;
    mount(Some(file), place, None, libc::MS_BIND)
}

/// Runs `work` on a new thread, so that its changes to the thread end with it.
fn run_on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, work)?.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn set(namespace: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call; setns touches no memory of ours.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind) })
}

fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: none of the namespace flags shares or unshares memory or descriptors.
    check(unsafe { libc::unshare(kinds) })
}

fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let source = source.map(|path| text(path.as_os_str().as_bytes())).transpose()?;
    let target = text(target.as_os_str().as_bytes())?;
    let kind = kind.map(|kind| text(kind.as_bytes())).transpose()?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: every pointer is null or a NUL-terminated string that lives until the call returns;
    // the kernel accepts null for source, type and data.
    check(unsafe {
        libc::mount(pointer(&source), target.as_ptr(), pointer(&kind), flags, std::ptr::null())
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_runs_in_namespace_and_caller_stays_outside() {
        let own = own_inode().unwrap();
        match within(Path::new("/proc/self/ns/net"), own_inode) {
            Ok(inside) => assert_eq!(inside.unwrap(), own),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!(
                    "SKIP netns::tests::within_runs_in_namespace_and_caller_stays_outside: \
                     entering a namespace needs root ({error})"
                );
                return;
            }
            Err(error) => panic!("{error}"),
        }
        let other = run_on_thread(|| {
            enter_new()?;
            own_inode()
        });
        assert_ne!(other.unwrap(), own);
        assert_eq!(own_inode().unwrap(), own);
    }

    #[test]
    fn file_that_is_not_a_namespace_is_an_error() {
        assert!(within(Path::new("/dev/null"), || ()).is_err());
        assert!(within(Path::new("/nonexistent"), || ()).is_err());
    }
}
