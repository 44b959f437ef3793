//! One send call for each packet: what most programs do, with three ways of waiting.

use std::io;

use dwell_engine::stamps::TxStamp;
use dwell_units::{Instant, Monotonic, Nanos};

use super::{Departure, Payloads, Stamping, TrainSender, await_departure};
use crate::clock::{monotonic, realtime};
use crate::pacer::{Manner, sleep_until};
use crate::port::{Notice, Port, SendError};
use crate::udp::UdpPort;

/// Entries taken from the error queue at a time.
const NOTICES: usize = 32;

/// How often stamps that have yet to come are looked for.
const LOOK: Nanos = Nanos::from_micros(200);

/// A sender that waits in a manner of [`crate::pacer`]; `None` sleeps for the gap after each packet, as
/// programs do that do not look at the clock.
pub struct SocketSender {
    port: UdpPort,
    payloads: Payloads,
    manner: Option<Manner>,
    stamped: bool,
    /// The kernel's key of each packet of the train.
    keys: Vec<Option<u32>>,
    refused: u64,
    failure: Option<SendError>,
}

impl SocketSender {
    /// A sender through `port`, which was asked for stamps if `stamped`.
    pub fn new(port: UdpPort, payloads: Payloads, manner: Option<Manner>, stamped: bool) -> Self {
        Self { port, payloads, manner, stamped, keys: Vec::new(), refused: 0, failure: None }
    }

    /// Takes what is in the error queue; returns how many entries there were.
    fn take_notices(&mut self, left: &mut [Departure]) -> usize {
        let Self { port, keys, refused, .. } = self;
        let mut taken = 0;
        port.notices(NOTICES, &mut |notice| {
            taken += 1;
            match notice {
                Notice::TxStamp { key, stamp } => {
                    // Keys rise with the packets: most often the place is that far from the first.
                    let guess =
                        keys.first().copied().flatten().map(|first| key.wrapping_sub(first));
                    let at = guess.map(|place| place as usize);
                    let is_at = |at: &usize| keys.get(*at) == Some(&Some(key));
                    let at = at.filter(is_at).or_else(|| keys.iter().position(|k| *k == Some(key)));
                    let Some(left) = at.and_then(|at| left.get_mut(at)) else { return };
                    match stamp {
                        TxStamp::Sched(at) => left.sched = Some(at),
                        TxStamp::Kernel(at) => left.kernel = Some(at),
                        TxStamp::Hw(_) => {}
                    }
                }
                Notice::Error { .. } => *refused += 1,
            }
        });
        taken
    }
}

impl TrainSender for SocketSender {
    fn prepare(&mut self, first: u64, packets: usize) {
        self.payloads.prepare(first, packets);
        self.keys.clear();
        self.keys.resize(packets, None);
    }

    fn send(&mut self, due: &[Instant<Monotonic>], left: &mut [Departure]) {
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
                    self.keys[n] = sent.key;
                }
                Err(error) => self.failure = Some(error),
            }
        }
    }

    fn collect(&mut self, left: &mut [Departure], patience: Nanos) {
        let until = monotonic() + patience;
        loop {
            while self.take_notices(left) == NOTICES {}
            let is_awaited = |left: &Departure| left.app.is_some() && left.kernel.is_none();
            if !self.stamped || !left.iter().any(is_awaited) || monotonic() >= until {
                return;
            }
            sleep_until(monotonic() + LOOK);
        }
    }

    fn stamping(&self) -> Stamping {
        if self.stamped { Stamping::Socket } else { Stamping::FarEnd }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn failure(&self) -> Option<io::Error> {
        self.failure.map(io::Error::other)
    }
}
