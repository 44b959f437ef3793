//! Filter for traced packets, in the syntax of capture filters: `udp port 5001`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Packets that a trace timestamps: a protocol, optionally `host ADDRESS` and `port NUMBER`, each
/// matching source or destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// Protocol.
    pub protocol: FlowProtocol,
    /// Source or destination address.
    pub host: Option<IpAddr>,
    /// Source or destination port; never 0.
    pub port: Option<u16>,
}

/// Protocols that a trace can filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// UDP.
    Udp,
    /// TCP, including packets without payload.
    Tcp,
    /// ICMP and ICMPv6 echo requests and replies.
    Icmp,
}

impl FlowProtocol {
    const ALL: [(Self, &str); 3] = [(Self::Udp, "udp"), (Self::Tcp, "tcp"), (Self::Icmp, "icmp")];
}

/// Parse error of a flow filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowFilterError {
    /// The text is empty.
    #[error("a flow starts with its protocol, as in 'udp port 5001'")]
    Empty,
    /// The first word is not a protocol.
    #[error("unknown protocol '{0}'; start with udp, tcp or icmp, as in 'udp port 5001'")]
    Protocol(String),
    /// A word is neither `host` nor `port`.
    #[error("unexpected '{0}'; only host ADDRESS and port NUMBER may follow the protocol")]
    Word(String),
    /// A keyword lacks its value.
    #[error("'{0}' lacks its value, as in 'udp host 10.0.0.2 port 5001'")]
    NoValue(String),
    /// Invalid address.
    #[error("invalid address '{0}'; use an IPv4 or IPv6 address, not a name")]
    Host(String),
    /// Invalid port.
    #[error("invalid port '{0}'; use 1 to 65535")]
    Port(String),
    /// A repeated keyword.
    #[error("duplicate {0}; a trace accepts only one")]
    Twice(String),
    /// ICMP echoes have no ports.
    #[error("icmp has no ports; use 'icmp host ADDRESS'")]
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
    fn filter_parses_protocol_host_and_port_in_any_order() {
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
    fn invalid_filter_reports_a_valid_form() {
        for (text, needle) in [
            ("", "udp port 5001"),
            ("port 5001", "unknown protocol 'port'"),
            ("UDP", "udp, tcp or icmp"),
            ("udp prot 5001", "'prot'"),
            ("udp port", "'port' lacks"),
            ("udp port 0", "1 to 65535"),
            ("udp port 65536", "1 to 65535"),
            ("udp host n2", "not a name"),
            ("udp port 1 port 2", "duplicate port"),
            ("udp host ::1 host ::1", "duplicate host"),
            ("icmp port 7", "no ports"),
        ] {
            let error = text.parse::<FlowFilter>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}
