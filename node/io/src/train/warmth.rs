//! Makes packets that are sent after a pause about as punctual as others: see [`crate::warmth`].

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
use crate::calls;
use crate::clock::monotonic;
use crate::pacer::Manner;
use crate::udp::UdpPort;
use crate::warmth;

/// So long before a departure, datagrams are sent to ourselves. The first of them is as slow as the
/// train's would be.
const AHEAD: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(100)];

/// None is sent so shortly before a departure, nor when it would take a good part of what is left.
const QUIET: Nanos = Nanos::from_micros(30);
const MARGIN: i64 = 4;

/// What a departure finds in the caches.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
    /// How long it took to send the last.
    took: Nanos,
}

impl Warmth {
    /// For the socket whose address is `local`. Where nothing can be had that it can send to, nothing
    /// is warmed.
    pub(super) fn new(local: SocketAddr) -> Self {
        Self { sink: warmth::Warmth::at(local).ok(), took: Nanos::ZERO }
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
        let Some(sink) = &self.sink else { return };
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
            match sink.send_by(&port.link.fd, memory) {
                // Its stamp will belong to no packet of the train.
                Ok(_) => drop(port.link.take_key()),
                Err(error) => drop(port.link.failed(calls::errno(&error), usize::MAX)),
            }
            knock();
            self.took = monotonic() - begun;
        }
    }
}
