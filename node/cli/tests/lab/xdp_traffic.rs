//! `dwell reflect --engine xdp` under unusual traffic, and when its interface disappears.

use std::process::{Command, Stdio};

use dwell_io::batch::{Batch, Parcel};
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::SocketOptions;
use dwell_io::{interface, netns};

use crate::fixture::{DWELL, TestLab, as_root, said, until};
use crate::xdp_frames::stamp;
use crate::xdp_reflector::{HOSTS, reflect};

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
