//! State of one probe.

use dwell_sample::{Remote, RxStamps, Sample, State, TxStamps};
use dwell_units::{Instant, Monotonic, Realtime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeState {
    Free,
    InFlight,
    /// Answered in time, waiting for the kernel timestamp of the probe.
    AwaitingStamp,
    Received,
    Late,
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) id: u64,
    pub(super) status: ProbeState,
    pub(super) reordered: bool,
    pub(super) key: Option<u32>,
    pub(super) deadline: Instant<Monotonic>,
    pub(super) intended: Instant<Monotonic>,
    /// Timestamp written into the message: T1 in protocols that carry one.
    pub(super) written: Instant<Realtime>,
    pub(super) tx: TxStamps,
    pub(super) rx: Option<RxStamps>,
    pub(super) remote: Option<Remote>,
}

impl Slot {
    pub(super) const FREE: Self = Self {
        id: u64::MAX / 2,
        status: ProbeState::Free,
        reordered: false,
        key: None,
        deadline: Instant::EPOCH,
        intended: Instant::EPOCH,
        written: Instant::EPOCH,
        tx: TxStamps { app: Instant::EPOCH, sched: None, tcx: None, kernel: None, hw: None },
        rx: None,
        remote: None,
    };

    /// Returns the sample that reports the outcome.
    pub(super) fn sample(&self, state: State) -> Sample {
        Sample {
            id: self.id,
            state,
            reordered: self.reordered,
            intended: self.intended,
            tx: self.tx,
            rx: self.rx,
            remote: self.remote,
        }
    }
}
