//! Joins the segments of the three machines of a round by packet.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use dwell_record::segment::{FlowEntry, Record, read};
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_stats::{Leg, LinkEndpoints, OneWayPath, PathComponent};
use serde_json::Value;

/// First packets of a round, left out: caches are cold, and timestamps are being enabled.
const WARM_UP: u64 = 20;

/// Addresses of a flow on the wire.
type Ends = (SocketAddr, SocketAddr);

/// Segment of one machine.
pub(crate) struct MachineSegment {
    flows: Vec<FlowEntry>,
    pub(crate) observations: Vec<PacketObservation>,
}

impl MachineSegment {
    pub(crate) fn read(segment: &Path) -> Self {
        let (mut flows, mut observations) = (Vec::new(), Vec::new());
        read(&mut fs::File::open(segment).unwrap(), &mut |record| match record {
            Record::Flow(flow) => flows.push(flow.clone()),
            Record::PacketObservation(observation) => observations.push(*observation),
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
        .unwrap();
        Self { flows, observations }
    }

    /// Returns timestamps by packet id and flow, as addressed by `ends`.
    fn stamps_by(&self, ends: impl Fn(&FlowEntry) -> Ends) -> HashMap<(Ends, u64), PointStamps> {
        let names: HashMap<u32, Ends> = self.flows.iter().map(|f| (f.flow, ends(f))).collect();
        let present = self
            .observations
            .iter()
            .filter(|observation| observation.outcome != PacketOutcome::Dropped);
        present
            .map(|observation| ((names[&observation.flow], observation.id), observation.stamps))
            .collect()
    }

    /// Compares the machine's count of missing timestamps with its segment.
    pub(crate) fn assert_missing_stamps_are_counted(&self, summary: &Value) {
        for point in Point::ALL {
            let Some(counted) = summary["values"][format!("missing_{}", point.name())].as_u64()
            else {
                continue;
            };
            let missing =
                self.observations.iter().filter(|p| p.stamps.get(point).is_none()).count();
            assert_eq!(counted, missing as u64, "{} {summary}", point.name());
        }
    }
}

/// Duration of one component in a round, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComponentTime {
    pub(crate) median: i64,
    /// First decile. A host that takes the processors away lengthens most packets and the median,
    /// but not the decile; delay common to all packets lengthens both. Delay of only some packets
    /// shows in the medians of `make accuracy`.
    pub(crate) decile: i64,
}

/// Packets of a round.
pub(crate) struct Round {
    pub(crate) ways: Vec<OneWayPath>,
    endpoints: LinkEndpoints,
}

impl Round {
    /// Joins packets by flow and id, following the flow tables.
    pub(crate) fn join(
        sender: &MachineSegment,
        node: &MachineSegment,
        receiver: &MachineSegment,
    ) -> Self {
        let stamps_of_node = node.stamps_by(|flow| (flow.from, flow.to));
        let on: BTreeMap<Ends, Ends> =
            node.flows.iter().map(|flow| ((flow.from, flow.to), flow.out())).collect();
        let received = receiver.stamps_by(|flow| (flow.from, flow.to));
        let sent = sender.stamps_by(|flow| (flow.from, flow.to));
        let ways =
            sent.into_iter().filter(|((_, id), _)| *id > WARM_UP).map(|((ends, id), sender)| {
                let node = stamps_of_node.get(&(ends, id)).copied().unwrap_or_default();
                let receiver = on.get(&ends).and_then(|on| received.get(&(*on, id)).copied());
                OneWayPath { sender, node, receiver: receiver.unwrap_or_default() }
            });
        let ways: Vec<OneWayPath> = ways.collect();
        let endpoints = LinkEndpoints::of(&ways);
        let some_joined = ways.iter().any(|path| path.node != PointStamps::default());
        assert!(some_joined, "{:?} {:?} {:?}", sender.flows, node.flows, receiver.flows);
        let round = Self { ways, endpoints };
        round.assert_components_sum_to_the_total();
        round
    }

    /// Checks the sum for every packet with all timestamps; few may be incomplete.
    fn assert_components_sum_to_the_total(&self) {
        let components = self.endpoints.sum();
        let mut incomplete = 0;
        for path in &self.ways {
            let times: Option<Vec<i64>> = components
                .iter()
                .map(|component| component.of(path, &self.endpoints).map(|ns| ns.0))
                .collect();
            match times {
                Some(times) => {
                    let total = Leg::EndToEnd.of(path, &self.endpoints).unwrap();
                    assert_eq!(times.iter().sum::<i64>(), total.0, "{path:?}");
                }
                None => incomplete += 1,
            }
        }
        let all = self.ways.len();
        let absent = |component: &PathComponent| {
            let absent =
                self.ways.iter().filter(|path| component.of(path, &self.endpoints).is_none());
            (component.name(), absent.count())
        };
        assert!(
            all >= 50 && incomplete * 10 <= all,
            "{incomplete} of {all} lack a timestamp: {:?}",
            components.iter().map(absent).collect::<Vec<_>>()
        );
    }

    /// Formats the medians of all components in packet order, in microseconds.
    pub(crate) fn line(&self) -> String {
        self.endpoints
            .sum()
            .iter()
            .map(|s| format!("{:>9.2}", self.component_time(*s).median as f64 / 1e3))
            .collect()
    }

    /// Returns the duration of a component.
    pub(crate) fn component_time(&self, component: PathComponent) -> ComponentTime {
        let mut delays: Vec<i64> = self
            .ways
            .iter()
            .filter_map(|path| component.of(path, &self.endpoints))
            .map(|ns| ns.0)
            .collect();
        delays.sort_unstable();
        ComponentTime { median: delays[delays.len() / 2], decile: delays[delays.len() / 10] }
    }
}
