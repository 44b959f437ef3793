//! A UDP socket that answers one protocol: a lone request with one receive and one send call,
//! queued requests in batches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dwell_engine::protocol::ProtocolSpec;
use dwell_engine::reflector::{
    self, Datagram, Host, Limiter, Prepared, RateLimits, Refusal, Responder,
};
use dwell_io::batch::{Batch, Reply};
use dwell_io::clock::{self, monotonic, realtime};
use dwell_io::datagram::{self, DatagramSocket, Marks, Peer, is_broadcast};
use dwell_io::gate::Shutter;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::Service;
use super::counters::{Counters, add};

/// Maximum length of a datagram.
const MAX_DATAGRAM_LEN: usize = 65_535;

/// Interval between reads of the socket's drop counter if replies carry it.
const DROPS_INTERVAL: Nanos = Nanos::from_millis(10);

/// Requests of other protocols between reads of the drop counter, which has 32 bits and wraps.
const DROPS_BATCH: u32 = 4_096;

/// Maximum number of requests that are received together.
const RECEIVE_BATCH: usize = 32;

/// Maximum number of replies that are sent together.
const SEND_BATCH: usize = 32;

/// The same for replies that carry T3: T3 is read once per batch, so each reply to another peer delays
/// the next by about 1 us after T3.
const TIMED_SEND_BATCH: usize = 8;

/// Number of consecutive requests received without a known wait after which a queue is assumed. A
/// blocking receive call does not report whether it waited, so its number is larger, to make needless
/// checks rare.
const POLLED_STREAK: u32 = 4;
const BLOCKING_STREAK: u32 = 64;

/// Rules for which requests to answer.
#[derive(Debug)]
pub(super) struct AdmissionRules {
    pub(super) limit: Option<RateLimits>,
    /// Ports of this reflector; `None` answers any source port.
    pub(super) own_ports: Option<Arc<[u16]>>,
}

/// See the module documentation.
pub(super) struct UdpService {
    server: DatagramSocket,
    answers: Answers,
    counters: Arc<Counters>,
    records_lags: bool,
    buffer: Box<[u8]>,
    batch: Batch,
    replies: Vec<Reply>,
    prepared: Vec<Prepared>,
    queue: QueueEstimate,
    drops: Drops,
}

/// Estimate from earlier receive calls whether requests are queued.
#[derive(Debug, Default)]
struct QueueEstimate {
    /// The last batch had several requests.
    is_queued: bool,
    /// Requests received one by one since the socket was last known to be empty.
    streak: u32,
}

impl QueueEstimate {
    /// Whether to receive a batch.
    fn is_likely(&self, wait: Wait) -> bool {
        let limit = if wait == Wait::No { POLLED_STREAK } else { BLOCKING_STREAK };
        self.is_queued || self.streak >= limit
    }

    fn note_batch(&mut self, received: usize) {
        *self = Self { is_queued: received > 1, streak: 0 };
    }

    fn note_single(&mut self, is_received: bool) {
        self.streak = if is_received { self.streak + 1 } else { 0 };
    }
}

/// The socket's drop counter in the kernel, as last read.
#[derive(Debug)]
struct Drops {
    last: u32,
    /// Whether replies carry it.
    is_reported: bool,
    /// Next read: a time if replies carry it, else a number of requests.
    next_read: Instant<Monotonic>,
    requests: u32,
}

impl UdpService {
    pub(super) fn bind(
        address: SocketAddr,
        spec: &ProtocolSpec,
        responder: Responder,
        stamps: StampRequest,
        rules: AdmissionRules,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        refuse_group(address.ip())?;
        let server = SocketOptions { merge: true, ..SocketOptions::server() };
        let is_reported = spec.remote_timestamps;
        let options = if spec.names_lags {
            SocketOptions { stamps, timed: true, ..server }
        } else if is_reported {
            SocketOptions { stamps, timed: true, receive_ttl: true, receive_tos: true, ..server }
        } else {
            SocketOptions { receive_ttl: spec.decrements_ttl(), ..server }
        };
        let mut service = Self {
            server: DatagramSocket::bind(address, &options)?,
            answers: Answers {
                responder,
                host: LimitedHost { limiter: rules.limit.and_then(Limiter::new), batch_time: None },
                own_ports: rules.own_ports,
            },
            counters: Arc::clone(counters),
            records_lags: spec.names_lags,
            buffer: vec![0; MAX_DATAGRAM_LEN].into_boxed_slice(),
            batch: Batch::new(RECEIVE_BATCH, 0),
            replies: Vec::with_capacity(RECEIVE_BATCH),
            prepared: Vec::with_capacity(RECEIVE_BATCH),
            queue: QueueEstimate::default(),
            drops: Drops { last: 0, is_reported, next_read: Instant::EPOCH, requests: 0 },
        };
        service.answers.responder.check_clock(&service.answers.host);
        service.read_drops();
        Ok(service)
    }

    /// Answers the queued requests, at most a batch. Returns whether there were any.
    fn answer_batch(&mut self) -> io::Result<bool> {
        let received = self.batch.receive(&self.server)?;
        self.queue.note_batch(received);
        if received == 0 {
            return Ok(false);
        }
        self.answers.host.batch_time = Some(monotonic());
        self.replies.clear();
        self.prepared.clear();
        let mut requests = 0;
        for n in 0..received {
            let (request, buffer) = self.batch.datagram(n, &self.server);
            let Some(peer) = request.from else { continue };
            requests += 1;
            if self.records_lags {
                self.counters.record_lag(&request.rx_or_now());
            }
            match self.answers.prepare(buffer, &request, &peer) {
                Ok(prepared) => {
                    let len = prepared.response.len;
                    self.replies.push(Reply { n, len, to: peer, marks: marks(&prepared) });
                    self.prepared.push(prepared);
                }
                Err(refusal) => self.counters.refuse(refusal),
            }
        }
        self.answers.host.batch_time = None;
        let most = if self.answers.responder.is_authenticated() {
            // The HMACs of other replies would lie between T3 and the departure.
            1
        } else if self.drops.is_reported {
            TIMED_SEND_BATCH
        } else {
            SEND_BATCH
        };
        let mut sent = 0;
        for (replies, prepared) in self.replies.chunks(most).zip(self.prepared.chunks(most)) {
            let mut t3 = None;
            for (reply, prepared) in replies.iter().zip(prepared) {
                let buffer = self.batch.buffer(reply.n);
                self.answers
                    .responder
                    .finish(prepared, buffer, || *t3.get_or_insert_with(realtime));
            }
            self.batch.reply(&mut self.server, replies, &mut |outcome| match outcome {
                Ok(()) => sent += 1,
                Err(_) => add(&self.counters.send_failed),
            });
        }
        self.counters.count(requests, sent);
        self.follow_drops(requests as u32);
        Ok(true)
    }

    /// Reads the socket's drop counter if due, after some requests. Called after a reply: between T2
    /// and T3 it would add to the residence time.
    fn follow_drops(&mut self, requests: u32) {
        if self.drops.is_reported {
            let now = monotonic();
            if now < self.drops.next_read {
                return;
            }
            self.drops.next_read = now + DROPS_INTERVAL;
        } else {
            self.drops.requests += requests;
            if self.drops.requests < DROPS_BATCH {
                return;
            }
            self.drops.requests = 0;
        }
        self.read_drops();
    }

    fn read_drops(&mut self) {
        let Some(drops) = self.server.overflowed().map(|drops| drops as u32) else { return };
        self.counters.drop_at_socket(drops.wrapping_sub(self.drops.last).into());
        self.drops.last = drops;
        self.answers.responder.set_socket_drops(Some(drops));
    }
}

/// Decides on requests and prepares replies.
struct Answers {
    responder: Responder,
    host: LimitedHost,
    own_ports: Option<Arc<[u16]>>,
}

impl Answers {
    /// Writes the reply without T3 to the buffer of the request, unless refused.
    fn prepare(
        &mut self,
        buffer: &mut [u8],
        request: &datagram::Datagram,
        peer: &Peer,
    ) -> Result<Prepared, Refusal> {
        let datagram::Datagram { len, rx, ttl, tos, to_many, .. } = *request;
        let (from, to) = (peer.address(), peer.sent_to());
        // First, since it costs nothing: many hosts may answer a broadcast or multicast.
        if to_many || to.is_some_and(reflector::is_group) || reflector::is_group(from.ip()) {
            return Err(Refusal::Loop);
        }
        if let Some(own_ports) = &self.own_ports
            && reflector::is_loop(from, to, own_ports)
        {
            return Err(Refusal::Loop);
        }
        // The card's timestamp is from another clock than T3.
        let rx = rx.map(|rx| rx.kernel.unwrap_or(rx.app));
        let request = Datagram { len, from, rx, ttl, tos };
        self.responder.prepare(buffer, &request, &mut self.host)
    }
}

fn marks(prepared: &Prepared) -> Marks {
    Marks { tos: prepared.response.tos, ttl: prepared.response.ttl }
}

/// The clocks of this machine, and the rate limit of a socket.
struct LimitedHost {
    limiter: Option<Limiter>,
    /// Time of the batch that is being answered: one clock read for all of its requests.
    batch_time: Option<Instant<Monotonic>>,
}

impl Host for LimitedHost {
    fn monotonic(&self) -> Instant<Monotonic> {
        self.batch_time.unwrap_or_else(monotonic)
    }

    fn realtime(&self) -> Instant<Realtime> {
        realtime()
    }

    fn utc_error(&self) -> Option<Nanos> {
        clock::utc_error()
    }

    fn admit(&mut self, from: SocketAddr) -> Result<(), Refusal> {
        let now = self.batch_time;
        let is_admitted = self
            .limiter
            .as_mut()
            .is_none_or(|limiter| limiter.allows(from, now.unwrap_or_else(monotonic)));
        if is_admitted { Ok(()) } else { Err(Refusal::Limited) }
    }
}

/// Refuses broadcast and multicast addresses: their packets are never answered.
fn refuse_group(address: IpAddr) -> io::Result<()> {
    let group = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if !group {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{address} is a broadcast or multicast address, whose packets are not \
             answered; use an address of this machine, or 0.0.0.0 or [::] for all of them"
        ),
    ))
}

impl Service for UdpService {
    fn shutter(&self) -> io::Result<Option<Shutter>> {
        self.server.shutter().map(Some)
    }

    fn turn(&mut self, wait: Wait) -> io::Result<bool> {
        if self.queue.is_likely(wait) && self.answer_batch()? {
            return Ok(true);
        }
        let request = self.server.receive_from(&mut self.buffer, wait)?;
        self.queue.note_single(request.is_some());
        let Some(request) = request else { return Ok(false) };
        let Some(peer) = &request.from else { return Ok(false) };
        let mut replies = 0;
        if self.records_lags {
            self.counters.record_lag(&request.rx_or_now());
        }
        match self.answers.prepare(&mut self.buffer, &request, peer) {
            Ok(prepared) => {
                self.answers.responder.finish(&prepared, &mut self.buffer, realtime);
                let message = &self.buffer[..prepared.response.len];
                match self.server.reply(message, peer, marks(&prepared)) {
                    Ok(()) => replies = 1,
                    Err(_) => add(&self.counters.send_failed),
                }
            }
            Err(refusal) => self.counters.refuse(refusal),
        }
        self.counters.count(1, replies);
        self.follow_drops(1);
        Ok(true)
    }

    fn end(&mut self) {
        self.read_drops();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_streak_of_requests_is_taken_for_a_queue() {
        for (wait, streak) in [(Wait::No, POLLED_STREAK), (Wait::Forever, BLOCKING_STREAK)] {
            let mut queue = QueueEstimate::default();
            for _ in 0..10 {
                (1..streak).for_each(|_| queue.note_single(true));
                assert!(!queue.is_likely(wait), "{wait:?}");
                queue.note_single(false);
            }
            (0..streak).for_each(|_| queue.note_single(true));
            assert!(queue.is_likely(wait), "{wait:?}");
            queue.note_batch(2);
            assert!(queue.is_likely(wait), "{wait:?}");
            queue.note_batch(1);
            assert!(!queue.is_likely(wait), "{wait:?}");
        }
    }
}
