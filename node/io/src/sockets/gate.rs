//! Ending or suspending reception on a socket from another thread.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::sys::sockopt;

/// Ends receive calls on a [`DatagramSocket`](crate::datagram::DatagramSocket).
#[derive(Debug)]
pub struct Shutter(pub(super) OwnedFd);

impl Shutter {
    /// Makes receive calls return at once, with nothing, from now on.
    pub fn shut(&self) {
        // SAFETY: takes plain integers. Linux shuts down an unconnected socket too, although it
        // returns ENOTCONN (net/ipv4/af_inet.c, inet_shutdown).
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RD) };
    }
}

/// Admits packets to a socket or drops them. A shut gate drops packets before they are
/// queued, which costs a sender on the same machine next to nothing. Queued packets would take
/// memory outside its caches, and reading them would take CPU time.
#[derive(Debug)]
pub struct Gate {
    fd: OwnedFd,
    /// Drop counter of the kernel when the gate was shut.
    shut_at: Option<u64>,
    unread: u64,
}

impl Gate {
    /// Creates an open gate of the socket of `fd`.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, shut_at: None, unread: 0 }
    }

    /// Shuts the gate, provided that the kernel counts the packets it drops.
    pub fn shut(&mut self) {
        if self.shut_at.is_none() {
            let dropped = sockopt::drop_count(&self.fd);
            self.shut_at = dropped.filter(|_| sockopt::drop_all(&self.fd, true).is_ok());
        }
    }

    /// Opens the gate.
    pub fn open(&mut self) -> io::Result<()> {
        if self.shut_at.is_some() {
            sockopt::drop_all(&self.fd, false)?;
            self.unread = self.unread();
            self.shut_at = None;
        }
        Ok(())
    }

    /// Returns the number of packets that arrived while it was shut.
    pub fn unread(&self) -> u64 {
        let now = self.shut_at.and_then(|_| sockopt::drop_count(&self.fd));
        // The kernel's counter has 32 bits.
        let since = |(now, then): (u64, u64)| u64::from((now as u32).wrapping_sub(then as u32));
        self.unread + now.zip(self.shut_at).map_or(0, since)
    }
}
