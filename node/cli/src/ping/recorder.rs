//! Turns the samples of the timing loop into metrics, rows and progress, ten times a second, so
//! that a crash loses at most the last 100 ms.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context;
use dwell_engine::pinger::Counts;
use dwell_engine::protocol::CsvLayout;
use dwell_io::clock;
use dwell_record::segment::{self, SegmentWriter};
use dwell_record::{DriverStamps, RowFormat, Spikes, Warning};
use dwell_sample::{Sample, State, TimestampSource, WarmUpSession};
use dwell_stats::{ClockBounds, ClockFault, ClockReading, FarClock, PathDelays, RoundTrip};
use dwell_units::{Nanos, Pairing};
use rtrb::Consumer;

use super::driver_stamps::DriverRecorder;
use super::explain::{Explainer, Watch};
use super::observer::Observer;
use super::replies::{Replies, ReplyLines};
use super::session::RECORD_INTERVAL;
use super::timing_loop::{ClientProgress, HopDelays, RunEvent, Shared};
use crate::host::HostSampler;
use crate::{Failure, Target};

/// Timestamp sources of the measurement: known after the warm-up, otherwise from the first reply.
/// `None` until then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimestampSources {
    tx: Option<TimestampSource>,
    rx: Option<TimestampSource>,
    pub(super) warm_up_sent: u64,
}

impl TimestampSources {
    /// The sources that the warm-up showed.
    pub(super) const fn of_warm_up(
        tx: Option<TimestampSource>,
        rx: Option<TimestampSource>,
        warm_up_sent: u64,
    ) -> Self {
        Self { tx, rx, warm_up_sent }
    }

    /// Deepest source of transmit timestamps.
    pub(super) fn tx(self) -> TimestampSource {
        self.tx.unwrap_or(TimestampSource::User)
    }

    /// Deepest source of receive timestamps.
    pub(super) fn rx(self) -> TimestampSource {
        self.rx.unwrap_or(TimestampSource::User)
    }

    /// Deepest source available in both directions on a clock comparable with the far end's. A
    /// network card's clock is not.
    pub(super) fn near(self) -> TimestampSource {
        self.tx().min(self.rx()).min(TimestampSource::KernelSw)
    }

    /// Whether only the program's own timestamps are available.
    pub(super) fn is_unstamped(self) -> bool {
        (self.tx, self.rx) == (Some(TimestampSource::User), Some(TimestampSource::User))
    }

    /// Learns sources from a reply: unknown ones, and that the network card timestamps probes, which is
    /// seen late without a warm-up. Returns whether it learned one.
    pub(super) fn learn(&mut self, sample: &Sample) -> bool {
        let (Some(rx), State::Received) = (sample.rx, sample.state) else { return false };
        let known = (self.tx, self.rx);
        let source = |kernel: bool, hw: bool| match (hw, kernel) {
            (true, _) => TimestampSource::Hw,
            (false, true) => TimestampSource::KernelSw,
            (false, false) => TimestampSource::User,
        };
        self.tx.get_or_insert(source(sample.tx.kernel.is_some(), sample.tx.hw.is_some()));
        if sample.tx.hw.is_some() {
            self.tx = Some(TimestampSource::Hw);
        }
        self.rx.get_or_insert(source(rx.kernel.is_some(), rx.hw.is_some()));
        known != (self.tx, self.rx)
    }
}

/// Number of ids of each client: those of the second client start here.
const CLIENT_ID_STRIDE: u64 = 1 << 32;

/// What the timing loop of a client reports.
pub(super) struct ClientStream<'a> {
    samples: Consumer<Sample>,
    events: Consumer<RunEvent>,
    progress: &'a ClientProgress,
    /// Probes below this id were in flight when a clock was stepped.
    void_below: u64,
}

impl<'a> ClientStream<'a> {
    pub(super) fn new(
        samples: Consumer<Sample>,
        events: Consumer<RunEvent>,
        progress: &'a ClientProgress,
    ) -> Self {
        Self { samples, events, progress, void_below: 0 }
    }
}

/// Records samples. See the module documentation.
pub(super) struct Recorder {
    pub(super) sources: TimestampSources,
    pub(super) measured: RoundTrip,
    /// Delays reported by relays on the path.
    pub(super) path: PathDelays,
    /// Source of `path`.
    pub(super) paths: Option<Consumer<HopDelays>>,
    pub(super) start: Pairing,
    pub(super) last: Pairing,
    /// Readings of this machine's clocks at the last two turns.
    readings: [Option<ClockReading>; 2],
    /// The far end's clock, if it does not show the time of day.
    far_clock: FarClock,
    /// Whether the warm-up of the first client is over. Samples wait for it.
    is_counting: bool,
    csv: Option<Rows>,
    lines: Option<Rows>,
    samples: Option<Samples>,
    host: Option<HostSampler>,
    explainer: Option<Explainer>,
    /// Spikes of the measurement, from its end on.
    pub(super) spikes: Option<Spikes>,
    /// Replies of this turn, for the explainer.
    turn_samples: Vec<Sample>,
    /// Timestamps of replies in the driver, if requested.
    driver: Option<DriverRecorder>,
    replies: Option<ReplyLines>,
    /// Reply lines include the TTL.
    pub(super) shows_ttl: bool,
    observer: Box<dyn Observer>,
    /// First write error. The measurement continues without that output.
    pub(super) failure: Option<anyhow::Error>,
    /// stdout was closed (EPIPE): stop without an error.
    pub(super) output_closed: bool,
    pub(super) warnings: Vec<Warning>,
}

impl Recorder {
    /// Opens the outputs, so that errors show before anything is sent.
    pub(super) fn new(outputs: Outputs, target: &Target) -> Result<Self, Failure> {
        let start = clock::pair();
        let format = match target.scheme.spec().csv {
            CsvLayout::Probe => RowFormat::Csv,
            CsvLayout::RoundTrip => RowFormat::RoundTripCsv,
        };
        let csv = outputs.csv.as_deref().map(|path| Rows::create(path, format)).transpose()?;
        let samples = outputs.samples.map(|file| Samples::begin(file, target)).transpose()?;
        Ok(Self {
            sources: TimestampSources::default(),
            measured: RoundTrip::new(TimestampSource::User, 0),
            path: PathDelays::default(),
            paths: None,
            start,
            last: start,
            readings: [read_clocks(); 2],
            far_clock: FarClock::default(),
            is_counting: false,
            csv,
            lines: outputs.lines.then(Rows::standard_output),
            samples,
            host: None,
            explainer: None,
            spikes: None,
            turn_samples: Vec::new(),
            driver: None,
            replies: (outputs.replies != Replies::Silent).then(ReplyLines::new),
            shows_ttl: outputs.replies == Replies::WithTtl,
            observer: outputs.observer,
            failure: None,
            output_closed: false,
            warnings: Vec::new(),
        })
    }

    /// Starts attributing spikes: round trips above `above`, by default above a limit computed from
    /// the data.
    pub(super) fn explain(&mut self, above: Option<Nanos>) {
        self.explainer = Some(Explainer::start(above));
    }

    /// Handle with which the timing thread registers itself; `None` without `--explain`.
    pub(super) fn watch(&mut self) -> Option<Watch> {
        let explainer = self.explainer.as_mut()?;
        let watch = explainer.watch();
        let notes = std::mem::take(&mut explainer.notes);
        notes.into_iter().for_each(|note| self.warn(note));
        Some(watch)
    }

    /// Number of kernel events that were lost.
    pub(super) fn kernel_events_lost(&self) -> u64 {
        self.explainer.as_ref().map_or(0, |explainer| explainer.events_lost)
    }

    /// Attributes the last spikes and appends all spikes to the outputs. Must precede
    /// [`Self::end_samples`].
    pub(super) fn end_spikes(&mut self) {
        let Self { explainer: Some(explainer), measured, lines, samples, .. } = self else {
            return;
        };
        let mut written = Ok(());
        let spikes = explainer.finish(measured.rtt(), &mut |spike| {
            if let Some(lines) = lines {
                spike.append_json(&mut lines.text);
            }
            if let (Some(samples), Ok(())) = (samples.as_mut(), &written) {
                written = samples.writer.push_spike(spike);
            }
        });
        self.spikes = Some(spikes);
        self.check_samples(written);
        self.write_out();
    }

    /// Adds the timestamps of the driver to all samples from now on.
    pub(super) fn add_driver_stamps(&mut self, driver: DriverRecorder) {
        self.driver = Some(driver);
    }

    /// Detaches the programs in the driver and returns their result.
    pub(super) fn finish_driver_stamps(&mut self) -> Option<DriverStamps> {
        self.driver.as_mut().map(DriverRecorder::finish)
    }

    /// Sets the peer and the payload size in bytes.
    pub(super) fn begin(&mut self, peer: IpAddr, size: usize) {
        if let Some(replies) = &mut self.replies {
            replies.begin(peer, size);
        }
    }

    /// Records until the timing loop ends.
    pub(super) fn follow(
        &mut self,
        mut clients: Vec<ClientStream>,
        shared: &Shared,
        finished: &dyn Fn() -> bool,
    ) {
        // Resolving names and opening sockets may have taken a long time.
        self.start = clock::pair();
        self.last = self.start;
        self.host = self.samples.is_some().then(HostSampler::start);
        loop {
            let last_turn = finished();
            self.is_counting |= last_turn;
            self.turn(&mut clients, shared);
            if last_turn {
                break;
            }
            thread::park_timeout(RECORD_INTERVAL.to_std());
        }
        self.host = None;
        self.observer.end();
    }

    /// Sets the final packet counts. The pinger's are complete even if the ring overflowed.
    pub(super) fn settle(&mut self, counts: Counts, warm_up: WarmUpSession) {
        self.measured.note_warm_up(warm_up);
        self.measured.set_packets(dwell_stats::Packets {
            received: counts.received,
            lost: counts.lost,
            late: counts.late,
            duplicate: counts.duplicate,
            reordered: counts.reordered,
            send_failed: counts.send_failed,
        });
    }

    /// Computes the far end's clock and adds the one-way delays to the measurement; `None` if that clock
    /// shows the time of day.
    pub(super) fn settle_far_clock(&mut self) -> Option<Result<ClockBounds, ClockFault>> {
        let result = std::mem::take(&mut self.far_clock).finish()?;
        Some(result.map(|result| {
            self.measured.set_one_way(result.forward, result.backward);
            result.bounds
        }))
    }

    fn turn(&mut self, clients: &mut [ClientStream], shared: &Shared) {
        // Check the clocks after receiving the samples and before using them: a step since the last
        // turn invalidates all of them.
        let waiting: Vec<_> = clients.iter().map(|client| client.samples.slots()).collect();
        self.handle_events(clients);
        let now = clock::pair();
        if let Some(step) = self.last.step_until(&now) {
            self.void_samples(&format!("by {step}"), clients);
        }
        self.last = now;
        self.readings = [self.readings[1], read_clocks()];
        if self.read_driver_stamps() {
            self.void_samples("CLOCK_TAI moved against CLOCK_REALTIME", clients);
        }
        if self.is_counting {
            for (number, (client, waiting)) in clients.iter_mut().zip(waiting).enumerate() {
                for _ in 0..waiting {
                    let Ok(sample) = client.samples.pop() else { break };
                    let is_valid = sample.id >= client.void_below;
                    let id = number as u64 * CLIENT_ID_STRIDE + sample.id;
                    self.record(Sample { id, ..sample }, is_valid);
                }
            }
        }
        if let Some(explainer) = &mut self.explainer {
            explainer.turn(&self.turn_samples, &self.last, self.measured.rtt());
            self.turn_samples.clear();
        }
        while let Some(path) = self.paths.as_mut().and_then(|paths| paths.pop().ok()) {
            self.path.record(path.hops());
        }
        self.write_out();
        if self.output_closed && self.csv.is_none() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        self.observer.show(&self.measured);
    }

    /// Voids the probes in flight and the samples in the ring after a clock was stepped.
    fn void_samples(&mut self, step: &str, clients: &mut [ClientStream]) {
        for client in clients {
            // Warm-up ids, the upper half, precede all counted ones.
            let next = client.progress.next_id.load(Ordering::Relaxed);
            client.void_below = if next > u64::MAX / 2 { 0 } else { next };
        }
        self.warn(Warning::ClockStepped(format!("{step}; the affected samples are void")));
    }

    /// Reads the driver's timestamps, including those of all samples in the ring. Returns whether
    /// their clock was stepped.
    fn read_driver_stamps(&mut self) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        match driver.read() {
            Ok(has_moved) => has_moved,
            Err(error) => {
                self.failure.get_or_insert(error.into());
                false
            }
        }
    }

    fn handle_events(&mut self, clients: &mut [ClientStream]) {
        for (number, client) in clients.iter_mut().enumerate() {
            while let Ok(event) = client.events.pop() {
                self.handle_event(event, number == 0);
            }
        }
    }

    fn handle_event(&mut self, event: RunEvent, is_of_first_client: bool) {
        match event {
            RunEvent::Counting { .. } | RunEvent::Ttl { .. } if !is_of_first_client => {}
            RunEvent::Counting { tx, rx, warm_up_sent } => {
                self.is_counting = true;
                self.sources = TimestampSources::of_warm_up(tx, rx, warm_up_sent);
                self.measured = RoundTrip::new(self.sources.near(), warm_up_sent);
            }
            RunEvent::Unreachable(error) => self.warn(Warning::Unreachable(error.to_string())),
            RunEvent::Ttl { id, ttl } => {
                if let Some(replies) = &mut self.replies {
                    replies.note_ttl(id, ttl);
                }
            }
            RunEvent::SendFailed(error) => {
                let probe = "a probe".to_owned();
                self.warn(Warning::SendFailed(probe, error.to_string()));
            }
        }
    }

    /// Reports a warning now and in the result.
    fn warn(&mut self, warning: Warning) {
        // Clients of one target have the same errors.
        if self.warnings.contains(&warning) {
            return;
        }
        self.observer.say(&warning.to_string());
        self.warnings.push(warning);
    }

    fn record(&mut self, mut sample: Sample, is_valid: bool) {
        if let Some(driver) = &mut self.driver {
            driver.stamp(&mut sample);
        }
        let sample = &sample;
        if self.sources.learn(sample) {
            self.measured.set_near(self.sources.near());
        }
        let bridge = is_valid.then_some(&self.last);
        self.measured.record(sample, bridge);
        if bridge.is_some() {
            self.observer.record(sample);
            if let [Some(before), Some(after)] = &self.readings {
                self.far_clock.record(sample, self.sources.near(), before, after);
            }
        }
        if let Some(driver) = self.driver.as_mut().filter(|_| bridge.is_some()) {
            driver.record(sample);
        }
        if self.explainer.is_some() && bridge.is_some() {
            self.turn_samples.push(*sample);
        }
        let near = self.sources.near();
        for rows in [&mut self.csv, &mut self.lines].into_iter().flatten() {
            rows.format.append(&mut rows.text, sample, bridge, near);
        }
        if let Some(samples) = &mut self.samples {
            samples.writer.push(sample, bridge, near);
        }
        if let Some(replies) = &self.replies {
            self.observer.say(&replies.line(sample));
        }
    }

    fn write_out(&mut self) {
        for rows in [&mut self.csv, &mut self.lines] {
            let Some(open) = rows else { continue };
            let Err(error) = open.write_out() else { continue };
            *rows = None;
            if is_broken_pipe(&error) {
                self.output_closed = true;
                continue;
            }
            self.observer.say(&format!("{error:#}; the measurement continues without it"));
            self.failure.get_or_insert(error);
        }
        let Some(samples) = &mut self.samples else { return };
        let mut host = self.host.iter().flat_map(HostSampler::taken);
        let written = host.try_for_each(|sample| samples.writer.push_host(&sample));
        drop(host);
        let written = written.and_then(|()| samples.writer.flush());
        self.check_samples(written);
    }

    /// Gives the segment up if writing to it has failed.
    fn check_samples(&mut self, written: io::Result<()>) {
        let Err(error) = written else { return };
        let Some(samples) = self.samples.take() else { return };
        let error = samples.failure(error);
        self.observer.say(&format!("{error:#}; the measurement continues without it"));
        self.failure.get_or_insert(error);
    }

    /// Ends the segment of samples. Without its end, a segment is incomplete.
    pub(super) fn end_samples(&mut self, ring_dropped: u64) {
        let Some(samples) = self.samples.take() else { return };
        let name = samples.name.clone();
        if let Err(error) = samples.writer.finish(ring_dropped) {
            let error = anyhow::Error::new(error).context(cannot_write(&name));
            self.failure.get_or_insert(error);
        }
    }
}

/// Outputs in addition to the summary.
pub(crate) struct Outputs {
    /// CSV file with a row per probe.
    pub(crate) csv: Option<PathBuf>,
    /// JSON lines on standard output, one per probe.
    pub(crate) lines: bool,
    /// Segment with all timestamps.
    pub(crate) samples: Option<SampleFile>,
    /// Lines for replies.
    pub(crate) replies: Replies,
    /// Receiver of progress.
    pub(crate) observer: Box<dyn Observer>,
}

/// Destination of a segment.
pub(crate) struct SampleFile {
    pub(crate) to: Box<dyn Write>,
    /// For messages.
    pub(crate) name: PathBuf,
}

impl SampleFile {
    /// Creates the file. Samples are binary, so `-` is refused, not taken as a file name.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Err(Failure::usage(
                "invalid value '-' for --samples: samples are binary; give a file name",
            ));
        }
        let file =
            File::create(path).map_err(|e| anyhow::Error::new(e).context(cannot_write(path)))?;
        Ok(Self { to: Box::new(file), name: path.to_owned() })
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// A segment being written.
struct Samples {
    writer: SegmentWriter<Box<dyn Write>>,
    name: PathBuf,
}

impl Samples {
    fn begin(file: SampleFile, target: &Target) -> Result<Self, Failure> {
        let SampleFile { to, name } = file;
        let header = segment::Header::of_ping(target.to_string());
        let writer = SegmentWriter::new(to, &header)
            .map_err(|error| anyhow::Error::new(error).context(cannot_write(&name)))?;
        Ok(Self { writer, name })
    }

    fn failure(&self, error: io::Error) -> anyhow::Error {
        anyhow::Error::new(error).context(cannot_write(&self.name))
    }
}

/// Reads this machine's clocks; `None` if they show impossible times.
fn read_clocks() -> Option<ClockReading> {
    let read = clock::read_all();
    let (real, mono) = (read.real.as_nanos(), read.mono.as_nanos());
    ClockReading::new(real, mono, read.raw_ns, read.width.0)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// An output of rows. Whole lines are buffered and written at every turn.
struct Rows {
    format: RowFormat,
    text: Vec<u8>,
    to: Box<dyn Write>,
    name: PathBuf,
}

impl Rows {
    /// Creates the file and writes the header; `-` is standard output.
    fn create(path: &Path, format: RowFormat) -> Result<Self, Failure> {
        let to: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path).map_err(|error| {
                let what = format!("cannot write --csv {}", path.display());
                Failure::from(anyhow::Error::new(error).context(what))
            })?)
        };
        let mut rows = Self { format, text: Vec::new(), to, name: path.to_owned() };
        format.append_header(&mut rows.text);
        rows.write_out().map_err(Failure::from)?;
        Ok(rows)
    }

    fn standard_output() -> Self {
        let to = Box::new(io::stdout());
        Self { format: RowFormat::JsonLines, text: Vec::new(), to, name: "standard output".into() }
    }

    fn write_out(&mut self) -> anyhow::Result<()> {
        let written = self.to.write_all(&self.text).and_then(|()| self.to.flush());
        self.text.clear();
        written.with_context(|| format!("cannot write {}", self.name.display()))
    }
}
