//! Which jobs a trial needs, on which nodes.

use dwell_plan::{
    CpuJob, Job, PingJob, Place, Plan, ReflectJob, SinkJob, Stamps, TrafficHeader, TrafficJob,
};
use dwell_store::Role;
use dwell_units::Nanos;

/// Where reflectors listen whose protocol has no port of its own.
const PORT: u16 = 7_100;

/// Where sinks of traffic listen.
const SINK_PORT: u16 = 5_001;

/// A job of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The node.
    pub node: String,
    /// What it does.
    pub job: Job,
    /// Whose summary it leaves.
    pub role: Role,
}

/// The jobs of a trial, in the order in which they begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Servers {
    /// Reflectors, which may go on from trial to trial.
    pub standing: Vec<Planned>,
    /// Sinks, which count for this trial only.
    pub sinks: Vec<Planned>,
    /// Loads.
    pub loads: Vec<Planned>,
    /// The measurement.
    pub measurement: Planned,
}

/// The jobs that a trial of this plan needs.
pub fn jobs(plan: &Plan) -> Servers {
    let ping = &plan.ping;
    let place = |node: &str, busy_poll: bool| Place {
        cpu: plan.nodes.get(node).and_then(|place| place.cpu),
        busy_poll,
        ..Place::default()
    };
    let (name, port) = (&ping.protocol, port(plan));
    let url = |host: &str| match port {
        Some(port) => format!("{name}://{host}:{port}"),
        None => format!("{name}://{host}"),
    };
    let everywhere = if ping.ipv6 { "[::]" } else { "0.0.0.0" };
    let reflector = Planned {
        node: ping.to.clone(),
        job: Job::Reflect(ReflectJob {
            urls: vec![url(everywhere)],
            stateless: plan.reflect.stateless,
            stamps: plan.reflect.stamps,
            limit: plan.reflect.limit,
            place: place(&ping.to, plan.reflect.busy_poll),
            ..ReflectJob::default()
        }),
        role: Role::Server,
    };
    let load = plan.load();
    let mut receivers: Vec<&String> = load.traffic.iter().map(|traffic| &traffic.to).collect();
    receivers.sort();
    receivers.dedup();
    let sinks = receivers.into_iter().map(|node| Planned {
        node: node.clone(),
        job: Job::Sink(SinkJob {
            urls: vec![format!("udp://{everywhere}:{SINK_PORT}")],
            ..SinkJob::default()
        }),
        role: Role::Server,
    });
    let burners = load.cpu.iter().map(|cpu| Planned {
        node: cpu.on.clone(),
        job: Job::Cpu(CpuJob { level: cpu.level, cpus: cpu.cpus.clone(), duration: None }),
        role: Role::Load,
    });
    let sources = load.traffic.iter().map(|traffic| Planned {
        node: traffic.from.clone(),
        job: Job::Traffic(TrafficJob {
            url: format!("udp://{}:{SINK_PORT}", traffic.to),
            flows: traffic.flows,
            rate: traffic.rate,
            distribution: traffic.distribution.clone(),
            size: traffic.size,
            seed: traffic.seed,
            duration: None,
            count: None,
            ipv4: !ping.ipv6,
            ipv6: ping.ipv6,
            header: TrafficHeader::default(),
            stamps: Stamps::default(),
            place: place(&traffic.from, false),
        }),
        role: Role::Load,
    });
    let probe = PingJob {
        count: ping.count,
        deadline: ping.duration,
        interval: plan.interval(),
        closed_loop: ping.closed_loop,
        pause: ping.pause,
        size: ping.size.map(|size| size.0),
        timeout: ping.timeout,
        warm_up: ping.warm_up,
        stamps: ping.stamps,
        sched_stamps: ping.sched_stamps,
        place: Place { scheduling: ping.scheduling, ..place(&ping.from, ping.busy_poll) },
        icmp_socket: ping.icmp_socket,
        pattern: ping.pattern,
        ipv4: !ping.ipv6,
        ipv6: ping.ipv6,
        ttl: ping.ttl,
        dscp: ping.dscp,
        ..PingJob::to(url(&ping.to))
    };
    Servers {
        // The kernel answers ICMP by itself.
        standing: if name == "icmp" { Vec::new() } else { vec![reflector] },
        sinks: sinks.collect(),
        loads: burners.chain(sources).collect(),
        measurement: Planned {
            node: ping.from.clone(),
            job: Job::Ping(Box::new(probe)),
            role: Role::Measurement,
        },
    }
}

fn port(plan: &Plan) -> Option<u16> {
    match plan.ping.protocol.as_str() {
        "icmp" => None,
        "stamp" => Some(plan.ping.port.unwrap_or(862)),
        _ => Some(plan.ping.port.unwrap_or(PORT)),
    }
}

/// How long a trial may take before it has failed.
pub(crate) fn time_limit(plan: &Plan) -> Nanos {
    const SPARE: Nanos = Nanos::from_secs(30);
    let estimate = dwell_plan::Estimate::of(plan);
    plan.trials.time_limit.unwrap_or_else(|| {
        // A closed loop without an end in time is bound by its time-outs at worst.
        let count = i64::try_from(plan.ping.count.unwrap_or(0)).unwrap_or(i64::MAX);
        let longest = if estimate.at_least {
            Nanos(plan.ping.timeout.0.saturating_mul(count))
        } else {
            Nanos(estimate.time.0.saturating_mul(3))
        };
        Nanos(longest.0.saturating_add(SPARE.0).saturating_add(plan.ping.timeout.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_plan::Source;

    #[test]
    fn a_trial_has_a_reflector_its_loads_and_a_sink_where_traffic_goes() {
        let text = "version = 1\nname = \"x\"\nload = \"both\"\ntopology = { lab = \"line:2\" }\n\
                    [nodes.n2]\ncpu = 1\n[ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"roundtrip\"\n\
                    closed_loop = true\ncount = 10\n[loads.both]\n\
                    cpu = [{ on = \"n1\", level = \"50%\" }]\n\
                    traffic = [{ from = \"n1\", to = \"n2\", rate = \"1Mbit/s\" },\
                    { from = \"n2\", to = \"n1\", rate = \"1Mbit/s\" }]\n";
        let plan = Plan::read(&Source::parse(text).unwrap()).unwrap();
        let needed = jobs(&plan);
        let Job::Reflect(reflect) = &needed.standing[0].job else { panic!("a reflector") };
        assert_eq!(reflect.urls, ["roundtrip://0.0.0.0:7100"]);
        assert_eq!(reflect.place.cpu, Some(1));
        assert_eq!(needed.sinks.len(), 2);
        assert_eq!(needed.loads.len(), 3);
        let Job::Ping(ping) = &needed.measurement.job else { panic!("a ping") };
        assert_eq!((ping.target.as_str(), ping.ipv4), ("roundtrip://n2:7100", true));
        let icmp = Plan::read(&Source::parse(&text.replace("roundtrip", "icmp")).unwrap()).unwrap();
        assert!(jobs(&icmp).standing.is_empty());
    }
}
