//! Records the packet observations of timing threads: as figures of the delay components and, if
//! samples are kept, in a segment. A write error ends the segment but not the measurement.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use dwell_host::HostSample;
use dwell_record::segment::{FlowEntry, Header, SegmentWriter};
use dwell_sample::PacketObservation;
use dwell_stats::ComponentFigures;

use crate::Failure;
use crate::host::HostSampler;
use crate::ping::SampleFile;

/// Maximum number of senders to remember.
const MAX_SENDERS: usize = 16;

/// See the module documentation.
pub(crate) struct ObservationWriter {
    components: ComponentFigures,
    segment: Option<(SegmentWriter<Box<dyn Write>>, PathBuf)>,
    host: Option<HostSampler>,
    senders: Vec<SocketAddr>,
    failure: Option<anyhow::Error>,
}

impl ObservationWriter {
    /// Starts recording for the command `kind` at `target`. An unwritable file is an error here,
    /// before the measurement.
    pub(crate) fn begin(
        kind: &str,
        target: &str,
        file: Option<SampleFile>,
    ) -> Result<Self, Failure> {
        let begin = |SampleFile { to, name }| -> anyhow::Result<_> {
            let header = Header::of_observations(kind, target.to_owned());
            let writer = SegmentWriter::new(to, &header)
                .with_context(|| format!("cannot write {}", name.display()))?;
            Ok((writer, name))
        };
        let segment = file.map(begin).transpose()?;
        // Host activity is recorded in segments only.
        let host = segment.is_some().then(HostSampler::start);
        Ok(Self {
            components: ComponentFigures::default(),
            segment,
            host,
            senders: Vec::new(),
            failure: None,
        })
    }

    /// Whether observations are written to a segment, so that flows must be described.
    pub(crate) fn keeps_samples(&self) -> bool {
        self.segment.is_some()
    }

    /// Records a flow that later observations refer to.
    pub(crate) fn flow(&mut self, flow: &FlowEntry) {
        if self.senders.len() < MAX_SENDERS
            && self.senders.iter().all(|known| known.ip() != flow.from.ip())
        {
            self.senders.push(flow.from);
        }
        let written = self.segment.as_mut().map_or(Ok(()), |(writer, _)| writer.push_flow(flow));
        self.note(written);
    }

    /// Records the observation of a packet.
    pub(crate) fn take(&mut self, observation: &PacketObservation) {
        self.components.record(&observation.stamps);
        if let Some((writer, _)) = &mut self.segment {
            writer.push_observation(observation);
        }
    }

    /// Records host activity besides the regular readings.
    pub(crate) fn host(&mut self, sample: &HostSample) {
        let written = self.segment.as_mut().map_or(Ok(()), |(writer, _)| writer.push_host(sample));
        self.note(written);
    }

    /// Writes the recorded observations; to be called ten times a second.
    pub(crate) fn flush(&mut self) {
        let Some((writer, _)) = &mut self.segment else { return };
        let mut host = self.host.iter().flat_map(HostSampler::taken);
        let written = host.try_for_each(|sample| writer.push_host(&sample));
        drop(host);
        let written = written.and_then(|()| writer.flush());
        self.note(written);
    }

    /// One address of each machine that flows came from, up to [`MAX_SENDERS`].
    pub(crate) fn senders(&self) -> &[SocketAddr] {
        &self.senders
    }

    /// Figures so far.
    pub(crate) fn components(&self) -> &ComponentFigures {
        &self.components
    }

    /// Ends the segment. `ring_dropped` is the number of observations lost before they got here.
    /// Returns the figures and, if the segment is incomplete, the error.
    pub(crate) fn finish(mut self, ring_dropped: u64) -> (ComponentFigures, Option<anyhow::Error>) {
        if let Some((writer, name)) = self.segment.take() {
            let ended = writer.finish(ring_dropped).map(drop);
            self.failure = self.failure.or(ended.err().map(|error| failure(error, &name)));
        }
        (self.components, self.failure)
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
