//! Sends by io_uring(7): requests are built ahead, and those due together submitted by one call.

use std::ops::Range;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable};
use crate::clock::realtime;
use crate::pacing::pacer::WaitMode;
use crate::sys::syscall;

/// Number of requests in a ring; larger groups take several calls.
const RING_ENTRIES: usize = 256;

/// Maximum number of calls to submit a group of requests.
const MAX_SUBMITS: usize = 100;

/// A sender that sleeps, then spins, and submits prepared requests.
struct Uring {
    /// Dropped before the payloads that its requests point to.
    ring: IoUring,
    tx_socket: TxSocket,
    payloads: Payloads,
    requests: Vec<squeue::Entry>,
    /// Requests that have to be submitted again.
    again: Vec<squeue::Entry>,
    /// The kernel does not answer some requests: the memory they point to must not change any more.
    stuck: bool,
}

/// Opens a sender, whose packets the kernel timestamps if requested.
///
/// # Errors
/// The kernel has no io_uring, or does not permit it.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let failed = |error| {
        let what = "setting up io_uring (see the sysctl kernel.io_uring_disabled)";
        Unavailable::failed(what, &error)
    };
    let ring = IoUring::new(RING_ENTRIES as u32).map_err(failed)?;
    let mut able = Probe::new();
    ring.submitter().register_probe(&mut able).map_err(failed)?;
    if !able.is_supported(opcode::Send::CODE) {
        let why = "io_uring of this kernel cannot send; it needs Linux 5.6";
        return Err(Unavailable::because(why));
    }
    Ok(Box::new(Uring {
        ring,
        tx_socket: TxSocket::open(config.target, config.options)?,
        payloads: config.payloads,
        requests: Vec::new(),
        again: Vec::with_capacity(RING_ENTRIES),
        stuck: false,
    }))
}

impl Uring {
    fn hand_over(&mut self, which: Range<usize>, left: &mut [Departure]) {
        for start in which.clone().step_by(RING_ENTRIES) {
            let end = which.end.min(start + RING_ENTRIES);
            self.again.clear();
            self.again.extend_from_slice(&self.requests[start..end]);
            let mut failed = 0;
            while !self.again.is_empty() && !self.stuck {
                self.submit(failed, left);
                failed += 1;
            }
        }
    }

    /// Submits the requests in `again`, which afterwards holds those to be submitted again.
    fn submit(&mut self, failed: usize, left: &mut [Departure]) {
        let Self { ring, tx_socket, requests, again, .. } = self;
        // SAFETY: the requests point to payloads that `prepare` built. Nothing changes or moves
        // them before all requests are answered; if that fails, `stuck` keeps them unchanged for
        // good.
        let pushed = unsafe { ring.submission().push_multiple(again) };
        assert!(pushed.is_ok(), "the ring is empty and large enough");
        let mut unanswered = again.len();
        again.clear();
        for _ in 0..MAX_SUBMITS {
            let app = realtime();
            // Requests never block, so all are answered when the call returns.
            let submitted = ring.submit_and_wait(unanswered);
            let done = realtime();
            for answer in ring.completion() {
                unanswered -= 1;
                let n = answer.user_data() as usize;
                if answer.result() >= 0 {
                    tx_socket.note(n..n + 1, app, done, left);
                } else if tx_socket.should_retry(-answer.result(), failed) {
                    again.push(requests[n].clone());
                }
            }
            if unanswered == 0 {
                return;
            }
            if let Err(error) = submitted {
                // This error is that of the call, not of one packet.
                let _ = tx_socket.should_retry(syscall::errno(&error), usize::MAX);
            }
        }
        self.stuck = true;
    }
}

impl Engine for Uring {
    fn prepare(&mut self, numbers: Numbers) {
        self.requests.clear();
        if self.stuck {
            return;
        }
        self.payloads.prepare(numbers);
        let packets = numbers.len();
        self.tx_socket.begin(packets);
        let fd = types::Fd(self.tx_socket.socket.fd.as_raw_fd());
        self.requests.extend((0..packets).map(|n| {
            let payload = self.payloads.at(n);
            opcode::Send::new(fd, payload.as_ptr(), payload.len() as u32)
                .flags(libc::MSG_DONTWAIT)
                .build()
                .user_data(n as u64)
        }));
    }

    fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]) {
        let mut progress = progress.limited(self.requests.len());
        while let Some((which, _)) = progress.next_due() {
            let Self { ring, tx_socket, payloads, .. } = self;
            tx_socket.prepare_departure(
                WaitMode::SleepSpin,
                &progress,
                payloads.span(which),
                left,
                || {
                    // SAFETY: a no-op request points to nothing.
                    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
                    if pushed.is_ok() {
                        let _ = ring.submit_and_wait(1);
                    }
                    ring.completion().for_each(drop);
                },
            );
            let Some(which) = progress.next(WaitMode::SleepSpin) else { return };
            self.hand_over(which, left);
        }
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}
