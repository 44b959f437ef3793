//! In-band telemetry: timestamps that this relay writes into packets (`dwell_wire::telemetry`).
//!
//! The slot is filled just before the send call. If the payload is encrypted, it is filled before
//! encryption: `processing` includes the time of the cipher, the slot does not.

use dwell_engine::relay::PayloadTransform;
use dwell_sample::{Point, PointStamps};
use dwell_units::{Instant, Realtime};
use dwell_wire::telemetry::{Slot, fill};

use super::setup::FlowDirection;

/// Fills telemetry slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telemetry {
    /// Number of this node.
    pub(super) node: u32,
}

impl Telemetry {
    /// Whether the slot is filled before the payload is processed, not after.
    pub(super) fn is_before(transform: &PayloadTransform) -> bool {
        transform.grows()
    }

    /// Fills the next slot of `payload`, which leaves at `now`; returns whether a slot was free.
    pub(super) fn fill_slot(
        self,
        direction: FlowDirection,
        stamps: &PointStamps,
        now: Instant<Realtime>,
        payload: &mut [u8],
    ) -> bool {
        // A time before 1970 means a wrong clock; telemetry has no negative times.
        let nanos = |at: Instant<Realtime>| u64::try_from(at.as_nanos()).ok();
        let (Some(rx_app), Some(tx_app)) = (stamps.get(Point::RxApp).and_then(nanos), nanos(now))
        else {
            return false;
        };
        let rx_kernel = stamps.get(Point::RxKernel).and_then(nanos);
        let back = direction == FlowDirection::Backward;
        fill(payload, &Slot { node: self.node, back, rx_kernel, rx_app, tx_app })
    }
}
