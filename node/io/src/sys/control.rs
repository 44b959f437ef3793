//! Control data of received messages (recvmsg(2), cmsg(3)): timestamps, TTL, TOS, destination
//! address, and entries of the error queue.
//!
//! The parser of control data is total: it trusts the kernel's lengths no further than the buffer.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use dwell_sample::RxStamps;
use dwell_units::{Card, Clock, Instant, Realtime};

use super::address::RawAddress;
use super::syscall;
use super::time::{LONG_LEN, SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD};
use crate::clock::realtime;

/// Length of a control buffer in bytes: several times all control messages requested here.
const CONTROL_LEN: usize = 512;

/// A control buffer, aligned as the kernel's cmsghdr requires.
#[repr(align(16))]
pub(crate) struct ControlBuffer([u8; CONTROL_LEN]);

impl ControlBuffer {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([0; CONTROL_LEN]))
    }
}

/// Control data of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedControl {
    pub(crate) kernel: Option<Instant<Realtime>>,
    pub(crate) hw: Option<Instant<Card>>,
    pub(crate) ttl: Option<u8>,
    pub(crate) tos: Option<u8>,
    pub(crate) to: Option<IpAddr>,
    /// The destination is a broadcast or multicast address.
    pub(crate) to_many: bool,
    /// Entry of the error queue.
    pub(crate) error: Option<Extended>,
}

/// An extended error (`sock_extended_err`, linux/errqueue.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) errno: u32,
    pub(crate) origin: u8,
    pub(crate) kind: (u8, u8),
    pub(crate) info: u32,
    pub(crate) data: u32,
    /// Sender of an ICMP error.
    pub(crate) offender: Option<IpAddr>,
}

/// A message received with recvmsg(2).
pub(crate) struct Received {
    pub(crate) len: usize,
    /// Clock read right after the call, if requested.
    app: Option<Instant<Realtime>>,
    pub(crate) control_data: ReceivedControl,
}

impl Received {
    /// Returns the receive timestamps; `None` if the clock was not read.
    pub(crate) fn rx(&self) -> Option<RxStamps> {
        let ReceivedControl { hw, kernel, .. } = self.control_data;
        self.app.map(|app| RxStamps { hw, driver: None, kernel, app })
    }
}

/// Receives one message with its control data, and its sender's address if `from` is given.
/// Connected sockets omit it: it costs time in the loop that waits for a reply. With `timed`, reads
/// the clock right after the call.
pub(crate) fn receive(
    fd: &impl AsRawFd,
    buffer: &mut [u8],
    control: &mut ControlBuffer,
    from: Option<&mut RawAddress>,
    flags: c_int,
    timed: bool,
) -> io::Result<Received> {
    let mut iov = [libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }];
    let mut header = header(&mut iov);
    let mut name_len = None;
    if let Some(from) = from {
        header.msg_name = from.as_mut_ptr().cast();
        header.msg_namelen = from.len;
        name_len = Some(&mut from.len);
    }
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in `header` points to memory of the stated length that outlives the
    // call and is borrowed exclusively.
    let len = unsafe { syscall::receive_message(fd, &mut header, flags) }?;
    let app = timed.then(realtime);
    if let Some(name_len) = name_len {
        *name_len = header.msg_namelen.min(RawAddress::STORAGE_LEN);
    }
    let used = size(header.msg_controllen).min(CONTROL_LEN);
    Ok(Received { len, app, control_data: parse(&control.0[..used]) })
}

/// Converts a length of the C library, whose type differs between C libraries.
#[inline]
pub(crate) fn size(length: impl TryInto<usize>) -> usize {
    length.try_into().unwrap_or(usize::MAX)
}

/// Parses control messages: a chain of (length, level, type, data), each aligned to a word.
pub(crate) fn parse(mut rest: &[u8]) -> ReceivedControl {
    const WORD: usize = mem::size_of::<usize>();
    const HEADER: usize = mem::size_of::<libc::cmsghdr>();
    let mut control_data = ReceivedControl::default();
    while rest.len() >= HEADER {
        let len = usize::from_ne_bytes(rest[..WORD].try_into().expect("a word"));
        if len < HEADER || len > rest.len() {
            break;
        }
        let level = int(rest, WORD);
        let kind = int(rest, WORD + 4);
        if let (Some(level), Some(kind)) = (level, kind) {
            take(&mut control_data, level, kind, &rest[HEADER..len]);
        }
        let step = len.div_ceil(WORD) * WORD;
        rest = rest.get(step..).unwrap_or(&[]);
    }
    control_data
}

fn take(control_data: &mut ReceivedControl, level: i32, kind: i32, data: &[u8]) {
    match (level, kind) {
        (libc::SOL_SOCKET, kind @ (SO_TIMESTAMPING_OLD | SO_TIMESTAMPING_NEW)) => {
            let width = if kind == SO_TIMESTAMPING_OLD { LONG_LEN } else { 8 };
            control_data.kernel = timespec(data, 0, width);
            control_data.hw = timespec(data, 2, width);
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            control_data.ttl = int(data, 0).and_then(|ttl| u8::try_from(ttl).ok());
        }
        // IP_TOS comes as one byte, IPV6_TCLASS as an int.
        (libc::IPPROTO_IP, libc::IP_TOS) => control_data.tos = data.first().copied(),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            control_data.tos = int(data, 0).and_then(|tos| u8::try_from(tos).ok());
        }
        // in_pktinfo: interface, local address, destination address. The two addresses differ if
        // the destination is not a host's address (net/ipv4/fib_frontend.c, fib_compute_spec_dst);
        // this identifies a subnet's broadcast address.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let (local, to) = (data.get(4..8).and_then(ipv4), data.get(8..12).and_then(ipv4));
            control_data.to = to.map(IpAddr::V4);
            control_data.to_many = local != to && local != Some(Ipv4Addr::UNSPECIFIED);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let to = data.get(..16).and_then(ipv6);
            control_data.to = to.map(IpAddr::V6);
            control_data.to_many = to.is_some_and(|to| to.is_multicast());
        }
        (libc::IPPROTO_IP, libc::IP_RECVERR)
        | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        | (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP) => {
            control_data.error = extended(data);
        }
        _ => {}
    }
}

/// Parses the timespec with this index, of three with fields of `width` bytes; all zeros means none.
fn timespec<C: Clock>(data: &[u8], index: usize, width: usize) -> Option<Instant<C>> {
    let field = |n: usize| match data.get(n * width..(n + 1) * width)? {
        long @ [_, _, _, _, _, _, _, _] => Some(i64::from_ne_bytes(long.try_into().ok()?)),
        short => Some(i32::from_ne_bytes(short.try_into().ok()?).into()),
    };
    let (sec, nsec) = (field(index * 2)?, field(index * 2 + 1)?);
    let sane = (0..=9_000_000_000).contains(&sec) && (0..1_000_000_000).contains(&nsec);
    (sane && (sec, nsec) != (0, 0)).then(|| Instant::from_parts(sec, nsec))
}

/// Parses `sock_extended_err` and the address after it, which is that of the error's sender.
fn extended(data: &[u8]) -> Option<Extended> {
    let offender = match int(data, 16).map(|family| family & 0xffff) {
        Some(libc::AF_INET) => data.get(20..24).and_then(ipv4).map(IpAddr::V4),
        Some(libc::AF_INET6) => data.get(24..40).and_then(ipv6).map(IpAddr::V6),
        _ => None,
    };
    Some(Extended {
        errno: int(data, 0)? as u32,
        origin: *data.get(4)?,
        kind: (*data.get(5)?, *data.get(6)?),
        info: int(data, 8)? as u32,
        data: int(data, 12)? as u32,
        offender,
    })
}

fn int(data: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    Some(<[u8; 4]>::try_from(bytes).ok()?.into())
}

fn ipv6(bytes: &[u8]) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(bytes).ok()?.into())
}

/// Sends one message (sendmsg(2)) with this control data; a socket that is not connected needs `to`.
#[inline]
pub(crate) fn send(
    fd: &OwnedFd,
    message: &[u8],
    to: Option<&RawAddress>,
    control: &mut OutgoingControl,
    flags: c_int,
) -> io::Result<usize> {
    let mut iov = [iovec(message)];
    let mut header = header(&mut iov);
    if let Some(to) = to {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len;
    }
    control.attach(&mut header);
    // SAFETY: every pointer in `header` points to memory of the stated length that outlives the
    // call.
    unsafe { syscall::send_message(fd, &header, flags) }
}

/// Returns a header with these buffers, without address and control data. It points to `iovs`.
#[inline]
pub(crate) fn header(iovs: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which all zeros is valid.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = iovs.as_mut_ptr();
    header.msg_iovlen = iovs.len() as _;
    header
}

/// Returns a buffer that the kernel reads from. It points to `message`.
#[inline]
pub(crate) fn iovec(message: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() }
}

/// IP header fields of a reply; `None` means the socket's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// TOS or traffic class.
    pub tos: Option<u8>,
    /// TTL or hop limit, at least 1.
    pub ttl: Option<u8>,
}

/// Control messages of packets to send, such as source address, TOS and TTL.
#[repr(align(16))]
pub(crate) struct OutgoingControl {
    bytes: [u8; 96],
    len: usize,
}

impl OutgoingControl {
    pub(crate) fn empty() -> Self {
        Self { bytes: [0; 96], len: 0 }
    }

    pub(crate) fn new(to: SocketAddr, source: Option<IpAddr>, marks: Marks) -> Self {
        let mut control = Self::empty();
        match source {
            Some(IpAddr::V4(v4)) => {
                // in_pktinfo: interface 0 (any), ipi_spec_dst, ipi_addr (ignored when sending).
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&v4.octets());
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            Some(IpAddr::V6(v6)) => {
                // in6_pktinfo: the address, interface 0 (any; the scope id of the peer decides).
                let mut info = [0; 20];
                info[..16].copy_from_slice(&v6.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        let (level, tos_kind, ttl_kind) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        for (kind, mark) in [(tos_kind, marks.tos), (ttl_kind, marks.ttl)] {
            if let Some(mark) = mark {
                control.push(level, kind, &c_int::from(mark).to_ne_bytes());
            }
        }
        control
    }

    /// Makes the kernel segment the message into datagrams with `len` bytes of payload; the last
    /// may be shorter.
    pub(crate) fn segment_into(&mut self, len: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes());
    }

    /// Makes a capable queueing discipline send the message at `at`, in nanoseconds of the clock
    /// that was set with SO_TXTIME.
    pub(crate) fn leave_at(&mut self, at: u64) {
        self.push(libc::SOL_SOCKET, libc::SCM_TXTIME, &at.to_ne_bytes());
    }

    /// Attaches them to a message. They must not move until it is sent.
    pub(crate) fn attach(&mut self, header: &mut libc::msghdr) {
        if self.len > 0 {
            header.msg_control = self.bytes.as_mut_ptr().cast();
            header.msg_controllen = self.len as _;
        }
    }

    /// Appends a control message: length, level, type, data, padding to a word.
    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        const HEADER: usize = mem::size_of::<libc::cmsghdr>();
        const WORD: usize = mem::size_of::<usize>();
        let room = &mut self.bytes[self.len..];
        room[..WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        room[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.len += HEADER + data.len().div_ceil(WORD) * WORD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_destinations_are_recognised_in_both_families() {
        let destination = |level, kind, data: &[u8]| {
            let mut control_data = ReceivedControl::default();
            take(&mut control_data, level, kind, data);
            (control_data.to.map(|to| to.to_string()).unwrap_or_default(), control_data.to_many)
        };
        let v4 = |local: [u8; 4], to: [u8; 4]| {
            destination(libc::IPPROTO_IP, libc::IP_PKTINFO, &[[0; 4], local, to].concat())
        };
        assert_eq!(v4([10, 0, 0, 1], [10, 0, 0, 1]), ("10.0.0.1".into(), false));
        assert_eq!(v4([10, 0, 0, 1], [10, 0, 0, 255]), ("10.0.0.255".into(), true));
        // Without a route the kernel leaves the local address unspecified.
        assert_eq!(v4([0; 4], [10, 0, 0, 1]), ("10.0.0.1".into(), false));
        for (to, many) in [("ff02::1", true), ("fe80::1", false)] {
            let address: Ipv6Addr = to.parse().unwrap();
            let data = [&address.octets()[..], &[0; 4]].concat();
            assert_eq!(
                destination(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data),
                (to.into(), many)
            );
        }
    }

    #[test]
    fn timestamps_of_both_widths_are_parsed() {
        let message = |kind, fields: &[&[u8]]| {
            let mut control_data = ReceivedControl::default();
            take(&mut control_data, libc::SOL_SOCKET, kind, &fields.concat());
            (control_data.kernel, control_data.hw)
        };
        // Beyond the range of 32-bit seconds.
        let long = [4_000_000_000_i64, 7, 0, 0, 5, 9].map(i64::to_ne_bytes);
        let expected =
            (Some(Instant::from_parts(4_000_000_000, 7)), Some(Instant::from_parts(5, 9)));
        assert_eq!(message(SO_TIMESTAMPING_NEW, &long.each_ref().map(|b| &b[..])), expected);
        let fields = [3_isize, 7, 0, 0, 0, 0].map(isize::to_ne_bytes);
        let kernel = (Some(Instant::from_parts(3, 7)), None);
        assert_eq!(message(SO_TIMESTAMPING_OLD, &fields.each_ref().map(|b| &b[..])), kernel);
        assert_eq!(message(SO_TIMESTAMPING_OLD, &[&[1; 3]]), (None, None));
    }

    #[test]
    fn parser_does_not_panic_on_any_control_data() {
        // Deterministic noise (xorshift64), every length, with plausible headers mixed in.
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000_usize {
            let mut data = [0_u8; 128];
            for byte in &mut data {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            if round % 2 == 0 {
                data[..8].copy_from_slice(&((round % 140) as u64).to_ne_bytes());
                data[8..16].copy_from_slice(&[0, 0, 0, 0, (round % 64) as u8, 0, 0, 0]);
            }
            let _ = parse(&data[..round % 129]);
        }
    }
}
