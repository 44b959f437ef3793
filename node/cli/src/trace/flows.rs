//! Flows seen by a trace, and the ids of their packets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use dwell_engine::join::PointStamp;
use dwell_io::bpf::Event;
use dwell_protocol::IdFormat;
use dwell_record::segment::FlowEntry;
use dwell_sample::Point;

use super::id::Id;

/// Maximum number of flows; events of further flows are only counted.
const MAX_FLOWS: usize = 4_096;

/// A flow in one direction.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) entry: FlowEntry,
    pub(super) id: Id,
    /// Packets seen.
    pub(super) packets: u64,
    /// Whether the flow was reported, with its first packet that has an id.
    announced: bool,
    /// Events per point; they number packets without an id.
    order: [u64; Point::ALL.len()],
}

/// All flows by their addresses.
#[derive(Debug)]
pub(super) struct Flows {
    requested: IdFormat,
    numbers: HashMap<(SocketAddr, SocketAddr), u32>,
    flows: Vec<Flow>,
    /// Events of flows beyond the maximum.
    pub(super) refused: u64,
    /// Events of packets too short to contain an id.
    pub(super) missing_id: u64,
}

impl Flows {
    pub(super) fn new(requested: IdFormat) -> Self {
        Self { requested, numbers: HashMap::new(), flows: Vec::new(), refused: 0, missing_id: 0 }
    }

    /// Returns the timestamp of an event, and its flow if this is the flow's first timestamp.
    pub(super) fn stamp(&mut self, event: &Event) -> Option<(PointStamp, Option<&Flow>)> {
        let number = match self.numbers.entry((event.from, event.to)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(_) if self.flows.len() >= MAX_FLOWS => {
                self.refused += 1;
                return None;
            }
            Entry::Vacant(entry) => *entry.insert(self.flows.len() as u32),
        };
        if number as usize == self.flows.len() {
            self.flows.push(Flow {
                entry: FlowEntry {
                    flow: number,
                    protocol: event.protocol.name().to_owned(),
                    from: event.from,
                    to: event.to,
                    from_out: None,
                    to_out: None,
                },
                id: Id::of(self.requested, event),
                packets: 0,
                announced: false,
                order: Default::default(),
            });
        }
        let flow = &mut self.flows[number as usize];
        let order = &mut flow.order[event.point as usize];
        let id = match flow.id {
            Id::Order => Some(*order),
            carried => carried.read(event),
        };
        *order += 1;
        let Some(id) = id else {
            self.missing_id += 1;
            return None;
        };
        let stamp =
            PointStamp { flow: number, id, size: event.size, point: event.point, at: event.at };
        let is_new = !std::mem::replace(&mut flow.announced, true);
        Some((stamp, is_new.then_some(&*flow)))
    }

    /// Counts a packet.
    pub(super) fn count(&mut self, flow: u32) {
        if let Some(flow) = self.flows.get_mut(flow as usize) {
            flow.packets += 1;
        }
    }

    /// Returns all flows in order of appearance.
    pub(super) fn all(&self) -> &[Flow] {
        &self.flows
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Instant;

    use super::*;

    #[test]
    fn flow_is_reported_with_first_packet_id() {
        let mut flows = Flows::new(IdFormat::Iperf);
        let ends = ("10.0.0.1:9".parse().unwrap(), "10.0.0.2:5001".parse().unwrap());
        let event = |head: &[u8]| {
            Event::udp(Point::PreRouting, Instant::from_nanos(0), ends, head.len() as u16, head)
        };
        assert!(flows.stamp(&event(b"abc")).is_none());
        assert_eq!(flows.missing_id, 1);
        let mut head = [0; 24];
        for (id, new) in [(1_u32, true), (2, false)] {
            head[..4].copy_from_slice(&id.to_be_bytes());
            let (stamp, flow) = flows.stamp(&event(&head)).unwrap();
            assert_eq!((stamp.id, stamp.flow), (id.into(), 0));
            assert_eq!(flow.is_some(), new, "packet {id}");
        }
    }
}
