//! Exit codes, and failures with their exit code.

use std::io;

/// Exit codes of all dwell commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Measured, or completed.
    Measured = 0,
    /// Failed while running: no reply at all, a full disk, a vanished interface.
    Failed = 1,
    /// The command line is wrong or asks for something impossible.
    Usage = 2,
    /// Measured, but a stated threshold failed.
    Threshold = 3,
    /// Not supported here, or the privilege is missing.
    Unsupported = 4,
    /// Measured, but a stated threshold cannot be decided: too few samples, or the limit is inside
    /// the confidence interval. [`Exit::Threshold`] takes precedence.
    Undecided = 5,
    /// Interrupted; results so far are written.
    Interrupted = 130,
}

impl Exit {
    /// Combines the verdicts on two thresholds. Failed takes precedence over undecided, undecided
    /// over success.
    pub fn or_worse(self, other: Self) -> Self {
        let rank = |exit: Self| match exit {
            Self::Threshold => 2,
            Self::Undecided => 1,
            _ => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// Message of an interruption before the first result.
const NOTHING_MEASURED: &str = "interrupted before anything was measured";

/// A failed command. The message names the flag, the value and the correction.
#[derive(Debug)]
pub struct Failure {
    /// Exit code of the process.
    pub exit: Exit,
    /// The error and its causes.
    pub error: anyhow::Error,
}

impl Failure {
    /// A wrong command line.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, error: anyhow::anyhow!(text.into()) }
    }

    /// Not supported or not permitted on this machine.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unsupported, error: anyhow::anyhow!(text.into()) }
    }

    /// Interrupted before the first result.
    pub(crate) fn interrupted() -> Self {
        Self { exit: Exit::Interrupted, error: anyhow::anyhow!(NOTHING_MEASURED) }
    }

    /// Turns the failure into an interruption if `stop` is set: an error caused by the signal says
    /// nothing about the target. Usage errors are kept.
    pub(crate) fn or_interrupted(self, stop: bool) -> Self {
        if !stop || matches!(self.exit, Exit::Usage | Exit::Interrupted) {
            return self;
        }
        Self { exit: Exit::Interrupted, error: self.error.context(NOTHING_MEASURED) }
    }

    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// Any other error is a runtime failure.
    fn from(error: E) -> Self {
        Self { exit: Exit::Failed, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruption_replaces_every_failure_but_usage() {
        let failed = || Failure::from(anyhow::anyhow!("no connection"));
        let unsupported = || Failure::unsupported("no stamps");
        for failure in [failed(), unsupported(), Failure::interrupted()] {
            let interrupted = failure.or_interrupted(true);
            assert_eq!(interrupted.exit, Exit::Interrupted);
            let text = format!("{:#}", interrupted.error);
            assert!(text.starts_with("interrupted before anything was measured"), "{text}");
        }
        assert_eq!(Failure::usage("wrong").or_interrupted(true).exit, Exit::Usage);
        assert_eq!(unsupported().or_interrupted(false).exit, Exit::Unsupported);
    }
}
