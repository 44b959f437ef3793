//! The clock of the hub. By a wrong one, every record would be expired or without a plausible time.

use crate::error::HubError;
use crate::object::time_text;
use crate::period::{DAY_NS, SECOND_NS};
use crate::store::{HubStore, HubTransaction};

/// Maximum difference between the clock and its last value in the database.
const MAX_STEP_NS: u64 = 2 * DAY_NS as u64;

/// Maximum time by which stored times of hubs may be ahead of the clock. Later ones are of a wrong clock.
pub(crate) const MAX_LEAD_NS: i64 = 300 * SECOND_NS;

/// Start of 2024. No hub ran earlier, so an earlier time is that of a wrong clock.
const MIN_TIME_NS: i64 = 19_723 * DAY_NS;

/// Compares the clock with its last value in the database, and stores it.
///
/// # Errors
/// The clock is implausible, or the database failed.
pub(crate) fn check_clock(
    transaction: &mut dyn HubTransaction,
    now_ns: i64,
) -> Result<(), HubError> {
    let last_ns = transaction.clock()?;
    let is_near = last_ns.is_none_or(|last_ns| now_ns.abs_diff(last_ns) <= MAX_STEP_NS);
    if !is_near || now_ns < MIN_TIME_NS {
        return Err(implausible(now_ns, last_ns));
    }
    transaction.set_clock(now_ns)
}

/// Accepts the clock, however far it is from its last value in the database.
///
/// # Errors
/// The clock shows a time before 2024, or the database failed.
pub fn accept_clock(store: &mut dyn HubStore, now_ns: i64) -> Result<(), HubError> {
    if now_ns < MIN_TIME_NS {
        return Err(implausible(now_ns, None));
    }
    let mut transaction = store.begin()?;
    transaction.set_clock(now_ns)?;
    transaction.commit()
}

fn implausible(now_ns: i64, last_ns: Option<i64>) -> HubError {
    // Without an earlier time, only the start of 2024 is a bound.
    let last = time_text(last_ns.unwrap_or(MIN_TIME_NS));
    HubError::Clock { now: time_text(now_ns), last }
}
