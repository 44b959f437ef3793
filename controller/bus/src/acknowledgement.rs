//! Acknowledgements: of a hub for messages of the stream, and of the server for what nodes publish.

use std::time::Duration;

use dwell_rollup::STREAM;
use serde_json::Value;

/// Time after which messages that the database did not store are delivered again, to any hub.
pub(crate) const REDELIVERY_DELAY: Duration = Duration::from_secs(2);

/// Maximum length of an acknowledgement of the server in bytes.
const MAX_SERVER_LEN: usize = 1 << 10;

/// What is done with a message in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    /// It is stored, so it is removed.
    Stored,
    /// It is removed, because it has no records of a node.
    Removed,
    /// It is delivered again, to any hub.
    Returned,
    /// The same after [`REDELIVERY_DELAY`].
    ReturnedForLater,
}

impl Acknowledgement {
    /// The payload for JetStream.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Stored => "+ACK".to_owned(),
            Self::Removed => "+TERM".to_owned(),
            Self::Returned => "-NAK".to_owned(),
            Self::ReturnedForLater => {
                format!("-NAK {{\"delay\": {}}}", REDELIVERY_DELAY.as_nanos())
            }
        }
    }
}

/// Whether a message of the stream is the server's answer to a publication. A node may name the subject
/// of another node for it.
pub(crate) fn is_of_server(payload: &[u8]) -> bool {
    payload.first() == Some(&b'{')
        && payload.len() <= MAX_SERVER_LEN
        && serde_json::from_slice::<Value>(payload).is_ok_and(|answer| answer["stream"] == STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_server_are_recognised() {
        for (payload, expected) in [
            (r#"{"stream":"DWELL", "seq":7}"#, true),
            (r#"{"error":{"code":503,"description":"x"},"stream":"DWELL","seq":0}"#, true),
            (r#"{"stream":"OTHER","seq":7}"#, false),
            (r#"{"stream":"DWELL""#, false),
            ("", false),
        ] {
            assert_eq!(is_of_server(payload.as_bytes()), expected, "{payload}");
        }
    }
}
