//! Makes the first packet of a train about as punctual as the others. After a pause the kernel's code
//! and data for sending have left the caches: over a veth the driver stamped the first packet 26 to 31
//! us late, the others 2 us. Spinning for longer does not help, and a send without data (MSG_PROBE)
//! takes off only 5 us. A datagram of the same length by the same socket to ourselves takes off 20 us
//! and more: its path is the same but for the device, and nothing of it leaves the machine.

use std::net::{SocketAddr, UdpSocket};

use dwell_units::Nanos;

use super::Course;
use crate::address::RawAddress;
use crate::calls;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::udp::UdpPort;

/// So long before a departure, datagrams are sent to ourselves. The first of them is as slow as the
/// train's would be.
const AHEAD: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(100)];

/// None is sent so shortly before a departure.
const QUIET: Nanos = Nanos::from_micros(60);

/// Where datagrams go that warm the path.
pub(super) struct Warmth(Option<(UdpSocket, RawAddress)>);

impl Warmth {
    /// For the socket whose address is `local`. Where nothing can be had that it can send to, nothing
    /// is warmed.
    pub(super) fn new(mut local: SocketAddr) -> Self {
        local.set_port(0);
        let sink = UdpSocket::bind(local).and_then(|sink| {
            sink.set_nonblocking(true)?;
            let address = RawAddress::from(sink.local_addr()?);
            Ok((sink, address))
        });
        Self(sink.ok())
    }

    /// To be called before the first departure of a train, of packets such as `payload`, which is waited for
    /// in the same manner. `knock` does what the engine can do of
    /// its own to warm its path.
    pub(super) fn before(
        &mut self,
        manner: Manner,
        course: &Course<'_>,
        port: &mut UdpPort,
        payload: &[u8],
        mut knock: impl FnMut(),
    ) {
        let (Some((sink, address)), Some(due)) = (&self.0, course.first()) else { return };
        // What was sent before the last train: its buffer is never full.
        while sink.recv(&mut []).is_ok() {}
        for ahead in AHEAD {
            let goes_on = course.wait(manner, due - ahead).is_some();
            if !goes_on || due - monotonic() <= QUIET {
                return;
            }
            match calls::send_to(&port.link.fd, payload, address) {
                // Its stamp will belong to no packet of the train.
                Ok(_) => drop(port.link.take_key()),
                Err(error) => drop(port.link.failed(calls::errno(&error), usize::MAX)),
            }
            knock();
        }
    }
}
