//! `ip` and `tc` of iproute2, run with many lines at once (decision 0003).

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use dwell_io::process;

use crate::error::LabError;
use crate::state::Lock;

/// One of the two programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    Ip,
    Tc,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Tc => "tc",
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new(self.name());
        command.env("PATH", process::search_path()).env("LC_ALL", "C");
        command
    }

    fn missing(self, error: io::Error) -> LabError {
        match error.kind() {
            io::ErrorKind::NotFound => LabError::Unsupported(format!(
                "labs need the program '{}'; install it: apt-get install iproute2",
                self.name()
            )),
            _ => LabError::io(format!("starting {}", self.name()))(error),
        }
    }

    /// Runs `lines` in the namespaces of the calling thread; stops at the first that fails. The
    /// child shares the lab's `lock`, if given.
    pub(crate) fn batch(self, lines: &str, lock: Option<&Lock>) -> Result<(), LabError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut child = self
            .command()
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(lock.map_or_else(|| Ok(Stdio::null()), Lock::share)?)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.missing(error))?;
        // The tool exits at a line that fails. Its message is more useful than "broken pipe".
        let _ = child.stdin.take().map(|mut input| input.write_all(lines.as_bytes()));
        let output = child.wait_with_output().map_err(|error| self.missing(error))?;
        if output.status.success() { Ok(()) } else { Err(self.refusal(lines, &output)) }
    }

    /// Runs it once with `arguments` and returns its output.
    pub(crate) fn ask(self, arguments: &[&str]) -> Result<Vec<u8>, LabError> {
        let output = self
            .command()
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.missing(error))?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(self.refusal(&arguments.join(" "), &output))
        }
    }

    fn refusal(self, lines: &str, output: &Output) -> LabError {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr
            .lines()
            .find_map(|text| text.strip_prefix("Command failed -:")?.parse::<usize>().ok())
            .and_then(|number| lines.lines().nth(number.checked_sub(1)?))
            .map(str::to_owned);
        let message = stderr.lines().find(|text| !text.is_empty() && !text.starts_with("Command "));
        let message = message.map_or_else(|| output.status.to_string(), str::to_owned);
        LabError::Tool { tool: self.name(), line, message }
    }
}

/// Returns the release of iproute2, such as `iproute2-6.1.0`, for results.
pub(crate) fn version() -> Option<String> {
    let text = Tool::Ip.ask(&["-V"]).ok()?;
    let text = String::from_utf8(text).ok()?;
    Some(text.split([' ', ',']).find(|word| word.starts_with("iproute2"))?.trim().to_owned())
}
