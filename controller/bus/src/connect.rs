//! The connection of a hub to nats-server.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::mpsc;

use crate::error::{BusError, chain};
use crate::keys::{PublicKey, public_key_of};
use crate::permissions::HUB_INBOX;

/// Time for one attempt to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between the signs of life that detect a dead connection.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Maximum time between attempts to connect again.
const MAX_RECONNECT_INTERVAL: Duration = Duration::from_secs(2);

/// Where the server is, and how a hub identifies itself.
#[derive(Clone, Debug)]
pub struct BusAddress {
    /// URL, such as `tls://hub.example.org:4222`, without a user name or password. The connection has TLS
    /// with any scheme.
    pub url: String,
    /// Certificates that verify the server, PEM; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// File with the seed of the hub's key.
    pub key: PathBuf,
}

/// A connection, and what happens to it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Scheme, host and port of the server, for messages.
    pub(crate) server: String,
}

/// Parses the URL of a server.
///
/// # Errors
/// The URL is invalid, or has a user name or password. Such a URL is not part of the error.
pub(crate) fn parse_address(url: &str) -> Result<ServerAddr, BusError> {
    if url.contains('@') {
        return Err(BusError::UserInfo);
    }
    let wrong = |reason: String| BusError::Address { url: url.to_owned(), reason };
    let server: ServerAddr = url.parse().map_err(|error: io::Error| wrong(error.to_string()))?;
    if !matches!(server.scheme(), "nats" | "tls") {
        return Err(wrong(format!("scheme {} is not supported", server.scheme())));
    }
    Ok(server)
}

/// Returns scheme, host and port of a server.
fn server_text(server: &ServerAddr) -> String {
    let (scheme, host, port) = (server.scheme(), server.host(), server.port());
    if host.contains(':') {
        format!("{scheme}://[{host}]:{port}")
    } else {
        format!("{scheme}://{host}:{port}")
    }
}

/// Connects with TLS.
///
/// # Errors
/// [`BusError`] with a remedy.
pub(crate) async fn connect(address: &BusAddress) -> Result<Connection, BusError> {
    let BusAddress { url, ca, key } = address;
    let address = parse_address(url)?;
    let server = server_text(&address);
    let seed = std::fs::read_to_string(key)
        .map_err(|source| BusError::File { path: key.clone(), source })?;
    let public = public_key_of(&seed).map_err(|_| BusError::Seed(key.clone()))?;
    let (sender, events) = mpsc::unbounded_channel();
    let mut options = ConnectOptions::with_nkey(seed.trim().to_owned())
        .require_tls(true)
        .name("dwell hub")
        .custom_inbox_prefix(HUB_INBOX)
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(|attempts| {
            MAX_RECONNECT_INTERVAL.min(Duration::from_millis(100) * attempts.min(1_000) as u32)
        })
        .event_callback(move |event| {
            // The receiver is gone only when the hub stops.
            let _ = sender.send(event);
            std::future::ready(())
        });
    if let Some(ca) = ca {
        std::fs::metadata(ca).map_err(|source| BusError::File { path: ca.clone(), source })?;
        options = options.add_root_certificates(ca.clone());
    }
    match options.connect(address).await {
        Ok(client) => Ok(Connection { client, events, server }),
        Err(error) => Err(explain(server, &public, &error)),
    }
}

fn explain(url: String, key: &PublicKey, error: &ConnectError) -> BusError {
    let reason = chain(error);
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            BusError::Refused { url, key: key.to_string() }
        }
        ConnectErrorKind::ServerParse => BusError::Address { url, reason },
        ConnectErrorKind::Tls => BusError::Tls { url, reason },
        _ if is_tls_failure(error) => BusError::Tls { url, reason },
        _ => BusError::Unreachable { url, reason },
    }
}

/// Whether the server answered, but not as TLS requires. rustls reports it as invalid data.
fn is_tls_failure(error: &ConnectError) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let io = cause.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::InvalidData) {
            return true;
        }
        source = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_with_a_secret_is_refused_without_the_secret() {
        for url in [
            "tls://user:hunter2@localhost:4222",
            "tls://hunter2@localhost",
            "tls://:hunter2@localhost",
            "user:hunter2@localhost:port",
            "http://user:hunter2@localhost",
        ] {
            let error = parse_address(url).unwrap_err();
            assert!(matches!(error, BusError::UserInfo), "{url}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}");
        }
    }

    #[test]
    fn messages_name_host_and_port() {
        for (url, text) in [
            ("tls://hub.example.org", "tls://hub.example.org:4222"),
            ("localhost:4223", "nats://localhost:4223"),
            ("tls://[2001:db8::1]:4222/path?token=x", "tls://[2001:db8::1]:4222"),
        ] {
            assert_eq!(server_text(&parse_address(url).unwrap()), text);
        }
    }
}
