//! The three set-ups of the experiment, by the names that people and plans have for them.

use serde::Serialize;

/// A set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// Nothing but the round trips
    Idle,
    /// Traffic both ways over the measured link
    Network,
    /// A burner on every core
    Cpu,
}

impl Case {
    /// All of them, in the order of the paper.
    pub(super) const ALL: [Self; 3] = [Self::Idle, Self::Network, Self::Cpu];

    /// The value of the axis `load` in the plan.
    pub(super) const fn load(self) -> &'static str {
        match self {
            Self::Idle => "none",
            Self::Network => "network",
            Self::Cpu => "cpu",
        }
    }

    /// As tables name it.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Idle => "no load",
            Self::Network => "network load",
            Self::Cpu => "CPU load",
        }
    }

    /// What one has to know to read its figures.
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
