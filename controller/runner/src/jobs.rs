//! Derives the jobs of a trial and their nodes from the plan.

mod flow;
mod pace;
mod peer;

use dwell_fleet::Nodes;
use dwell_plan::{Measurement, PingPlan, Plan, TrafficLoad, Transport};
use dwell_protocol::{
    BulkJob, CpuJob, FlowParameters, Generator, ItgJob, ItgSinkJob, Job, NodeSimJob, PingJob,
    PingParameters, ReflectJob, SinkJob, ThreadPlacement, TrafficJob,
};
use dwell_store::Role;
use dwell_units::{Nanos, Rate};

pub use peer::Peer;

/// Default port of reflectors whose protocol has no registered port.
const DEFAULT_REFLECTOR_PORT: u16 = 7_100;

/// Port of load sinks; differs from the receiver's port of a flow.
const SINK_PORT: u16 = 5_009;

/// A job for a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedJob {
    /// The node.
    pub node: String,
    /// The job.
    pub job: Job,
    /// Role of the summary it reports.
    pub role: Role,
    /// Whether its samples are kept and pulled.
    pub samples: bool,
    /// Values unknown without this job, if the trial can continue when the node cannot do it.
    pub without: Option<&'static str>,
    /// The node it sends to, if it sends.
    pub peer: Option<Peer>,
}

/// The jobs of a trial, in starting order.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialJobs {
    /// Reflectors, which may continue from trial to trial.
    pub standing: Vec<PlannedJob>,
    /// Sinks, relays, traces and reflectors in the driver, which run for this trial only.
    pub sinks: Vec<PlannedJob>,
    /// Loads.
    pub loads: Vec<PlannedJob>,
    /// The measurement.
    pub measurement: PlannedJob,
    /// Time to wait after the measurement for packets in flight.
    pub settle: Nanos,
}

/// Returns the jobs of a trial of this plan, on nodes with these addresses.
pub fn jobs(plan: &Plan, nodes: &Nodes) -> TrialJobs {
    match &plan.measurement {
        Measurement::Ping(ping) => ping_jobs(plan, ping, nodes),
        Measurement::Flow(flow) => flow::jobs(plan, flow, nodes),
        Measurement::Pace(pace) => pace::jobs(plan, pace, nodes),
    }
}

fn ping_jobs(plan: &Plan, ping: &PingPlan, nodes: &Nodes) -> TrialJobs {
    let (name, port) = (ping.protocol, port(ping));
    let url = |host: &str| match port {
        Some(port) => format!("{name}://{host}:{port}"),
        None => format!("{name}://{host}"),
    };
    let engine = plan.reflect.engine;
    let is_microcontroller = nodes.is_microcontroller(&ping.to);
    let in_driver = engine.is_in_driver() && !is_microcontroller;
    let urls = vec![url(any_address(ping.ipv6))];
    let answerer = match &plan.node_sim {
        Some(parameters) => Job::NodeSim(Box::new(NodeSimJob {
            urls,
            parameters: parameters.clone(),
            place: place(plan, &ping.to, false),
        })),
        None => Job::Reflect(ReflectJob {
            urls,
            stateless: plan.reflect.stateless,
            stamps: plan.reflect.stamps,
            limit: plan.reflect.limit,
            engine,
            prober: in_driver.then(|| Peer::of(&ping.from, nodes, ping.ipv6).host()),
            place: place(plan, &ping.to, plan.reflect.busy_poll),
            ..ReflectJob::default()
        }),
    };
    let reflector = PlannedJob {
        node: ping.to.clone(),
        job: answerer,
        role: Role::Server,
        samples: false,
        without: None,
        peer: None,
    };
    let Loads { mut sinks, loads } = loads(plan, nodes, ping.ipv6);
    let mut standing = Vec::new();
    let has_reflector = name.spec().has_reflector() && !is_microcontroller;
    let per_trial = in_driver || (name.spec().names_lags && has_reflector);
    match (per_trial, has_reflector) {
        // Each trial has the result of its own reflector, which names the mode of the driver, or the
        // lag of the server.
        (true, _) => sinks.insert(0, reflector),
        (false, true) => standing.push(reflector),
        // The kernel answers ICMP echo, and a microcontroller all protocols.
        (false, false) => {}
    }
    let peer = Peer::of(&ping.to, nodes, ping.ipv6);
    let probe = PingJob {
        parameters: PingParameters { interval: ping.interval(), ..ping.parameters.clone() },
        place: ThreadPlacement {
            scheduling: ping.scheduling,
            ..place(plan, &ping.from, ping.busy_poll)
        },
        ipv4: !ping.ipv6,
        ipv6: ping.ipv6,
        ..PingJob::to(url(&peer.url_host()))
    };
    TrialJobs {
        standing,
        sinks,
        loads,
        measurement: PlannedJob {
            node: ping.from.clone(),
            job: Job::Ping(Box::new(probe)),
            role: Role::Measurement,
            samples: true,
            without: None,
            peer: Some(peer),
        },
        // A ping job waits for its replies.
        settle: Nanos::ZERO,
    }
}

/// Jobs that run beside the measurement.
struct Loads {
    sinks: Vec<PlannedJob>,
    loads: Vec<PlannedJob>,
}

fn loads(plan: &Plan, nodes: &Nodes, ipv6: bool) -> Loads {
    let (load, traffic) = (plan.load(), plan.traffic());
    let mut receivers: Vec<(&String, bool, &str)> = traffic
        .iter()
        .map(|traffic| (&traffic.to, is_itg(traffic), scheme(traffic.protocol)))
        .collect();
    receivers.sort();
    receivers.dedup();
    let sinks = receivers.into_iter().map(|(node, itg, scheme)| PlannedJob {
        node: node.clone(),
        job: if itg {
            Job::ItgSink(ItgSinkJob {})
        } else {
            Job::Sink(SinkJob {
                urls: vec![format!("{scheme}://{}:{SINK_PORT}", any_address(ipv6))],
                ..SinkJob::default()
            })
        },
        role: Role::Server,
        samples: false,
        without: None,
        peer: None,
    });
    let burners = load.cpu.iter().map(|cpu| PlannedJob {
        node: cpu.on.clone(),
        job: Job::Cpu(CpuJob { level: cpu.level, cpus: cpu.cpus.clone(), duration: None }),
        role: Role::Load,
        samples: false,
        without: None,
        peer: None,
    });
    let sources = traffic.iter().map(|traffic| {
        let peer = Peer::of(&traffic.to, nodes, ipv6);
        PlannedJob {
            node: traffic.from.clone(),
            job: source(plan, traffic, &peer, ipv6),
            role: Role::Load,
            samples: false,
            without: None,
            peer: Some(peer),
        }
    });
    Loads { sinks: sinks.collect(), loads: burners.chain(sources).collect() }
}

fn is_itg(traffic: &TrafficLoad) -> bool {
    traffic.generator == Generator::Itg
}

const fn scheme(protocol: Transport) -> &'static str {
    match protocol {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    }
}

/// Returns the job that sends this traffic.
fn source(plan: &Plan, traffic: &TrafficLoad, peer: &Peer, ipv6: bool) -> Job {
    let TrafficLoad { flows, rate, seed, .. } = *traffic;
    let (size, place) = (traffic.payload(), place(plan, &traffic.from, false));
    // Plans with UDP traffic without a rate are rejected when they are read.
    let (Transport::Udp, Some(rate)) = (traffic.protocol, rate) else {
        return Job::Bulk(BulkJob {
            url: format!("tcp://{}:{SINK_PORT}", peer.url_host()),
            flows,
            rate: rate.and_then(|rate| match rate {
                Rate::Bits(rate) => Some(rate),
                Rate::Packets(_) => None,
            }),
            write_size: traffic.size,
            bytes: None,
            duration: None,
            ipv4: !ipv6,
            ipv6,
            place,
        });
    };
    let distribution = traffic.distribution.clone();
    if is_itg(traffic) {
        let to = peer.host();
        return Job::Itg(ItgJob { to, flows, rate, distribution, size, seed, ipv6 });
    }
    Job::Traffic(TrafficJob {
        url: format!("udp://{}:{SINK_PORT}", peer.url_host()),
        flows,
        rate,
        distribution,
        parameters: FlowParameters { size: Some(size), ..FlowParameters::default() },
        seed,
        ipv4: !ipv6,
        ipv6,
        unreported: false,
        place,
    })
}

fn place(plan: &Plan, node: &str, busy_poll: bool) -> ThreadPlacement {
    let cpu = plan.nodes.get(node).and_then(|place| place.cpu);
    ThreadPlacement { cpu, busy_poll, ..ThreadPlacement::default() }
}

const fn any_address(ipv6: bool) -> &'static str {
    if ipv6 { "[::]" } else { "0.0.0.0" }
}

fn port(ping: &PingPlan) -> Option<u16> {
    let spec = ping.protocol.spec();
    let default = spec.default_port.unwrap_or(DEFAULT_REFLECTOR_PORT);
    spec.transport.has_ports().then(|| ping.port.unwrap_or(default))
}

/// Returns the maximum duration of a trial.
pub(crate) fn time_limit(plan: &Plan) -> Nanos {
    const TIME_LIMIT_MARGIN: Nanos = Nanos::from_secs(30);
    let estimate = dwell_plan::Estimate::of(plan);
    let ping =
        plan.measurement.ping().map(|ping| (ping.parameters.count, ping.parameters.timeout()));
    let (count, timeout) = ping.unwrap_or((None, Nanos::ZERO));
    plan.trials.time_limit.unwrap_or_else(|| {
        // A closed loop without a duration ends at the latest after all its time-outs.
        let count = i64::try_from(count.unwrap_or(0)).unwrap_or(i64::MAX);
        let longest = if estimate.at_least {
            Nanos(timeout.0.saturating_mul(count))
        } else {
            Nanos(estimate.time.0.saturating_mul(3))
        };
        Nanos(longest.0.saturating_add(TIME_LIMIT_MARGIN.0).saturating_add(timeout.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_plan::Source;
    use dwell_protocol::ReflectEngine;

    #[test]
    fn tcp_load_has_its_own_sink_and_sends_without_a_rate() {
        let text = "version = 1\nname = \"x\"\nload = \"bulk\"\ntopology = { lab = \"line:2\" }\n\
                    [ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 10\n[loads.bulk]\n\
                    traffic = [{ from = \"n1\", to = \"n2\", protocol = \"tcp\", flows = 4 },\
                    { from = \"n1\", to = \"n2\", rate = \"1M\" }]\n";
        let plan = Plan::read(&Source::parse(text).unwrap()).unwrap();
        let needed = jobs(&plan, &Nodes::default());
        let urls: Vec<_> = needed
            .sinks
            .iter()
            .map(|planned| match &planned.job {
                Job::Sink(sink) => sink.urls[0].clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(urls, ["tcp://0.0.0.0:5009", "udp://0.0.0.0:5009"]);
        let Job::Bulk(bulk) = &needed.loads[0].job else { panic!("expected a bulk load") };
        assert_eq!((bulk.url.as_str(), bulk.flows, bulk.rate), ("tcp://n2:5009", 4, None));
    }

    #[test]
    fn ping_trial_has_reflector_loads_and_sinks() {
        let text = "version = 1\nname = \"x\"\nload = \"both\"\ntopology = { lab = \"line:2\" }\n\
                    [nodes.n2]\ncpu = 1\n[ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"roundtrip\"\n\
                    closed_loop = true\ncount = 10\n[loads.both]\n\
                    cpu = [{ on = \"n1\", level = \"50%\" }]\n\
                    traffic = [{ from = \"n1\", to = \"n2\", rate = \"1Mbit/s\" },\
                    { from = \"n2\", to = \"n1\", rate = \"1Mbit/s\" }]\n";
        let plan = Plan::read(&Source::parse(text).unwrap()).unwrap();
        let needed = jobs(&plan, &Nodes::default());
        let Job::Reflect(reflect) = &needed.standing[0].job else { panic!("expected a reflector") };
        assert_eq!(reflect.urls, ["roundtrip://0.0.0.0:7100"]);
        assert_eq!(reflect.place.cpu, Some(1));
        assert_eq!(needed.sinks.len(), 2);
        assert_eq!(needed.loads.len(), 3);
        let Job::Ping(ping) = &needed.measurement.job else { panic!("expected a ping") };
        assert_eq!((ping.target.as_str(), ping.ipv4), ("roundtrip://n2:7100", true));
        let icmp = Plan::read(&Source::parse(&text.replace("roundtrip", "icmp")).unwrap()).unwrap();
        assert!(jobs(&icmp, &Nodes::default()).standing.is_empty());
    }

    #[test]
    fn icmp_has_a_reflector_only_in_the_driver() {
        let text = "version = 1\nname = \"x\"\ntopology = { lab = \"line:3\" }\n[ping]\nfrom = \"n1\"\n\
                    to = \"n3\"\nprotocol = \"icmp\"\ncount = 10\n[reflect]\nengine = \"auto\"\n";
        let jobs = |text: &str| {
            let plan = Plan::read(&Source::parse(text).unwrap()).unwrap();
            jobs(&plan, &nodes())
        };
        let needed = jobs(text);
        assert!(needed.standing.is_empty());
        let Job::Reflect(reflect) = &needed.sinks[0].job else { panic!("expected a reflector") };
        assert_eq!(reflect.urls, ["icmp://0.0.0.0"]);
        assert_eq!(reflect.engine, ReflectEngine::Auto);
        assert_eq!((&reflect.interface, reflect.prober.as_deref()), (&None, Some("10.0.0.1")));
        let needed = jobs(&text.replace("\"auto\"", "\"socket\""));
        assert!(needed.standing.is_empty() && needed.sinks.is_empty());
    }

    fn nodes() -> Nodes {
        let addresses = |n: u8| {
            let both = [format!("10.0.0.{n}"), format!("fd00::{n}")];
            (format!("n{n}"), both.map(|address| address.parse().unwrap()).to_vec())
        };
        Nodes::new((1..=3).map(addresses).collect())
    }

    /// Returns all addresses in the jobs that are sent to or listened on.
    fn urls(trial: &TrialJobs) -> Vec<String> {
        let all = trial.standing.iter().chain(&trial.sinks).chain(&trial.loads);
        let mut urls = Vec::new();
        for planned in all.chain([&trial.measurement]) {
            match &planned.job {
                Job::Ping(job) => urls.push(job.target.clone()),
                Job::Reflect(job) => urls.extend(job.urls.clone()),
                Job::NodeSim(job) => urls.extend(job.urls.clone()),
                Job::Traffic(job) => urls.push(job.url.clone()),
                Job::Bulk(job) => urls.push(job.url.clone()),
                Job::Sink(job) => urls.extend(job.urls.clone()),
                Job::Relay(job) => urls.extend([job.listen.clone(), job.to.clone()]),
                Job::Pace(job) => urls.push(job.target.clone()),
                Job::PaceSink(job) => urls.push(job.url.clone()),
                Job::Itg(job) => urls.push(job.to.clone()),
                Job::Cpu(_) | Job::Trace(_) | Job::ItgSink(_) => {}
            }
        }
        urls
    }

    #[test]
    fn jobs_use_node_addresses_instead_of_names() {
        let head = "version = 1\nname = \"x\"\ntopology = { lab = \"line:3\" }\n";
        let ping = "load = \"busy\"\n[ping]\nfrom = \"n1\"\nto = \"n2\"\ncount = 10\n[loads.busy]\n\
                    traffic = [{ from = \"n3\", to = \"n1\", rate = \"1Mbit/s\" }]\n";
        let flow = "[flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"500B\"\nrate = \"4Mbit/s\"\n\
                    count = 10\n[relay]\non = \"n2\"\nmode = \"translate\"\n";
        let pace = "[pace]\nfrom = \"n1\"\nto = \"n2\"\nframe_size = \"1514B\"\n\
                    rate = \"10Mbit/s\"\n[cross]\nflows = 25\ngenerator = \"itg\"\n";
        let of = |rest: &str| {
            let plan = Plan::read(&Source::parse(&format!("{head}{rest}")).unwrap()).unwrap();
            urls(&jobs(&plan, &nodes())).join(" ")
        };
        assert_eq!(
            of(ping),
            "stamp://0.0.0.0:862 udp://0.0.0.0:5009 udp://10.0.0.1:5009 stamp://10.0.0.2:862"
        );
        assert_eq!(
            of(&ping.replace("count", "ipv6 = true\ncount")),
            "stamp://[::]:862 udp://[::]:5009 udp://[fd00::1]:5009 stamp://[fd00::2]:862"
        );
        assert_eq!(
            of(flow),
            "udp://0.0.0.0:5001 udp://0.0.0.0:5001 udp://10.0.0.3:5001 udp://10.0.0.2:5001"
        );
        assert_eq!(of(pace), "udp://0.0.0.0:7102 10.0.0.2 udp://10.0.0.2:7102");
    }
}
