//! Targets: URLs whose scheme names the protocol. Parsing only; names are resolved when a socket
//! is opened.

use std::fmt;
use std::str::FromStr;

use dwell_engine::protocol::{Scheme, UnknownScheme};
use thiserror::Error;

/// The address that probes are sent to or that a reflector listens on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The protocol.
    pub scheme: Scheme,
    /// Name or address, without brackets; an IPv6 zone (`%eth0`) stays in it.
    pub host: String,
    /// The port; 0 for a protocol without ports.
    pub port: u16,
}

/// A parse error. Reads after "invalid target: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Unknown scheme.
    #[error("unknown scheme '{0}'; known are {names}", names = Scheme::names())]
    Scheme(String),
    /// Missing scheme where one is required.
    #[error("'{0}' names no protocol; write it like stamp://{0} or udp://{0}")]
    NoScheme(String),
    /// Missing host.
    #[error(
        "'{0}' names no host; write it like stamp://192.0.2.1:862 or stamp://[2001:db8::1]:862"
    )]
    NoHost(String),
    /// Too many colons, or an unclosed bracket.
    #[error(
        "'{0}' is not HOST:PORT; put an IPv6 address in brackets, like stamp://[2001:db8::1]:862"
    )]
    Host(String),
    /// Not a port number.
    #[error("'{0}' is not a port; a port is a number from 1 to 65535")]
    Port(String),
    /// The protocol has no default port.
    #[error("{scheme}:// has no default port; write it like {scheme}://{host}:7000")]
    NoPort {
        /// The protocol.
        scheme: Scheme,
        /// The host, in brackets if it needs them.
        host: String,
    },
    /// The protocol has no ports.
    #[error("{scheme}:// has no ports; write it like {scheme}://{host}")]
    Portless {
        /// The protocol.
        scheme: Scheme,
        /// The host, in brackets if it needs them.
        host: String,
    },
    /// A path after the port.
    #[error("'{0}' has a path; a target has none, leave it out")]
    Path(String),
}

impl Target {
    /// Parses a URL with a mandatory scheme, as for a reflector.
    pub fn with_scheme(text: &str) -> Result<Self, TargetError> {
        if text.contains("://") {
            text.parse()
        } else {
            Err(TargetError::NoScheme(text.to_owned()))
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    /// Parses `scheme://host[:port]`. The default scheme is STAMP.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("stamp", text));
        let scheme: Scheme =
            scheme.parse().map_err(|UnknownScheme(name)| TargetError::Scheme(name))?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('/') {
            return Err(TargetError::Path(text.to_owned()));
        }
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err(TargetError::NoHost(text.to_owned()));
        }
        let spec = scheme.spec();
        if !spec.transport.has_ports() {
            return match port {
                None => Ok(Self { scheme, host: host.to_owned(), port: 0 }),
                Some(_) => Err(TargetError::Portless { scheme, host: bracketed(host) }),
            };
        }
        let port = match port {
            Some(text) => text
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| TargetError::Port(text.to_owned()))?,
            None => spec
                .default_port
                .ok_or_else(|| TargetError::NoPort { scheme, host: bracketed(host) })?,
        };
        Ok(Self { scheme, host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, bracketed(&self.host))?;
        if self.scheme.spec().transport.has_ports() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. A bare IPv6 address is a host.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), TargetError> {
    let bad = || TargetError::Host(authority.to_owned());
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(bad)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(bad()),
        };
    }
    match authority.matches(':').count() {
        0 => Ok((authority, None)),
        1 => Ok(authority.split_once(':').map(|(h, p)| (h, Some(p))).ok_or_else(bad)?),
        _ if authority.parse::<std::net::Ipv6Addr>().is_ok() => Ok((authority, None)),
        _ => Err(bad()),
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(scheme: Scheme, host: &str, port: u16) -> Result<Target, TargetError> {
        Ok(Target { scheme, host: host.to_owned(), port })
    }

    #[test]
    fn target_without_scheme_is_stamp() {
        assert_eq!("n2".parse(), target(Scheme::Stamp, "n2", 862));
        assert_eq!("stamp://[::]:8620".parse(), target(Scheme::Stamp, "::", 8620));
        assert_eq!("stamp://::1".parse(), target(Scheme::Stamp, "::1", 862));
        assert_eq!("icmp://192.0.2.1".parse(), target(Scheme::Icmp, "192.0.2.1", 0));
        assert_eq!("text+udp://h:7".parse(), target(Scheme::TextUdp, "h", 7));
        assert_eq!("udp://[fe80::1%eth0]:9".parse(), target(Scheme::Udp, "fe80::1%eth0", 9));
        assert_eq!(Target::with_scheme("h"), Err(TargetError::NoScheme("h".into())));
    }

    #[test]
    fn wrong_target_error_names_the_correction() {
        let error = |text: &str| text.parse::<Target>().unwrap_err().to_string();
        assert!(error("gopher://h").contains("unknown scheme 'gopher'"));
        assert!(error("udp://h:0").contains("from 1 to 65535"));
        assert!(error("udp://h:70000").contains("'70000'"));
        assert!(error("udp://h").contains("udp://h:7000"));
        assert!(error("stamp://").contains("no host"));
        assert!(error("stamp://a:b:c").contains("brackets"));
        assert!(error("icmp://h:7").contains("no ports"));
        assert!(error("stamp://h:1/x").contains("path"));
    }

    proptest! {
        #[test]
        fn target_parser_never_panics_and_round_trips(text in "\\PC*") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
    }
}
