//! `dwell reflect --engine xdp` under unusual traffic, and when its interface disappears.

use std::net::{SocketAddr, SocketAddrV6};
use std::process::{Command, Stdio};

use dwell_io::batch::{Batch, Parcel};
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::SocketOptions;
use dwell_io::{interface, netns};
use dwell_wire::tlv::kind;

use crate::fixture::{DWELL, Running, TestLab, as_root, said, until};
use crate::xdp_frames::stamp;
use crate::xdp_reflector::{HOSTS, link, reflect};

/// Number of datagrams of one UDP_SEGMENT message, which together are shorter than the MTU.
const MERGED: usize = 20;

/// Makes the payload of the request with a number.
type MakeRequest<'a> = &'a dyn Fn(u32) -> Vec<u8>;

#[test]
fn merged_datagrams_below_the_mtu_are_all_answered() {
    const MESSAGES: u32 = 10;
    if !as_root() {
        return;
    }
    let roundtrip = |n: u32| [&n.to_be_bytes()[..], &[7; 16], b"REQ\0"].concat();
    let requests: [(u16, MakeRequest<'_>); 3] = [
        (7_001, &|n| stamp(n, 5, 64)),
        (7_002, &|n| n.to_be_bytes().repeat(15)),
        (7_003, &roundtrip),
    ];
    let lab = TestLab::up("xdp-merged", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp", "--xdp-mode", "generic"]);
    for host in HOSTS {
        for (port, request) in &requests {
            let to = format!("{host}:{port}").parse().unwrap();
            let options = SocketOptions { merge: true, ..SocketOptions::relay() };
            let connect = || DatagramSocket::connect(to, &options);
            let mut socket = netns::within(&lab.netns("n1"), connect).unwrap().unwrap();
            let mut batch = Batch::new(MERGED, 0);
            let mut sent = Vec::new();
            let mut answered = Vec::new();
            for message in 0..MESSAGES {
                let numbers = (message * MERGED as u32..).take(MERGED);
                let parcels = numbers.zip(0..).map(|(number, n)| {
                    let request = request(number);
                    let at = 0..request.len();
                    batch.buffer(n)[at.clone()].copy_from_slice(&request);
                    sent.push(number);
                    Parcel { n, at, to: None }
                });
                let parcels: Vec<_> = parcels.collect();
                batch.send(&mut socket, &parcels, &mut |_, outcome, _| {
                    outcome.unwrap();
                });
                until("all are answered", || {
                    for n in 0..batch.receive(&socket).unwrap_or(0) {
                        let (_, reply) = batch.datagram(n, &socket);
                        answered.push(u32::from_be_bytes(reply[..4].try_into().unwrap()));
                    }
                    answered.len() >= sent.len()
                });
            }
            // The number of a STAMP reply is that of its session, which also counts from 0.
            assert_eq!(answered, sent, "{to}");
        }
    }
    let values = server.end()["values"].clone();
    let messages = 6 * MESSAGES;
    // The program leaves whole messages to the sockets.
    assert_eq!((&values["to_socket"], &values["malformed"]), (&messages.into(), &0.into()));
    assert_eq!(values["replies"], messages * MERGED as u32, "{values}");
}

#[test]
fn probes_to_groups_get_no_reply() {
    const PROBES: u32 = 10;
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-groups", &["line:2"]);
    for (node, address) in [("n1", "203.0.113.1/24"), ("n2", "203.0.113.2/24")] {
        let (name, _) = link(&lab, node);
        let output = lab.exec(node, &["ip", "addr", "add", address, "brd", "+", "dev", &name]);
        assert!(output.status.success(), "{}", said(&output));
    }
    let (name, _) = link(&lab, "n2");
    let arguments = ["reflect", "--json", "--engine", "xdp", "--interface", &name];
    let urls = ["stamp://0.0.0.0:7001", "stamp://[::]:7001"];
    let server = Running::start(&lab, "n2", "listening on", &[&arguments[..], &urls].concat());
    let (_, near) = link(&lab, "n1");
    let all_nodes = SocketAddrV6::new("ff02::1".parse().unwrap(), 7_001, 0, near);
    let destinations: [(&str, SocketAddr, SocketAddr); 2] = [
        ("0.0.0.0:0", "203.0.113.2:7001".parse().unwrap(), "203.0.113.255:7001".parse().unwrap()),
        ("[::]:0", "[fd64:7765:6c6c:ffff::2]:7001".parse().unwrap(), all_nodes.into()),
    ];
    for (local, unicast, group) in destinations {
        let socket = lab.socket("n1", local);
        socket.set_broadcast(true).unwrap();
        for seq in 0..PROBES {
            socket.send_to(&stamp(seq, 5, 44), group).unwrap();
        }
        // The socket receives this one after the others.
        let mut last = stamp(PROBES, 5, 60);
        last[45] = kind::TIMESTAMP_INFORMATION;
        socket.send_to(&last, unicast).unwrap();
        let mut reply = [0; 100];
        let (len, from) = socket.recv_from(&mut reply).unwrap();
        let sender_seq = u32::from_be_bytes(reply[24..28].try_into().unwrap());
        assert_eq!((len, from, sender_seq), (60, unicast, PROBES), "{group}");
    }
    let values = server.end()["values"].clone();
    assert_eq!((&values["replies"], &values["to_socket"]), (&2.into(), &2.into()), "{values}");
    assert_eq!(values["looping"], 2 * PROBES, "{values}");
    assert_eq!(values["driver_stamp_looping"], 0, "{values}");
}

#[test]
fn reflector_ends_when_its_interface_is_deleted() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-gone", &["line:2"]);
    let ip = |arguments: &[&str]| {
        let output = lab.exec("n2", &[&["ip"], arguments].concat());
        assert!(output.status.success(), "{}", said(&output));
    };
    ip(&["link", "add", "gone0", "type", "veth", "peer", "name", "gone1"]);
    ip(&["addr", "add", "203.0.113.1/24", "dev", "gone0"]);
    ip(&["link", "set", "gone0", "up"]);
    let has_program = || {
        let all = interface::all().unwrap();
        let index = all.iter().find(|found| found.name == "gone0").expect("gone0").index;
        interface::xdp_program(index).unwrap().is_some()
    };
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n2", "--", DWELL, "reflect"])
        .args(["icmp://0.0.0.0", "udp://0.0.0.0:7002", "--engine", "xdp", "--interface", "gone0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the program is attached", || netns::within(&lab.netns("n2"), has_program).unwrap());
    ip(&["link", "del", "gone0"]);
    until("the reflector ends", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("interface gone0 is gone, and the XDP program with it"), "{text}");
}
