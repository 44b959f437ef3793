//! Requests to rtnetlink(7) and its answers: links, addresses, routes, neighbours and queueing
//! disciplines. Only the header and the attributes that a caller reads are parsed; the parsers are
//! total.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;

use crate::sys::sockopt::check;
use crate::sys::syscall;

/// Length of a message header (struct nlmsghdr, linux/netlink.h).
const HEADER_LEN: usize = 16;

/// Messages and attributes are aligned to this number of bytes.
const ALIGNMENT: usize = 4;

/// Length of an attribute's header (struct rtattr, linux/rtnetlink.h).
const ATTRIBUTE_HEADER_LEN: usize = 4;

/// Bits of an attribute's type that are not part of its number (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// Maximum length of an answer that is received. The kernel's own limit for dumps is 32 KiB.
const MAX_ANSWER_LEN: usize = 1 << 20;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Network interface (struct ifinfomsg).
    Link,
    /// Address of an interface (struct ifaddrmsg).
    Address,
    /// Route (struct rtmsg).
    Route,
    /// Neighbour (struct ndmsg).
    Neighbour,
    /// Queueing discipline (struct tcmsg).
    Qdisc,
}

impl Kind {
    /// Type of a request for it.
    const fn request(self) -> u16 {
        match self {
            Self::Link => libc::RTM_GETLINK,
            Self::Address => libc::RTM_GETADDR,
            Self::Route => libc::RTM_GETROUTE,
            Self::Neighbour => libc::RTM_GETNEIGH,
            Self::Qdisc => libc::RTM_GETQDISC,
        }
    }

    /// Type of an answer with it.
    const fn answer(self) -> u16 {
        match self {
            Self::Link => libc::RTM_NEWLINK,
            Self::Address => libc::RTM_NEWADDR,
            Self::Route => libc::RTM_NEWROUTE,
            Self::Neighbour => libc::RTM_NEWNEIGH,
            Self::Qdisc => libc::RTM_NEWQDISC,
        }
    }

    /// Length of its structure in bytes.
    const fn len(self) -> usize {
        match self {
            Self::Link => 16,
            Self::Address => 8,
            Self::Route | Self::Neighbour => 12,
            Self::Qdisc => 20,
        }
    }
}

/// An object as the kernel describes it: its structure and its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    kind: Kind,
    bytes: Vec<u8>,
}

impl Object {
    /// Creates the description for a request: all zeros.
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, bytes: vec![0; kind.len()] }
    }

    /// Sets bytes of the structure.
    ///
    /// # Panics
    /// If they are beyond its end.
    pub(crate) fn set(&mut self, at: usize, value: &[u8]) {
        self.bytes[..self.kind.len()][at..at + value.len()].copy_from_slice(value);
    }

    /// Appends an attribute.
    pub(crate) fn push(&mut self, number: u16, value: &[u8]) {
        let len = (ATTRIBUTE_HEADER_LEN + value.len()) as u16;
        self.bytes.extend(len.to_ne_bytes());
        self.bytes.extend(number.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// Returns a byte of the structure.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes[..self.kind.len()][at]
    }

    /// Returns two bytes of the structure as an integer.
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Returns four bytes of the structure as an integer.
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes([at, at + 1, at + 2, at + 3].map(|at| self.byte(at)))
    }

    /// Returns the value of the first attribute with this number.
    pub(crate) fn attribute(&self, number: u16) -> Option<&[u8]> {
        attribute(&self.bytes[self.kind.len()..], number)
    }
}

/// Returns the value of the first attribute with this number in `attributes`, such as the value of a
/// nested attribute.
pub(crate) fn attribute(mut attributes: &[u8], number: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_at_checked(ATTRIBUTE_HEADER_LEN)?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(ATTRIBUTE_HEADER_LEN..len)?;
        if u16::from_ne_bytes([header[2], header[3]]) & !ATTRIBUTE_FLAGS == number {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(ALIGNMENT)..)?;
    }
}

/// Reads an attribute that holds an integer.
pub(crate) fn integer(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Reads an attribute that holds an address.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from))
        .ok()
}

/// Reads an attribute that holds a name.
pub(crate) fn text(value: &[u8]) -> String {
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}

/// Returns all objects of a kind. `like` is the structure of the request.
///
/// # Errors
/// The kernel refused, or no socket or memory is available.
pub(crate) fn dump(like: &Object) -> io::Result<Vec<Object>> {
    ask(like, libc::NLM_F_DUMP)
}

/// Returns the object that the request describes.
///
/// # Errors
/// As for [`dump`]; the kernel refuses what does not exist.
pub(crate) fn find(like: &Object) -> io::Result<Option<Object>> {
    Ok(ask(like, 0)?.into_iter().next())
}

fn ask(like: &Object, flags: c_int) -> io::Result<Vec<Object>> {
    let kind = like.kind;
    let mut request = Vec::with_capacity(HEADER_LEN + like.bytes.len());
    request.extend(((HEADER_LEN + like.bytes.len()) as u32).to_ne_bytes());
    request.extend(kind.request().to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    // Sequence number and port: the socket has one request, and the kernel fills in the port.
    request.extend([0; 8]);
    request.extend(&like.bytes);
    let socket = open()?;
    syscall::send(&socket, &request, 0)?;
    let mut objects = Vec::new();
    loop {
        match parse(&receive(&socket)?, kind, &mut objects)? {
            Progress::More if flags & libc::NLM_F_DUMP != 0 => {}
            Progress::More | Progress::Done => return Ok(objects),
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket() takes plain integers.
    let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives a whole datagram.
fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    // SAFETY: with MSG_TRUNC the kernel returns the length of the datagram and writes nothing to a
    // buffer of length 0.
    let len = unsafe {
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
        libc::recv(socket.as_raw_fd(), ptr::null_mut(), 0, flags)
    };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    let mut datagram = vec![0; len.min(MAX_ANSWER_LEN)];
    let received = syscall::receive(socket, &mut datagram, 0)?;
    datagram.truncate(received);
    Ok(datagram)
}

/// State of a dump after a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// Appends the objects of a datagram.
fn parse(datagram: &[u8], kind: Kind, objects: &mut Vec<Object>) -> io::Result<Progress> {
    let mut rest = datagram;
    while let Some((header, _)) = rest.split_at_checked(HEADER_LEN) {
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let len = usize::try_from(word(0)).unwrap_or(usize::MAX);
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let bytes = rest.get(HEADER_LEN..len).ok_or_else(invalid)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            answer if answer == kind.answer() && bytes.len() >= kind.len() => {
                objects.push(Object { kind, bytes: bytes.to_vec() });
            }
            message if c_int::from(message) == libc::NLMSG_ERROR => {
                let code = bytes.get(..4).and_then(integer).ok_or_else(invalid)?.cast_signed();
                return match code {
                    0 => Ok(Progress::Done),
                    code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                };
            }
            message if c_int::from(message) == libc::NLMSG_DONE => return Ok(Progress::Done),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    Ok(Progress::More)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with this type and body.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    #[test]
    fn objects_and_attributes_of_a_dump_are_found() {
        let mut link = Object::new(Kind::Link);
        link.set(4, &7_u32.to_ne_bytes());
        link.push(libc::IFLA_IFNAME, b"eth0\0");
        link.push(libc::IFLA_MTU | 0x8000, &1_500_u32.to_ne_bytes());
        let datagram = [
            message(libc::RTM_NEWLINK, &link.bytes),
            message(libc::RTM_NEWADDR, &[0; 8]),
            message(libc::RTM_NEWLINK, &link.bytes),
            message(libc::NLMSG_DONE as u16, &[0; 4]),
            message(libc::RTM_NEWLINK, &link.bytes),
        ];
        let mut found = Vec::new();
        let progress = parse(&datagram.concat(), Kind::Link, &mut found).unwrap();
        assert_eq!((progress, found.len()), (Progress::Done, 2), "nothing after the end");
        let link = &found[1];
        assert_eq!(link.u32(4), 7);
        assert_eq!(link.attribute(libc::IFLA_IFNAME).map(text).as_deref(), Some("eth0"));
        assert_eq!(link.attribute(libc::IFLA_MTU).and_then(integer), Some(1_500));
        assert_eq!(link.attribute(libc::IFLA_QDISC), None);
        assert_eq!(parse(&datagram[0], Kind::Link, &mut found).unwrap(), Progress::More);
    }

    #[test]
    fn kernel_error_is_returned_with_its_errno() {
        let body = [&(-libc::ENODEV).to_ne_bytes()[..], &[0; 16]].concat();
        let refused = message(libc::NLMSG_ERROR as u16, &body);
        let error = parse(&refused, Kind::Link, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        let mut link = Object::new(Kind::Link);
        link.set(4, &i32::MAX.to_ne_bytes());
        assert_eq!(find(&link).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn parsers_do_not_panic_on_any_bytes() {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000_usize {
            let mut data = [0_u8; 96];
            for byte in &mut data {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            // Plausible lengths and types.
            data[..4].copy_from_slice(&((round % 100) as u32).to_ne_bytes());
            if round % 2 == 0 {
                data[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
                data[32..34].copy_from_slice(&((round % 60) as u16).to_ne_bytes());
            }
            let mut found = Vec::new();
            let _ = parse(&data[..round % 97], Kind::Link, &mut found);
            for object in found {
                let value = object.attribute((round % 60) as u16).unwrap_or_default();
                let _ = (integer(value), address(value), text(value), attribute(value, 4));
            }
        }
    }
}
