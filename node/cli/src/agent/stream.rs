//! One stream of an agent: its probes, the collector of their roll-ups, and the block of their samples.

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use dwell_protocol::{PingJob, PingParameters};
use dwell_record::segment::{Header, SegmentWriter};
use dwell_rollup::{
    Body, ClockStep, Collector, LocalLimits, NodeClocks, SampleBlock, ScheduleEntry, SendBudget,
    Stream,
};
use dwell_units::{Instant, Monotonic, Nanos, Pairing};

use crate::Failure;
use crate::ping::stream::{ProbeStream, SendLimits, StreamSample};

/// Number of samples at which a block is complete.
const MAX_BLOCK_SAMPLES: u64 = 200;

/// Age at which a block is complete.
const MAX_BLOCK_AGE: Nanos = Nanos::from_secs(300);

/// Limits of the node, with what its streams may still send.
#[derive(Debug)]
pub(super) struct NodeLimits {
    pub(super) limits: LocalLimits,
    pub(super) budget: SendBudget,
}

/// Limits of the node for one of its streams.
struct StreamLimits {
    of_node: Arc<NodeLimits>,
    bytes_per_probe: u64,
}

impl SendLimits for StreamLimits {
    fn allows(&self, address: IpAddr) -> bool {
        self.of_node.limits.allows(address)
    }

    fn take(&self, now: Instant<Monotonic>, packets: u32) -> bool {
        let bytes = self.bytes_per_probe.saturating_mul(packets.into());
        self.of_node.budget.take(now, packets, bytes)
    }
}

/// A stream.
pub(super) struct AgentStream {
    pub(super) entry: ScheduleEntry,
    probes: ProbeStream,
    stream: Stream,
    version: u64,
    collector: Collector,
    /// Samples since the last pairing of the clocks.
    waiting: Vec<StreamSample>,
    settled: Instant<Monotonic>,
    block: Option<Block>,
    counted: Counted,
}

/// Counts of collectors that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Samples in no roll-up.
    pub(super) samples_lost: u64,
    /// Replies that came after their roll-up.
    pub(super) replies_after_record: u64,
}

/// Samples that are not a record yet.
struct Block {
    writer: SegmentWriter<Vec<u8>>,
    first: Instant<Monotonic>,
    last: Instant<Monotonic>,
    samples: u64,
    since: Instant<Monotonic>,
}

impl AgentStream {
    /// Starts a stream; `phase` is a random part of its interval.
    pub(super) fn start(
        entry: ScheduleEntry,
        version: u64,
        phase: Nanos,
        limits: &Arc<NodeLimits>,
        now: &Pairing,
    ) -> Result<Self, Failure> {
        let stream = Stream {
            reflector: entry.reflector.clone(),
            protocol: entry.scheme().parse()?,
            entry: entry.name.clone(),
        };
        let bytes_per_probe = entry.bytes_per_probe();
        let limits = StreamLimits { of_node: Arc::clone(limits), bytes_per_probe };
        let probes = ProbeStream::start(job(&entry), phase, Box::new(limits))?;
        Ok(Self {
            entry,
            probes,
            collector: Collector::new(stream.clone(), version, now),
            stream,
            version,
            waiting: Vec::new(),
            settled: Instant::from_nanos(i64::MIN),
            block: None,
            counted: Counted::default(),
        })
    }

    /// Takes the samples that are available. They are used by [`Self::record`], after the clocks were
    /// paired.
    pub(super) fn take(&mut self) {
        let Self { probes, waiting, settled, .. } = self;
        *settled = probes.drain(&mut |sample| waiting.push(sample));
    }

    /// Uses the samples taken, and passes complete records to `out`. With a `step`, they are void.
    pub(super) fn record(
        &mut self,
        clocks: &NodeClocks,
        step: Option<&ClockStep>,
        out: &mut impl FnMut(Body),
    ) {
        if let Some(step) = step {
            self.probes.void();
            self.collector.note_step(step.after, step.before);
        }
        for taken in mem::take(&mut self.waiting) {
            let bridge = (taken.is_valid && step.is_none()).then_some(&clocks.pairing);
            self.collector.record(&taken.sample, bridge, taken.near);
            if self.entry.samples {
                self.keep(&taken, bridge, clocks, out);
            }
        }
        self.collector.settle(self.settled, clocks, &mut |rollup| out(Body::Rollup(rollup)));
        let is_old = |block: &Block| clocks.pairing.mono - block.since > MAX_BLOCK_AGE;
        if self.block.as_ref().is_some_and(is_old) {
            self.end_block(clocks, out);
        }
    }

    fn keep(
        &mut self,
        taken: &StreamSample,
        bridge: Option<&Pairing>,
        clocks: &NodeClocks,
        out: &mut impl FnMut(Body),
    ) {
        let intended = taken.sample.intended;
        let block = match &mut self.block {
            Some(block) => block,
            None => {
                let header = Header::of_ping(self.entry.target.clone());
                // Writing to memory does not fail.
                let Ok(writer) = SegmentWriter::new(Vec::new(), &header) else { return };
                self.block.insert(Block {
                    writer,
                    first: intended,
                    last: intended,
                    samples: 0,
                    since: clocks.pairing.mono,
                })
            }
        };
        block.writer.push(&taken.sample, bridge, taken.near);
        block.samples += 1;
        block.first = block.first.min(intended);
        block.last = block.last.max(intended);
        if block.samples >= MAX_BLOCK_SAMPLES {
            self.end_block(clocks, out);
        }
    }

    fn end_block(&mut self, clocks: &NodeClocks, out: &mut impl FnMut(Body)) {
        let Some(block) = self.block.take() else { return };
        let Ok(segment) = block.writer.finish(0) else { return };
        out(Body::Samples(SampleBlock {
            stream: self.stream.clone(),
            schedule_version: self.version,
            start_wall_ns: clocks.wall_at(block.first),
            start_boot_ns: clocks.boot_at(block.first),
            duration_ns: (block.last - block.first).0.max(0) as u64,
            samples: block.samples,
            segment,
        }));
    }

    /// Ends the records of the schedule version so far; probes go on.
    pub(super) fn set_version(
        &mut self,
        version: u64,
        clocks: &NodeClocks,
        out: &mut impl FnMut(Body),
    ) {
        if version == self.version {
            return;
        }
        self.finish(clocks, out);
        self.counted = self.counted();
        self.version = version;
        self.collector = Collector::new(self.stream.clone(), version, &clocks.pairing);
    }

    /// Stops sending. Call [`Self::take`] and [`Self::record`] once more when [`Self::has_ended`].
    pub(super) fn stop(&self) {
        self.probes.stop();
    }

    /// Whether the stream was stopped and its last sample can be taken.
    pub(super) fn has_ended(&self) -> bool {
        self.probes.has_ended()
    }

    /// Ends all records.
    pub(super) fn finish(&mut self, clocks: &NodeClocks, out: &mut impl FnMut(Body)) {
        self.collector.finish(clocks, &mut |rollup| out(Body::Rollup(rollup)));
        self.end_block(clocks, out);
    }

    /// Why the stream does not run.
    pub(super) fn fault(&self) -> Option<&str> {
        self.probes.fault()
    }

    /// Counts so far.
    pub(super) fn counted(&self) -> Counted {
        let Counted { samples_lost, replies_after_record } = self.counted;
        Counted {
            samples_lost: samples_lost + self.collector.probes_after_record(),
            replies_after_record: replies_after_record + self.collector.replies_after_record(),
        }
    }

    /// Number of samples dropped because a ring was full.
    pub(super) fn dropped(&self) -> u64 {
        self.probes.dropped()
    }
}

/// The job of an entry.
fn job(entry: &ScheduleEntry) -> PingJob {
    let parameters = PingParameters {
        interval: Some(entry.interval),
        size: entry.size,
        timeout: Some(entry.timeout()),
        ttl: entry.ttl,
        dscp: entry.dscp,
        ..PingParameters::default()
    };
    PingJob { parameters, ..PingJob::to(&entry.target) }
}
