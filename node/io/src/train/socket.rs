//! One send call for each packet: what most programs do, with three ways of waiting.

use std::io;

use dwell_units::{Instant, Monotonic, Nanos};

use super::keys::Keys;
use super::warmth::Warmth;
use super::{Departure, Payloads, Stamping, TrainSender, await_departure};
use crate::clock::{monotonic, realtime};
use crate::pacer::{Manner, sleep_until};
use crate::port::{Port, SendError};
use crate::udp::UdpPort;

/// A sender that waits in a manner of [`crate::pacer`]; `None` sleeps for the gap after each packet, as
/// programs do that do not look at the clock.
pub struct SocketSender {
    port: UdpPort,
    payloads: Payloads,
    manner: Option<Manner>,
    stamped: bool,
    keys: Keys,
    warmth: Warmth,
    failure: Option<SendError>,
}

impl SocketSender {
    /// A sender through `port`, which was asked for stamps if `stamped`.
    pub fn new(port: UdpPort, payloads: Payloads, manner: Option<Manner>, stamped: bool) -> Self {
        let warmth = Warmth::new(port.local_addr());
        Self { port, payloads, manner, stamped, keys: Keys::default(), warmth, failure: None }
    }
}

impl TrainSender for SocketSender {
    fn prepare(&mut self, first: u64, packets: usize) {
        self.payloads.prepare(first, packets);
        self.keys.begin(packets);
    }

    fn send(&mut self, due: &[Instant<Monotonic>], left: &mut [Departure]) {
        if let Some(manner) = self.manner {
            let Self { port, payloads, warmth, .. } = self;
            warmth.before(manner, due, port, payloads.at(0), || {});
        }
        let mut before = None;
        for (n, (&due, left)) in due.iter().zip(left).enumerate() {
            match (self.manner, before.replace(due)) {
                (Some(manner), _) => drop(await_departure(manner, due)),
                (None, None) => drop(await_departure(Manner::CatchUp, due)),
                (None, Some(before)) => sleep_until(monotonic() + (due - before)),
            }
            match self.port.send(self.payloads.at(n)) {
                Ok(sent) => {
                    left.app = Some(sent.app);
                    left.done = Some(realtime());
                    self.keys.note(n, sent.key);
                }
                Err(error) => self.failure = Some(error),
            }
        }
    }

    fn collect(&mut self, left: &mut [Departure], patience: Nanos) {
        let Self { port, keys, stamped, .. } = self;
        keys.collect(left, *stamped, patience, |limit, each| port.notices(limit, each));
    }

    fn stamping(&self) -> Stamping {
        if self.stamped { Stamping::Socket } else { Stamping::FarEnd }
    }

    fn refused(&self) -> u64 {
        self.keys.refused()
    }

    fn failure(&self) -> Option<io::Error> {
        self.failure.map(io::Error::other)
    }
}
