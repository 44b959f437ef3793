//! What a hub on a bus reports while it runs.

use std::fmt;

use dwell_rollup::Name;

/// Something that an operator should know. The text of an event is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    /// The hub receives records.
    Receiving {
        /// Scheme, host and port of the server.
        server: String,
        /// Messages in the stream.
        waiting: u64,
    },
    /// The hub cannot receive, and tries again.
    Waiting(String),
    /// The connection is lost; it is made again.
    Disconnected,
    /// The connection is there again.
    Reconnected,
    /// The server refuses something.
    Refused(String),
    /// The database failed. The messages are delivered again.
    DatabaseFailed(String),
    /// The database stores again.
    DatabaseWorks,
    /// Bad records of a node. Reported at most once in 10 min for each reason.
    Bad {
        /// The node.
        node: Name,
        /// Reason of the first one in its batch.
        reason: String,
        /// Number of records since the last report.
        count: u64,
    },
    /// Records that are neither stored nor receipted now. Reported at most once in 10 min for each node.
    Deferred {
        /// The node.
        node: Name,
        /// Number of records since the last report.
        count: u64,
    },
    /// Messages on subjects that belong to no node; they are removed. Reported at most once in 10 min.
    NoNode {
        /// Subject of the last one.
        subject: String,
        /// Number of messages since the last report.
        count: u64,
    },
    /// Acknowledgements of the server on the subject of a node, which another node named for them; they
    /// are removed. Reported at most once in 10 min for each node.
    OfServer {
        /// The node.
        node: Name,
        /// Number of messages since the last report.
        count: u64,
    },
    /// A schedule was sent to nodes.
    Schedule {
        /// Its version.
        version: u64,
        /// Number of nodes.
        nodes: usize,
    },
}

impl fmt::Display for BusEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receiving { server, waiting } => {
                write!(f, "receiving from {server}, {waiting} messages wait")
            }
            Self::Waiting(reason) => write!(f, "{reason}; trying again"),
            Self::Disconnected => f.write_str("connection to nats-server lost; connecting again"),
            Self::Reconnected => f.write_str("connected to nats-server again"),
            Self::Refused(what) => write!(
                f,
                "nats-server: {what}; give the hub's key the permissions that `dwell hub nats-config` \
                 writes, and reload the server"
            ),
            Self::DatabaseFailed(reason) => {
                write!(f, "nothing is stored, and nodes keep their records: {reason}")
            }
            Self::DatabaseWorks => f.write_str("storing again"),
            Self::Bad { node, reason, count } => {
                write!(f, "{node}: {count} bad records: {reason}")
            }
            Self::Deferred { node, count } => write!(
                f,
                "{node}: {count} records wait for later: its agent starts too often, or too many \
                 records are missing"
            ),
            Self::NoNode { subject, count } => {
                write!(f, "{count} messages on subjects of no node, such as {subject}, are removed")
            }
            Self::OfServer { node, count } => write!(
                f,
                "{node}: {count} acknowledgements of nats-server for messages of another node are removed: \
                 a key is misused; find it in the trace of nats-server, and revoke it"
            ),
            Self::Schedule { version, nodes } => {
                write!(f, "schedule version {version} sent to {nodes} nodes")
            }
        }
    }
}
