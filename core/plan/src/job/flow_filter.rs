//! Which packets a trace stamps, in the words of capture filters: `udp port 5001`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Which packets a trace stamps: a protocol, then perhaps `host ADDRESS`, perhaps `port NUMBER`,
/// each of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// Of which protocol.
    pub protocol: FlowProtocol,
    /// Source or destination.
    pub host: Option<IpAddr>,
    /// Port of source or destination; never 0.
    pub port: Option<u16>,
}

/// What a trace can tell packets of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// UDP.
    Udp,
    /// TCP; packets without payload too.
    Tcp,
    /// Echo requests and replies of ICMP and ICMPv6.
    Icmp,
}

impl FlowProtocol {
    const ALL: [(Self, &str); 3] = [(Self::Udp, "udp"), (Self::Tcp, "tcp"), (Self::Icmp, "icmp")];
}

/// Why an expression is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowFilterError {
    /// Nothing there.
    #[error("a flow begins with its protocol, as in 'udp port 5001'")]
    Empty,
    /// The first word is no protocol.
    #[error("'{0}' is no protocol: udp, tcp or icmp comes first, as in 'udp port 5001'")]
    Protocol(String),
    /// Neither `host` nor `port`.
    #[error("'{0}' is not known here: host ADDRESS and port NUMBER may follow the protocol")]
    Word(String),
    /// A word without what belongs to it.
    #[error("'{0}' lacks its value, as in 'udp host 10.0.0.2 port 5001'")]
    NoValue(String),
    /// Not an address.
    #[error("'{0}' is no address: an IPv4 or IPv6 address is needed, not a name")]
    Host(String),
    /// Not a port.
    #[error("'{0}' is no port: 1 to 65535")]
    Port(String),
    /// Said twice.
    #[error("there is a {0} already: one is all that a trace takes")]
    Twice(String),
    /// Echoes have none.
    #[error("icmp has no ports; 'icmp host ADDRESS' can be told")]
    PortOfIcmp,
}

impl FromStr for FlowFilter {
    type Err = FlowFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let first = words.next().ok_or(FlowFilterError::Empty)?;
        let protocol = FlowProtocol::ALL.into_iter().find(|(_, name)| *name == first);
        let (protocol, _) = protocol.ok_or_else(|| FlowFilterError::Protocol(first.to_owned()))?;
        let mut filter = Self { protocol, host: None, port: None };
        while let Some(word) = words.next() {
            if !["host", "port"].contains(&word) {
                return Err(FlowFilterError::Word(word.to_owned()));
            }
            let value = words.next().ok_or_else(|| FlowFilterError::NoValue(word.to_owned()))?;
            let is_there = match word {
                "host" => {
                    let host = value.parse();
                    let host = host.map_err(|_| FlowFilterError::Host(value.to_owned()))?;
                    filter.host.replace(host).is_some()
                }
                _ if protocol == FlowProtocol::Icmp => return Err(FlowFilterError::PortOfIcmp),
                _ => {
                    let port = value.parse().ok().filter(|port| *port > 0);
                    let port = port.ok_or_else(|| FlowFilterError::Port(value.to_owned()))?;
                    filter.port.replace(port).is_some()
                }
            };
            if is_there {
                return Err(FlowFilterError::Twice(word.to_owned()));
            }
        }
        Ok(filter)
    }
}

impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FlowProtocol::ALL.into_iter().find(|(protocol, _)| *protocol == self.protocol);
        f.write_str(name.map_or("", |(_, name)| name))?;
        self.host.map_or(Ok(()), |host| write!(f, " host {host}"))?;
        self.port.map_or(Ok(()), |port| write!(f, " port {port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_protocol_and_perhaps_a_host_and_a_port_in_any_order() {
        let host = Some("10.0.0.2".parse().unwrap());
        for (text, protocol, host, port) in [
            ("udp", FlowProtocol::Udp, None, None),
            ("udp port 5001", FlowProtocol::Udp, None, Some(5_001)),
            ("tcp port 80", FlowProtocol::Tcp, None, Some(80)),
            ("icmp host 10.0.0.2", FlowProtocol::Icmp, host, None),
            ("  udp   port 5001 host 10.0.0.2 ", FlowProtocol::Udp, host, Some(5_001)),
            ("udp host ::1", FlowProtocol::Udp, Some("::1".parse().unwrap()), None),
        ] {
            let filter: FlowFilter = text.parse().unwrap();
            assert_eq!(filter, FlowFilter { protocol, host, port }, "{text}");
            assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
        }
    }

    #[test]
    fn what_is_no_flow_is_told_with_what_would_be_right() {
        for (text, needle) in [
            ("", "udp port 5001"),
            ("port 5001", "'port' is no protocol"),
            ("UDP", "udp, tcp or icmp"),
            ("udp prot 5001", "'prot'"),
            ("udp port", "'port' lacks"),
            ("udp port 0", "1 to 65535"),
            ("udp port 65536", "1 to 65535"),
            ("udp host n2", "not a name"),
            ("udp port 1 port 2", "a port already"),
            ("udp host ::1 host ::1", "a host already"),
            ("icmp port 7", "no ports"),
        ] {
            let error = text.parse::<FlowFilter>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}
