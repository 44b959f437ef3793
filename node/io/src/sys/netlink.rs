//! Netlink sockets (netlink(7)) and the messages of a datagram. Attributes are read and written by
//! `dwell_host::netlink`.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;

use dwell_units::{Instant, Monotonic};

use super::sockopt::{self, check};
use super::syscall;

/// Length of a message header (struct nlmsghdr, linux/netlink.h).
pub(crate) const HEADER_LEN: usize = 16;

/// Messages are aligned to this number of bytes.
const ALIGNMENT: usize = 4;

/// Flag of messages of a dump: the list changed while it was read (linux/netlink.h).
const DUMP_INTERRUPTED: u16 = libc::NLM_F_DUMP_INTR as u16;

/// Maximum number of repetitions of a dump whose list changed.
const MAX_REPEATS: usize = 3;

/// Maximum length of an answer that is received. The kernel's own limit for dumps is 32 KiB.
const MAX_ANSWER_LEN: usize = 1 << 20;

/// A netlink socket with one request at a time.
#[derive(Debug)]
pub(crate) struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    /// Opens a socket of this protocol, such as `libc::NETLINK_ROUTE`.
    ///
    /// # Errors
    /// The kernel does not have the protocol, or no socket is available.
    pub(crate) fn open(protocol: c_int) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket() takes plain integers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
        // SAFETY: `fd` was just created, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Receives the events of a multicast group, too.
    ///
    /// # Errors
    /// There is no such group.
    pub(crate) fn join_group(&self, group: u32) -> io::Result<()> {
        sockopt::set(&self.0, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Sends a request of type `kind`, with NLM_F_REQUEST and these flags.
    ///
    /// # Errors
    /// The kernel refuses it, or it is too long.
    pub(crate) fn send(&self, kind: u16, flags: c_int, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(HEADER_LEN + body.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        let mut request = Vec::with_capacity(HEADER_LEN + body.len());
        request.extend(len.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        // Sequence number and port: the socket has one request, and the kernel fills in the port.
        request.extend([0; 8]);
        request.extend(body);
        syscall::send(&self.0, &request, 0).map(drop)
    }

    /// Receives a whole datagram.
    ///
    /// # Errors
    /// The kernel dropped answers, or no memory is available.
    pub(crate) fn receive(&self) -> io::Result<Vec<u8>> {
        self.receive_by(0)
    }

    /// Receives a datagram that arrives until `until`, or `None`.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub(crate) fn receive_until(&self, until: Instant<Monotonic>) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.receive_by(libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(Some),
            }
            if crate::clock::monotonic() >= until {
                return Ok(None);
            }
            sockopt::sleep_until(&self.0, until);
        }
    }

    fn receive_by(&self, flags: c_int) -> io::Result<Vec<u8>> {
        // SAFETY: with MSG_TRUNC the kernel returns the length of the datagram and writes nothing to a
        // buffer of length 0.
        let len = unsafe {
            let flags = flags | libc::MSG_PEEK | libc::MSG_TRUNC;
            libc::recv(self.0.as_raw_fd(), ptr::null_mut(), 0, flags)
        };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        let mut datagram = vec![0; len.min(MAX_ANSWER_LEN)];
        let received = syscall::receive(&self.0, &mut datagram, flags)?;
        datagram.truncate(received);
        Ok(datagram)
    }
}

/// A message of a datagram, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// Whether the list changed while it was read, so that objects may be missing.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.flags & DUMP_INTERRUPTED != 0
    }

    /// Whether the message ends an answer: an acknowledgement, an error, or the end of a dump.
    pub(crate) fn is_last(&self) -> bool {
        [libc::NLMSG_ERROR, libc::NLMSG_DONE].contains(&c_int::from(self.kind))
    }

    /// Returns the result in a last message, 0 unless the command defines it otherwise.
    ///
    /// # Errors
    /// The error that the kernel reports: a negative error number.
    pub(crate) fn result(&self) -> io::Result<u32> {
        let Some((number, _)) = self.body.split_first_chunk::<4>() else { return Ok(0) };
        let number = i32::from_ne_bytes(*number);
        u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(number.saturating_neg()))
    }
}

/// A list of objects that the kernel has sent.
#[derive(Debug)]
pub(crate) struct Dump<T> {
    pub(crate) objects: Vec<T>,
    /// The list changed while it was read.
    pub(crate) is_interrupted: bool,
}

impl<T> Dump<T> {
    pub(crate) fn new() -> Self {
        Self { objects: Vec::new(), is_interrupted: false }
    }
}

/// Reads a list by `read`, again if it changed in the process.
///
/// # Errors
/// Those of `read`, and `ResourceBusy` if the list changed every time.
pub(crate) fn consistent<T>(mut read: impl FnMut() -> io::Result<Dump<T>>) -> io::Result<Vec<T>> {
    for _ in 0..=MAX_REPEATS {
        let Dump { objects, is_interrupted } = read()?;
        if !is_interrupted {
            return Ok(objects);
        }
    }
    let message = format!("the kernel's list changed during each of {} reads", MAX_REPEATS + 1);
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

/// Returns the messages of a datagram. An invalid length is an error and the last item.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (header, _) = rest.split_first_chunk::<HEADER_LEN>()?;
        let [a, b, c, d, e, f, g, h, ..] = *header;
        let len = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let Some(body) = rest.get(HEADER_LEN..len) else {
            rest = &[];
            return Some(Err(io::ErrorKind::InvalidData.into()));
        };
        rest = rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        let (kind, flags) = (u16::from_ne_bytes([e, f]), u16::from_ne_bytes([g, h]));
        Some(Ok(Message { kind, flags, body }))
    })
}

/// Returns a message with this type and body, for tests of parsers.
#[cfg(test)]
pub(crate) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 10]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// Marks a message as part of a dump whose list changed.
#[cfg(test)]
pub(crate) fn interrupted(mut message: Vec<u8>) -> Vec<u8> {
    message[6..8].copy_from_slice(&DUMP_INTERRUPTED.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_until_an_invalid_length() {
        let two = [message(7, b"abc"), message(8, &[])].concat();
        let found: Vec<_> = messages(&two).map(Result::unwrap).collect();
        let plain = |kind, body| Message { kind, flags: 0, body };
        assert_eq!(found, [plain(7, b"abc"), plain(8, &[])]);
        for len in [0_u32, 15, 17, u32::MAX] {
            let datagram = [&len.to_ne_bytes()[..], &[0; 12], &two].concat();
            let found: Vec<_> = messages(&datagram[..16]).collect();
            assert!(matches!(found[..], [Err(_)]), "{len}: {found:?}");
        }
    }

    #[test]
    fn last_message_has_an_error_or_a_result() {
        let plain = |kind, body| Message { kind, flags: 0, body };
        let last = |body: &'static [u8]| plain(libc::NLMSG_ERROR as u16, body);
        assert!(last(&[]).is_last() && !plain(16, &[]).is_last());
        assert_eq!(last(&[]).result().unwrap(), 0);
        let seven = 7_i32.to_ne_bytes();
        assert_eq!(plain(2, &seven).result().unwrap(), 7);
        let refused = (-libc::ENODEV).to_ne_bytes();
        let refused = plain(2, &refused).result().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn changed_list_is_read_again_up_to_three_times() {
        let reads_until_consistent = |changes: usize| {
            let mut reads = 0;
            let objects = consistent(|| {
                reads += 1;
                Ok(Dump { objects: vec![reads], is_interrupted: reads <= changes })
            });
            (objects.map_err(|error| error.kind()), reads)
        };
        assert_eq!(reads_until_consistent(0), (Ok(vec![1]), 1));
        assert_eq!(reads_until_consistent(3), (Ok(vec![4]), 4));
        assert_eq!(reads_until_consistent(4), (Err(io::ErrorKind::ResourceBusy), 4));
    }
}
