//! Makes the first packet of a train as punctual as the others. After a pause the kernel's code and
//! data for sending have left the caches: over a veth the driver stamped the first packet 26 to 31 us
//! late, the others 2 us. Spinning for longer does not help, a send without data and with MSG_PROBE
//! takes off 5 us, a datagram of the same length to ourselves 20 us or more: it takes the same path but
//! for the device, and nothing of it leaves the machine.

use std::net::{SocketAddr, UdpSocket};

use dwell_units::Nanos;

use super::Course;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::port::{Port, PortOptions, StampRequest};
use crate::udp::UdpPort;

/// So long before a departure, datagrams are sent to ourselves. The first of them is as slow as the
/// train's would be.
const AHEAD: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(100)];

/// None is sent so shortly before a departure.
const QUIET: Nanos = Nanos::from_micros(60);

/// A pair of sockets between which datagrams go over the loopback interface.
pub(super) struct Warmth(Option<(UdpPort, UdpSocket)>);

impl Warmth {
    /// Like the socket whose address is `local`. Where such a pair cannot be had, nothing is warmed.
    pub(super) fn new(local: SocketAddr, stamped: bool) -> Self {
        let pair = || {
            let mut own = local;
            own.set_port(0);
            let sink = UdpSocket::bind(own)?;
            sink.set_nonblocking(true)?;
            let stamps = if stamped { StampRequest::Kernel } else { StampRequest::User };
            let options =
                PortOptions { source: Some(local.ip()), stamps, ..PortOptions::default() };
            Ok::<_, std::io::Error>((UdpPort::connect(sink.local_addr()?, &options)?, sink))
        };
        Self(pair().ok())
    }

    /// To be called before the first departure of a train of packets such as `payload`. Waits in the same manner as the train.
    pub(super) fn before(&mut self, manner: Manner, course: &Course<'_>, payload: &[u8]) {
        let (Some((port, sink)), Some(due)) = (&mut self.0, course.first()) else { return };
        // What was sent before the last train: the queues are never full.
        while sink.recv(&mut []).is_ok() {}
        port.notices(2 * AHEAD.len(), &mut |_| {});
        for ahead in AHEAD {
            let goes_on = course.wait(manner, due - ahead).is_some();
            if goes_on && due - monotonic() > QUIET {
                // Best effort.
                let _ = port.send(payload);
            }
        }
    }
}
