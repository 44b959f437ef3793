//! ICMP errors about probes: names and advice.

use std::fmt;
use std::io;
use std::net::IpAddr;

use dwell_io::port::Notice;
use dwell_wire::icmp::{self, ErrorClass, Family};

use crate::Target;

/// An error that the network or the local kernel reported about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NetworkError {
    /// Its errno.
    pub(super) errno: i32,
    /// The family of the probe, with ICMP type and code; `None` if the local kernel refused it.
    pub(super) icmp: Option<(Family, u8, u8)>,
    /// The reporting node, if known.
    pub(super) from: Option<IpAddr>,
}

impl NetworkError {
    /// The error in an error-queue entry about a probe of this family.
    pub(super) fn of(notice: &Notice, family: Family) -> Option<Self> {
        match *notice {
            Notice::Error { errno, icmp, kind: (kind, code), from } => {
                let icmp = icmp.then_some((family, kind, code));
                Some(Self { errno, icmp, from })
            }
            Notice::TxStamp { .. } => None,
        }
    }

    /// Whether both are the same error; the reporting nodes may differ.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.errno, self.icmp) == (other.errno, other.icmp)
    }

    pub(super) fn meaning(&self) -> ErrorClass {
        self.icmp
            .map_or(ErrorClass::Other, |(family, kind, code)| icmp::error(family, kind, code).1)
    }

    /// Advice if there was no reply.
    pub(super) fn advice(&self, target: &Target) -> Option<String> {
        let node = self.from.map_or("a node on the path".to_owned(), |from| from.to_string());
        Some(match self.meaning() {
            ErrorClass::TimeExceeded => {
                format!("the TTL ran out at {node}: use a larger -t, or leave it out")
            }
            ErrorClass::Prohibited => format!("a firewall or filter at {node} rejects the probes"),
            ErrorClass::Unreachable => {
                format!("{node} cannot reach the target: check routes and links")
            }
            ErrorClass::TooBig => {
                format!("the link after {node} has a smaller MTU: use a smaller -s")
            }
            ErrorClass::Port if target.scheme.spec().has_reflector() => {
                format!("nothing listens there; start `dwell reflect {target}` on it")
            }
            ErrorClass::Port | ErrorClass::Other => return None,
        })
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.icmp, self.from) {
            (Some((family, kind, code)), from) => {
                let name = icmp::error(family, kind, code).0;
                let protocol = match family {
                    Family::V4 => "ICMP",
                    Family::V6 => "ICMPv6",
                };
                match from {
                    Some(from) => write!(f, "{from} reports ")?,
                    None => write!(f, "the network reports ")?,
                }
                write!(f, "{name} ({protocol} type {kind} code {code})")
            }
            (None, _) => {
                let error = io::Error::from_raw_os_error(self.errno);
                write!(f, "the local kernel reports: {error}")
            }
        }
    }
}

/// The usual initial TTL. A smaller one may not suffice for both directions.
const USUAL_TTL: u8 = 64;

/// Advice on a target that did not reply to probes with this TTL, without any network error.
pub(super) fn silent_advice(target: &Target, ttl: Option<u8>) -> String {
    let (scheme, spec) = (target.scheme, target.scheme.spec());
    let question = spec.silent_hint;
    match ttl.filter(|ttl| spec.decrements_ttl() && *ttl < USUAL_TTL) {
        Some(ttl) => format!(
            "{question} dwell's {scheme}:// replies carry the arriving TTL - 1: is --ttl {ttl} at \
             least twice the number of routers + 2?"
        ),
        None => question.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(icmp: (Family, u8, u8)) -> NetworkError {
        let from = Some("192.0.2.7".parse().unwrap());
        NetworkError { errno: 113, icmp: Some(icmp), from }
    }

    #[test]
    fn time_exceeded_is_named_and_suggests_a_larger_ttl() {
        let target: Target = "stamp://h".parse().unwrap();
        let exceeded = error((Family::V4, 11, 0));
        let text = exceeded.to_string();
        assert_eq!(text, "192.0.2.7 reports time exceeded in transit (ICMP type 11 code 0)");
        assert!(exceeded.advice(&target).unwrap().contains("larger -t"));
    }

    #[test]
    fn advice_fits_the_protocol() {
        let (stamp, icmp) = ("stamp://h".parse().unwrap(), "icmp://h".parse().unwrap());
        for port in [error((Family::V4, 3, 3)), error((Family::V6, 1, 4))] {
            assert!(port.advice(&stamp).unwrap().contains("dwell reflect stamp://h:862"));
            assert_eq!(port.advice(&icmp), None);
        }
        assert!(!silent_advice(&icmp, Some(2)).contains("reflector"));
        assert!(silent_advice(&stamp, Some(2)).ends_with("(--key-file)?"));
        assert!(error((Family::V6, 1, 1)).advice(&icmp).unwrap().contains("firewall"));
    }

    #[test]
    fn silent_udp_target_with_a_small_ttl_names_the_ttl() {
        let udp: Target = "udp://h:7".parse().unwrap();
        let small = silent_advice(&udp, Some(3));
        assert!(small.contains("is --ttl 3 at least twice the number of routers + 2?"), "{small}");
        for usual in [None, Some(64), Some(255)] {
            assert!(!silent_advice(&udp, usual).contains("TTL"));
        }
    }
}
