//! epoll(7): waiting for many sockets at once.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use dwell_units::{Instant, Monotonic, Nanos};

use crate::sockets::port::Wait;
use crate::sys::sockopt::check;
use crate::sys::time::timespec;

/// Token of the timer; no socket has it.
const TICK_TOKEN: u64 = u64::MAX - 1;

/// Waits for sockets, level-triggered. A closed socket is removed automatically, unless another
/// descriptor table holds it too.
#[derive(Debug)]
pub struct Poller {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// Number of events that the last wait returned.
    reported: usize,
    timer: Option<File>,
}

/// A socket with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Token given to [`Poller::add`].
    pub token: u64,
    /// Data can be received, or the stream has ended.
    pub readable: bool,
    /// The error queue has an entry.
    pub error: bool,
    /// Data can be sent; see [`Poller::add_stream`].
    pub writable: bool,
    /// The peer of a stream closed its side, or the connection failed.
    pub closed: bool,
    /// Both directions of a stream have ended.
    pub ended: bool,
}

/// Condition that a socket is polled for. Errors and the end of a stream are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data can be received.
    Readable,
    /// Data can be sent.
    Writable,
    /// Only errors and the end of a stream.
    Ended,
}

impl Interest {
    const fn events(self) -> u32 {
        match self {
            Self::Readable => libc::EPOLLIN as u32,
            Self::Writable => libc::EPOLLOUT as u32,
            Self::Ended => 0,
        }
    }
}

impl Poller {
    /// Creates a poller that reports at most `max_events` sockets (at least one) per wait.
    pub fn new(max_events: usize) -> io::Result<Self> {
        // SAFETY: takes flags only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just created, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; max_events.max(1)];
        Ok(Self { fd, events, reported: 0, timer: None })
    }

    /// Makes every wait end at least this often, with one timer for all waits. A time-out per wait
    /// would set a timer each time, and cancelling it would delay the packet that ends the wait.
    pub fn tick(&mut self, every: Nanos) -> io::Result<()> {
        let times = libc::itimerspec { it_interval: timespec(every), it_value: timespec(every) };
        self.set_timer(0, &times)
    }

    /// Makes a wait end at `at`, once; replaces [`Self::tick`] and any earlier alarm.
    pub fn alarm(&mut self, at: Instant<Monotonic>) -> io::Result<()> {
        // 0 would disarm the timer.
        let at = timespec(Nanos(at.as_nanos().max(1)));
        let times = libc::itimerspec { it_interval: timespec(Nanos::ZERO), it_value: at };
        self.set_timer(libc::TFD_TIMER_ABSTIME, &times)
    }

    /// Sets the timer; creates it first if needed.
    fn set_timer(&mut self, flags: libc::c_int, times: &libc::itimerspec) -> io::Result<()> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => {
                let kind = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
                // SAFETY: takes plain integers.
                let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, kind) })?;
                // SAFETY: `fd` was just created, and nothing else owns it.
                let timer = unsafe { OwnedFd::from_raw_fd(fd) };
                self.add(&timer, TICK_TOKEN)?;
                timer.into()
            }
        };
        let fd = self.timer.insert(timer).as_raw_fd();
        // SAFETY: the kernel reads `times`, which outlives the call, and writes nothing.
        check(unsafe { libc::timerfd_settime(fd, flags, times, ptr::null_mut()) }).map(drop)
    }

    /// Starts reporting data and errors of `socket` under `token`, which may be any value but
    /// `u64::MAX - 1`.
    pub fn add(&mut self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, token, Interest::Readable)
    }

    /// Changes what an added socket is polled for.
    pub fn change(&mut self, socket: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, token, interest)
    }

    fn control(
        &mut self,
        operation: libc::c_int,
        socket: &impl AsFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.events(), u64: token };
        let (poller, socket) = (self.fd.as_raw_fd(), socket.as_fd().as_raw_fd());
        // SAFETY: the kernel reads one epoll_event, which outlives the call.
        check(unsafe { libc::epoll_ctl(poller, operation, socket, &mut event) }).map(drop)
    }

    /// Starts reporting each time that `stream` becomes writable or its peer closes it
    /// (edge-triggered). `token` as in [`Poller::add`].
    pub fn add_stream(&mut self, stream: &impl AsFd, token: u64) -> io::Result<()> {
        let events = libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let (poller, stream) = (self.fd.as_raw_fd(), stream.as_fd().as_raw_fd());
        // SAFETY: the kernel reads one epoll_event, which outlives the call.
        check(unsafe { libc::epoll_ctl(poller, libc::EPOLL_CTL_ADD, stream, &mut event) }).map(drop)
    }

    /// Waits for events and returns the number of sockets that have one. A signal or a tick ends it
    /// early.
    pub fn wait(&mut self, wait: Wait) -> io::Result<usize> {
        let millis = match wait {
            Wait::No => 0,
            Wait::AtMost(time) => i32::try_from(time.0 / 1_000_000).unwrap_or(i32::MAX).max(1),
            Wait::Forever => -1,
        };
        let max_events = self.events.len() as libc::c_int;
        // SAFETY: the kernel writes at most `max_events` events to `events`, which has that many.
        let count = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), max_events, millis)
        };
        self.reported = match check(count) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let tick = self.events[..self.reported].iter().position(|event| event.u64 == TICK_TOKEN);
        if let (Some(tick), Some(timer)) = (tick, &mut self.timer) {
            // The timer stays readable until read; the number of ticks does not matter.
            let _ = timer.read(&mut [0; 8]);
            self.reported -= 1;
            self.events.swap(tick, self.reported);
        }
        Ok(self.reported)
    }

    /// Returns the `n`th socket that the last wait reported.
    ///
    /// # Panics
    /// If it reported fewer.
    pub fn ready(&self, n: usize) -> Ready {
        let event = self.events[..self.reported][n];
        let has = |bits: libc::c_int| event.events & bits as u32 != 0;
        Ready {
            token: event.u64,
            readable: has(libc::EPOLLIN | libc::EPOLLHUP),
            error: has(libc::EPOLLERR),
            writable: has(libc::EPOLLOUT),
            closed: has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
            ended: has(libc::EPOLLHUP),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn tick_ends_endless_wait_without_reporting_sockets() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new(4).unwrap();
        poller.add(&socket, u64::MAX).unwrap();
        poller.tick(Nanos::from_millis(1)).unwrap();
        for _ in 0..3 {
            assert_eq!(poller.wait(Wait::Forever).unwrap(), 0);
        }
        socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        // However many ticks there are, the socket is reported.
        let reported = (0..1_000).any(|_| poller.wait(Wait::Forever).unwrap() > 0);
        assert!(reported);
        assert_eq!(poller.ready(0).token, u64::MAX);
        assert!(poller.ready(0).readable && !poller.ready(0).error);
    }

    #[test]
    fn alarm_ends_endless_wait_once() {
        let mut poller = Poller::new(4).unwrap();
        for _ in 0..2 {
            let at = monotonic() + Nanos::from_millis(2);
            poller.alarm(at).unwrap();
            assert_eq!(poller.wait(Wait::Forever).unwrap(), 0);
            assert!(monotonic() >= at);
        }
    }

    #[test]
    fn socket_is_reported_for_the_current_interest_only() {
        let (socket, peer) = UnixStream::pair().unwrap();
        let mut poller = Poller::new(4).unwrap();
        poller.add(&socket, 7).unwrap();
        (&peer).write_all(&[1]).unwrap();
        assert_eq!(poller.wait(Wait::No).unwrap(), 1);
        poller.change(&socket, 7, Interest::Ended).unwrap();
        assert_eq!(poller.wait(Wait::No).unwrap(), 0);
        poller.change(&socket, 7, Interest::Writable).unwrap();
        assert_eq!(poller.wait(Wait::No).unwrap(), 1);
        poller.change(&socket, 7, Interest::Ended).unwrap();
        drop(peer);
        assert_eq!(poller.wait(Wait::No).unwrap(), 1);
        assert!(poller.ready(0).ended);
    }
}
