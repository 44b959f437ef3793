//! Commands of dwell that requests start: always a vector of arguments, never a shell.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::app::App;
use crate::error::Error;

/// Maximum number of bytes kept of a command's output.
const MAX_OUTPUT_LEN: u64 = 16 << 20;

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
        let failed = |error: std::io::Error| Error::Command(format!("cannot start dwell: {error}"));
        let mut child = Command::new(&self.config().program)
            .args(arguments)
            .env("DWELL_DATA", &self.config().data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let all = async {
            let (stdout, stderr) = tokio::join!(text(stdout), text(stderr));
            (stdout, stderr, child.wait().await)
        };
        let Ok((stdout, stderr, status)) = tokio::time::timeout(timeout, all).await else {
            let seconds = timeout.as_secs();
            return Err(Error::Command(format!("dwell was ended after {seconds} s")));
        };
        Ok(Output { code: status.map_err(failed)?.code(), stdout, stderr })
    }
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
