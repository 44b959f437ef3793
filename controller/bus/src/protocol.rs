//! The client protocol of NATS as far as a connection uses it that receives without headers.
//!
//! Such a connection states `"headers": false`, so the server removes the headers that publishers wrote.
//! They can thus neither break the connection nor look like a status of the server.

use bytes::{Buf, Bytes, BytesMut};
use serde_json::json;

/// Maximum length of a line in bytes.
const MAX_LINE_LEN: usize = 64 << 10;

/// Maximum length of a payload in bytes: the largest `max_payload` of nats-server.
const MAX_PAYLOAD_LEN: usize = 64 << 20;

/// Number of the only subscription of a connection.
const SUBSCRIPTION: u32 = 1;

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Its properties as JSON.
    Info(Bytes),
    /// A message of the subscription.
    Message(Received),
    /// A request for [`PONG`].
    Ping,
    /// The answer to [`PING`]: the server has read everything before it.
    Pong,
    /// A confirmation.
    Ok,
    /// Something that the server refuses.
    Error(String),
}

/// A message without headers. Bytes that are not UTF-8 are replaced in its subjects, which publishers
/// choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    pub(crate) payload: Bytes,
}

/// Asks whether the server is alive.
pub(crate) const PING: &str = "PING\r\n";

/// Answers [`Operation::Ping`].
pub(crate) const PONG: &str = "PONG\r\n";

/// Takes the next operation from bytes of the server; `None` if it is not complete yet.
///
/// # Errors
/// The bytes are not of this protocol.
pub(crate) fn take_operation(buffer: &mut BytesMut) -> Result<Option<Operation>, String> {
    let searched = &buffer[..buffer.len().min(MAX_LINE_LEN)];
    let Some(end) = searched.windows(2).position(|bytes| bytes == b"\r\n") else {
        let is_too_long = buffer.len() > MAX_LINE_LEN;
        return if is_too_long { Err("a line is too long".to_owned()) } else { Ok(None) };
    };
    let line = &buffer[..end];
    let (name, rest) = match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &line[end..]),
    };
    let operation = match name {
        b"INFO" => Operation::Info(Bytes::copy_from_slice(rest)),
        b"MSG" => return take_message(buffer, end),
        b"PING" => Operation::Ping,
        b"PONG" => Operation::Pong,
        b"+OK" => Operation::Ok,
        b"-ERR" => {
            let text = String::from_utf8_lossy(rest);
            Operation::Error(text.trim().trim_matches('\'').to_owned())
        }
        _ => return Err(format!("unknown operation {}", String::from_utf8_lossy(name))),
    };
    buffer.advance(end + 2);
    Ok(Some(operation))
}

/// Takes a message whose first line, `MSG SUBJECT NUMBER [REPLY] LENGTH`, ends at `end`.
fn take_message(buffer: &mut BytesMut, end: usize) -> Result<Option<Operation>, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = buffer[..end].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let fields: Vec<&[u8]> = fields.skip(1).collect();
    let (subject, reply, len) = match fields[..] {
        [subject, _, len] => (text(subject), None, len),
        [subject, _, reply, len] => (text(subject), Some(text(reply)), len),
        _ => return Err(format!("a message with {} fields", fields.len())),
    };
    let len = text(len).parse::<usize>().ok().filter(|len| *len <= MAX_PAYLOAD_LEN);
    let Some(len) = len else { return Err("a message with a wrong length".to_owned()) };
    if buffer.len() < end + 2 + len + 2 {
        return Ok(None);
    }
    buffer.advance(end + 2);
    let payload = buffer.split_to(len).freeze();
    buffer.advance(2);
    Ok(Some(Operation::Message(Received { subject, reply, payload })))
}

/// The first operation of a client that signs with an NKey.
pub(crate) fn connect_operation(public_key: &str, signature: &str) -> String {
    let options = json!({
        "verbose": false,
        "pedantic": false,
        "tls_required": true,
        "nkey": public_key,
        "sig": signature,
        "name": "dwell hub, receiving",
        "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": 1,
        "headers": false,
        "no_responders": false,
    });
    format!("CONNECT {options}\r\n")
}

/// Subscribes, in a group of which one member receives each message.
pub(crate) fn subscribe_operation(subject: &str, group: Option<&str>) -> String {
    let group = group.map_or(String::new(), |group| format!("{group} "));
    format!("SUB {subject} {group}{SUBSCRIPTION}\r\n")
}

/// Publishes a text.
pub(crate) fn publish_operation(subject: &str, reply: &str, text: &str) -> String {
    format!("PUB {subject} {reply} {}\r\n{text}\r\n", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Operation>, String> {
        let mut buffer = BytesMut::new();
        let mut operations = Vec::new();
        // In the smallest pieces that a connection may deliver.
        for byte in bytes {
            buffer.extend_from_slice(&[*byte]);
            operations.extend(take_operation(&mut buffer)?);
        }
        assert!(buffer.is_empty(), "{buffer:?}");
        Ok(operations)
    }

    fn message(subject: &str, reply: Option<&str>, payload: &'static [u8]) -> Operation {
        let (subject, reply) = (subject.to_owned(), reply.map(str::to_owned));
        Operation::Message(Received { subject, reply, payload: Bytes::from_static(payload) })
    }

    #[test]
    fn operations_are_read_in_pieces() {
        let bytes = b"INFO {\"nonce\":\"x\"}\r\n+OK\r\nPING\r\nMSG dwell.ask.a 1 _INBOX.a.7 4\r\n\r\n\r\n\r\n\
                      MSG s 1 0\r\n\r\n-ERR 'Authorization Violation'\r\nPONG\r\n";
        let expected = [
            Operation::Info(Bytes::from_static(b"{\"nonce\":\"x\"}")),
            Operation::Ok,
            Operation::Ping,
            message("dwell.ask.a", Some("_INBOX.a.7"), b"\r\n\r\n"),
            message("s", None, b""),
            Operation::Error("Authorization Violation".to_owned()),
            Operation::Pong,
        ];
        assert_eq!(all(bytes).unwrap(), expected);
    }

    #[test]
    fn reply_that_is_not_utf8_breaks_nothing() {
        let operations = all(b"MSG dwell.ask.a 1 _INBOX.\xff\xfe 1\r\nx\r\nPING\r\n").unwrap();
        let reply = Some("_INBOX.\u{fffd}\u{fffd}");
        assert_eq!(operations, [message("dwell.ask.a", reply, b"x"), Operation::Ping]);
    }

    #[test]
    fn other_protocols_are_refused() {
        for bytes in [
            &b"HMSG s 1 12 12\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\n",
            b"MSG s 1\r\n",
            b"MSG s 1 -1\r\n",
            b"MSG s 1 99999999999\r\n",
        ] {
            assert!(all(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(take_operation(&mut BytesMut::from(&[b'x'; MAX_LINE_LEN + 1][..])).is_err());
    }
}
