//! Writing of segments.

use std::io::{self, Write};

use dwell_host::HostSample;
use dwell_sample::{PacketObservation, Sample, TimestampSource};
use dwell_units::Pairing;
use serde::Serialize;

use super::frame::{self, Kind};
use super::sample::{self, Previous};
use super::{FlowEntry, Header, MAGIC, Totals, VERSION, observation};
use crate::spikes::Spike;

/// Block length at which a block is closed.
const BLOCK_LEN: usize = 32 * 1024;

/// Writes a segment; memory is bounded by one block. Items are passed to the underlying writer by
/// [`Self::flush`].
#[derive(Debug)]
pub struct SegmentWriter<W> {
    to: W,
    /// Encoded samples or observations of the open block, after space for their count.
    block: Vec<u8>,
    count: u32,
    /// Content of the open block.
    kind: Kind,
    before: Previous,
    observation_before: observation::Previous,
    bridge: Option<Pairing>,
    near: Option<TimestampSource>,
    framed: Vec<u8>,
    totals: Totals,
}

impl<W: Write> SegmentWriter<W> {
    /// Starts a segment.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self {
            to,
            block: Vec::new(),
            count: 0,
            kind: Kind::Samples,
            before: Previous::default(),
            observation_before: observation::Previous::default(),
            bridge: None,
            near: None,
            framed: Vec::new(),
            totals: Totals::default(),
        };
        writer.framed.extend_from_slice(&MAGIC);
        writer.framed.extend_from_slice(&VERSION.to_le_bytes());
        writer.framed.extend_from_slice(&[0; 2]);
        let header = serde_json::to_vec(header).map_err(io::Error::other)?;
        frame::append(&mut writer.framed, Kind::Header, &header);
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a sample; see [`dwell_stats::Delays::of`] for `bridge` and `near`.
    pub fn push(&mut self, sample: &Sample, bridge: Option<&Pairing>, near: TimestampSource) {
        if self.near != Some(near) {
            self.close_block();
            frame::append(&mut self.framed, Kind::Near, &[near as u8]);
            self.near = Some(near);
        }
        if let Some(bridge) = bridge.filter(|bridge| self.bridge.as_ref() != Some(bridge)) {
            self.close_block();
            let mut payload = [0; 24];
            payload[..8].copy_from_slice(&bridge.real.as_nanos().to_le_bytes());
            payload[8..16].copy_from_slice(&bridge.mono.as_nanos().to_le_bytes());
            payload[16..].copy_from_slice(&bridge.width.0.to_le_bytes());
            frame::append(&mut self.framed, Kind::Bridge, &payload);
            self.bridge = Some(*bridge);
        }
        self.open_block(Kind::Samples);
        sample::append(&mut self.block, sample, bridge.is_none(), &mut self.before);
        self.count_item();
    }

    /// Appends a flow, which must precede its observations.
    ///
    /// # Errors
    /// Serialisation errors, which do not occur for a valid entry.
    pub fn push_flow(&mut self, flow: &FlowEntry) -> io::Result<()> {
        self.close_block();
        let entry = serde_json::to_vec(flow).map_err(io::Error::other)?;
        frame::append(&mut self.framed, Kind::Flow, &entry);
        Ok(())
    }

    /// Appends a packet observation.
    pub fn push_observation(&mut self, observation: &PacketObservation) {
        self.open_block(Kind::Observations);
        observation::append(&mut self.block, observation, &mut self.observation_before);
        self.count_item();
    }

    /// Appends a sample of host activity. It does not count as a sample of the segment; non-finite
    /// values are omitted.
    ///
    /// # Errors
    /// If the sample exceeds the maximum frame length. Serialisation errors do not occur.
    pub fn push_host(&mut self, sample: &HostSample) -> io::Result<()> {
        self.push_json(Kind::Host, sample, "host sample exceeds a frame")
    }

    /// Appends the causes of a sample's delay. They do not count as a sample of the segment.
    ///
    /// # Errors
    /// If the spike exceeds the maximum frame length. Serialisation errors do not occur.
    pub fn push_spike(&mut self, spike: &Spike) -> io::Result<()> {
        self.push_json(Kind::Spike, spike, "spike exceeds a frame")
    }

    fn push_json(
        &mut self,
        kind: Kind,
        content: &impl Serialize,
        too_long: &'static str,
    ) -> io::Result<()> {
        self.close_block();
        let json = serde_json::to_vec(content).map_err(io::Error::other)?;
        if json.len() > frame::MAX_PAYLOAD_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, too_long));
        }
        frame::append(&mut self.framed, kind, &json);
        Ok(())
    }

    fn open_block(&mut self, kind: Kind) {
        if self.kind != kind {
            self.close_block();
            self.kind = kind;
        }
        if self.block.is_empty() {
            self.block.extend_from_slice(&[0; 4]);
        }
    }

    fn count_item(&mut self) {
        self.count += 1;
        self.totals.samples += 1;
        if self.block.len() >= BLOCK_LEN {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if self.count == 0 {
            return;
        }
        self.block[..4].copy_from_slice(&self.count.to_le_bytes());
        frame::append(&mut self.framed, self.kind, &self.block);
        self.block.clear();
        self.count = 0;
        self.before = Previous::default();
        self.observation_before = observation::Previous::default();
    }

    /// Writes all items out.
    ///
    /// # Errors
    /// Errors of the writer; the segment then ends with the last complete frame.
    pub fn flush(&mut self) -> io::Result<()> {
        self.close_block();
        let written = self.to.write_all(&self.framed).and_then(|()| self.to.flush());
        self.framed.clear();
        written
    }

    /// Ends the segment and returns the writer.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn finish(mut self, ring_dropped: u64) -> io::Result<W> {
        self.close_block();
        self.totals.ring_dropped = ring_dropped;
        let end = serde_json::to_vec(&self.totals).map_err(io::Error::other)?;
        frame::append(&mut self.framed, Kind::End, &end);
        self.flush()?;
        Ok(self.to)
    }
}
