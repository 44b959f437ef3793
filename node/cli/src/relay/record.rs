//! Bounded ring from the relaying thread to the recording thread, which empties it at least ten
//! times per second.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dwell_engine::passage::Passage;
use dwell_record::segment::FlowEntry;
use rtrb::Producer;

use crate::passages::PassageLog;

/// Capacity of the ring: the events of one interval, with a margin.
pub(super) const RING: usize = 1 << 15;

/// Part of the ring reserved for flows.
const FOR_FLOWS: usize = RING / 32;

/// Pause of the recording thread after few events, and after many.
const REST: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(5)];

/// Number of events per pass that counts as many.
const MUCH: usize = RING / 64;

/// Event of the relay.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// A new client, with its two flows.
    Flow(NewFlow),
    /// A relayed packet.
    Passage(Passage),
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
        let entry = |flow, from, came_to, from_out, to_out| FlowEntry {
            flow,
            protocol: protocol.to_owned(),
            from,
            to: came_to,
            from_out: Some(from_out),
            to_out: Some(to_out),
        };
        [entry(number, client, listen, out, to), entry(number + 1, to, out, listen, client)]
    }
}

/// The relaying thread's end of the ring. Never blocks: events that do not fit are counted.
pub(super) struct Teller<'a> {
    pub(super) ring: Producer<News>,
    pub(super) dropped: &'a AtomicU64,
}

impl Teller<'_> {
    pub(super) fn tell(&mut self, news: News) {
        // A passage without its flow could not be attributed.
        let kept_free = if matches!(news, News::Passage(_)) { FOR_FLOWS } else { 0 };
        if self.ring.slots() <= kept_free || self.ring.push(news).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Records events until the relay has `finished`.
pub(super) fn follow(
    next: &mut dyn FnMut() -> Option<News>,
    log: &mut PassageLog,
    protocol: &str,
    finished: &dyn Fn() -> bool,
) {
    loop {
        let last = finished();
        let mut came = 0;
        while let Some(news) = next() {
            came += 1;
            match news {
                News::Flow(flow) => flow.entries(protocol).iter().for_each(|entry| log.flow(entry)),
                News::Passage(passage) => log.take(&passage),
            }
        }
        log.flush();
        if last {
            return;
        }
        thread::park_timeout(REST[usize::from(came > MUCH)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_that_fill_the_ring_leave_room_for_flows() {
        let (ring, mut news) = rtrb::RingBuffer::new(RING);
        let dropped = AtomicU64::new(0);
        let mut teller = Teller { ring, dropped: &dropped };
        let address = "192.0.2.1:5000".parse().unwrap();
        let (client, listen, out, to) = (address, address, address, address);
        let stamps = dwell_engine::passage::PointStamps::default();
        let fate = dwell_engine::passage::Fate::Sent;
        for id in 0..RING as u64 {
            teller.tell(News::Passage(Passage { flow: 0, id, size: 1, fate, stamps }));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), FOR_FLOWS as u64);
        (0..10).for_each(|number| {
            teller.tell(News::Flow(NewFlow { number, client, listen, out, to }));
        });
        let told = std::iter::from_fn(|| news.pop().ok());
        assert_eq!(told.filter(|news| matches!(news, News::Flow(_))).count(), 10);
    }

    #[test]
    fn a_clients_two_flows_are_each_others_mirror() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let flow = NewFlow {
            number: 6,
            client: address("192.0.2.1:5000"),
            listen: address("192.0.2.2:7"),
            out: address("192.0.2.2:6000"),
            to: address("192.0.2.3:9"),
        };
        let [there, back] = flow.entries("udp");
        assert_eq!((there.flow, back.flow), (6, 7));
        assert_eq!((there.from, there.to), (back.out().1, back.out().0));
        assert_eq!((back.from, back.to), (there.out().1, there.out().0));
    }
}
