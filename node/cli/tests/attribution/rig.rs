//! Sender, node and receiver in a lab, and means to hold packets between them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell_io::datagram::DatagramSocket;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, until};
use crate::joined::{MachineSegment, Round};

/// Packets of a round, including the FIN and the warm-up packets.
const PACKETS: &str = "81";

/// Low enough that a relay that holds each packet for 2 ms keeps up even if the host takes half of
/// its processor. Otherwise packets would queue.
const RATE: &str = "200pps";

/// The polling process has its own processor: the relay the second, or without a relay the
/// receiver. The sender, which mostly sleeps, and the wires have priority over the receiver on the
/// first.
const FIRST_CPU: &str = "0";
const SECOND_CPU: &str = "1";

/// Nice value of polling threads, against other load. A polling thread has no real-time priority:
/// it would block the kernel's threads, and threads that wait for them, for 950 ms of every second
/// (sched(7)). The nice value applies within this session only; other sessions may take the same
/// share of a processor (sched(7), autogroups), which makes rounds noisier.
const POLLING_NICE: &str = "-20";
/// Real-time priorities.
const SENDER_PRIORITY: &str = "2";
const TEST_PRIORITY: &str = "3";

/// Gives this process and its children real-time priority; returns whether that is permitted.
pub(crate) fn set_realtime_priority() -> bool {
    let process = std::process::id().to_string();
    let output = Command::new("chrt").args(["-a", "-f", "-p", TEST_PRIORITY, &process]).output();
    output.is_ok_and(|output| output.status.success())
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Keeps the header readable for the receiver, which does not decrypt, and its report readable for
/// the sender, which would repeat its FIN otherwise. Little is left to encrypt, because longer
/// processing is disturbed more.
const CLEAR: &str = "900";

/// How the node forwards packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarding {
    Translate,
    Encrypt,
    Decrypt,
    Route,
}

/// Place where packets are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the relay, between receive and send.
    Program,
    /// In the relay's receive buffer.
    Socket,
    /// In the queueing discipline of the node's interface.
    Qdisc,
    /// Between the sender and the node.
    Wire,
}

/// A place and a hold time in microseconds, 0 for the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) place: Place,
    pub(crate) micros: i64,
}

impl Hold {
    /// The same path without a hold.
    pub(crate) fn base(self) -> Self {
        let place = if self.place == Place::Qdisc { Place::Program } else { self.place };
        Self { place, micros: 0 }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Program => "in the program",
            Place::Socket => "unread in the socket",
            Place::Qdisc => "in the queueing discipline",
            Place::Wire => "on the wire",
        };
        write!(f, "{place} for {} us", self.micros)
    }
}

/// Minimum delay of an emulated wire, in microseconds; it covers the time of the emulation itself.
const MIN_WIRE_DELAY_US: i64 = 50;

/// A lab of plain links, and one lab per hold time of an emulated wire, including 0.
pub(crate) struct Labs {
    forwarding: Forwarding,
    bare: TestLab,
    wires: BTreeMap<i64, TestLab>,
    _stamps: DatagramSocket,
}

impl Labs {
    pub(crate) fn up(forwarding: Forwarding, times: &[i64]) -> Self {
        let bare = TestLab::up("bare", &["line:3"]);
        make_qdisc(&bare);
        let directory = tempfile::tempdir().unwrap();
        let wire = |micros: i64| {
            let file = directory.path().join(format!("wire-{micros}.toml"));
            let text = format!(
                "version = 1\nnodes = [\"n1\", \"n2\", \"n3\"]\nlinks = [{{ a = \"n1\", b = \"n2\", \
                 mechanism = \"tap\", delay = \"{}us\" }}, {{ a = \"n2\", b = \"n3\" }}]\n",
                MIN_WIRE_DELAY_US + micros
            );
            std::fs::write(&file, text).unwrap();
            let lab = TestLab::up(&format!("wire{micros}"), &[file.to_str().unwrap()]);
            for process in lab.processes() {
                let pid = process.split(' ').next().unwrap();
                run("taskset", &["-a", "-c", "-p", FIRST_CPU, pid]);
                run("chrt", &["-a", "-f", "-p", SENDER_PRIORITY, pid]);
            }
            (micros, lab)
        };
        let wires = [0].iter().chain(times).map(|micros| wire(*micros)).collect();
        Self { forwarding, bare, wires, _stamps: enable_timestamps() }
    }

    /// Sends packets through the node, each with this hold.
    pub(crate) fn round(&self, hold: Hold) -> Round {
        let lab = match hold.place {
            Place::Wire => &self.wires[&hold.micros],
            _ => &self.bare,
        };
        let directory = tempfile::tempdir().unwrap();
        let samples = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        if hold.place == Place::Qdisc {
            set_filter(lab, hold.micros);
        }
        let spare = if self.forwarding == Forwarding::Route { SECOND_CPU } else { FIRST_CPU };
        let sink = ["load", "sink", "udp://198.19.0.3:5001", "--json", "--cpu", spare];
        let sink_samples = samples("sink");
        let sink = [&sink[..], &["--busy-poll", "--samples", &sink_samples]].concat();
        let sink = Running::start(lab, "n3", &sink);
        let node_samples = samples("node");
        let (node, is_ready, polls) = self.node(lab, hold, &node_samples);
        let sink = sink.once("listening", Some(spare));
        let node = node.once(is_ready, polls);
        let to = if self.forwarding == Forwarding::Route { "3" } else { "2" };
        let to = format!("udp://198.19.0.{to}:5001");
        let sender_samples = samples("sender");
        let traffic = ["load", "traffic", &to, "--rate", RATE, "--size", "1000B", "--json"];
        let more =
            ["--count", PACKETS, "--header", "iperf", "--cpu", FIRST_CPU, "--scheduling", "other"];
        let chrt = ["chrt", "-f", SENDER_PRIORITY, DWELL];
        let sent = [&chrt[..], &traffic, &more, &["--samples", &sender_samples]].concat();
        let sent = lab.exec("n1", &sent);
        assert!(sent.status.success(), "{sent:?}");
        node.interrupt();
        sink.interrupt();
        let (node, sink) = (node.end(), sink.end());
        if hold.place == Place::Qdisc {
            remove_filter(lab);
        }
        let files = [&sender_samples, &node_samples, &sink_samples];
        let [sender, middle, receiver] = files.map(|file| MachineSegment::read(Path::new(file)));
        middle.assert_missing_stamps_are_counted(&node);
        receiver.assert_missing_stamps_are_counted(&sink);
        let round = Round::join(&sender, &middle, &receiver);
        if std::env::var_os("ATTRIBUTION_ROUNDS").is_some() {
            println!("{:>36} {}", hold.to_string(), round.line());
        }
        round
    }

    /// Starts the program at the node; returns it with its ready message and the processor it polls
    /// on.
    fn node(
        &self,
        lab: &TestLab,
        hold: Hold,
        samples: &str,
    ) -> (Running, &'static str, Option<&'static str>) {
        let mode = match self.forwarding {
            Forwarding::Route => {
                let trace = ["trace", "--flow", "udp port 5001", "--hooks", "netfilter", "--json"];
                let arguments = [&trace[..], &["--samples", samples]].concat();
                return (Running::start(lab, "n2", &arguments), "tracing", None);
            }
            Forwarding::Translate => &["--mode", "translate"][..],
            Forwarding::Encrypt => &["--mode", "encrypt", "--clear", CLEAR],
            Forwarding::Decrypt => &["--mode", "decrypt", "--clear", CLEAR],
        };
        let relay = ["relay", "--listen", "udp://198.19.0.2:5001", "--to", "udp://198.19.0.3:5001"];
        let place =
            ["--id", "iperf", "--json", "--busy-poll", "--cpu", SECOND_CPU, "--samples", samples];
        // A hold of at least 1 ns, also for the base: looking for a packet before taking it takes
        // time, and a relay without a hold keeps its caches warm.
        let nanos = |micros: i64| (1_000 * micros).max(1);
        let hold = match hold.place {
            Place::Program => format!("program:{}ns", nanos(hold.micros)),
            Place::Socket => format!("socket:{}ns", nanos(hold.micros)),
            Place::Qdisc | Place::Wire => format!("program:{}ns", nanos(0)),
        };
        let arguments = [&relay[..], &place, mode, &["--hold", &hold]].concat();
        (Running::start(lab, "n2", &arguments), "relaying", Some(SECOND_CPU))
    }
}

/// Keeps receive timestamps enabled from before the first round until after the last: the kernel
/// enables them some time after the first socket asks for them.
fn enable_timestamps() -> DatagramSocket {
    let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::relay() };
    let mut end = DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    until("the kernel timestamps received packets", || {
        near.send_to(&[0], end.local_addr()).unwrap();
        let received = end.receive_from(&mut [0; 8], Wait::No);
        received.is_ok_and(|received| received.is_some_and(|it| it.rx_or_now().kernel.is_some()))
    });
    end
}

/// Creates a queueing discipline that asks a classifier about every packet.
fn make_qdisc(lab: &TestLab) {
    tc(lab, &["qdisc", "add", "dev", "n3", "root", "handle", "1:", "htb", "default", "1"]);
    let class = ["class", "add", "dev", "n3", "parent", "1:", "classid", "1:1", "htb"];
    tc(lab, &[&class[..], &["rate", "10gbit", "quantum", "60000"]].concat());
}

/// Holds packets in the classifier; see node/bpf/hold.bpf.c.
fn set_filter(lab: &TestLab, micros: i64) {
    let object = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf/hold.bpf.o");
    let filter = ["filter", "add", "dev", "n3", "parent", "1:", "prio", "1", "bpf", "da", "obj"];
    let section = format!("hold_{micros}us");
    tc(lab, &[&filter[..], &[object.to_str().unwrap(), "sec", &section]].concat());
}

fn remove_filter(lab: &TestLab) {
    tc(lab, &["filter", "del", "dev", "n3", "parent", "1:", "prio", "1"]);
}

fn tc(lab: &TestLab, arguments: &[&str]) {
    let netns = lab.netns("n2");
    run("tc", &[&["-n", netns.file_name().unwrap().to_str().unwrap()], arguments].concat());
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// A command that runs in a node until stopped.
struct Running(Child);

impl Running {
    fn start(lab: &TestLab, node: &str, arguments: &[&str]) -> Self {
        let child = Command::new("chrt")
            .args([
                "-f",
                SENDER_PRIORITY,
                DWELL,
                "lab",
                "exec",
                "--lab",
                &lab.name,
                node,
                "--",
                DWELL,
            ])
            .args(arguments)
            .env("DWELL_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits for the ready message, and lowers the priority of the thread that polls on a
    /// processor.
    fn once(mut self, ready: &str, polls: Option<&str>) -> Self {
        let stderr = BufReader::new(self.0.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(ready)), "{ready}");
        if let Some(cpu) = polls {
            self.lower_polling_priority(cpu);
        }
        self
    }

    /// A polling thread must not block other threads of its process or the sender.
    fn lower_polling_priority(&self, cpu: &str) {
        let tasks = format!("/proc/{}/task", self.0.id());
        let polls = |task: &str| {
            let status = std::fs::read_to_string(format!("{tasks}/{task}/status"));
            let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
            status.is_ok_and(|status| status.contains(&allowed))
        };
        until("the polling thread is on its processor", || {
            let all = std::fs::read_dir(&tasks).unwrap().flatten();
            let mut names = all.map(|task| task.file_name().into_string().unwrap());
            let Some(task) = names.find(|task| polls(task)) else { return false };
            run("chrt", &["-o", "-p", "0", &task]);
            run("renice", &["-n", POLLING_NICE, "-p", &task]);
            true
        });
    }

    /// Stops the command as ^C does.
    fn interrupt(&self) {
        Handle::open(self.0.id()).unwrap().signal(Signal::Interrupt).unwrap();
    }

    /// Waits for the end; returns the summary.
    fn end(self) -> Value {
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}
