//! Packet ids of one flow: from the packet headers, or counted.

use dwell_wire::id::{Format, detect, packet_id};

/// Assigns ids to the packets of one flow and direction.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    format: Option<Format>,
    guess: bool,
    arrived: u64,
}

impl Ids {
    /// Reads ids from packets of this format; `None` counts packets.
    pub const fn of(format: Option<Format>) -> Self {
        Self { format, guess: false, arrived: 0 }
    }

    /// Detects the format from the first packet; if it is unknown, counts packets.
    pub const fn detecting() -> Self {
        Self { format: None, guess: true, arrived: 0 }
    }

    /// Returns the id of the next packet.
    pub fn next_id_of(&mut self, payload: &[u8]) -> u64 {
        if std::mem::take(&mut self.guess) {
            self.format = detect(payload);
        }
        let number = self.next_without_payload();
        self.format.and_then(|format| packet_id(format, payload)).unwrap_or(number)
    }

    /// Returns the count of the next packet, whose payload cannot be read. The format detection is
    /// left to later packets.
    pub fn next_without_payload(&mut self) -> u64 {
        let number = self.arrived;
        self.arrived += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unknown_format_is_numbered_by_arrival() {
        let mut ids = Ids::detecting();
        assert_eq!([0, 1, 2].map(|n| ids.next_id_of(&[n; 100])), [0, 1, 2]);
    }

    #[test]
    fn first_packet_determines_the_format() {
        let mut mark = *b"dwlt\0\0\0\x01\0\0\0\0\0\0\x01\x02";
        let mut ids = Ids::detecting();
        assert_eq!(ids.next_id_of(&mark), 0x102);
        mark[15] = 3;
        assert_eq!(ids.next_id_of(&mark), 0x103);
        let mut numbered = Ids::of(None);
        assert_eq!([0, 1].map(|_| numbered.next_id_of(&mark)), [0, 1], "the payload is not read");
    }

    #[test]
    fn unreadable_packet_defers_format_detection() {
        let mut ids = Ids::detecting();
        assert_eq!(ids.next_without_payload(), 0);
        assert_eq!(ids.next_id_of(b"dwlt\0\0\0\x01\0\0\0\0\0\0\x01\x02"), 0x102);
        assert_eq!(ids.next_without_payload(), 2);
    }

    #[test]
    fn too_short_packet_is_numbered_by_arrival() {
        let mut ids = Ids::of(Some(Format::Stamp));
        let stamp = |number: u32| number.to_be_bytes();
        assert_eq!(ids.next_id_of(&stamp(77)), 77);
        assert_eq!(ids.next_id_of(&[1]), 1);
    }

    proptest! {
        #[test]
        fn any_payload_is_accepted_without_panic(payload in prop::collection::vec(any::<u8>(), 0..60)) {
            Ids::detecting().next_id_of(&payload);
        }
    }
}
