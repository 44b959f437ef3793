//! `dwell relay --engine xdp` at the middle node of a line: as a command, and as a job of a node.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};

use dwell_io::netns;
use dwell_protocol::{
    Event, Frame, Job, JobId, RelayEngine, RelayJob, Request, read_frame, write_message,
};
use dwell_record::Summary;
use dwell_record::segment::{FlowEntry, Record, read};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, as_root, assert_follows};

/// A running relay in node n2.
struct Relay {
    child: Child,
    stderr: BufReader<ChildStderr>,
    samples: tempfile::NamedTempFile,
}

impl Relay {
    fn start(lab: &TestLab, arguments: &[&str]) -> Self {
        let samples = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "relay", "--json"])
            .args(["--engine", "xdp"])
            .args(arguments)
            .arg("--samples")
            .arg(samples.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("relaying udp://") {
            assert_ne!(stderr.read_line(&mut text).unwrap(), 0, "{text}");
        }
        Self { child, stderr, samples }
    }

    /// Stops the relay; returns its summary and the flows of its samples.
    fn end(mut self) -> (Value, Vec<FlowEntry>) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{} {text}", output.status);
        let summary = serde_json::from_slice(&output.stdout).unwrap();
        assert_follows("dwell.summary-1", &summary);
        (summary, flows(&std::fs::read(self.samples.path()).unwrap()))
    }
}

fn flows(segment: &[u8]) -> Vec<FlowEntry> {
    let mut flows = Vec::new();
    read(&mut &segment[..], &mut |record| match record {
        Record::Flow(flow) => flows.push(flow.clone()),
        Record::PacketObservation(observation) => {
            panic!("an observation without timestamps: {observation:?}")
        }
        Record::Header(_) | Record::Sample(..) | Record::Host(_) | Record::Spike(_) => {}
    })
    .unwrap();
    flows
}

/// Exchanges packets between n1 and n3 through the relay at this address.
fn exchange(lab: &TestLab, at: &str, count: usize) -> (SocketAddr, SocketAddr) {
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    let mut seen = None;
    for n in 0..count {
        near.send_to(&vec![7; 10 + n], at).unwrap();
        let (len, from) = far.recv_from(&mut [0; 2_048]).unwrap();
        assert_eq!(len, 10 + n);
        far.send_to(b"back", from).unwrap();
        let (len, back) = near.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(
            (len, back),
            (4, at.parse().unwrap()),
            "the reply is from the address that the client sent to"
        );
        seen = Some(from);
    }
    (near.local_addr().unwrap(), seen.expect("a packet"))
}

#[test]
fn xdp_relay_listens_on_all_addresses_and_reports_flows() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-command", &["line:3"]);
    let relay = Relay::start(
        &lab,
        &["--listen", "udp://0.0.0.0:7001", "--to", "udp://198.19.0.3:7001", "--flows", "16"],
    );
    // The node's own address, and those of its links.
    let links = netns::within(&lab.netns("n2"), dwell_io::interface::ipv4_addresses);
    let addresses = links.unwrap().unwrap();
    assert!(addresses.len() > 1, "{addresses:?}");
    let mut outs = Vec::new();
    for address in &addresses {
        outs.push(exchange(&lab, &format!("{address}:7001"), 20));
    }
    let (summary, flows) = relay.end();
    let count = addresses.len() as u64;
    let values = &summary["values"];
    assert_eq!(values["relayed_forward"], 20 * count, "{summary}");
    assert_eq!(values["relayed_backward"], 20 * count, "{summary}");
    assert_eq!((&values["flows"], &values["flows_evicted"]), (&count.into(), &0.into()));
    assert_eq!(values["payload_bytes_forward"], Value::Null);
    assert_eq!(summary["engine"], "xdp, generic", "veth");
    assert_eq!(summary["metrics"], serde_json::json!({}));
    assert!(summary["trust"]["warnings"].to_string().contains("below all timestamping"));
    // Two of each client, with the addresses before and behind.
    assert_eq!(flows.len() as u64, 2 * count);
    for (address, (near, from)) in addresses.iter().zip(outs) {
        let there = flows.iter().find(|flow| flow.from.port() == near.port()).expect("its flow");
        assert_eq!(there.to, format!("{address}:7001").parse().unwrap());
        assert_eq!((there.from_out, there.to_out.map(|to| to.port())), (Some(from), Some(7_001)));
    }
}

#[test]
fn xdp_relay_job_delivers_its_flow_table() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-job", &["line:3"]);
    let mut node = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut requests, mut answers) =
        (node.stdin.take().unwrap(), BufReader::new(node.stdout.take().unwrap()));
    // Returns the next event and the data before it.
    let mut next = || {
        let mut bytes = Vec::new();
        loop {
            match read_frame::<Event>(&mut answers).unwrap().expect("the node runs") {
                Frame::Data(_, more) => bytes.extend(more),
                Frame::Message(Event::Hello { .. } | Event::Progress { .. }) => {}
                Frame::Message(event) => return (event, bytes),
            }
        }
    };
    let job = JobId(1);
    let mut what = RelayJob::translate("udp://198.19.0.2:7001", "udp://198.19.0.3:7001");
    what.parameters.engine = RelayEngine::Xdp;
    let what = Job::Relay(Box::new(what));
    write_message(&mut requests, &Request::Start { job, what, samples: true }).unwrap();
    assert!(matches!(next().0, Event::Ready { .. }));
    exchange(&lab, "198.19.0.2:7001", 10);
    write_message(&mut requests, &Request::Stop { job }).unwrap();
    let Event::Finished { summary, .. } = next().0 else { panic!("a result") };
    let summary: Summary = *summary;
    assert_eq!(summary.engine, "xdp, generic");
    write_message(&mut requests, &Request::Pull { job, from: 0 }).unwrap();
    let (pulled, bytes) = next();
    assert!(matches!(pulled, Event::Pulled { .. }), "{pulled:?}");
    assert_eq!(flows(&bytes).len(), 2);
    drop(requests);
    assert!(node.wait().unwrap().success());
}

#[test]
fn unsupported_xdp_relay_is_refused_at_start() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-mistakes", &["line:3"]);
    let relay = |listen: &str, to: &str, more: &[&str]| {
        let words = [DWELL, "relay", "--engine", "xdp", "--listen", listen, "--to", to];
        let output = lab.exec("n2", &[&words[..], more].concat());
        (output.status.code(), crate::fixture::said(&output))
    };
    let (any, far) = ("udp://0.0.0.0:7001", "udp://198.19.0.3:7001");
    for (listen, to, more, exit, words) in [
        (any, far, &["--mode", "encrypt"][..], 2, "translate"),
        ("tcp://0.0.0.0:7001", "tcp://198.19.0.3:7001", &[], 2, "udp://"),
        ("udp://[::]:7001", "udp://[2001:db8::3]:7001", &[], 2, "IPv4 only"),
        (any, "udp://198.19.0.2:7002", &[], 2, "other machines"),
        ("udp://198.19.0.9:7001", far, &[], 2, "not an address of this machine"),
        (any, far, &["--flows", "5000"], 2, "1 to 4536"),
    ] {
        let (code, text) = relay(listen, to, more);
        assert_eq!(code, Some(exit), "{text}");
        assert!(text.contains(words), "{text}");
    }
    // Forwarding is disabled on the outgoing interface.
    netns::within(&lab.netns("n2"), || {
        for link in dwell_io::interface::all().unwrap() {
            let setting = format!("/proc/sys/net/ipv4/conf/{}/forwarding", link.name);
            std::fs::write(setting, "0").unwrap();
        }
    })
    .unwrap();
    let (code, text) = relay(any, far, &[]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("sysctl net.ipv4.conf."), "{text}");
}
