//! Permissions of keys: the subjects that a connection may publish and subscribe to.

use std::fmt;

use dwell_rollup::{Name, STREAM, Subject, permitted_subjects};

/// Prefix of the subjects at which hubs receive replies. No node may subscribe to it.
pub(crate) const HUB_INBOX: &str = "_INBOX_HUB";

/// Subjects of one user of nats-server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
}

impl Permissions {
    /// Permissions of a hub: it answers nodes, and manages the stream.
    pub(crate) fn of_hub() -> Self {
        let ack = format!("$JS.ACK.{STREAM}.>");
        let publish = ["dwell.down.>", "_INBOX.>", "$JS.API.>", &ack].map(str::to_owned);
        let subscribe = [Subject::Ask.of_all(), format!("{HUB_INBOX}.>")];
        Self { publish: publish.into(), subscribe: subscribe.into() }
    }

    /// Permissions of a node, or of a leaf server with several: none on the JetStream API.
    pub(crate) fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a Name>) -> Self {
        let mut permissions = Self::default();
        for (publish, subscribe) in nodes.into_iter().map(permitted_subjects) {
            permissions.publish.extend(publish);
            permissions.subscribe.extend(subscribe);
        }
        permissions
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |subjects: &[String]| {
            let quoted: Vec<String> = subjects.iter().map(|it| format!("\"{it}\"")).collect();
            quoted.join(", ")
        };
        let (publish, subscribe) = (list(&self.publish), list(&self.subscribe));
        write!(f, "permissions: {{ publish: [{publish}], subscribe: [{subscribe}] }}")
    }
}
