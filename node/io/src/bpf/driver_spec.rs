//! Parameters and results of timestamps in the network driver, in the encoding of
//! node/bpf/probe_stamps.bpf.h.

use std::net::{IpAddr, SocketAddr};

use dwell_units::{Instant, Realtime};

/// Probes and replies to timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverStampSpec {
    /// Transport.
    pub transport: ProbeFrames,
    /// Local address. Port 0: any port; ICMP: the identifier of the echoes.
    pub local: SocketAddr,
    /// Address of the reflector; ICMP ignores the port.
    pub remote: SocketAddr,
    /// Offset of the id in a probe, in bytes from the start of the transport header.
    pub probe_id_at: u16,
    /// The same in a reply.
    pub reply_id_at: u16,
    /// Length of the id in bytes: 2, 4 or 8; 0 without an id.
    pub id_len: u8,
}

/// Transport of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFrames {
    /// UDP datagrams.
    Udp,
    /// ICMP or ICMPv6 echoes.
    Echo,
}

/// Length of struct probe_filter, and of struct probe_event.
const FILTER_LEN: usize = 44;
const EVENT_LEN: usize = 24;

impl DriverStampSpec {
    /// Encodes struct probe_filter.
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "no program to configure"))]
    pub(super) fn encoded(&self) -> [u8; FILTER_LEN] {
        let mut bytes = [0; FILTER_LEN];
        put_address(&mut bytes[..16], self.local.ip());
        put_address(&mut bytes[16..32], self.remote.ip());
        bytes[32..34].copy_from_slice(&self.local.port().to_be_bytes());
        if self.transport == ProbeFrames::Udp {
            bytes[34..36].copy_from_slice(&self.remote.port().to_be_bytes());
        }
        bytes[36..38].copy_from_slice(&self.probe_id_at.to_ne_bytes());
        bytes[38..40].copy_from_slice(&self.reply_id_at.to_ne_bytes());
        bytes[40] = self.id_len;
        let v4 = self.remote.is_ipv4();
        bytes[41] = if v4 { 4 } else { 6 };
        bytes[42] = match (self.transport, v4) {
            (ProbeFrames::Udp, _) => libc::IPPROTO_UDP,
            (ProbeFrames::Echo, true) => libc::IPPROTO_ICMP,
            (ProbeFrames::Echo, false) => libc::IPPROTO_ICMPV6,
        } as u8;
        bytes
    }
}

fn put_address(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(v4) => place[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => place.copy_from_slice(&v6.octets()),
    }
}

/// Timestamp of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStamp {
    /// When it passed the program.
    pub at: Instant<Realtime>,
    /// Bytes of the id; the rest is zero.
    pub id: [u8; 8],
    /// A probe at tcx egress; otherwise a reply in the driver.
    pub is_probe: bool,
}

impl FrameStamp {
    /// Reads struct probe_event. `tai_offset` is CLOCK_TAI minus CLOCK_REALTIME. Returns `None` for
    /// bytes that the program does not write.
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "no program writes events"))]
    pub(super) fn parse(bytes: &[u8], tai_offset: dwell_units::Nanos) -> Option<Self> {
        let event: &[u8; EVENT_LEN] = bytes.first_chunk()?;
        let tai = u64::from_ne_bytes(*event.first_chunk()?);
        let id = *event[8..].first_chunk()?;
        let is_probe = u32::from_ne_bytes(*event[16..].first_chunk()?) != 0;
        let at = Instant::from_nanos(i64::try_from(tai).ok()?) - tai_offset;
        Some(Self { at, id, is_probe })
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Nanos;

    use super::*;

    #[test]
    fn filter_is_encoded_as_the_program_reads_it() {
        let spec = DriverStampSpec {
            transport: ProbeFrames::Udp,
            local: "10.0.0.1:40000".parse().unwrap(),
            remote: "10.0.0.2:862".parse().unwrap(),
            probe_id_at: 8,
            reply_id_at: 32,
            id_len: 4,
        };
        let bytes = spec.encoded();
        assert_eq!((&bytes[..4], &bytes[16..20]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!(bytes[32..36], [0x9c, 0x40, 0x03, 0x5e]);
        assert_eq!(bytes[36..44], [8, 0, 32, 0, 4, 4, 17, 0]);
        let local = "[fe80::1]:7".parse().unwrap();
        let remote = "[fe80::2]:862".parse().unwrap();
        let echo = DriverStampSpec { transport: ProbeFrames::Echo, local, remote, ..spec };
        let bytes = echo.encoded();
        assert_eq!((bytes[15], bytes[31]), (1, 2));
        assert_eq!((&bytes[32..36], &bytes[41..43]), (&[0, 7, 0, 0][..], &[6, 58][..]));
    }

    #[test]
    fn event_is_read_as_the_program_writes_it() {
        let mut bytes = 37_000_001_000_u64.to_ne_bytes().to_vec();
        bytes.extend([1, 2, 3, 4, 0, 0, 0, 0]);
        bytes.extend([0_u32.to_ne_bytes(), 3_u32.to_ne_bytes()].concat());
        let stamp = FrameStamp::parse(&bytes, Nanos::from_secs(37)).unwrap();
        assert_eq!((stamp.at, stamp.is_probe), (Instant::from_nanos(1_000), false));
        assert_eq!(stamp.id, [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(FrameStamp::parse(&bytes[..23], Nanos::ZERO), None);
    }
}
