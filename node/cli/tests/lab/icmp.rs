//! ICMP errors and missing routes are counted and named. They end nothing and lose no other packet.

use std::net::UdpSocket;

use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, said};

/// Far end, and the kind of rule by which the middle node refuses it.
const REFUSALS: [(&str, &str); 4] = [
    ("fd64:7765:6c6c:ffff::3", "prohibit"),
    ("fd64:7765:6c6c:ffff::3", "unreachable"),
    ("198.19.0.3", "prohibit"),
    ("198.19.0.3", "unreachable"),
];

/// Makes a node refuse packets to a host until dropped.
struct Refusal<'a> {
    lab: &'a TestLab,
    node: &'a str,
    host: &'a str,
    kind: &'a str,
}

impl<'a> Refusal<'a> {
    fn at(lab: &'a TestLab, node: &'a str, host: &'a str, kind: &'a str) -> Self {
        let refusal = Self { lab, node, host, kind };
        refusal.rule("add");
        refusal
    }

    fn rule(&self, change: &str) {
        let family = if self.host.contains(':') { "-6" } else { "-4" };
        let rule = ["ip", family, "rule", change, "to", self.host, self.kind, "pref", "10"];
        let output = self.lab.exec(self.node, &rule);
        assert!(output.status.success(), "{rule:?} {}", said(&output));
    }
}

impl Drop for Refusal<'_> {
    fn drop(&mut self) {
        self.rule("del");
    }
}

/// A line whose middle node reports all refusals, without a rate limit.
fn line(test: &str) -> TestLab {
    let lab = TestLab::up(test, &["line:3"]);
    for limit in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
        let write = format!("echo 0 > /proc/sys/net/{limit}");
        let output = lab.exec("n2", &["sh", "-c", &write]);
        assert!(output.status.success(), "{write} {}", said(&output));
    }
    lab
}

fn url(scheme: &str, host: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{scheme}://{host}:7001")
}

/// Starts a relay in n1 for clients in n1.
fn relay(lab: &TestLab, to: &str, how: &[&str]) -> Running {
    let ends = ["relay", "--json", "--listen", "udp://127.0.0.1:7001", "--to", to];
    Running::start(lab, "n1", "relaying", &[&ends[..], how].concat())
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2_048];
    let len = socket.recv(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

fn value(summary: &Value, name: &str) -> u64 {
    summary["values"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {summary}"))
}

fn warnings(summary: &Value) -> String {
    summary["trust"]["warnings"].to_string()
}

#[test]
fn relay_sends_every_packet_despite_icmp_errors() {
    const PACKETS: u64 = 20;
    if !as_root() {
        return;
    }
    let lab = line("icmp-relay");
    let far = lab.socket("n3", "[::]:7001");
    let engines: [&[&str]; 5] = [
        &["--busy-poll"],
        &["--engine", "batch", "--merge"],
        &["--engine", "batch", "--busy-poll", "--stamps", "user"],
        &["--engine", "batch"],
        &[],
    ];
    for (host, kind) in REFUSALS {
        for how in engines {
            let relay = relay(&lab, &url("udp", host), how);
            let refusal = Refusal::at(&lab, "n2", host, kind);
            let client = lab.socket("n1", "127.0.0.1:0");
            for _ in 0..PACKETS {
                client.send_to(b"refused", "127.0.0.1:7001").unwrap();
            }
            wait_until_read(&lab);
            drop(refusal);
            let witness = lab.socket("n1", "127.0.0.1:0");
            witness.send_to(b"passes", "127.0.0.1:7001").unwrap();
            while receive(&far) != b"passes" {}
            let summary = relay.end();
            let counts = |name| value(&summary, name);
            let what = format!("{host} {kind} {how:?}: {summary}");
            assert_eq!(counts("received_forward"), PACKETS + 1, "{what}");
            assert_eq!(counts("relayed_forward"), PACKETS + 1, "{what}");
            assert_eq!(counts("send_failed") + counts("too_long"), 0, "{what}");
            // Over IPv4 the kernel reports five times, then once a second (net/ipv4/route.c,
            // ip_error).
            let always = host.contains(':');
            assert!(counts("icmp_errors") >= u64::from(always), "{what}");
        }
    }
}

#[test]
fn ping_and_traffic_send_every_packet_despite_icmp_errors() {
    if !as_root() {
        return;
    }
    let lab = line("icmp-ends");
    for (host, kind) in REFUSALS {
        let _refusal = Refusal::at(&lab, "n2", host, kind);
        let target = url("stamp", host);
        let ping = [DWELL, "ping", &target, "-c", "5", "-i", "20ms", "-w", "100ms", "--json"];
        let traffic = url("udp", host);
        let traffic = [DWELL, "load", "traffic", &traffic, "--rate", "200pps", "--count", "20"];
        for (command, sent) in [(&ping[..], 5), (&[&traffic[..], &["--json"]].concat(), 20)] {
            let output = lab.exec("n1", command);
            let summary: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|e| panic!("{host} {kind} {command:?} {e}: {}", said(&output)));
            let counts = if sent == 5 { &summary["packets"] } else { &summary["values"] };
            let field = if sent == 5 { "sent" } else { "packets" };
            assert_eq!(counts[field], sent, "{host} {kind} {command:?} {summary}");
            assert_eq!(counts["send_failed"], 0, "{host} {kind} {command:?} {summary}");
        }
    }
}

/// Runs a ping that gets no reply; returns its standard error. It sends two probes: over IPv4 the
/// kernel reports refusals five times, then once a second (net/ipv4/route.c, ip_error).
fn refused_ping(lab: &TestLab, target: &str, more: &[&str]) -> String {
    let ping = [DWELL, "ping", target, "-c", "2", "-i", "20ms", "-W", "0.3", "--json"];
    let output = lab.exec("n1", &[&ping[..], &["--warm-up", "0"], more].concat());
    assert_eq!(output.status.code(), Some(1), "{target} {}", said(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = warnings(&summary);
    let said = said(&output);
    assert!(
        said.lines()
            .filter(|line| line.contains("reports"))
            .all(|line| { warnings.contains(line.trim_start_matches("dwell: ")) }),
        "{warnings} {said}"
    );
    said
}

#[test]
fn icmp_errors_have_their_own_names_and_fitting_advice() {
    if !as_root() {
        return;
    }
    let lab = line("icmp-names");
    // By default the kernel sends one error a second after the first six. A limit of 0 would use up
    // the tokens of route errors such as prohibited, which have their own limit.
    for node in ["n2", "n3"] {
        let all = "echo 0 > /proc/sys/net/ipv4/icmp_ratemask; \
                   echo 0 > /proc/sys/net/ipv6/icmp/ratelimit";
        assert!(lab.exec(node, &["sh", "-c", all]).status.success());
    }
    for host in ["198.19.0.3", "fd64:7765:6c6c:ffff::3"] {
        let (stamp, tcp) = (url("stamp", host), url("tcp", host));
        let icmp = stamp.replace("stamp", "icmp").replace(":7001", "");
        for target in [&stamp, &icmp] {
            let said = refused_ping(&lab, target, &["-t", "1"]);
            assert!(said.contains("time exceeded in transit"), "{target} {said}");
            assert!(said.contains("larger -t"), "{target} {said}");
            assert!(!said.contains("No route to host"), "{target} {said}");
            assert!(!said.contains("reflector running"), "{target} {said}");
        }
        let said = refused_ping(&lab, &stamp, &[]);
        assert!(said.contains("port unreachable"), "{said}");
        assert!(said.contains(&format!("dwell reflect {stamp}")), "{said}");
        let refusal = Refusal::at(&lab, "n2", host, "prohibit");
        for target in [&stamp, &icmp] {
            let said = refused_ping(&lab, target, &[]);
            assert!(said.contains("prohibited") && said.contains("firewall"), "{target} {said}");
        }
        drop(refusal);
        let output = lab.exec("n1", &[DWELL, "ping", &tcp, "-t", "1", "-W", "2"]);
        let text = crate::fixture::said(&output);
        assert!(text.contains("time exceeded in transit"), "{tcp} {text}");
        assert!(!text.contains("No route to host"), "{tcp} {text}");
    }
}

#[test]
fn client_without_route_evicts_no_flow_and_names_the_cause() {
    const CLIENTS: u64 = 5;
    if !as_root() {
        return;
    }
    let lab = TestLab::up("no-route", &["line:2"]);
    let far = lab.socket("n2", "198.19.0.2:7001");
    let client = |text: &str| {
        let socket = lab.socket("n1", "127.0.0.1:0");
        socket.send_to(text.as_bytes(), "127.0.0.1:7001").unwrap();
        socket
    };
    for (kind, reason) in
        [("unreachable", "Network is unreachable"), ("prohibit", "Permission denied")]
    {
        let relay = relay(&lab, "udp://198.19.0.2:7001", &[]);
        let old: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let socket = client("old");
                let (_, from) = far.recv_from(&mut [0; 16]).unwrap();
                (socket, from)
            })
            .collect();
        let refusal = Refusal::at(&lab, "n1", "198.19.0.2", kind);
        let new: Vec<_> = (0..CLIENTS).map(|_| client("new")).collect();
        wait_until_read(&lab);
        drop(refusal);
        for (socket, before) in &old {
            socket.send_to(b"again", "127.0.0.1:7001").unwrap();
            let (_, from) = far.recv_from(&mut [0; 16]).unwrap();
            assert_eq!(from, *before, "the client's flow is still there");
        }
        drop(new);
        let summary = relay.end();
        assert_eq!(value(&summary, "flows_evicted"), 0, "{summary}");
        assert_eq!(value(&summary, "flows_refused"), CLIENTS, "{summary}");
        let warnings = warnings(&summary);
        assert!(warnings.contains(reason), "{warnings}");
        assert!(!warnings.contains("memory") && !warnings.contains("--flows"), "{warnings}");
    }
}

/// Waits until the relay has read all packets: column `rx_queue` of /proc/net/udp.
fn wait_until_read(lab: &TestLab) {
    crate::fixture::until("the relay reads its packets", || {
        let output = lab.exec("n1", &["cat", "/proc/net/udp"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let listener = text.lines().find(|line| line.contains(":1B59 00000000:0000"));
        listener.is_some_and(|line| line.contains(":00000000 "))
    });
}

#[test]
fn encrypted_packet_above_the_mtu_is_counted() {
    if !as_root() {
        return;
    }
    let lab = line("icmp-mtu");
    let far = lab.socket("n3", "[::]:7001");
    let client = lab.socket("n1", "127.0.0.1:0");
    let send = |len: usize| client.send_to(&vec![0; len], "127.0.0.1:7001").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let encrypt = ["--mode", "encrypt", "--key-file", key.to_str().unwrap()];
    let payloads = [("198.19.0.3", 1_472), ("fd64:7765:6c6c:ffff::3", 1_452)];
    for (cipher, longer) in [("aes-128-ctr", 12), ("aes-128-gcm", 28)] {
        for ((host, mtu), engine) in
            payloads.iter().flat_map(|payload| ["socket", "batch"].map(|engine| (payload, engine)))
        {
            let how = [&encrypt[..], &["--engine", engine, "--cipher", cipher]].concat();
            let relay = relay(&lab, &url("udp", host), &how);
            let most = mtu - longer;
            send(most + 1);
            send(most);
            assert_eq!(receive(&far).len(), *mtu, "{host} {engine} {cipher}");
            let summary = relay.end();
            let counts = |name| value(&summary, name);
            assert_eq!((counts("too_long"), counts("relayed_forward")), (1, 1), "{summary}");
        }
    }
    // The last link has a smaller MTU, which the node before it reports.
    let narrow = lab.exec("n2", &["ip", "link", "set", "dev", "n3", "mtu", "1400"]);
    assert!(narrow.status.success(), "{}", said(&narrow));
    let relay = relay(&lab, &url("udp", "198.19.0.3"), &encrypt);
    for _ in 0..5 {
        send(1_460);
        wait_until_read(&lab);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    send(1_300);
    assert_eq!(receive(&far).len(), 1_312);
    let summary = relay.end();
    let counts = |name| value(&summary, name);
    assert_eq!(counts("too_long") + counts("relayed_forward"), 6, "{summary}");
    assert!(counts("too_long") + counts("icmp_errors") > 0, "{summary}");
}
