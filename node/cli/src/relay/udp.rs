//! Datagram relay with one receive and one send call per packet, as in Miya 2020. Clients send to
//! one listening socket; each client gets its own socket towards the far end, so that replies and
//! errors can be assigned to their flow.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::relay::flows::{FlowId, Flows};
use dwell_engine::relay::packet_ids::Ids;
use dwell_engine::relay::{HEADROOM, PayloadTransform, Transformed};
use dwell_io::cache_warming::CacheWarmer;
use dwell_io::clock::{monotonic, realtime};
use dwell_io::datagram::{DatagramSocket, Peer, is_out_of_resources};
use dwell_io::pacer::{self, WaitMode};
use dwell_io::poller::Poller;
use dwell_io::port::{Notice, SendError, SocketOptions, StampRequest, Wait};
use dwell_protocol::{Hold, HoldAt, RelayJob};
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps, RxStamps};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::counts::{Counts, FinalState};
use super::departures::Departures;
use super::record::{EventSender, NewFlow, RelayEvent};
use super::setup::{FlowDirection, RelaySetup};
use super::sockets::Socket;
use super::telemetry::Telemetry;

/// Interval for checking for a stop and for idle flows.
const UPKEEP_INTERVAL: Nanos = Nanos::from_millis(100);

/// Maximum length of a datagram.
const MAX_DATAGRAM_LEN: usize = 65_535;

/// Packets received from one socket before the other sockets are polled.
const RECEIVE_BATCH: usize = 32;

/// Error queue entries read per call.
const ERROR_QUEUE_BATCH: usize = 128;

/// Maximum number of reads when an error queue is drained completely.
const MAX_DRAIN_READS: usize = 64;

/// Up to this number of flows, each socket is polled directly: faster than asking the poller about
/// all of them.
const MAX_POLLED_FLOWS: usize = 4;

/// Interval of cache-warming sends while no packet arrives. A send takes microseconds, so it rarely
/// delays a packet, and then by less than that.
const CACHE_WARMING_INTERVAL: Nanos = Nanos::from_micros(100);

/// Cache warming stops this long before a held packet is sent.
const HOLD_MARGIN: Nanos = Nanos::from_micros(50);

/// After this number of consecutive busy rounds, timestamps are read and the clock is checked
/// anyway.
const MAX_BUSY_ROUNDS: u64 = 64;

/// Maximum number of packets read from a socket that is about to be closed.
const MAX_FINAL_READS: usize = 4_096;

/// Upper limit of the back-off of `take_answer`, in packets.
const MAX_ANSWER_BACKOFF: u64 = 64;

/// Maximum number of flows removed per tick.
const EXPIRY_BATCH: usize = 256;

/// A client.
pub(super) struct Flow {
    pub(super) out: DatagramSocket,
    /// Socket connected to the client, used instead of the listener; only for a client that was
    /// alone.
    pub(super) own: Option<DatagramSocket>,
    pub(super) peer: Peer,
    number: u32,
    ids: [Ids; 2],
}

impl Flow {
    /// Packets of this flow dropped by its receive buffers, where the kernel reports them.
    fn overflowed(&self) -> u64 {
        let own = self.own.as_ref().and_then(DatagramSocket::overflowed);
        self.out.overflowed().unwrap_or(0) + own.unwrap_or(0)
    }
}

/// Returns the named socket; `None` if its flow was removed.
fn end_of<'s>(
    socket: Socket,
    listener: &'s mut DatagramSocket,
    flows: &'s mut Flows<Flow>,
) -> Option<&'s mut DatagramSocket> {
    match socket {
        Socket::Listener => Some(listener),
        Socket::Own(flow) => flows.find(flow)?.own.as_mut(),
        Socket::Out(flow) => Some(&mut flows.find(flow)?.out),
    }
}

/// A datagram relay.
pub(super) struct Relay<'a> {
    setup: &'a RelaySetup,
    pub(super) listener: DatagramSocket,
    near: SocketOptions,
    out: SocketOptions,
    poller: Poller,
    pub(super) flows: Flows<Flow>,
    /// All sockets of the flows while there are at most `MAX_POLLED_FLOWS` flows.
    polled: Vec<Socket>,
    /// Flow whose client gets its own socket once its first packet is sent.
    new_client: Option<FlowId>,
    /// Flow with a new own socket whose earlier packets may still wait at the listener.
    catching_up: Option<FlowId>,
    /// Flow whose client has its own socket.
    owner: Option<FlowId>,
    /// Client of the last packet: the next one is often of the same client.
    last: Option<(SocketAddr, FlowId)>,
    transforms: [PayloadTransform; 2],
    departures: Departures,
    events: EventSender<'a>,
    counts: Counts,
    hold: Option<Hold>,
    telemetry: Option<Telemetry>,
    busy: bool,
    /// Cache warming: its socket, the time of the last send, and the length of the last packet.
    cache_warmer: Option<CacheWarmer>,
    last_warming: Instant<Monotonic>,
    last_len: usize,
    /// Socket that was ready last, and how often it was read.
    last_ready: (Socket, usize),
    /// Consecutive rounds in which a packet arrived.
    busy_rounds: u64,
    /// Back-off of `take_answer`: packets left until the next attempt, and the pause after a failed
    /// one.
    answer_backoff: (u64, u64),
    next_number: u32,
    buffer: Box<[u8]>,
    /// Time of the last clock reading; precise enough for flows.
    now: Instant<Monotonic>,
    tick: Instant<Monotonic>,
}

/// Receives from a socket and sends; see [`Relay::run_by`].
pub(super) type Take<'a, 't> = dyn FnMut(&mut Relay<'a>, Socket) -> io::Result<bool> + 't;

/// A received packet that is about to be sent.
pub(super) struct IncomingPacket {
    pub(super) direction: FlowDirection,
    pub(super) flow: FlowId,
    pub(super) observation: PacketObservation,
}

impl<'a> Relay<'a> {
    /// Opens the listening socket.
    pub(super) fn open(
        setup: &'a RelaySetup,
        job: &RelayJob,
        stamps: StampRequest,
        events: EventSender<'a>,
    ) -> io::Result<Self> {
        let transforms =
            [setup.transform(FlowDirection::Forward), setup.transform(FlowDirection::Backward)];
        let options = |dont_fragment| SocketOptions {
            stamps,
            dont_fragment,
            merge: job.merges(),
            share_port: true,
            ..SocketOptions::relay()
        };
        let listener = DatagramSocket::bind(setup.listen, &options(transforms[1].grows()))?;
        let mut poller = Poller::new(RECEIVE_BATCH)?;
        poller.add(&listener, Socket::Listener.token())?;
        poller.tick(UPKEEP_INTERVAL)?;
        let now = monotonic();
        Ok(Self {
            setup,
            listener,
            near: options(transforms[1].grows()),
            out: options(transforms[0].grows()),
            poller,
            flows: Flows::new(setup.flows as usize, setup.idle),
            polled: Vec::with_capacity(MAX_POLLED_FLOWS + 1),
            new_client: None,
            catching_up: None,
            owner: None,
            last: None,
            transforms,
            departures: Departures::new(),
            events,
            counts: Counts::default(),
            hold: job.hold.filter(|hold| hold.time.is_positive()),
            telemetry: job.telemetry.then_some(Telemetry { node: job.node_id }),
            busy: job.place.busy_poll,
            cache_warmer: CacheWarmer::at(setup.listen).ok().filter(|_| job.place.busy_poll),
            last_warming: now,
            last_len: 0,
            busy_rounds: 0,
            last_ready: (Socket::Listener, 1),
            answer_backoff: (0, 1),
            next_number: 0,
            buffer: vec![0; HEADROOM + MAX_DATAGRAM_LEN].into_boxed_slice(),
            now,
            tick: now + UPKEEP_INTERVAL,
        })
    }

    /// Whether the kernel delivers timestamps.
    pub(super) fn is_stamped(&self) -> bool {
        self.listener.is_stamped()
    }

    /// Relays packet by packet until stopped.
    pub(super) fn run(self, stop: &AtomicBool) -> FinalState {
        self.run_by(RECEIVE_BATCH, &mut Self::take, stop)
    }

    /// Relays until stopped or until a socket fails. `take` receives from a socket, sends, and
    /// returns whether more may be waiting; it is called up to `burst` times per socket and turn.
    pub(super) fn run_by(
        mut self,
        burst: usize,
        take: &mut Take<'a, '_>,
        stop: &AtomicBool,
    ) -> FinalState {
        let mut failure = None;
        while failure.is_none() && !stop.load(Ordering::Relaxed) {
            let done =
                if self.busy && self.flows.len() <= MAX_POLLED_FLOWS && !self.holds(HoldAt::Socket)
                {
                    self.round(take)
                } else {
                    self.turn(burst, take)
                };
            failure = done.err();
        }
        FinalState { counts: self.end(), failure }
    }

    /// Polls every socket. Periodic work waits for a round without packets, at most
    /// [`MAX_BUSY_ROUNDS`] rounds.
    fn round(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        let mut received = take(self, Socket::Listener)?;
        for n in 0..self.polled.len() {
            // An eviction may have shortened the list.
            let Some(socket) = self.polled.get(n).copied() else { break };
            received |= take(self, socket)?;
        }
        self.adopt_new_client(take)?;
        self.busy_rounds = if received { self.busy_rounds + 1 } else { 0 };
        if received {
            self.last_warming = self.now;
            if !self.busy_rounds.is_multiple_of(MAX_BUSY_ROUNDS) {
                return Ok(());
            }
        }
        if self.departures.are_awaited() {
            self.drain_all();
        }
        if received || !self.prepare() {
            self.now = monotonic();
            self.upkeep(take)?;
        }
        if !received {
            self.touch_caches(self.now);
        }
        Ok(())
    }

    fn touch_caches(&mut self, now: Instant<Monotonic>) {
        let Some(cache_warmer) = self
            .cache_warmer
            .as_ref()
            .filter(|_| now - self.last_warming >= CACHE_WARMING_INTERVAL)
        else {
            return;
        };
        cache_warmer.warm_round_trip(&mut self.buffer[HEADROOM..HEADROOM + self.last_len]);
        self.transforms.iter().for_each(PayloadTransform::touch_caches);
        self.last_warming = now;
    }

    /// Waits for events and serves the sockets that have some.
    fn turn(&mut self, burst: usize, take: &mut Take<'a, '_>) -> io::Result<()> {
        let waits = !self.prepare() && !self.busy && self.catching_up.is_none();
        let ready = self.poller.wait(if waits { Wait::Forever } else { Wait::No })?;
        self.now = monotonic();
        for n in 0..ready {
            let ready = self.poller.ready(n);
            let socket = Socket::of(ready.token);
            if ready.readable {
                let burst = if self.holds(HoldAt::Socket) { 1 } else { burst };
                self.spin_since(self.now, HoldAt::Socket);
                self.take_some(burst, socket, take)?;
            }
            // Timestamps can wait until the packets are sent. An error outside the error queue is
            // cleared by receiving; otherwise the poller would report it for ever.
            if ready.error && !self.drain(socket) && !ready.readable {
                take(self, socket)?;
            }
        }
        self.adopt_new_client(take)?;
        // After the packets, so that a flow with a new packet does not expire.
        self.upkeep(take)?;
        if ready > 0 {
            self.last_warming = self.now;
        } else {
            self.touch_caches(self.now);
        }
        Ok(())
    }

    /// Receives from a socket up to `burst` times if it also had packets last time. Any other
    /// socket is read once, so that a reply elsewhere is not delayed.
    fn take_some(
        &mut self,
        burst: usize,
        socket: Socket,
        take: &mut Take<'a, '_>,
    ) -> io::Result<()> {
        let (last, times) = self.last_ready;
        let times = if last == socket { (2 * times).min(burst) } else { 1 };
        self.last_ready = (socket, times);
        for n in 0..times {
            if !take(self, socket)? {
                self.last_ready.1 = 1;
                break;
            }
            if n == 0 {
                self.take_answer(socket, take)?;
            }
        }
        Ok(())
    }

    /// Reads the reply to the packet just relayed from `socket`, if replies come at once, as from a
    /// program on the same machine. This saves a call of the poller.
    fn take_answer(&mut self, socket: Socket, take: &mut Take<'a, '_>) -> io::Result<()> {
        let Some((_, flow)) = self.last else { return Ok(()) };
        if matches!(socket, Socket::Out(_)) || self.holds(HoldAt::Socket) {
            return Ok(());
        }
        let (still, next) = self.answer_backoff;
        self.answer_backoff = match still.checked_sub(1) {
            Some(still) => (still, next),
            None if take(self, Socket::Out(flow))? => (0, 1),
            None => (next, (2 * next).min(MAX_ANSWER_BACKOFF)),
        };
        Ok(())
    }

    fn take(&mut self, socket: Socket) -> io::Result<bool> {
        match socket {
            Socket::Listener | Socket::Own(_) => self.take_forward(socket),
            Socket::Out(flow) => self.take_backward(flow),
        }
    }

    /// Returns the named socket; `None` if its flow was removed.
    pub(super) fn socket(&mut self, socket: Socket) -> Option<&mut DatagramSocket> {
        end_of(socket, &mut self.listener, &mut self.flows)
    }

    /// Relays a packet from a client, if one is waiting.
    fn take_forward(&mut self, socket: Socket) -> io::Result<bool> {
        let near = end_of(socket, &mut self.listener, &mut self.flows);
        let Some(near) = near else { return Ok(false) };
        let Some(datagram) = near.receive_from(&mut self.buffer[HEADROOM..], Wait::No)? else {
            return Ok(false);
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let client = datagram.from.and_then(|peer| self.client(peer, &mut buffer, datagram.len));
        self.buffer = buffer;
        let Some((flow, opened)) = client else { return Ok(true) };
        self.pass(FlowDirection::Forward, flow, datagram.rx_or_now(), datagram.len, opened);
        Ok(true)
    }

    /// Relays a packet from the far end, if one is waiting.
    fn take_backward(&mut self, id: FlowId) -> io::Result<bool> {
        // The flow was removed since the socket was polled.
        let Some(flow) = self.flows.find(id) else { return Ok(false) };
        let Some(datagram) = flow.out.receive_from(&mut self.buffer[HEADROOM..], Wait::No)? else {
            return Ok(false);
        };
        self.pass(FlowDirection::Backward, id, datagram.rx_or_now(), datagram.len, None);
        Ok(true)
    }

    /// Relays the packet in the buffer.
    fn pass(
        &mut self,
        direction: FlowDirection,
        flow: FlowId,
        rx: RxStamps,
        len: usize,
        opened: Option<Range<usize>>,
    ) {
        self.spin(HoldAt::Program);
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some((mut packet, at)) =
            self.transform(direction, flow, rx, &mut buffer, len, opened)
        {
            self.fill_telemetry(&packet, &mut buffer[at.clone()]);
            let Some(flow) = self.flows.find(flow) else { unreachable!("the flow was just found") };
            let message = &buffer[at];
            let sent = match direction {
                FlowDirection::Forward => flow.out.send(message),
                FlowDirection::Backward => match &mut flow.own {
                    Some(own) => own.send(message),
                    None => self.listener.send_to(message, &flow.peer),
                },
            };
            match sent {
                Ok(sent) => {
                    let done = realtime();
                    self.sent(&mut packet, sent.key, sent.app, done);
                }
                Err(error) => self.not_sent(&packet, error),
            }
        }
        self.buffer = buffer;
    }

    /// Processes the payload after the headroom of `buffer`, unless it was already `opened`;
    /// returns its new range. A rejected payload is counted and reported here.
    pub(super) fn transform(
        &mut self,
        direction: FlowDirection,
        id: FlowId,
        rx: RxStamps,
        buffer: &mut [u8],
        len: usize,
        opened: Option<Range<usize>>,
    ) -> Option<(IncomingPacket, Range<usize>)> {
        let at = HEADROOM..HEADROOM + len;
        self.last_len = len;
        let traffic = &mut self.counts.directions[direction as usize];
        traffic.received += 1;
        let transform = &mut self.transforms[direction as usize];
        // A forged packet must not keep a flow alive.
        let is_genuine = opened.is_some() || !transform.authenticates();
        let flow = if is_genuine { self.flows.touch(id, self.now) } else { self.flows.find(id) }?;
        let ids = &mut flow.ids[direction as usize];
        // The id is in the plaintext: read it before encrypting, after decrypting.
        let early = (!transform.opens()).then(|| ids.next_id_of(&buffer[at.clone()]));
        let mut stamps = PointStamps::default();
        if let Some(kernel) = rx.kernel {
            stamps.set(Point::RxKernel, kernel);
        }
        stamps.set(Point::RxApp, rx.app);
        if let Some(telemetry) = self.telemetry.filter(|_| Telemetry::is_before(transform)) {
            let filled =
                telemetry.fill_slot(direction, &stamps, realtime(), &mut buffer[at.clone()]);
            traffic.telemetry_filled += u64::from(filled);
        }
        let transformed = opened.map_or_else(|| transform.pass(buffer, at), Transformed::On);
        let number = flow.number + direction as u32;
        let size = u16::try_from(len).unwrap_or(u16::MAX);
        let observation =
            |id, outcome| PacketObservation { flow: number, id, size, outcome, stamps };
        let at = match transformed {
            Transformed::On(at) => at,
            Transformed::Short(at) => {
                traffic.short += 1;
                at
            }
            Transformed::Refused(error) => {
                traffic.refuse(error);
                let id = early.unwrap_or_else(|| ids.next_without_payload());
                self.events
                    .push_event(RelayEvent::Observation(observation(id, PacketOutcome::Dropped)));
                return None;
            }
        };
        let packet = early.unwrap_or_else(|| ids.next_id_of(&buffer[at.clone()]));
        if !is_genuine {
            self.flows.touch(id, self.now);
        }
        Some((
            IncomingPacket {
                direction,
                flow: id,
                observation: observation(packet, PacketOutcome::Sent),
            },
            at,
        ))
    }

    /// Fills the packet's empty telemetry slot, if it has one, with its timestamps.
    pub(super) fn fill_telemetry(&mut self, packet: &IncomingPacket, payload: &mut [u8]) {
        let Some(telemetry) = self.telemetry else { return };
        let direction = packet.direction;
        if !Telemetry::is_before(&self.transforms[direction as usize]) {
            let filled =
                telemetry.fill_slot(direction, &packet.observation.stamps, realtime(), payload);
            self.counts.directions[direction as usize].telemetry_filled += u64::from(filled);
        }
    }

    /// Counts a sent packet and reports it, at once or when its timestamps arrive.
    pub(super) fn sent(
        &mut self,
        packet: &mut IncomingPacket,
        key: Option<u32>,
        before: Instant<Realtime>,
        after: Instant<Realtime>,
    ) {
        let traffic = &mut self.counts.directions[packet.direction as usize];
        traffic.relayed += 1;
        traffic.bytes += u64::from(packet.observation.size);
        packet.observation.stamps.set(Point::TxApp, before);
        packet.observation.stamps.set(Point::TxAppDone, after);
        let events = &mut self.events;
        let mut push_event = |observation| events.push_event(RelayEvent::Observation(observation));
        match key {
            Some(key) => {
                let has_own = |flow: &mut Flow| flow.own.is_some();
                let socket = match packet.direction {
                    FlowDirection::Forward => Socket::Out(packet.flow),
                    FlowDirection::Backward
                        if self.flows.find(packet.flow).is_some_and(has_own) =>
                    {
                        Socket::Own(packet.flow)
                    }
                    FlowDirection::Backward => Socket::Listener,
                };
                self.departures.note(
                    socket.token(),
                    key,
                    packet.observation,
                    self.now,
                    &mut push_event,
                );
            }
            None => push_event(packet.observation),
        }
    }

    /// Counts and reports a packet that could not be sent.
    pub(super) fn not_sent(&mut self, packet: &IncomingPacket, error: SendError) {
        let traffic = &mut self.counts.directions[packet.direction as usize];
        match error {
            SendError::TooLong => traffic.too_long += 1,
            _ => traffic.send_failed += 1,
        }
        self.events.push_event(RelayEvent::Observation(PacketObservation {
            outcome: PacketOutcome::Dropped,
            ..packet.observation
        }));
    }

    /// Returns the flow of a client, and the range of the payload if it was decrypted to check it:
    /// a packet that is not authentic neither opens nor evicts a flow.
    pub(super) fn client(
        &mut self,
        peer: Peer,
        buffer: &mut [u8],
        len: usize,
    ) -> Option<(FlowId, Option<Range<usize>>)> {
        let is_unknown = |relay: &mut Self| relay.known_flow(&peer.address()).is_none();
        let mut opened = None;
        if self.transforms[FlowDirection::Forward as usize].authenticates() && is_unknown(self) {
            match self.transforms[FlowDirection::Forward as usize]
                .pass(buffer, HEADROOM..HEADROOM + len)
            {
                Transformed::On(at) | Transformed::Short(at) => opened = Some(at),
                Transformed::Refused(error) => {
                    let traffic = &mut self.counts.directions[FlowDirection::Forward as usize];
                    traffic.received += 1;
                    traffic.refuse(error);
                    return None;
                }
            }
        }
        Some((self.flow_of(peer)?, opened))
    }

    /// Returns the flow of a client and opens one if necessary.
    fn flow_of(&mut self, peer: Peer) -> Option<FlowId> {
        let client = peer.address();
        let id = self.known_flow(&client).or_else(|| self.admit(peer))?;
        self.last = Some((client, id));
        Some(id)
    }

    /// Returns the existing flow of a client.
    fn known_flow(&mut self, client: &SocketAddr) -> Option<FlowId> {
        match self.last {
            Some((last, id)) if last == *client && self.flows.find(id).is_some() => Some(id),
            _ => self.flows.of(client),
        }
    }

    fn admit(&mut self, peer: Peer) -> Option<FlowId> {
        let mut opened = DatagramSocket::connect(self.setup.to, &self.out);
        if opened.as_ref().is_err_and(is_out_of_resources) {
            self.keep_flow_with_unread();
            if let Some(gone) = self.flows.evict() {
                // Evict the flow that was idle for longest and use its descriptor.
                self.forget(gone);
                opened = DatagramSocket::connect(self.setup.to, &self.out);
            }
        }
        let out = match opened {
            Ok(out) => out,
            Err(error) => {
                self.counts.directions[FlowDirection::Forward as usize].received += 1;
                let unserved = &mut self.counts.unserved;
                let why = if is_out_of_resources(&error) {
                    &mut unserved.here
                } else {
                    &mut unserved.refused
                };
                why.note(error);
                return None;
            }
        };
        let local = self.listener.local_addr();
        let listen = peer.sent_to().map_or(local, |ip| (ip, local.port()).into());
        let number = self.next_number;
        self.next_number = number.wrapping_add(2);
        let (client, to) = (peer.address(), self.setup.to);
        let new_flow = NewFlow { number, client, listen, out: out.local_addr(), to };
        let ids = [self.setup.ids(); 2];
        if self.flows.len() >= self.setup.flows as usize {
            self.keep_flow_with_unread();
        }
        let (id, evicted) =
            self.flows.insert(client, Flow { out, own: None, peer, number, ids }, self.now);
        if let Some(gone) = evicted {
            self.forget(gone);
        }
        let added =
            self.flows.find(id).map(|flow| self.poller.add(&flow.out, Socket::Out(id).token()));
        if let Some(Err(error)) = added {
            // Replies to this flow will not be seen.
            self.counts.unserved.here.note(error);
        }
        self.events.push_event(RelayEvent::Flow(new_flow));
        self.update_polled();
        let alone = self.flows.len() == 1 && self.setup.flows > 1;
        self.new_client = (alone && !self.holds(HoldAt::Socket)).then_some(id);
        Some(id)
    }

    /// Marks the owner of unread packets as active, so that its flow is not evicted with them.
    fn keep_flow_with_unread(&mut self) {
        if let Some(owner) = self.owner
            && let Some(flow) = self.flows.find(owner)
            && flow.own.as_ref().is_some_and(DatagramSocket::has_unread)
        {
            self.flows.touch(owner, self.now);
        }
    }

    /// Gives a new client its own socket if it is the only one. Its earlier packets wait at the
    /// listener; until that is empty, nothing is read from the new socket.
    fn adopt_new_client(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        if let Some(id) = self.new_client.take()
            && let Some(flow) = self.flows.find(id)
        {
            // On failure the listener continues to serve the client.
            flow.own = DatagramSocket::for_peer(&self.listener, &flow.peer, &self.near).ok();
            self.catching_up = flow.own.is_some().then_some(id);
            self.owner = self.catching_up;
        }
        let Some(id) = self.catching_up else { return Ok(()) };
        for _ in 0..RECEIVE_BATCH {
            if !take(self, Socket::Listener)? {
                self.catching_up = None;
                self.poll_own_socket(id);
                break;
            }
        }
        Ok(())
    }

    /// Starts polling a client's own socket.
    fn poll_own_socket(&mut self, id: FlowId) {
        let Some(flow) = self.flows.find(id) else { return };
        let Some(own) = &flow.own else { return };
        if self.poller.add(own, Socket::Own(id).token()).is_err() {
            flow.own = None;
            return;
        }
        self.update_polled();
    }

    fn forget(&mut self, flow: Flow) {
        self.counts.overflowed += flow.overflowed();
    }

    /// Updates the list of flow sockets while there are at most `MAX_POLLED_FLOWS` flows.
    fn update_polled(&mut self) {
        self.polled.clear();
        if self.flows.len() <= MAX_POLLED_FLOWS {
            for (id, flow) in self.flows.iter_mut() {
                let is_heard = flow.own.is_some() && self.catching_up != Some(id);
                self.polled.extend(is_heard.then_some(Socket::Own(id)));
                self.polled.push(Socket::Out(id));
            }
        }
    }

    /// Reads timestamps and errors of one socket; returns whether there were any.
    fn drain(&mut self, socket: Socket) -> bool {
        let mut any = false;
        let (departures, events) = (&mut self.departures, &mut self.events);
        let errors = &mut self.counts.icmp_errors;
        let token = socket.token();
        let mut each = |notice| {
            any = true;
            match notice {
                Notice::TxStamp { key, stamp } => {
                    departures.stamp(token, key, stamp, &mut |p| {
                        events.push_event(RelayEvent::Observation(p))
                    });
                }
                Notice::Error { icmp, .. } => *errors += u64::from(icmp),
            }
        };
        if let Some(end) = end_of(socket, &mut self.listener, &mut self.flows) {
            end.notices(ERROR_QUEUE_BATCH, &mut each);
        }
        any
    }

    /// Reads all timestamps and errors of one socket; a burst leaves more than one read returns.
    fn drain_completely(&mut self, socket: Socket) {
        for _ in 0..MAX_DRAIN_READS {
            if !self.drain(socket) {
                return;
            }
        }
    }

    /// Reads timestamps and errors of all sockets of at most `MAX_POLLED_FLOWS` flows.
    fn drain_all(&mut self) {
        self.drain(Socket::Listener);
        for n in 0..self.polled.len() {
            self.drain(self.polled[n]);
        }
    }

    /// Prepares keystream for the next packet; returns whether any was missing.
    fn prepare(&mut self) -> bool {
        self.transforms.iter_mut().any(PayloadTransform::prepare)
    }

    /// Does periodic work once per `UPKEEP_INTERVAL`.
    fn upkeep(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        if self.now < self.tick {
            return Ok(());
        }
        self.tick = self.now + UPKEEP_INTERVAL;
        // Before packets are given up: after a stall, many timestamps may be waiting.
        if self.flows.len() <= MAX_POLLED_FLOWS {
            self.drain_completely(Socket::Listener);
            for n in 0..self.polled.len() {
                self.drain_completely(self.polled[n]);
            }
        }
        let events = &mut self.events;
        self.departures.overdue(self.now, &mut |p| events.push_event(RelayEvent::Observation(p)));
        let mut expired = false;
        for _ in 0..EXPIRY_BATCH {
            let Some(id) = self.flows.overdue(self.now) else { break };
            self.close_own_socket(id, take)?;
            let Some(flow) = self.flows.expire(id, self.now) else { continue };
            self.forget(flow);
            expired = true;
        }
        if expired {
            self.update_polled();
        }
        Ok(())
    }

    /// Closes a client's own socket and relays what was waiting there. If anything was, the flow
    /// stays and the listener serves it.
    fn close_own_socket(&mut self, id: FlowId, take: &mut Take<'a, '_>) -> io::Result<()> {
        let own = self.flows.find(id).and_then(|flow| flow.own.as_ref());
        let Some(own) = own else { return Ok(()) };
        // Stop further arrivals; if that fails, read only up to the limit.
        let most = if own.release_peer().is_ok() { usize::MAX } else { MAX_FINAL_READS };
        for _ in 0..most {
            if !take(self, Socket::Own(id))? {
                break;
            }
        }
        let own = self.flows.find(id).and_then(|flow| flow.own.take());
        if let Some(own) = own {
            self.counts.overflowed += own.overflowed().unwrap_or(0);
            self.update_polled();
        }
        Ok(())
    }

    fn holds(&self, at: HoldAt) -> bool {
        self.hold.is_some_and(|hold| hold.at == at)
    }

    /// Delays a packet as `--hold` asks.
    pub(super) fn spin(&mut self, at: HoldAt) {
        if self.holds(at) {
            self.spin_since(monotonic(), at);
        }
    }

    /// Delays a packet that was available at `start`. Keeps the caches warm, so that the delay is
    /// the only difference from an undelayed packet.
    fn spin_since(&mut self, start: Instant<Monotonic>, at: HoldAt) {
        let Some(hold) = self.hold.filter(|hold| hold.at == at) else { return };
        let until = start + hold.time;
        while until - monotonic() > HOLD_MARGIN {
            self.touch_caches(monotonic());
        }
        let _ = pacer::wait(WaitMode::Spin, until, || false);
    }

    /// Reads the remaining timestamps, releases waiting packets and adds up the counters.
    fn end(mut self) -> Counts {
        self.drain_completely(Socket::Listener);
        let ids: Vec<_> = self.flows.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            self.drain_completely(Socket::Own(id));
            self.drain_completely(Socket::Out(id));
            self.counts.overflowed += self.flows.find(id).map_or(0, |flow| flow.overflowed());
        }
        self.counts.overflowed += self.listener.overflowed().unwrap_or(0);
        let events = &mut self.events;
        let end = Instant::from_nanos(i64::MAX);
        self.departures.overdue(end, &mut |p| events.push_event(RelayEvent::Observation(p)));
        self.counts.flows = self.flows.counts();
        self.counts
    }
}

#[cfg(test)]
mod tests;
