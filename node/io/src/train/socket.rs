//! One send call for each packet: what most programs do, with three ways of waiting.

use std::io;
use std::net::SocketAddr;

use dwell_units::Nanos;

use super::outlet::Outlet;
use super::{Course, Departure, Numbers, Payloads, Stamping, TrainSender, Unavailable};
use crate::pacer::Manner;
use crate::port::PortOptions;

/// A sender that waits in a manner of [`crate::pacer`]; `None` sleeps for the gap after each packet, as
/// programs do that do not look at the clock.
pub struct SocketSender {
    outlet: Outlet,
    payloads: Payloads,
    manner: Option<Manner>,
}

impl SocketSender {
    /// A sender to `target`; the kernel stamps its packets if `options` ask for it.
    ///
    /// # Errors
    /// No socket of this kind can be had.
    pub fn new(
        target: SocketAddr,
        options: &PortOptions,
        payloads: Payloads,
        manner: Option<Manner>,
    ) -> Result<Self, Unavailable> {
        let outlet = Outlet::open(target, options)?;
        // Who sleeps for each gap does what programs do.
        let outlet = if manner.is_some() { outlet.ahead() } else { outlet };
        Ok(Self { outlet, payloads, manner })
    }
}

impl TrainSender for SocketSender {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.outlet.begin(numbers.len());
    }

    fn send(&mut self, mut course: Course<'_>, left: &mut [Departure]) {
        let Self { outlet, payloads, manner } = self;
        let Some(manner) = *manner else {
            while let Some(n) = course.next_naive() {
                outlet.send(n, payloads.at(n), left);
            }
            return;
        };
        while let Some((which, _)) = course.due_together() {
            outlet.get_ready(manner, &course, payloads.span(which.clone()), left, || {});
            if which.len() == 1 {
                outlet.hold(manner, &course, payloads.at(which.start));
            }
            let Some(which) = course.next(manner) else { return outlet.discard() };
            which.for_each(|n| outlet.send(n, payloads.at(n), left));
        }
    }

    fn collect(&mut self, left: &mut [Departure], patience: Nanos) {
        self.outlet.collect(left, patience);
    }

    fn stamping(&self) -> Stamping {
        self.outlet.stamping()
    }

    fn refused(&self) -> u64 {
        self.outlet.keys.refused()
    }

    fn failure(&self) -> Option<io::Error> {
        self.outlet.failure()
    }
}
