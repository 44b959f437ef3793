//! Makes packets that are sent after a pause about as punctual as others: see [`crate::warmth`]. What
//! that leaves cold, the device's driver, only matters to trains of short gaps, of which the first two or
//! three were off by one to three microseconds; who sends them has packets lead them ([`super::Numbers`]).

use std::net::SocketAddr;

use dwell_units::{Instant, Monotonic, Nanos};

use super::Course;
use crate::calls;
use crate::clock::monotonic;
use crate::pacer::{Manner, sleep_until};
use crate::udp::UdpPort;
use crate::warmth;

/// So long before a departure, a datagram is sent to ourselves.
const EARLY: Nanos = Nanos::from_micros(300);

/// And again, which is as fast as the train's will be, unless there is a nap.
const LATE: Nanos = Nanos::from_micros(100);

/// None is sent so shortly before a departure, nor when the one before it took a good part of what is
/// left.
const QUIET: Nanos = Nanos::from_micros(30);
const MARGIN: i64 = 2;

/// Where the last departure was a moment ago, who may sleep takes a nap instead, so long before the next
/// and for this long, for which a processor stays awake (halt polling). Packets after a nap were a fifth to
/// a half less off than after spinning alone, over a veth of a virtual machine; why is not known.
const NAP_AT: Nanos = Nanos::from_micros(110);
const NAP: Nanos = Nanos::from_micros(40);

/// A nap may end so much later than it should.
const OVERSLEPT: Nanos = Nanos::from_micros(25);

/// One that ended later is forgotten by this part every time.
const FORGETS: i64 = 64;

/// What a departure finds in the caches.
pub(super) struct Warmth {
    sink: Option<warmth::Warmth>,
    naps: Naps,
}

impl Warmth {
    /// For trains by the socket whose address is `local`. Where nothing can be had that it can send to,
    /// nothing is warmed.
    pub(super) fn new(local: SocketAddr) -> Self {
        Self { sink: warmth::Warmth::at(local).ok(), naps: Naps::default() }
    }

    /// Gets ready for the departure at `due`, which is waited for in this manner, as far as there is time.
    /// `knock` does what the engine can do of its own to warm its path.
    pub(super) fn before(
        &mut self,
        due: Instant<Monotonic>,
        manner: Manner,
        course: &Course<'_>,
        port: &mut UdpPort,
        memory: &[u8],
        mut knock: impl FnMut(),
    ) {
        let Self { sink, naps } = self;
        let recent = due - monotonic() < EARLY;
        // Sends one to ourselves unless the last one took a good part of what is left; returns how long
        // it took.
        let mut stir = |ahead: Nanos, last: Nanos, manner: Manner| {
            let Some(sink) = sink.as_ref().filter(|_| due - monotonic() >= ahead) else {
                return last;
            };
            let Some(begun) = course.wait(manner, due - ahead) else { return last };
            if due - begun < QUIET.max(Nanos(last.0 * MARGIN)) {
                return last;
            }
            match sink.send_by(&port.link.fd, memory) {
                // Its stamp will belong to no packet of the train.
                Ok(_) => drop(port.link.take_key()),
                Err(error) => drop(port.link.failed(calls::errno(&error), usize::MAX)),
            }
            knock();
            monotonic() - begun
        };
        let took = stir(EARLY, Nanos::ZERO, manner);
        if recent && manner == Manner::SleepSpin && naps.are_short() {
            naps.take(due, course);
        } else {
            // A long sleep may outlast the rest.
            stir(LATE, took, Manner::Spin);
        }
    }
}

/// How long naps took.
#[derive(Debug, Default)]
struct Naps {
    /// So much longer than it should the last one took, or a little less for every time that none was
    /// taken for it.
    overslept: Nanos,
}

impl Naps {
    fn are_short(&mut self) -> bool {
        let short = self.overslept <= OVERSLEPT;
        if !short {
            self.overslept = Nanos(self.overslept.0 - self.overslept.0 / FORGETS);
        }
        short
    }

    /// Takes one before the departure at `due`, if there is time.
    fn take(&mut self, due: Instant<Monotonic>, course: &Course<'_>) {
        if due - monotonic() < NAP_AT {
            return;
        }
        let Some(begun) = course.wait(Manner::Spin, due - NAP_AT) else { return };
        if due - begun >= NAP + OVERSLEPT + QUIET {
            sleep_until(begun + NAP);
            self.overslept = monotonic() - begun - NAP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_overslept_takes_no_nap_for_a_while() {
        let mut naps = Naps { overslept: Nanos::from_micros(50) };
        let without = (0..).take_while(|_| !naps.are_short()).count();
        assert!((20..80).contains(&without), "{without}");
        assert!(naps.are_short());
    }
}
