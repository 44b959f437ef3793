//! Network namespaces, and the user and mount namespaces that go with them when one is not root:
//! which one a file stands for, running a piece of code inside one, moving the whole process.
//!
//! A namespace is named by a file: `/run/netns/NAME`, `/proc/PID/ns/net`. Its inode number tells
//! two namespaces apart.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Runs `work` on a fresh thread that entered the network namespace at `path`; processes started
/// by `work` are born there as well. /sys is left alone (unlike `ip netns exec`): it still shows
/// the namespace that mounted it.
///
/// # Errors
/// The file is missing, is no network namespace, or may not be entered.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    on_a_thread(|| {
        set(&namespace, libc::CLONE_NEWNET)?;
        Ok(work())
    })
}

/// Runs `work` on a fresh thread in a network namespace of its own, with nothing in it but a
/// loopback that is down; processes started by `work` are born there as well. The namespace ends
/// with the thread and those processes.
///
/// # Errors
/// EPERM without the privilege.
pub fn within_a_new_one<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_a_thread(|| {
        leave_for_a_new_one()?;
        Ok(work())
    })
}

/// Moves the calling thread into the network namespace at `path`. For a process with one thread
/// that is about to become another program.
///
/// # Errors
/// As for [`within`].
pub fn enter(path: &Path) -> io::Result<()> {
    set(&File::open(path)?, libc::CLONE_NEWNET)
}

/// Moves this process into the user, mount and network namespaces of process `pid`, leaving out
/// those it is in already. Only for a process with one thread: the kernel refuses any other.
///
/// # Errors
/// The process is gone, belongs to somebody else, or this process has several threads.
pub fn enter_process(pid: u32) -> io::Result<()> {
    // All are opened before the first is entered: afterwards /proc may look different.
    let mut doors = Vec::new();
    let kinds =
        [("user", libc::CLONE_NEWUSER), ("mnt", libc::CLONE_NEWNS), ("net", libc::CLONE_NEWNET)];
    for (name, kind) in kinds {
        let theirs = PathBuf::from(format!("/proc/{pid}/ns/{name}"));
        if inode(&theirs)? != inode(&PathBuf::from(format!("/proc/self/ns/{name}")))? {
            doors.push((File::open(theirs)?, kind));
        }
    }
    let here = WorkingDirectory::note()?;
    doors.iter().try_for_each(|(door, kind)| set(door, *kind))?;
    here.restore();
    Ok(())
}

/// Where a process works: entering a mount namespace moves it to the root of that.
struct WorkingDirectory {
    directory: File,
    path: Option<PathBuf>,
}

impl WorkingDirectory {
    fn note() -> io::Result<Self> {
        let directory = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(".")?;
        Ok(Self { directory, path: std::env::current_dir().ok() })
    }

    /// Goes back by the path, so that the directory has a name here; where something else lies
    /// there, as below a private /run, to the directory itself. One that may not be entered could
    /// not have been worked in before either.
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

/// The inode number of the namespace that the file at `path` stands for.
///
/// # Errors
/// The file is missing or may not be seen.
pub fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

/// The inode number of this thread's network namespace.
///
/// # Errors
/// /proc is not mounted.
pub fn own_inode() -> io::Result<u64> {
    inode(Path::new("/proc/thread-self/ns/net"))
}

/// Whether this process may make network namespaces as it is. Found out by making one and coming
/// back at once; no thread is started, because what may follow is only for a process with one.
pub fn may_create() -> bool {
    let Ok(home) = File::open("/proc/thread-self/ns/net") else { return false };
    if unshare(libc::CLONE_NEWNET).is_err() {
        return false;
    }
    // Whoever may make a namespace may also enter the one it came from.
    set(&home, libc::CLONE_NEWNET).is_ok()
}

/// Moves the calling thread into a network namespace of its own, with nothing in it but a loopback
/// that is down.
///
/// # Errors
/// EPERM without the privilege.
pub fn leave_for_a_new_one() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// Makes this process root of new user, mount and network namespaces, without any privilege; to
/// everybody outside it stays what it was. Only for a process with one thread.
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

/// Puts an empty, private /run before this process, but lets the directory `keep`, if it lies
/// there, show through. For a process in a mount namespace of its own.
///
/// # Errors
/// Mounting is not allowed, or `keep` does not exist.
pub fn private_run(keep: &Path) -> io::Result<()> {
    let run = Path::new("/run");
    // Opened before the old /run disappears behind the new one.
    let kept = keep.starts_with(run).then(|| File::open(keep)).transpose()?;
    mount(Some(Path::new("dwell")), run, Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
    let Some(kept) = kept else { return Ok(()) };
    fs::create_dir_all(keep)?;
    let source = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
    mount(Some(&source), keep, None, libc::MS_BIND | libc::MS_REC)
}

/// Lets `file` appear at `place`, for this process and its children only. Mounts that others make
/// later still arrive, so that nothing they remove is held on to.
///
/// # Errors
/// Not allowed, or either file is missing.
pub fn overlay(file: &Path, place: &Path) -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE)?;
    mount(Some(file), place, None, libc::MS_BIND)
}

/// Runs `work` on a thread of its own, so that what it changes about that thread ends with it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
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
    fn code_runs_inside_the_namespace_and_the_caller_stays_outside() {
        let own = own_inode().unwrap();
        match within(Path::new("/proc/self/ns/net"), own_inode) {
            Ok(inside) => assert_eq!(inside.unwrap(), own),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("SKIP: entering a namespace needs root: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        let other = on_a_thread(|| {
            leave_for_a_new_one()?;
            own_inode()
        });
        assert_ne!(other.unwrap(), own);
        assert_eq!(own_inode().unwrap(), own);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_an_error() {
        assert!(within(Path::new("/dev/null"), || ()).is_err());
        assert!(within(Path::new("/nonexistent"), || ()).is_err());
    }
}
