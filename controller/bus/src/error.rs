//! Errors of the bus, with their remedies.

use std::io;
use std::path::PathBuf;

use dwell_rollup::STREAM;
use thiserror::Error;

/// A bus that cannot be used.
#[derive(Debug, Error)]
pub enum BusError {
    /// The system has no resources for the connection.
    #[error("cannot start to receive")]
    Runtime(#[source] io::Error),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The key file has no seed of a user key.
    #[error("{}: no seed of a user key, which begins with SU; `dwell hub nats-config` creates one", .0.display())]
    Seed(PathBuf),
    /// The URL is invalid.
    #[error(
        "'{url}' is no address of nats-server ({reason}); write it like tls://hub.example.org:4222"
    )]
    Address {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The URL has a user name or password.
    #[error(
        "--nats: the URL has a user name or password, which is visible to other users of this machine; a \
         hub has a key (--nats-key): write the URL like tls://hub.example.org:4222"
    )]
    UserInfo,
    /// The server does not answer.
    #[error("nats-server at {url} is unreachable: {reason}; start it, or correct --nats")]
    Unreachable {
        /// Scheme, host and port.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The server is not who it should be.
    #[error(
        "no TLS with nats-server at {url}: {reason}; name the certificate of its authority with \
         --nats-ca, connect by a name that is in its certificate, and configure its `tls`"
    )]
    Tls {
        /// Scheme, host and port.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The server does not accept the key.
    #[error(
        "nats-server at {url} refuses key {key}: it is not in the file that `dwell hub nats-config` \
         and `enroll` write, or the server has not read it since; reload the server"
    )]
    Refused {
        /// Scheme, host and port.
        url: String,
        /// The public key of the hub.
        key: String,
    },
    /// The connection that receives from nodes failed.
    #[error("cannot receive from nats-server: {0}")]
    Receive(String),
    /// JetStream is not available.
    #[error(
        "nats-server does not answer about stream {STREAM}: {0}; give the hub's account JetStream and \
         all permissions, as the configuration of `dwell hub nats-config` does"
    )]
    JetStream(String),
    /// The stream has settings under which records could be lost, or a node could block others.
    #[error(
        "stream {STREAM} has other settings than a hub needs: {0}; remove it with `nats stream rm \
         {STREAM}` or move it away, and the hub creates it. No record is lost: nodes send again what \
         has no receipt"
    )]
    Settings(String),
    /// The stream cannot be created.
    #[error("cannot create stream {STREAM} of {max_bytes} bytes: {reason}; {remedy}")]
    Create {
        /// Size of the stream.
        max_bytes: u64,
        /// The reason.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl BusError {
    /// Whether the server may be available later without another configuration.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::JetStream(_) | Self::Receive(_))
    }

    /// Whether a hub that has received before tries again: the fault began while it worked, such as a full
    /// disk of the server or a file that is being replaced, so the configuration need not be wrong.
    pub(crate) fn is_transient_for_working_hub(&self) -> bool {
        let is_later = matches!(
            self,
            Self::Create { .. } | Self::Settings(_) | Self::File { .. } | Self::Seed(_)
        );
        is_later || self.is_transient()
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
