//! In-band telemetry: what this relay says of a packet in the packet itself (`dwell_wire::telemetry`).
//!
//! The slot is filled right before the send call. Where the payload is enciphered, it is filled
//! right before that: the cipher's time is in `processing` and not in the slot.

use dwell_engine::passage::{Point, PointStamps};
use dwell_engine::relay::Work;
use dwell_units::{Instant, Realtime};
use dwell_wire::telemetry::{Slot, fill};

use super::plan::Way;

/// A relay that fills slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telemetry {
    /// This node's number.
    pub(super) node: u32,
}

impl Telemetry {
    /// Whether it speaks before the work on a payload rather than after it.
    pub(super) fn is_before(work: &Work) -> bool {
        work.grows()
    }

    /// Fills the next slot of `payload`, which leaves `now`; whether there was one.
    pub(super) fn say(
        self,
        way: Way,
        stamps: &PointStamps,
        now: Instant<Realtime>,
        payload: &mut [u8],
    ) -> bool {
        // Clocks that show a time before 1970 are set wrong; telemetry has no negative numbers.
        let nanos = |at: Instant<Realtime>| u64::try_from(at.as_nanos()).ok();
        let (Some(rx_app), Some(tx_app)) = (stamps.get(Point::RxApp).and_then(nanos), nanos(now))
        else {
            return false;
        };
        let rx_kernel = stamps.get(Point::RxKernel).and_then(nanos);
        let back = way == Way::Backward;
        fill(payload, &Slot { node: self.node, back, rx_kernel, rx_app, tx_app })
    }
}
