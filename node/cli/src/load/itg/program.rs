//! External program of a job: found, started, watched and stopped. It ends with its job and with
//! this process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use dwell_io::process::{self, Handle, Signal};
use dwell_units::Nanos;

use crate::Failure;

/// Time to exit after SIGINT; then the program is killed.
const STOP_TIMEOUT: Nanos = Nanos::from_secs(2);

/// Finds a program of D-ITG on the search path.
pub(super) fn find(name: &str) -> Result<PathBuf, Failure> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &str, path: &OsStr) -> Result<PathBuf, Failure> {
    let found = std::env::split_paths(path).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::unsupported(format!(
            "generator itg needs the program '{name}'; install it: apt-get install d-itg"
        ))
    })
}

/// A running program.
pub(super) struct Program {
    name: String,
    child: Child,
    handle: Handle,
    output: PathBuf,
}

impl Program {
    /// Starts the program; its output goes to a file in `dir`.
    pub(super) fn start<'a>(
        path: &Path,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        dir: &Path,
    ) -> Result<Self, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = dir.join("output");
        let file = File::create(&output).context("cannot create the output file of a program")?;
        let errors = file.try_clone()?;
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(file).stderr(errors);
        // The program ends with this thread, which outlives it.
        let mut child = process::end_with_parent(&mut command, Signal::Kill)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        match Handle::open(child.id()) {
            Ok(handle) => Ok(Self { name, child, handle, output }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error).with_context(|| format!("cannot watch {name}"))?
            }
        }
    }

    /// Whether the program ends within this time.
    pub(super) fn has_ended(&self, within: Nanos) -> bool {
        self.handle.wait(within)
    }

    /// Returns the output so far.
    pub(super) fn output(&self) -> String {
        fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Whether any socket in the program's network namespace listens on this TCP port (proc(5),
    /// `/proc/PID/net/tcp`).
    pub(super) fn listens_by_tcp(&self, port: u16) -> bool {
        const LISTEN: &str = "0A";
        let end = format!(":{port:04X}");
        ["tcp", "tcp6"].into_iter().any(|table| {
            let path = format!("/proc/{}/net/{table}", self.child.id());
            fs::read_to_string(path).unwrap_or_default().lines().any(|line| {
                let mut fields = line.split_ascii_whitespace().skip(1);
                let local = fields.next().is_some_and(|local| local.ends_with(&end));
                local && fields.nth(1) == Some(LISTEN)
            })
        })
    }

    /// Returns the failure of a job whose program exited.
    pub(super) fn unexpected_exit(&self) -> Failure {
        self.failure("exited unexpectedly")
    }

    /// Returns the failure of a job whose program did not start its work.
    pub(super) fn start_failure(&self, within: Nanos) -> Failure {
        self.failure(&format!("did not start within {within}"))
    }

    fn failure(&self, what: &str) -> Failure {
        let output = self.output();
        let line = output.lines().map(str::trim).find(|line| line.contains("ERROR"));
        let why = line.map(|line| format!(": {line}")).unwrap_or_default();
        anyhow::anyhow!("{} {what}{why}", self.name).into()
    }

    /// Stops the program with SIGINT, so that it writes its log; returns its output.
    pub(super) fn end(self) -> Result<String, Failure> {
        self.handle.signal(Signal::Interrupt)?;
        self.has_ended(STOP_TIMEOUT);
        Ok(self.output())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // If the program has already exited, this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_names_its_package() {
        let missing = find_in("ITGSend", OsStr::new("/nowhere")).unwrap_err();
        let text = format!("{:#}", missing.error);
        assert!(text.contains("'ITGSend'") && text.contains("apt-get install d-itg"), "{text}");
    }

    #[test]
    fn program_exit_reports_error_and_stop_works() {
        let dir = tempfile::tempdir().unwrap();
        let shell = Path::new("/bin/sh");
        let start = |script: &str| {
            let arguments = ["-c", script].map(OsStr::new);
            Program::start(shell, arguments, dir.path()).unwrap()
        };
        let one = start("echo '** ERROR ** no flow'; exit 1");
        assert!(one.has_ended(Nanos::from_secs(10)));
        let why = format!("{:#}", one.unexpected_exit().error);
        assert_eq!(why, "sh exited unexpectedly: ** ERROR ** no flow");
        let other = start("echo here; exec sleep 60");
        while !other.output().contains("here") {
            assert!(!other.has_ended(Nanos::from_millis(5)));
        }
        assert!(!other.listens_by_tcp(1));
        assert_eq!(other.end().unwrap(), "here\n");
    }
}
