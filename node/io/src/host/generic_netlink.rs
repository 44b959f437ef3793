//! Generic netlink (linux/genetlink.h): commands to kernel facilities, found by their names.

use std::io;

use dwell_host::netlink::{Attributes, attribute, attributes, text_of, u32_of};
use dwell_units::Nanos;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::clock;
use crate::sys::sockopt;

/// Types and flags of netlink messages (linux/netlink.h).
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;

/// Bytes of the netlink header, and of the generic header after it.
const HEADER_LEN: usize = 16;
const GENERIC_HEADER_LEN: usize = 4;

/// The family that lists all families (enum in linux/genetlink.h).
const CONTROL_FAMILY: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// A family of commands, as seen from the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Family {
    socket: Socket,
    id: u16,
    /// Groups that receive events, by name.
    groups: Vec<(String, u32)>,
}

impl Family {
    /// Opens the family called `name`; `None` if the kernel does not have it. Lists all families,
    /// because the kernel would load a module for one that is asked for by name.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn open(name: &str) -> io::Result<Option<Self>> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        let control = Self { socket, id: CONTROL_FAMILY, groups: Vec::new() };
        let families = control.dump(CTRL_CMD_GETFAMILY, &Attributes::default())?;
        let is_it = |family: &&Vec<u8>| {
            attribute(family, CTRL_ATTR_FAMILY_NAME).is_some_and(|found| text_of(found) == name)
        };
        let Some(family) = families.iter().find(is_it) else { return Ok(None) };
        let id = attribute(family, CTRL_ATTR_FAMILY_ID).and_then(|id| id.try_into().ok());
        let id = u16::from_ne_bytes(id.ok_or(io::ErrorKind::InvalidData)?);
        let groups = attribute(family, CTRL_ATTR_MCAST_GROUPS).unwrap_or_default();
        let groups = attributes(groups).filter_map(|(_, group)| {
            let id = attribute(group, CTRL_ATTR_MCAST_GRP_ID).and_then(u32_of)?;
            Some((text_of(attribute(group, CTRL_ATTR_MCAST_GRP_NAME)?), id))
        });
        Ok(Some(Self { id, groups: groups.collect(), ..control }))
    }

    /// Subscribes to the events of a group. For a family that runs no commands, because these would
    /// discard events.
    ///
    /// # Errors
    /// The family has no such group.
    pub(crate) fn subscribe(&mut self, group: &str) -> io::Result<()> {
        let id = self.groups.iter().find(|(name, _)| name == group).map(|(_, id)| *id);
        self.socket.add_membership(id.ok_or(io::ErrorKind::NotFound)?)?;
        self.socket.set_non_blocking(true)
    }

    /// Waits for an event that `select` accepts, given command and attributes; `None` after the
    /// time-out.
    ///
    /// # Errors
    /// Events were lost.
    pub(crate) fn event<T>(
        &self,
        timeout: Nanos,
        mut select: impl FnMut(u8, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let end = clock::monotonic() + timeout;
        loop {
            let datagram = match self.socket.recv_from_full() {
                Ok((datagram, _)) => datagram,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if clock::monotonic() >= end => return Ok(None),
                Err(_) => {
                    sockopt::sleep_until(&self.socket, end);
                    continue;
                }
            };
            for message in messages(&datagram).filter(|message| message.kind == self.id) {
                let Some((header, attributes)) =
                    message.payload.split_first_chunk::<GENERIC_HEADER_LEN>()
                else {
                    continue;
                };
                if let Some(found) = select(header[0], attributes) {
                    return Ok(Some(found));
                }
            }
        }
    }

    /// Runs a command; returns its result, which is 0 unless the command defines it otherwise.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn run(&self, command: u8, attributes: &Attributes) -> io::Result<u32> {
        self.send(command, NLM_F_ACK, attributes)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                if message.kind == NLMSG_ERROR {
                    return result(message.payload);
                }
            }
        }
    }

    /// Runs a command that lists objects; returns the attributes of each.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn dump(&self, command: u8, attributes: &Attributes) -> io::Result<Vec<Vec<u8>>> {
        self.send(command, NLM_F_DUMP, attributes)?;
        let mut objects = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                match message.kind {
                    NLMSG_NOOP => {}
                    NLMSG_ERROR => return result(message.payload).map(|_| objects),
                    // It may carry an error, too.
                    NLMSG_DONE => return result(message.payload).map(|_| objects),
                    _ => objects
                        .extend(message.payload.get(GENERIC_HEADER_LEN..).map(<[u8]>::to_vec)),
                }
            }
        }
    }

    fn send(&self, command: u8, flags: u16, attributes: &Attributes) -> io::Result<()> {
        let attributes = attributes.as_bytes();
        let len = HEADER_LEN + GENERIC_HEADER_LEN + attributes.len();
        let len = u32::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        let mut bytes = Vec::with_capacity(len as usize);
        bytes.extend(len.to_ne_bytes());
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        // Sequence number and port: a socket has one request at a time.
        bytes.extend([0; 8]);
        // Command, version of the family, reserved.
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(attributes);
        self.socket.send(&bytes, 0).map(drop)
    }
}

/// A message of a datagram, without its header.
struct Message<'a> {
    kind: u16,
    payload: &'a [u8],
}

/// Returns the messages of a datagram; ends at the first invalid one.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (header, _) = rest.split_first_chunk::<HEADER_LEN>()?;
        let [a, b, c, d, e, f, ..] = *header;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let payload = rest.get(HEADER_LEN..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind: u16::from_ne_bytes([e, f]), payload })
    })
}

/// Reads the payload of an acknowledgement or of the end of a list: a negative error number, or the
/// result of the command.
fn result(payload: &[u8]) -> io::Result<u32> {
    let Some((number, _)) = payload.split_first_chunk::<4>() else { return Ok(0) };
    let number = i32::from_ne_bytes(*number);
    u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(number.saturating_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_family_is_found_and_an_unknown_one_is_not() {
        let control = Family::open("nlctrl").unwrap().expect("every kernel has it");
        assert_eq!(control.id, CONTROL_FAMILY);
        assert!(Family::open("dwell").unwrap().is_none());
    }

    #[test]
    fn refused_command_is_an_error() {
        let control = Family::open("nlctrl").unwrap().unwrap();
        let unknown = control.run(CTRL_CMD_GETFAMILY, &Attributes::default()).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::EINVAL), "no family is named");
    }

    #[test]
    fn unknown_group_is_an_error_and_a_silent_one_times_out() {
        let mut control = Family::open("nlctrl").unwrap().unwrap();
        assert!(control.subscribe("dwell").is_err());
        control.subscribe("notify").unwrap();
        let event =
            control.event(Nanos::from_millis(1), |command, _| (command == 255).then_some(()));
        assert_eq!(event.unwrap(), None);
    }

    #[test]
    fn acknowledgement_is_an_error_or_a_result() {
        assert_eq!(result(&7_i32.to_ne_bytes()).unwrap(), 7);
        assert_eq!(result(&[]).unwrap(), 0);
        let refused = result(&(-libc::ENODEV).to_ne_bytes()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn invalid_length_ends_a_datagram() {
        for len in [0_u32, 15, 17, u32::MAX] {
            let datagram = [&len.to_ne_bytes()[..], &[0; 12]].concat();
            assert_eq!(messages(&datagram).count(), 0, "{len}");
        }
    }
}
