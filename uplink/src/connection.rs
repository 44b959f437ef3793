//! The connection to a server of the bus: always TLS, with the key of the node.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, Subscriber};
use dwell_rollup::{inbox_prefix, permitted_subjects};
use rand::RngExt as _;
use rustls::CertificateError;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::key;

/// Maximum time for connecting to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between signs of life. Two that are not answered end a connection.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Maximum number of messages that wait inside the client, in each direction.
const CLIENT_CAPACITY: usize = 64;

/// Maximum number of events that wait. Further ones are lost.
const EVENT_CAPACITY: usize = 16;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Messages of hubs to this node, besides replies.
    pub(crate) down: Subscriber,
    /// Events of the connection.
    pub(crate) events: mpsc::Receiver<Event>,
}

impl Connection {
    /// Name or address of the server, as it calls itself.
    pub(crate) fn server(&self) -> String {
        let info = self.client.server_info();
        format!("server {} ({}:{})", info.server_name, info.host, info.port)
    }
}

/// Connects to one of the servers. The error states the remedy.
pub(crate) async fn connect(config: &Config) -> anyhow::Result<Connection> {
    let servers = config.servers()?;
    let names: Vec<_> = servers.iter().map(|server| server.as_url_str()).collect();
    let names = names.join(", ");
    let key = key::read(&config.key_file)?;
    // The client reads the certificates later, and does not name the file.
    std::fs::metadata(&config.ca_file)
        .with_context(|| format!("cannot read ca_file {}", config.ca_file.display()))?;
    let (to_events, events) = mpsc::channel(EVENT_CAPACITY);
    let is_connected = Arc::new(AtomicBool::new(false));
    let was_connected = Arc::clone(&is_connected);
    let options = ConnectOptions::with_nkey(key.seed)
        .name(format!("dwell-uplink {}", config.node))
        .require_tls(true)
        .add_root_certificates(config.ca_file.clone())
        .custom_inbox_prefix(inbox_prefix(&config.node))
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .client_capacity(CLIENT_CAPACITY)
        .subscription_capacity(CLIENT_CAPACITY)
        .ignore_discovered_servers()
        // The client tries each server once more when a connection ends. Then this function is called
        // again, because only a new client reports why it cannot connect.
        .max_reconnects(servers.len())
        .reconnect_delay_callback(move |_| match was_connected.load(Ordering::Relaxed) {
            true => Duration::from_millis(rand::rng().random_range(100..2_000)),
            false => Duration::ZERO,
        })
        .event_callback(move |event| {
            let _ = to_events.try_send(event);
            async {}
        });
    let client = options.connect(servers).await.map_err(|error| {
        let advice = advice(&error, config, &key.public);
        anyhow!("cannot connect to {names}: {}{advice}", chain(&error))
    })?;
    is_connected.store(true, Ordering::Relaxed);
    let (_, subscribe) = permitted_subjects(&config.node);
    let down = subscribe.into_iter().next().context("a node subscribes to a subject")?;
    let down = client.subscribe(down).await.context("cannot subscribe")?;
    Ok(Connection { client, down, events })
}

/// An error and its causes. A cause that repeats its effect is left out.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            let _ = write!(text, ": {reason}");
        }
        next = cause.source();
    }
    text
}

/// What a person can do about an error.
fn advice(error: &ConnectError, config: &Config, public_key: &str) -> String {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => format!(
            "; the server does not know the key of this node: run `dwell hub enroll {} {public_key}`",
            config.node
        ),
        _ => certificate_error(error)
            .map(|error| certificate_advice(error, config))
            .unwrap_or_default(),
    }
}

fn certificate_advice(error: &CertificateError, config: &Config) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "; renew the certificate of the server, or correct the clock of this node".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "; correct the clock of this node".into()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "; {} lacks the authority that signed the certificate of the server",
            config.ca_file.display()
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "; use a name or an address in `servers` that the certificate of the server has".into()
        }
        _ => String::new(),
    }
}

/// The fault of a server's certificate among the causes of an error.
fn certificate_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CertificateError> {
    if let Some(rustls::Error::InvalidCertificate(error)) = error.downcast_ref() {
        return Some(error);
    }
    // An I/O error passes over the error that it wraps.
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    match wrapped {
        Some(wrapped) => certificate_error(wrapped),
        None => certificate_error(error.source()?),
    }
}
