//! Why something about a lab could not be done.

use std::io;
use std::path::PathBuf;

use dwell_engine::link::LinkError;
use dwell_units::{BitRate, UnitError};
use thiserror::Error;

/// What went wrong, in words that say what would be right.
#[derive(Debug, Error)]
pub enum LabError {
    /// The topology is none.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The name cannot be a lab's.
    #[error(
        "'{0}' cannot be the name of a lab: it takes 1 to 20 letters, digits and inner hyphens, \
         like demo or rtt-2"
    )]
    Name(String),
    /// A lab of that name is there already.
    #[error("a lab '{0}' is there already; take another name, or end it: dwell lab down {0}")]
    Exists(String),
    /// A namespace of somebody else's has a name like those of the lab.
    #[error(
        "there is a network namespace '{netns}', which no lab of dwell's made and which stays; \
         take another name than '{lab}', or remove it yourself: ip netns del {netns}"
    )]
    NamespaceTaken {
        /// The lab that was asked for.
        lab: String,
        /// The namespace.
        netns: String,
    },
    /// No lab of that name.
    #[error("there is no lab '{name}'; {}", known(.there_are))]
    NoSuchLab {
        /// What was asked for.
        name: String,
        /// The labs there are.
        there_are: Vec<String>,
    },
    /// No lab was named, and there is not exactly one.
    #[error("which lab? {}", known(.there_are))]
    WhichLab {
        /// The labs there are.
        there_are: Vec<String>,
    },
    /// The lab has no such node.
    #[error("lab '{lab}' has no node '{node}'; its nodes are {nodes}")]
    NoSuchNode {
        /// The lab.
        lab: String,
        /// What was asked for.
        node: String,
        /// The nodes it has.
        nodes: String,
    },
    /// Somebody else is making or removing the lab.
    #[error("lab '{0}' is being made or removed by another dwell; try again when it has ended")]
    Busy(String),
    /// The lab is only half there.
    #[error("lab '{0}' is not whole (its making was cut short); end it: dwell lab down {0}")]
    NotWhole(String),
    /// This machine cannot, or we may not.
    #[error("{0}")]
    Unsupported(String),
    /// A lab could not be made, nor what was made of it be removed.
    #[error("{error}; and what was made is not all gone ({rollback}): dwell lab down {name}")]
    NotRolledBack {
        /// The lab.
        name: String,
        /// Why it could not be made.
        error: Box<LabError>,
        /// Why it could not be removed.
        rollback: Box<LabError>,
    },
    /// ^C or SIGTERM came while the lab was being made; what was made is gone again.
    #[error("interrupted; what was made of the lab is gone again")]
    Interrupted,
    /// The process that asked for it has ended.
    #[error("standard input has ended; nothing was done")]
    Abandoned,
    /// `ip` or `tc` refused.
    #[error("{tool} failed{}: {message}", at(.line))]
    Tool {
        /// Which of the two.
        tool: &'static str,
        /// The line it refused, where it says.
        line: Option<String>,
        /// What it said.
        message: String,
    },
    /// babeld gave no route in time.
    #[error("babeld gave no route from {from} to {to} within {after}: {reason}")]
    NoRoute {
        /// The node without the route.
        from: String,
        /// The node it does not reach.
        to: String,
        /// How long was waited.
        after: dwell_units::Nanos,
        /// What there is instead.
        reason: String,
    },
    /// A background process of the lab did not start.
    #[error("the {what} did not start: {message}")]
    Background {
        /// Which.
        what: String,
        /// What it said.
        message: String,
    },
    /// A system call or a file.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
    /// A file of a lab's state is not what dwell writes.
    #[error("{} is damaged ({error}); end the lab: dwell lab down NAME", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// Why a text or a file is not a topology.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// Not a word we know, and no file of that name.
    #[error(
        "'{0}' is no topology; write line:3, star:5, forced:3 or the name of a TOML \
         file that is there"
    )]
    Unknown(String),
    /// Not a number of nodes.
    #[error("'{text}' has no number of nodes; write it like {kind}:3")]
    NoCount {
        /// What was given.
        text: String,
        /// `line` or `star`.
        kind: &'static str,
    },
    /// Too few or too many.
    #[error("{count} nodes are not possible; a lab has 1 to {most} nodes")]
    Count {
        /// What was asked for.
        count: u64,
        /// The most there can be.
        most: usize,
    },
    /// Too many links.
    #[error("{count} links are not possible; a lab has at most {most}")]
    Links {
        /// What was asked for.
        count: usize,
        /// The most there can be.
        most: usize,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file says something wrong.
    #[error("{file}, line {line}: {message}")]
    File {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A quota is for no node of the lab.
    #[error("--quota {node}: there is no such node; nodes are {nodes}")]
    QuotaNode {
        /// What was asked for.
        node: String,
        /// The nodes there are.
        nodes: String,
    },
    /// A link's parameters do not go together.
    #[error("link {link}: {error}")]
    Link {
        /// Its two nodes.
        link: String,
        /// What is wrong.
        error: LinkError,
    },
    /// A mechanism that cannot do what is asked of it.
    #[error("link {link}: {message}")]
    Mechanism {
        /// Its two nodes.
        link: String,
        /// What is wrong and what would be right.
        message: &'static str,
    },
}

/// Why a text in a topology file is not a value of its key.
#[derive(Debug, Error)]
pub(crate) enum ValueError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("'{0}' is no mechanism; there are netem, tbf and tap")]
    Mechanism(String),
    #[error("{slow} is too slow; the least rate of a link is {least}")]
    Rate { slow: BitRate, least: BitRate },
}

impl LabError {
    /// Whether the command line is to blame.
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

    /// Whether a lab of the wanted name, or what is left of one, is in the way of a new one.
    pub fn is_in_the_way(&self) -> bool {
        matches!(self, Self::Exists(_) | Self::Busy(_) | Self::NotWhole(_))
    }

    /// The lab belongs to root, and we are not root.
    pub(crate) fn not_ours(lab: &str) -> Self {
        Self::Unsupported(format!(
            "lab '{lab}' belongs to root; run this as root, or make a lab of your own"
        ))
    }

    /// For `map_err`: an I/O error with what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

fn known(labs: &[String]) -> String {
    match labs {
        [] => "there is none; make one: dwell lab up line:2".to_owned(),
        labs => format!("there are: {}", labs.join(", ")),
    }
}

fn at(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(" at '{line}'")).unwrap_or_default()
}
