//! Datagram relay with one receive and one send call per packet, as in Miya 2020. Clients send to
//! one listening socket; each client gets its own socket towards the far end, so that replies and
//! errors can be assigned to their flow.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::passage::{Fate, Passage, Point, PointStamps};
use dwell_engine::relay::flows::{FlowId, Flows};
use dwell_engine::relay::id::Ids;
use dwell_engine::relay::{HEADROOM, Passed, Work};
use dwell_engine::stamps::RxStamps;
use dwell_io::clock::{monotonic, realtime};
use dwell_io::datagram::{EndOptions, Peer, UdpEnd, is_short};
use dwell_io::pacer::{self, Manner};
use dwell_io::poller::Poller;
use dwell_io::port::{Notice, SendError, StampRequest, Wait};
use dwell_io::warmth::Warmth;
use dwell_plan::{Hold, HoldAt, RelayJob};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::counts::{Counts, Ended};
use super::plan::{Plan, Way};
use super::record::{NewFlow, News, Teller};
use super::sockets::Socket;
use super::stamps::Departures;
use super::telemetry::Telemetry;

/// Interval for checking for a stop and for idle flows.
const TICK: Nanos = Nanos::from_millis(100);

/// Maximum length of a datagram.
const LONGEST: usize = 65_535;

/// Packets received from one socket before the other sockets are polled.
const BURST: usize = 32;

/// Error queue entries read per call.
const NOTICES: usize = 128;

/// Maximum number of reads when an error queue is drained completely.
const LOOKS: usize = 64;

/// Up to this number of flows, each socket is polled directly: faster than asking the poller about
/// all of them.
const FEW: usize = 4;

/// Interval of cache-warming sends while no packet arrives. A send takes microseconds, so it rarely
/// delays a packet, and then by less than that.
const WARM: Nanos = Nanos::from_micros(100);

/// Cache warming stops this long before a held packet is sent.
const LEFT_COLD: Nanos = Nanos::from_micros(50);

/// After this number of consecutive busy rounds, timestamps are read and the clock is checked
/// anyway.
const FULL: u64 = 64;

/// Maximum number of packets read from a socket that is about to be closed.
const MOST_UNREAD: usize = 4_096;

/// Upper limit of the back-off of `take_answer`, in packets.
const UNASKED: u64 = 64;

/// Maximum number of flows removed per tick.
const EXPIRED: usize = 256;

/// A client.
pub(super) struct Flow {
    pub(super) out: UdpEnd,
    /// Socket connected to the client, used instead of the listener; only for a client that was
    /// alone.
    pub(super) own: Option<UdpEnd>,
    pub(super) peer: Peer,
    number: u32,
    ids: [Ids; 2],
}

impl Flow {
    /// Packets of this flow dropped by its receive buffers, where the kernel reports them.
    fn overflowed(&self) -> u64 {
        let own = self.own.as_ref().and_then(UdpEnd::overflowed);
        self.out.overflowed().unwrap_or(0) + own.unwrap_or(0)
    }
}

/// Returns the named socket; `None` if its flow was removed.
fn end_of<'s>(
    socket: Socket,
    listener: &'s mut UdpEnd,
    flows: &'s mut Flows<Flow>,
) -> Option<&'s mut UdpEnd> {
    match socket {
        Socket::Listener => Some(listener),
        Socket::Own(flow) => flows.find(flow)?.own.as_mut(),
        Socket::Out(flow) => Some(&mut flows.find(flow)?.out),
    }
}

/// A datagram relay.
pub(super) struct Relay<'a> {
    plan: &'a Plan,
    pub(super) listener: UdpEnd,
    near: EndOptions,
    out: EndOptions,
    poller: Poller,
    pub(super) flows: Flows<Flow>,
    /// All sockets of the flows while there are at most `FEW` flows.
    few: Vec<Socket>,
    /// Flow whose client gets its own socket once its first packet is sent.
    fresh: Option<FlowId>,
    /// Flow with a new own socket whose earlier packets may still wait at the listener.
    behind: Option<FlowId>,
    /// Flow whose client has its own socket.
    owner: Option<FlowId>,
    /// Client of the last packet: the next one is often of the same client.
    last: Option<(SocketAddr, FlowId)>,
    works: [Work; 2],
    departures: Departures,
    teller: Teller<'a>,
    counts: Counts,
    hold: Option<Hold>,
    telemetry: Option<Telemetry>,
    busy: bool,
    /// Cache warming: its socket, the time of the last send, and the length of the last packet.
    warmth: Option<Warmth>,
    warmed: Instant<Monotonic>,
    usual: usize,
    /// Socket that was ready last, and how often it was read.
    crowded: (Socket, usize),
    /// Consecutive rounds in which a packet arrived.
    full: u64,
    /// Back-off of `take_answer`: packets left until the next attempt, and the pause after a failed
    /// one.
    unasked: (u64, u64),
    next_number: u32,
    buffer: Box<[u8]>,
    /// Time of the last clock reading; precise enough for flows.
    now: Instant<Monotonic>,
    tick: Instant<Monotonic>,
}

/// Receives from a socket and sends; see [`Relay::run_by`].
pub(super) type Take<'a, 't> = dyn FnMut(&mut Relay<'a>, Socket) -> io::Result<bool> + 't;

/// A received packet that is about to be sent.
pub(super) struct Came {
    pub(super) way: Way,
    pub(super) flow: FlowId,
    pub(super) passage: Passage,
}

impl<'a> Relay<'a> {
    /// Opens the listening socket.
    pub(super) fn open(
        plan: &'a Plan,
        job: &RelayJob,
        stamps: StampRequest,
        teller: Teller<'a>,
    ) -> io::Result<Self> {
        let works = [plan.work(Way::Forward), plan.work(Way::Backward)];
        let options = |grows| EndOptions { stamps, whole: grows, merge: job.merges(), own: true };
        let listener = UdpEnd::listen(plan.listen, options(works[1].grows()))?;
        let mut poller = Poller::new(BURST)?;
        poller.add(&listener, Socket::Listener.token())?;
        poller.tick(TICK)?;
        let now = monotonic();
        Ok(Self {
            plan,
            listener,
            near: options(works[1].grows()),
            out: options(works[0].grows()),
            poller,
            flows: Flows::new(plan.flows as usize, plan.idle),
            few: Vec::with_capacity(FEW + 1),
            fresh: None,
            behind: None,
            owner: None,
            last: None,
            works,
            departures: Departures::new(),
            teller,
            counts: Counts::default(),
            hold: job.hold.filter(|hold| hold.time.is_positive()),
            telemetry: job.telemetry.then_some(Telemetry { node: job.node_id }),
            busy: job.place.busy_poll,
            warmth: Warmth::at(plan.listen).ok().filter(|_| job.place.busy_poll),
            warmed: now,
            usual: 0,
            full: 0,
            crowded: (Socket::Listener, 1),
            unasked: (0, 1),
            next_number: 0,
            buffer: vec![0; HEADROOM + LONGEST].into_boxed_slice(),
            now,
            tick: now + TICK,
        })
    }

    /// Whether the kernel delivers timestamps.
    pub(super) fn is_stamped(&self) -> bool {
        self.listener.is_stamped()
    }

    /// Relays packet by packet until stopped.
    pub(super) fn run(self, stop: &AtomicBool) -> Ended {
        self.run_by(BURST, &mut Self::take, stop)
    }

    /// Relays until stopped or until a socket fails. `take` receives from a socket, sends, and
    /// returns whether more may be waiting; it is called up to `burst` times per socket and turn.
    pub(super) fn run_by(
        mut self,
        burst: usize,
        take: &mut Take<'a, '_>,
        stop: &AtomicBool,
    ) -> Ended {
        let mut failure = None;
        while failure.is_none() && !stop.load(Ordering::Relaxed) {
            let done = if self.busy && self.flows.len() <= FEW && !self.holds(HoldAt::Socket) {
                self.round(take)
            } else {
                self.turn(burst, take)
            };
            failure = done.err();
        }
        Ended { counts: self.end(), failure }
    }

    /// Polls every socket. Periodic work waits for a round without packets, at most `FULL` rounds.
    fn round(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        let mut came = take(self, Socket::Listener)?;
        for n in 0..self.few.len() {
            // An eviction may have shortened the list.
            let Some(socket) = self.few.get(n).copied() else { break };
            came |= take(self, socket)?;
        }
        self.settle_the_fresh(take)?;
        self.full = if came { self.full + 1 } else { 0 };
        if came {
            self.warmed = self.now;
            if !self.full.is_multiple_of(FULL) {
                return Ok(());
            }
        }
        if self.departures.are_awaited() {
            self.drain_all();
        }
        if came || !self.prepare() {
            self.now = monotonic();
            self.upkeep(take)?;
        }
        if !came {
            self.keep_warm(self.now);
        }
        Ok(())
    }

    fn keep_warm(&mut self, now: Instant<Monotonic>) {
        let Some(warmth) = self.warmth.as_ref().filter(|_| now - self.warmed >= WARM) else {
            return;
        };
        warmth.stir(&mut self.buffer[HEADROOM..HEADROOM + self.usual]);
        self.works.iter().for_each(Work::keep_warm);
        self.warmed = now;
    }

    /// Waits for events and serves the sockets that have some.
    fn turn(&mut self, burst: usize, take: &mut Take<'a, '_>) -> io::Result<()> {
        let waits = !self.prepare() && !self.busy && self.behind.is_none();
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
        self.settle_the_fresh(take)?;
        // After the packets, so that a flow with a new packet does not expire.
        self.upkeep(take)?;
        if ready > 0 {
            self.warmed = self.now;
        } else {
            self.keep_warm(self.now);
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
        let (last, times) = self.crowded;
        let times = if last == socket { (2 * times).min(burst) } else { 1 };
        self.crowded = (socket, times);
        for n in 0..times {
            if !take(self, socket)? {
                self.crowded.1 = 1;
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
        let (still, next) = self.unasked;
        self.unasked = match still.checked_sub(1) {
            Some(still) => (still, next),
            None if take(self, Socket::Out(flow))? => (0, 1),
            None => (next, (2 * next).min(UNASKED)),
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
    pub(super) fn socket(&mut self, socket: Socket) -> Option<&mut UdpEnd> {
        end_of(socket, &mut self.listener, &mut self.flows)
    }

    /// Relays a packet from a client, if one is waiting.
    fn take_forward(&mut self, socket: Socket) -> io::Result<bool> {
        let near = end_of(socket, &mut self.listener, &mut self.flows);
        let Some(near) = near else { return Ok(false) };
        let Some(came) = near.receive(&mut self.buffer[HEADROOM..])? else { return Ok(false) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let client = came.from.and_then(|peer| self.client(peer, &mut buffer, came.len));
        self.buffer = buffer;
        let Some((flow, opened)) = client else { return Ok(true) };
        self.pass(Way::Forward, flow, came.rx, came.len, opened);
        Ok(true)
    }

    /// Relays a packet from the far end, if one is waiting.
    fn take_backward(&mut self, id: FlowId) -> io::Result<bool> {
        // The flow was removed since the socket was polled.
        let Some(flow) = self.flows.find(id) else { return Ok(false) };
        let Some(came) = flow.out.receive(&mut self.buffer[HEADROOM..])? else { return Ok(false) };
        self.pass(Way::Backward, id, came.rx, came.len, None);
        Ok(true)
    }

    /// Relays the packet in the buffer.
    fn pass(
        &mut self,
        way: Way,
        flow: FlowId,
        rx: RxStamps,
        len: usize,
        opened: Option<Range<usize>>,
    ) {
        self.spin(HoldAt::Program);
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some((mut came, at)) = self.work(way, flow, rx, &mut buffer, len, opened) {
            self.say(&came, &mut buffer[at.clone()]);
            let Some(flow) = self.flows.find(flow) else { unreachable!("the flow was just found") };
            let message = &buffer[at];
            let sent = match way {
                Way::Forward => flow.out.send(message, None),
                Way::Backward => match &mut flow.own {
                    Some(own) => own.send(message, None),
                    None => self.listener.send(message, Some(&flow.peer)),
                },
            };
            match sent {
                Ok(sent) => {
                    let done = realtime();
                    self.sent(&mut came, sent.key, sent.app, done);
                }
                Err(error) => self.not_sent(&came, error),
            }
        }
        self.buffer = buffer;
    }

    /// Processes the payload after the headroom of `buffer`, unless it was already `opened`;
    /// returns its new range. A rejected payload is counted and reported here.
    pub(super) fn work(
        &mut self,
        way: Way,
        id: FlowId,
        rx: RxStamps,
        buffer: &mut [u8],
        len: usize,
        opened: Option<Range<usize>>,
    ) -> Option<(Came, Range<usize>)> {
        let at = HEADROOM..HEADROOM + len;
        self.usual = len;
        let traffic = &mut self.counts.ways[way as usize];
        traffic.received += 1;
        let work = &mut self.works[way as usize];
        // A forged packet must not keep a flow alive.
        let is_genuine = opened.is_some() || !work.authenticates();
        let flow = if is_genuine { self.flows.touch(id, self.now) } else { self.flows.find(id) }?;
        let ids = &mut flow.ids[way as usize];
        // The id is in the plaintext: read it before encrypting, after decrypting.
        let early = (!work.opens()).then(|| ids.of_next(&buffer[at.clone()]));
        let mut stamps = PointStamps::default();
        if let Some(kernel) = rx.kernel {
            stamps.set(Point::RxKernel, kernel);
        }
        stamps.set(Point::RxApp, rx.app);
        if let Some(telemetry) = self.telemetry.filter(|_| Telemetry::is_before(work)) {
            let said = telemetry.say(way, &stamps, realtime(), &mut buffer[at.clone()]);
            traffic.telemetry_filled += u64::from(said);
        }
        let worked = opened.map_or_else(|| work.pass(buffer, at), Passed::On);
        let number = flow.number + way as u32;
        let size = u16::try_from(len).unwrap_or(u16::MAX);
        let passage = |id, fate| Passage { flow: number, id, size, fate, stamps };
        let at = match worked {
            Passed::On(at) => at,
            Passed::Short(at) => {
                traffic.short += 1;
                at
            }
            Passed::Refused(error) => {
                traffic.refuse(error);
                let id = early.unwrap_or_else(|| ids.of_unread());
                self.teller.tell(News::Passage(passage(id, Fate::Dropped)));
                return None;
            }
        };
        let packet = early.unwrap_or_else(|| ids.of_next(&buffer[at.clone()]));
        if !is_genuine {
            self.flows.touch(id, self.now);
        }
        Some((Came { way, flow: id, passage: passage(packet, Fate::Sent) }, at))
    }

    /// Fills the packet's empty telemetry slot, if it has one, with its timestamps.
    pub(super) fn say(&mut self, came: &Came, payload: &mut [u8]) {
        let Some(telemetry) = self.telemetry else { return };
        let way = came.way;
        if !Telemetry::is_before(&self.works[way as usize]) {
            let said = telemetry.say(way, &came.passage.stamps, realtime(), payload);
            self.counts.ways[way as usize].telemetry_filled += u64::from(said);
        }
    }

    /// Counts a sent packet and reports it, at once or when its timestamps arrive.
    pub(super) fn sent(
        &mut self,
        came: &mut Came,
        key: Option<u32>,
        before: Instant<Realtime>,
        after: Instant<Realtime>,
    ) {
        let traffic = &mut self.counts.ways[came.way as usize];
        traffic.relayed += 1;
        traffic.bytes += u64::from(came.passage.size);
        came.passage.stamps.set(Point::TxApp, before);
        came.passage.stamps.set(Point::TxAppDone, after);
        let teller = &mut self.teller;
        let mut tell = |passage| teller.tell(News::Passage(passage));
        match key {
            Some(key) => {
                let has_own = |flow: &mut Flow| flow.own.is_some();
                let socket = match came.way {
                    Way::Forward => Socket::Out(came.flow),
                    Way::Backward if self.flows.find(came.flow).is_some_and(has_own) => {
                        Socket::Own(came.flow)
                    }
                    Way::Backward => Socket::Listener,
                };
                self.departures.note(socket.token(), key, came.passage, self.now, &mut tell);
            }
            None => tell(came.passage),
        }
    }

    /// Counts and reports a packet that could not be sent.
    pub(super) fn not_sent(&mut self, came: &Came, error: SendError) {
        let traffic = &mut self.counts.ways[came.way as usize];
        match error {
            SendError::TooLong => traffic.too_long += 1,
            _ => traffic.send_failed += 1,
        }
        self.teller.tell(News::Passage(Passage { fate: Fate::Dropped, ..came.passage }));
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
        if self.works[Way::Forward as usize].authenticates() && is_unknown(self) {
            match self.works[Way::Forward as usize].pass(buffer, HEADROOM..HEADROOM + len) {
                Passed::On(at) | Passed::Short(at) => opened = Some(at),
                Passed::Refused(error) => {
                    let traffic = &mut self.counts.ways[Way::Forward as usize];
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
        let mut opened = UdpEnd::connect(self.plan.to, self.out);
        if opened.as_ref().is_err_and(is_short) {
            self.spare_who_has_unread();
            if let Some(gone) = self.flows.evict() {
                // Evict the flow that was idle for longest and use its descriptor.
                self.forget(gone);
                opened = UdpEnd::connect(self.plan.to, self.out);
            }
        }
        let out = match opened {
            Ok(out) => out,
            Err(error) => {
                self.counts.ways[Way::Forward as usize].received += 1;
                let unserved = &mut self.counts.unserved;
                let why = if is_short(&error) { &mut unserved.here } else { &mut unserved.refused };
                why.note(error);
                return None;
            }
        };
        let local = self.listener.local_addr();
        let listen = peer.sent_to().map_or(local, |ip| (ip, local.port()).into());
        let number = self.next_number;
        self.next_number = number.wrapping_add(2);
        let (client, to) = (peer.address(), self.plan.to);
        let news = NewFlow { number, client, listen, out: out.local_addr(), to };
        let ids = [self.plan.ids(); 2];
        if self.flows.len() >= self.plan.flows as usize {
            self.spare_who_has_unread();
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
        self.teller.tell(News::Flow(news));
        self.note_few();
        let alone = self.flows.len() == 1 && self.plan.flows > 1;
        self.fresh = (alone && !self.holds(HoldAt::Socket)).then_some(id);
        Some(id)
    }

    /// Marks the owner of unread packets as active, so that its flow is not evicted with them.
    fn spare_who_has_unread(&mut self) {
        if let Some(owner) = self.owner
            && let Some(flow) = self.flows.find(owner)
            && flow.own.as_ref().is_some_and(UdpEnd::has_unread)
        {
            self.flows.touch(owner, self.now);
        }
    }

    /// Gives a new client its own socket if it is the only one. Its earlier packets wait at the
    /// listener; until that is empty, nothing is read from the new socket.
    fn settle_the_fresh(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        if let Some(id) = self.fresh.take()
            && let Some(flow) = self.flows.find(id)
        {
            // On failure the listener continues to serve the client.
            flow.own = UdpEnd::own(&self.listener, &flow.peer, self.near).ok();
            self.behind = flow.own.is_some().then_some(id);
            self.owner = self.behind;
        }
        let Some(id) = self.behind else { return Ok(()) };
        for _ in 0..BURST {
            if !take(self, Socket::Listener)? {
                self.behind = None;
                self.hear(id);
                break;
            }
        }
        Ok(())
    }

    /// Starts polling a client's own socket.
    fn hear(&mut self, id: FlowId) {
        let Some(flow) = self.flows.find(id) else { return };
        let Some(own) = &flow.own else { return };
        if self.poller.add(own, Socket::Own(id).token()).is_err() {
            flow.own = None;
            return;
        }
        self.note_few();
    }

    fn forget(&mut self, flow: Flow) {
        self.counts.overflowed += flow.overflowed();
    }

    /// Updates the list of flow sockets while there are at most `FEW` flows.
    fn note_few(&mut self) {
        self.few.clear();
        if self.flows.len() <= FEW {
            for (id, flow) in self.flows.iter_mut() {
                let is_heard = flow.own.is_some() && self.behind != Some(id);
                self.few.extend(is_heard.then_some(Socket::Own(id)));
                self.few.push(Socket::Out(id));
            }
        }
    }

    /// Reads timestamps and errors of one socket; returns whether there were any.
    fn drain(&mut self, socket: Socket) -> bool {
        let mut any = false;
        let (departures, teller) = (&mut self.departures, &mut self.teller);
        let errors = &mut self.counts.icmp_errors;
        let token = socket.token();
        let mut each = |notice| {
            any = true;
            match notice {
                Notice::TxStamp { key, stamp } => {
                    departures.stamp(token, key, stamp, &mut |p| teller.tell(News::Passage(p)));
                }
                Notice::Error { icmp, .. } => *errors += u64::from(icmp),
            }
        };
        if let Some(end) = end_of(socket, &mut self.listener, &mut self.flows) {
            end.notices(NOTICES, &mut each);
        }
        any
    }

    /// Reads all timestamps and errors of one socket; a burst leaves more than one read returns.
    fn drain_wholly(&mut self, socket: Socket) {
        for _ in 0..LOOKS {
            if !self.drain(socket) {
                return;
            }
        }
    }

    /// Reads timestamps and errors of all sockets of at most `FEW` flows.
    fn drain_all(&mut self) {
        self.drain(Socket::Listener);
        for n in 0..self.few.len() {
            self.drain(self.few[n]);
        }
    }

    /// Prepares keystream for the next packet; returns whether any was missing.
    fn prepare(&mut self) -> bool {
        self.works.iter_mut().any(Work::prepare)
    }

    /// Does periodic work once per `TICK`.
    fn upkeep(&mut self, take: &mut Take<'a, '_>) -> io::Result<()> {
        if self.now < self.tick {
            return Ok(());
        }
        self.tick = self.now + TICK;
        // Before packets are given up: after a stall, many timestamps may be waiting.
        if self.flows.len() <= FEW {
            self.drain_wholly(Socket::Listener);
            for n in 0..self.few.len() {
                self.drain_wholly(self.few[n]);
            }
        }
        let teller = &mut self.teller;
        self.departures.overdue(self.now, &mut |p| teller.tell(News::Passage(p)));
        let mut expired = false;
        for _ in 0..EXPIRED {
            let Some(id) = self.flows.overdue(self.now) else { break };
            self.dispossess(id, take)?;
            let Some(flow) = self.flows.expire(id, self.now) else { continue };
            self.forget(flow);
            expired = true;
        }
        if expired {
            self.note_few();
        }
        Ok(())
    }

    /// Closes a client's own socket and relays what was waiting there. If anything was, the flow
    /// stays and the listener serves it.
    fn dispossess(&mut self, id: FlowId, take: &mut Take<'a, '_>) -> io::Result<()> {
        let own = self.flows.find(id).and_then(|flow| flow.own.as_ref());
        let Some(own) = own else { return Ok(()) };
        // Stop further arrivals; if that fails, read only up to the limit.
        let most = if own.turn_away().is_ok() { usize::MAX } else { MOST_UNREAD };
        for _ in 0..most {
            if !take(self, Socket::Own(id))? {
                break;
            }
        }
        let own = self.flows.find(id).and_then(|flow| flow.own.take());
        if let Some(own) = own {
            self.counts.overflowed += own.overflowed().unwrap_or(0);
            self.note_few();
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
        while until - monotonic() > LEFT_COLD {
            self.keep_warm(monotonic());
        }
        let _ = pacer::wait(Manner::Spin, until, || false);
    }

    /// Reads the remaining timestamps, releases waiting packets and adds up the counters.
    fn end(mut self) -> Counts {
        self.drain_wholly(Socket::Listener);
        let ids: Vec<_> = self.flows.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            self.drain_wholly(Socket::Own(id));
            self.drain_wholly(Socket::Out(id));
            self.counts.overflowed += self.flows.find(id).map_or(0, |flow| flow.overflowed());
        }
        self.counts.overflowed += self.listener.overflowed().unwrap_or(0);
        let teller = &mut self.teller;
        let end = Instant::from_nanos(i64::MAX);
        self.departures.overdue(end, &mut |p| teller.tell(News::Passage(p)));
        self.counts.flows = self.flows.counts();
        self.counts
    }
}

#[cfg(test)]
mod tests;
