//! `dwell reflect --engine xdp` on a link of a lab, as a command.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use dwell_io::bpf::{Hook, Pass, XdpMode};
use dwell_io::{interface, netns};
use serde_json::Value;

use crate::fixture::{
    DWELL, Running, TestLab, as_root, assert_follows, has, kill, said, skip, until,
};

pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) const HOSTS: [&str; 2] = ["198.19.0.2", "[fd64:7765:6c6c:ffff::2]"];

/// Name and index of the link of a node.
pub(crate) fn link(lab: &TestLab, node: &str) -> (String, u32) {
    netns::within(&lab.netns(node), || {
        let all = interface::all().unwrap();
        let found =
            all.into_iter().find(|found| found.up && found.driver.as_deref() == Some("veth"));
        found.map(|found| (found.name, found.index)).expect("a link")
    })
    .unwrap()
}

/// Ethernet address of the link of a node.
pub(crate) fn ethernet_address(lab: &TestLab, node: &str) -> [u8; 6] {
    let (_, index) = link(lab, node);
    let address = netns::within(&lab.netns(node), || interface::ethernet_address(index));
    address.unwrap().unwrap().expect("a link of Ethernet frames")
}

/// Bytes as an argument for a Python program.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn xdp_program(lab: &TestLab, node: &str) -> Option<u32> {
    let (_, index) = link(lab, node);
    netns::within(&lab.netns(node), || interface::xdp_program(index).unwrap()).unwrap()
}

fn urls() -> Vec<String> {
    let of = |host: &str| {
        let ports = ["stamp", "udp", "roundtrip"].iter().zip(7_001..);
        let mut urls: Vec<_> =
            ports.map(|(scheme, port)| format!("{scheme}://{host}:{port}")).collect();
        urls.push(format!("icmp://{host}"));
        urls
    };
    HOSTS.iter().flat_map(|host| of(host)).collect()
}

/// Starts a reflector in node n2 on its link.
pub(crate) fn reflect(lab: &TestLab, more: &[&str]) -> Running {
    let (name, _) = link(lab, "n2");
    let urls = urls();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let arguments = [&["reflect", "--json", "--interface", &name][..], &urls, more].concat();
    Running::start(lab, "n2", "listening on", &arguments)
}

pub(crate) fn ping(lab: &TestLab, url: &str, more: &[&str]) -> Value {
    let arguments = [&[DWELL, "ping", url, "--json", "-i", "1ms", "-W", "1"][..], more].concat();
    let output = lab.exec("n1", &arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{url} {}", said(&output)))
}

fn assert_all_answered(lab: &TestLab) {
    for url in urls() {
        let result = ping(lab, &url, &["-c", "100"]);
        assert_eq!(result["packets"]["received"], 100, "{url} {result}");
        if url.starts_with("stamp") {
            assert_eq!(result["metrics"]["residence_ns"]["count"], 100);
            assert_eq!(result["metrics"]["one_way_forward_ns"]["count"], 100, "one clock");
        }
    }
}

/// A program that passes every packet, on the link of node n1 while `within` runs.
fn with_peer_program(lab: &TestLab, within: impl FnOnce()) {
    let (_, index) = link(lab, "n1");
    let pass = Pass::load(Hook::Xdp).unwrap();
    let attached =
        netns::within(&lab.netns("n1"), || pass.attach_xdp(index, XdpMode::Native)).unwrap();
    let attached = attached.unwrap();
    within();
    drop(attached);
}

#[test]
fn driver_answers_every_protocol_in_both_modes() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-reflect", &["line:2"]);
    for (more, engine) in [
        (&["--engine", "xdp"][..], "xdp generic"),
        (&["--engine", "auto"], "xdp generic"),
        (&["--engine", "xdp", "--xdp-mode", "native"], "xdp native"),
    ] {
        let mut summary = Value::Null;
        with_peer_program(&lab, || {
            let server = reflect(&lab, more);
            assert_all_answered(&lab);
            summary = server.end();
        });
        assert_follows("dwell.summary-1", &summary);
        assert_eq!(summary["engine"], engine, "{more:?}");
        let values = &summary["values"];
        for scheme in ["stamp", "udp", "roundtrip", "icmp"] {
            // 100 probes and warm-up, over IPv4 and IPv6.
            let replies = values[format!("driver_{scheme}_replies")].as_u64().unwrap();
            assert!((200..=220).contains(&replies), "{engine} {scheme} {values}");
            assert_eq!(values[format!("driver_{scheme}_bad_checksum")], 0, "{engine} {values}");
        }
        assert_eq!((&values["malformed"], &values["to_socket"]), (&0.into(), &0.into()));
        assert!(values["t3_bias_ns"].as_u64().unwrap() > 1_000, "{values}");
        assert_eq!(summary["trust"]["warnings"], serde_json::json!([]), "{engine}");
        assert_eq!(xdp_program(&lab, "n2"), None, "detached");
    }
}

#[test]
fn lost_native_replies_are_explained_and_auto_falls_back() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-lost", &["line:2"]);
    // Without NAPI at the peer, native replies fail.
    let (name, _) = link(&lab, "n1");
    if has("ethtool") {
        lab.exec("n1", &["ethtool", "-K", &name, "gro", "off"]);
    }
    for (engine, expected) in [("xdp", "xdp native"), ("auto", "xdp generic")] {
        let server = reflect(&lab, &["--engine", engine, "--xdp-mode", "native"]);
        let first = ping(&lab, "stamp://198.19.0.2:7001", &["-c", "1000"]);
        let second = ping(&lab, "stamp://198.19.0.2:7001", &["-c", "100"]);
        let summary = server.end();
        let warnings = summary["trust"]["warnings"].to_string();
        assert_eq!(summary["engine"], expected, "{summary}");
        assert!(warnings.contains("its peer has no XDP program"), "{summary} {first}");
        let received = if engine == "auto" { 100 } else { 0 };
        assert_eq!(second["packets"]["received"], received, "{engine} {summary}");
    }
}

#[test]
fn auto_engine_without_xdp_answers_by_sockets() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-none", &["line:2"]);
    // Frames of a tun interface have no Ethernet header.
    for command in [
        &["ip", "tuntap", "add", "dev", "plain0", "mode", "tun"][..],
        &["ip", "link", "set", "plain0", "up"],
    ] {
        let output = lab.exec("n2", command);
        if !output.status.success() {
            skip("the kernel has no tun interfaces");
            return;
        }
    }
    let urls = urls();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let arguments = [&["reflect", "--json", "--interface", "plain0"][..], &urls].concat();
    let arguments = [&arguments[..], &["--engine", "auto"]].concat();
    let server = Running::start(&lab, "n2", "::2] (the kernel answers)", &arguments);
    let answered = |url: &str| ping(&lab, url, &["-c", "20"])["packets"]["received"].clone();
    for url in &urls {
        assert_eq!(answered(url), 20, "{url}");
    }
    let summary = server.end();
    assert_follows("dwell.summary-1", &summary);
    assert_eq!(summary["engine"], "socket");
    let warning = &summary["trust"]["warnings"][0];
    assert_eq!(warning["code"], "xdp-unavailable", "{summary}");
    let reason = "interface plain0 has no Ethernet frames";
    assert!(warning["text"].as_str().unwrap().ends_with(reason), "{warning}");
    assert!(summary["parameters"]["xdp_reason"].as_str().unwrap().ends_with(reason), "{summary}");
    // STAMP, UDP and round-trip messages over both families, with or without warm-up.
    let replies = summary["values"]["replies"].as_u64().unwrap();
    assert!((120..=180).contains(&replies), "{summary}");
    assert_eq!(summary["values"].get("to_socket"), None, "{summary}");
    // Neither usage errors nor --engine xdp fall back.
    let refused = |arguments: &[&str]| {
        let output = lab.exec("n2", &[&[DWELL, "reflect"], arguments].concat());
        (output.status.code(), said(&output))
    };
    let on = ["--interface", "plain0", "--engine"];
    let (code, text) = refused(&[&["icmp://198.19.0.2"], &on[..], &["xdp"]].concat());
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("use --engine socket") && text.contains(reason), "{text}");
    let (code, text) = refused(&[&["icmp://192.0.2.77"], &on[..], &["auto"]].concat());
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn killed_reflector_leaves_no_program() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-kill", &["line:2"]);
    let (name, _) = link(&lab, "n2");
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "reflect"])
        .args(["icmp://0.0.0.0", "--engine", "xdp", "--interface", &name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the program is attached", || xdp_program(&lab, "n2").is_some());
    kill(&mut child);
    until("the program is gone", || xdp_program(&lab, "n2").is_none());
}

#[test]
fn quiet_reflector_prints_no_line_about_its_engine() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-quiet", &["line:2"]);
    let (name, _) = link(&lab, "n2");
    let child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "reflect", "-q"])
        .args(["icmp://0.0.0.0", "--engine", "xdp", "--interface", &name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the program is attached", || xdp_program(&lab, "n2").is_some());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
}

#[test]
fn bad_interfaces_are_refused_with_the_reason() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-bad", &["line:2"]);
    let (name, index) = link(&lab, "n2");
    let add = ["ip", "link", "add", "idle0", "type", "veth", "peer", "name", "idle1"];
    assert!(lab.exec("n2", &add).status.success());
    let refused = |arguments: &[&str]| -> (Option<i32>, String) {
        let output: Output = lab.exec("n2", &[&[DWELL, "reflect"], arguments].concat());
        (output.status.code(), said(&output))
    };
    let on = |name: &str| refused(&["icmp://0.0.0.0", "--engine", "xdp", "--interface", name]);
    let expect = |(code, text): (Option<i32>, String), expected: i32, part: &str| {
        assert_eq!(code, Some(expected), "{text}");
        assert!(text.contains(part), "{text}");
    };
    expect(on("none0"), 2, "does not exist; interfaces here: lo");
    expect(on("idle0"), 1, "is down; run: ip link set idle0 up");
    for engine in ["xdp", "auto"] {
        let needed = format!("--engine {engine} needs --interface");
        expect(refused(&["icmp://0.0.0.0", "--engine", engine]), 2, &needed);
    }
    expect(refused(&["icmp://0.0.0.0"]), 2, "--engine xdp answers them");
    expect(refused(&["udp://127.0.0.1:7", "--interface", "lo"]), 2, "is for --engine xdp");
    let foreign = ["icmp://192.0.2.77", "--engine", "xdp", "--interface", &name];
    expect(refused(&foreign), 2, "not an address of this machine");
    let stream = ["tcp://127.0.0.1:7000", "--engine", "xdp", "--interface", &name];
    expect(refused(&stream), 2, "answers stamp://");
    // Another program, in either mode.
    let pass = Pass::load(Hook::Xdp).unwrap();
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let attached = netns::within(&lab.netns("n2"), || pass.attach_xdp(index, mode)).unwrap();
        expect(on(&name), 1, "is attached");
        drop(attached);
    }
    let server = reflect(&lab, &["--engine", "xdp"]);
    expect(on(&name), 1, "'reflect_probes' is attached");
    drop(server.end());
}

#[test]
fn unprivileged_driver_engine_exits_with_the_remedy() {
    if !as_root() {
        return;
    }
    if !has("setpriv") {
        return;
    }
    for engine in ["xdp", "auto"] {
        let output = Command::new("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", "--clear-groups", "--reuid=65534"])
            .args(["--", DWELL, "reflect", "icmp://0.0.0.0", "--engine", engine])
            .args(["--interface", "lo"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(said(&output).contains("run it as root"), "{}", said(&output));
    }
}

/// The value in nanoseconds of an error estimate (RFC 8762 4.2.1, RFC 4656 4.1.2).
fn error_estimate(bytes: [u8; 2]) -> u64 {
    let [scale, multiplier] = bytes;
    let units = u128::from(multiplier) << (scale & 0x3f);
    u64::try_from((units * 1_000_000_000) >> 32).unwrap()
}

#[test]
fn error_estimate_of_replies_covers_the_bias_of_t3() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-error", &["line:2"]);
    for mode in ["generic", "native"] {
        with_peer_program(&lab, || {
            let server = reflect(&lab, &["--engine", "xdp", "--xdp-mode", mode]);
            let socket = lab.socket("n1", "0.0.0.0:0");
            socket.connect("198.19.0.2:7001").unwrap();
            socket.send(&crate::xdp_frames::stamp(1, 5, 44)).unwrap();
            let mut reply = [0; 44];
            assert_eq!(socket.recv(&mut reply).unwrap(), 44);
            let values = server.end()["values"].clone();
            assert_eq!(values["driver_stamp_replies"], 1, "{mode} {values}");
            let bias = values["t3_bias_ns"].as_u64().unwrap();
            let error = error_estimate([reply[12], reply[13]]);
            assert!(error >= bias, "{mode}: an error of {error} ns, {values}");
        });
    }
}

#[test]
fn fragments_and_unknown_tlvs_reach_the_socket() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-socket", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    // Fragments are answered by the socket.
    let result = ping(&lab, "udp://198.19.0.2:7002", &["-c", "20", "-s", "4000", "--warm-up", "0"]);
    assert_eq!(result["packets"]["received"], 20, "{result}");
    // A session moves to the socket with its counter.
    let socket: UdpSocket = lab.socket("n1", "0.0.0.0:0");
    socket.connect("198.19.0.2:7001").unwrap();
    let mut numbers = Vec::new();
    for (seq, is_known) in [(0, true), (1, true), (2, false), (3, true)] {
        let mut packet = crate::xdp_frames::stamp(seq, 77, 60);
        if !is_known {
            // Timestamp information.
            packet[45] = 3;
        }
        socket.send(&packet).unwrap();
        let mut reply = [0; 60];
        assert_eq!(socket.recv(&mut reply).unwrap(), 60);
        numbers.push(u32::from_be_bytes(reply[..4].try_into().unwrap()));
    }
    assert_eq!(numbers, [0, 1, 2, 3]);
    let values = server.end()["values"].clone();
    // The first fragment of each of 20 probes, and two packets of the session.
    assert_eq!((&values["driver_stamp_replies"], &values["to_socket"]), (&2.into(), &22.into()));
    assert_eq!(values["driver_udp_replies"], 0);
    assert_eq!(values["replies"], 24, "{values}");
}

#[test]
fn tagged_frames_are_answered() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-vlan", &["line:2"]);
    for (node, address) in [("n1", "203.0.113.1/24"), ("n2", "203.0.113.2/24")] {
        let (name, _) = link(&lab, node);
        for command in [
            vec!["ip", "link", "add", "link", &name, "name", "tag5", "type", "vlan", "id", "5"],
            vec!["ip", "addr", "add", address, "dev", "tag5"],
            vec!["ip", "link", "set", "tag5", "up"],
        ] {
            let output = lab.exec(node, &command);
            if !output.status.success() {
                skip("the kernel has no VLAN interfaces");
                return;
            }
        }
    }
    let (name, _) = link(&lab, "n2");
    let arguments = ["reflect", "--json", "--engine", "xdp", "--interface", &name];
    let server = Running::start(
        &lab,
        "n2",
        "listening on",
        &[&arguments[..], &["udp://0.0.0.0:7002"]].concat(),
    );
    let result = ping(&lab, "udp://203.0.113.2:7002", &["-c", "50", "--warm-up", "0"]);
    assert_eq!(result["packets"]["received"], 50, "{result}");
    assert_eq!(server.end()["values"]["driver_udp_replies"], 50);
}

/// Sends 50 tagged echo requests as raw frames, and prints the number of tagged replies. Arguments:
/// interface, MAC address of the far end, addresses of both ends, port.
const SEND_TAGGED: &str = "
import socket, struct, sys, time
name, far_mac, near, far, port = sys.argv[1:]
packet_auxdata, sol_packet, vlan_valid = 8, 263, 0x10
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((name, 0))
s.setsockopt(sol_packet, packet_auxdata, 1)
s.settimeout(0.1)
near_mac, far_mac = s.getsockname()[4], bytes.fromhex(far_mac)
near, far = socket.inet_aton(near), socket.inet_aton(far)
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def packet(source, target, ports, ttl, payload):
    udp = struct.pack('!HHHH', *ports, 8 + len(payload), 0)
    pseudo = source + target + struct.pack('!HH', 17, len(udp) + len(payload))
    udp = udp[:6] + struct.pack('!H', checksum(pseudo + udp + payload)) + payload
    header = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 0, 0x4000, ttl, 17, 0) + source + target
    return header[:10] + struct.pack('!H', checksum(header)) + header[12:] + udp
awaited = {}
for n in range(50):
    payload = struct.pack('!I', n) + bytes(60)
    request = packet(near, far, (40000, int(port)), 64, payload)
    awaited[packet(far, near, (int(port), 40000), 63, payload)] = n
    s.send(far_mac + near_mac + struct.pack('!HHH', 0x8100, 5, 0x0800) + request)
end = time.monotonic() + 5
while awaited and time.monotonic() < end:
    try:
        frame, control, _, address = s.recvmsg(2048, 256)
    except TimeoutError:
        continue
    if address[2] == socket.PACKET_OUTGOING or frame[:12] != near_mac + far_mac:
        continue
    status, _, _, _, _, tag, _ = struct.unpack('=IIIHHHH', control[0][2][:20])
    if status & vlan_valid and tag & 0xfff == 5:
        awaited.pop(frame[14:], None)
print(50 - len(awaited))
";

#[test]
fn raw_tagged_frames_are_answered_with_their_tag() {
    if !as_root() {
        return;
    }
    if !Path::new(PYTHON).exists() {
        skip("python3 is not installed (make setup)");
        return;
    }
    let lab = TestLab::up("xdp-raw-tag", &["line:2"]);
    let (near, _) = link(&lab, "n1");
    let mac = hex(&ethernet_address(&lab, "n2"));
    for mode in ["generic", "native"] {
        with_peer_program(&lab, || {
            let server = reflect(&lab, &["--engine", "xdp", "--xdp-mode", mode]);
            let arguments =
                [PYTHON, "-c", SEND_TAGGED, &near, &mac, "198.19.0.1", HOSTS[0], "7002"];
            let output = lab.exec("n1", &arguments);
            let answered = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            assert_eq!(answered, "50", "{mode} {}", said(&output));
            assert_eq!(server.end()["values"]["driver_udp_replies"], 50, "{mode}");
        });
    }
}

#[test]
fn foreign_stamp_sender_is_answered_in_the_driver() {
    if !as_root() {
        return;
    }
    let target = Path::new(DWELL).parent().and_then(Path::parent).unwrap();
    let peer = target.join("peers/bin/stamp-suite");
    if !peer.exists() {
        skip("stamp-suite is not built (make peers)");
        return;
    }
    let lab = TestLab::up("xdp-peer", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    let peer = peer.to_str().unwrap();
    for (remote, any) in [("198.19.0.2", "0.0.0.0"), ("fd64:7765:6c6c:ffff::2", "::")] {
        let arguments =
            [peer, "-r", remote, "-S", any, "-p", "7001", "-c", "10", "-d", "10", "-A", "O"];
        let output = lab.exec("n1", &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Packets received: 10"), "{text} {}", said(&output));
    }
    let values = server.end()["values"].clone();
    assert_eq!(values["driver_stamp_replies"], 20, "{values}");
    assert_eq!((&values["replies"], &values["to_socket"]), (&20.into(), &0.into()), "{values}");
}

#[test]
fn fping_is_answered_in_the_driver() {
    if !as_root() || !has("fping") {
        return;
    }
    let lab = TestLab::up("xdp-fping", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    for host in ["198.19.0.2", "fd64:7765:6c6c:ffff::2"] {
        let output = lab.exec("n1", &["fping", "-q", "-c", "50", "-p", "10", "-t", "5000", host]);
        let text = said(&output);
        assert!(text.contains("xmt/rcv/%loss = 50/50/0%"), "{text}");
    }
    let values = server.end()["values"].clone();
    assert_eq!(values["driver_icmp_replies"], 100, "{values}");
    assert_eq!((&values["malformed"], &values["to_socket"]), (&0.into(), &0.into()));
}
