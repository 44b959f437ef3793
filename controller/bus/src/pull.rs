//! Requests messages of the stream from the consumer that all hubs share.
//!
//! A message of the stream has an acknowledgement subject of the server as its reply subject; a status of a
//! request has none. Nodes can write neither.

use std::time::Duration;

use bytes::Bytes;
use dwell_rollup::{CONSUMER, MAX_MESSAGE_LEN, STREAM};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::connect::BusAddress;
use crate::error::BusError;
use crate::inbound::{Inbound, Subscription};
use crate::protocol::Received;

/// Messages that a hub holds before it stores them, and bytes of them.
pub(crate) const PULL_BATCH: usize = 500;
pub(crate) const PULL_BYTES: usize = 8 << 20;

/// Time that a request is valid. The server ends it by a status.
const PULL_EXPIRY: Duration = Duration::from_secs(5);

/// Time beyond [`PULL_EXPIRY`] after which the server has no such consumer.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Time before which a request without a message cannot have expired: the server refuses it.
const MIN_EXPIRY: Duration = Duration::from_secs(2);

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) subject: String,
    /// Subject of its acknowledgement.
    pub(crate) ack: String,
    pub(crate) payload: Bytes,
}

/// Why no more messages come.
#[derive(Debug)]
pub(crate) enum PullError {
    /// The connection has ended, for this reason.
    Lost(String),
    /// The server ended a request early, or not at all: stream and consumer are to be checked.
    Unanswered,
}

/// The current request. Its messages are counted together with those of earlier ones, whose last
/// messages may still arrive: at worst, a request is replaced early.
#[derive(Debug)]
struct Request {
    number: u64,
    since: Instant,
    messages: usize,
    bytes: usize,
    /// Whether the server sends no more messages for it.
    is_complete: bool,
}

/// Messages of the stream, by requests for [`PULL_BATCH`] of them.
#[derive(Debug)]
pub(crate) struct Pull {
    inbound: Inbound,
    /// Prefix of the reply subjects of requests.
    inbox: String,
    request: Request,
}

impl Pull {
    /// Connects. `inbox` is a subject of the hub that only this value uses.
    ///
    /// # Errors
    /// See [`Inbound::open`].
    pub(crate) async fn open(address: &BusAddress, inbox: String) -> Result<Self, BusError> {
        let subject = format!("{inbox}.*");
        let subscription = Subscription { subject: &subject, group: None, max_payload: usize::MAX };
        let inbound = Inbound::open(address, subscription).await?;
        let request =
            Request { number: 0, since: Instant::now(), messages: 0, bytes: 0, is_complete: true };
        Ok(Self { inbound, inbox, request })
    }

    /// Requests more messages if the last request is complete, so that they arrive while others are
    /// stored.
    pub(crate) fn request(&mut self) {
        if !self.request.is_complete {
            return;
        }
        let number = self.request.number + 1;
        self.request =
            Request { number, since: Instant::now(), messages: 0, bytes: 0, is_complete: false };
        let expires = PULL_EXPIRY.as_nanos() as u64;
        let text = json!({"batch": PULL_BATCH, "max_bytes": PULL_BYTES, "expires": expires});
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}");
        self.inbound.publish(&subject, &self.reply(), &text.to_string());
    }

    /// Reply subject of the current request.
    fn reply(&self) -> String {
        format!("{}.{}", self.inbox, self.request.number)
    }

    /// Returns the next message. Safe to cancel.
    ///
    /// # Errors
    /// See [`PullError`].
    pub(crate) async fn next(&mut self) -> Result<Delivered, PullError> {
        loop {
            self.request();
            let deadline = self.request.since + PULL_EXPIRY + STATUS_TIMEOUT;
            let received = match timeout_at(deadline, self.inbound.next()).await {
                Ok(Ok(received)) => received,
                Ok(Err(error)) => return Err(PullError::Lost(error.to_string())),
                Err(_) => return Err(PullError::Unanswered),
            };
            let status = match delivered(received) {
                Ok(message) => {
                    let request = &mut self.request;
                    request.messages += 1;
                    request.bytes += message.payload.len() + message.subject.len();
                    // The next message may be too long for the rest.
                    request.is_complete |= request.messages >= PULL_BATCH
                        || request.bytes + MAX_MESSAGE_LEN > PULL_BYTES;
                    return Ok(message);
                }
                Err(status) => status,
            };
            if status.subject != self.reply() {
                continue;
            }
            let is_early = self.request.since.elapsed() < MIN_EXPIRY;
            if is_early && self.request.messages == 0 {
                return Err(PullError::Unanswered);
            }
            self.request.is_complete = true;
        }
    }

    /// Ends the connection. Returns the messages that had arrived, without their acknowledgements.
    pub(crate) async fn close(self) -> Vec<Delivered> {
        let rest = self.inbound.close().await;
        rest.into_iter().filter_map(|received| delivered(received).ok()).collect()
    }
}

/// Returns a message of the stream, or a status as the error.
fn delivered(received: Received) -> Result<Delivered, Received> {
    let is_message = received.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK."));
    match received {
        Received { subject, reply: Some(ack), payload } if is_message => {
            Ok(Delivered { subject, ack, payload })
        }
        status => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_an_acknowledgement_subject() {
        let received = |reply: Option<&str>| {
            delivered(Received {
                subject: "dwell.up.a".to_owned(),
                reply: reply.map(str::to_owned),
                payload: Bytes::new(),
            })
        };
        let ack = "$JS.ACK.DWELL.hub.1.7.9.1700000000000000000.0";
        assert_eq!(received(Some(ack)).unwrap().ack, ack);
        assert!(received(None).is_err());
        assert!(received(Some("_INBOX.a.1")).is_err());
    }
}
