//! The floor: the delay that this program and this machine add to every round trip.

use std::net::{Ipv4Addr, SocketAddr};

use dwell_io::clock::realtime;
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::{SocketOptions, Wait};
use dwell_stats::Distribution;
use dwell_units::Nanos;

/// Number of datagrams sent.
const DATAGRAMS: usize = 200;

/// Median time from before the send call to after the receive call of a 64-byte datagram over
/// loopback, on the calling thread: one send and one receive. Delays below it cannot be
/// distinguished from zero. Takes about a millisecond. `None` without a loopback interface.
pub(super) fn measure() -> Option<Nanos> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut far = DatagramSocket::bind(loopback, &SocketOptions::server()).ok()?;
    let mut near = DatagramSocket::connect(far.local_addr(), &SocketOptions::default()).ok()?;
    let mut delays = Distribution::default();
    let mut buffer = [0; 64];
    for _ in 0..DATAGRAMS {
        let sent = near.send(&[0; 64]).ok()?;
        // Over loopback, a datagram has arrived when the send call returns.
        let received = far.receive_from(&mut buffer, Wait::No).ok()??;
        delays.record(realtime() - sent.app);
        debug_assert_eq!(received.len, 64);
    }
    delays.figures().p50
}
