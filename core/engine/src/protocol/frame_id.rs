//! Where a single frame of a protocol carries the id of a probe, for timestamps that are taken
//! frame by frame outside the socket.

use dwell_wire::stamp::Mode;
use dwell_wire::{echo, icmp, roundtrip};

use super::WireId;

/// Length of a UDP header in bytes.
const UDP_HEADER: usize = 8;

/// How single frames of a protocol belong to its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameId {
    /// Every frame carries the id of its probe.
    Field(IdField),
    /// A frame is one message without an id.
    Missing,
    /// A frame holds any part of a stream.
    Stream,
}

/// Position of the id in the frames of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdField {
    /// Offset in a probe, in bytes from the start of the transport header.
    pub probe_at: usize,
    /// The same in a reply.
    pub reply_at: usize,
    /// Length in bytes: 2, 4 or 8.
    pub len: usize,
    /// Whether the lowest byte is the first.
    pub is_little_endian: bool,
}

impl IdField {
    /// A big-endian field at the same place in probes and replies.
    const fn echoed(at: usize, len: usize) -> Self {
        Self { probe_at: at, reply_at: at, len, is_little_endian: false }
    }

    pub(super) const ECHO: Self = Self::echoed(UDP_HEADER + echo::ID_AT, 8);

    pub(super) const ROUNDTRIP: Self =
        Self { is_little_endian: true, ..Self::echoed(UDP_HEADER + roundtrip::ID_AT, 4) };

    /// ICMP echo: the mark, or the sequence number in payloads too short for a mark.
    pub(super) const fn icmp(size: u64) -> Self {
        match size >= echo::LEN as u64 {
            true => Self::echoed(icmp::HEADER + echo::ID_AT, 8),
            false => Self::echoed(icmp::SEQUENCE_AT, 2),
        }
    }

    /// STAMP: the sequence number, which a reply returns as the sender's.
    pub(super) const fn stamp(mode: Mode) -> Self {
        let reply_at = UDP_HEADER + mode.sender_sequence();
        Self { reply_at, ..Self::echoed(UDP_HEADER, 4) }
    }

    /// Reads the id from the bytes of the field; the rest of `bytes` is ignored.
    pub fn read(&self, bytes: [u8; 8]) -> WireId {
        let mut value = [0; 8];
        if self.is_little_endian {
            value[..self.len].copy_from_slice(&bytes[..self.len]);
            return WireId::low(u64::from_le_bytes(value), self.bits());
        }
        value[8 - self.len..].copy_from_slice(&bytes[..self.len]);
        WireId::low(u64::from_be_bytes(value), self.bits())
    }

    /// Number of bits of the field.
    pub const fn bits(&self) -> u32 {
        self.len as u32 * 8
    }
}
