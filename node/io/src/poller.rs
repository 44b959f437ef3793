//! epoll(7): waiting for many sockets at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::port::Wait;
use crate::socket::check;

/// Waits for sockets, level-triggered. One that is closed is forgotten, unless another table of
/// descriptors has it too.
#[derive(Debug)]
pub struct Poller {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    came: usize,
}

/// A socket that something happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What [`Poller::add`] was given.
    pub token: u64,
    /// There is something to receive, or an end.
    pub readable: bool,
    /// There is something in the error queue.
    pub error: bool,
}

impl Poller {
    /// Tells of at most `most` sockets (at least one) at a time.
    pub fn new(most: usize) -> io::Result<Self> {
        // SAFETY: takes flags only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; most.max(1)], came: 0 })
    }

    /// From now on tells when `socket` has something to receive or an error.
    pub fn add(&mut self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let (poller, socket) = (self.fd.as_raw_fd(), socket.as_fd().as_raw_fd());
        // SAFETY: the kernel reads one epoll_event, which outlives the call.
        check(unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_ADD, socket, &mut event) }).map(drop)
    }

    /// Waits until something happened to a socket; returns to how many. A signal ends it early.
    pub fn wait(&mut self, wait: Wait) -> io::Result<usize> {
        let millis = match wait {
            Wait::No => 0,
            Wait::AtMost(time) => i32::try_from(time.0 / 1_000_000).unwrap_or(i32::MAX).max(1),
            Wait::Forever => -1,
        };
        let most = self.events.len() as libc::c_int;
        // SAFETY: the kernel writes at most `most` events to `events`, which has that many.
        let came = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), most, millis)
        };
        self.came = match check(came) {
            Ok(came) => came as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(self.came)
    }

    /// The `n`th of those that the last wait told of.
    ///
    /// # Panics
    /// It told of fewer.
    pub fn ready(&self, n: usize) -> Ready {
        let event = self.events[..self.came][n];
        let has = |bits: libc::c_int| event.events & bits as u32 != 0;
        Ready {
            token: event.u64,
            readable: has(libc::EPOLLIN | libc::EPOLLHUP),
            error: has(libc::EPOLLERR),
        }
    }
}
