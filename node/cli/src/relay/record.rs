//! Bounded ring from the relaying thread to the recording thread, which empties it at least ten
//! times per second.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dwell_record::segment::FlowEntry;
use dwell_sample::PacketObservation;
use rtrb::Producer;

use crate::observation_writer::ObservationWriter;

/// Capacity of the ring: the events of one interval, with a margin.
pub(super) const RING_CAPACITY: usize = 1 << 15;

/// Part of the ring reserved for flows.
const RESERVED_FOR_FLOWS: usize = RING_CAPACITY / 32;

/// Pause of the recording thread after few events, and after many.
const DRAIN_INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(5)];

/// Number of events per pass that counts as many.
const BUSY_THRESHOLD: usize = RING_CAPACITY / 64;

/// Event of the relay.
#[derive(Clone, Copy, Debug)]
pub(super) enum RelayEvent {
    /// A new client, with its two flows.
    Flow(NewFlow),
    /// A relayed packet.
    Observation(PacketObservation),
}

/// Addresses of a new client's two flows: `number` forward, `number + 1` backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFlow {
    pub(super) number: u32,
    /// The client, and the local address it sends to.
    pub(super) client: SocketAddr,
    pub(super) listen: SocketAddr,
    /// The local address its packets leave from, and their destination.
    pub(super) out: SocketAddr,
    pub(super) to: SocketAddr,
}

impl NewFlow {
    pub(super) fn entries(self, protocol: &str) -> [FlowEntry; 2] {
        let Self { number, client, listen, out, to } = self;
        let entry = |flow, from, to_in, from_out, to_out| FlowEntry {
            flow,
            protocol: protocol.to_owned(),
            from,
            to: to_in,
            from_out: Some(from_out),
            to_out: Some(to_out),
        };
        [entry(number, client, listen, out, to), entry(number + 1, to, out, listen, client)]
    }
}

/// The relaying thread's end of the ring. Never blocks: events that do not fit are counted.
pub(super) struct EventSender<'a> {
    pub(super) ring: Producer<RelayEvent>,
    pub(super) dropped: &'a AtomicU64,
}

impl EventSender<'_> {
    pub(super) fn push_event(&mut self, event: RelayEvent) {
        // An observation cannot be attributed without its flow.
        let reserved =
            if matches!(event, RelayEvent::Observation(_)) { RESERVED_FOR_FLOWS } else { 0 };
        if self.ring.slots() <= reserved || self.ring.push(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Records events until the relay has `finished`.
pub(super) fn record_events(
    next: &mut dyn FnMut() -> Option<RelayEvent>,
    log: &mut ObservationWriter,
    protocol: &str,
    finished: &dyn Fn() -> bool,
) {
    loop {
        let last = finished();
        let mut count = 0;
        while let Some(event) = next() {
            count += 1;
            match event {
                RelayEvent::Flow(flow) => {
                    flow.entries(protocol).iter().for_each(|entry| log.flow(entry))
                }
                RelayEvent::Observation(observation) => log.take(&observation),
            }
        }
        log.flush();
        if last {
            return;
        }
        thread::park_timeout(DRAIN_INTERVALS[usize::from(count > BUSY_THRESHOLD)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_ring_keeps_room_for_flows() {
        let (ring, mut consumer) = rtrb::RingBuffer::new(RING_CAPACITY);
        let dropped = AtomicU64::new(0);
        let mut events = EventSender { ring, dropped: &dropped };
        let address = "192.0.2.1:5000".parse().unwrap();
        let (client, listen, out, to) = (address, address, address, address);
        let stamps = dwell_sample::PointStamps::default();
        let outcome = dwell_sample::PacketOutcome::Sent;
        for id in 0..RING_CAPACITY as u64 {
            events.push_event(RelayEvent::Observation(PacketObservation {
                flow: 0,
                id,
                size: 1,
                outcome,
                stamps,
            }));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), RESERVED_FOR_FLOWS as u64);
        (0..10).for_each(|number| {
            events.push_event(RelayEvent::Flow(NewFlow { number, client, listen, out, to }));
        });
        let recorded = std::iter::from_fn(|| consumer.pop().ok());
        assert_eq!(recorded.filter(|event| matches!(event, RelayEvent::Flow(_))).count(), 10);
    }

    #[test]
    fn flows_of_a_client_mirror_each_other() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let flow = NewFlow {
            number: 6,
            client: address("192.0.2.1:5000"),
            listen: address("192.0.2.2:7"),
            out: address("192.0.2.2:6000"),
            to: address("192.0.2.3:9"),
        };
        let [forward, backward] = flow.entries("udp");
        assert_eq!((forward.flow, backward.flow), (6, 7));
        assert_eq!((forward.from, forward.to), (backward.out().1, backward.out().0));
        assert_eq!((backward.from, backward.to), (forward.out().1, forward.out().0));
    }
}
