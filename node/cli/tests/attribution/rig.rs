//! A sender, a node and a receiver in a lab, and ways to hold packets between them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell_io::datagram::{EndOptions, UdpEnd};
use dwell_io::port::StampRequest;
use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, until};
use crate::ways::{Round, Told};

/// Packets of a round, the flow's end and the first ones that do not count among them.
const PACKETS: &str = "81";

/// So slow that a relay which holds each of them for two milliseconds is in time for the next one, even if
/// the machine's host takes half of its processor: what waits for the one before it is queued indeed.
const RATE: &str = "200pps";

/// What polls has a processor of its own: the relay the second, or where there is none the receiver.
/// The sender, which mostly sleeps, and the wires go before the receiver on the first.
const FIRST: &str = "0";
const SECOND: &str = "1";

/// Others that compute here must not be taken for a part of a delay. Who polls is no real-time thread, which
/// would keep the kernel's own threads from their work, and whoever waits for that with them, for as long as
/// the kernel lets it (sched(7): 950 ms of every second). It goes before others of this session; those of
/// another one may have as much of a processor (sched(7), autogroups), and rounds are noisier then.
const POLLING: &str = "-20";
/// Real-time priorities.
const PUNCTUAL: &str = "2";
const TEST: &str = "3";

/// Puts this process and what it starts before all others; whether that is allowed.
pub(crate) fn go_first() -> bool {
    let process = std::process::id().to_string();
    let output = Command::new("chrt").args(["-a", "-f", "-p", TEST, &process]).output();
    output.is_ok_and(|output| output.status.success())
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// The header stays readable for the receiver, which deciphers nothing, and so does its report for
/// the sender, which would say again and again that it has ended. What remains to be enciphered is
/// short, because the slower the code is, the more others disturb it.
const CLEAR: &str = "900";

/// How the node sends packets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Translate,
    Encrypt,
    Decrypt,
    Route,
}

/// Where packets are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the relay, between receiving and sending.
    Program,
    /// In the relay's receive buffer.
    Socket,
    /// In the queueing discipline of the node's interface.
    Qdisc,
    /// Between the sender and the node.
    Wire,
}

/// A place, and for how long; for 0 us to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) place: Place,
    pub(crate) micros: i64,
}

impl Hold {
    /// The same way of packets without holding them.
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

/// Every wire of dwell's own has at least this delay, behind which its own work on a packet is hidden.
const WIRE: i64 = 50;

/// A lab of bare links, and one for each time that a wire of dwell's own holds packets, 0 too.
pub(crate) struct Labs {
    manner: Manner,
    bare: TestLab,
    wires: BTreeMap<i64, TestLab>,
    _stamps: UdpEnd,
}

impl Labs {
    pub(crate) fn up(manner: Manner, times: &[i64]) -> Self {
        let bare = TestLab::up("bare", &["line:3"]);
        make_qdisc(&bare);
        let directory = tempfile::tempdir().unwrap();
        let wire = |micros: i64| {
            let file = directory.path().join(format!("wire-{micros}.toml"));
            let text = format!(
                "version = 1\nnodes = [\"n1\", \"n2\", \"n3\"]\nlinks = [{{ a = \"n1\", b = \"n2\", \
                 mechanism = \"tap\", delay = \"{}us\" }}, {{ a = \"n2\", b = \"n3\" }}]\n",
                WIRE + micros
            );
            std::fs::write(&file, text).unwrap();
            let lab = TestLab::up(&format!("wire{micros}"), &[file.to_str().unwrap()]);
            for process in lab.processes() {
                let pid = process.split(' ').next().unwrap();
                run("taskset", &["-a", "-c", "-p", FIRST, pid]);
                run("chrt", &["-a", "-f", "-p", PUNCTUAL, pid]);
            }
            (micros, lab)
        };
        let wires = [0].iter().chain(times).map(|micros| wire(*micros)).collect();
        Self { manner, bare, wires, _stamps: switch_stamps_on() }
    }

    /// Sends packets through the node, of which each is held.
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
        let spare = if self.manner == Manner::Route { SECOND } else { FIRST };
        let sink = ["load", "sink", "udp://198.19.0.3:5001", "--json", "--cpu", spare];
        let sink_samples = samples("sink");
        let sink = [&sink[..], &["--busy-poll", "--samples", &sink_samples]].concat();
        let sink = Running::start(lab, "n3", &sink);
        let node_samples = samples("node");
        let (node, is_ready, polls) = self.node(lab, hold, &node_samples);
        let sink = sink.once("listening", Some(spare));
        let node = node.once(is_ready, polls);
        let to = if self.manner == Manner::Route { "3" } else { "2" };
        let to = format!("udp://198.19.0.{to}:5001");
        let sender_samples = samples("sender");
        let traffic = ["load", "traffic", &to, "--rate", RATE, "--size", "1000B", "--json"];
        let more =
            ["--count", PACKETS, "--header", "iperf", "--cpu", FIRST, "--scheduling", "other"];
        let chrt = ["chrt", "-f", PUNCTUAL, DWELL];
        let sent = [&chrt[..], &traffic, &more, &["--samples", &sender_samples]].concat();
        let sent = lab.exec("n1", &sent);
        assert!(sent.status.success(), "{sent:?}");
        node.interrupt();
        sink.interrupt();
        let (node, sink) = (node.end(), sink.end());
        if hold.place == Place::Qdisc {
            remove_filter(lab);
        }
        let told = [&sender_samples, &node_samples, &sink_samples];
        let [sender, middle, receiver] = told.map(|file| Told::read(Path::new(file)));
        middle.assert_missing_stamps_are_counted(&node);
        receiver.assert_missing_stamps_are_counted(&sink);
        let round = Round::join(&sender, &middle, &receiver);
        if std::env::var_os("ATTRIBUTION_ROUNDS").is_some() {
            println!("{:>36} {}", hold.to_string(), round.line());
        }
        round
    }

    /// What stamps in the middle; what it says when it is ready, and the processor that it polls on.
    fn node(
        &self,
        lab: &TestLab,
        hold: Hold,
        samples: &str,
    ) -> (Running, &'static str, Option<&'static str>) {
        let mode = match self.manner {
            Manner::Route => {
                let trace = ["trace", "--flow", "udp port 5001", "--hooks", "netfilter", "--json"];
                let arguments = [&trace[..], &["--samples", samples]].concat();
                return (Running::start(lab, "n2", &arguments), "tracing", None);
            }
            Manner::Translate => &["--mode", "translate"][..],
            Manner::Encrypt => &["--mode", "encrypt", "--clear", CLEAR],
            Manner::Decrypt => &["--mode", "decrypt", "--clear", CLEAR],
        };
        let relay = ["relay", "--listen", "udp://198.19.0.2:5001", "--to", "udp://198.19.0.3:5001"];
        let place =
            ["--id", "iperf", "--json", "--busy-poll", "--cpu", SECOND, "--samples", samples];
        // For no time too: looking whether there is a packet before taking it takes time itself, and a
        // relay that holds nothing keeps its path warm meanwhile.
        let nanos = |micros: i64| (1_000 * micros).max(1);
        let hold = match hold.place {
            Place::Program => format!("program:{}ns", nanos(hold.micros)),
            Place::Socket => format!("socket:{}ns", nanos(hold.micros)),
            Place::Qdisc | Place::Wire => format!("program:{}ns", nanos(0)),
        };
        let arguments = [&relay[..], &place, mode, &["--hold", &hold]].concat();
        (Running::start(lab, "n2", &arguments), "relaying", Some(SECOND))
    }
}

/// The kernel stamps what comes in while any socket asks for it, and begins some time after the first
/// does: one that asks from before the first round until after the last.
fn switch_stamps_on() -> UdpEnd {
    let options = EndOptions { stamps: StampRequest::Kernel, ..EndOptions::default() };
    let mut end = UdpEnd::listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    until("the kernel stamps what comes in", || {
        near.send_to(&[0], end.local_addr()).unwrap();
        matches!(end.receive(&mut [0; 8]), Ok(Some(came)) if came.rx.kernel.is_some())
    });
    end
}

/// A discipline that asks a classifier about every packet.
fn make_qdisc(lab: &TestLab) {
    tc(lab, &["qdisc", "add", "dev", "n3", "root", "handle", "1:", "htb", "default", "1"]);
    let class = ["class", "add", "dev", "n3", "parent", "1:", "classid", "1:1", "htb"];
    tc(lab, &[&class[..], &["rate", "10gbit", "quantum", "60000"]].concat());
}

/// See node/bpf/hold.bpf.c.
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

/// A command that runs in a node until it is told to end.
struct Running(Child);

impl Running {
    fn start(lab: &TestLab, node: &str, arguments: &[&str]) -> Self {
        let child = Command::new("chrt")
            .args(["-f", PUNCTUAL, DWELL, "lab", "exec", "--lab", &lab.name, node, "--", DWELL])
            .args(arguments)
            .env("DWELL_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits until it says that it is ready, and, if it polls on a processor, lets others go before.
    fn once(mut self, ready: &str, polls: Option<&str>) -> Self {
        let talk = BufReader::new(self.0.stderr.take().unwrap());
        let mut lines = talk.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(ready)), "{ready}");
        if let Some(cpu) = polls {
            self.let_others_go_before_who_polls(cpu);
        }
        self
    }

    /// Who polls must not keep other threads of its own from their work, nor the sender from its.
    fn let_others_go_before_who_polls(&self, cpu: &str) {
        let tasks = format!("/proc/{}/task", self.0.id());
        let polls = |task: &str| {
            let status = std::fs::read_to_string(format!("{tasks}/{task}/status"));
            let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
            status.is_ok_and(|status| status.contains(&allowed))
        };
        until("the polling thread is where it belongs", || {
            let all = std::fs::read_dir(&tasks).unwrap().flatten();
            let mut names = all.map(|task| task.file_name().into_string().unwrap());
            let Some(task) = names.find(|task| polls(task)) else { return false };
            run("chrt", &["-o", "-p", "0", &task]);
            run("renice", &["-n", POLLING, "-p", &task]);
            true
        });
    }

    /// Stops it as ^C does.
    fn interrupt(&self) {
        Handle::open(self.0.id()).unwrap().signal(Signal::Interrupt).unwrap();
    }

    /// Its summary, once it has ended.
    fn end(self) -> Value {
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}
