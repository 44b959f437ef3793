//! A sample as a row of [`Column`]s, common to CSV, JSON lines and Parquet.

use dwell_sample::{Sample, State, TimestampSource};
use dwell_stats::Delays;
use dwell_units::{Card, Instant, Nanos, Pairing, Realtime};

use crate::column::Column;

/// One event of a probe.
pub(crate) struct Row {
    pub(crate) id: u64,
    pub(crate) state: &'static str,
    pub(crate) reordered: bool,
    /// A clock was stepped: timestamps exist, delays do not.
    pub(crate) void: bool,
    /// The first columns of [`Column::ALL`].
    pub(crate) numbers: [Option<i64>; Column::MEASURED],
}

impl Row {
    /// See [`Delays::of`] for `bridge` and `near`.
    pub(crate) fn of(sample: &Sample, bridge: Option<&Pairing>, near: TimestampSource) -> Self {
        let delays = Delays::of(sample, bridge, near);
        let (tx, rx, remote) = (&sample.tx, sample.rx, sample.remote);
        // A packet that was not sent has no send timestamp.
        let sent = sample.state != State::SendFailed;
        let ns = |delay: Option<Nanos>| delay.map(|delay| delay.0);
        let at = |stamp: Option<Instant<Realtime>>| stamp.map(Instant::as_nanos);
        let card = |stamp: Option<Instant<Card>>| stamp.map(Instant::as_nanos);
        let numbers = [
            ns(delays.rtt),
            ns(delays.rtt_intended),
            ns(delays.rtt_kernel),
            ns(delays.rtt_driver),
            ns(delays.rtt_hw),
            ns(delays.schedule_error),
            ns(delays.residence),
            ns(delays.one_way_forward),
            ns(delays.one_way_backward),
            at(bridge.map(|bridge| bridge.to_real(sample.intended))),
            at(sent.then_some(tx.app)),
            at(tx.sched),
            at(tx.tcx),
            at(tx.kernel),
            card(tx.hw),
            at(remote.map(|remote| remote.rx)),
            at(remote.map(|remote| remote.tx)),
            card(rx.and_then(|rx| rx.hw)),
            at(rx.and_then(|rx| rx.driver)),
            at(rx.and_then(|rx| rx.kernel)),
            at(rx.map(|rx| rx.app)),
        ];
        Self {
            id: sample.id,
            state: sample.state.name(),
            reordered: sample.reordered,
            void: bridge.is_none(),
            numbers,
        }
    }
}
