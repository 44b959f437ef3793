//! The text output of `iperf -e` (iperf 2.1), of a client or a server. It has no packets, only
//! intervals and totals, to the printed precision.

use std::collections::HashMap;
use std::io::BufRead;

use dwell_record::{Figures, Packets, Scalar};

use crate::decimal::scaled;
use crate::lines::Lines;
use crate::sink::{FlowNumber, Sink};
use crate::{ImportError, ImportWarning, Imported, Interval};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let mut lines = Lines::of(input);
    let mut output = Parser::default();
    while let Some((number, line)) = lines.next().map_err(ImportError::Read)? {
        let text = String::from_utf8_lossy(line);
        match output.line(&text, &mut sink) {
            true => sink.understood(),
            false => sink.skip(number, line),
        }
    }
    output.end(&mut sink);
    sink.finish()
}

/// Maximum number of intervals kept per flow.
const MAX_INTERVALS: usize = 100_000;

#[derive(Default)]
struct Parser {
    /// Open connections by the number in brackets. A reused number starts a new connection.
    connections: HashMap<String, Connection>,
    ended: Vec<Connection>,
    tcp: bool,
}

struct Connection {
    flow: FlowNumber,
    /// The socket number, if printed.
    socket: Option<String>,
    /// Both ends have the same address and therefore the same clock.
    one_host: bool,
    /// The client printed the receiver's report.
    reported: bool,
    /// The totals: of the intervals that start at 0, the one that ends last.
    total: Option<Interval>,
    /// Reordered packets of the total.
    reordered: u64,
    /// Intervals beyond the maximum were dropped.
    cut: bool,
}

impl Parser {
    /// Returns false if iperf does not print such a line.
    fn line(&mut self, text: &str, sink: &mut Sink) -> bool {
        let Some((id, text)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) else {
            return self.preamble(text, sink);
        };
        let (id, text) = (id.trim(), text.trim());
        // Column headings, and sums of values that are on other lines.
        if id == "ID" || id.starts_with("SUM") || id.starts_with("FD") {
            return true;
        }
        if let Some(ends) = text.strip_prefix("local ") {
            return self.connect(id, ends, sink);
        }
        if text.starts_with("WARNING: ") {
            let said = ImportWarning::ProgramSays("iperf", text.to_owned());
            match self.warned(id) {
                Some(connection) => sink.warn_of(connection.flow, said),
                None => {
                    if sink.imported.warnings.len() < 16 {
                        sink.warn(said);
                    }
                }
            }
            return true;
        }
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if text == "Server Report:" {
            connection.reported = true;
            return true;
        }
        if let Some(sent) = text.strip_prefix("Sent ").and_then(|t| t.strip_suffix(" datagrams")) {
            let Ok(sent) = sent.parse() else { return false };
            sink.value(connection.flow, "datagrams_sent", Scalar::Count(sent));
            return true;
        }
        connection.line(text, sink)
    }

    /// Returns the connection of a warning. iperf 2.1 prints the socket number in warnings and the
    /// connection number elsewhere.
    fn warned(&self, id: &str) -> Option<&Connection> {
        let by_socket = |connection: &&Connection| connection.socket.as_deref() == Some(id);
        // A reused socket number belongs to the newest connection.
        let newest = self.connections.values().filter(by_socket).max_by_key(|it| it.flow);
        newest.or_else(|| self.connections.get(id))
    }

    /// Parses a line without brackets.
    fn preamble(&mut self, text: &str, sink: &mut Sink) -> bool {
        if let Some(rest) = text.strip_prefix("Client connecting to ") {
            self.tcp |= rest.contains("TCP port");
            if let Some((host, rest)) = rest.split_once(", UDP port ") {
                let port = rest.split(' ').next().unwrap_or_default();
                sink.imported.target = format!("iperf2://{}", bracketed(host, port));
            }
            sink.parameter("role", "client");
            return true;
        }
        if let Some(rest) = text.strip_prefix("Server listening on ") {
            self.tcp |= rest.starts_with("TCP");
            sink.parameter("role", "server");
            return true;
        }
        if let Some((size, rest)) =
            text.strip_prefix("Sending ").and_then(|rest| rest.split_once(" byte datagrams"))
        {
            if let Ok(size) = size.parse::<u32>() {
                sink.parameter("payload_bytes", size);
            }
            let target = rest.split_once("IPG target: ").and_then(|(_, gap)| gap.split_once(" us"));
            if let Some(gap) = target.and_then(|(gap, _)| scaled(gap.as_bytes(), 3)) {
                sink.parameter("gap_ns", gap);
            }
            return true;
        }
        let known = [
            "-----",
            "TOS ",
            "UDP buffer",
            "TCP window",
            "Binding to",
            "Read buffer",
            "Waiting for",
            "Connection from",
            "WARNING",
            "Setting ",
            "Write buffer",
            "Local ",
            "Event based",
            "Isochronous",
            "UDP traffic",
            "Burst",
            "Joining",
            "Accepted",
        ];
        text.is_empty() || known.iter().any(|word| text.starts_with(word))
    }

    /// `127.0.0.1%lo port 5001 connected with 127.0.0.1 port 32811 (trip-times) (sock=3) ...`
    fn connect(&mut self, id: &str, ends: &str, sink: &mut Sink) -> bool {
        let words: Vec<_> = ends.split_whitespace().take(32).collect();
        let [local, "port", local_port, "connected", "with", remote, "port", port, ref rest @ ..] =
            words[..]
        else {
            return false;
        };
        let local = local.split('%').next().unwrap_or_default();
        let ends = [bracketed(local, local_port), bracketed(remote, port)];
        let Some(flow) = sink.flow(&format!("[{id}] {} - {}", ends[0], ends[1])) else {
            return false;
        };
        if rest.contains(&"(trip-times)") {
            sink.parameter("trip_times", true);
        }
        let one_host = local == remote;
        let socket = |word: &&str| Some(word.strip_prefix("(sock=")?.strip_suffix(')')?.to_owned());
        let new = Connection {
            flow,
            socket: rest.iter().find_map(socket),
            one_host,
            reported: false,
            total: None,
            reordered: 0,
            cut: false,
        };
        self.ended.extend(self.connections.insert(id.to_owned(), new));
        true
    }

    fn end(self, sink: &mut Sink) {
        let mut all: Vec<_> = self.connections.into_values().chain(self.ended).collect();
        all.sort_by_key(|connection| connection.flow);
        for connection in all {
            connection.end(sink);
        }
        if self.tcp {
            sink.warn(ImportWarning::RatesOnly);
        }
    }
}

impl Connection {
    /// `0.0000-1.0103 sec  18.2 KBytes   147 Kbits/sec   ...`
    fn line(&mut self, text: &str, sink: &mut Sink) -> bool {
        let words: Vec<_> = text.split_whitespace().take(32).collect();
        let [span, "sec", ref rest @ ..] = words[..] else { return false };
        let Some((start, end)) = span.split_once('-') else { return false };
        let (Some(start_ns), Some(end_ns)) =
            (scaled(start.as_bytes(), 9), scaled(end.as_bytes(), 9))
        else {
            return false;
        };
        if let [count, "datagrams", "received", "out-of-order"] = rest {
            let Ok(count) = count.parse() else { return false };
            let total = self.total.map(|total| (total.start_ns, total.end_ns));
            if total == Some((start_ns, end_ns)) {
                self.reordered = count;
            }
            return true;
        }
        let [bytes, bytes_unit, rate, rate_unit, columns @ ..] = rest else { return false };
        let mut interval = Interval {
            start_ns,
            end_ns,
            bytes: quantity(bytes, bytes_unit, "Bytes", 1024).map(|bytes| bytes as u64),
            rate_bps: quantity(rate, rate_unit, "bits/sec", 1000).map(|rate| rate as f64),
            ..Interval::default()
        };
        if interval.rate_bps.is_none() {
            return false;
        }
        receiver_columns(columns, &mut interval);
        // Totals span the intervals before them. A client prints its own totals, then the server's.
        let before = self.total.map_or(i64::MIN, |total| total.end_ns);
        if start_ns == 0 && (self.reported || end_ns >= before) {
            (self.total, self.reordered) = (Some(interval), 0);
        }
        let intervals = &mut sink.flow_mut(self.flow).intervals;
        match intervals.len() < MAX_INTERVALS {
            true => intervals.push(interval),
            false => self.cut = true,
        }
        true
    }

    fn end(self, sink: &mut Sink) {
        if self.cut {
            sink.warn_of(self.flow, ImportWarning::IntervalsLeftOut(MAX_INTERVALS));
        }
        let latest = sink.flow_mut(self.flow).intervals.iter().map(|i| i.end_ns).max();
        let whole = |total: &Interval| latest <= Some(total.end_ns) || self.reported;
        let Some(total) = self.total.filter(whole) else {
            sink.warn_of(self.flow, ImportWarning::TotalsMissing);
            return;
        };
        // Keeps the intervals and drops the totals.
        let intervals = &mut sink.flow_mut(self.flow).intervals;
        let parts = intervals.iter().filter(|i| i.start_ns > 0).map(|i| i.start_ns).min();
        intervals.retain(|i| i.start_ns > 0 || parts.is_some_and(|second| i.end_ns <= second));
        let flow = self.flow;
        if let Some(rate) = total.rate_bps {
            sink.value(flow, "rate_bps", Scalar::Real(rate));
        }
        if let Some(bytes) = total.bytes {
            sink.value(flow, "bytes", Scalar::Count(bytes));
        }
        if let Ok(duration) = u64::try_from(total.end_ns) {
            sink.value(flow, "duration_ns", Scalar::Count(duration));
        }
        if let Some(jitter) = total.jitter_ns {
            sink.value(flow, "jitter_rfc3550_ns", Scalar::Real(jitter as f64));
        }
        if let Some((lost, sent)) = total.lost.zip(total.total).filter(|(lost, sent)| lost <= sent)
        {
            let received = sent - lost;
            let reordered = self.reordered;
            sink.packets(flow, Packets { sent, received, lost, reordered, ..Packets::default() });
            if sent > 0 {
                sink.value(flow, "loss_ratio", Scalar::Real(lost as f64 / sent as f64));
            }
        }
        if let Some(latency) = total.latency {
            let metric = match self.one_host {
                true => "one_way_forward_ns",
                false => "forward_plus_offset_ns",
            };
            if self.one_host && latency.min.is_some_and(|min| min < 0) {
                sink.warn_of(flow, ImportWarning::NegativeDelays("at least 1".to_owned()));
            }
            sink.flow_mut(flow).metrics.insert(metric.to_owned(), latency);
        }
    }
}

/// Parses the columns of a receiver, `0.455 ms 10/103 (9.7%) 0.274/0.012/10.049/1.463 ms`. A sender
/// prints none of them.
fn receiver_columns(columns: &[&str], interval: &mut Interval) {
    let [jitter, "ms", counts, rest @ ..] = columns else { return };
    interval.jitter_ns = scaled(jitter.as_bytes(), 6).filter(|jitter| *jitter >= 0);
    if let Some((lost, total)) = counts.split_once('/') {
        (interval.lost, interval.total) = (lost.parse().ok(), total.parse().ok());
    }
    // The percentage follows the counts, with or without a space inside its brackets.
    let after = rest.iter().position(|word| word.ends_with(')')).map_or(0, |at| at + 1);
    if let [latency, "ms", ..] = &rest[after..] {
        let received = interval.total.zip(interval.lost);
        let count = received.map_or(0, |(total, lost)| total.saturating_sub(lost));
        interval.latency = figures(latency, count);
    }
}

/// Parses `avg/min/max/stdev` in milliseconds; `-/-/-/-` if the clocks are not synchronised.
fn figures(text: &str, count: u64) -> Option<Figures> {
    let numbers: Vec<_> = text.split('/').map(|text| scaled(text.as_bytes(), 6)).collect();
    let [Some(mean), Some(min), Some(max), deviation] = numbers[..] else { return None };
    Some(Figures {
        count,
        min: Some(min),
        mean: Some(mean as f64),
        stddev: deviation.filter(|ns| count > 1 && *ns >= 0).map(|ns| ns as f64),
        max: Some(max),
        ..Figures::default()
    })
}

/// Parses a number and a unit with one of iperf's prefixes.
fn quantity(number: &str, unit: &str, name: &str, kilo: i64) -> Option<i64> {
    let factor = match unit.strip_suffix(name)? {
        "" => 1,
        "K" => kilo,
        "M" => kilo.pow(2),
        "G" => kilo.pow(3),
        "T" => kilo.pow(4),
        _ => return None,
    };
    let micro = i128::from(scaled(number.as_bytes(), 6).filter(|number| *number >= 0)?);
    ((micro * i128::from(factor) + 500_000) / 1_000_000).try_into().ok()
}

fn bracketed(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
