//! The sockets of a relay of datagrams, by name: the one that clients send to, and for each flow one
//! towards where it goes and perhaps one of the client's own.

use dwell_engine::relay::flows::FlowId;

/// A socket of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// What everybody sends to.
    Listener,
    /// What only this client sends to, as it is connected to it: by the listener's port.
    Own(FlowId),
    /// What is connected to where the flow goes.
    Out(FlowId),
}

/// The listener's number.
const LISTENER: u64 = u64::MAX;

/// Of numbers of flows, the bit that tells the client's own socket. A process cannot have so many
/// descriptors that the places of flows come near it.
const OWN: u64 = 1 << 31;

impl Socket {
    /// As one number, for whatever carries only that.
    pub(super) fn token(self) -> u64 {
        match self {
            Self::Listener => LISTENER,
            Self::Own(flow) => flow.to_u64() | OWN,
            Self::Out(flow) => flow.to_u64(),
        }
    }

    /// The reverse of [`Socket::token`].
    pub(super) fn of(token: u64) -> Self {
        match token {
            LISTENER => Self::Listener,
            own if own & OWN != 0 => Self::Own(FlowId::from_u64(own & !OWN)),
            out => Self::Out(FlowId::from_u64(out)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_is_found_by_its_number() {
        let flow = FlowId::from_u64(7 << 32 | 65_535);
        for socket in [Socket::Listener, Socket::Own(flow), Socket::Out(flow)] {
            assert_eq!(Socket::of(socket.token()), socket);
        }
    }
}
