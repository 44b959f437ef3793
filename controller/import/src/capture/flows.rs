//! Groups datagrams and echo messages of a capture into flows: one direction between two ports and,
//! for a recognised protocol, one session.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use dwell_record::Column;
use dwell_sample::State;

use crate::sequence::{Arrival, Sequence, unwrapped};
use crate::sink::{FlowNumber, Sink};
use crate::{ImportError, ImportWarning};

use super::frame::Datagram;
use super::probe::{Id, Probe, Protocol, recognise};

/// The flows of a capture.
#[derive(Default)]
pub(super) struct Flows {
    flows: HashMap<Key, CapturedFlow>,
    /// Unanswered requests of all flows.
    open: usize,
    /// Packets that mark the end of a test and are not probes.
    ends: u64,
    /// Packets with ids just below 0, sent as warm-up.
    warm_up: u64,
    /// Echo messages with numbers below the first request of the capture.
    before: u64,
    /// Round trips and residence times that would be negative.
    impossible: u64,
    /// Capture time of the newest packet.
    newest: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: SocketAddr,
    destination: SocketAddr,
    protocol: Option<Protocol>,
    reply: bool,
}

struct CapturedFlow {
    number: FlowNumber,
    sequence: Option<Sequence>,
    /// The previous id, unwrapped.
    near: i64,
    /// Capture time of the previous packet.
    last: Option<i64>,
    /// Capture times of unanswered requests, by id.
    open: BTreeMap<u64, i64>,
    /// Longest round trip of a reply flow.
    longest: i64,
}

/// Maximum number of unanswered requests kept for all flows.
const MAX_OPEN_REQUESTS: usize = 65_536;

/// A 32-bit id less than this below the wrap at the start of a flow counts as negative.
const MAX_WARM_UP_IDS: i64 = 65_536;

impl Flows {
    /// Adds a datagram captured at `at`. Returns false if there are too many flows.
    pub(super) fn take(
        &mut self,
        datagram: &Datagram,
        at: i64,
        sink: &mut Sink,
    ) -> Result<bool, ImportError> {
        let Datagram { source, destination, payload, length, echo } = *datagram;
        let probe = match echo {
            Some(echo) => Some(echo.into()),
            None => recognise(payload, (source.port(), destination.port()), at),
        };
        self.newest = self.newest.max(at);
        if probe.is_some_and(|probe| probe.id == Id::End) {
            self.ends += 1;
            return Ok(true);
        }
        let protocol = probe.map(|probe| probe.protocol);
        let reply = probe.is_some_and(|probe| probe.reply);
        let key = Key { source, destination, protocol, reply };
        // Requests and replies carry the same counter, so both flows unwrap it alike.
        let opposite = probe.and_then(|_| self.flows.get(&key.reversed(!reply)));
        let opposite = opposite.map(|opposite| opposite.near);
        let flow = match self.flows.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let number = sink.flow_to(&key.name(), key.target());
                let Some(number) = number else { return Ok(false) };
                // A missing packet may be a hole in the capture; only missing replies are losses.
                if !reply {
                    sink.outcomes_unknown(number);
                }
                let near = opposite.unwrap_or_else(|| before_first(probe.map(|probe| probe.id)));
                new.insert(CapturedFlow::new(number, near))
            }
        };
        flow.near = flow.near.max(opposite.unwrap_or(i64::MIN));
        let request = probe.filter(|probe| probe.reply).map(|_| key.request());
        let Some(id) = flow.id(probe.map(|probe| probe.id)) else {
            *(if echo.is_some() { &mut self.before } else { &mut self.warm_up }) += 1;
            return Ok(true);
        };
        let (state, overtaken) = flow.arrive(id, probe.is_some());
        let first = state == State::Received;
        let gap = flow.last.filter(|_| first).and_then(|last| at.checked_sub(last));
        if first {
            flow.last = Some(at);
        }
        let number = flow.number;
        if protocol.is_some() && !reply && first {
            self.open(key, id, at, sink)?;
        }
        let asked = request.and_then(|request| self.flows.get_mut(&request)?.open.remove(&id));
        self.open -= usize::from(asked.is_some());
        let Probe { t1, t2_t3, .. } = probe.unwrap_or(UNRECOGNISED);
        let (t2, t3) = t2_t3.unzip();
        let between = |from: Option<i64>, to: Option<i64>| to?.checked_sub(from?);
        let (rtt, residence) = (between(asked, Some(at)), between(t2, t3));
        let mut possible = |time: Option<i64>| {
            let is_possible = time.is_none_or(|time| time >= 0);
            self.impossible += u64::from(!is_possible);
            time.filter(|_| is_possible)
        };
        let (rtt, residence) = (possible(rtt), possible(residence));
        if let (Some(rtt), Some(flow)) = (rtt, self.flows.get_mut(&key)) {
            flow.longest = flow.longest.max(rtt);
        }
        sink.row(number, id, state)?
            .reordered(overtaken)
            .set(Column::Capture, Some(at))
            .set(Column::Gap, gap)
            .set(Column::SizeBytes, length.map(i64::from))
            .set(Column::Rtt, rtt)
            .set(Column::TxApp, t1)
            .set(Column::T2, t2)
            .set(Column::T3, t3)
            .set(Column::Residence, residence)
            .set(Column::ForwardPlusOffset, between(t1, t2));
        Ok(true)
    }

    /// Keeps a request until its reply is seen.
    fn open(&mut self, key: Key, id: u64, at: i64, sink: &mut Sink) -> Result<(), ImportError> {
        let Some(flow) = self.flows.get_mut(&key) else { return Ok(()) };
        self.open += usize::from(flow.open.insert(id, at).is_none());
        if self.open > MAX_OPEN_REQUESTS {
            let given_up = flow.open.pop_first();
            self.open -= usize::from(given_up.is_some());
            // Without any reply, losses are unknown.
            let replies = self.flows.get(&key.reply()).map(|replies| replies.number);
            if let Some((replies, (id, _))) = replies.zip(given_up) {
                sink.row(replies, id, State::Lost)?;
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self, sink: &mut Sink) -> Result<(), ImportError> {
        let mut asked: Vec<_> = self.flows.iter().filter(|(_, f)| !f.open.is_empty()).collect();
        asked.sort_by_key(|(_, flow)| flow.number);
        for (key, flow) in asked {
            let Some(replies) = self.flows.get(&key.reply()) else { continue };
            // A request this young may have been answered after the end of the capture.
            let is_due = |at: i64| self.newest.saturating_sub(at) > replies.longest;
            let mut undecided = 0_u64;
            for (id, at) in &flow.open {
                if is_due(*at) {
                    sink.row(replies.number, *id, State::Lost)?;
                } else {
                    undecided += 1;
                }
            }
            if undecided > 0 {
                sink.warn_of(replies.number, ImportWarning::UndecidedRequests(undecided));
            }
        }
        if self.ends > 0 {
            sink.parameter("end_packets", self.ends);
        }
        if self.warm_up > 0 {
            sink.parameter("warm_up_packets", self.warm_up);
        }
        if self.before > 0 {
            sink.warn(ImportWarning::NumbersBelowFirst(self.before));
        }
        if self.impossible > 0 {
            sink.warn(ImportWarning::ImpossibleTimes(self.impossible));
        }
        Ok(())
    }
}

/// Fields of a payload that was not recognised.
const UNRECOGNISED: Probe =
    Probe { protocol: Protocol::RoundTrip, reply: false, id: Id::End, t1: None, t2_t3: None };

impl Key {
    /// Returns the flow of replies to this one.
    fn reply(&self) -> Self {
        self.reversed(true)
    }

    /// Returns the flow that this one replies to.
    fn request(&self) -> Self {
        self.reversed(false)
    }

    fn reversed(&self, reply: bool) -> Self {
        let Self { source, destination, protocol, .. } = *self;
        Self { source: destination, destination: source, protocol, reply }
    }

    /// Returns the URL of the reflector, for both directions.
    fn target(&self) -> String {
        let reflector = self.end(if self.reply { self.source } else { self.destination });
        format!("{}://{reflector}", self.protocol.map_or("udp", Protocol::scheme))
    }

    /// Formats an endpoint. ICMP has no ports.
    fn end(&self, end: SocketAddr) -> String {
        match (self.protocol, end.ip()) {
            (Some(Protocol::Icmp { .. }), IpAddr::V6(ip)) => format!("[{ip}]"),
            (Some(Protocol::Icmp { .. }), IpAddr::V4(ip)) => ip.to_string(),
            _ => end.to_string(),
        }
    }

    fn name(&self) -> String {
        let Self { source, destination, protocol, reply } = self;
        let [source, destination] = [self.end(*source), self.end(*destination)];
        let protocol = protocol.map_or_else(|| "udp".to_owned(), Protocol::name);
        let reply = if *reply { " replies" } else { "" };
        format!("{source} > {destination} {protocol}{reply}")
    }
}

/// Returns the reference for unwrapping the first id of a flow.
fn before_first(first: Option<Id>) -> i64 {
    match first {
        Some(Id::Bits16(id)) => i64::from(id),
        Some(Id::Bits32(id)) if i64::from(id) >= (1 << 32) - MAX_WARM_UP_IDS => {
            i64::from(id) - (1 << 32)
        }
        Some(Id::Bits32(id)) => i64::from(id),
        _ => -1,
    }
}

impl CapturedFlow {
    fn new(number: FlowNumber, near: i64) -> Self {
        Self { number, sequence: None, near, last: None, open: BTreeMap::new(), longest: 0 }
    }

    /// Returns the unwrapped id, or the packet number if the payload was not recognised. `None` if
    /// negative.
    fn id(&mut self, id: Option<Id>) -> Option<u64> {
        let (raw, bits) = match id {
            Some(Id::Bits16(raw)) => (u64::from(raw), 16),
            Some(Id::Bits32(raw)) => (u64::from(raw), 32),
            Some(Id::Whole(id)) => return Some(id),
            Some(Id::End) => return None,
            None => {
                self.near += 1;
                return u64::try_from(self.near).ok();
            }
        };
        let id = unwrapped(raw, bits, self.near);
        self.near = self.near.max(id);
        u64::try_from(id).ok()
    }

    fn arrive(&mut self, id: u64, counted: bool) -> (State, bool) {
        if !counted {
            return (State::Received, false);
        }
        // Packets overtaken by the first captured one may still arrive.
        let before = id.saturating_sub(64);
        let sequence = self.sequence.get_or_insert_with(|| Sequence::starting_at(before));
        let arrival = sequence.arrive(id);
        // A missing id may be a hole in the capture, so it is not a loss.
        while sequence.given_up().is_some() {}
        match arrival {
            Arrival::First { overtaken } => (State::Received, overtaken),
            Arrival::Again => (State::Duplicate, false),
            Arrival::OutOfRange => {
                *sequence = Sequence::starting_at(id);
                let _ = sequence.arrive(id);
                (State::Received, false)
            }
        }
    }
}
