//! Conversions of `timespec` and other time structures of C. On 32-bit ARM, their seconds have 64 bits
//! with musl and 32 bits with glibc.

use std::ffi::{c_int, c_long};
use std::mem;

use dwell_units::Nanos;

/// SO_TIMESTAMPING whose control messages hold three pairs of C's `long` (asm-generic/socket.h).
pub(crate) const SO_TIMESTAMPING_OLD: c_int = 37;
/// SO_TIMESTAMPING whose control messages hold three pairs of 64-bit integers; since Linux 5.1.
pub(crate) const SO_TIMESTAMPING_NEW: c_int = 65;

/// Length of C's `long` in bytes.
pub(crate) const LONG_LEN: usize = mem::size_of::<c_long>();

const NANOS_PER_SEC: i64 = 1_000_000_000;
const MICROS_PER_SEC: i64 = 1_000_000;

/// Converts a field of a C structure, which has 32 or 64 bits.
#[inline]
pub(crate) fn wide(field: impl Into<i64>) -> i64 {
    field.into()
}

/// Converts a number to a field of a C structure. A number that is too large becomes [`i32::MAX`],
/// which is 68 years for seconds.
fn field<T: TryFrom<i64> + From<i32>>(value: i64) -> T {
    T::try_from(value).unwrap_or_else(|_| i32::MAX.into())
}

/// Converts a time, at least 0, to a `timespec`.
pub(crate) fn timespec(time: Nanos) -> libc::timespec {
    // SAFETY: timespec is plain data for which all zeros is valid. A struct literal is impossible,
    // because timespec has private padding on some targets.
    let mut spec: libc::timespec = unsafe { mem::zeroed() };
    spec.tv_sec = field(time.0 / NANOS_PER_SEC);
    spec.tv_nsec = field(time.0 % NANOS_PER_SEC);
    spec
}

/// Converts a time, at least 0, to a `timeval`; drops the part below a microsecond.
pub(crate) fn timeval(time: Nanos) -> libc::timeval {
    let micros = time.0 / 1_000;
    libc::timeval {
        tv_sec: field(micros / MICROS_PER_SEC),
        tv_usec: field(micros % MICROS_PER_SEC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_split_and_too_long_ones_capped() {
        let spec = timespec(Nanos(3_000_000_007));
        assert_eq!((wide(spec.tv_sec), wide(spec.tv_nsec)), (3, 7));
        let val = timeval(Nanos(3_000_007_999));
        assert_eq!((wide(val.tv_sec), wide(val.tv_usec)), (3, 7));
        let longest = wide(timespec(Nanos::MAX).tv_sec);
        let exact = Nanos::MAX.0 / NANOS_PER_SEC;
        assert!(longest == exact || longest == i32::MAX.into(), "{longest}");
    }
}
