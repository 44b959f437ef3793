//! The binary log of D-ITG 2.8 (`ITGRecv -l`): records of 144 bytes, little-endian.
//!
//! 0 u32 flow, 4 u32 number, 8 u32 source port, 12 u32 destination port, 16 hour and 20 minute of
//! sending, 24 hour and 28 minute of receiving, 32 u32 bytes, 36 and 82 the addresses as text of 46
//! bytes, 128 and 136 f64 seconds of the minute. There is no date: timestamps are times of day, and
//! only their differences are used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, Read};
use std::net::{IpAddr, SocketAddr};

use dwell_record::Column;
use dwell_sample::State;

use crate::sequence::{Arrival, Sequence};
use crate::sink::{FlowNumber, Sink};
use crate::{ImportError, ImportWarning, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let mut flows = HashMap::new();
    let mut bytes = Vec::with_capacity(RECORD_LEN);
    let mut number = 0_u64;
    loop {
        bytes.clear();
        let count = input.take(RECORD_LEN as u64).read_to_end(&mut bytes);
        if count.map_err(ImportError::Read)? == 0 {
            break;
        }
        number += 1;
        let Some(bytes) = bytes.first_chunk() else {
            sink.warn(ImportWarning::Truncated(format!("record {number} is incomplete")));
            break;
        };
        let Some(record) = Record::parse(bytes) else {
            sink.skip(number, bytes);
            continue;
        };
        let flow = match flows.entry(record.key()) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => sink
                .flow_to(&record.name(), record.target())
                .map(|flow| new.insert(ItgFlow::new(flow, &record))),
        };
        let taken = match flow {
            Some(flow) => flow.record(&record, &mut sink)?,
            None => false,
        };
        if !taken {
            sink.skip(number, bytes);
        }
    }
    // File order, not hash table order.
    let mut flows: Vec<_> = flows.into_values().collect();
    flows.sort_by_key(|flow| flow.flow);
    for mut flow in flows {
        if flow.equal == flow.records {
            sink.outcomes_unknown(flow.flow);
        }
        if flow.equal > 0 {
            sink.warn_of(flow.flow, ImportWarning::EqualTimes(flow.equal));
        }
        while let Some(lost) = flow.sequence.left() {
            sink.lost(flow.flow, lost)?;
        }
    }
    sink.finish()
}

/// Whether a file that begins with `head` can be such a log.
pub(crate) fn plausible(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk() else { return false };
    Record::parse(first).is_some()
        && head[RECORD_LEN..].first_chunk().is_none_or(|second| Record::parse(second).is_some())
}

const RECORD_LEN: usize = 144;
const ADDRESS_LEN: usize = 46;
const DAY_NS: i64 = 86_400_000_000_000;

struct ItgFlow {
    flow: FlowNumber,
    sequence: Sequence,
    /// Number and send time of the previous record.
    last: Option<(u64, i64)>,
    one_host: bool,
    records: u64,
    /// Records with equal send and receive times.
    equal: u64,
}

impl ItgFlow {
    fn new(flow: FlowNumber, first: &Record) -> Self {
        let one_host = first.source.0 == first.destination.0;
        Self {
            flow,
            sequence: Sequence::starting_at(1),
            last: None,
            one_host,
            records: 0,
            equal: 0,
        }
    }

    /// Returns false if the record does not belong to the flow.
    fn record(&mut self, record: &Record, sink: &mut Sink) -> Result<bool, ImportError> {
        let number = u64::from(record.number);
        let (state, overtaken) = match self.sequence.arrive(number) {
            Arrival::First { overtaken } => (State::Received, overtaken),
            Arrival::Again => (State::Duplicate, false),
            Arrival::OutOfRange => return Ok(false),
        };
        self.records += 1;
        self.equal += u64::from(record.tx == record.rx);
        let last = self.last.replace((number, record.tx));
        let gap = last.filter(|(before, _)| before + 1 == number).map(|(_, tx)| record.tx - tx);
        let delay = (record.tx != record.rx).then(|| around_midnight(record.rx - record.tx));
        let column = match self.one_host {
            true => Column::OneWayForward,
            false => Column::ForwardPlusOffset,
        };
        sink.row(self.flow, number, state)?
            .reordered(overtaken)
            .set(column, delay)
            .set(Column::Gap, gap.map(around_midnight))
            .set(Column::SizeBytes, Some(i64::from(record.size)));
        while let Some(lost) = self.sequence.given_up() {
            sink.lost(self.flow, lost)?;
        }
        Ok(true)
    }
}

/// Corrects the difference of two times of day that are less than half a day apart.
fn around_midnight(difference: i64) -> i64 {
    match difference {
        d if d > DAY_NS / 2 => d - DAY_NS,
        d if d < -DAY_NS / 2 => d + DAY_NS,
        d => d,
    }
}

struct Record {
    flow: u32,
    number: u32,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    size: u32,
    /// Nanoseconds of the day.
    tx: i64,
    rx: i64,
}

impl Record {
    fn parse(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes[at..].first_chunk()?));
        let seconds = |at: usize| Some(f64::from_le_bytes(*bytes[at..].first_chunk()?));
        let port = |at: usize| u16::try_from(word(at)?).ok();
        Some(Self {
            flow: word(0)?,
            number: word(4).filter(|number| *number > 0)?,
            source: (address(&bytes[36..])?, port(8)?),
            destination: (address(&bytes[82..])?, port(12)?),
            size: word(32)?,
            tx: time_of_day(word(16)?, word(20)?, seconds(128)?)?,
            rx: time_of_day(word(24)?, word(28)?, seconds(136)?)?,
        })
    }

    fn key(&self) -> (u32, (IpAddr, u16), (IpAddr, u16)) {
        (self.flow, self.source, self.destination)
    }

    fn target(&self) -> String {
        format!("d-itg://{}", SocketAddr::from(self.destination))
    }

    fn name(&self) -> String {
        let Self { flow, source, destination, .. } = self;
        let (source, destination) = (SocketAddr::from(*source), SocketAddr::from(*destination));
        format!("{flow} {source} > {destination}")
    }
}

fn address(text: &[u8]) -> Option<IpAddr> {
    let text = text.get(..ADDRESS_LEN)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

fn time_of_day(hour: u32, minute: u32, seconds: f64) -> Option<i64> {
    // Seconds reach 61 with a leap second. The comparison also rejects NaN.
    if hour > 23 || minute > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    // The log has microseconds, which an f64 holds exactly enough.
    let nanos = (seconds * 1e6).round() as i64 * 1_000;
    Some((i64::from(hour) * 60 + i64::from(minute)) * 60_000_000_000 + nanos)
}
