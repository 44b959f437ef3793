//! The pcapng file format: sections of blocks. A section states its byte order; each of its
//! interfaces has a link type and a time resolution.

use std::io::{self, BufRead, Read};

use crate::{Format, ImportError, ImportWarning};

use super::PacketSink;
use super::pcap::{ByteOrder, MAX_PACKET_LEN, chunk, fill, part};

pub(super) fn read(input: &mut dyn BufRead, witness: &mut PacketSink) -> Result<(), ImportError> {
    let mut section = Section { order: ByteOrder { swapped: false }, interfaces: Vec::new() };
    let mut body = Vec::new();
    for number in 1_u64.. {
        match section.block(input, &mut body, witness) {
            Ok(true) => {}
            Ok(false) => break,
            Err(BlockError::Import(error)) => return Err(error),
            Err(BlockError::Block(reason)) if number == 1 => {
                return Err(ImportError::Malformed { format: Format::Pcapng, reason });
            }
            Err(BlockError::Cut) if number == 1 => {
                let reason = "the file is truncated".to_owned();
                return Err(ImportError::Malformed { format: Format::Pcapng, reason });
            }
            Err(BlockError::Cut) => {
                let detail = format!("block {number} is incomplete");
                witness.sink.warn(ImportWarning::Truncated(detail));
                break;
            }
            Err(BlockError::Block(reason)) => {
                let reason = format!("block {number}: {reason}");
                witness.sink.warn(ImportWarning::Malformed(reason));
                break;
            }
        }
    }
    Ok(())
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

/// Maximum number of interfaces of a section.
const MAX_INTERFACES: usize = 1_024;

/// Maximum length of a parsed block: a packet and its options. Longer blocks are skipped.
const MAX_BLOCK_LEN: usize = 2 * MAX_PACKET_LEN;

struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    link: u32,
    /// Time units per second; `None` if out of range.
    units: Option<u64>,
    /// Seconds added to every timestamp.
    offset: i64,
}

/// Why a block cannot be read.
enum BlockError {
    /// The file ends within it.
    Cut,
    Block(String),
    Import(ImportError),
}

impl From<ImportError> for BlockError {
    fn from(error: ImportError) -> Self {
        Self::Import(error)
    }
}

impl Section {
    /// Reads the next block. Returns false at the end.
    fn block(
        &mut self,
        input: &mut dyn BufRead,
        body: &mut Vec<u8>,
        witness: &mut PacketSink,
    ) -> Result<bool, BlockError> {
        let Some(head) = chunk::<8>(input, body)? else {
            return if body.is_empty() { Ok(false) } else { Err(BlockError::Cut) };
        };
        let mut before = head.len();
        // The type of a section block is the same in both byte orders.
        let kind = self.order.u32(part(&head, 0));
        if kind == SECTION {
            let magic = chunk::<4>(input, body)?.ok_or(BlockError::Cut)?;
            self.order.swapped = match u32::from_le_bytes(magic) {
                0x1a2b_3c4d => false,
                0x4d3c_2b1a => true,
                _ => return Err(BlockError::Block("its byte-order magic is invalid".to_owned())),
            };
            self.interfaces.clear();
            before += magic.len();
        }
        let length = self.order.u32(part(&head, 4)) as usize;
        if length < before + 4 || !length.is_multiple_of(4) {
            return Err(BlockError::Block(format!("block length {length} is invalid")));
        }
        let rest = length - before;
        let wanted = matches!(kind, INTERFACE | OLD_PACKET | SIMPLE_PACKET | PACKET);
        if !wanted || rest > MAX_BLOCK_LEN {
            let passed = io::copy(&mut input.take(rest as u64), &mut io::sink());
            let passed = passed.map_err(ImportError::Read)?;
            return if passed == rest as u64 { Ok(true) } else { Err(BlockError::Cut) };
        }
        if !fill(input, body, rest)? {
            return Err(BlockError::Cut);
        }
        // The length is repeated at the end.
        let content = &body[..rest - 4];
        match kind {
            INTERFACE => self.interface(content)?,
            _ => self.packet(kind, content, witness)?,
        }
        Ok(true)
    }

    /// 0 u16 link type, 4 u32 snap length, 8 options.
    fn interface(&mut self, content: &[u8]) -> Result<(), BlockError> {
        let short = || BlockError::Block("an interface has no link type".to_owned());
        let link = self.order.u16(*content.first_chunk().ok_or_else(short)?);
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(BlockError::Block(format!("it has more than {MAX_INTERFACES} interfaces")));
        }
        let mut interface = Interface { link: u32::from(link), units: Some(1_000_000), offset: 0 };
        let mut options = content.get(8..).unwrap_or_default();
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let length = usize::from(self.order.u16(part(head, 2)));
            let Some(value) = rest.get(..length) else { break };
            match (self.order.u16(part(head, 0)), value) {
                (0, _) => break,
                // if_tsresol: a power of ten, or of two if the highest bit is set.
                (9, [power]) => {
                    let base: u64 = if power & 0x80 == 0 { 10 } else { 2 };
                    interface.units = base.checked_pow(u32::from(power & 0x7f));
                }
                // if_tsoffset
                (14, [_, _, _, _, _, _, _, _]) => {
                    let (a, b) = (self.order.u32(part(value, 0)), self.order.u32(part(value, 4)));
                    let (low, high) = if self.order.swapped { (b, a) } else { (a, b) };
                    interface.offset = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// 0 u32 interface (u16 in the old block), 4 and 8 time, 12 captured length, 16 packet length,
    /// 20 packet. The simple block has only the packet length and no time.
    fn packet(
        &self,
        kind: u32,
        content: &[u8],
        witness: &mut PacketSink,
    ) -> Result<(), BlockError> {
        if kind == SIMPLE_PACKET {
            return Ok(witness.packet(0, None, &[])?);
        }
        let Some((head, rest)) = content.split_first_chunk::<20>() else {
            return Err(BlockError::Block("a packet has no header".to_owned()));
        };
        let word = |at: usize| self.order.u32(part(head, at));
        let number = match kind {
            OLD_PACKET => usize::from(self.order.u16(part(head, 0))),
            _ => word(0) as usize,
        };
        let captured = word(12) as usize;
        let Some((interface, packet)) = self.interfaces.get(number).zip(rest.get(..captured))
        else {
            return Err(BlockError::Block("a packet does not match its block".to_owned()));
        };
        let at = interface.nanos(u64::from(word(4)) << 32 | u64::from(word(8)));
        Ok(witness.packet(interface.link, at, packet)?)
    }
}

impl Interface {
    /// Converts a timestamp to nanoseconds since the epoch.
    fn nanos(&self, time: u64) -> Option<i64> {
        let nanos = i128::from(time) * 1_000_000_000 / i128::from(self.units?);
        (nanos + i128::from(self.offset) * 1_000_000_000).try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_resolution_become_nanoseconds() {
        let at = |units, time, offset| Interface { link: 1, units, offset }.nanos(time);
        assert_eq!(at(Some(1_000_000), 1_795_247_657_000_001, 0), Some(1_795_247_657_000_001_000));
        assert_eq!(at(Some(1_000_000_000), 5, 2), Some(2_000_000_005));
        assert_eq!(at(Some(1 << 10), 512, 0), Some(500_000_000));
        assert_eq!(at(Some(1), u64::MAX, 0), None);
        assert_eq!(at(None, 1, 0), None);
    }
}
