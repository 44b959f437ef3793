//! Packets due together leave by one sendmmsg(2).

use std::ops::Range;
use std::slice;

use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable};
use crate::clock::realtime;
use crate::pacing::pacer::WaitMode;
use crate::sys::{control, syscall};

/// A sender that sleeps, then spins, and sends packets due together in one call.
struct Sendmmsg {
    tx_socket: TxSocket,
    payloads: Payloads,
    iovs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `iovs` and `headers` point to memory that this value owns.
unsafe impl Send for Sendmmsg {}

/// Opens a sender, whose packets the kernel timestamps if requested.
///
/// # Errors
/// The socket cannot be opened.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let tx_socket = TxSocket::open(config.target, config.options)?;
    let payloads = config.payloads;
    Ok(Box::new(Sendmmsg { tx_socket, payloads, iovs: Vec::new(), headers: Vec::new() }))
}

impl Sendmmsg {
    fn hand_over(&mut self, which: Range<usize>, left: &mut [Departure]) {
        let mut rest = which;
        let mut failed = 0;
        while !rest.is_empty() {
            let headers = &mut self.headers[rest.clone()];
            let app = realtime();
            // SAFETY: the headers point to iovecs and those to payloads that `prepare` made, which
            // nothing has moved since.
            let sent = unsafe {
                syscall::send_messages(&self.tx_socket.socket.fd, headers, libc::MSG_DONTWAIT)
            };
            let done = realtime();
            match sent {
                Ok(sent) => {
                    if sent < rest.len() {
                        // The call does not report why it stopped early.
                        self.tx_socket.lose_keys();
                    }
                    self.tx_socket.note(rest.start..rest.start + sent, app, done, left);
                    rest.start += sent;
                    failed = 0;
                }
                Err(error) if self.tx_socket.should_retry(syscall::errno(&error), failed) => {
                    failed += 1;
                }
                Err(_) => {
                    rest.start += 1;
                    failed = 0;
                }
            }
        }
    }
}

impl Engine for Sendmmsg {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.tx_socket.begin(numbers.len());
        self.iovs.clear();
        self.iovs.extend((0..numbers.len()).map(|n| control::iovec(self.payloads.at(n))));
        self.headers.clear();
        let one =
            |iov| libc::mmsghdr { msg_hdr: control::header(slice::from_mut(iov)), msg_len: 0 };
        self.headers.extend(self.iovs.iter_mut().map(one));
    }

    fn send(&mut self, mut progress: TrainProgress<'_>, left: &mut [Departure]) {
        while let Some((which, _)) = progress.next_due() {
            let memory = self.payloads.span(which);
            self.tx_socket.prepare_departure(WaitMode::SleepSpin, &progress, memory, left, || {});
            let Some(which) = progress.next(WaitMode::SleepSpin) else { return };
            self.hand_over(which, left);
        }
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}
