//! The system clocks and pairings of them.

use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

fn read(id: libc::clockid_t) -> (i64, i64) {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid, exclusively borrowed timespec, and clock_gettime only writes to it.
    let rc = unsafe { libc::clock_gettime(id, &mut ts) };
    debug_assert_eq!(rc, 0, "CLOCK_REALTIME and CLOCK_MONOTONIC exist on every Linux");
    (ts.tv_sec, ts.tv_nsec)
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

/// Sleeps until `until`, or slightly longer. The kernel gets an absolute time, so a delay before
/// the call does not prolong the sleep.
pub fn sleep_until(until: Instant<Monotonic>) {
    let nanos = until.as_nanos().max(0);
    let until = libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    };
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

/// Returns the maximum error of CLOCK_REALTIME against UTC, as reported to the kernel by a
/// synchronisation daemon (NTP, PTP); `None` if the clock is not synchronised (adjtimex(2):
/// TIME_ERROR or STA_UNSYNC).
pub fn utc_error() -> Option<Nanos> {
    // SAFETY: timex is plain data for which all zeros is valid and asks for no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes one timex, exclusively borrowed.
    let state = unsafe { libc::adjtimex(&mut timex) };
    let synchronised =
        state >= 0 && state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    synchronised.then(|| Nanos::from_micros(timex.maxerror))
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn consecutive_pairings_agree() {
        let (first, second) = (pair(), pair());
        assert_eq!(first.step_until(&second), None, "{first:?} {second:?}");
    }
}
