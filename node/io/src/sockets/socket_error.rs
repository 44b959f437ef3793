//! ICMP errors about earlier packets. A socket keeps one pending, and the next call fails with it
//! instead of doing its work. The error itself stays in the error queue with its packet; the failed
//! call is made again.

use std::ffi::c_int;
use std::io;

use super::port::SendError;

/// Maximum number of retries. ICMP errors come one by one, mostly far apart: an error that persists
/// is about this packet, and local.
const MAX_RETRIES: usize = 4;

/// Whether this errno may come from an ICMP error: see `icmp_err_convert` in net/ipv4/icmp.c and
/// `__udp4_lib_err` for other types; `tab_unreach` and `icmpv6_err_convert` in net/ipv6/icmp.c.
pub(crate) fn is_icmp(errno: c_int) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EACCES
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EMSGSIZE
    )
}

/// Whether a failed send call is to be made again, because the error may be about an earlier
/// packet. `before` is the number of failed calls for the same packet.
pub(crate) fn should_retry(errno: c_int, before: usize) -> bool {
    match errno {
        // Every call with a packet that is too long adds an entry to the error queue.
        libc::EMSGSIZE => before == 0,
        _ => before < MAX_RETRIES && is_icmp(errno),
    }
}

/// Maps a failed receive call to `None` if no message came, a signal arrived, or the error is about
/// an earlier packet.
pub(crate) fn none_if_transient<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(None),
        Some(errno) if is_icmp(errno) => Ok(None),
        _ => Err(error),
    }
}

/// Receives with `call`, whose argument says whether it is a retry and must not block. Returns
/// `None` if no message is there.
pub(crate) fn receive<T>(mut call: impl FnMut(bool) -> io::Result<T>) -> io::Result<Option<T>> {
    for again in 0..=MAX_RETRIES {
        match call(again > 0) {
            Ok(came) => return Ok(Some(came)),
            Err(error) if error.raw_os_error().is_some_and(is_icmp) => {}
            Err(error) => return none_if_transient(error),
        }
    }
    Ok(None)
}

/// Maps the errno of a send call to an error about its message. An errno may also be about an
/// earlier packet: see [`crate::sockets::socket_error`].
pub(crate) fn send_error(errno: c_int) -> SendError {
    match errno {
        libc::EAGAIN => SendError::Full,
        libc::ENOBUFS => SendError::Dropped,
        libc::EMSGSIZE => SendError::TooLong,
        libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTUNREACH | libc::ECONNREFUSED => {
            SendError::Unreachable(errno)
        }
        libc::EPIPE | libc::ECONNRESET => SendError::Closed,
        other => SendError::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr, UdpSocket};

    use dwell_units::Nanos;

    use super::*;
    use crate::clock::monotonic;
    use crate::sockets::datagram::DatagramSocket;
    use crate::sockets::port::{Notice, Port, SocketOptions, StampRequest, Wait};
    use crate::sys::address::RawAddress;
    use crate::sys::{sockopt, syscall};

    #[test]
    fn taken_error_fails_no_call_and_stays_in_queue() {
        let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        let mut port = DatagramSocket::connect(closed, &SocketOptions::default()).unwrap();
        let refused = |port: &mut DatagramSocket| {
            syscall::send(&port.fd, b"refused", 0)?;
            port.sleep_until(monotonic() + Nanos::from_secs(10));
            sockopt::take_error(&port.fd)
        };
        for _ in 0..3 {
            assert_eq!(refused(&mut port).unwrap(), libc::ECONNREFUSED);
            assert_eq!(sockopt::take_error(&port.fd).unwrap(), 0);
            let mut errors = 0;
            port.notices(8, &mut |notice| {
                errors += u32::from(matches!(notice, Notice::Error { .. }))
            });
            assert_eq!(errors, 1);
        }
    }

    /// Types and codes of ICMP errors that the kernel reports to sockets (RFC 792, 1122 3.2.2.1,
    /// 1812 5.2.7.1, 4443), except for "too long", which would affect this machine's loopback for
    /// minutes.
    fn errors(like: IpAddr) -> Vec<(u8, u8)> {
        let unreachable = |kind: u8, codes: u8| (0..codes).map(move |code| (kind, code));
        match like {
            IpAddr::V4(_) => unreachable(3, 16)
                .filter(|which| *which != (3, 4))
                .chain([(11, 0), (12, 0)])
                .collect(),
            IpAddr::V6(_) => unreachable(1, 7).chain([(3, 0), (4, 0)]).collect(),
        }
    }

    /// Builds the ICMP error of this type and code about a datagram from `from` to `to`.
    fn error((kind, code): (u8, u8), from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        const UDP: u8 = libc::IPPROTO_UDP as u8;
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        match (from.ip(), to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                message.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
                message.extend(source.octets());
                message.extend(target.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                message.extend([0x60, 0, 0, 0, 0, 20, UDP, 64]);
                message.extend(source.octets());
                message.extend(target.octets());
            }
            _ => unreachable!("both are of one family"),
        }
        message.extend(from.port().to_be_bytes());
        message.extend(to.port().to_be_bytes());
        message.extend([0, 20, 0, 0]);
        message.extend([0; 12]);
        if from.is_ipv4() {
            // Over IPv6 the kernel computes the checksum.
            let words = message.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        }
        message
    }

    /// Calls `each` with every ICMP error and a function that sends it to the kernel. Without a raw
    /// socket, prints that `test` is skipped.
    fn for_every_error(
        test: &str,
        mut each: impl FnMut(&str, (u8, u8), &dyn Fn(SocketAddr, SocketAddr)),
    ) {
        for address in ["127.0.0.1", "::1"] {
            let ip: IpAddr = address.parse().unwrap();
            let protocol = if ip.is_ipv4() { libc::IPPROTO_ICMP } else { libc::IPPROTO_ICMPV6 };
            let raw = match sockopt::open(ip, libc::SOCK_RAW, protocol) {
                Ok(raw) => raw,
                Err(error) => {
                    return println!("SKIP socket_error::tests::{test}: no raw socket ({error})");
                }
            };
            let there = RawAddress::from(SocketAddr::new(ip, 0));
            for which in errors(ip) {
                each(address, which, &|from, to| {
                    syscall::send_to(&raw, &error(which, from, to), 0, Some(&there)).unwrap();
                });
            }
        }
    }

    /// Counts the ICMP errors in a socket's queue.
    fn count_errors(notices: impl FnOnce(&mut dyn FnMut(Notice))) -> usize {
        let mut errors = 0;
        notices(&mut |notice| {
            errors += usize::from(matches!(notice, Notice::Error { icmp: true, .. }))
        });
        errors
    }

    #[test]
    fn icmp_errors_do_not_block_sending_or_receiving() {
        let test = "icmp_errors_do_not_block_sending_or_receiving";
        for_every_error(test, |address, which, send_icmp| {
            let far = DatagramSocket::bind(
                SocketAddr::new(address.parse().unwrap(), 0),
                &SocketOptions::relay(),
            );
            let mut far = far.unwrap();
            let to = far.local_addr();
            let mut near = DatagramSocket::connect(to, &SocketOptions::default()).unwrap();
            let mut relay = DatagramSocket::connect(to, &SocketOptions::relay()).unwrap();
            let (from, relay_from) = (near.local_addr(), relay.local_addr());
            // Pending when the next call receives ...
            send_icmp(from, to);
            assert_eq!(near.receive(&mut [0; 9], Wait::No).unwrap(), None, "{address} {which:?}");
            send_icmp(relay_from, to);
            assert!(
                relay.receive_from(&mut [0; 9], Wait::No).unwrap().is_none(),
                "{address} {which:?}"
            );
            // ... and when it sends.
            send_icmp(from, to);
            near.send(b"probe").unwrap_or_else(|error| panic!("{address} {which:?}: {error}"));
            send_icmp(relay_from, to);
            relay.send(b"relayed").unwrap_or_else(|e| panic!("{address} {which:?}: {e}"));
            for sent in [&b"probe"[..], b"relayed"] {
                let mut buffer = [0; 9];
                let came =
                    far.receive_from(&mut buffer, Wait::No).unwrap().expect("the packet arrives");
                assert_eq!(&buffer[..came.len], sent, "{address} {which:?}");
                far.send_to(sent, &came.from.unwrap()).unwrap();
            }
            // A queued datagram is received despite the error.
            send_icmp(from, to);
            let reply = near.receive(&mut [0; 9], Wait::No).unwrap();
            assert_eq!(reply.map(|reply| reply.len), Some(5), "{address} {which:?}");
            send_icmp(relay_from, to);
            let reply = relay.receive_from(&mut [0; 9], Wait::No).unwrap();
            assert_eq!(reply.map(|reply| reply.len), Some(7), "{address} {which:?}");
            assert_eq!(count_errors(|each| near.notices(32, each)), 3, "{address} {which:?}");
            assert_eq!(count_errors(|each| relay.notices(32, each)), 3, "{address} {which:?}");
        });
    }

    #[test]
    fn persistent_send_error_is_returned_and_keys_stay_matched() {
        let far =
            DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::relay()).unwrap();
        let options = SocketOptions {
            stamps: StampRequest::Kernel,
            dont_fragment: true,
            ..SocketOptions::relay()
        };
        let mut near = DatagramSocket::connect(far.local_addr(), &options).unwrap();
        assert_eq!(near.send(&[0; 65_508]), Err(SendError::TooLong));
        assert_eq!(near.send(b"fits").unwrap().key, Some(0));
        assert!(should_retry(libc::ENETUNREACH, MAX_RETRIES - 1));
        assert!(!should_retry(libc::ENETUNREACH, MAX_RETRIES));
        assert!(!should_retry(libc::ENOBUFS, 0), "a queue that is full stays full");
    }
}
