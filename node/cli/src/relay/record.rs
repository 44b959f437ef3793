//! From the thread that relays to the one that keeps what it saw: a bounded ring, emptied ten times
//! a second and more often when much comes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dwell_engine::passage::Passage;
use dwell_record::segment::FlowEntry;
use rtrb::Producer;

use crate::passages::PassageLog;

/// News that the ring holds: what comes in a turn, and to spare.
pub(super) const RING: usize = 1 << 15;

/// How long the recording thread rests when little comes, and when much does.
const REST: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(5)];

/// More than this in one turn is much.
const MUCH: usize = RING / 64;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// A client came; its flows are two.
    Flow(NewFlow),
    /// A packet passed.
    Passage(Passage),
}

/// The addresses of a new client's two flows: this number there, the next one back.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFlow {
    pub(super) number: u32,
    /// The client, and the address of ours that it sends to.
    pub(super) client: SocketAddr,
    pub(super) listen: SocketAddr,
    /// The address of ours that its packets leave from, and where they go.
    pub(super) out: SocketAddr,
    pub(super) to: SocketAddr,
}

impl NewFlow {
    fn entries(self, protocol: &str) -> [FlowEntry; 2] {
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

/// The relaying thread's end of the ring. Never waits: what finds it full is counted.
pub(super) struct Teller<'a> {
    pub(super) ring: Producer<News>,
    pub(super) dropped: &'a AtomicU64,
}

impl Teller<'_> {
    pub(super) fn tell(&mut self, news: News) {
        if self.ring.push(news).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Keeps what comes until the relay has `finished`.
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
