//! Corked datagrams (send(2), MSG_MORE): the kernel looks up the route, allocates memory and copies
//! the payload before the packet is due. A call without data then builds the headers and passes the
//! packet to the device (udp(7), UDP_CORK). With 200 B over a veth, the driver's timestamp came 1.0
//! us after such a call and 1.5 us after an ordinary send. The time saved varies between packets,
//! so gaps become more regular.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use dwell_sample::TxStamp;
use dwell_units::Nanos;

use crate::clock::realtime;
use crate::sockets::datagram::DatagramSocket;
use crate::sockets::port::{Notice, SendError, Sent, StampRequest};
use crate::sockets::socket_error::send_error;
use crate::sys::control::{self, ControlBuffer};
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, TxStampRequest};

/// 65,535 bytes are too long for any UDP datagram, so appending them discards the corked data. They
/// are sent as pieces of one buffer, which keeps the program small.
const TOO_LONG: usize = 0xffff;
const PIECES: usize = 51;
static PIECE: [u8; TOO_LONG / PIECES] = [0; TOO_LONG / PIECES];

/// Payload of the test datagrams that [`is_supported`] sends to itself, and the time-out for them.
const TEST_PAYLOAD: [u8; 16] = *b"dwell: is it one";
const TEST_TIMEOUT: Nanos = Nanos::from_millis(20);

impl DatagramSocket {
    /// Corks a message that leaves at the next [`Self::release`]. Returns whether that succeeded;
    /// otherwise send it with an ordinary call. One message at a time.
    pub(crate) fn cork(&self, message: &[u8]) -> bool {
        syscall::send(&self.fd, message, libc::MSG_DONTWAIT | libc::MSG_MORE).is_ok()
    }

    /// Sends the corked message. Pending socket errors are not reported here, so an error always
    /// refers to this message, which the kernel has then discarded (net/ipv4/udp.c,
    /// udp_push_pending_frames).
    pub(crate) fn release(&mut self) -> Result<Sent, SendError> {
        let app = realtime();
        let released = syscall::send(&self.fd, &[], libc::MSG_DONTWAIT);
        let key = self.keys.take();
        released.map(|_| Sent { app, key }).map_err(|error| send_error(syscall::errno(&error)))
    }

    /// Discards the corked message by appending one that does not fit: the kernel drops both
    /// (net/ipv4/udp.c, udp_flush_pending_frames). The corked message has taken a key.
    pub(crate) fn discard(&mut self) {
        let mut pieces = [control::iovec(&PIECE); PIECES];
        let header = control::header(&mut pieces);
        // SAFETY: the pieces point to a static buffer of the stated length, which the kernel only
        // reads, and outlive the call.
        let _ = unsafe {
            syscall::send_message(&self.fd, &header, libc::MSG_DONTWAIT | libc::MSG_MORE)
        };
        self.keys.take();
    }
}

/// Whether corking is possible here and each corked message takes one key
/// (SOF_TIMESTAMPING_OPT_ID), as others do. Tested by sending two datagrams from the address of
/// `local` to ourselves, with the timestamps of `request`.
pub(crate) fn is_supported(local: SocketAddr, request: StampRequest) -> bool {
    let stamped = request != StampRequest::User;
    corked_keys(local, request).is_ok_and(|keys| keys == if stamped { &[0, 1][..] } else { &[] })
}

/// Returns the keys of two corked messages that arrived whole, and not before they were released.
fn corked_keys(mut local: SocketAddr, request: StampRequest) -> io::Result<Vec<u32>> {
    local.set_port(0);
    let own = UdpSocket::bind(local)?;
    own.connect(own.local_addr()?)?;
    let fd = OwnedFd::from(own);
    timestamps::request(&fd, request, TxStampRequest::Driver)?;
    sockopt::receive_timeout(&fd, &mut { Nanos::MAX }, TEST_TIMEOUT)?;
    let mut keys = Vec::new();
    for _ in 0..2 {
        syscall::send(&fd, &TEST_PAYLOAD, libc::MSG_DONTWAIT | libc::MSG_MORE)?;
        let mut came = [0; 2 * TEST_PAYLOAD.len()];
        let early = syscall::receive(&fd, &mut came, libc::MSG_DONTWAIT).is_ok();
        syscall::send(&fd, &[], libc::MSG_DONTWAIT)?;
        let len = syscall::receive(&fd, &mut came, 0)?;
        if early || came[..len] != TEST_PAYLOAD {
            return Err(io::ErrorKind::Unsupported.into());
        }
        timestamps::notices(&fd, &mut ControlBuffer::new(), 2, &mut |notice| {
            if let Notice::TxStamp { key, stamp: TxStamp::Kernel(_) } = notice {
                keys.push(key);
            }
        });
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::monotonic;
    use crate::sockets::port::{Port as _, SocketOptions};

    /// For each address family, a socket and a port connected to it.
    fn ends() -> impl Iterator<Item = (UdpSocket, DatagramSocket)> {
        ["127.0.0.1:0", "[::1]:0"].into_iter().map(|any| {
            let far = UdpSocket::bind(any).unwrap();
            far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let options =
                SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::default() };
            let port = DatagramSocket::connect(far.local_addr().unwrap(), &options).unwrap();
            for request in [StampRequest::User, StampRequest::Kernel] {
                assert!(is_supported(port.local_addr(), request), "{any}, {request:?}");
            }
            (far, port)
        })
    }

    /// Receives the next datagram.
    fn next(far: &UdpSocket) -> Vec<u8> {
        let mut buffer = [0; 4_096];
        let len = far.recv(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    /// Returns the timestamps that have arrived, with their keys.
    fn stamps(
        port: &mut DatagramSocket,
    ) -> Vec<(u32, dwell_units::Instant<dwell_units::Realtime>)> {
        let mut stamps = Vec::new();
        port.notices(32, &mut |notice| match notice {
            Notice::TxStamp { key, stamp: TxStamp::Kernel(at) } => stamps.push((key, at)),
            other => panic!("{other:?}"),
        });
        stamps
    }

    #[test]
    fn corked_packet_leaves_whole_on_release_with_its_timestamp() {
        for (far, mut port) in ends() {
            let mut sent = Vec::new();
            for n in 0..6_u8 {
                let message = vec![n; 100 + usize::from(n)];
                let before = realtime();
                let this = if n % 3 == 0 {
                    port.send(&message).unwrap()
                } else {
                    assert!(port.cork(&message));
                    port.release().unwrap()
                };
                assert!(this.app >= before);
                assert_eq!(next(&far), message);
                sent.push(this);
            }
            let stamps = stamps(&mut port);
            assert_eq!(stamps.len(), sent.len());
            for (sent, (key, at)) in sent.iter().zip(stamps) {
                assert_eq!(sent.key, Some(key));
                assert!(at >= sent.app);
            }
        }
    }

    #[test]
    fn corked_packet_waits_for_release_and_can_be_discarded() {
        for (far, mut port) in ends() {
            assert!(port.cork(b"discarded"));
            port.discard();
            assert!(port.cork(b"corked"));
            let released = port.release().unwrap();
            let plain = port.send(b"plain").unwrap();
            assert_eq!([next(&far), next(&far)], [b"corked".to_vec(), b"plain".to_vec()]);
            let mut keys = Vec::new();
            port.notices(32, &mut |notice| match notice {
                Notice::TxStamp { key, .. } => keys.push(key),
                // Error of the message that did not fit.
                Notice::Error { icmp, .. } => assert!(!icmp),
            });
            assert_eq!(keys, [released.key.unwrap(), plain.key.unwrap()]);
        }
    }

    #[test]
    fn pending_icmp_error_fails_one_cork_call_only() {
        for (far, mut port) in ends() {
            // A socket connected elsewhere refuses our packets.
            let other =
                UdpSocket::bind(SocketAddr::new(far.local_addr().unwrap().ip(), 0)).unwrap();
            far.connect(other.local_addr().unwrap()).unwrap();
            port.send(b"refused").unwrap();
            port.sleep_until(monotonic() + Nanos::from_secs(10));
            assert!(!port.cork(b"not corked"));
            assert!(port.cork(b"corked"));
            far.connect(port.local_addr()).unwrap();
            port.release().unwrap();
            assert_eq!(next(&far), b"corked");
        }
    }

    #[test]
    fn oversized_message_is_not_corked() {
        for (far, mut port) in ends() {
            assert!(!port.cork(&[0; TOO_LONG]));
            assert!(port.cork(b"corked"));
            port.release().unwrap();
            assert_eq!(next(&far), b"corked");
        }
    }

    #[test]
    fn corked_packet_reaches_driver_sooner() {
        const SENDS_PER_KIND: usize = 300;
        for (far, mut port) in ends() {
            let message = [7; 1_000];
            let [mut plain, mut corked] = [Vec::new(), Vec::new()];
            for n in 0..2 * SENDS_PER_KIND {
                let sent = if n % 2 == 0 {
                    port.send(&message)
                } else {
                    assert!(port.cork(&message));
                    port.release()
                };
                let took: Nanos = stamps(&mut port)[0].1 - sent.unwrap().app;
                if n % 2 == 0 { &mut plain } else { &mut corked }.push(took);
                next(&far);
            }
            let [plain, corked] = [plain, corked].map(|mut times| {
                times.sort_unstable();
                times[SENDS_PER_KIND / 2]
            });
            println!("to the driver: {plain:?} plain, {corked:?} corked");
            assert!(corked < plain);
        }
    }
}
