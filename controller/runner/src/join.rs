//! Joins what the machines along a flow recorded into one row per packet sent.
//!
//! A packet is identified by its flow and its id within the flow, because all flows count from the
//! same number. The sender's flow is matched at other machines by its addresses, and after a relay
//! by the outgoing addresses in the relay's table. Segments must therefore be read in the order in
//! which packets pass the machines.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use dwell_record::segment::{self, FlowEntry, Record, SegmentEnd, SegmentError};
use dwell_record::{Batch, Column};
use dwell_sample::{PacketObservation, Point, PointStamps, State};
use dwell_stats::{DelayComponent, Leg, LinkEndpoints, Machine, OneWayPath};
use dwell_units::{Instant, Nanos};

use crate::path_clocks::LegClocks;

/// Maximum number of packets joined; bounds the memory.
const MAX_PACKETS: usize = 1 << 20;

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 14;

/// The packets of one trial.
#[derive(Debug, Default)]
pub(crate) struct Join {
    packets: Vec<Packet>,
    index: HashMap<(usize, u64), usize>,
    routes: Vec<Route>,
    /// Whether a node is between the ends, with or without timestamps.
    relayed: bool,
    /// Whether a clock was stepped during the trial, which invalidates all delays.
    void: bool,
    /// Whether links are emulated by queueing disciplines of the senders.
    queue_is_link: bool,
    clocks: LegClocks,
    pub(crate) counts: JoinCounts,
}

/// Counts that the rows do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JoinCounts {
    /// Duplicate packets.
    pub(crate) duplicate: u64,
    /// Observations at the relay, in traces and at the receiver that match no sent packet.
    pub(crate) unmatched: [u64; 3],
    /// Packets sent beyond [`MAX_PACKETS`].
    pub(crate) left_out: u64,
    /// Packets whose id the sender had already used.
    pub(crate) repeated: u64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Packet {
    id: u64,
    size: u16,
    path: OneWayPath,
    received: bool,
    reordered: bool,
}

/// Source and destination.
type Addresses = (SocketAddr, SocketAddr);

/// The addresses of a flow along its route.
#[derive(Clone, Copy, Debug)]
struct Route {
    sent: Addresses,
    /// Addresses after the relay; equal to `sent` without a relay.
    after_relay: Addresses,
}

/// The side of the node on which a flow was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
    /// The addresses are the same on both sides.
    Both,
}

impl Join {
    /// Returns an empty join. `relayed` states whether packets pass a node.
    pub(crate) fn new(relayed: bool) -> Self {
        Self { relayed, ..Self::default() }
    }

    /// Attributes the waiting time in queueing disciplines to the links instead of the machines.
    pub(crate) fn count_queues_as_links(&mut self) {
        self.queue_is_link = true;
    }

    /// Corrects the delays between machines by the relations of their clocks. By default, all
    /// machines have one clock. If the packets contradict a relation, leaves out all delays between
    /// different clocks and returns false: a wrong clock makes one direction too short and the other
    /// too long.
    pub(crate) fn correct_clocks(&mut self, clocks: LegClocks) -> bool {
        self.clocks = clocks;
        let endpoints = self.link_endpoints();
        let permitted = self.packets.iter().all(|packet| {
            Leg::ALL.into_iter().all(|leg| {
                let delay = self.clocks.delay(leg, &packet.path, &endpoints);
                delay.is_none_or(|delay| self.clocks.permits(leg, delay))
            })
        });
        if !permitted {
            self.clocks.forget_bounded();
        }
        permitted
    }

    /// Returns the bounds of the delays between machines with different clocks.
    pub(crate) fn clock_errors(&self) -> Vec<(Leg, Nanos)> {
        if self.void { Vec::new() } else { self.clocks.errors().collect() }
    }

    /// Records that a clock was stepped. The clock pairings at the ends of the trial do not show
    /// when, so all its delays are invalid.
    pub(crate) fn invalidate_delays(&mut self) {
        self.void = true;
    }

    /// Returns the number of packets with invalid delays.
    pub(crate) fn void(&self) -> u64 {
        if self.void { self.packets.len() as u64 } else { 0 }
    }

    /// Adds the sender's segment. Must be called first.
    pub(crate) fn add_sender(&mut self, from: &mut dyn Read) -> Result<SegmentEnd, SegmentError> {
        let mut flows = HashMap::new();
        segment::read(from, &mut |record| match record {
            Record::Flow(entry) => {
                flows.insert(entry.flow, self.routes.len());
                let sent = entry.out();
                self.routes.push(Route { sent, after_relay: sent });
            }
            Record::PacketObservation(observation) => {
                let Some(&flow) = flows.get(&observation.flow) else { return };
                if self.packets.len() == MAX_PACKETS {
                    self.counts.left_out += 1;
                    return;
                }
                let (id, size) = (observation.id, observation.size);
                let Entry::Vacant(new) = self.index.entry((flow, id)) else {
                    self.counts.repeated += 1;
                    return;
                };
                new.insert(self.packets.len());
                let path = OneWayPath { sender: observation.stamps, ..OneWayPath::default() };
                self.packets.push(Packet { id, size, path, received: false, reordered: false });
            }
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
    }

    /// Adds a relay's segment. Must be called before traces and the receiver, which need the
    /// outgoing addresses of flows.
    pub(crate) fn add_relay(&mut self, from: &mut dyn Read) -> Result<SegmentEnd, SegmentError> {
        let mut flows = HashMap::new();
        segment::read(from, &mut |record| match record {
            Record::Flow(entry) => {
                let known = self
                    .routes
                    .iter()
                    .position(|route| is_same_flow(route.sent, incoming_addresses(entry)));
                if let Some(flow) = known {
                    flows.insert(entry.flow, flow);
                    self.routes[flow].after_relay = entry.out();
                }
            }
            Record::PacketObservation(observation) => {
                match self.packet(flows.get(&observation.flow), observation) {
                    Some(packet) => packet.path.node.merge(&observation.stamps),
                    None => self.counts.unmatched[0] += 1,
                }
            }
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
    }

    /// Adds the segment of a trace at this machine.
    pub(crate) fn add_trace(
        &mut self,
        at: Machine,
        from: &mut dyn Read,
    ) -> Result<SegmentEnd, SegmentError> {
        let mut flows: HashMap<u32, (usize, Side)> = HashMap::new();
        segment::read(from, &mut |record| match record {
            Record::Flow(entry) => {
                let seen = incoming_addresses(entry);
                let sides = self.routes.iter().map(|route| route.side(seen));
                if let Some((flow, Some(side))) = sides.enumerate().find(|(_, side)| side.is_some())
                {
                    flows.insert(entry.flow, (flow, side));
                }
            }
            Record::PacketObservation(observation) => {
                let Some(&(flow, side)) = flows.get(&observation.flow) else {
                    self.counts.unmatched[1] += 1;
                    return;
                };
                let stamps = observation.stamps.iter().filter(|(point, _)| match (at, side) {
                    // Stamps that do not belong to this side of the node are dropped.
                    (Machine::Node, Side::Before) => *point <= Point::PreRouting,
                    (Machine::Node, Side::After) => *point >= Point::PostRouting,
                    (Machine::Node, Side::Both) => true,
                    (Machine::Sender, side) => side != Side::After && *point >= Point::PostRouting,
                    (Machine::Receiver, side) => {
                        side != Side::Before && *point <= Point::PreRouting
                    }
                });
                let mut fitting = PointStamps::default();
                stamps.for_each(|(point, stamp)| fitting.set(point, stamp));
                match self.packet(Some(&flow), observation) {
                    Some(packet) => packet.path.at_mut(at).merge(&fitting),
                    None => self.counts.unmatched[1] += 1,
                }
            }
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
    }

    /// Adds the receiver's segment, whose observations are in arrival order.
    pub(crate) fn add_receiver(&mut self, from: &mut dyn Read) -> Result<SegmentEnd, SegmentError> {
        let mut flows = HashMap::new();
        // The last sent packet of each flow that has arrived, by index.
        let mut latest: HashMap<usize, usize> = HashMap::new();
        segment::read(from, &mut |record| match record {
            Record::Flow(entry) => {
                let after_relay = self
                    .routes
                    .iter()
                    .position(|r| is_same_flow(r.after_relay, incoming_addresses(entry)));
                flows.extend(after_relay.map(|flow| (entry.flow, flow)));
            }
            Record::PacketObservation(observation) => {
                let known = flows.get(&observation.flow).copied();
                let at = known.and_then(|flow| self.index.get(&(flow, observation.id)).copied());
                let (Some(flow), Some(at)) = (known, at) else {
                    self.counts.unmatched[2] += 1;
                    return;
                };
                let packet = &mut self.packets[at];
                if packet.received {
                    self.counts.duplicate += 1;
                    return;
                }
                let latest = latest.entry(flow).or_insert(at);
                packet.received = true;
                packet.reordered = at < *latest;
                packet.path.receiver.merge(&observation.stamps);
                *latest = at.max(*latest);
            }
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
    }

    /// Removes the warm-up packets.
    pub(crate) fn without_first(mut self, warm_up: usize) -> Self {
        self.packets.drain(..warm_up.min(self.packets.len()));
        self.index.clear();
        self
    }

    /// Returns the numbers of packets sent and received.
    #[cfg(test)]
    fn sent_and_received(&self) -> (u64, u64) {
        let received = self.packets.iter().filter(|packet| packet.received).count();
        (self.packets.len() as u64, received as u64)
    }

    /// Returns the stamps at which links begin and end.
    pub(crate) fn link_endpoints(&self) -> LinkEndpoints {
        let paths = self.packets.iter().map(|packet| &packet.path);
        let endpoints = if self.queue_is_link {
            LinkEndpoints::with_queue_as_link(paths)
        } else {
            LinkEndpoints::of(paths)
        };
        if self.relayed { endpoints.through_a_node() } else { endpoints }
    }

    /// Returns the number of received packets that lack a stamp which others have, by machine and
    /// point.
    pub(crate) fn missing(&self) -> Vec<(Machine, Point, u64)> {
        let received = || self.packets.iter().filter(|packet| packet.received);
        let all = received().count() as u64;
        let mut missing = Vec::new();
        for machine in Machine::ALL {
            for point in Point::ALL {
                let has = |packet: &&Packet| packet.path.at(machine).get(point).is_some();
                let stamped = received().filter(has).count() as u64;
                if (1..all).contains(&stamped) {
                    missing.push((machine, point, all - stamped));
                }
            }
        }
        missing
    }

    /// Returns the received payload rate in bits per second; `None` with fewer than two packets or
    /// after a clock step.
    pub(crate) fn throughput(&self) -> Option<f64> {
        if self.void {
            return None;
        }
        let arrived = |packet: &Packet| packet.path.receiver.get(Point::RxApp);
        let times = || self.packets.iter().filter_map(arrived).map(Instant::as_nanos);
        let (first, last) = (times().min()?, times().max()?);
        // The first packet arrived before the measured time began.
        let bytes: u64 = self
            .packets
            .iter()
            .filter(|packet| arrived(packet).is_some_and(|at| at.as_nanos() > first))
            .map(|packet| u64::from(packet.size))
            .sum();
        (last > first).then(|| bytes as f64 * 8e9 / (last - first) as f64)
    }

    /// Returns the rows, in sending order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Batch> + '_ {
        let endpoints = self.link_endpoints();
        self.packets.chunks(BATCH_ROWS).map(move |packets| {
            let mut batch = Batch::default();
            packets.iter().for_each(|packet| packet.append(&mut batch, &endpoints, self));
            batch
        })
    }

    fn packet(
        &mut self,
        flow: Option<&usize>,
        observation: &PacketObservation,
    ) -> Option<&mut Packet> {
        let at = *self.index.get(&(*flow?, observation.id))?;
        self.packets.get_mut(at)
    }
}

impl Packet {
    fn append(&self, batch: &mut Batch, endpoints: &LinkEndpoints, join: &Join) {
        batch.push(self.id, if self.received { State::Received } else { State::Lost });
        let last = batch.len() - 1;
        (batch.reordered[last], batch.void[last]) = (self.reordered, join.void);
        batch.set(Column::SizeBytes, self.size.into());
        let stamps = [
            (Column::TxApp, self.path.sender.get(Point::TxApp)),
            (Column::TxSched, self.path.sender.get(Point::TxSched)),
            (Column::TxKernel, self.path.sender.get(Point::TxKernel)),
            (Column::RxKernel, self.path.receiver.get(Point::RxKernel)),
            (Column::RxApp, self.path.receiver.get(Point::RxApp)),
        ];
        for (column, stamp) in stamps {
            if let Some(stamp) = stamp {
                batch.set(column, stamp.as_nanos());
            }
        }
        for (point, stamp) in self.path.node.iter() {
            batch.set(Column::of_node(point), stamp.as_nanos());
        }
        if join.void {
            return;
        }
        let legs = Leg::ALL.map(|leg| (leg.name(), join.clocks.delay(leg, &self.path, endpoints)));
        let components = DelayComponent::ALL.map(|component| {
            let delay = endpoints.delay_in(component, &self.path.node);
            (component.name(), delay.filter(|_| join.clocks.has_node_delays()))
        });
        for (name, delay) in legs.into_iter().chain(components) {
            if let (Some(column), Some(delay)) = (Column::named(name), delay) {
                batch.set(column, delay.0);
            }
        }
    }
}

impl Route {
    /// Returns the side of the node on which these are this flow's addresses.
    fn side(&self, seen: Addresses) -> Option<Side> {
        match (is_same_flow(self.sent, seen), is_same_flow(self.after_relay, seen)) {
            (true, true) => Some(Side::Both),
            (true, false) => Some(Side::Before),
            (false, true) => Some(Side::After),
            (false, false) => None,
        }
    }
}

fn incoming_addresses(entry: &FlowEntry) -> Addresses {
    (entry.from, entry.to)
}

/// Whether two machines saw the same flow. An unspecified address matches any: a socket bound to it
/// does not record the address at which a packet arrived.
fn is_same_flow(a: Addresses, b: Addresses) -> bool {
    let same = |a: SocketAddr, b: SocketAddr| {
        let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
        let anywhere = |ip: IpAddr| ip.is_unspecified();
        a.port() == b.port() && (ip == other || anywhere(ip) || anywhere(other))
    };
    same(a.0, b.0) && same(a.1, b.1)
}

#[cfg(test)]
mod attribution;
#[cfg(test)]
mod tests;
