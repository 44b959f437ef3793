//! Ids that packets carry in their own headers, and how to tell which header it is.

use dwell_wire::roundtrip;

/// Where packets carry their id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// iperf2's datagram header: the low half at 0, the high half at 12, negated in the last
    /// packets of a test (INTEROP E1).
    Iperf,
    /// STAMP's sequence number (RFC 8762 section 4.2.1).
    Stamp,
    /// S4's round-trip message.
    Roundtrip,
    /// The mark of dwell's traffic: `dwlt`, flow, number.
    Dwell,
}

const MARK: &[u8; 4] = b"dwlt";

/// Seconds from 1900, where NTP's count begins, to 1970 (RFC 5905 section 6).
const NTP_TO_UNIX: u32 = 2_208_988_800;

/// Flags Z and multiplier of STAMP's error estimate (RFC 8762 section 4.2.1).
const STAMP_PTP: u16 = 0x4000;
const STAMP_MULTIPLIER: u16 = 0x00ff;

impl Header {
    /// The header that a payload seems to begin with. What is no header may look like one, so this
    /// is for when nobody said which it is.
    pub fn guess(payload: &[u8]) -> Option<Self> {
        if payload.starts_with(MARK) && payload.len() >= 16 {
            return Some(Self::Dwell);
        }
        if roundtrip::Message::parse(payload).is_ok() {
            return Some(Self::Roundtrip);
        }
        let (seconds, fraction, high) = (word(payload, 4)?, word(payload, 8)?, word(payload, 12)?);
        // Either clock shows a time of this century, up to where STAMP's wraps.
        let this_century = |unix: u32| (946_684_800..4_102_444_800).contains(&unix);
        let is_iperf = this_century(seconds) && fraction < 1_000_000;
        if is_iperf && matches!(high, 0 | u32::MAX) {
            return Some(Self::Iperf);
        }
        let estimate = (high >> 16) as u16;
        let is_error_estimate = estimate & STAMP_MULTIPLIER != 0;
        if payload.len() >= 44 && is_error_estimate {
            let is_ptp = estimate & STAMP_PTP != 0;
            let since_1970 = if is_ptp { seconds } else { seconds.wrapping_sub(NTP_TO_UNIX) };
            let is_fraction = !is_ptp || fraction < 1_000_000_000;
            return (this_century(since_1970) && is_fraction).then_some(Self::Stamp);
        }
        None
    }

    /// The packet's id; `None` where the payload is too short to carry one. iperf2 negates the
    /// ids of the packets that end a test: those count on from the others.
    pub fn id(self, payload: &[u8]) -> Option<u64> {
        match self {
            Self::Iperf => {
                let low = word(payload, 0)?;
                // Its predecessors have no high half (INTEROP E1), and may end before it.
                let high = word(payload, 12).unwrap_or(0);
                let id = (u64::from(high) << 32 | u64::from(low)) as i64;
                let is_old_end = high == 0 && (low as i32) < 0 && payload.len() < 16;
                Some(if is_old_end {
                    (low as i32).unsigned_abs().into()
                } else {
                    id.unsigned_abs()
                })
            }
            Self::Stamp => word(payload, 0).map(u64::from),
            Self::Roundtrip => roundtrip::Message::parse(payload).ok().map(|told| told.id.into()),
            Self::Dwell => Some(u64::from_be_bytes(payload.get(8..16)?.try_into().ok()?)),
        }
    }
}

fn word(payload: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?))
}

/// Gives the packets of one flow and direction their ids.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    header: Option<Header>,
    guess: bool,
    came: u64,
}

impl Ids {
    /// Ids as `header` tells; `None` numbers packets as they come.
    pub const fn of(header: Option<Header>) -> Self {
        Self { header, guess: false, came: 0 }
    }

    /// Ids as the first packet tells; if it tells nothing, packets are numbered as they come.
    pub const fn guessed() -> Self {
        Self { header: None, guess: true, came: 0 }
    }

    /// The id of the next packet.
    pub fn of_next(&mut self, payload: &[u8]) -> u64 {
        if std::mem::take(&mut self.guess) {
            self.header = Header::guess(payload);
        }
        let number = self.came;
        self.came += 1;
        self.header.and_then(|header| header.id(payload)).unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn iperf(id: i64, seconds: u32, micros: u32) -> Vec<u8> {
        let (low, high) = (id as u32, (id >> 32) as u32);
        let fields = [low, seconds, micros, high];
        [&fields.map(u32::to_be_bytes).concat()[..], &[0x5a; 84]].concat()
    }

    #[test]
    fn iperfs_ids_are_told_and_those_of_its_last_packets_too() {
        let first = iperf(1, 1_790_000_000, 999_999);
        assert_eq!(Header::guess(&first), Some(Header::Iperf));
        let big = iperf(5_000_000_000, 1_790_000_000, 0);
        assert_eq!(Header::Iperf.id(&big), Some(5_000_000_000));
        let last = iperf(-27, 1_790_000_000, 0);
        assert_eq!(
            (Header::guess(&last), Header::Iperf.id(&last)),
            (Some(Header::Iperf), Some(27))
        );
    }

    #[test]
    fn stamps_numbers_are_told_with_either_clock() {
        let mut packet = vec![0; 44];
        for (seconds, estimate) in [(3_998_000_000_u32, 0x8101_u16), (1_790_000_000, 0xc101)] {
            packet[..4].copy_from_slice(&77_u32.to_be_bytes());
            packet[4..8].copy_from_slice(&seconds.to_be_bytes());
            packet[12..14].copy_from_slice(&estimate.to_be_bytes());
            let ids = (Header::guess(&packet), Header::Stamp.id(&packet));
            assert_eq!(ids, (Some(Header::Stamp), Some(77)), "{seconds}");
        }
    }

    #[test]
    fn a_flow_that_says_nothing_is_numbered_as_it_comes() {
        let mut ids = Ids::guessed();
        assert_eq!([0, 1, 2].map(|n| ids.of_next(&[n; 100])), [0, 1, 2]);
        let mut mark = *b"dwlt\0\0\0\x01\0\0\0\0\0\0\x01\x02";
        let mut ids = Ids::guessed();
        assert_eq!(ids.of_next(&mark), 0x102);
        mark[15] = 3;
        assert_eq!(ids.of_next(&mark), 0x103);
    }

    proptest! {
        #[test]
        fn no_payload_makes_it_panic(payload in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut ids = Ids::guessed();
            ids.of_next(&payload);
            for header in [Header::Iperf, Header::Stamp, Header::Roundtrip, Header::Dwell] {
                header.id(&payload);
            }
        }
    }
}
