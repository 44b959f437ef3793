//! Verification of records before they join a batch.

use dwell_rollup::{CodecError, Identity, Name, Piece, Record, pieces};

/// Bytes of one message of a carrier, and what is known about their way.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The node, as the carrier authenticated it.
    pub node: &'a Name,
    /// CLOCK_REALTIME of the hub at the arrival, in nanoseconds.
    pub arrival_ns: i64,
    /// Concatenated records.
    pub message: &'a [u8],
}

/// Decoder of one record.
pub type Decoder = fn(&[u8]) -> Result<Record, CodecError>;

/// A part of a message after verification.
#[derive(Clone, Debug, PartialEq)]
pub enum Verified<'a> {
    /// A record of this node.
    Record {
        /// The record.
        record: Box<Record>,
        /// Its encoding.
        raw: &'a [u8],
    },
    /// Anything else.
    Bad(BadRecord<'a>),
}

/// Bytes that are no record of the node, or of a version that this dwell does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRecord<'a> {
    /// The bytes.
    pub raw: &'a [u8],
    /// Why they are not stored as a record.
    pub reason: String,
    /// The version, if only that is unknown.
    pub version: Option<u8>,
    /// The identity, if the checksum matches and the record names this node. Such a record has a
    /// receipt as soon as it is kept.
    pub identity: Option<Identity>,
}

/// Verifies the parts of a message, in their order. A bad part does not affect the others.
pub fn verify<'a>(delivery: &Delivery<'a>, decode: Decoder) -> Vec<Verified<'a>> {
    pieces(delivery.message).map(|piece| verify_piece(piece, delivery.node, decode)).collect()
}

fn verify_piece<'a>(piece: Piece<'a>, node: &Name, decode: Decoder) -> Verified<'a> {
    let bad = |raw, reason: String| {
        Verified::Bad(BadRecord { raw, reason, version: None, identity: None })
    };
    let raw = match piece {
        Piece::Record(raw) => raw,
        Piece::Damaged(raw) => return bad(raw, CodecError::Damaged.to_string()),
    };
    let identity = match Identity::of(raw) {
        Ok(identity) => identity,
        Err(error) => return bad(raw, error.to_string()),
    };
    if identity.node != *node {
        return bad(
            raw,
            format!(
                "it names node {}, but came from {node}; give the agent and the device the same name",
                identity.node
            ),
        );
    }
    match decode(raw) {
        Ok(record) => Verified::Record { record: Box::new(record), raw },
        Err(error) => {
            let version = match error {
                CodecError::UnknownVersion(version) => Some(version),
                CodecError::Damaged | CodecError::Invalid(_) => None,
            };
            let (reason, identity) = (error.to_string(), Some(identity));
            Verified::Bad(BadRecord { raw, reason, version, identity })
        }
    }
}
