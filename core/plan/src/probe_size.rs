//! Sizes of probes by the name of their protocol, for schedules.

use dwell_engine::protocol::Scheme;

/// Static properties of a protocol of probes that schedules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSize {
    /// Payload of a probe in bytes.
    pub payload: u64,
    /// Headers above IP, in bytes.
    pub transport_header: u64,
    /// Whether targets have a port.
    pub has_ports: bool,
    /// Port of a target without one; `None`: a target must name its port.
    pub default_port: Option<u16>,
}

impl ProbeSize {
    /// Returns the sizes of probes of the protocol with this name (the scheme of its URLs) and this
    /// payload; `None`: the protocol's default.
    ///
    /// # Errors
    /// The protocol is unknown, or it has no message of this size. The text says what is right.
    pub fn of(protocol: &str, payload: Option<u64>) -> Result<Self, String> {
        let scheme: Scheme = protocol.parse().map_err(|error| format!("{error}"))?;
        let spec = scheme.spec();
        let payload = payload.unwrap_or(spec.payload.default);
        spec.payload.check(payload).map_err(|error| {
            use dwell_engine::protocol::PayloadError::{
                Between, Either, Fixed, TooLarge, TooSmall,
            };
            let right = match error {
                Fixed(size) => format!("{size}B"),
                Either(size, other) => format!("{size}B or {other}B"),
                TooSmall(size) => format!("{size}B or more"),
                TooLarge(size) => format!("{size}B or less"),
                Between(size, other) => format!("{size}B, or {other}B or more"),
            };
            format!("a {protocol} probe cannot have {payload}B of payload; use {right}")
        })?;
        Ok(Self {
            payload,
            transport_header: spec.transport.header_len(),
            has_ports: spec.transport.has_ports(),
            default_port: spec.default_port,
        })
    }

    /// Length of the IP packet of a probe in bytes.
    pub const fn ip_bytes(&self, ipv6: bool) -> u64 {
        let ip = if ipv6 { 40 } else { 20 };
        ip + self.transport_header + self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_size_includes_the_headers() {
        let stamp = ProbeSize::of("stamp", Some(100)).unwrap();
        assert_eq!((stamp.ip_bytes(false), stamp.ip_bytes(true)), (128, 148));
        assert_eq!((stamp.has_ports, stamp.default_port), (true, Some(862)));
        assert!(!ProbeSize::of("icmp", None).unwrap().has_ports);
    }

    #[test]
    fn unknown_protocol_or_size_is_refused() {
        assert!(ProbeSize::of("stomp", None).unwrap_err().contains("known are stamp"));
        let small = ProbeSize::of("stamp", Some(1)).unwrap_err();
        assert!(small.contains("or more"), "{small}");
        let large = ProbeSize::of("udp", Some(70_000)).unwrap_err();
        assert!(large.contains("65507B or less"), "{large}");
    }
}
