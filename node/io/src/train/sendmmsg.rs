//! Packets due together leave by one sendmmsg(2).

use std::ffi::c_long;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;

use dwell_units::Nanos;

use super::outlet::Outlet;
use super::{Course, Departure, Numbers, Payloads, Stamping, TrainSender, Unavailable};
use crate::calls;
use crate::clock::realtime;
use crate::pacer::Manner;
use crate::port::PortOptions;

/// A sender that sleeps, then spins, and sends packets due together in one call.
pub struct Sendmmsg {
    outlet: Outlet,
    payloads: Payloads,
    iovs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `iovs` and `headers` point to memory that this value owns.
unsafe impl Send for Sendmmsg {}

impl Sendmmsg {
    /// Opens a sender to `target`; the kernel timestamps its packets if `options` request it.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn new(
        target: SocketAddr,
        options: &PortOptions,
        payloads: Payloads,
    ) -> Result<Self, Unavailable> {
        let outlet = Outlet::open(target, options)?;
        Ok(Self { outlet, payloads, iovs: Vec::new(), headers: Vec::new() })
    }

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
                    c_long::from(self.outlet.port.link.fd.as_raw_fd()),
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
                    self.outlet.lose_keys();
                }
                self.outlet.note(rest.start..rest.start + sent, app, done, left);
                rest.start += sent;
                failed = 0;
            } else if self.outlet.is_to_be_sent_again(calls::errno(&error), failed) {
                failed += 1;
            } else {
                // The call fails only if its first message does.
                rest.start += 1;
                failed = 0;
            }
        }
    }
}

impl TrainSender for Sendmmsg {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.outlet.begin(numbers.len());
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

    fn send(&mut self, mut course: Course<'_>, left: &mut [Departure]) {
        while let Some((which, _)) = course.due_together() {
            let memory = self.payloads.span(which);
            self.outlet.get_ready(Manner::SleepSpin, &course, memory, left, || {});
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
