//! The system clocks and pairings of them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;

use dwell_host::KernelClock;
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

use crate::sys::sockopt::check;
use crate::sys::time::{timespec, wide};

fn read(id: libc::clockid_t) -> (i64, i64) {
    let mut ts = timespec(Nanos::ZERO);
    // SAFETY: `ts` is a valid, exclusively borrowed timespec, and clock_gettime only writes to it.
    let rc = unsafe { libc::clock_gettime(id, &mut ts) };
    debug_assert_eq!(rc, 0, "the clocks of this module exist on every Linux");
    (wide(ts.tv_sec), wide(ts.tv_nsec))
}

/// CLOCK_REALTIME now.
#[inline]
pub fn realtime() -> Instant<Realtime> {
    let (sec, nsec) = read(libc::CLOCK_REALTIME);
    Instant::from_parts(sec, nsec)
}

/// CLOCK_MONOTONIC now.
#[inline]
pub fn monotonic() -> Instant<Monotonic> {
    let (sec, nsec) = read(libc::CLOCK_MONOTONIC);
    Instant::from_parts(sec, nsec)
}

/// Returns CLOCK_BOOTTIME minus CLOCK_MONOTONIC: the time that the machine was suspended. Accurate to
/// the time between two clock reads.
pub fn suspended() -> Nanos {
    let before = monotonic();
    let (sec, nsec) = read(libc::CLOCK_BOOTTIME);
    let now = before + Nanos((monotonic() - before).0 / 2);
    Nanos(sec * 1_000_000_000 + nsec - now.as_nanos())
}

/// Sleeps until `until`, or slightly longer. The kernel gets an absolute time, so a delay before
/// the call does not prolong the sleep.
pub fn sleep_until(until: Instant<Monotonic>) {
    let until = timespec(Nanos(until.as_nanos().max(0)));
    // SAFETY: the kernel only reads one valid timespec; the pointer for the remaining time is null.
    let sleep = || unsafe {
        let id = libc::CLOCK_MONOTONIC;
        libc::clock_nanosleep(id, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
    };
    let rc = loop {
        match sleep() {
            libc::EINTR => {}
            rc => break rc,
        }
    };
    debug_assert_eq!(rc, 0, "CLOCK_MONOTONIC exists and the instant is valid");
}

/// Pairs the two clocks at one moment: the tightest of 1,000 reads of CLOCK_REALTIME, each between
/// two reads of CLOCK_MONOTONIC. Takes about 60 us.
pub fn pair() -> Pairing {
    (1..1_000).map(|_| bracket()).fold(
        bracket(),
        |best, next| {
            if next.width < best.width { next } else { best }
        },
    )
}

/// Like [`pair`], but returns the first bracket narrower than 1 us, of at most four. Takes the time
/// of three clock reads if not interrupted. More attempts would not help where a read itself is
/// slow.
pub fn quick_pair() -> Pairing {
    let is_narrow = |bracket: &Pairing| bracket.width < Nanos::from_micros(1);
    (1..4).map(|_| bracket()).find(is_narrow).unwrap_or_else(bracket)
}

fn bracket() -> Pairing {
    let before = monotonic();
    let real = realtime();
    let width = monotonic() - before;
    Pairing { real, mono: before + Nanos(width.0 / 2), width }
}

/// The clocks of this machine, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Time on CLOCK_REALTIME.
    pub real: Instant<Realtime>,
    /// Time on CLOCK_MONOTONIC.
    pub mono: Instant<Monotonic>,
    /// Time on CLOCK_MONOTONIC_RAW in nanoseconds, which no daemon steers.
    pub raw_ns: i64,
    /// Width of the bracket: the reads are at most this far apart.
    pub width: Nanos,
}

/// Reads the clocks together. Returns the first bracket narrower than 1 us, of at most four.
pub fn read_all() -> ClockReading {
    let raw = || {
        let (sec, nsec) = read(libc::CLOCK_MONOTONIC_RAW);
        sec * 1_000_000_000 + nsec
    };
    let bracket = || {
        let before = raw();
        let (mono, real) = (monotonic(), realtime());
        let width = raw() - before;
        ClockReading { real, mono, raw_ns: before + width / 2, width: Nanos(width) }
    };
    let is_narrow = |bracket: &ClockReading| bracket.width < Nanos::from_micros(1);
    (1..4).map(|_| bracket()).find(is_narrow).unwrap_or_else(bracket)
}

/// Returns the kernel's record of CLOCK_REALTIME; `None` if it cannot be read.
pub fn kernel_clock() -> Option<KernelClock> {
    // SAFETY: timex is plain data for which all zeros is valid and asks for no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes one timex, exclusively borrowed.
    let state = unsafe { libc::adjtimex(&mut timex) };
    // A tick is nominally 10,000 us, so a microsecond of it is 100 ppm; `freq` has 16 fractional bits.
    let frequency_ppm =
        wide(timex.freq) as f64 / 65_536.0 + (wide(timex.tick) - 10_000) as f64 * 100.0;
    (state >= 0).then(|| KernelClock {
        synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        max_error_ns: Nanos::from_micros(wide(timex.maxerror)).0,
        frequency_ppm,
    })
}

/// Returns the maximum error of CLOCK_REALTIME against UTC, as reported to the kernel by a
/// synchronisation daemon (NTP, PTP); `None` if the clock is not synchronised (adjtimex(2):
/// TIME_ERROR or STA_UNSYNC).
pub fn utc_error() -> Option<Nanos> {
    let clock = kernel_clock().filter(|clock| clock.synchronised)?;
    Some(Nanos(clock.max_error_ns))
}

/// Returns CLOCK_TAI minus CLOCK_REALTIME, as set by a synchronisation daemon: whole seconds, 0 if
/// never set.
pub fn tai_offset() -> Nanos {
    // SAFETY: timex is plain data for which all zeros is valid and asks for no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes one timex, exclusively borrowed.
    let state = unsafe { libc::adjtimex(&mut timex) };
    if state < 0 { Nanos::ZERO } else { Nanos::from_secs(i64::from(timex.tai)) }
}

/// Notices steps of CLOCK_REALTIME: clock_settime(2), ADJ_SETOFFSET of adjtimex(2), leap seconds and
/// resume. Changes of its frequency, or of CLOCK_TAI's offset alone, are not steps.
#[derive(Debug)]
pub struct StepWatch(File);

impl StepWatch {
    /// Starts to watch, with a timer that a step cancels (TFD_TIMER_CANCEL_ON_SET, timerfd_create(2)).
    ///
    /// # Errors
    /// No descriptor or memory is available.
    pub fn new() -> io::Result<Self> {
        let kind = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes plain integers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_REALTIME, kind) })?;
        // SAFETY: `fd` was just created, and nothing else owns it.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        let (zero, never) = (timespec(Nanos::ZERO), timespec(Nanos::MAX));
        let times = libc::itimerspec { it_interval: zero, it_value: never };
        let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
        // SAFETY: the kernel reads `times`, which outlives the call, and writes nothing.
        check(unsafe { libc::timerfd_settime(timer.as_raw_fd(), flags, &times, ptr::null_mut()) })?;
        Ok(Self(timer.into()))
    }

    /// Waits at most `timeout` for a step, in whole milliseconds. Returns whether there was one since
    /// the last call. A signal ends the wait early.
    ///
    /// # Errors
    /// The timer cannot be read.
    pub fn wait(&mut self, timeout: Nanos) -> io::Result<bool> {
        let millis = i32::try_from(timeout.0 / 1_000_000).unwrap_or(i32::MAX);
        let mut polled = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel reads and writes one pollfd, exclusively borrowed.
        match check(unsafe { libc::poll(&mut polled, 1, millis) }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        match self.0.read(&mut [0; 8]) {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
            Ok(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps CLOCK_REALTIME by a nanosecond forwards or back. Returns whether that is permitted.
    fn step_clock(forwards: bool) -> bool {
        // SAFETY: timex is plain data for which all zeros is valid and asks for no change.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        timex.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
        // -1 s + 999,999,999 ns.
        (timex.time.tv_sec, timex.time.tv_usec) = if forwards { (0, 1) } else { (-1, 999_999_999) };
        // SAFETY: the kernel reads and writes one timex, exclusively borrowed.
        (unsafe { libc::adjtimex(&mut timex) }) >= 0
    }

    #[test]
    fn clock_step_ends_the_wait() {
        const TEST: &str = "clock::tests::clock_step_ends_the_wait";
        // A step makes the kernel forget that the clock is synchronised.
        if utc_error().is_some() {
            println!("SKIP {TEST}: the clock is synchronised, which a step would end");
            return;
        }
        let mut watch = StepWatch::new().unwrap();
        for forwards in [true, false] {
            assert!(!watch.wait(Nanos::ZERO).unwrap(), "no step yet");
            if !step_clock(forwards) {
                println!("SKIP {TEST}: needs CAP_SYS_TIME");
                return;
            }
            let before = monotonic();
            assert!(watch.wait(Nanos::from_secs(60)).unwrap());
            assert!(monotonic() - before < Nanos::from_secs(30));
        }
    }

    #[test]
    fn sleep_never_ends_early_and_past_deadline_returns_at_once() {
        let due = monotonic() + Nanos::from_millis(2);
        sleep_until(due);
        assert!(monotonic() >= due);
        let before = monotonic();
        sleep_until(due - Nanos::from_secs(3_600));
        sleep_until(Instant::from_nanos(-1));
        assert!(monotonic() - before < Nanos::from_secs(60));
    }

    #[test]
    fn clocks_are_read_together() {
        let (first, second) = (read_all(), read_all());
        assert!(first.real <= second.real && first.mono <= second.mono);
        assert!(first.raw_ns <= second.raw_ns && first.width >= Nanos::ZERO);
        let pairing =
            |read: &ClockReading| Pairing { real: read.real, mono: read.mono, width: read.width };
        assert_eq!(pairing(&first).step_until(&pairing(&second)), None, "{first:?} {second:?}");
    }

    #[test]
    fn consecutive_pairings_agree() {
        let (first, second) = (pair(), pair());
        assert_eq!(first.step_until(&second), None, "{first:?} {second:?}");
    }
}
