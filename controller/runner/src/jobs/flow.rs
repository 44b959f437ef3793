//! Jobs of one-way flows: a sender, a receiver, and a relay and traces between them, all of which
//! keep samples.

use dwell_fleet::Nodes;
use dwell_plan::{FlowPlan, Plan};
use dwell_protocol::{
    FlowParameters, Job, RelayJob, RelayMode, RelayParameters, SinkJob, TraceJob, TrafficHeader,
    TrafficJob,
};
use dwell_store::Role;
use dwell_units::{Nanos, Rate};

use super::{Loads, Peer, PlannedJob, TrialJobs, any_address, loads, place};

/// Values unknown if the trace on a node is refused where the kernel routes.
const UNKNOWN_WITHOUT_ROUTER_TRACE: &str =
    "therefore unknown: the delays of the node and of its links";

/// Values unknown if the trace on a node is refused where a program relays.
const UNKNOWN_WITHOUT_RELAY_TRACE: &str = "therefore unknown: the delay between the kernel's hooks (pre_routing to \
                                post_routing, rx_driver to tx_tcx); socket timestamps are not affected";

pub(super) fn jobs(plan: &Plan, flow: &FlowPlan, nodes: &Nodes) -> TrialJobs {
    let port = flow.port;
    let listen = format!("udp://{}:{port}", any_address(flow.ipv6));
    let kept = |node: &str, job: Job| PlannedJob {
        node: node.to_owned(),
        job,
        role: Role::Server,
        samples: true,
        without: None,
        peer: None,
    };
    let receiving = Peer::of(&flow.to, nodes, flow.ipv6);
    let receiver = SinkJob {
        urls: vec![listen.clone()],
        stamps: flow.parameters.stamps,
        clock_error: clock_error(nodes, flow),
        place: place(plan, &flow.to, flow.busy_poll),
        ..SinkJob::default()
    };
    let mut sinks = vec![kept(&flow.to, Job::Sink(receiver))];
    let program = flow.relay.as_ref().and_then(|relay| Some((relay, relay.mode.program()?)));
    if let Some((relay, mode)) = program {
        let job = RelayJob {
            mode,
            parameters: RelayParameters { clear: Some(relay.clear()), ..relay.parameters },
            key: relay.key.clone(),
            id: flow.id_format(),
            place: place(plan, &relay.on, relay.busy_poll),
            ..RelayJob::translate(listen, format!("udp://{}:{port}", receiving.url_host()))
        };
        let relay = kept(&relay.on, Job::Relay(Box::new(job)));
        sinks.push(PlannedJob { peer: Some(receiving.clone()), ..relay });
    }
    let traced = flow.traced();
    let without =
        if program.is_some() { UNKNOWN_WITHOUT_RELAY_TRACE } else { UNKNOWN_WITHOUT_ROUTER_TRACE };
    let traces = traced.on.iter().map(|node| {
        let job = TraceJob {
            flow: format!("udp port {port}"),
            id: flow.id_format(),
            hooks: traced.hooks.clone(),
            interfaces: Vec::new(),
            duration: None,
        };
        PlannedJob { without: Some(without), ..kept(node, Job::Trace(job)) }
    });
    sinks.extend(traces);
    let Loads { sinks: more, loads } = loads(plan, nodes, flow.ipv6);
    sinks.extend(more);
    let to = program.map_or(receiving, |(relay, _)| Peer::of(&relay.on, nodes, flow.ipv6));
    let sender = TrafficJob {
        url: format!("udp://{}:{port}", to.url_host()),
        flows: 1,
        rate: Rate::Packets(flow.packet_rate()),
        distribution: "constant".into(),
        parameters: FlowParameters {
            size: Some(flow.size()),
            header: Some(flow.header()),
            // The last packet of an iperf2 flow marks its end and is not a sample.
            count: flow.parameters.count.map(|count| {
                let end = u64::from(flow.header() == TrafficHeader::Iperf);
                count.saturating_add(flow.warm_up.into()).saturating_add(end)
            }),
            ..flow.parameters
        },
        seed: 1,
        ipv4: !flow.ipv6,
        ipv6: flow.ipv6,
        // A relay that decrypts the reverse direction would garble the receiver's report, which is
        // not encrypted.
        unreported: program.is_some_and(|(_, mode)| mode != RelayMode::Translate),
        place: place(plan, &flow.from, flow.busy_poll),
    };
    TrialJobs {
        standing: Vec::new(),
        sinks,
        loads,
        measurement: PlannedJob {
            role: Role::Measurement,
            peer: Some(to),
            ..kept(&flow.from, Job::Traffic(sender))
        },
        settle: flow.settle,
    }
}

/// Returns the maximum difference between the clocks of sender and receiver; `None` if unknown. The
/// receiver does not correct a known offset.
fn clock_error(nodes: &Nodes, flow: &FlowPlan) -> Option<Nanos> {
    let relation = nodes.clock_relation(&flow.from, &flow.to)?;
    Some(relation.error.saturating_add(relation.offset.abs()))
}

#[cfg(test)]
mod tests {
    use dwell_fleet::ClockDomain;
    use dwell_plan::Source;

    use super::super::jobs;
    use super::*;

    fn needed(mode: &str) -> TrialJobs {
        let text = format!(
            "version = 1\nname = \"x\"\nload = \"busy\"\ntopology = {{ lab = \"line:3\" }}\n\
             [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"500B\"\nrate = \"4Mbit/s\"\ncount = 10\n\
             [relay]\non = \"n2\"\nmode = \"{mode}\"\n[loads.busy]\n\
             cpu = [{{ on = \"n2\", level = \"50%\" }}]\n"
        );
        jobs(&Plan::read(&Source::parse(&text).unwrap()).unwrap(), &Nodes::default())
    }

    fn sender_url(trial: &TrialJobs) -> &str {
        let Job::Traffic(sender) = &trial.measurement.job else { panic!("expected a sender") };
        &sender.url
    }

    #[test]
    fn relayed_flow_jobs_are_chained_and_keep_samples() {
        let needed = needed("encrypt");
        let names: Vec<_> =
            needed.sinks.iter().map(|one| (one.node.as_str(), one.job.name())).collect();
        assert_eq!(names, [("n3", "load sink"), ("n2", "relay"), ("n2", "trace")]);
        assert!(needed.sinks.iter().chain([&needed.measurement]).all(|one| one.samples));
        let Job::Relay(relay) = &needed.sinks[1].job else { panic!("expected a relay") };
        assert_eq!((relay.to.as_str(), relay.mode), ("udp://n3:5001", RelayMode::Encrypt));
        assert_eq!(sender_url(&needed), "udp://n2:5001");
        assert_eq!((needed.loads.len(), needed.loads[0].samples), (1, false));
        let Job::Traffic(sender) = &needed.measurement.job else { panic!("expected a sender") };
        assert_eq!((sender.rate.to_string(), sender.parameters.count), ("1kpps".into(), Some(16)));
        assert!(needed.measurement.job.is_finite());
        assert!(sender.unreported, "the relay would garble the report");
    }

    #[test]
    fn receiver_measures_delays_only_between_related_clocks() {
        let plan = "version = 1\nname = \"x\"\ntopology = { lab = \"line:2\" }\n\
                    [flow]\nfrom = \"n1\"\nto = \"n2\"\nsize = \"500B\"\nrate = \"4Mbit/s\"\ncount = 10\n";
        let plan = Plan::read(&Source::parse(plan).unwrap()).unwrap();
        let devices = Nodes::default();
        let lab = devices.clone().with_common_clock(ClockDomain::controller());
        for (nodes, error) in [(lab, Some(Nanos::ZERO)), (devices, None)] {
            let needed = jobs(&plan, &nodes);
            let Job::Sink(sink) = &needed.sinks[0].job else { panic!("expected a sink") };
            assert_eq!(sink.clock_error, error);
        }
    }

    #[test]
    fn routed_flow_has_no_relay_and_an_optional_trace() {
        let needed = needed("route");
        let names: Vec<_> = needed.sinks.iter().map(|one| one.job.name()).collect();
        assert_eq!(
            (names.as_slice(), sender_url(&needed)),
            (&["load sink", "trace"][..], "udp://n3:5001")
        );
        assert_eq!(
            [needed.sinks[0].without, needed.sinks[1].without],
            [None, Some(UNKNOWN_WITHOUT_ROUTER_TRACE)]
        );
        let Job::Traffic(sender) = &needed.measurement.job else { panic!("expected a sender") };
        assert!(!sender.unreported, "the receiver's report is not altered");
    }
}
