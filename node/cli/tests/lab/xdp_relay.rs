//! The XDP relay at the middle node of a line.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

use dwell_io::bpf::{BpfError, Checksums, XdpRelay, XdpRelaySpec};
use dwell_io::{interface, netns};
use dwell_units::Nanos;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fixture::{TestLab, as_root};

fn spec(flows: u16, checksums: Checksums, interfaces: Vec<u32>) -> XdpRelaySpec {
    let listen: SocketAddrV4 = "198.19.0.2:7001".parse().unwrap();
    let to = "198.19.0.3:7001".parse().unwrap();
    XdpRelaySpec { listen, to, interfaces, flows, idle: Nanos::from_secs(60), checksums }
}

/// Starts a relay in node n2.
fn relay(lab: &TestLab, flows: u16, checksums: Checksums) -> XdpRelay {
    netns::within(&lab.netns("n2"), || {
        let all = interface::all().unwrap();
        let links = all.iter().filter(|found| found.up && found.name != "lo");
        let links = links.map(|found| found.index).collect();
        XdpRelay::start(&spec(flows, checksums, links)).unwrap()
    })
    .unwrap()
}

fn exchange(near: &UdpSocket, far: &UdpSocket, text: &[u8]) -> SocketAddr {
    let mut buffer = [0; 2_048];
    near.send_to(text, "198.19.0.2:7001").unwrap();
    let (len, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], text, "only addresses change");
    far.send_to(b"and back", from).unwrap();
    let (len, back) = near.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], back), (&b"and back"[..], "198.19.0.2:7001".parse().unwrap()));
    from
}

#[test]
fn xdp_relay_gives_each_client_a_port_both_ways() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-relay", &["line:3"]);
    let relay = relay(&lab, 8, Checksums::ByDriver);
    let far = lab.socket("n3", "0.0.0.0:7001");
    let clients: Vec<_> = (0..4).map(|_| lab.socket("n1", "0.0.0.0:0")).collect();
    for round in 0..10 {
        for client in &clients {
            let from = exchange(client, &far, &vec![round; 100 + usize::from(round) * 100]);
            let port = client.local_addr().unwrap().port();
            let flows = relay.flows().unwrap();
            let flow = flows.iter().find(|flow| flow.client.port() == port).expect("its flow");
            assert_eq!((SocketAddr::V4(flow.out), flow.packets), (from, u64::from(round) + 1));
        }
    }
    let counters = relay.counters().unwrap();
    assert_eq!((counters.forward, counters.backward, counters.flows), (40, 40, 4));
    assert_eq!((counters.evicted, counters.no_way), (0, 0));
    // Packets for other ports pass to the node's own sockets.
    let other = lab.socket("n2", "0.0.0.0:7002");
    clients[0].send_to(b"other", "198.19.0.2:7002").unwrap();
    assert_eq!(other.recv(&mut [0; 16]).unwrap(), 5);
    drop(relay);
    let own = lab.socket("n2", "0.0.0.0:7001");
    clients[0].send_to(b"own", "198.19.0.2:7001").unwrap();
    assert_eq!(own.recv(&mut [0; 16]).unwrap(), 3, "the relay has ended");
}

#[test]
fn xdp_relay_evicts_the_longest_idle_clients() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-flood", &["line:3"]);
    let relay = relay(&lab, 4, Checksums::ByDriver);
    let far = lab.socket("n3", "0.0.0.0:7001");
    let clients: Vec<_> = (0..12).map(|_| lab.socket("n1", "0.0.0.0:0")).collect();
    for client in &clients {
        exchange(client, &far, b"hello");
    }
    let counters = relay.counters().unwrap();
    assert_eq!((counters.flows, counters.evicted), (12, 8));
    let mut known: Vec<_> = relay.flows().unwrap().iter().map(|flow| flow.client.port()).collect();
    let mut last: Vec<_> =
        clients[8..].iter().map(|client| client.local_addr().unwrap().port()).collect();
    known.sort_unstable();
    last.sort_unstable();
    assert_eq!(known, last);
    // An evicted client is a new flow when it sends again.
    exchange(&clients[0], &far, b"again");
    assert_eq!(relay.counters().unwrap().flows, 13);
    let too_many = XdpRelay::start(&spec(0, Checksums::ByDriver, Vec::new()));
    assert!(matches!(too_many, Err(BpfError::Refused { .. })));
}

#[test]
fn xdp_relay_updates_checksums_correctly() {
    if !as_root() {
        return;
    }
    // Packets that leave by a TAP interface have complete checksums, and arriving ones are
    // verified.
    let lab = TestLab::up("xdp-sums", &["line:3", "--mechanism", "tap", "--delay", "100us"]);
    let relay = relay(&lab, 8, Checksums::Updated);
    let (near, far) = (lab.socket("n1", "0.0.0.0:0"), lab.socket("n3", "0.0.0.0:7001"));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for size in 1..300 {
        let mut payload = vec![0; size];
        rng.fill_bytes(&mut payload);
        exchange(&near, &far, &payload);
    }
    assert_eq!(relay.counters().unwrap().backward, 299);
}
