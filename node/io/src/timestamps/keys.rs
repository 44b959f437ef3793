//! Keys of sent packets (SOF_TIMESTAMPING_OPT_ID): the kernel numbers the packets of a socket, and
//! their timestamps carry the numbers.

use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;

use dwell_units::{Instant, Monotonic, Nanos};

use super::request::restart_key_counter;
use super::{StampRequest, TxStampRequest};
use crate::clock::monotonic;

/// The kernel's key counter of a socket. The kernel takes a key when it builds a packet and returns
/// it if building fails (net/ipv4/ip_output.c, `__ip_append_data`), but not if the packet is dropped
/// afterwards.
pub(crate) struct KeyCounter {
    stamps: StampRequest,
    tx_stamps: TxStampRequest,
    next: u32,
    /// Until then keys are counted but not returned, because timestamps from before the counter
    /// restarted may still arrive.
    withheld_until: Option<Instant<Monotonic>>,
}

impl KeyCounter {
    /// Creates the counter of a socket that has just requested these timestamps.
    pub(crate) const fn new(stamps: StampRequest, tx_stamps: TxStampRequest) -> Self {
        Self { stamps, tx_stamps, next: 0, withheld_until: None }
    }

    /// Returns the requested timestamps.
    pub(crate) const fn stamps(&self) -> StampRequest {
        self.stamps
    }

    /// Whether timestamps of sent packets will arrive.
    #[inline]
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamps != StampRequest::User && self.tx_stamps != TxStampRequest::None
    }

    /// Returns the key of the packet just sent, if its timestamps will arrive.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        let key = self.is_stamped().then_some(self.next);
        self.next = self.next.wrapping_add(1);
        if self.withheld_until.is_some_and(|until| until <= monotonic()) {
            self.withheld_until = None;
        }
        key.filter(|_| self.withheld_until.is_none())
    }

    /// Counts the key of a packet that could not be sent, if the packet was built and so took one: a
    /// queueing discipline dropped it (reported only because of IP_RECVERR), or a packet filter did.
    pub(crate) fn skip_if_taken(&mut self, errno: c_int) {
        if matches!(errno, libc::ENOBUFS | libc::EPERM) {
            self.next = self.next.wrapping_add(1);
        }
    }

    /// Restarts the kernel's counter after a packet could not be sent and may or may not have taken
    /// a key. Keys are withheld for `quiet`, until timestamps under way have arrived.
    ///
    /// # Errors
    /// The kernel refused; keys are withheld until a later call succeeds.
    pub(crate) fn restart(&mut self, fd: &OwnedFd, quiet: Nanos) -> io::Result<()> {
        if !self.is_stamped() {
            return Ok(());
        }
        let restarted = restart_key_counter(fd, self.stamps, self.tx_stamps);
        let quiet = if restarted.is_ok() { quiet } else { Nanos::MAX };
        self.next = 0;
        self.withheld_until = (quiet > Nanos::ZERO).then(|| monotonic().saturating_add(quiet));
        restarted
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn keys_are_counted_and_withheld_after_a_restart() {
        let mut unstamped = KeyCounter::new(StampRequest::User, TxStampRequest::Driver);
        assert_eq!(unstamped.take(), None);
        let fd = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut keys = KeyCounter::new(StampRequest::Kernel, TxStampRequest::Driver);
        assert_eq!([keys.take(), keys.take()], [Some(0), Some(1)]);
        keys.skip_if_taken(libc::ENOBUFS);
        keys.skip_if_taken(libc::EMSGSIZE);
        assert_eq!(keys.take(), Some(3));
        keys.restart(&fd, Nanos::from_secs(1_000)).unwrap();
        assert_eq!(keys.take(), None);
        keys.restart(&fd, Nanos::ZERO).unwrap();
        assert_eq!(keys.take(), Some(0));
    }
}
