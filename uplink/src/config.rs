//! Configuration file of an uplink.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use async_nats::ServerAddr;
use dwell_rollup::{DEFAULT_SPOOL_DIR, Name, find_spool_dir};
use dwell_units::Nanos;
use serde::Deserialize;

/// Default time after which a message without a receipt is sent again.
const DEFAULT_RECEIPT_TIMEOUT: Nanos = Nanos::from_secs(60);

/// Configuration of an uplink (TOML).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Name of this node, as in the configuration of its agent.
    pub(crate) node: Name,
    /// Directory of the spool.
    #[serde(default = "default_spool")]
    pub(crate) spool: PathBuf,
    /// URLs of the servers, with the scheme `tls`.
    servers: Vec<String>,
    /// Certificates of the authorities that sign those of the servers, in PEM.
    pub(crate) ca_file: PathBuf,
    /// NKey of this node.
    pub(crate) key_file: PathBuf,
    /// Time after which a message without a receipt is sent again.
    #[serde(default = "default_receipt_timeout")]
    pub(crate) receipt_timeout: Nanos,
}

/// The directory in which the agent of this user has its spool by default.
fn default_spool() -> PathBuf {
    // The owner of a process is its effective user, see proc(5).
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let has_shared = is_root || Path::new(DEFAULT_SPOOL_DIR).is_dir();
    find_spool_dir(|name| std::env::var_os(name).map(PathBuf::from), has_shared)
}

const fn default_receipt_timeout() -> Nanos {
    DEFAULT_RECEIPT_TIMEOUT
}

impl Config {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read configuration {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("invalid configuration {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)?;
        config.servers()?;
        if config.receipt_timeout <= Nanos::ZERO {
            bail!("receipt_timeout {}: more than 0", config.receipt_timeout);
        }
        Ok(config)
    }

    /// The servers.
    pub(crate) fn servers(&self) -> anyhow::Result<Vec<ServerAddr>> {
        if self.servers.is_empty() {
            bail!("servers: none; name at least one, like tls://hub.example:4222");
        }
        self.servers.iter().map(|url| parse_server(url)).collect()
    }
}

fn parse_server(url: &str) -> anyhow::Result<ServerAddr> {
    // The error goes to a log, so it does not repeat a password.
    if url.contains('@') {
        bail!(
            "servers: a URL has a user name or password; a node has a key (key_file): write \
             tls://HOST:PORT"
        );
    }
    if !url.starts_with("tls://") {
        bail!("servers: {url}: connections always use TLS; write tls://HOST:PORT");
    }
    url.parse().with_context(|| format!("servers: {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(servers: &str, more: &str) -> anyhow::Result<Config> {
        Config::parse(&format!(
            "node = \"n1\"\nservers = [{servers}]\nca_file = \"ca.pem\"\nkey_file = \"n1.nk\"\n{more}"
        ))
    }

    #[test]
    fn defaults_apply_to_missing_fields() {
        let config = parse("\"tls://192.0.2.1\"", "").unwrap();
        assert_eq!(config.receipt_timeout, Nanos::from_secs(60));
        assert_eq!(config.servers().unwrap()[0].port(), 4222);
    }

    #[test]
    fn packaged_and_documented_configurations_are_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let packaged = Config::read(&root.join("packaging/uplink.toml")).unwrap();
        let document = fs::read_to_string(root.join("docs/fleet.md")).unwrap();
        let start = document.find("# /etc/dwell/uplink.toml").unwrap();
        let (documented, _) = document[start..].split_once("```").unwrap();
        let documented = Config::parse(documented).unwrap();
        assert_eq!(documented.node, packaged.node);
        assert_eq!(documented.key_file, packaged.key_file);
    }

    #[test]
    fn connections_without_tls_are_refused() {
        for servers in [
            "",
            "\"nats://h:4222\"",
            "\"h:4222\"",
            "\"ws://h\"",
            "\"tls://h:4222\", \"nats://h\"",
            "\"tls://user:password@h\"",
            "\"tls://h:port\"",
        ] {
            assert!(parse(servers, "").is_err(), "{servers}");
        }
    }

    #[test]
    fn refused_password_is_not_repeated() {
        for server in [
            "tls://user:hunter2@h",
            "tls://:hunter2@h",
            "nats://hunter2@h",
            "tls://u:hunter2@h:port",
        ] {
            let error = format!("{:#}", parse(&format!("\"{server}\""), "").unwrap_err());
            assert!(error.contains("user name or password"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        for (more, named) in [
            ("insecure = true", "insecure"),
            ("receipt_timeout = \"0s\"", "receipt_timeout"),
            ("receipt_timeout = 5", "receipt_timeout"),
        ] {
            let error = format!("{:#}", parse("\"tls://h\"", more).unwrap_err());
            assert!(error.contains(named), "{error}");
        }
    }
}
