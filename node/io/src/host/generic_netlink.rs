//! Generic netlink (linux/genetlink.h): commands to kernel facilities, found by their names.

use std::ffi::c_int;
use std::io;

use dwell_host::netlink::{Attributes, attribute, attributes, text_of, u32_of};
use dwell_units::Nanos;

use crate::clock;
use crate::sys::netlink::{Dump, NetlinkSocket, consistent, messages};

/// Bytes of the generic header, after that of netlink.
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
    socket: NetlinkSocket,
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
        let socket = NetlinkSocket::open(libc::NETLINK_GENERIC)?;
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
    pub(crate) fn subscribe(&self, group: &str) -> io::Result<()> {
        let id = self.groups.iter().find(|(name, _)| name == group).map(|(_, id)| *id);
        self.socket.join_group(id.ok_or(io::ErrorKind::NotFound)?)
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
        while let Some(datagram) = self.socket.receive_until(end)? {
            for message in messages(&datagram) {
                let message = message?;
                if message.kind != self.id {
                    continue;
                }
                if let Some((header, attributes)) =
                    message.body.split_first_chunk::<GENERIC_HEADER_LEN>()
                    && let Some(found) = select(header[0], attributes)
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Runs a command; returns its result, which is 0 unless the command defines it otherwise.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn run(&self, command: u8, attributes: &Attributes) -> io::Result<u32> {
        self.send(command, libc::NLM_F_ACK, attributes)?;
        loop {
            for message in messages(&self.socket.receive()?) {
                let message = message?;
                if message.is_last() {
                    return message.result();
                }
            }
        }
    }

    /// Runs a command that lists objects; returns the attributes of each.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn dump(&self, command: u8, attributes: &Attributes) -> io::Result<Vec<Vec<u8>>> {
        consistent(|| {
            self.send(command, libc::NLM_F_DUMP, attributes)?;
            let mut dump = Dump::new();
            loop {
                for message in messages(&self.socket.receive()?) {
                    let message = message?;
                    dump.is_interrupted |= message.is_interrupted();
                    if message.is_last() {
                        return message.result().map(|_| dump);
                    }
                    if message.kind == self.id {
                        let attributes = message.body.get(GENERIC_HEADER_LEN..);
                        dump.objects.extend(attributes.map(<[u8]>::to_vec));
                    }
                }
            }
        })
    }

    fn send(&self, command: u8, flags: c_int, attributes: &Attributes) -> io::Result<()> {
        // Command, version of the family, reserved.
        let body = [&[command, 1, 0, 0][..], attributes.as_bytes()].concat();
        self.socket.send(self.id, flags, &body)
    }
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
        let control = Family::open("nlctrl").unwrap().unwrap();
        assert!(control.subscribe("dwell").is_err());
        control.subscribe("notify").unwrap();
        let event =
            control.event(Nanos::from_millis(1), |command, _| (command == 255).then_some(()));
        assert_eq!(event.unwrap(), None);
    }
}
