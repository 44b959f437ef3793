//! dwell's own background processes of a lab. They start with the lab's lock, close standard error
//! when they are ready, and record their identity, so that no other process is mistaken for them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dwell_io::process::{self, Handle, Identity, Signal};
use dwell_units::Nanos;

use crate::error::LabError;
use crate::namespace_keeper;
use crate::state::{DIR_VARIABLE, LabDir, Lock};

/// Exit code 4 of every dwell command: not supported.
const UNSUPPORTED: i32 = 4;

/// A background process that was started and may not be ready yet.
pub(crate) struct Starting {
    what: String,
    child: std::process::Child,
}

/// Finds a program in the directories of programs. `user` needs it, `package` has it.
pub(crate) fn find_program(program: &str, user: &str, package: &str) -> Result<PathBuf, LabError> {
    find_in(std::env::split_paths(&process::search_path()), program, user, package)
}

fn find_in(
    directories: impl Iterator<Item = PathBuf>,
    program: &str,
    user: &str,
    package: &str,
) -> Result<PathBuf, LabError> {
    let mut files = directories.map(|directory| directory.join(program));
    files.find(|file| file.is_file()).ok_or_else(|| {
        LabError::Unsupported(format!(
            "{user} needs the program '{program}'; install it: apt-get install {package}"
        ))
    })
}

/// Starts this program as `lab ARGUMENTS`.
pub(crate) fn start(what: String, arguments: &[&Path], lock: &Lock) -> Result<Starting, LabError> {
    let own = std::env::current_exe().map_err(LabError::io("finding this program"))?;
    let child = Command::new(own)
        .arg("lab")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(lock.share()?)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LabError::io(format!("starting the {what}")))?;
    Ok(Starting { what, child })
}

impl Starting {
    /// Waits until the process is ready; returns its pid.
    pub(crate) fn ready(mut self) -> Result<u32, LabError> {
        let mut output = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors
                .read_to_string(&mut output)
                .map_err(LabError::io(format!("waiting for the {}", self.what)))?;
        }
        if output.is_empty() {
            return Ok(self.child.id());
        }
        let message = output.trim().trim_start_matches("dwell: ").to_owned();
        match self.child.wait().ok().and_then(|status| status.code()) {
            Some(UNSUPPORTED) => Err(LabError::Unsupported(message)),
            _ => Err(LabError::Background { what: self.what, message }),
        }
    }
}

/// In the background process: writes its identity to `file`, so that `down` can end it. To be
/// called first, while the lock is still shared.
pub(crate) fn write_identity(dir: &LabDir, file: &str) -> Result<(), LabError> {
    let own = Identity::own().map_err(LabError::io("reading /proc/self/stat"))?;
    dir.write_file(file, own.to_string().as_bytes())
}

/// In the background process: signals readiness, and releases the lock and the terminal.
pub(crate) fn ready(dir: &LabDir, log: &str) -> Result<(), LabError> {
    let _ = std::env::set_current_dir("/");
    process::detach(&dir.file(log)).map_err(LabError::io("leaving the terminal"))
}

/// Returns the process whose identity `file` holds, if it still runs.
pub(crate) fn running(dir: &LabDir, file: &str) -> Option<(Identity, Handle)> {
    let text = std::fs::read_to_string(dir.file(file)).ok()?;
    let mut words = text.splitn(3, ' ');
    let identity: Identity = format!("{} {}", words.next()?, words.next()?).parse().ok()?;
    Some((identity, identity.open()?))
}

/// Returns the processes that dwell keeps for the lab that this process runs in (DWELL_LAB_DIR):
/// its TAP links, the supervisor of babeld, and the namespace keeper of a rootless lab. Their own
/// children are not listed.
pub fn kept_processes() -> Vec<u32> {
    let path = std::env::var_os(DIR_VARIABLE).map(PathBuf::from);
    path.and_then(|path| LabDir::at(&path)).map_or_else(Vec::new, |dir| kept(&dir))
}

fn kept(dir: &LabDir) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(dir.path()) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pid_files = names.filter(|name| name == namespace_keeper::FILE || name.ends_with(".pid"));
    pid_files.filter_map(|name| Some(running(dir, &name)?.0.pid)).collect()
}

/// Ends processes: asks first, then kills them after a time-out. Returns when all are gone.
pub(crate) fn end(processes: &[Handle]) {
    const TERMINATE_TIMEOUT: Nanos = Nanos::from_millis(2_000);
    for process in processes {
        let _ = process.signal(Signal::Terminate);
    }
    let asked = dwell_io::clock::monotonic();
    for process in processes {
        let left = TERMINATE_TIMEOUT - (dwell_io::clock::monotonic() - asked);
        if !process.wait(left.max(Nanos::ZERO)) {
            let _ = process.signal(Signal::Kill);
            process.wait(TERMINATE_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_error_says_how_to_install() {
        let empty = tempfile::tempdir().unwrap();
        let find = || find_in([empty.path().to_owned()].into_iter(), "x", "node mcu", "y");
        let missing = find().unwrap_err();
        assert!(matches!(&missing, LabError::Unsupported(text) if text.contains("install y")));
        std::fs::File::create(empty.path().join("x")).unwrap();
        assert_eq!(find().unwrap(), empty.path().join("x"));
    }

    #[test]
    fn kept_processes_have_a_pid_file_and_still_run() {
        let base = tempfile::tempdir().unwrap();
        let dir = LabDir::at(base.path()).unwrap();
        let own = Identity::own().unwrap();
        let write = |name: &str, text: String| dir.write_file(name, text.as_bytes()).unwrap();
        write("lab.json", own.to_string());
        write("link-0.pid", format!("{} 1", own.pid));
        assert_eq!(kept(&dir), [0_u32; 0], "another process had the number");
        write("link-1.pid", own.to_string());
        assert_eq!(kept(&dir), [own.pid]);
        write("holder", format!("{own} 4026531837"));
        assert_eq!(kept(&dir), [own.pid; 2]);
    }
}
