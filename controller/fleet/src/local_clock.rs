//! Clocks of this machine.

use std::fs;

use dwell_stats::ClockReading;
use dwell_units::{Instant, Realtime};
use rustix::time::{ClockId, clock_gettime};

/// Number of reads of which the first narrow one is taken.
const MAX_READS: usize = 4;

/// Width in nanoseconds below which a read is narrow.
const NARROW_WIDTH: i64 = 1_000;

/// Returns CLOCK_REALTIME.
pub(crate) fn realtime() -> Instant<Realtime> {
    Instant::from_nanos(nanos(ClockId::Realtime))
}

/// Reads all clocks together; `None` before 1970.
pub(crate) fn reading() -> Option<ClockReading> {
    let read = || {
        let before = nanos(ClockId::MonotonicRaw);
        let monotonic = nanos(ClockId::Monotonic);
        let real = nanos(ClockId::Realtime);
        let width = nanos(ClockId::MonotonicRaw) - before;
        (width, [real, monotonic, before + width / 2])
    };
    let is_narrow = |read: &(i64, _)| read.0 < NARROW_WIDTH;
    let (width, [real, monotonic, raw]) =
        (1..MAX_READS).map(|_| read()).find(is_narrow).unwrap_or_else(read);
    ClockReading::new(real, monotonic, raw, width)
}

/// Returns the id of the running kernel, and so of its CLOCK_REALTIME.
pub(crate) fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
