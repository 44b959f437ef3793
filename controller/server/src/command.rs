//! Commands of dwell that requests start: always a vector of arguments, never a shell.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use axum::body::{Body, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::Error;

/// Maximum number of bytes kept of a command's output.
const MAX_OUTPUT_LEN: u64 = 16 << 20;

/// Time-out of a command that only changes the catalogue.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time-out of a command that connects to a device or reads runs. It ends before its request does
/// (`access`), so that the answer says which command took too long.
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_secs(110);

/// Number of bytes of a streamed output that are read at once.
const CHUNK_LEN: usize = 64 << 10;

/// What a command printed.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Output {
    /// Returns standard output, or the reason of the failure.
    pub(crate) fn success(self) -> Result<String, Error> {
        match self.code {
            Some(0) => Ok(self.stdout),
            Some(2) => Err(Error::Invalid(self.reason())),
            _ => Err(Error::Command(self.reason())),
        }
    }

    /// Returns why the command failed, as it printed it.
    pub(crate) fn reason(&self) -> String {
        let lines = self.stderr.lines().chain(self.stdout.lines());
        let lines: Vec<&str> =
            lines.map(|line| line.strip_prefix("dwell: ").unwrap_or(line).trim()).collect();
        let text = lines.join("\n").trim().to_owned();
        match (text.is_empty(), self.code) {
            (false, _) => text,
            (true, Some(code)) => format!("dwell ended with exit code {code}"),
            (true, None) => "dwell was ended by a signal".to_owned(),
        }
    }
}

impl App {
    /// Runs a command on the data directory of this server and returns what it printed. It is killed
    /// if it takes longer than `timeout`, or if its request was cancelled.
    ///
    /// # Errors
    /// It cannot be started, or takes too long.
    pub(crate) async fn command(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        timeout: Duration,
    ) -> Result<Output, Error> {
        let _permit = self.commands().acquire().await.map_err(|_| Error::Ending)?;
        let mut child = self.spawn(arguments)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let all = async {
            let (stdout, stderr) = tokio::join!(text(stdout), text(stderr));
            (stdout, stderr, child.wait().await)
        };
        let Ok((stdout, stderr, status)) = tokio::time::timeout(timeout, all).await else {
            let seconds = timeout.as_secs();
            return Err(Error::Command(format!("dwell was ended after {seconds} s")));
        };
        Ok(Output { code: status.map_err(|error| failed(&error))?.code(), stdout, stderr })
    }

    /// Streams the output of a command. It is killed when its reader goes away.
    ///
    /// # Errors
    /// It cannot be started, or fails before it prints anything.
    pub(crate) async fn stream(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Body, Error> {
        let permit = self.streams().acquire_owned().await.map_err(|_| Error::Ending)?;
        let mut child = self.spawn(arguments)?;
        let stderr = child.stderr.take();
        let stderr = tokio::spawn(async move { text(stderr).await });
        let Some(mut stdout) = child.stdout.take() else { return Err(Error::Ending) };
        let first = chunk(&mut stdout).await.map_err(|error| failed(&error))?;
        if first.is_empty() {
            let code = child.wait().await.map_err(|error| failed(&error))?.code();
            let stderr = stderr.await.unwrap_or_default();
            return Output { code, stdout: String::new(), stderr }.success().map(Body::from);
        }
        let stream = Streamed { child, stdout, _permit: permit };
        let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(2);
        tokio::spawn(stream.send(first, sender));
        Ok(Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver)))
    }

    fn spawn(&self, arguments: impl IntoIterator<Item = OsString>) -> Result<Child, Error> {
        Command::new(&self.config().program)
            .args(arguments)
            .env("DWELL_DATA", &self.config().data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| match error.kind() {
                // An argument has a null character.
                io::ErrorKind::InvalidInput => {
                    Error::Invalid("a value has a null character".to_owned())
                }
                // MAX_ARG_STRLEN of Linux.
                io::ErrorKind::ArgumentListTooLong => {
                    Error::Invalid("a value is longer than 128 KiB".to_owned())
                }
                _ => failed(&error),
            })
    }
}

fn failed(error: &io::Error) -> Error {
    Error::Command(format!("cannot start dwell: {error}"))
}

/// A command whose output is streamed.
struct Streamed {
    child: Child,
    stdout: ChildStdout,
    _permit: OwnedSemaphorePermit,
}

impl Streamed {
    /// Sends the output. Its end is an error unless the command succeeded, so a reader does not take
    /// a part for the whole.
    async fn send(mut self, first: Bytes, sender: tokio::sync::mpsc::Sender<io::Result<Bytes>>) {
        let mut next = Ok(first);
        loop {
            match next {
                Ok(chunk) if chunk.is_empty() => break,
                // The reader is gone, so the command is killed.
                chunk => {
                    if sender.send(chunk).await.is_err() {
                        return;
                    }
                }
            }
            next = chunk(&mut self.stdout).await;
        }
        let is_complete = self.child.wait().await.is_ok_and(|status| status.success());
        if !is_complete {
            let _ = sender.send(Err(io::Error::other("dwell export failed"))).await;
        }
    }
}

/// Reads some bytes; none at the end.
async fn chunk(pipe: &mut ChildStdout) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(CHUNK_LEN);
    pipe.read_buf(&mut bytes).await?;
    Ok(bytes.into())
}

/// Reads a pipe to its end, and keeps the start of a long text.
async fn text(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    // What cannot be read is missing from the text only.
    let _ = (&mut pipe).take(MAX_OUTPUT_LEN).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_command_is_its_error_output() {
        let reason = |code, stderr: &str| {
            Output { code, stdout: String::new(), stderr: stderr.to_owned() }.reason()
        };
        assert_eq!(reason(Some(2), "dwell: no device\n"), "no device");
        assert_eq!(reason(Some(1), ""), "dwell ended with exit code 1");
        assert_eq!(reason(None, " \n"), "dwell was ended by a signal");
    }
}
