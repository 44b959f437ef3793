//! Encoding of samples: two bytes of flags, then differences as variable-length integers (LEB128,
//! signed ones zigzag). Differences are relative to the previous sample of the block and for the
//! first sample to zero, so that every block is decodable on its own.

use dwell_sample::{Remote, RxStamps, Sample, State, TxStamps};
use dwell_units::{Clock, Instant};

use super::varint::{Bytes, signed};

/// Minimum encoded length: flags, and one byte each of id, intended and tx_app.
pub(super) const MIN_ENCODED_LEN: usize = 5;

const REORDERED: u8 = 1 << 3;
const VOID: u8 = 1 << 4;
const RX: u8 = 1 << 5;
const REMOTE: u8 = 1 << 6;
const SAME_CLOCK: u8 = 1 << 7;

const TX_SCHED: u8 = 1;
const TX_KERNEL: u8 = 1 << 1;
const TX_HW: u8 = 1 << 2;
const RX_HW: u8 = 1 << 3;
const RX_KERNEL: u8 = 1 << 4;
const TTL: u8 = 1 << 5;
const RX_DRIVER: u8 = 1 << 6;
const TX_TCX: u8 = 1 << 7;

/// State of the previous sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Previous {
    next_id: u64,
    intended: i64,
    tx_app: i64,
    tx_hw: i64,
    rx_hw: i64,
}

/// Difference of two timestamps. Wraps, because the far end's timestamps are arbitrary; decoding
/// wraps back.
fn from<A: Clock, B: Clock>(stamp: Instant<A>, base: Instant<B>) -> i64 {
    stamp.as_nanos().wrapping_sub(base.as_nanos())
}

/// Appends a sample. `void` means that it has no bridge, because a clock was stepped.
pub(super) fn append(out: &mut Vec<u8>, sample: &Sample, void: bool, before: &mut Previous) {
    let Sample { id, state, reordered, intended, tx, rx, remote } = sample;
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    let same_clock = remote.is_some_and(|remote| remote.same_clock);
    out.push(
        state.code()
            | bit(*reordered, REORDERED)
            | bit(void, VOID)
            | bit(rx.is_some(), RX)
            | bit(remote.is_some(), REMOTE)
            | bit(same_clock, SAME_CLOCK),
    );
    out.push(
        bit(tx.sched.is_some(), TX_SCHED)
            | bit(tx.kernel.is_some(), TX_KERNEL)
            | bit(tx.hw.is_some(), TX_HW)
            | bit(rx.is_some_and(|rx| rx.hw.is_some()), RX_HW)
            | bit(rx.is_some_and(|rx| rx.kernel.is_some()), RX_KERNEL)
            | bit(remote.is_some_and(|remote| remote.ttl.is_some()), TTL)
            | bit(rx.is_some_and(|rx| rx.driver.is_some()), RX_DRIVER)
            | bit(tx.tcx.is_some(), TX_TCX),
    );
    signed(out, id.wrapping_sub(before.next_id) as i64);
    signed(out, intended.as_nanos().wrapping_sub(before.intended));
    signed(out, tx.app.as_nanos().wrapping_sub(before.tx_app));
    if let Some(sched) = tx.sched {
        signed(out, from(sched, tx.app));
    }
    if let Some(tcx) = tx.tcx {
        signed(out, from(tcx, tx.app));
    }
    if let Some(kernel) = tx.kernel {
        signed(out, from(kernel, tx.app));
    }
    if let Some(hw) = tx.hw {
        signed(out, hw.as_nanos().wrapping_sub(before.tx_hw));
        before.tx_hw = hw.as_nanos();
    }
    if let Some(rx) = rx {
        signed(out, from(rx.app, tx.app));
        if let Some(hw) = rx.hw {
            signed(out, hw.as_nanos().wrapping_sub(before.rx_hw));
            before.rx_hw = hw.as_nanos();
        }
        if let Some(driver) = rx.driver {
            signed(out, from(driver, tx.app));
        }
        if let Some(kernel) = rx.kernel {
            signed(out, from(kernel, tx.app));
        }
    }
    if let Some(remote) = remote {
        signed(out, from(remote.rx, tx.app));
        signed(out, from(remote.tx, remote.rx));
        signed(out, i64::from(remote.seq.wrapping_sub(*id as u32) as i32));
        out.extend(remote.ttl);
    }
    *before = Previous {
        next_id: id.wrapping_add(1),
        intended: intended.as_nanos(),
        tx_app: tx.app.as_nanos(),
        ..*before
    };
}

impl Bytes<'_> {
    fn stamp<A: Clock, B: Clock>(&mut self, base: Instant<B>) -> Option<Instant<A>> {
        Some(Instant::from_nanos(base.as_nanos().wrapping_add(self.signed()?)))
    }

    /// Decodes the next sample and whether it is void; `None` for invalid bytes.
    pub(super) fn sample(&mut self, before: &mut Previous) -> Option<(Sample, bool)> {
        let (flags, stamps) = (self.byte()?, self.byte()?);
        let state = *State::ALL.get(usize::from(flags & 7))?;
        let id = before.next_id.wrapping_add(self.signed()? as u64);
        let intended = before.intended.wrapping_add(self.signed()?);
        let app = Instant::from_nanos(before.tx_app.wrapping_add(self.signed()?));
        let has = |bit: u8| stamps & bit != 0;
        let mut tx = TxStamps { app, sched: None, tcx: None, kernel: None, hw: None };
        if has(TX_SCHED) {
            tx.sched = Some(self.stamp(app)?);
        }
        if has(TX_TCX) {
            tx.tcx = Some(self.stamp(app)?);
        }
        if has(TX_KERNEL) {
            tx.kernel = Some(self.stamp(app)?);
        }
        if has(TX_HW) {
            before.tx_hw = before.tx_hw.wrapping_add(self.signed()?);
            tx.hw = Some(Instant::from_nanos(before.tx_hw));
        }
        let mut rx = None;
        if flags & RX != 0 {
            let mut rx_stamps =
                RxStamps { hw: None, driver: None, kernel: None, app: self.stamp(app)? };
            if has(RX_HW) {
                before.rx_hw = before.rx_hw.wrapping_add(self.signed()?);
                rx_stamps.hw = Some(Instant::from_nanos(before.rx_hw));
            }
            if has(RX_DRIVER) {
                rx_stamps.driver = Some(self.stamp(app)?);
            }
            if has(RX_KERNEL) {
                rx_stamps.kernel = Some(self.stamp(app)?);
            }
            rx = Some(rx_stamps);
        }
        let mut remote = None;
        if flags & REMOTE != 0 {
            let t2 = self.stamp(app)?;
            let t3 = self.stamp(t2)?;
            let seq = (id as u32).wrapping_add(self.signed()? as u32);
            let ttl = if has(TTL) { Some(self.byte()?) } else { None };
            let same_clock = flags & SAME_CLOCK != 0;
            remote = Some(Remote { rx: t2, tx: t3, seq, ttl, same_clock });
        }
        *before =
            Previous { next_id: id.wrapping_add(1), intended, tx_app: app.as_nanos(), ..*before };
        let sample = Sample {
            id,
            state,
            reordered: flags & REORDERED != 0,
            intended: Instant::from_nanos(intended),
            tx,
            rx,
            remote,
        };
        Some((sample, flags & VOID != 0))
    }
}
