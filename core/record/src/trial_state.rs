//! States of a trial, in the catalogue and in reports.

use serde::{Deserialize, Serialize};

dwell_units::named! {
    /// State of a trial.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum TrialState {
        /// Not started.
        Planned = "planned",
        /// In progress, or its runner died.
        Running = "running",
        /// Measured.
        Finished = "finished",
        /// Failed, with a reason.
        Failed = "failed",
        /// Not supported by its node, with a reason.
        NotRun = "not-run",
    }
}
