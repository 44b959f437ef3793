//! The libpcap file format: a header of 24 bytes, then per packet a header of 16 bytes and the
//! data. Four magic numbers encode byte order and time unit.

use std::io::{BufRead, Read};

use crate::{Format, ImportError, ImportWarning};

use super::PacketSink;

pub(super) fn read(input: &mut dyn BufRead, witness: &mut PacketSink) -> Result<(), ImportError> {
    let malformed = |reason: String| ImportError::Malformed { format: Format::Pcap, reason };
    let mut bytes = Vec::new();
    let Some(header) = chunk::<24>(input, &mut bytes)? else {
        return Err(malformed("its header is truncated".to_owned()));
    };
    let magic = u32::from_le_bytes(part(&header, 0));
    let (swapped, unit) = match magic {
        0xa1b2_c3d4 => (false, 1_000),
        0xd4c3_b2a1 => (true, 1_000),
        0xa1b2_3c4d => (false, 1),
        0x4d3c_b2a1 => (true, 1),
        _ => return Err(malformed("its magic number is that of another format".to_owned())),
    };
    let order = ByteOrder { swapped };
    // The upper half may hold the FCS length.
    let link = order.u32(part(&header, 20)) & 0xffff;
    for number in 1_u64.. {
        let Some(head) = chunk::<16>(input, &mut bytes)? else {
            if !bytes.is_empty() {
                witness.sink.warn(incomplete(number));
            }
            break;
        };
        let word = |at: usize| order.u32(part(&head, at));
        let captured = word(8) as usize;
        if captured > MAX_PACKET_LEN {
            let reason = format!("packet {number} claims {captured} bytes");
            if number == 1 {
                return Err(malformed(reason));
            }
            witness.sink.warn(ImportWarning::Malformed(reason));
            break;
        }
        if !fill(input, &mut bytes, captured)? {
            witness.sink.warn(incomplete(number));
            break;
        }
        let at = i64::from(word(4)) * unit;
        let at = (at < 1_000_000_000).then(|| i64::from(word(0)) * 1_000_000_000 + at);
        witness.packet(link, at, &bytes)?;
    }
    Ok(())
}

fn incomplete(packet: u64) -> ImportWarning {
    ImportWarning::Truncated(format!("packet {packet} is incomplete"))
}

/// Maximum captured length of a packet (`MAXIMUM_SNAPLEN` of libpcap).
pub(super) const MAX_PACKET_LEN: usize = 262_144;

/// Byte order of a file.
#[derive(Clone, Copy)]
pub(super) struct ByteOrder {
    /// Big-endian.
    pub(super) swapped: bool,
}

impl ByteOrder {
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        if self.swapped { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        if self.swapped { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

/// Returns `N` bytes at `at`, which must be within `bytes`.
pub(super) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

/// Returns the next `N` bytes. At the end of the input returns `None` and leaves the remaining
/// bytes in `bytes`.
pub(super) fn chunk<const N: usize>(
    input: &mut dyn BufRead,
    bytes: &mut Vec<u8>,
) -> Result<Option<[u8; N]>, ImportError> {
    Ok(if fill(input, bytes, N)? { bytes.first_chunk().copied() } else { None })
}

/// Fills `bytes` with the next `count` bytes. Returns false if fewer are left.
pub(super) fn fill(
    input: &mut dyn BufRead,
    bytes: &mut Vec<u8>,
    count: usize,
) -> Result<bool, ImportError> {
    bytes.clear();
    let read = input.take(count as u64).read_to_end(bytes).map_err(ImportError::Read)?;
    Ok(read == count)
}
