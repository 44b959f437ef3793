//! STAMP: the session-sender's side (RFC 8762 section 4.2).

use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::hmac::Key;
use dwell_wire::stamp::{self, Mode, Request};
use dwell_wire::telemetry::{self, Slot};
use dwell_wire::timestamp::{self, ErrorEstimate, Format};
use dwell_wire::tlv::{
    self, Integrity, NODE_CLOCK_LEN, NODE_CLOCK_MAGIC, SOCKET_DROPS_LEN, SOCKET_DROPS_MAGIC, kind,
};

use super::{Protocol, Reject, Reply, WarmUpSession, WireId, is_warm_up};
use crate::stamps::{Hop, Remote};

/// What a STAMP session is made of.
#[derive(Debug)]
pub struct Session {
    /// Identifies the session of the counted probes; new for every run, so that a stateful reflector
    /// starts anew. The warm-up has the next one.
    pub ssid: u16,
    /// Authenticates packets, if there is one.
    pub key: Option<Key>,
    /// Identity of the clock we read; a reflector that returns the same reads the same clock.
    pub clock: Option<[u8; 12]>,
    /// How far our clock may be from UTC; `None` when it is not synchronised.
    pub utc_error: Option<Nanos>,
    /// Bytes of a packet, TLVs included.
    pub size: usize,
    /// Empty slots for relays on the way, at most [`telemetry::MOST_SLOTS`].
    pub path_slots: usize,
}

impl Session {
    /// Identifies the session of the warm-up: the next identifier, without 0, which is no session.
    const fn warm_up_ssid(&self) -> u16 {
        match self.ssid {
            u16::MAX => 1,
            ssid => ssid + 1,
        }
    }

    /// Bytes of the TLV that the reflector returns its socket's drop counter in.
    pub const SOCKET_DROPS_TLV: usize = tlv::HEADER + SOCKET_DROPS_LEN;

    /// Bytes that a packet needs at least for so many slots, beside all that it carries anyway.
    pub const fn size_of_path(slots: usize) -> usize {
        let clock = tlv::HEADER + NODE_CLOCK_LEN;
        Mode::Unauthenticated.base() + clock + tlv::HEADER + telemetry::value_len(slots)
    }
}

/// Sends requests, reads their replies. The counted probes are a session whose sequence starts at 0
/// (RFC 8762 section 4.2.1), the warm-up is another.
///
/// The sequence of the warm-up counts up to 0 from below, like its ids, so that whatever joins packets
/// by their sequence number tells the two apart. A reflector that numbers its replies itself answers
/// the warm-up with other numbers, and so shows that it does.
#[derive(Debug)]
pub struct Stamp {
    session: Session,
    mode: Mode,
    /// The packet without sequence number, T1 and HMACs.
    template: Box<[u8]>,
    error: u16,
    /// Where the HMAC TLV lies in the TLV area, if there is one.
    hmac_at: Option<usize>,
    /// The last T1: tells the era of the far end's timestamps.
    pivot: Instant<Realtime>,
    /// TLVs of a reply are walked over in a copy, because a walk marks what is malformed.
    scratch: Box<[u8]>,
    hops: [Hop; telemetry::MOST_SLOTS],
    hops_used: usize,
    /// The first id of the warm-up.
    warm_up_first: Option<u64>,
    warm_up: WarmUpSession,
    /// The reflector's drop counter in the last reply.
    socket_drops: Option<u32>,
}

impl Stamp {
    /// Lays out the packets: the clock TLV and then the socket drops TLV where the size has room
    /// for them and for relays' slots (under HMAC if there is a key), then padding, filled from
    /// `padding`.
    pub fn new(session: Session, padding: &[u8]) -> Self {
        let mode = match session.key {
            Some(_) => Mode::Authenticated,
            None => Mode::Unauthenticated,
        };
        let mut template = vec![0; session.size.max(mode.base())].into_boxed_slice();
        let room = template.len() - mode.base();
        let clock_len = tlv::HEADER + NODE_CLOCK_LEN;
        let hmac_len = if session.key.is_some() { tlv::HEADER + 16 } else { 0 };
        let path_len = match session.path_slots {
            0 => 0,
            slots => tlv::HEADER + telemetry::value_len(slots),
        };
        // What is left must be nothing or a whole padding TLV.
        let fits = |len: usize| {
            let left = room.checked_sub(len + hmac_len);
            left.is_some_and(|left| left == 0 || left >= tlv::HEADER)
        };
        let with_clock = session.clock.is_some() && fits(clock_len);
        let with_drops = with_clock && fits(clock_len + Session::SOCKET_DROPS_TLV + path_len);
        let mut hmac_at = None;
        let mut area = &mut template[mode.base()..];
        if with_clock {
            let (value, rest) = tlv::begin(area, kind::NODE_CLOCK, NODE_CLOCK_LEN as u16);
            value[..4].copy_from_slice(&NODE_CLOCK_MAGIC);
            area = rest;
            if with_drops {
                let (value, rest) = tlv::begin(area, kind::SOCKET_DROPS, SOCKET_DROPS_LEN as u16);
                value[..4].copy_from_slice(&SOCKET_DROPS_MAGIC);
                area = rest;
            }
            if session.key.is_some() {
                let drops_len = if with_drops { Session::SOCKET_DROPS_TLV } else { 0 };
                hmac_at = Some(clock_len + drops_len);
                area = tlv::begin(area, kind::HMAC, 16).1;
            }
        }
        if session.path_slots > 0 && area.len() >= path_len {
            let value_len = (path_len - tlv::HEADER) as u16;
            let (value, rest) = tlv::begin(area, kind::PATH, value_len);
            telemetry::begin(value);
            area = rest;
        }
        if area.len() >= tlv::HEADER {
            let len = (area.len() - tlv::HEADER) as u16;
            let (value, _) = tlv::begin(area, kind::EXTRA_PADDING, len);
            value.iter_mut().zip(padding).for_each(|(to, from)| *to = *from);
        }
        // The program's stamp is read within a few microseconds of its use.
        let error = ErrorEstimate::of_clock(session.utc_error).to_bits();
        let scratch = vec![0; room].into_boxed_slice();
        let pivot = Instant::EPOCH;
        let hops = [Hop::default(); telemetry::MOST_SLOTS];
        Self {
            session,
            mode,
            template,
            error,
            hmac_at,
            pivot,
            scratch,
            hops,
            hops_used: 0,
            warm_up_first: None,
            warm_up: WarmUpSession::default(),
            socket_drops: None,
        }
    }

    /// The session of the probe `id`.
    fn ssid_of(&mut self, id: u64) -> u16 {
        if is_warm_up(id) {
            self.warm_up_first.get_or_insert(id);
            self.session.warm_up_ssid()
        } else {
            self.session.ssid
        }
    }

    /// The id of the probe that a reply to the number `seq` of the session `ssid` answers.
    fn answered(&self, ssid: u16, seq: u32) -> Option<WireId> {
        if ssid == self.session.warm_up_ssid() {
            let first = self.warm_up_first?;
            let nth = seq.checked_sub(first as u32)?;
            return Some(WireId::full(first + u64::from(nth)));
        }
        // Peers without RFC 8972 leave the session identifier 0.
        let is_counted = ssid == self.session.ssid || ssid == 0;
        is_counted.then_some(WireId::low(seq.into(), 32))
    }

    /// Reads the reply's TLVs: what relays wrote, the reflector's drop counter, and whether its
    /// clock TLV says that it reads our clock. With a key, extensions whose HMAC does not hold are
    /// not believed.
    fn read_extensions(&mut self, message: &[u8]) -> bool {
        self.hops_used = 0;
        self.socket_drops = None;
        if self.session.clock.is_none() && self.session.path_slots == 0 {
            return false;
        }
        let tlvs = message.get(self.mode.base()..).unwrap_or(&[]);
        let tlvs = &tlvs[..tlvs.len().min(self.scratch.len())];
        let area = &mut self.scratch[..tlvs.len()];
        area.copy_from_slice(tlvs);
        if let Some(key) = &self.session.key {
            let seq = [message[0], message[1], message[2], message[3]];
            if !matches!(tlv::verify(key, seq, area), Integrity::Good(_)) {
                return false;
            }
        }
        let Self { session, hops, hops_used, socket_drops, .. } = self;
        let mut same = false;
        let is_answered =
            |flags: u8| flags & (tlv::UNRECOGNISED | tlv::MALFORMED | tlv::INTEGRITY) == 0;
        tlv::walk(area, |tlv| match tlv.kind {
            kind::NODE_CLOCK => {
                let clock = session.clock.as_ref().map(|clock| &clock[..]);
                let said = tlv.value.split_first_chunk();
                same |= is_answered(*tlv.flags)
                    && said.is_some_and(|(magic, said)| {
                        *magic == NODE_CLOCK_MAGIC && Some(said) == clock
                    });
            }
            kind::SOCKET_DROPS if is_answered(*tlv.flags) => {
                *socket_drops = tlv::socket_drops(tlv.value);
            }
            // A reflector that does not know these marks them so and returns them all the same.
            kind::PATH if session.path_slots > 0 => {
                for (hop, slot) in hops.iter_mut().zip(telemetry::slots(tlv.value)) {
                    *hop = hop_of(&slot);
                    *hops_used += 1;
                }
            }
            _ => {}
        });
        same
    }
}

/// What a slot says. Stamps that are out of order, which no relay of ours writes, give 0.
fn hop_of(slot: &Slot) -> Hop {
    let between =
        |from: u64, to: u64| Nanos(i64::try_from(to.saturating_sub(from)).unwrap_or(i64::MAX));
    Hop {
        node: slot.node,
        back: slot.back,
        queueing_in: slot.rx_kernel.map(|kernel| between(kernel, slot.rx_app)),
        processing: between(slot.rx_app, slot.tx_app),
    }
}

impl Protocol for Stamp {
    fn hops(&self) -> &[Hop] {
        &self.hops[..self.hops_used.min(self.hops.len())]
    }

    fn socket_drops(&self) -> Option<u32> {
        self.socket_drops
    }

    fn capacity(&self) -> usize {
        self.template.len()
    }

    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize {
        let base = self.mode.base();
        message[base..].copy_from_slice(&self.template[base..]);
        let (ssid, seq) = (self.ssid_of(id), id as u32);
        self.pivot = now;
        let timestamp = timestamp::write_ntp(now);
        Request { seq, timestamp, error: self.error, ssid }.emit(message, self.mode);
        if let Some(key) = &self.session.key {
            if let Some(at) = self.hmac_at {
                tlv::sign(key, seq.to_be_bytes(), &mut message[base..], at);
            }
            stamp::sign(key, message);
        }
        message.len()
    }

    fn warm_up_answered(&mut self, id: u64, remote: &Remote) {
        self.warm_up.stateful |= id as u32 != remote.seq;
    }

    fn warm_up_session(&self) -> WarmUpSession {
        self.warm_up
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let reply = stamp::Reply::parse(message, self.mode).map_err(|_| Reject::Malformed)?;
        if self.session.key.as_ref().is_some_and(|key| !stamp::verify(key, message)) {
            return Err(Reject::Unauthentic);
        }
        // What was never stamped there was not reflected but sent back as it was.
        if reply.t2 == 0 || reply.t3 == 0 {
            return Err(Reject::Unknown);
        }
        let format = reply.estimate().format;
        let written = timestamp::read(reply.sender_timestamp, Format::Ntp, self.pivot);
        let id = self.answered(reply.ssid, reply.sender_seq).ok_or(Reject::Unknown)?;
        let remote = Remote {
            rx: timestamp::read(reply.t2, format, self.pivot),
            tx: timestamp::read(reply.t3, format, self.pivot),
            seq: reply.seq,
            ttl: (reply.ttl != 0).then_some(reply.ttl),
            same_clock: self.read_extensions(message),
        };
        self.warm_up.separate |= reply.ssid != 0;
        Ok(Reply { id, remote: Some(remote), written: Some(written) })
    }
}
