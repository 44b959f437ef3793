//! Names of a datagram relay's sockets: the listener, and for each flow one towards the far end and
//! optionally one connected to the client.

use dwell_engine::relay::flows::FlowId;

/// A socket of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// The socket that clients send to.
    Listener,
    /// Connected to this client, on the listener's port.
    Own(FlowId),
    /// Connected to the flow's destination.
    Out(FlowId),
}

/// Token of the listener.
const LISTENER_TOKEN: u64 = u64::MAX;

/// Bit of a token that marks the client's own socket. The number of descriptors keeps flow indices
/// far below it.
const OWN_SOCKET_BIT: u64 = 1 << 31;

impl Socket {
    /// Encodes the socket as a poller token.
    pub(super) fn token(self) -> u64 {
        match self {
            Self::Listener => LISTENER_TOKEN,
            Self::Own(flow) => flow.to_u64() | OWN_SOCKET_BIT,
            Self::Out(flow) => flow.to_u64(),
        }
    }

    /// Decodes a token; the reverse of [`Socket::token`].
    pub(super) fn of(token: u64) -> Self {
        match token {
            LISTENER_TOKEN => Self::Listener,
            own if own & OWN_SOCKET_BIT != 0 => Self::Own(FlowId::from_u64(own & !OWN_SOCKET_BIT)),
            out => Self::Out(FlowId::from_u64(out)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_token_round_trips() {
        let flow = FlowId::from_u64(7 << 32 | 65_535);
        for socket in [Socket::Listener, Socket::Own(flow), Socket::Out(flow)] {
            assert_eq!(Socket::of(socket.token()), socket);
        }
    }
}
