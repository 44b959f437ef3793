//! Protocol between sender and sink, over TCP on the sink's port while no train is being sent.
//!
//! The sender starts with the line `dwell-pace/1 FLOW`. The sink answers with the line
//! `dwell-pace/1 BOOT-ID SOURCE` and keeps timestamps of that flow, from that source; or with
//! `dwell-pace/1 refused WHY` and closes. The sender may then send the line `stamps` any number of
//! times. The sink answers with a line that holds the number of entries, then number and time
//! (nanoseconds since 1970) of each packet, big-endian, in order of arrival. An entry [`STEPPED`]
//! with time 0 means that the sink's clock may have been stepped between the packets around it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use dwell_io::clock::monotonic;
use dwell_io::machine;
use dwell_sample::TimestampSource;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

/// First word of both greetings.
const GREETING: &str = "dwell-pace/1";

/// Second word of a refusal.
const REFUSED: &str = "refused";

/// Maximum length of a line.
const MAX_LINE_LEN: usize = 256;

/// Length of an entry in bytes.
const STAMP_LEN: usize = 16;

/// Time-out without any data from the other side.
pub(super) const SILENCE_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Time-out of the whole exchange of timestamps, enough for the maximum number at 2.5 Mbit/s.
pub(super) const EXCHANGE_TIMEOUT: Nanos = Nanos::from_secs(60);

/// Entries copied at a time.
const STAMP_BATCH: usize = 4_096;

/// Time without new arrivals after which the remaining packets count as lost.
const ARRIVAL_TIMEOUT: Nanos = Nanos::from_millis(250);

/// Maximum time to wait for arrivals.
const MAX_ARRIVAL_WAIT: Nanos = Nanos::from_secs(3);

/// Packet number that marks a possible clock step. No counted packet has it
/// ([`dwell_io::train::FIRST_LEAD_NUMBER`]).
pub(super) const STEPPED: u64 = u64::MAX;

/// Arrival of a packet at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Instant<Realtime>,
    /// Incremented when the sink's clock may have been stepped: times of different epochs are not
    /// comparable.
    pub(super) epoch: u64,
}

/// Arrivals at the sink by packet number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals(HashMap<u64, Arrival>);

impl Arrivals {
    /// Returns the arrival of a packet.
    pub(super) fn of(&self, id: u64) -> Option<Arrival> {
        self.0.get(&id).copied()
    }

    /// Whether the sink's clock may have been stepped between these packets.
    pub(super) fn stepped_during(&self, mut ids: Range<u64>) -> bool {
        let first = ids.find_map(|id| self.of(id));
        ids.filter_map(|id| self.of(id)).any(|other| first.is_some_and(|f| f.epoch != other.epoch))
    }

    /// Collects the sink's entries for these packet numbers.
    fn read(
        ids: &Range<u64>,
        entries: impl Iterator<Item = io::Result<(u64, Instant<Realtime>)>>,
    ) -> io::Result<Self> {
        let (mut found, mut epoch) = (HashMap::new(), 0);
        for one in entries {
            match one? {
                (STEPPED, _) => epoch += 1,
                // Of a duplicated packet, the first arrival counts.
                (id, at) if ids.contains(&id) => {
                    found.entry(id).or_insert(Arrival { at, epoch });
                }
                _ => {}
            }
        }
        Ok(Self(found))
    }
}

/// A connection with a deadline and a time-out for silence.
#[derive(Debug)]
pub(super) struct TimedStream {
    pub(super) stream: TcpStream,
    pub(super) until: Instant<Monotonic>,
}

impl TimedStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = (self.until - monotonic()).min(SILENCE_TIMEOUT);
        match u64::try_from(left.0) {
            Ok(left) if left > 0 => Ok(Some(Duration::from_nanos(left))),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// A socket reports an expired time-out as "would block" (socket(7), SO_RCVTIMEO).
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The sender's connection to the sink.
#[derive(Debug)]
pub(super) struct FarEnd {
    stream: BufReader<TimedStream>,
    /// Whether the sink runs on this machine and uses its clock.
    pub(super) same_clock: bool,
    /// Origin of the sink's timestamps.
    pub(super) source: TimestampSource,
}

impl FarEnd {
    /// Connects to the sink at `peer` and announces a flow.
    pub(super) fn connect(peer: SocketAddr, flow: u32) -> io::Result<Self> {
        let until = monotonic() + SILENCE_TIMEOUT;
        let stream = TcpStream::connect_timeout(
            &peer,
            Duration::from_nanos(SILENCE_TIMEOUT.0.unsigned_abs()),
        )?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(TimedStream { stream, until });
        writeln!(stream.get_mut(), "{GREETING} {flow}")?;
        let answer = line(&mut stream)?;
        if let Some(why) = answer.strip_prefix(&format!("{GREETING} {REFUSED} ")) {
            let text = format!("the sink at {peer} refused: {}", crate::terminal::escaped(why));
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let mut words = answer.split(' ');
        let greeting = (words.next(), words.next(), words.next().and_then(TimestampSource::named));
        let (Some(GREETING), Some(boot_id), Some(source)) = greeting else {
            let text = format!("the program that listens at {peer} is not dwell pace sink");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        let same_clock = machine::boot_id().is_some_and(|own| hex(own) == boot_id);
        Ok(Self { stream, same_clock, source })
    }

    /// Returns the arrivals of these packets, once there are `expected` or no more arrive.
    pub(super) fn arrivals(&mut self, of: Range<u64>, expected: usize) -> io::Result<Arrivals> {
        let start = monotonic();
        self.stream.get_mut().until = start + EXCHANGE_TIMEOUT;
        let (mut last, mut changed) = (0, start);
        loop {
            let found = self.request_arrivals(&of)?;
            let now = monotonic();
            if found.0.len() > last {
                (last, changed) = (found.0.len(), now);
            }
            if last >= expected || now - changed > ARRIVAL_TIMEOUT || now - start > MAX_ARRIVAL_WAIT
            {
                return Ok(found);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn request_arrivals(&mut self, of: &Range<u64>) -> io::Result<Arrivals> {
        writeln!(self.stream.get_mut(), "stamps")?;
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidData, "the sink sent an invalid answer");
        let count: usize = line(&mut self.stream)?.parse().map_err(|_| wrong())?;
        if count > MAX_STAMPS {
            return Err(wrong());
        }
        let mut stamp = [0; STAMP_LEN];
        let entries = (0..count).map(|_| self.stream.read_exact(&mut stamp).map(|()| parse(stamp)));
        Arrivals::read(of, entries)
    }
}

/// Maximum timestamps that a sink keeps of a flow: the maximum packets of a sender, warm-up, and
/// some duplicates.
pub(super) const MAX_STAMPS: usize = 1_100_000;

/// Request of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkRequest {
    /// Keep timestamps of this flow.
    Keep(u32),
    /// Send the timestamps.
    Stamps,
}

/// Reads a request; `None` at the end of the stream or if it is invalid.
pub(super) fn read_request(from: &mut impl Read) -> Option<SinkRequest> {
    let line = line(from).ok()?;
    match line.split_once(' ') {
        Some((GREETING, flow)) => flow.parse().ok().map(SinkRequest::Keep),
        None if line == "stamps" => Some(SinkRequest::Stamps),
        _ => None,
    }
}

/// Answers [`SinkRequest::Keep`].
pub(super) fn greet(to: &mut impl Write, source: TimestampSource) -> io::Result<()> {
    let boot_id = machine::boot_id().map_or("-".to_owned(), hex);
    writeln!(to, "{GREETING} {boot_id} {}", source.name())
}

/// Refuses [`SinkRequest::Keep`] with a reason.
pub(super) fn refuse(to: &mut impl Write, why: &str) -> io::Result<()> {
    writeln!(to, "{GREETING} {REFUSED} {why}")
}

/// Whether the error is a sink's refusal.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// Answers [`SinkRequest::Stamps`] with `count` entries; `some` copies a range of them.
pub(super) fn send_stamps(
    to: &mut impl Write,
    count: usize,
    mut some: impl FnMut(Range<usize>) -> Vec<(u64, Instant<Realtime>)>,
) -> io::Result<()> {
    let mut bytes = format!("{count}\n").into_bytes();
    for start in (0..count).step_by(STAMP_BATCH) {
        for (id, at) in some(start..count.min(start + STAMP_BATCH)) {
            bytes.extend_from_slice(&id.to_be_bytes());
            bytes.extend_from_slice(&at.as_nanos().to_be_bytes());
        }
        to.write_all(&bytes)?;
        bytes.clear();
    }
    to.write_all(&bytes)
}

fn parse(stamp: [u8; STAMP_LEN]) -> (u64, Instant<Realtime>) {
    let (mut id, mut at) = ([0; 8], [0; 8]);
    id.copy_from_slice(&stamp[..8]);
    at.copy_from_slice(&stamp[8..]);
    (u64::from_be_bytes(id), Instant::from_nanos(i64::from_be_bytes(at)))
}

/// Reads a line without its end, byte by byte: lines are short, and binary data may follow.
fn line(from: &mut impl Read) -> io::Result<String> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.len() < MAX_LINE_LEN {
        from.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        text.extend(byte);
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sink_stamps_round_trip() {
        // More entries than are copied at a time.
        let stamps: Vec<_> = (0..2 * STAMP_BATCH as u64 + 1)
            .map(|n| (u64::MAX - n, Instant::from_nanos(1_700_000_000_000_000_001 + n as i64)))
            .collect();
        let mut sent = Vec::new();
        send_stamps(&mut sent, stamps.len(), |some| stamps[some].to_vec()).unwrap();
        let mut sent = sent.as_slice();
        assert_eq!(line(&mut sent).unwrap(), stamps.len().to_string());
        for stamp in stamps {
            let mut bytes = [0; STAMP_LEN];
            sent.read_exact(&mut bytes).unwrap();
            assert_eq!(parse(bytes), stamp);
        }
        assert!(sent.is_empty());
    }

    #[test]
    fn sink_clock_step_within_train_is_detected() {
        let at = Instant::from_nanos;
        let step = (STEPPED, at(0));
        let entries = [(7, at(1)), (8, at(2)), step, (9, at(8)), (20, at(9)), (7, at(9)), step];
        let found = Arrivals::read(&(0..10), entries.into_iter().map(Ok)).unwrap();
        let arrivals = [7, 9, 20].map(|id| found.of(id));
        let known = |at, epoch| Some(Arrival { at, epoch });
        assert_eq!(arrivals, [known(at(1), 0), known(at(8), 1), None]);
        // Before, across, without the second of three, after, and of unknown packets.
        let stepped = [0..9, 8..10, 7..10, 9..30, 30..40];
        let stepped = stepped.map(|ids| found.stepped_during(ids));
        assert_eq!(stepped, [false, true, true, false, false]);
    }

    #[test]
    fn endless_far_end_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let sending = thread::spawn(move || while sender.write_all(b"stamps").is_ok() {});
        let mut timed = TimedStream { stream, until: monotonic() + Nanos::from_millis(50) };
        let ended = io::copy(&mut timed, &mut io::sink()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(timed);
        sending.join().unwrap();
    }

    #[test]
    fn invalid_sender_request_ends_connection() {
        assert_eq!(
            read_request(&mut &b"dwell-pace/1 42\nstamps\n"[..]),
            Some(SinkRequest::Keep(42))
        );
        assert_eq!(read_request(&mut &b"stamps\n"[..]), Some(SinkRequest::Stamps));
        for nonsense in [&b""[..], b"stamps", b"dwell-pace/2 1\n", b"dwell-pace/1 -1\n", b"\xff\n"]
        {
            assert_eq!(read_request(&mut &nonsense[..]), None, "{nonsense:?}");
        }
        assert_eq!(read_request(&mut io::repeat(b'x')), None);
    }
}
