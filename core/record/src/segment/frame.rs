//! Frames: u8 kind, 3 zero bytes, u32 length, u32 CRC-32 over kind, length and payload, payload;
//! integers little-endian.

/// Length of a frame head.
pub(super) const HEAD_LEN: usize = 12;

/// Maximum payload length. Blocks of samples are much shorter.
pub(super) const MAX_PAYLOAD_LEN: usize = 1 << 20;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// JSON of [`super::Header`]; the first frame.
    Header = b'H',
    /// Clock pairing for the samples that follow, or none if a clock was stepped.
    Bridge = b'B',
    /// Local timestamp source in figures that also use the far end's timestamps.
    Near = b'N',
    /// Samples.
    Samples = b'S',
    /// JSON of [`super::FlowEntry`]: a flow that later observations refer to by number.
    Flow = b'F',
    /// Packet observations.
    Observations = b'P',
    /// JSON of [`dwell_host::HostSample`]: host activity.
    Host = b'U',
    /// JSON of [`crate::Spike`]: the causes of a sample's delay.
    Spike = b'X',
    /// JSON of [`super::Totals`]; the last frame.
    End = b'E',
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Header,
        Self::Bridge,
        Self::Near,
        Self::Samples,
        Self::Flow,
        Self::Observations,
        Self::Host,
        Self::Spike,
        Self::End,
    ];

    const fn code(self) -> u8 {
        self as u8
    }
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) len: usize,
    crc: u32,
}

impl Head {
    /// Parses a head; `None` if the bytes are not one.
    pub(super) fn parse(bytes: &[u8; HEAD_LEN]) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.code() == bytes[0])?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let len = word(4) as usize;
        (bytes[1..4] == [0; 3] && len <= MAX_PAYLOAD_LEN).then(|| Self { kind, len, crc: word(8) })
    }

    /// Returns whether `payload` matches the checksum.
    pub(super) fn fits(self, payload: &[u8]) -> bool {
        crc(self.kind, payload) == self.crc
    }
}

/// Appends a frame.
pub(super) fn append(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    debug_assert!(payload.len() <= MAX_PAYLOAD_LEN);
    out.extend_from_slice(&[kind.code(), 0, 0, 0]);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc(kind, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn crc(kind: Kind, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind.code()]);
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}
