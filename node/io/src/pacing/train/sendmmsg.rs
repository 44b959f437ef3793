//! Packets due together leave by one sendmmsg(2).

use std::ffi::c_long;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, SenderConfig, TrainProgress, Unavailable};
use crate::clock::realtime;
use crate::pacing::pacer::WaitMode;
use crate::sys::syscall;

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
pub(super) fn open(config: SenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
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
            // nothing has moved since; the kernel reads them and writes the lengths sent.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_sendmmsg,
                    c_long::from(self.tx_socket.port.link.fd.as_raw_fd()),
                    headers.as_mut_ptr(),
                    headers.len(),
                    c_long::from(libc::MSG_DONTWAIT),
                )
            };
            let error = io::Error::last_os_error();
            let done = realtime();
            if let Ok(sent) = usize::try_from(sent) {
                if sent < rest.len() {
                    // The kernel does not report why (net/socket.c, __sys_sendmmsg).
                    self.tx_socket.lose_keys();
                }
                self.tx_socket.note(rest.start..rest.start + sent, app, done, left);
                rest.start += sent;
                failed = 0;
            } else if self.tx_socket.should_retry(syscall::errno(&error), failed) {
                failed += 1;
            } else {
                // The call fails only if its first message does.
                rest.start += 1;
                failed = 0;
            }
        }
    }
}

impl Engine for Sendmmsg {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.tx_socket.begin(numbers.len());
        self.iovs.clear();
        self.iovs.extend((0..numbers.len()).map(|n| {
            let payload = self.payloads.at(n);
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() }
        }));
        self.headers.clear();
        self.headers.extend(self.iovs.iter_mut().map(|iov| {
            // SAFETY: mmsghdr is plain data for which all zeros is valid.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_iov = iov;
            header.msg_hdr.msg_iovlen = 1;
            header
        }));
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
