//! Encoding of records, and splitting of messages into records.
//!
//! The head has the same form in every version, so that a hub keeps and receipts records whose version
//! it does not know, and a damaged record hides no other:
//!
//! | offset | length | content |
//! |---:|---:|---|
//! | 0 | 1 | version of what follows the name |
//! | 1 | 3 | `DWR` |
//! | 4 | 1 | kind of body: 1 roll-up, 2 status, 3 samples |
//! | 5 | 1 | length of the node's name |
//! | 6 | 2 | zero |
//! | 8 | 4 | number of bytes after the head |
//! | 12 | 8 | incarnation |
//! | 20 | 8 | sequence number |
//! | 28 | 4 | CRC-32 of the first 28 bytes and of everything after the head |
//! | 32 | | name of the node, then in version 1 CLOCK_REALTIME, CLOCK_BOOTTIME, boot id, body |
//!
//! Integers are little-endian.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bytes::{Reader, put_i64};
use crate::name::Name;
use crate::record::{Body, BootId, Incarnation, Record, SampleBlock};
use crate::rollup::Rollup;
use crate::status::Status;

/// Version of the records that this build writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// Maximum length of a message in bytes; also of one record.
pub const MAX_MESSAGE_LEN: usize = 512 << 10;

/// Largest sequence number. Databases have signed integers.
const MAX_SEQUENCE: u64 = i64::MAX as u64;

/// Length of the head of a record in bytes.
pub const HEAD_LEN: usize = 32;

const MAGIC: [u8; 3] = *b"DWR";

const ROLLUP: u8 = 1;
const STATUS: u8 = 2;
const SAMPLES: u8 = 3;

/// Identity of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the node, from the configuration of its agent.
    pub node: Name,
    /// Start of the agent.
    pub incarnation: Incarnation,
    /// Number of the record, from 1 without gaps in each incarnation.
    pub sequence: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.node, self.incarnation, self.sequence)
    }
}

/// CLOCK_REALTIME at which a whole record was written, in nanoseconds. `None` if its version is unknown.
pub fn written_at(record: &[u8]) -> Option<i64> {
    let after_name = HEAD_LEN + usize::from(*record.get(5)?);
    let wall_ns = record.get(after_name..)?.first_chunk()?;
    (record[0] == VERSION).then(|| i64::from_le_bytes(*wall_ns))
}

/// A record that cannot be decoded, although its checksum matches.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// Written by a newer or older build. Keep the bytes until a build knows the version.
    #[error("record version {0} is unknown; this build reads version {VERSION}")]
    UnknownVersion(u8),
    /// Not one whole record with a matching checksum.
    #[error("not a whole record: length or checksum does not match")]
    Damaged,
    /// Whole, but its content is invalid.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A record with a matching checksum, of any version.
    Record(&'a [u8]),
    /// Bytes that belong to no such record, up to the next one.
    Damaged(&'a [u8]),
}

/// Parts of a message, in order; see [`pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a [u8],
    /// Number of further byte sequences that may look like a head without being one.
    false_heads: usize,
}

/// Maximum number of byte sequences that look like the head of a record but have no matching checksum.
/// It bounds the time that a hostile message takes.
const MAX_FALSE_HEADS: usize = 256;

/// Splits a message, or the content of a spool file, into records. Never fails: bytes between whole
/// records are returned as [`Piece::Damaged`].
pub const fn pieces(message: &[u8]) -> Pieces<'_> {
    Pieces { rest: message, false_heads: MAX_FALSE_HEADS }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some(len) = whole_len(self.rest) {
            let (record, rest) = self.rest.split_at(len);
            self.rest = rest;
            return Some(Piece::Record(record));
        }
        let (damaged, rest) = self.rest.split_at(self.next_record());
        self.rest = rest;
        Some(Piece::Damaged(damaged))
    }
}

impl Pieces<'_> {
    /// Offset of the next record, or of the end.
    fn next_record(&mut self) -> usize {
        let len = self.rest.len();
        for at in 1..len {
            if !self.rest[at + 1..].starts_with(&MAGIC) {
                continue;
            }
            if whole_len(&self.rest[at..]).is_some() {
                return at;
            }
            let Some(left) = self.false_heads.checked_sub(1) else { return len };
            self.false_heads = left;
        }
        len
    }
}

/// Length of the record at the start of `bytes`; `None` if no whole one with a matching checksum is
/// there.
fn whole_len(bytes: &[u8]) -> Option<usize> {
    let (head, rest) = bytes.split_at_checked(HEAD_LEN)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let len = word(8) as usize;
    if head[1..4] != MAGIC || head[6..8] != [0; 2] || HEAD_LEN + len > MAX_MESSAGE_LEN {
        return None;
    }
    let content = rest.get(..len)?;
    (checksum(&head[..28], content) == word(28)).then_some(HEAD_LEN + len)
}

fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(content);
    hasher.finalize()
}

impl Identity {
    /// Reads the identity of a record of any version.
    ///
    /// # Errors
    /// [`CodecError::Damaged`], or [`CodecError::Invalid`] for a node's name that is not one or a
    /// sequence number outside 1 to 2^63 - 1.
    pub fn of(record: &[u8]) -> Result<Self, CodecError> {
        split(record).map(|(identity, ..)| identity)
    }
}

/// Splits a record into its identity, kind of body and the bytes after the name.
fn split(record: &[u8]) -> Result<(Identity, u8, Reader<'_>), CodecError> {
    if whole_len(record) != Some(record.len()) {
        return Err(CodecError::Damaged);
    }
    let mut reader = Reader(record);
    let head: [u8; HEAD_LEN] = reader.array().ok_or(CodecError::Damaged)?;
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let name = reader.take(head[5].into()).and_then(|name| std::str::from_utf8(name).ok());
    let node =
        name.and_then(|name| name.parse().ok()).ok_or(CodecError::Invalid("name of a node"))?;
    let identity = Identity { node, incarnation: Incarnation(number(12)), sequence: number(20) };
    if !(1..=MAX_SEQUENCE).contains(&identity.sequence) {
        return Err(CodecError::Invalid("sequence number: not 1 to 2^63 - 1"));
    }
    Ok((identity, head[4], reader))
}

impl Record {
    /// Appends the encoding.
    ///
    /// # Errors
    /// [`CodecError::Invalid`] if the record is longer than [`MAX_MESSAGE_LEN`]; `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = out.len();
        let Identity { node, incarnation, sequence } = &self.identity;
        let kind = match self.body {
            Body::Rollup(_) => ROLLUP,
            Body::Status(_) => STATUS,
            Body::Samples(_) => SAMPLES,
        };
        out.push(VERSION);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[kind, node.as_str().len() as u8, 0, 0]);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&incarnation.0.to_le_bytes());
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(node.as_str().as_bytes());
        put_i64(out, self.wall_ns);
        put_i64(out, self.boot_ns);
        out.extend_from_slice(&self.boot_id.0);
        match &self.body {
            Body::Rollup(rollup) => rollup.encode(out),
            Body::Status(status) => out.extend_from_slice(status.to_json().as_bytes()),
            Body::Samples(samples) => samples.encode(out),
        }
        let len = out.len() - start;
        if len > MAX_MESSAGE_LEN {
            out.truncate(start);
            return Err(CodecError::Invalid("record: longer than 512 KiB"));
        }
        let (head, content) = out[start..].split_at_mut(HEAD_LEN);
        head[8..12].copy_from_slice(&((len - HEAD_LEN) as u32).to_le_bytes());
        let sum = checksum(&head[..28], content);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    /// Decodes one whole record.
    ///
    /// # Errors
    /// See [`CodecError`].
    pub fn decode(record: &[u8]) -> Result<Self, CodecError> {
        let (identity, kind, mut reader) = split(record)?;
        if record[0] != VERSION {
            return Err(CodecError::UnknownVersion(record[0]));
        }
        let mut times = || Some((reader.i64()?, reader.i64()?, BootId(reader.array()?)));
        let (wall_ns, boot_ns, boot_id) =
            times().ok_or(CodecError::Invalid("times of a record"))?;
        let body = match kind {
            ROLLUP => Rollup::decode(&mut reader).map(Body::Rollup),
            STATUS => {
                let json = reader.take(reader.0.len()).unwrap_or_default();
                Status::from_json(json).map(|status| Body::Status(Box::new(status)))
            }
            SAMPLES => SampleBlock::decode(&mut reader).map(Body::Samples),
            _ => return Err(CodecError::Invalid("kind of record")),
        };
        let name = match kind {
            ROLLUP => "roll-up",
            STATUS => "status",
            _ => "samples",
        };
        let body = body.filter(|_| reader.is_empty()).ok_or(CodecError::Invalid(name))?;
        Ok(Self { identity, wall_ns, boot_ns, boot_id, body })
    }
}

#[cfg(test)]
mod tests;
