//! Requests to rtnetlink(7) and its answers: links, addresses, routes, neighbours and queueing
//! disciplines. Only the header and the attributes that a caller reads are parsed; the parsers are
//! total.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;

use dwell_host::netlink::{Attributes, attribute};

use crate::sys::netlink::{Dump, NetlinkSocket, consistent, messages};

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
    structure: Vec<u8>,
    attributes: Vec<u8>,
}

impl Object {
    /// Creates the description for a request: all zeros, without attributes.
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, structure: vec![0; kind.len()], attributes: Vec::new() }
    }

    /// Sets bytes of the structure.
    ///
    /// # Panics
    /// If they are beyond its end.
    pub(crate) fn set(&mut self, at: usize, value: &[u8]) {
        self.structure[at..at + value.len()].copy_from_slice(value);
    }

    /// Sets the attributes.
    pub(crate) fn set_attributes(&mut self, attributes: &Attributes) {
        self.attributes = attributes.as_bytes().to_vec();
    }

    /// Returns a byte of the structure.
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.structure[at]
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
        attribute(&self.attributes, number)
    }
}

/// Reads an attribute that holds an address.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from))
        .ok()
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
    let socket = NetlinkSocket::open(libc::NETLINK_ROUTE)?;
    let body = [&like.structure[..], &like.attributes].concat();
    consistent(|| {
        socket.send(like.kind.request(), flags, &body)?;
        let mut dump = Dump::new();
        loop {
            match parse(&socket.receive()?, like.kind, &mut dump)? {
                Progress::More if flags & libc::NLM_F_DUMP != 0 => {}
                Progress::More | Progress::Done => return Ok(dump),
            }
        }
    })
}

/// State of a dump after a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// Appends the objects of a datagram.
fn parse(datagram: &[u8], kind: Kind, dump: &mut Dump<Object>) -> io::Result<Progress> {
    for message in messages(datagram) {
        let message = message?;
        dump.is_interrupted |= message.is_interrupted();
        if message.is_last() {
            return message.result().map(|_| Progress::Done);
        }
        if message.kind == kind.answer()
            && let Some((structure, attributes)) = message.body.split_at_checked(kind.len())
        {
            let (structure, attributes) = (structure.to_vec(), attributes.to_vec());
            dump.objects.push(Object { kind, structure, attributes });
        }
    }
    Ok(Progress::More)
}

#[cfg(test)]
mod tests {
    use dwell_host::netlink::{text_of, u32_of};

    use super::*;
    use crate::sys::netlink::{interrupted, message};

    #[test]
    fn objects_and_attributes_of_a_dump_are_found() {
        let mut link = Object::new(Kind::Link);
        link.set(4, &7_u32.to_ne_bytes());
        let attributes = Attributes::default().with(libc::IFLA_IFNAME, b"eth0\0");
        link.set_attributes(&attributes.with_u32(libc::IFLA_MTU | 0x8000, 1_500));
        let body = [&link.structure[..], &link.attributes].concat();
        let datagram = [
            message(libc::RTM_NEWLINK, &body),
            message(libc::RTM_NEWADDR, &[0; 8]),
            message(libc::RTM_NEWLINK, &body),
            message(libc::NLMSG_DONE as u16, &[0; 4]),
            message(libc::RTM_NEWLINK, &body),
        ];
        let mut found = Dump::new();
        let progress = parse(&datagram.concat(), Kind::Link, &mut found).unwrap();
        assert_eq!((progress, found.objects.len()), (Progress::Done, 2), "nothing after the end");
        let link = &found.objects[1];
        assert_eq!(link.u32(4), 7);
        assert_eq!(link.attribute(libc::IFLA_IFNAME).map(text_of).as_deref(), Some("eth0"));
        assert_eq!(link.attribute(libc::IFLA_MTU).and_then(u32_of), Some(1_500));
        assert_eq!(link.attribute(libc::IFLA_QDISC), None);
        assert_eq!(parse(&datagram[0], Kind::Link, &mut found).unwrap(), Progress::More);
        assert!(!found.is_interrupted);
        for changed in [&datagram[0], &datagram[3]].map(|message| interrupted(message.clone())) {
            let mut found = Dump::new();
            parse(&changed, Kind::Link, &mut found).unwrap();
            assert!(found.is_interrupted, "the list changed while it was read");
        }
    }

    #[test]
    fn kernel_error_is_returned_with_its_errno() {
        let body = [&(-libc::ENODEV).to_ne_bytes()[..], &[0; 16]].concat();
        let refused = message(libc::NLMSG_ERROR as u16, &body);
        let error = parse(&refused, Kind::Link, &mut Dump::new()).unwrap_err();
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
            let mut found = Dump::new();
            let _ = parse(&data[..round % 97], Kind::Link, &mut found);
            for object in found.objects {
                let value = object.attribute((round % 60) as u16).unwrap_or_default();
                let _ = (address(value), attribute(value, 4));
            }
        }
    }
}
