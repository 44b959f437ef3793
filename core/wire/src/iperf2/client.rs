//! Client settings, which follow number and time in every datagram: what the server reads, and how
//! many bytes of a payload a relay must leave clear for it.

use crate::{WireError, bytes, field};

/// Settings that dwell sends and reads. All others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Number of parallel flows.
    pub threads: u32,
    /// Port of the server.
    pub port: u32,
    /// Payload length in bytes.
    pub size: u32,
    /// Amount to send: bytes, or a negative number of hundredths of a second.
    pub amount: i32,
    /// Requested rate in bit/s of payload.
    pub rate: u64,
}

/// Length of a datagram up to the end of [`Client`].
const SETTINGS_END: usize = 76;

const VERSION1: u32 = 0x8000_0000;
const EXTEND: u32 = 0x4000_0000;
pub(super) const SEQNO64B: u32 = 0x0800_0000;
const LEN_BIT: u32 = 0x0001_0000;
/// Bits of the flags that hold the length of all headers, times 2.
const LEN_MASK: u32 = 0x0000_01fe;
/// Bits that no client sets.
const UNUSED: u32 = 0x00fc_fe01;

/// Upper flags that indicate the block of start time and pacing rate after byte 108.
const START: u16 = 0x0010 | 0x0200 | 0x1000;
const ISOCHRONOUS_SETTINGS: u16 = 0x0040;

/// Version of the client: 2.1.8, whose format this is.
const VERSION: [u8; 8] = [0, 2, 0, 1, 0, 8, 0, 3];

/// Whether the flags are those of a client that sends at least [`SETTINGS_END`] bytes of headers.
pub(super) fn is_extended(flags: u32) -> bool {
    let len = (flags & LEN_MASK) >> 1;
    flags & (EXTEND | LEN_BIT) == EXTEND | LEN_BIT
        && flags & UNUSED == 0
        && SETTINGS_END as u32 <= len
        && len <= 160
}

impl Client {
    /// Reads the settings of a datagram.
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let word = |at| field(payload, at).map(u32::from_be_bytes);
        if !is_extended(word(16)?) {
            return Err(WireError::Mismatch);
        }
        Ok(Self {
            threads: word(20)?,
            port: word(24)?,
            size: word(28)?,
            amount: word(36)? as i32,
            rate: u64::from(word(68)?) << 32 | u64::from(word(64)?),
        })
    }

    /// Writes the settings to a payload of at least [`LEN`](super::LEN) bytes, after number and
    /// time. If they do not fit, writes zeros, which a server takes for a client without settings;
    /// leftover bytes could be taken for settings.
    pub fn emit(&self, payload: &mut [u8]) {
        let end = payload.len().min(128);
        payload[super::LEN..end].fill(0);
        if payload.len() < SETTINGS_END {
            return;
        }
        let mut put = |at: usize, word: u32| {
            payload[at..at + 4].copy_from_slice(&word.to_be_bytes());
        };
        put(16, EXTEND | SEQNO64B | LEN_BIT | (SETTINGS_END as u32) << 1);
        put(20, self.threads);
        put(24, self.port);
        put(28, self.size);
        put(36, self.amount as u32);
        put(64, self.rate as u32);
        put(68, (self.rate >> 32) as u32);
        payload[52..60].copy_from_slice(&VERSION);
    }
}

/// Returns the number of bytes at the start of a payload that a relay must leave clear for an
/// iperf2 server: 20 if no settings are recognised (number, time, and the flags), 40 with the
/// settings of old clients, otherwise the length in the flags, or 128 or 160 if they indicate
/// further blocks. At most the payload length.
///
/// Only bytes that stay clear decide, so that the relay at the other end computes the same number.
pub fn clear_len(payload: &[u8]) -> usize {
    let flags = bytes(payload, 16).map_or(0, u32::from_be_bytes);
    let len = if is_extended(flags) {
        let upper = bytes(payload, 48).map_or(0, u16::from_be_bytes);
        match ((flags & LEN_MASK) >> 1) as usize {
            _ if upper & ISOCHRONOUS_SETTINGS != 0 => 160,
            len if upper & START != 0 => len.max(128),
            len => len,
        }
    } else if flags & !(SEQNO64B | 1) == VERSION1 {
        40
    } else {
        20
    };
    len.min(payload.len())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// First datagram of `iperf -c 127.0.0.1 -u -e -b 100pps -l 1400 -t 0.1`, up to byte 80.
    pub(in crate::iperf2) const PLAIN: [u8; 80] = [
        0x00, 0x00, 0x00, 0x01, 0x6b, 0x01, 0x78, 0xf1, 0x00, 0x0f, 0x0c, 0x27, 0x00, 0x00, 0x00,
        0x00, 0x48, 0x01, 0x00, 0x98, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0xaa, 0x72, 0x00, 0x00,
        0x05, 0x78, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xf6, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00, 0x08, 0x00, 0x03,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x64, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00,
    ];

    /// A payload of `len` bytes that starts like the real client's, with these flags and upper
    /// flags.
    fn with_flags(flags: u32, upper: u16, len: usize) -> Vec<u8> {
        let mut payload = PLAIN.to_vec();
        payload.resize(len.max(80), 0x33);
        payload[16..20].copy_from_slice(&flags.to_be_bytes());
        payload[48..50].copy_from_slice(&upper.to_be_bytes());
        payload.truncate(len);
        payload
    }

    #[test]
    fn settings_match_the_real_client() {
        let client = Client { threads: 1, port: 0xaa72, size: 1_400, amount: -10, rate: 100 };
        assert_eq!(Client::parse(&PLAIN), Ok(client));
        let mut payload = [0xa5; 80];
        payload[..16].copy_from_slice(&PLAIN[..16]);
        client.emit(&mut payload);
        assert_eq!(payload, PLAIN);
    }

    #[test]
    fn clear_length_covers_each_captured_header() {
        for (what, flags, upper, len, clear) in [
            ("plain", 0x4801_0098, 0x0000, 1_400, 76),
            ("-l 60", 0x4801_0098, 0x0000, 60, 60),
            ("--trip-times", 0x6801_00d8, 0x0010, 300, 128),
            ("--isochronous", 0x6801_00d8, 0x0001, 300, 108),
            ("-r", 0xc801_0098, 0x0000, 300, 76),
            ("--txstart-time", 0x6801_0098, 0x1000, 300, 128),
            ("--fq-rate", 0x6801_00d8, 0x0200, 300, 128),
            ("small with trip times", 0x0002_0000, 0x3132, 64, 20),
            ("-C", 0x3637_3839, 0x3132, 300, 20),
            ("an old client's -r", 0x8000_0001, 0x0000, 300, 40),
            ("no settings", 0, 0, 300, 20),
        ] {
            assert_eq!(clear_len(&with_flags(flags, upper, len)), clear, "{what}");
        }
        assert_eq!(clear_len(&PLAIN[..12]), 12);
    }

    #[test]
    fn payload_too_short_for_settings_is_zeroed() {
        let client = Client { threads: 1, port: 5_001, size: 60, amount: 600, rate: 1 << 33 };
        let mut payload = [0xa5; 60];
        client.emit(&mut payload);
        assert_eq!((&payload[..16], &payload[16..]), (&[0xa5; 16][..], &[0; 44][..]));
        let mut payload = [0xa5; 140];
        client.emit(&mut payload);
        assert_eq!(Client::parse(&payload), Ok(client));
        assert_eq!(payload[128..], [0xa5; 12], "the rest is unchanged");
    }

    proptest! {
        #[test]
        fn encrypted_bytes_do_not_change_the_clear_length(
            flags in prop_oneof![
                any::<u32>(), Just(0x4801_0098), Just(0x6801_00d8), Just(0x8800_0000),
            ],
            upper: u16,
            len in 0_usize..400,
            noise in prop::collection::vec(any::<u8>(), 400),
        ) {
            let mut payload = with_flags(flags, upper, len);
            let clear = clear_len(&payload);
            prop_assert!(clear <= payload.len());
            let rest = len - clear;
            payload[clear..].copy_from_slice(&noise[..rest]);
            prop_assert_eq!(clear_len(&payload), clear);
        }

        #[test]
        fn any_bytes_are_read_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Client::parse(&payload);
            let _ = clear_len(&payload);
        }
    }
}
