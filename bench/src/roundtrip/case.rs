//! The three set-ups of the experiment, with their names in plans and tables.

use serde::Serialize;

/// A set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Round trips only
    Idle,
    /// Traffic in both directions over the measured link
    Network,
    /// CPU load on every core
    Cpu,
}

impl Case {
    /// All set-ups, in the order of the publication.
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Network, Self::Cpu];

    /// Returns the value of the axis `load` in the plan.
    pub(super) const fn load(self) -> &'static str {
        match self {
            Self::Idle => "none",
            Self::Network => "network",
            Self::Cpu => "cpu",
        }
    }

    /// Returns the name in tables.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Idle => "no load",
            Self::Network => "network load",
            Self::Cpu => "CPU load",
        }
    }

    /// Returns a note on how to read the figures.
    pub(super) const fn note(self) -> Option<&'static str> {
        match self {
            Self::Idle => None,
            Self::Network => {
                Some("network load: a round trip waits for the packets before it on the link")
            }
            Self::Cpu => Some(
                "CPU load: both ends share the loaded cores, while in the paper each end had its \
                 own",
            ),
        }
    }
}
