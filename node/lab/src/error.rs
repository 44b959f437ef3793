//! Errors of labs.

use std::io;
use std::path::PathBuf;

use dwell_engine::link::LinkError;
use dwell_units::{BitRate, UnitError};
use thiserror::Error;

/// Error of an operation on a lab; the text says what would be right.
#[derive(Debug, Error)]
pub enum LabError {
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The name is not valid for a lab.
    #[error(
        "'{0}' is not a valid lab name; use 1 to 20 letters, digits and inner hyphens, \
         like demo or rtt-2"
    )]
    Name(String),
    /// A lab of this name exists.
    #[error("lab '{0}' already exists; choose another name, or end it: dwell lab down {0}")]
    Exists(String),
    /// A foreign namespace has a name like those of the lab.
    #[error(
        "network namespace '{netns}' exists and does not belong to a lab; \
         choose another name than '{lab}', or remove it: ip netns del {netns}"
    )]
    NamespaceTaken {
        /// Requested name of the lab.
        lab: String,
        /// Namespace.
        netns: String,
    },
    /// There is no lab of this name.
    #[error("there is no lab '{name}'; {}", known(.existing))]
    NoSuchLab {
        /// Requested name.
        name: String,
        /// Existing labs.
        existing: Vec<String>,
    },
    /// No lab was named, and the number of labs is not one.
    #[error("which lab? {}", known(.existing))]
    WhichLab {
        /// Existing labs.
        existing: Vec<String>,
    },
    /// The lab has no such node.
    #[error("lab '{lab}' has no node '{node}'; its nodes are {nodes}")]
    NoSuchNode {
        /// Lab.
        lab: String,
        /// Requested name.
        node: String,
        /// Existing nodes.
        nodes: String,
    },
    /// Another process is creating or removing the lab.
    #[error("lab '{0}' is being created or removed by another dwell process; try again later")]
    Busy(String),
    /// The lab is incomplete.
    #[error("lab '{0}' is incomplete (its creation was interrupted); end it: dwell lab down {0}")]
    NotWhole(String),
    /// Not supported by this machine, or not permitted.
    #[error("{0}")]
    Unsupported(String),
    /// A lab could not be created, and its remains could not be removed.
    #[error("{error}; removing the incomplete lab failed ({rollback}); run: dwell lab down {name}")]
    NotRolledBack {
        /// Lab.
        name: String,
        /// Why it could not be created.
        error: Box<LabError>,
        /// Why it could not be removed.
        rollback: Box<LabError>,
    },
    /// ^C or SIGTERM arrived while the lab was being created; the incomplete lab was removed.
    #[error("interrupted; the incomplete lab was removed")]
    Interrupted,
    /// The process that requested it has ended.
    #[error("standard input was closed; nothing was done")]
    Abandoned,
    /// `ip` or `tc` failed.
    #[error("{tool} failed{}: {message}", at(.line))]
    Tool {
        /// `ip` or `tc`.
        tool: &'static str,
        /// Line that it refused, if it names one.
        line: Option<String>,
        /// Its message.
        message: String,
    },
    /// babeld provided no route in time.
    #[error("babeld provided no route from {from} to {to} within {after}: {reason}")]
    NoRoute {
        /// Node without the route.
        from: String,
        /// Node that it does not reach.
        to: String,
        /// Time waited.
        after: dwell_units::Nanos,
        /// State of the route.
        reason: String,
    },
    /// A background process of the lab did not start.
    #[error("the {what} did not start: {message}")]
    Background {
        /// Name of the process.
        what: String,
        /// Its message.
        message: String,
    },
    /// A system call or an access to a file failed.
    #[error("{what}: {error}")]
    Io {
        /// Operation.
        what: String,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A file of a lab's state is not in dwell's format.
    #[error("{} is damaged ({error}); end the lab: dwell lab down NAME", .path.display())]
    State {
        /// File.
        path: PathBuf,
        /// Error of the parser.
        error: serde_json::Error,
    },
}

/// Why a text or a file is not a topology.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// Neither a known kind of topology nor an existing file.
    #[error(
        "'{0}' is not a topology; write line:3, star:5, forced:3 or the name of a TOML \
         file that exists"
    )]
    Unknown(String),
    /// The number of nodes is missing or invalid.
    #[error("'{text}' has no valid number of nodes; write it like {kind}:3")]
    NoCount {
        /// Text as given.
        text: String,
        /// Kind of topology, such as `line`.
        kind: &'static str,
    },
    /// Too few or too many nodes.
    #[error("{count} nodes are not possible; a lab has 1 to {max} nodes")]
    Count {
        /// Requested number.
        count: u64,
        /// Maximum.
        max: usize,
    },
    /// Too many links.
    #[error("{count} links are not possible; a lab has at most {max}")]
    Links {
        /// Requested number.
        count: usize,
        /// Maximum.
        max: usize,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The file is invalid.
    #[error("{file}, line {line}: {message}")]
    File {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A quota names a node that does not exist.
    #[error("--quota {node}: there is no such node; nodes are {nodes}")]
    QuotaNode {
        /// Requested node.
        node: String,
        /// Existing nodes.
        nodes: String,
    },
    /// The parameters of a link are inconsistent.
    #[error("link {link}: {error}")]
    Link {
        /// Its two nodes.
        link: String,
        /// What is wrong.
        error: LinkError,
    },
    /// The mechanism cannot do what is requested.
    #[error("link {link}: {message}")]
    Mechanism {
        /// Its two nodes.
        link: String,
        /// What is wrong, and what would be right.
        message: &'static str,
    },
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
