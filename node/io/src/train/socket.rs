//! One send call for each packet: what most programs do, with three ways of waiting.

use std::io;

use dwell_units::Nanos;

use super::keys::Keys;
use super::warmth::Warmth;
use super::{Course, Departure, Payloads, Stamping, TrainSender};
use crate::clock::realtime;
use crate::pacer::Manner;
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

impl SocketSender {
    fn hand_over(&mut self, n: usize, left: &mut [Departure]) {
        match self.port.send(self.payloads.at(n)) {
            Ok(sent) => {
                left[n].app = Some(sent.app);
                left[n].done = Some(realtime());
                self.keys.note(n, sent.key);
            }
            Err(error) => self.failure = Some(error),
        }
    }
}

impl TrainSender for SocketSender {
    fn prepare(&mut self, first: u64, packets: usize) {
        self.payloads.prepare(first, packets);
        self.keys.begin(packets);
    }

    fn send(&mut self, mut course: Course<'_>, left: &mut [Departure]) {
        let Some(manner) = self.manner else {
            while let Some(n) = course.next_naive() {
                self.hand_over(n, left);
            }
            return;
        };
        let Self { port, payloads, warmth, .. } = self;
        warmth.before(manner, &course, port, payloads.at(0), || {});
        while let Some(which) = course.next(manner) {
            which.for_each(|n| self.hand_over(n, left));
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
