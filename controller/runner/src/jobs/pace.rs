//! Jobs of paced packets: the sender under test, the sink that timestamps its packets, and cross
//! traffic from the same node.

use dwell_fleet::Nodes;
use dwell_plan::{PacePlan, Plan, Topology};
use dwell_protocol::{Job, PaceJob, PaceSinkJob, SinkTimestamps, ThreadPlacement};
use dwell_store::Role;
use dwell_units::Nanos;

use super::{Loads, Peer, PlannedJob, TrialJobs, any_address, loads, place};

pub(super) fn jobs(plan: &Plan, pace: &PacePlan, nodes: &Nodes) -> TrialJobs {
    let port = pace.port;
    let sink = PlannedJob {
        node: pace.to.clone(),
        job: Job::PaceSink(PaceSinkJob {
            url: format!("udp://{}:{port}", any_address(pace.ipv6)),
            place: place(plan, &pace.to, false),
        }),
        role: Role::Server,
        // It reports to the sender, whose samples include the sink's timestamps.
        samples: false,
        without: None,
        peer: None,
    };
    let peer = Peer::of(&pace.to, nodes, pace.ipv6);
    let Loads { sinks: counting, loads } = loads(plan, nodes, pace.ipv6);
    // The sink also runs when no timestamps are requested: otherwise packets would be refused.
    let mut sinks = if pace.sink == Some(false) { Vec::new() } else { vec![sink] };
    sinks.extend(counting);
    let sender = PaceJob {
        target: format!("udp://{}:{port}", peer.url_host()),
        parameters: pace.parameters.clone(),
        gaps: None,
        // No other program uses a lab node.
        switch_offloads: matches!(plan.topology, Topology::Lab(_))
            && pace.parameters.engine.capabilities().needs_segmentation_off,
        sink: match pace.sink {
            None => SinkTimestamps::Needed,
            Some(true) => SinkTimestamps::Always,
            Some(false) => SinkTimestamps::Never,
        },
        ipv4: !pace.ipv6,
        ipv6: pace.ipv6,
        place: ThreadPlacement { scheduling: pace.scheduling, ..place(plan, &pace.from, false) },
    };
    TrialJobs {
        standing: Vec::new(),
        sinks,
        loads,
        measurement: PlannedJob {
            node: pace.from.clone(),
            job: Job::Pace(Box::new(sender)),
            role: Role::Measurement,
            samples: true,
            without: None,
            peer: Some(peer),
        },
        // The sender queries the sink.
        settle: Nanos::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use dwell_plan::Source;
    use dwell_protocol::{PaceEngine, PaceParameters};
    use dwell_units::{BitRate, Bytes, Rate};

    use super::super::jobs;
    use super::*;

    const PLAN: &str = "version = 1\nname = \"x\"\ntopology = { lab = \"line:2\" }\n\
        [pace]\nfrom = \"n1\"\nto = \"n2\"\nframe_size = \"1514B\"\nrate = \"10Mbit/s\"\n\
        engine = \"xsk\"\n";

    fn needed(text: &str) -> TrialJobs {
        jobs(&Plan::read(&Source::parse(text).unwrap()).unwrap(), &Nodes::default())
    }

    #[test]
    fn paced_sender_gets_a_sink_and_counted_cross_traffic() {
        let needed = needed(&format!("{PLAN}[cross]\nflows = 15\n"));
        let names: Vec<_> =
            needed.sinks.iter().map(|one| (one.node.as_str(), one.job.name())).collect();
        assert_eq!(names, [("n2", "pace sink"), ("n2", "load sink")]);
        let Job::Pace(sender) = &needed.measurement.job else { panic!("expected a sender") };
        let parameters = PaceParameters {
            frame_size: Some(Bytes(1_514)),
            rate: Some(BitRate(10_000_000)),
            engine: PaceEngine::Xsk,
            ..PaceParameters::default()
        };
        assert_eq!((sender.target.as_str(), &sender.parameters), ("udp://n2:7102", &parameters));
        assert!(needed.measurement.samples && sender.sink == SinkTimestamps::Needed);
        let [cross] = needed.loads.as_slice() else { panic!("expected one source") };
        let Job::Traffic(traffic) = &cross.job else { panic!("expected traffic") };
        assert_eq!((cross.node.as_str(), cross.role, traffic.flows), ("n1", Role::Load, 15));
        assert_eq!(traffic.rate, Rate::Bits(BitRate(15_000_000)));
    }

    #[test]
    fn itg_cross_traffic_takes_its_parameters_from_the_plan() {
        let cross = "[cross]\nflows = 25\ngenerator = \"itg\"\nseed = 7\n";
        let needed = needed(&format!("{PLAN}{cross}"));
        let names: Vec<_> = needed.sinks.iter().map(|one| one.job.name()).collect();
        assert_eq!(names, ["pace sink", "load itg sink"]);
        let Job::Itg(itg) = &needed.loads[0].job else { panic!("expected ITGSend") };
        assert_eq!((itg.to.as_str(), itg.flows, itg.seed), ("n2", 25, 7));
        assert_eq!((itg.distribution.as_str(), itg.size), ("pareto(1.5)", Bytes(512)));
        assert_eq!(itg.rate, Rate::Bits(BitRate(25_000_000)));
        assert!(!needed.loads[0].job.is_finite());
    }

    #[test]
    fn plan_without_sink_and_flows_has_only_the_sender() {
        let needed = needed(&PLAN.replace("engine =", "sink = false\nengine ="));
        assert!(needed.sinks.is_empty() && needed.loads.is_empty());
        assert!(needed.measurement.job.is_finite());
    }
}
