//! Turns trains into statistics and rows; with timestamps of the far end, once it has sent them.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Context;
use dwell_io::train::Departure;
use dwell_record::segment::{Header, SegmentWriter};
use dwell_sample::{DepartureStamps, Remote, Sample, State, TimestampSource, TxStamps};
use dwell_stats::departures::{Pairs, TrainDepartures, Trains};
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

use super::drive::{Train, first_id};
use super::far_end::{Arrival, Arrivals};
use super::setup::PaceSetup;
use crate::Failure;
use crate::host::HostSampler;
use crate::ping::SampleFile;

/// Origin of departure timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Timestamps of this machine's kernel.
    Kernel(DepartureStamps),
    /// Arrivals at the sink, of this source.
    Sink(TimestampSource),
    /// Clock readings of this program.
    User,
}

impl Source {
    /// Returns the name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel(DepartureStamps::Tap) => "tap",
            Self::Kernel(_) => "tx_kernel",
            Self::Sink(_) => "sink",
            Self::User => "tx_app",
        }
    }

    /// Returns the source of these timestamps.
    pub(super) const fn timestamp_source(self) -> TimestampSource {
        match self {
            Self::Kernel(_) => TimestampSource::KernelSw,
            Self::Sink(timestamp_source) => timestamp_source,
            Self::User => TimestampSource::User,
        }
    }

    /// Returns the departure of a packet; `arrival` is its time at the sink.
    pub(super) fn of(
        self,
        left: &Departure,
        arrival: Option<Instant<Realtime>>,
    ) -> Option<Instant<Realtime>> {
        match self {
            Self::Kernel(_) => left.kernel,
            Self::Sink(_) => arrival,
            Self::User => left.app,
        }
    }

    /// Whether these timestamps are the sink's and its clock may have been stepped between these
    /// packets.
    pub(super) fn stepped_during(self, ids: Range<u64>, arrivals: Option<&Arrivals>) -> bool {
        matches!(self, Self::Sink(_))
            && arrivals.is_some_and(|arrivals| arrivals.stepped_during(ids))
    }
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) failed: u64,
    /// With a timestamp of the departure.
    pub(super) stamped: u64,
    /// Prepared before they were due.
    pub(super) ahead: u64,
    /// Arrived at the sink.
    pub(super) arrived: u64,
    /// Arrived after a packet with a higher number.
    pub(super) reordered: u64,
    pub(super) warm_up: u64,
    /// Whether the sink has reported.
    pub(super) sink_reported: bool,
}

/// Statistics and segment of a job.
pub(super) struct Recorder<'a> {
    setup: &'a PaceSetup,
    pub(super) source: Source,
    pub(super) pairs: Option<Pairs>,
    pub(super) trains: Trains,
    pub(super) each: Vec<dwell_record::Train>,
    pub(super) counts: Counts,
    pub(super) start: Pairing,
    pub(super) end: Pairing,
    /// Whether the sink uses this clock; `None` without a sink.
    far: Option<bool>,
    newest: Option<Arrival>,
    /// First and last train that started: index and time.
    begun: Option<[(usize, Instant<Monotonic>); 2]>,
    segment: Option<(SegmentWriter<Box<dyn Write>>, PathBuf)>,
    host: Option<HostSampler>,
    pub(super) failure: Option<anyhow::Error>,
}

impl<'a> Recorder<'a> {
    /// Starts recording. `far`: whether the sink uses this clock, `None` without one. Fails if the
    /// file cannot be written.
    pub(super) fn begin(
        setup: &'a PaceSetup,
        target: &str,
        source: Source,
        far: Option<bool>,
        file: Option<SampleFile>,
    ) -> Result<Self, Failure> {
        let begin = |SampleFile { to, name }| -> anyhow::Result<_> {
            let header = Header::of_pace(target.to_owned());
            let writer = SegmentWriter::new(to, &header)
                .with_context(|| format!("cannot write {}", name.display()))?;
            Ok((writer, name))
        };
        let segment = file.map(begin).transpose()?;
        let host = segment.is_some().then(HostSampler::start);
        let start = dwell_io::clock::pair();
        let is_far = matches!(source, Source::Sink(_));
        let request = setup.request(!is_far || far == Some(true));
        Ok(Self {
            setup,
            source,
            pairs: setup.is_pairs().then(|| Pairs::new(&request)),
            trains: Trains::new(request),
            each: Vec::new(),
            counts: Counts::default(),
            start,
            end: start,
            far,
            newest: None,
            begun: None,
            segment,
            host,
            failure: None,
        })
    }

    /// Records a train; `arrivals` are its packets at the sink, if there is one.
    pub(super) fn take(&mut self, train: &Train, arrivals: Option<&Arrivals>) {
        let Some(number) = train.number else {
            self.counts.warm_up +=
                train.left.iter().filter(|left| left.app.is_some()).count() as u64;
            return;
        };
        self.counts.sink_reported |= arrivals.is_some();
        let first = first_id(&self.setup.departures, number);
        let arrival = |index: usize| arrivals?.of(first + index as u64);
        let source = self.source;
        let on_schedule = train.on_schedule(&self.setup.departures, |index, departure| {
            source.of(departure, arrival(index).map(|arrival| arrival.at))
        });
        let Some(on_schedule) = on_schedule else { return };
        let began = (number, train.start);
        self.begun = Some([self.begun.map_or(began, |[first, _]| first), began]);
        let sent = on_schedule.sent();
        let ids = first..first + train.left.len() as u64;
        let sent = TrainDepartures {
            stepped: sent.stepped || source.stepped_during(ids, arrivals),
            ..sent
        };
        self.counts.stamped += sent.left.iter().flatten().count() as u64;
        for (index, (departure, due)) in train.left.iter().zip(sent.due).enumerate() {
            let (id, arrival) = (first + index as u64, arrival(index));
            self.count(departure, arrival);
            let arrival = arrival.map(|arrival| arrival.at);
            let state = state(departure, arrivals.map(|_| arrival));
            let bridge = (!sent.stepped).then_some(&train.bridge);
            self.keep((train, bridge), id, state, train.start + *due, departure, arrival);
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.record(&sent);
            return;
        }
        if let Some(figures) = self.trains.record(&sent) {
            self.each.push(dwell_record::Train {
                rate_bps: figures.rate_bps,
                // Missing gaps could have any error.
                gap_error_p95_ns: (figures.unstamped == 0)
                    .then_some(figures.gap_error.p95)
                    .flatten()
                    .map(|error| error.0),
                holed: figures.holed(),
            });
        }
    }

    /// Returns the mean interval between starts of trains or pairs, planned and actual; `None` for
    /// fewer than two.
    pub(super) fn mean_intervals(&self) -> Option<[Nanos; 2]> {
        let [(first, from), (last, to)] = self.begun?;
        let times = i64::try_from(last.checked_sub(first)?).ok().filter(|times| *times > 0)?;
        let departures = &self.setup.departures;
        let due = |train: usize| departures.at()[departures.trains()[train].start];
        Some([due(last) - due(first), to - from].map(|time| Nanos(time.0 / times)))
    }

    fn count(&mut self, left: &Departure, arrival: Option<Arrival>) {
        match left.app {
            Some(_) => self.counts.sent += 1,
            None => self.counts.failed += 1,
        }
        self.counts.ahead += u64::from(left.ahead);
        let Some(arrival) = arrival else { return };
        self.counts.arrived += 1;
        // Times before and after a clock step have no order.
        let newest = self.newest.filter(|newest| newest.epoch == arrival.epoch);
        let is_overtaken = newest.is_some_and(|newest| arrival.at < newest.at);
        self.counts.reordered += u64::from(is_overtaken);
        if !is_overtaken {
            self.newest = Some(arrival);
        }
    }

    fn keep(
        &mut self,
        (train, bridge): (&Train, Option<&Pairing>),
        id: u64,
        state: State,
        intended: Instant<Monotonic>,
        left: &Departure,
        arrival: Option<Instant<Realtime>>,
    ) {
        let Some((writer, _)) = &mut self.segment else { return };
        let app = left.app.unwrap_or_else(|| train.bridge.to_real(intended));
        let tx = TxStamps { app, sched: left.sched, tcx: None, kernel: left.kernel, hw: None };
        let remote = arrival.map(|at| Remote {
            rx: at,
            tx: at,
            seq: id as u32,
            ttl: None,
            same_clock: self.far == Some(true),
        });
        let sample = Sample { id, state, reordered: false, intended, tx, rx: None, remote };
        writer.push(&sample, bridge, self.source.timestamp_source());
    }

    /// Writes out recorded data; call it a few times per second.
    pub(super) fn flush(&mut self) {
        let Some((writer, _)) = &mut self.segment else { return };
        let mut host = self.host.iter().flat_map(HostSampler::taken);
        let written = host.try_for_each(|sample| writer.push_host(&sample));
        drop(host);
        let written = written.and_then(|()| writer.flush());
        self.note(written);
    }

    /// Ends the segment.
    pub(super) fn finish(&mut self) {
        self.end = dwell_io::clock::pair();
        self.flush();
        let Some((writer, name)) = self.segment.take() else { return };
        let finished = writer.finish(0).and_then(|mut to| to.flush());
        self.fail(finished, &name);
    }

    /// A write error ends the segment, not the measurement.
    fn note(&mut self, written: io::Result<()>) {
        if written.is_err()
            && let Some((_, name)) = self.segment.take()
        {
            self.fail(written, &name);
        }
    }

    fn fail(&mut self, written: io::Result<()>, name: &std::path::Path) {
        let context = || format!("cannot write {}", name.display());
        if let Err(error) = written.with_context(context) {
            self.failure.get_or_insert(error);
        }
    }
}

/// Returns the state of a packet; `arrival` is the sink's report, `None` without one.
fn state(left: &Departure, arrival: Option<Option<Instant<Realtime>>>) -> State {
    match (left.app, arrival) {
        (None, _) => State::SendFailed,
        (_, None) => State::Sent,
        (_, Some(Some(_))) => State::Received,
        (_, Some(None)) => State::Lost,
    }
}
