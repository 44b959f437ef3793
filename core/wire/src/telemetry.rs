//! In-band telemetry: a STAMP TLV with empty slots that relays on the path fill, so that node
//! delays return with the packet and need no common clock. The packet never grows.
//!
//! Value of the TLV ([`kind::PATH`]): 4 bytes of magic `dwlp`, u8 number of slots used, 3 zero
//! bytes, then slots of 32 bytes: u32 node, u8 flags (1: on the way back), 3 zero bytes, and three
//! timestamps `rx_kernel`, `rx_app` and `tx_app` as u64 nanoseconds of the relay's clock,
//! big-endian, 0 if absent. `tx_kernel` is not known before the packet is sent.
//!
//! A relay does not change TLVs under an HMAC, because it cannot sign them.

use crate::stamp::Mode;
use crate::tlv::{self, kind};

/// Start of the value. Others may use the same experimental TLV type.
pub const MAGIC: [u8; 4] = *b"dwlp";

/// Length of a slot in bytes.
pub const SLOT_LEN: usize = 32;

/// Bytes before the slots.
const HEAD_LEN: usize = 8;

/// Maximum number of slots in a packet.
pub const MAX_SLOTS: usize = 8;

const BACK: u8 = 1;

/// Telemetry of one relay. Timestamps are in nanoseconds of its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the relay, as configured at its start.
    pub node: u32,
    /// Whether the packet was a reply, on its way back.
    pub back: bool,
    /// `rx_kernel`, if delivered.
    pub rx_kernel: Option<u64>,
    /// `rx_app`
    pub rx_app: u64,
    /// `tx_app`
    pub tx_app: u64,
}

/// Length of the value of a TLV with `slots` slots.
pub const fn value_len(slots: usize) -> usize {
    HEAD_LEN + slots * SLOT_LEN
}

/// Writes a value without used slots.
///
/// # Panics
/// If `value` is shorter than [`value_len`] of 0 slots.
pub fn begin(value: &mut [u8]) {
    value.fill(0);
    value[..4].copy_from_slice(&MAGIC);
}

/// Fills the next slot of a STAMP packet with this TLV. Returns `false` and leaves the packet
/// unchanged if it is another packet, has no free slot, or has an HMAC TLV.
///
/// ```
/// use dwell_wire::stamp::Mode;
/// use dwell_wire::telemetry::{self, Slot};
/// use dwell_wire::tlv::{self, kind};
///
/// const BASE: usize = Mode::Unauthenticated.base();
/// const LEN: usize = telemetry::value_len(1);
///
/// let mut packet = [0; BASE + tlv::HEADER + LEN];
/// let (value, _) = tlv::begin(&mut packet[BASE..], kind::PATH, LEN as u16);
/// telemetry::begin(value);
///
/// let slot = Slot { node: 2, back: false, rx_kernel: Some(100), rx_app: 350, tx_app: 400 };
/// assert!(telemetry::fill(&mut packet, &slot));
/// assert!(!telemetry::fill(&mut packet, &slot), "the only slot is used");
/// assert!(telemetry::slots(&packet[BASE + tlv::HEADER..]).eq([slot]));
/// ```
pub fn fill(packet: &mut [u8], slot: &Slot) -> bool {
    let Some(at) = value_offset(packet) else { return false };
    let value = &mut packet[at..];
    let used = usize::from(value[4]);
    let Some(room) = value.get_mut(HEAD_LEN + used * SLOT_LEN..HEAD_LEN + (used + 1) * SLOT_LEN)
    else {
        return false;
    };
    room.fill(0);
    room[..4].copy_from_slice(&slot.node.to_be_bytes());
    room[4] = if slot.back { BACK } else { 0 };
    room[8..16].copy_from_slice(&slot.rx_kernel.unwrap_or(0).to_be_bytes());
    room[16..24].copy_from_slice(&slot.rx_app.to_be_bytes());
    room[24..32].copy_from_slice(&slot.tx_app.to_be_bytes());
    value[4] += 1;
    true
}

/// Returns the offset of the TLV's value if it has a free slot. Checks the whole packet: one that
/// is not exactly STAMP with TLVs must not be changed.
fn value_offset(packet: &mut [u8]) -> Option<usize> {
    let base = Mode::Unauthenticated.base();
    let area = packet.get(base..)?;
    let (mut at, mut offset) = (None, 0);
    while offset < area.len() {
        let header = area.get(offset..offset + tlv::HEADER)?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let value = area.get(offset + tlv::HEADER..offset + tlv::HEADER + len)?;
        match header[1] {
            kind::HMAC => return None,
            kind::PATH if at.is_none() => {
                let slots = len.checked_sub(HEAD_LEN)? / SLOT_LEN;
                let ours = value.starts_with(&MAGIC) && slots <= MAX_SLOTS;
                let left = ours && usize::from(value[4]) < slots;
                at = left.then_some(base + offset + tlv::HEADER);
            }
            _ => {}
        }
        offset += tlv::HEADER + len;
    }
    at
}

/// Iterates over the filled slots, in path order. Empty for a foreign value.
pub fn slots(value: &[u8]) -> impl Iterator<Item = Slot> + '_ {
    let ours = value.len() >= HEAD_LEN && value.starts_with(&MAGIC);
    let used = if ours { usize::from(value[4]).min(MAX_SLOTS) } else { 0 };
    let bytes = value.get(HEAD_LEN..).unwrap_or(&[]);
    bytes.chunks_exact(SLOT_LEN).take(used).map(|slot| {
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&slot[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        Slot {
            node: u32::from_be_bytes([slot[0], slot[1], slot[2], slot[3]]),
            back: slot[4] & BACK != 0,
            rx_kernel: Some(number(8)).filter(|at| *at != 0),
            rx_app: number(16),
            tx_app: number(24),
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(slots: usize, hmac: bool) -> Vec<u8> {
        let base = Mode::Unauthenticated.base();
        let tag = if hmac { tlv::HEADER + 16 } else { 0 };
        let mut packet = vec![0; base + tlv::HEADER + value_len(slots) + tag];
        let (value, rest) = tlv::begin(&mut packet[base..], kind::PATH, value_len(slots) as u16);
        begin(value);
        if hmac {
            tlv::begin(rest, kind::HMAC, 16);
        }
        packet
    }

    fn slot(node: u32, back: bool) -> Slot {
        Slot { node, back, rx_kernel: (node != 2).then_some(7), rx_app: 10, tx_app: 25 }
    }

    fn read(packet: &[u8]) -> Vec<Slot> {
        slots(&packet[Mode::Unauthenticated.base() + tlv::HEADER..]).collect()
    }

    #[test]
    fn relays_fill_slots_in_path_order() {
        let mut packet = packet(2, false);
        assert!(read(&packet).is_empty());
        assert!(fill(&mut packet, &slot(1, false)));
        assert!(fill(&mut packet, &slot(2, true)));
        let full = packet.clone();
        assert!(!fill(&mut packet, &slot(3, true)));
        assert_eq!(packet, full);
        assert_eq!(read(&packet), [slot(1, false), slot(2, true)]);
    }

    #[test]
    fn signed_or_foreign_packet_is_unchanged() {
        let mut foreign = packet(2, false);
        foreign[Mode::Unauthenticated.base() + tlv::HEADER] ^= 1;
        let mut cut = packet(2, false);
        cut.pop();
        for mut packet in [packet(2, true), foreign, cut, vec![0; 44], vec![1; 20]] {
            let before = packet.clone();
            assert!(!fill(&mut packet, &slot(1, false)));
            assert_eq!(packet, before);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_filled_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let _ = slots(&bytes).count();
            let len = bytes.len();
            let _ = fill(&mut bytes, &slot(1, false));
            prop_assert_eq!(bytes.len(), len);
            let mut packet = packet(3, false);
            packet.extend(&bytes);
            let _ = fill(&mut packet, &slot(1, false));
        }
    }
}
