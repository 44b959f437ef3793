//! A connection on which a hub receives the messages of one subscription, without headers.
//!
//! Nodes write the headers of their messages. async-nats drops its connection for a malformed header and
//! takes some for a status of the server, so what nodes publish arrives here instead.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connect::{BusAddress, CONNECT_TIMEOUT, PING_INTERVAL, parse_address};
use crate::error::{BusError, chain};
use crate::protocol::{
    Operation, PING, PONG, Received, connect_operation, publish_operation, subscribe_operation,
    take_operation,
};

/// Maximum number of messages that wait to be taken. Beyond, nothing is read from the connection.
const MAX_WAITING: usize = 2_048;

/// Number of signs of life without an answer after which a connection is lost.
const MAX_UNANSWERED: u32 = 2;

/// Number of bytes that are read at once.
const READ_LEN: usize = 64 << 10;

/// Time for the server to end a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The messages that a connection receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription<'a> {
    pub(crate) subject: &'a str,
    /// Group of which one member receives each message.
    pub(crate) group: Option<&'a str>,
    /// Maximum length of a payload in bytes. Longer messages are dropped.
    pub(crate) max_payload: usize,
}

/// A connection that receives. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Inbound {
    messages: mpsc::Receiver<Received>,
    requests: mpsc::UnboundedSender<String>,
    task: tokio::task::JoinHandle<String>,
}

impl Inbound {
    /// Connects with TLS, identifies the hub by its key, and subscribes.
    ///
    /// # Errors
    /// [`BusError`]; [`BusError::Receive`] if the server is unreachable, or refuses something.
    pub(crate) async fn open(
        address: &BusAddress,
        subscription: Subscription<'_>,
    ) -> Result<Self, BusError> {
        let opened = timeout(CONNECT_TIMEOUT, connect(address, subscription)).await;
        let (stream, buffer) = opened.map_err(|_| receive_error("it does not answer"))??;
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let (requests, receiver) = mpsc::unbounded_channel();
        let max_payload = subscription.max_payload;
        let task = tokio::spawn(async move {
            match drive(stream, buffer, receiver, &sender, max_payload).await {
                Ok(ended) => match ended {},
                Err(reason) => reason,
            }
        });
        Ok(Self { messages, requests, task })
    }

    /// Returns the next message. Safe to cancel.
    ///
    /// # Errors
    /// The connection has ended: [`BusError::Receive`].
    pub(crate) async fn next(&mut self) -> Result<Received, BusError> {
        match self.messages.recv().await {
            Some(message) => Ok(message),
            None => Err(match (&mut self.task).await {
                Ok(reason) => BusError::Receive(reason),
                Err(error) => receive_error(error),
            }),
        }
    }

    /// Publishes a text. It is lost with the connection.
    pub(crate) fn publish(&self, subject: &str, reply: &str, text: &str) {
        // Without its receiver, the connection has ended, which the next message reports.
        let _ = self.requests.send(publish_operation(subject, reply, text));
    }

    /// Ends the connection, so that the server delivers nothing to it any more. Returns the messages that
    /// had arrived.
    pub(crate) async fn close(self) -> Vec<Received> {
        let Self { mut messages, requests, task } = self;
        drop(requests);
        let mut rest = Vec::new();
        let drained = async {
            while let Some(message) = messages.recv().await {
                rest.push(message);
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, drained).await;
        task.abort();
        rest
    }
}

fn receive_error(reason: impl std::fmt::Display) -> BusError {
    BusError::Receive(reason.to_string())
}

fn lost(error: &io::Error) -> String {
    format!("the connection is lost: {error}")
}

/// Connects and subscribes. Returns also the bytes after the answer of the server.
async fn connect(
    address: &BusAddress,
    subscription: Subscription<'_>,
) -> Result<(TlsStream<TcpStream>, BytesMut), BusError> {
    let BusAddress { url, ca, key } = address;
    let server = parse_address(url)?;
    let seed = std::fs::read_to_string(key)
        .map_err(|source| BusError::File { path: key.clone(), source })?;
    let pair = nkeys::KeyPair::from_seed(seed.trim()).map_err(|_| BusError::Seed(key.clone()))?;
    let mut tcp =
        TcpStream::connect((server.host(), server.port())).await.map_err(receive_error)?;
    let _ = tcp.set_nodelay(true);
    let mut buffer = BytesMut::new();
    let nonce = loop {
        if let Operation::Info(json) = read_operation(&mut tcp, &mut buffer).await? {
            let info: Value = serde_json::from_slice(&json).map_err(receive_error)?;
            break info["nonce"].as_str().unwrap_or_default().to_owned();
        }
    };
    // Bytes before TLS are of no server that the certificate names.
    buffer.clear();
    let name = ServerName::try_from(server.host().to_owned()).map_err(receive_error)?;
    let connector = TlsConnector::from(Arc::new(tls_config(ca.as_deref())?));
    let mut stream =
        connector.connect(name, tcp).await.map_err(|error| receive_error(chain(&error)))?;
    let signature = pair.sign(nonce.as_bytes()).map_err(receive_error)?;
    let greeting = [
        connect_operation(&pair.public_key(), &URL_SAFE_NO_PAD.encode(signature)),
        subscribe_operation(subscription.subject, subscription.group),
        PING.to_owned(),
    ];
    write(&mut stream, &greeting.concat()).await.map_err(|error| receive_error(lost(&error)))?;
    loop {
        match read_operation(&mut stream, &mut buffer).await? {
            Operation::Pong => return Ok((stream, buffer)),
            Operation::Error(text) => return Err(receive_error(text)),
            _ => {}
        }
    }
}

/// Trusts the authorities of a file of certificates in PEM, or those of the system.
fn tls_config(ca: Option<&Path>) -> Result<ClientConfig, BusError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            let unreadable = |error: rustls::pki_types::pem::Error| BusError::File {
                path: file.to_owned(),
                source: io::Error::other(error.to_string()),
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?).map_err(receive_error)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(receive_error)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

async fn write(stream: &mut (impl AsyncWriteExt + Unpin), text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    stream.flush().await
}

/// Reads more bytes. Safe to cancel.
async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> Result<(), String> {
    buffer.reserve(READ_LEN);
    match stream.read_buf(buffer).await {
        Ok(0) => Err("the connection is lost: the server closed it".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(lost(&error)),
    }
}

async fn read_operation(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<Operation, BusError> {
    loop {
        if let Some(operation) = take_operation(buffer).map_err(receive_error)? {
            return Ok(operation);
        }
        read(stream, buffer).await.map_err(receive_error)?;
    }
}

/// Passes on messages and requests until the connection ends, and returns why. Ends it when there can be
/// no more requests.
async fn drive(
    mut stream: TlsStream<TcpStream>,
    mut buffer: BytesMut,
    mut requests: mpsc::UnboundedReceiver<String>,
    messages: &mpsc::Sender<Received>,
    max_payload: usize,
) -> Result<std::convert::Infallible, String> {
    let mut signs_of_life = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    // After a pause of this machine, the answers to earlier signs are read first.
    signs_of_life.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut unanswered, mut is_closing) = (0, false);
    loop {
        while let Some(operation) = take_operation(&mut buffer)? {
            match operation {
                Operation::Message(message) if message.payload.len() <= max_payload => {
                    // Without a receiver, the connection is about to end.
                    let _ = messages.send(message).await;
                }
                Operation::Ping => {
                    write(&mut stream, PONG).await.map_err(|error| lost(&error))?;
                }
                Operation::Pong => unanswered = 0,
                Operation::Error(text) => return Err(text),
                Operation::Message(_) | Operation::Info(_) | Operation::Ok => {}
            }
        }
        tokio::select! {
            outcome = read(&mut stream, &mut buffer) => outcome?,
            request = requests.recv(), if !is_closing => {
                let outcome = match request {
                    Some(request) => write(&mut stream, &request).await,
                    None => {
                        is_closing = true;
                        stream.shutdown().await
                    }
                };
                outcome.map_err(|error| lost(&error))?;
            }
            () = sleep(CLOSE_TIMEOUT), if is_closing => {
                return Err("the server does not close the connection".to_owned());
            }
            _ = signs_of_life.tick(), if !is_closing => {
                if unanswered == MAX_UNANSWERED {
                    return Err("the connection is lost: the server does not answer".to_owned());
                }
                unanswered += 1;
                write(&mut stream, PING).await.map_err(|error| lost(&error))?;
            }
        }
    }
}
