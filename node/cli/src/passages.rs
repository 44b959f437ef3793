//! Where the passages of timing threads go: into the figures of their parts and, if samples are
//! wanted, a segment. What cannot be written any more ends the segment, not the measuring.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use dwell_engine::passage::Passage;
use dwell_record::segment::{FlowEntry, Header, SegmentWriter};
use dwell_stats::Parts;

use crate::Failure;
use crate::host::HostSampler;
use crate::ping::SampleFile;

/// Machines that flows came from, as far as they are remembered.
const MOST_SENDERS: usize = 16;

/// See the module's documentation.
pub(crate) struct PassageLog {
    parts: Parts,
    segment: Option<(SegmentWriter<Box<dyn Write>>, PathBuf)>,
    host: Option<HostSampler>,
    senders: Vec<SocketAddr>,
    failure: Option<anyhow::Error>,
}

impl PassageLog {
    /// Begins a log of what `kind` (a command) sees at `target`. A file that cannot be written is
    /// told before anything is measured.
    pub(crate) fn begin(
        kind: &str,
        target: &str,
        file: Option<SampleFile>,
    ) -> Result<Self, Failure> {
        let begin = |SampleFile { to, name }| -> anyhow::Result<_> {
            let header = Header::of_passages(kind, target.to_owned());
            let writer = SegmentWriter::new(to, &header)
                .with_context(|| format!("cannot write {}", name.display()))?;
            Ok((writer, name))
        };
        let segment = file.map(begin).transpose()?;
        // What the machine does is kept beside the passages, if those are kept.
        let host = segment.is_some().then(HostSampler::start);
        Ok(Self { parts: Parts::default(), segment, host, senders: Vec::new(), failure: None })
    }

    /// Whether passages are kept, so that they are worth naming flows for.
    pub(crate) fn keeps_samples(&self) -> bool {
        self.segment.is_some()
    }

    /// A flow that passages from now on name.
    pub(crate) fn flow(&mut self, flow: &FlowEntry) {
        if self.senders.len() < MOST_SENDERS
            && self.senders.iter().all(|known| known.ip() != flow.from.ip())
        {
            self.senders.push(flow.from);
        }
        let written = self.segment.as_mut().map_or(Ok(()), |(writer, _)| writer.push_flow(flow));
        self.note(written);
    }

    /// A packet.
    pub(crate) fn take(&mut self, passage: &Passage) {
        self.parts.record(&passage.stamps);
        if let Some((writer, _)) = &mut self.segment {
            writer.push_passage(passage);
        }
    }

    /// Writes out what was taken; to be called ten times a second.
    pub(crate) fn flush(&mut self) {
        let Some((writer, _)) = &mut self.segment else { return };
        let mut host = self.host.iter().flat_map(HostSampler::taken);
        let written = host.try_for_each(|sample| writer.push_host(&sample));
        drop(host);
        let written = written.and_then(|()| writer.flush());
        self.note(written);
    }

    /// One address of every machine that flows came from, of the first few of them.
    pub(crate) fn senders(&self) -> &[SocketAddr] {
        &self.senders
    }

    /// The figures so far.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Ends the segment. `ring_dropped` passages never came here. Returns the figures, and why the
    /// segment is not whole, if it is not.
    pub(crate) fn finish(mut self, ring_dropped: u64) -> (Parts, Option<anyhow::Error>) {
        if let Some((writer, name)) = self.segment.take() {
            let ended = writer.finish(ring_dropped).map(drop);
            self.failure = self.failure.or(ended.err().map(|error| failure(error, &name)));
        }
        (self.parts, self.failure)
    }

    fn note(&mut self, written: io::Result<()>) {
        if let (Err(error), Some((_, name))) = (written, &self.segment) {
            self.failure = Some(failure(error, name));
            self.segment = None;
        }
    }
}

fn failure(error: io::Error, name: &std::path::Path) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot write {}", name.display()))
}
