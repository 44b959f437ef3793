//! UDP packets of iperf2 (captured from iperf 2.1.8): a header of 16 bytes in every datagram,
//! followed by the client's settings, and the server's report that answers the end of a flow. All
//! fields are big-endian.
//!
//! A flow counts from 1. The last datagram, the FIN, carries the next number, negated. It is
//! counted like the others, and repeated until the server answers.

mod client;
mod report;

use dwell_units::{Instant, Realtime};

use crate::{WireError, bytes, field};

pub use client::{Client, clear_len};
pub use report::{ServerReport, Transit};

/// Length of the datagram header in bytes.
pub const LEN: usize = 16;

/// Length of the header before iperf 2.0.10 (Miya 2020, figure 3), without the upper half of the
/// number.
pub const CLASSIC_LEN: usize = 12;

/// Header of a datagram.
///
/// ```
/// use dwell_units::Instant;
/// use dwell_wire::iperf2::{self, Client, Datagram};
///
/// let mut payload = [0; 1_470];
/// Datagram::new(-9, Instant::from_parts(1_700_000_000, 250_000)).emit(&mut payload);
/// let client = Client { threads: 1, port: 5001, size: 1_470, amount: -1_000, rate: 1_000_000 };
/// client.emit(&mut payload);
///
/// let fin = Datagram::parse(&payload)?;
/// assert!(fin.is_fin());
/// assert_eq!((fin.number(), fin.usec), (9, 250));
/// assert_eq!(iperf2::clear_len(&payload), 76, "bytes that a relay leaves clear");
/// # Ok::<(), dwell_wire::WireError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number in the flow; negative for a FIN.
    pub id: i64,
    /// Send time: whole seconds of the sender's clock.
    pub sec: u32,
    /// Send time: microseconds of that second.
    pub usec: u32,
}

impl Datagram {
    /// Creates the header of a datagram sent at `at`.
    pub fn new(id: i64, at: Instant<Realtime>) -> Self {
        let micros = at.as_nanos() / 1_000;
        Self {
            id,
            sec: micros.div_euclid(1_000_000) as u32,
            usec: micros.rem_euclid(1_000_000) as u32,
        }
    }

    /// Reads the header of old or new clients. The upper half of the number is used only if the
    /// client declares 64-bit numbers, because old clients have other fields there.
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let low = u32::from_be_bytes(field(payload, 0)?);
        let (sec, usec) = (field(payload, 4)?, field(payload, 8)?);
        let wide = bytes(payload, LEN)
            .map(u32::from_be_bytes)
            .is_some_and(|flags| client::is_extended(flags) && flags & client::SEQNO64B != 0);
        let id = match bytes(payload, CLASSIC_LEN).map(u32::from_be_bytes) {
            Some(high) if wide => (u64::from(high) << 32 | u64::from(low)) as i64,
            _ => i64::from(low as i32),
        };
        Ok(Self { id, sec: u32::from_be_bytes(sec), usec: u32::from_be_bytes(usec) })
    }

    /// Writes the header to the start of `payload`, which has at least [`LEN`] bytes.
    pub fn emit(self, payload: &mut [u8]) {
        let id = self.id as u64;
        payload[..4].copy_from_slice(&(id as u32).to_be_bytes());
        payload[4..8].copy_from_slice(&self.sec.to_be_bytes());
        payload[8..12].copy_from_slice(&self.usec.to_be_bytes());
        payload[12..16].copy_from_slice(&((id >> 32) as u32).to_be_bytes());
    }

    /// Number of the datagram, also of a FIN.
    pub fn number(&self) -> u64 {
        self.id.unsigned_abs()
    }

    /// Whether it is the FIN.
    pub fn is_fin(&self) -> bool {
        self.id < 0
    }

    /// Send time on the sender's clock, in whole microseconds.
    pub fn at(&self) -> Instant<Realtime> {
        Instant::from_nanos(i64::from(self.sec) * 1_000_000_000 + i64::from(self.usec) * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::client::tests::PLAIN;
    use super::*;

    #[test]
    fn real_client_numbers_are_read_including_the_fin() {
        let first = Datagram { id: 1, sec: 0x6b01_78f1, usec: 0x000f_0c27 };
        assert_eq!(Datagram::parse(&PLAIN), Ok(first));
        let mut fin = PLAIN;
        fin[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf3]);
        fin[12..16].fill(0xff);
        let fin = Datagram::parse(&fin).unwrap();
        assert_eq!((fin.number(), fin.is_fin()), (13, true));
    }

    #[test]
    fn fin_of_an_old_client_is_recognised() {
        let classic = [0xff, 0xff, 0xff, 0xf3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(Datagram::parse(&classic), Ok(Datagram { id: -13, sec: 9, usec: 5 }));
        assert_eq!(Datagram::parse(&classic[..CLASSIC_LEN]).unwrap().id, -13);
        assert_eq!(Datagram::parse(&classic[..11]), Err(WireError::TooShort));
    }

    proptest! {
        #[test]
        fn written_header_is_read_back(id: i64, at in 0..4_000_000_000_000_000_000_i64) {
            let datagram = Datagram::new(id, Instant::from_nanos(at));
            let mut payload = PLAIN;
            datagram.emit(&mut payload);
            prop_assert_eq!(Datagram::parse(&payload), Ok(datagram));
            prop_assert_eq!(datagram.at().as_nanos(), at / 1_000 * 1_000);
        }

        #[test]
        fn any_bytes_are_read_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(datagram) = Datagram::parse(&payload) {
                let _ = (datagram.at(), datagram.number(), datagram.is_fin());
            }
        }
    }
}
