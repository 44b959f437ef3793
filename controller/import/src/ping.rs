//! Output of `ping`: of iputils, with any of `-D`, `-O` and `-q`, and of BusyBox. The id of a row
//! is its sequence number, unwrapped from 16 bits. iputils counts from 1, BusyBox and BSD from 0.

use std::io::BufRead;

use dwell_record::{Column, Figures, Packets, Scalar};
use dwell_sample::State;

use crate::decimal::scaled;
use crate::lines::Lines;
use crate::sequence::{Arrival, Sequence, unwrapped};
use crate::sink::{FlowNumber, Sink};
use crate::{ImportError, ImportWarning, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let mut lines = Lines::of(input);
    let mut probes =
        Probes { flow: sink.only_flow(), sequence: None, first: 1, newest: 0, errors: 0 };
    let mut totals = Totals::default();
    while let Some((number, line)) = lines.next().map_err(ImportError::Read)? {
        let understood = match line {
            [] => true,
            _ if line.starts_with(b"PING ") => {
                probes.first = header(line, &mut sink);
                true
            }
            _ if line.starts_with(b"--- ") => true,
            _ => probes.line(line, &mut sink)? || totals.line(line),
        };
        match understood {
            true => sink.understood(),
            false => sink.skip(number, line),
        }
    }
    probes.end(&totals, &mut sink)?;
    sink.finish()
}

/// Parses `PING name (address) 56(84) bytes of data.` or, for IPv6, `PING name(address) 56 data
/// bytes`; BusyBox and BSD print a colon after the address. Returns the number of the first probe.
fn header(line: &[u8], sink: &mut Sink) -> u64 {
    let text = String::from_utf8_lossy(&line[b"PING ".len()..]);
    let name = text.split([' ', '(']).next().unwrap_or_default();
    let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    sink.imported.target = format!("icmp://{name}");
    let (rest, first) = match text.split_once("): ") {
        Some((_, rest)) => (rest, 0),
        None => (text.split_once(") ").map_or("", |(_, rest)| rest), 1),
    };
    if let Ok(size) = leading(rest.as_bytes()).parse::<u32>() {
        sink.parameter("payload_bytes", size);
    }
    first
}

struct Probes {
    flow: FlowNumber,
    /// `None` before the first reply.
    sequence: Option<Sequence>,
    /// Number of the first probe, according to the header.
    first: u64,
    newest: i64,
    errors: u64,
}

impl Probes {
    /// Parses a line about a probe. Returns false if it is another line.
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<bool, ImportError> {
        let (stamp, line) = stamped(line);
        let busybox = || after(line, b": seq=");
        let numbered = after(line, b"icmp_seq=");
        if numbered.is_none() && busybox().is_some() {
            self.first = 0;
        }
        let Some(raw) = numbered.or_else(busybox).and_then(|rest| leading(rest).parse().ok())
        else {
            return Ok(false);
        };
        let Some(number) = self.number(raw) else { return Ok(false) };
        if self.sequence.is_none() {
            self.first = self.first.min(number);
            self.sequence = Some(Sequence::starting_at(self.first));
        }
        if line.starts_with(b"no answer yet for ") {
            self.expect(number);
            return Ok(true);
        }
        if line.starts_with(b"From ") || line.starts_with(b"from ") {
            // A redirected probe is still forwarded.
            self.errors += u64::from(after(line, b"Redirect").is_none());
            self.expect(number);
            return Ok(true);
        }
        let Some(rtt) = after(line, b" time=").and_then(duration) else { return Ok(false) };
        let Some(sequence) = &mut self.sequence else { return Ok(false) };
        let arrival = match sequence.arrive(number) {
            _ if after(line, b"(DUP!)").is_some() => Arrival::Again,
            arrival => arrival,
        };
        let (state, overtaken) = match arrival {
            Arrival::First { overtaken } => (State::Received, overtaken),
            Arrival::Again => (State::Duplicate, false),
            Arrival::OutOfRange => return Ok(false),
        };
        self.newest = self.newest.max(number as i64);
        let size = leading(line).parse().ok();
        sink.row(self.flow, number, state)?
            .reordered(overtaken)
            .set(Column::Rtt, Some(rtt))
            .set(Column::RxApp, stamp)
            .set(Column::SizeBytes, size);
        while let Some(lost) = self.sequence.as_mut().and_then(Sequence::given_up) {
            sink.lost(self.flow, lost)?;
        }
        Ok(true)
    }

    /// Unwraps the 16 bits of icmp_seq.
    fn number(&self, raw: u16) -> Option<u64> {
        match self.sequence {
            None => Some(u64::from(raw)),
            Some(_) => unwrapped(u64::from(raw), 16, self.newest).try_into().ok(),
        }
    }

    /// Records a probe that was sent and is not answered yet.
    fn expect(&mut self, number: u64) {
        let Some(sequence) = &mut self.sequence else { return };
        if sequence.expect(number.saturating_add(1)) {
            self.newest = self.newest.max(number as i64);
        }
    }

    fn end(mut self, totals: &Totals, sink: &mut Sink) -> Result<(), ImportError> {
        let sent = totals.transmitted.unwrap_or(0);
        let quiet = self.sequence.is_none() && totals.received > 0;
        if quiet {
            totals.instead_of_rows(self.flow, sink);
        } else {
            let first = self.first;
            let sequence = self.sequence.get_or_insert_with(|| Sequence::starting_at(first));
            if !sequence.expect(sent.saturating_add(first)) {
                sink.warn(ImportWarning::CountsContradict(sent, sequence.next()));
            }
            while let Some(lost) = sequence.left() {
                sink.lost(self.flow, lost)?;
            }
        }
        if self.errors > 0 {
            sink.value(self.flow, "icmp_errors", Scalar::Count(self.errors));
        }
        if totals.transmitted.is_none() {
            sink.warn(ImportWarning::TotalsMissing);
        }
        Ok(())
    }
}

/// The totals at the end of the output.
#[derive(Default)]
struct Totals {
    transmitted: Option<u64>,
    received: u64,
    duplicates: u64,
    /// Minimum, mean and maximum.
    rtt: Option<[i64; 3]>,
}

impl Totals {
    fn line(&mut self, line: &[u8]) -> bool {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        if line.contains(" packets transmitted") {
            // A truncated line does not state how many were received.
            if !line.contains("% packet loss") {
                return false;
            }
            for part in line.split(", ") {
                let count = leading(part.trim_start_matches('+').as_bytes()).parse().ok();
                match part.trim_start_matches(|c: char| c == '+' || c.is_ascii_digit()) {
                    " packets transmitted" => self.transmitted = count,
                    " received" | " packets received" => self.received = count.unwrap_or(0),
                    " duplicates" => self.duplicates = count.unwrap_or(0),
                    _ => {}
                }
            }
            return true;
        }
        // `rtt min/avg/max/mdev = ` by iputils, `round-trip min/avg/max = ` by BusyBox.
        let named = line.split_once(" min/avg/max").filter(|(name, _)| !name.contains(' '));
        let Some((_, figures)) = named.and_then(|(_, rest)| rest.split_once(" = ")) else {
            return line.starts_with("pipe ") || line.starts_with("rtt ");
        };
        let figures = figures.split(' ').next().unwrap_or_default().split('/');
        let figures = figures.filter_map(|text| scaled(text.as_bytes(), 6)).take(3);
        let figures: Vec<_> = figures.filter(|figure| *figure >= 0).collect();
        self.rtt = figures.try_into().ok();
        self.rtt.is_some()
    }

    /// Records the totals, which are all that `ping -q` prints.
    fn instead_of_rows(&self, flow: FlowNumber, sink: &mut Sink) {
        let sent = self.transmitted.unwrap_or(0);
        let (received, duplicate) = (self.received, self.duplicates);
        let lost = sent.saturating_sub(received);
        sink.packets(flow, Packets { sent, received, lost, duplicate, ..Packets::default() });
        if let Some([min, mean, max]) = self.rtt {
            // ping's figures include duplicates.
            let count = received.saturating_add(duplicate);
            let mean = Some(mean as f64);
            let figures =
                Figures { count, min: Some(min), mean, max: Some(max), ..Figures::default() };
            sink.flow_mut(flow).metrics.insert("rtt_ns".to_owned(), figures);
        }
        sink.warn(ImportWarning::TotalsOnly("ping -q", "totals"));
    }
}

/// Splits off the timestamp of `-D`, in nanoseconds since the epoch.
fn stamped(line: &[u8]) -> (Option<i64>, &[u8]) {
    let Some(rest) = line.strip_prefix(b"[") else { return (None, line) };
    let Some(end) = rest.iter().position(|byte| *byte == b']') else { return (None, line) };
    (scaled(&rest[..end], 9), rest[end + 1..].trim_ascii_start())
}

/// Parses `12.3 ms` to nanoseconds. Negative times are refused.
fn duration(text: &[u8]) -> Option<i64> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    let time = text[end..].starts_with(b" ms").then(|| scaled(&text[..end], 6))?;
    time.filter(|time| *time >= 0)
}

/// Returns the text after `word`.
fn after<'t>(text: &'t [u8], word: &[u8]) -> Option<&'t [u8]> {
    let at = text.windows(word.len()).position(|window| window == word)?;
    Some(&text[at + word.len()..])
}

/// Returns the leading digits.
fn leading(text: &[u8]) -> &str {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or_default()
}
