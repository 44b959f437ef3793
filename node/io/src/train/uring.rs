//! Sends by io_uring(7): requests built ahead, those due together handed over by one call.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;

use dwell_units::Nanos;
use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::outlet::Outlet;
use super::{Course, Departure, Numbers, Payloads, Stamping, TrainSender, Unavailable};
use crate::calls;
use crate::clock::realtime;
use crate::pacer::Manner;
use crate::port::PortOptions;

/// Requests in a ring; more that are due together take several calls.
const ENTRIES: usize = 256;

/// Times that the kernel may refuse to look at requests.
const REFUSALS: usize = 100;

/// A sender that sleeps, then spins, and hands over requests that lie ready.
pub struct Uring {
    /// Ends before the payloads that its requests point to.
    ring: IoUring,
    outlet: Outlet,
    payloads: Payloads,
    requests: Vec<squeue::Entry>,
    /// Requests of a call that have to be made again.
    again: Vec<squeue::Entry>,
    /// The kernel has requests that it does not answer: nothing they point to may change.
    stuck: bool,
}

impl Uring {
    /// A sender to `target`; the kernel stamps its packets if `options` ask for it.
    ///
    /// # Errors
    /// A kernel without io_uring, or where it is not allowed.
    pub fn new(
        target: SocketAddr,
        options: &PortOptions,
        payloads: Payloads,
    ) -> Result<Self, Unavailable> {
        let failed = |error| {
            Unavailable::failed("io_uring (see the sysctl kernel.io_uring_disabled)", &error)
        };
        let ring = IoUring::new(ENTRIES as u32).map_err(failed)?;
        let mut able = Probe::new();
        ring.submitter().register_probe(&mut able).map_err(failed)?;
        if !able.is_supported(opcode::Send::CODE) {
            return Err(Unavailable::because(
                "io_uring of this kernel cannot send (5.6 and later can)",
            ));
        }
        let outlet = Outlet::open(target, options)?;
        let again = Vec::with_capacity(ENTRIES);
        Ok(Self { ring, outlet, payloads, requests: Vec::new(), again, stuck: false })
    }

    fn hand_over(&mut self, which: Range<usize>, left: &mut [Departure]) {
        for start in which.clone().step_by(ENTRIES) {
            let end = which.end.min(start + ENTRIES);
            self.again.clear();
            self.again.extend_from_slice(&self.requests[start..end]);
            let mut failed = 0;
            while !self.again.is_empty() && !self.stuck {
                self.submit(failed, left);
                failed += 1;
            }
        }
    }

    /// Makes the requests in `again`, which holds afterwards those that have to be made again.
    fn submit(&mut self, failed: usize, left: &mut [Departure]) {
        let Self { ring, outlet, requests, again, .. } = self;
        // SAFETY: the requests point to payloads that `prepare` built and that nothing changes or
        // moves before all are answered: below, or by `stuck` never.
        let pushed = unsafe { ring.submission().push_multiple(again) };
        assert!(pushed.is_ok(), "the ring is empty and has room for so many");
        let mut unanswered = again.len();
        again.clear();
        for _ in 0..REFUSALS {
            let app = realtime();
            // They never wait, so that they are answered when the call returns.
            let submitted = ring.submit_and_wait(unanswered);
            let done = realtime();
            for answer in ring.completion() {
                unanswered -= 1;
                let n = answer.user_data() as usize;
                if answer.result() >= 0 {
                    outlet.note(n..n + 1, app, done, left);
                } else if outlet.is_to_be_sent_again(-answer.result(), failed) {
                    again.push(requests[n].clone());
                }
            }
            if unanswered == 0 {
                return;
            }
            if let Err(error) = submitted {
                // That of the call, not of one packet.
                let _ = outlet.is_to_be_sent_again(calls::errno(&error), usize::MAX);
            }
        }
        self.stuck = true;
    }
}

impl TrainSender for Uring {
    fn prepare(&mut self, numbers: Numbers) {
        self.requests.clear();
        if self.stuck {
            return;
        }
        self.payloads.prepare(numbers);
        let packets = numbers.len();
        self.outlet.begin(packets);
        let fd = types::Fd(self.outlet.port.link.fd.as_raw_fd());
        self.requests.extend((0..packets).map(|n| {
            let payload = self.payloads.at(n);
            opcode::Send::new(fd, payload.as_ptr(), payload.len() as u32)
                .flags(libc::MSG_DONTWAIT)
                .build()
                .user_data(n as u64)
        }));
    }

    fn send(&mut self, course: Course<'_>, left: &mut [Departure]) {
        let mut course = course.limited(self.requests.len());
        while let Some((which, _)) = course.due_together() {
            let Self { ring, outlet, payloads, .. } = self;
            outlet.get_ready(Manner::SleepSpin, &course, payloads.span(which), left, || {
                // SAFETY: a request to do nothing points to nothing.
                let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
                if pushed.is_ok() {
                    let _ = ring.submit_and_wait(1);
                }
                ring.completion().for_each(drop);
            });
            let Some(which) = course.next(Manner::SleepSpin) else { return };
            self.hand_over(which, left);
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
