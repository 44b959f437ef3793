//! How a command ends.

use std::io;

/// The exit code of every dwell command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Measured, or done.
    Measured = 0,
    /// Failed while running: no reply at all, a full disk, a vanished interface.
    Failed = 1,
    /// The command line is wrong, or asks for something that cannot be.
    Usage = 2,
    /// Measured, but a stated threshold failed.
    Threshold = 3,
    /// Not supported here, or the privilege is missing.
    Unsupported = 4,
    /// Measured, but a stated threshold cannot be decided: too few samples, or the limit lies inside
    /// the interval. [`Exit::Threshold`] wins over this.
    Undecided = 5,
    /// Interrupted; what was measured is written.
    Interrupted = 130,
}

impl Exit {
    /// Combines the verdicts on two thresholds: a failed one wins over an undecided one, and either
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

/// The message of an interruption without a result.
const NOTHING_MEASURED: &str = "interrupted before anything was measured";

/// A command that could not do what was asked: the exit code and the reason. The text names the
/// flag, the value and what would be right.
#[derive(Debug)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// Why, with its causes.
    pub error: anyhow::Error,
}

impl Failure {
    /// The command line is wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, error: anyhow::anyhow!(text.into()) }
    }

    /// This machine cannot, or we may not.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unsupported, error: anyhow::anyhow!(text.into()) }
    }

    /// A signal came before there was a result.
    pub(crate) fn interrupted() -> Self {
        Self { exit: Exit::Interrupted, error: anyhow::anyhow!(NOTHING_MEASURED) }
    }

    /// The same failure, as an interruption if `stop` says so: what ends with the signal is no
    /// finding about the target. A wrong command line stays one.
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
    /// Anything unforeseen is a runtime failure.
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
