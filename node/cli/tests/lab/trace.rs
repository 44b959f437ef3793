//! `dwell trace` at the middle node of a line.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dwell_io::bpf::{Hook, Pass, XdpMode};
use dwell_io::{interface, netns};
use dwell_protocol::{
    Event, Frame, IdFormat, Job, JobId, Request, TraceHook, TraceJob, read_frame, write_message,
};
use dwell_record::segment::{FlowEntry, Record, read};
use dwell_sample::{PacketObservation, PacketOutcome, Point};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, assert_follows, said};

const ALL: [&str; 5] = ["rx_driver", "rx_tcx", "pre_routing", "post_routing", "tx_tcx"];

/// A running trace in a node of a lab.
struct Trace {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    samples: tempfile::NamedTempFile,
    /// Standard error so far.
    notes: String,
}

/// The results of a trace.
struct Found {
    summary: Value,
    flows: Vec<FlowEntry>,
    observations: Vec<PacketObservation>,
}

impl Trace {
    fn start(lab: &TestLab, node: &str, arguments: &[&str]) -> Self {
        let samples = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, node, "--", DWELL, "trace", "--json"])
            .args(arguments)
            .arg("--samples")
            .arg(samples.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut notes = String::new();
        while !notes.contains("tracing '") {
            assert_ne!(stderr.read_line(&mut notes).unwrap(), 0, "{notes}");
        }
        Self { child, stderr, samples, notes }
    }

    /// Stops the trace and reads its results.
    fn end(mut self) -> Found {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.stderr.read_to_string(&mut self.notes).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{} {}", output.status, self.notes);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let schema = "dwell.summary-1";
        assert_follows(schema, &summary);
        let (mut flows, mut observations) = (Vec::new(), Vec::new());
        let mut segment = fs::File::open(self.samples.path()).unwrap();
        read(&mut segment, &mut |record| match record {
            Record::Flow(flow) => flows.push(flow.clone()),
            Record::PacketObservation(observation) => observations.push(*observation),
            Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
        })
        .unwrap();
        Found { summary, flows, observations }
    }
}

impl Found {
    fn value(&self, name: &str) -> u64 {
        self.summary["values"][name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.summary))
    }

    fn warnings(&self) -> String {
        self.summary["trust"]["warnings"].to_string()
    }

    /// Asserts that every packet has exactly these points, in chronological order.
    fn assert_in_order(&self, points: &[&str]) {
        for observation in &self.observations {
            let names: Vec<_> = observation.stamps.iter().map(|(point, _)| point.name()).collect();
            assert_eq!(names, points);
            assert_eq!(observation.outcome, PacketOutcome::Observed);
            let at: Vec<_> = observation.stamps.iter().map(|(_, at)| at).collect();
            assert!(at.is_sorted(), "{observation:?}");
        }
    }
}

/// The mark of dwell's traffic, padded to `size` bytes.
fn payload(seq: u64, size: usize) -> Vec<u8> {
    let mut bytes = b"dwlt\0\0\0\0".to_vec();
    bytes.extend(seq.to_be_bytes());
    bytes.resize(size, 0);
    bytes
}

/// Sends packets and waits for each to arrive.
fn pass(near: &UdpSocket, far: &UdpSocket, to: &str, ids: std::ops::Range<u64>, size: usize) {
    for id in ids {
        near.send_to(&payload(id, size), to).unwrap();
        far.recv(&mut [0; 2_048]).unwrap();
    }
}

#[test]
fn routed_packets_are_stamped_in_order_at_every_hook() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace", &["line:3"]);
    let trace = Trace::start(&lab, "n2", &["--flow", "udp port 7001"]);
    for (any, to) in [("0.0.0.0", "198.19.0.3:7001"), ("[::]", "[fd64:7765:6c6c:ffff::3]:7001")] {
        let far = lab.socket("n3", &format!("{any}:7001"));
        let near = lab.socket("n1", &format!("{any}:0"));
        pass(&near, &far, to, 0..200, 100);
        // Too short for a complete header; and a packet of another flow.
        pass(&near, &far, to, 200..210, 16);
        lab.socket("n1", &format!("{any}:0"))
            .send_to(b"other", to.replace("7001", "7002"))
            .unwrap();
    }
    let found = trace.end();
    found.assert_in_order(&ALL);
    assert_eq!(found.flows.len(), 2, "{:?}", found.flows);
    for flow in &found.flows {
        assert_eq!((flow.protocol.as_str(), flow.to.port()), ("udp", 7_001));
        let of_flow = found.observations.iter().filter(|observation| observation.flow == flow.flow);
        let sizes: BTreeMap<u64, u16> = of_flow.map(|p| (p.id, p.size)).collect();
        let sent: BTreeMap<u64, u16> =
            (0..210).map(|id| (id, if id < 200 { 100 } else { 16 })).collect();
        assert_eq!(sizes, sent, "{flow:?}");
    }
    assert_eq!((found.value("packets"), found.value("events")), (420, 5 * 420));
    assert_eq!((found.value("unjoined"), found.value("events_dropped")), (0, 0));
    let metrics = &found.summary["metrics"];
    assert_eq!(metrics["node_delay_netfilter_ns"]["count"], 420);
    assert_eq!(metrics["node_delay_driver_ns"]["count"], 420);
}

#[test]
fn trace_stamps_a_full_speed_burst_without_loss() {
    const PACKETS: u64 = 50_000;
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-burst", &["line:3"]);
    let trace =
        Trace::start(&lab, "n2", &["--flow", "udp port 7001", "--hooks", "netfilter", "-q"]);
    let far = lab.socket("n3", "0.0.0.0:7001");
    far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let near = lab.socket("n1", "0.0.0.0:0");
    for id in 0..PACKETS {
        near.send_to(&payload(id, 100), "198.19.0.3:7001").unwrap();
    }
    // When the socket's buffer is empty, all packets have passed the middle node.
    while far.recv(&mut [0; 128]).is_ok() {}
    let found = trace.end();
    assert_eq!(found.value("events_dropped"), 0);
    assert_eq!((found.value("packets"), found.value("unjoined")), (PACKETS, 0));
    found.assert_in_order(&["pre_routing", "post_routing"]);
}

#[test]
fn trace_separates_relayed_flows_and_joins_icmp_echoes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-relay", &["line:3"]);
    let udp = Trace::start(&lab, "n2", &["--flow", "udp port 7001", "--hooks", "netfilter"]);
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    let relay = lab.socket("n2", "0.0.0.0:7001");
    for id in 0..50 {
        near.send_to(&payload(id, 64), "198.19.0.2:7001").unwrap();
        let mut buffer = [0; 128];
        let (len, _) = relay.recv_from(&mut buffer).unwrap();
        relay.send_to(&buffer[..len], "198.19.0.3:7001").unwrap();
        far.recv(&mut buffer).unwrap();
    }
    let found = udp.end();
    let points = |to: &str| {
        let flow = found.flows.iter().find(|flow| flow.to.to_string() == to).unwrap().flow;
        let of_flow = found.observations.iter().filter(move |observation| observation.flow == flow);
        of_flow.map(|p| (p.id, p.stamps.iter().map(|(point, _)| point).collect::<Vec<_>>()))
    };
    let expected = |point| (0..50).map(|id| (id, vec![point])).collect::<BTreeMap<_, _>>();
    assert_eq!(points("198.19.0.2:7001").collect::<BTreeMap<_, _>>(), expected(Point::PreRouting));
    assert_eq!(points("198.19.0.3:7001").collect::<BTreeMap<_, _>>(), expected(Point::PostRouting));
    assert_eq!(found.value("unjoined"), 100);

    let echoes = Trace::start(&lab, "n2", &["--flow", "icmp host 198.19.0.3"]);
    let ping =
        lab.exec("n1", &[DWELL, "ping", "icmp://198.19.0.3", "-c", "20", "-i", "0.01", "-q"]);
    assert!(ping.status.success(), "{}", said(&ping));
    let found = echoes.end();
    found.assert_in_order(&ALL);
    // Includes the warm-up: a request and a reply each.
    assert_eq!((found.observations.len(), found.flows.len()), (2 * 28, 2));
    assert!(found.flows.iter().all(|flow| flow.protocol == "icmp"), "{:?}", found.flows);
}

#[test]
fn trace_joins_packets_encrypted_after_12_bytes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-cipher", &["line:3"]);
    let trace = Trace::start(&lab, "n2", &["--flow", "udp port 7001", "--hooks", "netfilter"]);
    let mut relay = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "relay", "--mode", "encrypt"])
        .args(["--listen", "udp://198.19.0.2:7001", "--to", "udp://198.19.0.3:7001"])
        .args(["--clear", "12"])
        .env("DWELL_KEY", "000102030405060708090a0b0c0d0e0f")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(relay.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("relaying")), "the relay is ready");
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    for id in 1..=50 {
        let mut packet = [0; 500];
        let datagram = dwell_wire::iperf2::Datagram::new(id, dwell_io::clock::realtime());
        datagram.emit(&mut packet);
        near.send_to(&packet, "198.19.0.2:7001").unwrap();
        assert_eq!(far.recv(&mut [0; 1_024]).unwrap(), 512, "encrypted");
    }
    let found = trace.end();
    let pid = relay.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(relay.wait().unwrap().success());
    for (to, point) in
        [("198.19.0.2:7001", Point::PreRouting), ("198.19.0.3:7001", Point::PostRouting)]
    {
        let flow = found.flows.iter().find(|flow| flow.to.to_string() == to).unwrap().flow;
        let of_flow = found.observations.iter().filter(|observation| observation.flow == flow);
        let ids: BTreeMap<_, _> = of_flow.map(|p| (p.id, p.stamps.get(point).is_some())).collect();
        assert_eq!(ids, (1..=50).map(|id| (id, true)).collect::<BTreeMap<_, _>>(), "{to}");
    }
}

#[test]
fn trace_joins_tcp_by_sequence_numbers() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-tcp", &["line:3"]);
    let trace = Trace::start(&lab, "n2", &["--flow", "tcp port 7001", "--hooks", "netfilter,tcx"]);
    let listener = netns::within(&lab.netns("n3"), || TcpListener::bind("0.0.0.0:7001").unwrap());
    let near = netns::within(&lab.netns("n1"), || TcpStream::connect("198.19.0.3:7001").unwrap());
    let (mut near, (mut far, _)) = (near.unwrap(), listener.unwrap().accept().unwrap());
    for _ in 0..50 {
        near.write_all(b"question").unwrap();
        far.read_exact(&mut [0; 8]).unwrap();
        far.write_all(b"reply").unwrap();
        near.read_exact(&mut [0; 5]).unwrap();
    }
    let found = trace.end();
    assert_eq!(found.flows.len(), 2, "{:?}", found.flows);
    for (to_server, size) in [(true, 8), (false, 5)] {
        let flow = found.flows.iter().find(|flow| (flow.to.port() == 7_001) == to_server).unwrap();
        let of_flow = found.observations.iter().filter(|p| p.flow == flow.flow && p.size == size);
        let ids: Vec<_> = of_flow.map(|observation| observation.id as u32).collect();
        assert_eq!(ids.len(), 50, "{flow:?}");
        assert!(ids.is_sorted_by(|a, b| b.wrapping_sub(*a) == u32::from(size)), "{ids:?}");
    }
}

#[test]
fn trace_coexists_with_foreign_xdp_programs() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-others", &["line:3"]);
    let towards_n1 = netns::within(&lab.netns("n2"), || {
        interface::all().unwrap().into_iter().find(|i| i.name == "n1").unwrap().index
    })
    .unwrap();
    let others = netns::within(&lab.netns("n2"), || {
        let pass = Pass::load(Hook::Xdp).unwrap();
        let attached = pass.attach_xdp(towards_n1, XdpMode::Native).unwrap();
        (pass, attached)
    })
    .unwrap();
    let first = Trace::start(&lab, "n2", &["--flow", "udp port 7001", "--hooks", "netfilter,tcx"]);
    let second = Trace::start(&lab, "n2", &["--flow", "udp port 7001"]);
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    pass(&near, &far, "198.19.0.3:7001", 0..100, 64);
    let second = second.end();
    assert!(
        second.warnings().contains("no rx_driver on interface n1: another XDP program"),
        "{}",
        second.summary
    );
    let still_taken =
        netns::within(&lab.netns("n2"), || others.0.attach_xdp(towards_n1, XdpMode::Native))
            .unwrap();
    assert!(still_taken.is_err(), "the foreign XDP program is still attached");
    pass(&near, &far, "198.19.0.3:7001", 100..150, 64);
    let first = first.end();
    second.assert_in_order(&ALL[1..]);
    first.assert_in_order(&ALL[1..]);
    assert_eq!((second.observations.len(), first.observations.len()), (100, 150));
}

#[test]
fn wrong_trace_options_fail_before_files_are_created() {
    if !as_root() {
        return;
    }
    let nowhere = tempfile::tempdir().unwrap();
    let samples = nowhere.path().join("samples");
    let trace = |arguments: &[&str]| {
        let mut command = Command::new(DWELL);
        command.args(["trace", "--samples"]).arg(&samples).args(arguments).output().unwrap()
    };
    for (arguments, needle) in [
        (&["--flow", "port 5001"][..], "udp, tcp or icmp"),
        (&["--flow", "udp", "--interface", "nope0"], "there is no 'nope0'"),
        (&["--flow", "udp", "--hooks", "kprobe"], "netfilter"),
    ] {
        let output = trace(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(needle), "{}", said(&output));
        assert!(!samples.exists());
    }
    let (program, _directory) = world_executable_program();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program)
        .args(["trace", "--flow", "udp port 5001"])
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("needs root (CAP_BPF and CAP_NET_ADMIN)"), "{}", said(&output));
}

/// A copy of the program that all users may run.
fn world_executable_program() -> (PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("dwell-node");
    fs::copy(DWELL, &program).unwrap();
    let open = Command::new("chmod").arg("755").arg(directory.path()).status().unwrap();
    assert!(open.success());
    (program, directory)
}

#[test]
fn trace_job_delivers_samples_to_the_controller() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("trace-worker", &["line:3"]);
    let mut node = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut requests, answers) = (node.stdin.take().unwrap(), node.stdout.take().unwrap());
    let mut answers = BufReader::new(answers);
    let mut segment = Vec::new();
    let mut next = || loop {
        match read_frame::<Event>(&mut answers).unwrap().expect("the node runs") {
            Frame::Message(Event::Progress { .. }) => {}
            Frame::Message(event) => return (event, std::mem::take(&mut segment)),
            Frame::Data(_, bytes) => segment.extend(bytes),
        }
    };
    assert!(matches!(next().0, Event::Hello { .. }));
    let job = JobId(1);
    let what = Job::Trace(TraceJob {
        flow: "udp port 7001".to_owned(),
        id: IdFormat::Dwell,
        hooks: vec![TraceHook::Netfilter],
        interfaces: Vec::new(),
        duration: None,
    });
    write_message(&mut requests, &Request::Start { job, what, samples: true }).unwrap();
    assert!(matches!(next().0, Event::Ready { .. }));
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    pass(&near, &far, "198.19.0.3:7001", 0..100, 64);
    write_message(&mut requests, &Request::Stop { job }).unwrap();
    let Event::Finished { summary, .. } = next().0 else { panic!("a result") };
    assert_eq!(summary.metrics["node_delay_netfilter_ns"].count, 100);
    write_message(&mut requests, &Request::Pull { job, from: 0 }).unwrap();
    let (pulled, bytes) = next();
    assert!(matches!(pulled, Event::Pulled { .. }), "{pulled:?}");
    let mut ids = Vec::new();
    read(&mut &bytes[..], &mut |record| {
        if let Record::PacketObservation(observation) = record {
            ids.push(observation.id);
        }
    })
    .unwrap();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    drop(requests);
    assert!(node.wait().unwrap().success());
}
