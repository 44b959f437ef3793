//! Requests for samples, kept in the database.

use std::path::Path;

use dwell_rollup::Name;
use dwell_store::{FleetSamples, remove_fleet_samples};
use serde::{Deserialize, Serialize};

use crate::clock::check_clock;
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::store::{HubStore, HubTransaction, TextKind};

/// Age at which a request ends in any case.
const MAX_AGE_NS: i64 = 15 * DAY_NS;

/// Maximum time from a probe to the record of its sample: the age of a block, a time-out, and a reserve.
const MAX_RECORD_DELAY_NS: i64 = 400 * SECOND_NS;

/// A request for the samples of a pair in a span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// Number, from 1.
    pub number: u64,
    /// Node that sends the probes, and keeps the samples.
    pub sender: Name,
    /// Node that reflects them.
    pub reflector: Name,
    /// Start of the span in nanoseconds since 1970, by the clock of the sender.
    pub from_ns: i64,
    /// End; not part of the span.
    pub to_ns: i64,
    /// Time of the request.
    pub requested_ns: i64,
    /// Who requested it, as `USER@HOST`, or `alert RULE`.
    pub author: String,
    /// State.
    #[serde(default)]
    pub state: SampleRequestState,
    /// Time at which it ended.
    #[serde(default)]
    pub ended_ns: Option<i64>,
    /// Older samples were dropped by the full spool of the node; `None` if none were in the span.
    #[serde(default)]
    pub gone_before_ns: Option<i64>,
}

/// State of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleRequestState {
    /// Samples may still arrive.
    #[default]
    Pending,
    /// All samples of the span that the node had are stored.
    Complete,
    /// Ended after 15 days. The node was not reachable after the end of the span.
    Expired,
}

impl SampleRequestState {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Expired => "expired",
        }
    }
}

impl SampleRequest {
    /// First and last time at which the node writes records with samples of the span.
    pub(crate) const fn written_ns(&self) -> (i64, i64) {
        (self.from_ns, self.to_ns.saturating_add(MAX_RECORD_DELAY_NS))
    }

    /// Whether a span that ends with `last_ns` has a part of this one.
    pub fn overlaps(&self, first_ns: i64, last_ns: i64) -> bool {
        first_ns < self.to_ns && last_ns >= self.from_ns
    }

    /// Whether a file has samples of the pair and the span.
    pub fn is_answered_by(&self, about: &FleetSamples) -> bool {
        about.sender == self.sender.as_str()
            && about.reflector == self.reflector.as_str()
            && self.overlaps(about.from_ns, about.to_ns)
    }

    /// Ends the request if it is too old, or after everything that the node had was read.
    pub(crate) fn end(&mut self, now_ns: i64, is_read: bool) {
        let is_old = now_ns.saturating_sub(self.requested_ns) >= MAX_AGE_NS;
        let is_complete = is_read && now_ns > self.written_ns().1;
        if self.state == SampleRequestState::Pending && (is_old || is_complete) {
            self.state = match is_complete {
                true => SampleRequestState::Complete,
                false => SampleRequestState::Expired,
            };
            self.ended_ns = Some(now_ns);
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.sender, self.number)
    }

    pub(crate) fn store(&self, transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
        let text =
            serde_json::to_string(self).map_err(|error| HubError::stored("request", error))?;
        transaction.set_text(TextKind::SampleRequest, &self.key(), Some(&text))
    }
}

/// Returns all requests, by number.
///
/// # Errors
/// The database failed.
pub fn requests(transaction: &mut dyn HubTransaction) -> Result<Vec<SampleRequest>, HubError> {
    let texts = transaction.texts(TextKind::SampleRequest)?.into_values();
    let parsed = texts.map(|text| serde_json::from_str(&text));
    let mut requests: Vec<SampleRequest> =
        parsed.collect::<Result<_, _>>().map_err(|error| HubError::stored("request", error))?;
    requests.sort_unstable_by_key(|request| request.number);
    Ok(requests)
}

/// Author of a request that the evaluation of an alert rule makes. Those of persons contain `@`.
pub(crate) fn alert_author(rule: &str) -> String {
    format!("alert {rule}")
}

/// Locks the numbers of requests until the end of the transaction. In a database with row locks, another
/// transaction waits here, and reads afterwards what this one stored.
pub(crate) fn lock_requests(transaction: &mut dyn HubTransaction) -> Result<(), HubError> {
    transaction.set_text(TextKind::SampleLock, "", Some(""))
}

/// Stores a request under the next number, which is returned. Another transaction that does the same
/// waits until this one ends.
///
/// # Errors
/// The database failed.
pub fn add_request(
    transaction: &mut dyn HubTransaction,
    request: SampleRequest,
) -> Result<u64, HubError> {
    lock_requests(transaction)?;
    let number = requests(transaction)?.last().map_or(1, |last| last.number + 1);
    SampleRequest { number, ..request }.store(transaction)?;
    Ok(number)
}

/// Removes the samples of days that ended more than `days` ago from the data directory `dir`, and requests
/// that ended as long ago. The last request stays, so that its number is not given again.
///
/// # Errors
/// The database failed, the clock is implausible, or a file cannot be removed.
pub fn expire_samples(
    store: &mut dyn HubStore,
    dir: &Path,
    days: u32,
    now_ns: i64,
) -> Result<(), HubError> {
    let mut transaction = store.begin()?;
    check_clock(&mut *transaction, now_ns)?;
    let before_ns = now_ns.saturating_sub(DAY_NS.saturating_mul(days.into()));
    let mut all = requests(&mut *transaction)?;
    all.pop();
    for request in all.iter().filter(|it| it.ended_ns.is_some_and(|ended| ended < before_ns)) {
        transaction.set_text(TextKind::SampleRequest, &request.key(), None)?;
    }
    transaction.commit()?;
    remove_fleet_samples(dir, days, now_ns).map_err(HubError::Samples)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SampleRequest {
        SampleRequest {
            number: 1,
            sender: "a".parse().unwrap(),
            reflector: "b".parse().unwrap(),
            from_ns: 100 * SECOND_NS,
            to_ns: 200 * SECOND_NS,
            requested_ns: 150 * SECOND_NS,
            author: "me@here".to_owned(),
            state: SampleRequestState::Pending,
            ended_ns: None,
            gone_before_ns: None,
        }
    }

    #[test]
    fn request_ends_when_everything_was_read_or_it_is_old() {
        let ended = |now_s: i64, is_read| {
            let mut request = request();
            request.end(now_s * SECOND_NS, is_read);
            (request.state, request.ended_ns.map(|ns| ns / SECOND_NS))
        };
        let old = 150 + MAX_AGE_NS / SECOND_NS;
        assert_eq!(ended(600, true), (SampleRequestState::Pending, None));
        assert_eq!(ended(601, true), (SampleRequestState::Complete, Some(601)));
        assert_eq!(ended(old - 1, false), (SampleRequestState::Pending, None));
        assert_eq!(ended(old, false), (SampleRequestState::Expired, Some(old)));
        let mut ended = SampleRequest { state: SampleRequestState::Complete, ..request() };
        ended.end(i64::MAX, false);
        assert_eq!(ended.ended_ns, None);
    }

    #[test]
    fn spans_overlap_if_they_share_a_time() {
        let overlaps =
            |first: i64, last: i64| request().overlaps(first * SECOND_NS, last * SECOND_NS);
        assert!(overlaps(50, 100) && overlaps(199, 300) && overlaps(120, 120));
        assert!(!overlaps(50, 99) && !overlaps(200, 300));
    }
}
