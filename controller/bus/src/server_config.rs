//! Configuration of nats-server: of the hub's server, and of the leaf server of a site.

use std::fmt::Write;
use std::path::PathBuf;

use dwell_rollup::Name;
use serde::{Deserialize, Serialize};

use crate::keys::{AcceptedKeys, Owner, leaf_user};
use crate::stream::MAX_PAYLOAD;

/// Name of the account of nats-server that hubs, nodes and leaf servers share.
const ACCOUNT: &str = "DWELL";

/// Account with a user whom no password fits. If nats-server knows no user with a password, it accepts
/// unknown ones from leaf servers, in its empty account `$G`.
const REFUSED_ACCOUNT: &str = "\
    REFUSED { users = [ { user: \"refused\", allowed_connection_types: [\"MQTT\"], \
    password: \"$2a$11$.....................................................\" } ] }";

/// Certificate and private key of a server, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// What an operator chooses once for the server of the hub. Its configuration repeats them in a comment,
/// so that they stay when it is written again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubServerSettings {
    /// Address and port for hubs and nodes, such as `0.0.0.0:4222`.
    pub listen: String,
    /// Address and port for leaf servers; `None` refuses them.
    pub listen_leaf: Option<String>,
    /// Maximum size of the stream in bytes.
    pub max_bytes: u64,
}

impl HubServerSettings {
    /// Begin of the comment.
    const COMMENT: &str = "# Settings: ";

    /// Returns the settings in a configuration that [`HubServer::to_text`] made; `None` for others.
    ///
    /// # Errors
    /// The comment is damaged, or of a newer dwell.
    pub fn of(config: &str) -> Result<Option<Self>, serde_json::Error> {
        let json = config.lines().find_map(|line| line.strip_prefix(Self::COMMENT));
        json.map(serde_json::from_str).transpose()
    }
}

/// The server of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubServer {
    /// Addresses and size.
    pub settings: HubServerSettings,
    /// Certificate of the server.
    pub tls: ServerTls,
    /// File of [`AcceptedKeys`], relative to the directory of the configuration: nats-server reads an
    /// absolute path as a relative one.
    pub keys: PathBuf,
    /// File for the process id of the server.
    pub pid: PathBuf,
    /// Directory of the stream.
    pub store: PathBuf,
}

impl HubServer {
    /// Returns the configuration file.
    pub fn to_text(&self) -> String {
        let (pid, store, keys) = (quote(&self.pid), quote(&self.store), quote(&self.keys));
        let HubServerSettings { listen, listen_leaf, max_bytes } = &self.settings;
        let tls = tls_block(&self.tls);
        let refused =
            listen_leaf.as_ref().map_or(String::new(), |_| format!("    {REFUSED_ACCOUNT}\n"));
        let settings = serde_json::to_string(&self.settings).unwrap_or_default();
        let mut text = format!(
            "# nats-server of a dwell hub. Written by `dwell hub nats-config`.\n\
             {comment}{settings}\n\
             server_name: \"dwell-hub\"\n\
             listen: {listen}\n\
             pid_file: {pid}\n\
             max_payload: {MAX_PAYLOAD}\n\
             tls {tls}\n\
             jetstream {{ store_dir: {store}, max_file_store: {max_bytes}, max_memory_store: 0 }}\n\
             accounts {{\n    \
                 {ACCOUNT} {{\n        \
                     jetstream: {{ max_file: {max_bytes}, max_memory: 0, max_streams: 1, max_consumers: 1 }}\n        \
                     include {keys}\n    \
                 }}\n\
             {refused}}}\n",
            comment = HubServerSettings::COMMENT,
            listen = quote(listen),
        );
        if let Some(listen) = listen_leaf {
            let _ = writeln!(text, "leafnodes {{ listen: {}, tls {tls} }}", quote(listen));
        }
        text
    }
}

/// The leaf server of a site: it has no stream, and passes on messages of its nodes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafServer {
    /// Name of the site.
    pub site: Name,
    /// Address and port for the nodes of the site.
    pub listen: String,
    /// Certificate of the server; relative paths are from the directory in which it starts, here and below.
    pub tls: ServerTls,
    /// Leaf address of the hub's server without scheme, such as `hub.example.org:7422`.
    pub remote: String,
    /// Certificates that verify the hub's server, PEM; `None` for those of the system.
    pub remote_ca: Option<PathBuf>,
    /// Password of the leaf server at the hub's server: letters and digits.
    pub password: String,
    /// File for the process id of the server.
    pub pid: PathBuf,
}

impl LeafServer {
    /// Returns the configuration file. Nodes that have no key in `keys` cannot connect.
    pub fn to_text(&self, nodes: &[Name], keys: &AcceptedKeys) -> String {
        let users: String = nodes
            .iter()
            .flat_map(|node| {
                let owner = Owner::Node(node.clone());
                keys.of(&owner)
                    .map(|key| format!("            {}\n", key.line()))
                    .collect::<Vec<_>>()
            })
            .collect();
        let ca =
            self.remote_ca.as_ref().map_or(String::new(), |ca| format!(" ca_file: {},", quote(ca)));
        let (site, tls) = (&self.site, tls_block(&self.tls));
        let (listen, pid) = (quote(&self.listen), quote(&self.pid));
        let user = leaf_user(site);
        let remote = quote(format!("tls://{user}:{}@{}", self.password, self.remote));
        format!(
            "# nats-server of site {site}. Written by `dwell hub nats-config --leaf`.\n\
             server_name: \"dwell-{site}\"\n\
             listen: {listen}\n\
             pid_file: {pid}\n\
             max_payload: {MAX_PAYLOAD}\n\
             tls {tls}\n\
             accounts {{\n    \
                 {ACCOUNT} {{\n        \
                     users = [\n{users}        ]\n    \
                 }}\n\
             }}\n\
             leafnodes {{\n    \
                 remotes = [ {{ url: {remote}, account: {ACCOUNT}, tls {{{ca} timeout: {TLS_SECONDS} }} }} ]\n\
             }}\n",
        )
    }
}

/// Time for a TLS handshake in seconds. Small nodes need more than the default of 2 s.
const TLS_SECONDS: u32 = 10;

fn tls_block(tls: &ServerTls) -> String {
    let (cert, key) = (quote(&tls.cert), quote(&tls.key));
    format!("{{ cert_file: {cert}, key_file: {key}, timeout: {TLS_SECONDS} }}")
}

/// A string of a configuration.
fn quote(text: impl AsRef<std::ffi::OsStr>) -> String {
    let text = text.as_ref().to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_its_settings() {
        let settings = HubServerSettings {
            listen: "192.0.2.1:4222".to_owned(),
            listen_leaf: Some("0.0.0.0:7422".to_owned()),
            max_bytes: 1 << 30,
        };
        let server = HubServer {
            settings: settings.clone(),
            tls: ServerTls { cert: "cert.pem".into(), key: "key.pem".into() },
            keys: "keys.conf".into(),
            pid: "nats-server.pid".into(),
            store: "jetstream".into(),
        };
        let text = server.to_text();
        assert_eq!(HubServerSettings::of(&text).unwrap(), Some(settings));
        assert_eq!(HubServerSettings::of("listen: \"0.0.0.0:4222\"\n").unwrap(), None);
        assert!(HubServerSettings::of(&text.replace("listen_leaf", "leaf")).is_err());
    }
}
