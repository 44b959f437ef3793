//! Makes packets that are sent after a pause about as punctual as others: see [`crate::warmth`]. What that
//! leaves cold, the device's driver, only matters to trains of short gaps, of which the first two or three were off by
//! one to three microseconds; those are led by a short datagram to the target, twice.

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::traffic::Mark;

use super::{Course, LEAD};
use crate::calls;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::port::Port;
use crate::udp::UdpPort;
use crate::warmth;

/// So long before a departure, datagrams are sent to ourselves. The first of them is as slow as the
/// train's would be.
const AHEAD: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(100)];

/// None is sent so shortly before a departure, nor when the one before it took a good part of what is
/// left.
const QUIET: Nanos = Nanos::from_micros(30);
const MARGIN: i64 = 2;

/// Gaps are short below this: a train of them asks more of a link than what leads it.
const SHORT: Nanos = Nanos::from_micros(100);

/// What a departure finds in the caches.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
    /// What leads trains: of their flow, with a number that no packet of a train has.
    lead: [u8; Mark::LEN],
}

impl Warmth {
    /// For trains of a flow by the socket whose address is `local`. Where nothing can be had that it can
    /// send to, nothing is warmed.
    pub(super) fn new(local: SocketAddr, flow: u32) -> Self {
        let mut lead = [0; Mark::LEN];
        Mark { flow, seq: LEAD }.emit(&mut lead);
        Self { sink: warmth::Warmth::at(local).ok(), lead }
    }

    /// Sends some to ourselves, and of some trains to the target, before the departure at `due`, which is waited for in this manner, if there
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
        let Some(sink) = &self.sink else { return };
        let (mut manner, mut took) = (manner, Nanos::ZERO);
        for ahead in AHEAD {
            if due - monotonic() < ahead {
                continue;
            }
            if course.wait(manner, due - ahead).is_none() {
                return;
            }
            // So shortly before it, a sleep may outlast the rest.
            manner = Manner::Spin;
            let begun = monotonic();
            if due - begun < QUIET.max(Nanos(took.0 * MARGIN)) {
                return;
            }
            match sink.send_by(&port.link.fd, memory) {
                // Its stamp will belong to no packet of the train.
                Ok(_) => drop(port.link.take_key()),
                Err(error) => drop(port.link.failed(calls::errno(&error), usize::MAX)),
            }
            if course.starts_faster_than(SHORT) {
                // What it fails of, the train will tell.
                let _ = port.send(&self.lead);
            }
            knock();
            took = monotonic() - begun;
        }
    }
}
