//! Errors of labs.

use std::io;
use std::path::PathBuf;

use dwell_engine::link::LinkError;
use dwell_units::{BitRate, UnitError};
use thiserror::Error;

/// Error of an operation on a lab; the text says what would be right.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum LabError {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(
        "'{0}' is not a valid lab name; use 1 to 20 letters, digits and inner hyphens, \
         like demo or rtt-2"
    )]
    Name(String),
    #[error("lab '{0}' already exists; choose another name, or end it: dwell lab down {0}")]
    Exists(String),
    #[error(
        "network namespace '{netns}' exists and does not belong to a lab; \
         choose another name than '{lab}', or remove it: ip netns del {netns}"
    )]
    NamespaceTaken { lab: String, netns: String },
    #[error("there is no lab '{name}'; {}", known(.existing))]
    NoSuchLab { name: String, existing: Vec<String> },
    #[error("which lab? {}", known(.existing))]
    WhichLab { existing: Vec<String> },
    #[error("lab '{lab}' has no node '{node}'; its nodes are {nodes}")]
    NoSuchNode { lab: String, node: String, nodes: String },
    #[error("lab '{0}' is being created or removed by another dwell process; try again later")]
    Busy(String),
    #[error("lab '{0}' is incomplete (its creation was interrupted); end it: dwell lab down {0}")]
    NotWhole(String),
    /// Not supported by this machine, or not permitted.
    #[error("{0}")]
    Unsupported(String),
    #[error("{error}; removing the incomplete lab failed ({rollback}); run: dwell lab down {name}")]
    NotRolledBack { name: String, error: Box<LabError>, rollback: Box<LabError> },
    #[error("interrupted; the incomplete lab was removed")]
    Interrupted,
    /// The process that requested it has ended.
    #[error("standard input was closed; nothing was done")]
    Abandoned,
    #[error("{tool} failed{}: {message}", at(.line))]
    Tool { tool: &'static str, line: Option<String>, message: String },
    #[error("babeld provided no route from {from} to {to} within {after}: {reason}")]
    NoRoute { from: String, to: String, after: dwell_units::Nanos, reason: String },
    #[error("the {what} did not start: {message}")]
    Background { what: String, message: String },
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("{} is damaged ({error}); end the lab: dwell lab down NAME", .path.display())]
    State { path: PathBuf, error: serde_json::Error },
}

/// Why a text or a file is not a topology.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum TopologyError {
    #[error(
        "'{0}' is not a topology; write line:3, star:5, forced:3, wifi:3 or the name of a TOML \
         file that exists"
    )]
    Unknown(String),
    #[error("'{text}' has no valid number of nodes; write it like {kind}:3")]
    NoCount { text: String, kind: &'static str },
    #[error("{count} nodes are not possible; a lab has 1 to {max} nodes")]
    Count { count: u64, max: usize },
    #[error("{count} radios are not possible; a Wi-Fi lab has {min} to {max} radios, like wifi:3")]
    Radios { count: usize, min: usize, max: usize },
    #[error(
        "--{option} does not apply to simulated radios, which have no rate, delay or loss of their \
         own; leave it out, or use forced:{count}, the same line on a bridge"
    )]
    RadioOption { option: &'static str, count: usize },
    #[error("{count} links are not possible; a lab has at most {max}")]
    Links { count: usize, max: usize },
    #[error("cannot read {}: {error}", .path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{file}, line {line}: {message}")]
    File { file: String, line: usize, message: String },
    #[error("--quota {node}: there is no such node; nodes are {nodes}")]
    QuotaNode { node: String, nodes: String },
    #[error("link {link}: {error}")]
    Link { link: String, error: LinkError },
    #[error("link {link}: {message}")]
    Mechanism { link: String, message: &'static str },
}

/// Why a text in a topology file is not a valid value.
#[derive(Debug, Error)]
pub(crate) enum ValueError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("'{0}' is not a mechanism; mechanisms are netem, tbf and tap")]
    Mechanism(String),
    #[error("{slow} is too slow; the minimum rate of a link is {min}")]
    Rate { slow: BitRate, min: BitRate },
}

impl LabError {
    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Topology(_)
                | Self::Name(_)
                | Self::NoSuchLab { .. }
                | Self::WhichLab { .. }
                | Self::NoSuchNode { .. }
        )
    }

    /// Whether a lab of the requested name, or its remains, prevents a new one.
    pub fn blocks_creation(&self) -> bool {
        matches!(self, Self::Exists(_) | Self::Busy(_) | Self::NotWhole(_))
    }

    /// The lab belongs to root, and this process is not root.
    pub(crate) fn not_ours(lab: &str) -> Self {
        Self::Unsupported(format!(
            "lab '{lab}' belongs to root; run this as root, or create your own lab"
        ))
    }

    /// For `map_err`: adds the operation to an I/O error.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

fn known(labs: &[String]) -> String {
    match labs {
        [] => "no lab exists; create one: dwell lab up line:2".to_owned(),
        labs => format!("existing labs: {}", labs.join(", ")),
    }
}

fn at(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(" at '{line}'")).unwrap_or_default()
}
