//! The JSON of `iperf3 -J` (3.12), of a client or a server: one flow per stream with its totals and
//! intervals. It has no samples. For TCP, the kernel's smoothed round-trip time is read once per
//! interval.

use std::collections::BTreeMap;
use std::io::BufRead;

use dwell_record::{Figures, Packets, Scalar};
use dwell_stats::Distribution;
use dwell_units::Nanos;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess};

use crate::json::{self, Each, Fields, Object, nanos};
use crate::sink::{FlowNumber, Sink};
use crate::{Format, ImportError, ImportWarning, Imported, Interval};

pub(crate) fn read(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut test = Test::new(sink);
    json::read(Format::Iperf3, input, &mut Document { test: &mut test, kind: ObjectKind::Whole })?;
    test.finish()
}

/// Maximum number of intervals kept per stream.
const MAX_INTERVALS: usize = 100_000;

/// Maximum quoted length of iperf3's own error.
const MAX_ERROR_CHARS: usize = 200;

/// State of a test while its file is read.
struct Test<'a> {
    sink: Sink<'a>,
    /// By socket number.
    streams: BTreeMap<u64, Stream>,
    /// Datagrams counted by the receiver, of all streams together.
    expected: Option<u64>,
    error: Option<String>,
}

struct Stream {
    flow: FlowNumber,
    /// Smoothed round-trip times stated by this host's kernel.
    smoothed: Distribution,
    /// Intervals beyond the maximum were dropped.
    is_cut: bool,
    /// Datagrams sent, according to the totals.
    sent: u64,
}

#[derive(Deserialize)]
struct Connected {
    socket: u64,
    local_host: String,
    local_port: u16,
    remote_host: String,
    remote_port: u16,
}

/// The other end, as requested by the client or accepted by the server.
#[derive(Deserialize)]
struct Peer {
    host: String,
    #[serde(default)]
    port: u16,
}

#[derive(Deserialize)]
struct TestStart {
    protocol: Option<String>,
    blksize: Option<u64>,
    duration: Option<u64>,
    omit: Option<u64>,
    reverse: Option<u64>,
    bidir: Option<u64>,
}

/// One stream in one interval.
#[derive(Deserialize)]
struct StreamInterval {
    socket: u64,
    #[serde(default)]
    start: f64,
    #[serde(default)]
    end: f64,
    bytes: Option<u64>,
    bits_per_second: Option<f64>,
    /// Microseconds.
    rtt: Option<u64>,
    jitter_ms: Option<f64>,
    lost_packets: Option<i64>,
    packets: Option<u64>,
    #[serde(default)]
    omitted: bool,
    #[serde(default)]
    sender: bool,
}

#[derive(Deserialize)]
struct IntervalStreams {
    #[serde(default, deserialize_with = "first_streams")]
    streams: Vec<StreamInterval>,
}

/// Maximum number of streams of an interval; also limits the flows of a file.
const MAX_STREAMS: usize = 1_024;

fn first_streams<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<StreamInterval>, D::Error> {
    let mut first = Vec::new();
    let each = |piece: StreamInterval| {
        if first.len() < MAX_STREAMS {
            first.push(piece);
        }
    };
    Each::new(each).deserialize(deserializer)?;
    Ok(first)
}

/// The totals of one stream.
#[derive(Deserialize)]
struct Totals {
    udp: Option<Datagrams>,
    sender: Option<Bytes>,
    receiver: Option<Bytes>,
}

#[derive(Deserialize)]
struct Datagrams {
    socket: u64,
    seconds: Option<f64>,
    bytes: Option<u64>,
    bits_per_second: Option<f64>,
    jitter_ms: Option<f64>,
    lost_packets: Option<i64>,
    packets: Option<u64>,
    out_of_order: Option<u64>,
}

#[derive(Deserialize)]
struct Bytes {
    socket: u64,
    seconds: Option<f64>,
    bytes: Option<u64>,
    bits_per_second: Option<f64>,
    retransmits: Option<u64>,
}

#[derive(Deserialize)]
struct Received {
    packets: Option<u64>,
}

impl<'a> Test<'a> {
    fn new(sink: Sink<'a>) -> Self {
        Self { sink, streams: BTreeMap::new(), expected: None, error: None }
    }

    /// Returns the stream of a socket; `None` if there are too many.
    fn stream(&mut self, socket: u64, ends: &str) -> Option<&mut Stream> {
        if !self.streams.contains_key(&socket) {
            let flow = self.sink.flow(format!("[{socket}] {ends}").trim_end())?;
            let smoothed = Distribution::default();
            self.streams.insert(socket, Stream { flow, smoothed, is_cut: false, sent: 0 });
        }
        self.streams.get_mut(&socket)
    }

    fn connected(&mut self, ends: &Connected) {
        let Connected { socket, local_host, local_port, remote_host, remote_port } = ends;
        let local = address(local_host, *local_port);
        let remote = address(remote_host, *remote_port);
        if self.stream(*socket, &format!("{local} - {remote}")).is_none() {
            self.sink.skip(*socket, b"one stream too many");
        }
    }

    fn started(&mut self, test: TestStart) {
        let sink = &mut self.sink;
        sink.parameters([("protocol", test.protocol)]);
        sink.parameters([
            ("block_bytes", test.blksize),
            ("duration_s", test.duration),
            ("omitted_s", test.omit),
        ]);
        let flag = |value: Option<u64>| value.filter(|value| *value > 0).map(|_| true);
        sink.parameters([("reverse", flag(test.reverse)), ("bidirectional", flag(test.bidir))]);
    }

    fn piece(&mut self, piece: &StreamInterval) {
        let span = nanos(piece.start, 9).zip(nanos(piece.end, 9));
        let Some((start_ns, end_ns)) = span.filter(|_| !piece.omitted) else { return };
        let Some(stream) = self.stream(piece.socket, "") else { return };
        if let Some(rtt) = piece.rtt.filter(|_| piece.sender).and_then(microseconds) {
            stream.smoothed.record(rtt);
        }
        let flow = stream.flow;
        let kept = self.sink.flow_mut(flow).intervals.len();
        if kept == MAX_INTERVALS {
            if let Some(stream) = self.stream(piece.socket, "") {
                stream.is_cut = true;
            }
            return;
        }
        // A sender counts what it sends and does not know of losses.
        let is_counted = piece.jitter_ms.is_some();
        self.sink.flow_mut(flow).intervals.push(Interval {
            start_ns,
            end_ns,
            bytes: piece.bytes,
            rate_bps: piece.bits_per_second,
            jitter_ns: piece.jitter_ms.and_then(|ms| nanos(ms, 6)).filter(|ns| *ns >= 0),
            total: piece.packets.filter(|_| is_counted),
            lost: piece.lost_packets.and_then(|lost| lost.try_into().ok()),
            latency: None,
        });
    }

    fn totals(&mut self, totals: &Totals) {
        if let Some(datagrams) = &totals.udp {
            self.datagrams(datagrams);
        }
        // The receiver comes last: its rate replaces the sender's.
        let [sender, receiver] = [&totals.sender, &totals.receiver];
        for bytes in [sender, receiver].into_iter().flatten() {
            let Some(flow) = self.stream(bytes.socket, "").map(|stream| stream.flow) else {
                continue;
            };
            self.carried(flow, bytes.bytes, bytes.bits_per_second, bytes.seconds);
            if let Some(count) = bytes.retransmits {
                self.sink.value(flow, "tcp_retransmits", Scalar::Count(count));
            }
        }
    }

    /// Records bytes, rate and duration. Zeros are skipped: a receiver states zeros for values that
    /// only the sender counts.
    fn carried(
        &mut self,
        flow: FlowNumber,
        bytes: Option<u64>,
        rate: Option<f64>,
        seconds: Option<f64>,
    ) {
        let sink = &mut self.sink;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
            sink.value(flow, "bytes", Scalar::Count(bytes));
            if let Some(rate) = rate {
                sink.value(flow, "rate_bps", Scalar::Real(rate));
            }
        }
        let duration =
            seconds.and_then(|seconds| nanos(seconds, 9)).and_then(|ns| ns.try_into().ok());
        if let Some(duration) = duration {
            sink.value(flow, "duration_ns", Scalar::Count(duration));
        }
    }

    fn datagrams(&mut self, totals: &Datagrams) {
        let sent = totals.packets.unwrap_or(0);
        let Some(stream) = self.stream(totals.socket, "") else { return };
        stream.sent = sent;
        let flow = stream.flow;
        self.carried(flow, totals.bytes, totals.bits_per_second, totals.seconds);
        let sink = &mut self.sink;
        if let Some(jitter) = totals.jitter_ms {
            sink.value(flow, "jitter_rfc3550_ns", Scalar::Real((jitter * 1e6).round()));
        }
        let lost = totals.lost_packets.and_then(|lost| u64::try_from(lost).ok());
        let Some(lost) = lost.filter(|lost| *lost <= sent) else {
            sink.value(flow, "datagrams_sent", Scalar::Count(sent));
            let why = "more datagrams lost than sent";
            sink.warn_of(flow, ImportWarning::CountsLeftOut(why));
            return;
        };
        let (received, reordered) = (sent - lost, totals.out_of_order.unwrap_or(0));
        sink.packets(flow, Packets { sent, received, lost, reordered, ..Packets::default() });
        if sent > 0 {
            sink.value(flow, "loss_ratio", Scalar::Real(lost as f64 / sent as f64));
        }
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        if let Some(error) = self.error {
            let quoted: String = error.chars().take(MAX_ERROR_CHARS).collect();
            let reason = format!("iperf3 reports: {quoted}");
            return Err(ImportError::Malformed { format: Format::Iperf3, reason });
        }
        let sent = self.streams.values().fold(0_u64, |sum, stream| sum.saturating_add(stream.sent));
        for stream in self.streams.into_values() {
            stream.finish(&mut self.sink);
        }
        if let Some(missing @ 1..) = self.expected.and_then(|expected| sent.checked_sub(expected)) {
            self.sink.warn(ImportWarning::UncountedDatagrams(missing));
        }
        self.sink.warn(ImportWarning::TotalsOnly("iperf3", "totals and intervals"));
        self.sink.finish()
    }
}

impl Stream {
    fn finish(self, sink: &mut Sink) {
        if self.is_cut {
            sink.warn_of(self.flow, ImportWarning::IntervalsLeftOut(MAX_INTERVALS));
        }
        let figures: Figures = self.smoothed.figures().into();
        if figures.count > 0 {
            // Percentiles of smoothed values would be mistaken for percentiles of delays.
            let Figures { count, min, mean, stddev, max, .. } = figures;
            let figures = Figures { count, min, mean, stddev, max, ..Figures::default() };
            sink.flow_mut(self.flow).metrics.insert("tcp_smoothed_rtt_ns".to_owned(), figures);
        }
    }
}

fn microseconds(us: u64) -> Option<Nanos> {
    i64::try_from(us).ok()?.checked_mul(1_000).map(Nanos)
}

fn address(host: &str, port: u16) -> String {
    let host: String = host.chars().take(MAX_ERROR_CHARS).collect();
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The object that is being read.
#[derive(Clone, Copy)]
enum ObjectKind {
    Whole,
    Start,
    End,
}

struct Document<'t, 'a> {
    test: &'t mut Test<'a>,
    kind: ObjectKind,
}

impl Fields for Document<'_, '_> {
    const OBJECT: &'static str = "the object that iperf3 writes";

    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let test = &mut *self.test;
        match (self.kind, key) {
            (ObjectKind::Whole, "start") => {
                map.next_value_seed(Object(&mut Document { test, kind: ObjectKind::Start }))?;
            }
            (ObjectKind::Whole, "end") => {
                map.next_value_seed(Object(&mut Document { test, kind: ObjectKind::End }))?;
            }
            (ObjectKind::Whole, "error") => test.error = Some(map.next_value()?),
            (ObjectKind::Whole, "intervals") => {
                let each = |pieces: IntervalStreams| {
                    pieces.streams.iter().for_each(|piece| test.piece(piece));
                };
                map.next_value_seed(Each::new(each))?;
            }
            (ObjectKind::Start, "connected") => {
                map.next_value_seed(Each::new(|ends: Connected| test.connected(&ends)))?;
            }
            (ObjectKind::Start, "version") => {
                test.sink.parameter("iperf3_version", map.next_value::<String>()?);
            }
            (ObjectKind::Start, "connecting_to") => {
                let server: Peer = map.next_value()?;
                let target = format!("iperf3://{}", address(&server.host, server.port));
                test.sink.imported.target = target;
                test.sink.parameter("role", "client");
            }
            (ObjectKind::Start, "accepted_connection") => {
                let _client: Peer = map.next_value()?;
                test.sink.parameter("role", "server");
            }
            (ObjectKind::Start, "test_start") => test.started(map.next_value()?),
            (ObjectKind::End, "streams") => {
                map.next_value_seed(Each::new(|totals: Totals| test.totals(&totals)))?;
            }
            (ObjectKind::End, "sum_received") => {
                let received: Received = map.next_value()?;
                test.expected = received.packets.filter(|count| *count > 0);
            }
            (ObjectKind::End, "sum_received_bidir_reverse") => {
                // `sum_received` covers only one direction.
                map.next_value::<IgnoredAny>()?;
                test.expected = None;
            }
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}
