//! Makes the first packet of a train about as punctual as the others. After a pause the kernel's code
//! and data for sending have left the caches: over a veth the driver stamped the first packet 26 to 31
//! us late, the others 2 us. Spinning for longer does not help, and a send without data (MSG_PROBE)
//! takes off only 5 us. A datagram of the same length by the same socket to ourselves takes off 20 us
//! and more: its path is the same but for the device, and nothing of it leaves the machine.

use std::net::{SocketAddr, UdpSocket};

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
use crate::address::RawAddress;
use crate::calls;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::udp::UdpPort;

/// So long before a departure, datagrams are sent to ourselves. The first of them is as slow as the
/// train's would be.
const AHEAD: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(100)];

/// None is sent so shortly before a departure, nor when it would take a good part of what is left.
const QUIET: Nanos = Nanos::from_micros(30);
const MARGIN: i64 = 4;

/// The longest datagram over IPv4.
const LONGEST: usize = 65_507;

/// Where datagrams go that warm the path.
pub(super) struct Warmth {
    sink: Option<(UdpSocket, RawAddress)>,
    /// How long it took to send the last.
    took: Nanos,
}

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
        Self { sink: sink.ok(), took: Nanos::ZERO }
    }

    /// Sends some to ourselves before the departure at `due`, which is waited for in this manner, if there
    /// is time. `knock` does what the engine can do of its own to warm its path.
    pub(super) fn before(
        &mut self,
        due: Instant<Monotonic>,
        manner: Manner,
        course: &Course<'_>,
        port: &mut UdpPort,
        memory: &[u8],
        mut knock: impl FnMut(),
    ) {
        let Some((sink, address)) = &self.sink else { return };
        for ahead in AHEAD {
            if due - monotonic() < ahead {
                continue;
            }
            if course.wait(manner, due - ahead).is_none() {
                return;
            }
            let begun = monotonic();
            if due - begun < QUIET.max(Nanos(self.took.0 * MARGIN)) {
                return;
            }
            // What was sent before: its buffer is never full.
            while sink.recv(&mut []).is_ok() {}
            let datagram = &memory[..memory.len().min(LONGEST)];
            match calls::send_to(&port.link.fd, datagram, address) {
                // Its stamp will belong to no packet of the train.
                Ok(_) => drop(port.link.take_key()),
                Err(error) => drop(port.link.failed(calls::errno(&error), usize::MAX)),
            }
            knock();
            self.took = monotonic() - begun;
        }
    }
}
