//! Packet ids of one flow: from the packet headers, or counted.

use dwell_wire::id::{Format, detect, packet_id};

/// Assigns ids to the packets of one flow and direction.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    format: Option<Format>,
    guess: bool,
    came: u64,
}

impl Ids {
    /// Reads ids from packets of this format; `None` counts packets.
    pub const fn of(format: Option<Format>) -> Self {
        Self { format, guess: false, came: 0 }
    }

    /// Detects the format from the first packet; if it is unknown, counts packets.
    pub const fn guessed() -> Self {
        Self { format: None, guess: true, came: 0 }
    }

    /// Returns the id of the next packet.
    pub fn of_next(&mut self, payload: &[u8]) -> u64 {
        if std::mem::take(&mut self.guess) {
            self.format = detect(payload);
        }
        let number = self.of_unread();
        self.format.and_then(|format| packet_id(format, payload)).unwrap_or(number)
    }

    /// Returns the count of the next packet, whose payload cannot be read. The format detection is
    /// left to later packets.
    pub fn of_unread(&mut self) -> u64 {
        let number = self.came;
        self.came += 1;
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flow_that_says_nothing_is_numbered_as_it_comes() {
        let mut ids = Ids::guessed();
        assert_eq!([0, 1, 2].map(|n| ids.of_next(&[n; 100])), [0, 1, 2]);
    }

    #[test]
    fn the_first_packet_tells_where_ids_are() {
        let mut mark = *b"dwlt\0\0\0\x01\0\0\0\0\0\0\x01\x02";
        let mut ids = Ids::guessed();
        assert_eq!(ids.of_next(&mark), 0x102);
        mark[15] = 3;
        assert_eq!(ids.of_next(&mark), 0x103);
        let mut numbered = Ids::of(None);
        assert_eq!([0, 1].map(|_| numbered.of_next(&mark)), [0, 1], "the payload is not read");
    }

    #[test]
    fn a_packet_that_nobody_can_read_leaves_the_guess_to_the_next() {
        let mut ids = Ids::guessed();
        assert_eq!(ids.of_unread(), 0);
        assert_eq!(ids.of_next(b"dwlt\0\0\0\x01\0\0\0\0\0\0\x01\x02"), 0x102);
        assert_eq!(ids.of_unread(), 2);
    }

    #[test]
    fn a_packet_too_short_for_its_format_has_the_number_of_its_arrival() {
        let mut ids = Ids::of(Some(Format::Stamp));
        let stamp = |number: u32| number.to_be_bytes();
        assert_eq!(ids.of_next(&stamp(77)), 77);
        assert_eq!(ids.of_next(&[1]), 1);
    }

    proptest! {
        #[test]
        fn no_payload_makes_it_panic(payload in prop::collection::vec(any::<u8>(), 0..60)) {
            Ids::guessed().of_next(&payload);
        }
    }
}
