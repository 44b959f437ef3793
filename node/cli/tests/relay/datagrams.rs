//! Datagrams through relays: assignment to clients, encryption, counters.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::fixture::{Relay, TEST_TIMEOUT, beside_others, payload, receive, socket, value};

#[test]
fn every_client_gets_its_replies_with_every_engine() {
    let _machine = beside_others();
    const CLIENTS: u8 = 20;
    let engines = [
        &["--engine", "socket"][..],
        &["--engine", "socket", "--busy-poll"],
        &["--engine", "batch"],
        &["--engine", "batch", "--busy-poll", "--stamps", "user"],
        &["--engine", "batch", "--merge"],
        &["--stamps", "user"],
    ];
    for engine in engines {
        let far = socket();
        let relay = Relay::to_socket(&far, engine);
        let clients: Vec<_> = (0..CLIENTS).map(|_| socket()).collect();
        for round in 0..3 {
            for (n, client) in clients.iter().enumerate() {
                client.send_to(&payload(n as u8 + round, 700), &relay.listen).unwrap();
            }
            for _ in &clients {
                let (mut message, from) = receive(&far);
                message.push(round);
                far.send_to(&message, from).unwrap();
            }
            for (n, client) in clients.iter().enumerate() {
                let (reply, from) = receive(client);
                assert_eq!(from.to_string(), relay.listen, "{engine:?}");
                assert_eq!(reply, [payload(n as u8 + round, 700), vec![round]].concat());
            }
        }
        let summary = relay.end();
        for name in ["received_forward", "relayed_forward", "relayed_backward"] {
            assert_eq!(value(&summary, name), 60, "{engine:?} {name}");
        }
        assert_eq!(value(&summary, "flows"), 20);
        assert_eq!(summary["metrics"]["processing_ns"]["count"], 120);
    }
}

#[test]
fn tunnel_restores_payload_and_hides_it_between() {
    let _machine = beside_others();
    tunnel(&["--engine", "socket"]);
    tunnel(&["--engine", "batch"]);
    tunnel(&["--engine", "batch", "--merge"]);
}

fn tunnel(engine: &[&str]) {
    let (far, wire) = (socket(), socket());
    let how = [engine, &["--clear", "16"]].concat();
    let decrypt = Relay::to_socket(&far, &[&["--mode", "decrypt"], &how[..]].concat());
    let encrypt = Relay::to_socket(&wire, &[&["--mode", "encrypt"], &how[..]].concat());
    let onward = socket();
    let client = socket();
    for (n, len) in [17, 64, 1_400, 1_400, 16, 3].into_iter().enumerate() {
        let original = payload(n as u8, len);
        client.send_to(&original, &encrypt.listen).unwrap();
        let (sealed, encrypt_out) = receive(&wire);
        if len > 16 {
            assert_eq!(sealed.len(), len + 12);
            assert_eq!(&sealed[..16], &original[..16]);
            // A single byte is its own ciphertext once in 256 times.
            assert!(len < 32 || !sealed.ends_with(&original[16..]), "{sealed:?}");
        } else {
            assert_eq!(sealed, original, "nothing beyond the clear bytes");
        }
        onward.send_to(&sealed, &decrypt.listen).unwrap();
        let (received, from) = receive(&far);
        assert_eq!(received, original);
        // On the way back: a salt of the other relay.
        far.send_to(&received, from).unwrap();
        let (back, _) = receive(&onward);
        if len > 16 {
            assert_eq!(back.len(), len + 12);
            assert_ne!(back[16..24], sealed[16..24], "each direction has its own salt");
        }
        wire.send_to(&back, encrypt_out).unwrap();
        assert_eq!(receive(&client).0, original);
    }
    // A packet that was not encrypted.
    onward.send_to(&[0; 20], &decrypt.listen).unwrap();
    onward.send_to(&[0; 2], &decrypt.listen).unwrap();
    assert_eq!(receive(&far).0, [0; 2], "the packet before it was dropped");
    let (encrypt, decrypt) = (encrypt.end(), decrypt.end());
    assert_eq!((value(&encrypt, "nonce_bytes"), value(&encrypt, "short")), (12, 4));
    assert_eq!((value(&decrypt, "unsealed"), value(&decrypt, "short")), (1, 5));
    assert!(encrypt["engine"].as_str().unwrap().contains("AES: "), "{}", encrypt["engine"]);
    assert_eq!(encrypt["parameters"]["clear_bytes"], 16);
}

#[test]
fn restart_uses_another_salt() {
    let _machine = beside_others();
    let wire = socket();
    let mut salts = Vec::new();
    for _ in 0..3 {
        let relay = Relay::to_socket(&wire, &["--mode", "encrypt"]);
        socket().send_to(&[9; 100], &relay.listen).unwrap();
        let (sealed, _) = receive(&wire);
        assert_eq!(sealed[20..24], [0; 4], "the first packet's counter");
        salts.push(sealed[12..20].to_vec());
    }
    salts.sort();
    salts.dedup();
    assert_eq!(salts.len(), 3);
}

#[test]
fn relay_survives_unreachable_far_end() {
    let _machine = beside_others();
    // A separate address, so that no other test's socket takes the port.
    let far = UdpSocket::bind("127.0.0.4:0").unwrap();
    let address = far.local_addr().unwrap();
    let relay = Relay::to_socket(&far, &[]);
    drop(far);
    let client = socket();
    for _ in 0..5 {
        client.send_to(b"lost", &relay.listen).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let far = UdpSocket::bind(address).unwrap();
    far.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client.send_to(b"delivered", &relay.listen).unwrap();
    // A delayed relay may have sent the last packets only now.
    let late = std::iter::from_fn(|| Some(receive(&far).0))
        .take_while(|received| received != b"delivered");
    let late = late.count() as u64;
    assert!(late < 5, "{late} of 5 packets arrived late");
    let summary = relay.end();
    assert_eq!(value(&summary, "relayed_forward"), 6, "{summary}");
    assert_eq!(value(&summary, "icmp_errors") + late, 5, "{summary}");
}

#[test]
fn oversized_encrypted_packet_is_counted() {
    let _machine = beside_others();
    let wire = socket();
    let relay = Relay::to_socket(&wire, &["--mode", "encrypt"]);
    let client = socket();
    client.send_to(&[1; 65_500], &relay.listen).unwrap();
    client.send_to(&[1; 60_000], &relay.listen).unwrap();
    assert_eq!(receive(&wire).0.len(), 60_012);
    let summary = relay.end();
    assert_eq!((value(&summary, "too_long"), value(&summary, "relayed_forward")), (1, 1));
    let warnings = summary["trust"]["warnings"].to_string();
    assert!(warnings.contains("adds 12 bytes"), "{warnings}");
}

#[test]
fn merged_packets_arrive_unchanged() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--engine", "batch", "--merge"]);
    let clients = [socket(), socket()];
    // As many packets as the receiver's socket holds.
    let lens = [100, 100, 100, 40, 100, 0, 100, 1_400, 1_400, 1_399, 100];
    let sent: Vec<_> = lens.iter().cycle().take(60).enumerate().collect();
    for (n, len) in &sent {
        clients[n / 15 % 2].send_to(&payload(*n as u8, **len), &relay.listen).unwrap();
    }
    let mut received = [Vec::new(), Vec::new()];
    let mut ports = Vec::new();
    for _ in &sent {
        let (packet, from) = receive(&far);
        if !ports.contains(&from) {
            ports.push(from);
        }
        received[ports.iter().position(|port| *port == from).unwrap()].push(packet);
    }
    for (client, received) in received.iter().enumerate() {
        let its = sent.iter().filter(|(n, _)| n / 15 % 2 == client);
        let its: Vec<_> = its.map(|(n, len)| payload(*n as u8, **len)).collect();
        assert_eq!(*received, its, "of client {client}, in order");
    }
    let summary = relay.end();
    assert_eq!(value(&summary, "relayed_forward"), 60, "{summary}");
    assert_eq!(value(&summary, "send_failed"), 0, "{summary}");
}

#[test]
fn batches_merge_without_kernel_stamps() {
    let _machine = beside_others();
    let far = socket();
    for (more, engine) in [
        (&["--stamps", "user"][..], "batch, merged, blocking"),
        (&["--stamps", "user", "--no-merge"], "batch, blocking"),
        (&["--merge"], "batch, merged, blocking"),
        (&[], "batch, blocking"),
    ] {
        let relay = Relay::to_socket(&far, &[&["--engine", "batch"], more].concat());
        let client = socket();
        client.send_to(b"one", &relay.listen).unwrap();
        assert_eq!(receive(&far).0, b"one");
        let summary = relay.end();
        assert_eq!(summary["engine"], engine, "{summary}");
    }
}

#[test]
fn first_burst_of_client_stays_in_order() {
    let _machine = beside_others();
    for engine in [&[][..], &["--busy-poll"], &["--engine", "batch"]] {
        let far = socket();
        let relay = Relay::to_socket(&far, engine);
        // More clients than can have their own socket, each filling the receive buffer.
        for client in 0..6_u8 {
            let near = socket();
            (0..90_u8)
                .for_each(|n| assert_eq!(near.send_to(&[client, n], &relay.listen).unwrap(), 2));
            for n in 0..90 {
                assert_eq!(receive(&far).0, [client, n], "{engine:?}");
            }
        }
        assert_eq!(value(&relay.end(), "relayed_forward"), 540);
    }
}

#[test]
fn client_flood_is_bounded_and_last_is_served() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--flows", "8"]);
    let clients: Vec<_> = (0..100).map(|_| socket()).collect();
    for client in &clients {
        client.send_to(b"flood", &relay.listen).unwrap();
        receive(&far);
    }
    let last = clients.last().unwrap();
    last.send_to(b"served", &relay.listen).unwrap();
    let (message, from) = receive(&far);
    far.send_to(&message, from).unwrap();
    assert_eq!(receive(last).0, b"served");
    let summary = relay.end();
    assert_eq!((value(&summary, "flows"), value(&summary, "flows_evicted")), (100, 92));
}

/// Returns the remote ports of connected sockets on a local UDP port (/proc/net/udp).
fn connected_to(listen: &str) -> Vec<u16> {
    let (_, port) = listen.rsplit_once(':').unwrap();
    let local = format!("0300007F:{:04X}", port.parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_port = rows.filter(|row| row.get(1) == Some(&local.as_str()));
    let remote = |row: Vec<&str>| u16::from_str_radix(row[2].rsplit_once(':')?.1, 16).ok();
    of_port.filter_map(remote).filter(|port| *port > 0).collect()
}

#[test]
fn single_client_keeps_own_socket_without_loss() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--flows", "2"]);
    let (first, second, third) = (socket(), socket(), socket());
    let round_trip = |client: &UdpSocket, text: &[u8]| {
        client.send_to(text, &relay.listen).unwrap();
        let (message, from) = receive(&far);
        assert_eq!(message, text);
        far.send_to(text, from).unwrap();
        assert_eq!(receive(client).1.to_string(), relay.listen);
    };
    round_trip(&first, b"alone");
    let port = first.local_addr().unwrap().port();
    let start = Instant::now();
    while connected_to(&relay.listen) != [port] {
        assert!(start.elapsed() < TEST_TIMEOUT, "{:?}", connected_to(&relay.listen));
    }
    // There is room for two clients.
    for _ in 0..10 {
        (0..3).for_each(|_| assert_eq!(first.send_to(b"first", &relay.listen).unwrap(), 5));
        round_trip_of_others(&relay, &far, [&second, &third], 3);
    }
    round_trip(&first, b"still");
    let summary = relay.end();
    let expected: u64 = 1 + 10 * (3 + 2) + 1;
    assert_eq!(value(&summary, "relayed_forward"), expected, "{summary}");
    assert!(value(&summary, "flows_evicted") >= 9, "{summary}");
}

#[test]
fn idle_single_client_is_evicted() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--flows", "2"]);
    let (first, second, third) = (socket(), socket(), socket());
    let round_trip = |client: &UdpSocket| {
        client.send_to(b"one", &relay.listen).unwrap();
        let (_, from) = receive(&far);
        far.send_to(b"back", from).unwrap();
        assert_eq!(receive(client).1.to_string(), relay.listen);
        from
    };
    let await_own = |ports: &[u16]| {
        let start = Instant::now();
        while connected_to(&relay.listen) != ports {
            assert!(start.elapsed() < TEST_TIMEOUT, "{:?}", connected_to(&relay.listen));
        }
    };
    round_trip(&first);
    await_own(&[first.local_addr().unwrap().port()]);
    let before = round_trip(&second);
    round_trip(&third);
    await_own(&[]);
    assert_eq!(round_trip(&second), before, "the second client keeps its flow");
    round_trip(&first);
    assert_eq!(value(&relay.end(), "flows_evicted"), 2);
}

/// Sends one packet from each client while `waiting` other packets are on their way.
fn round_trip_of_others(relay: &Relay, far: &UdpSocket, clients: [&UdpSocket; 2], waiting: usize) {
    clients.iter().for_each(|client| drop(client.send_to(b"other", &relay.listen)));
    (0..waiting + clients.len()).for_each(|_| drop(receive(far)));
}

#[test]
fn packets_at_flow_expiry_are_not_lost() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--idle", "100ms"]);
    let client = socket();
    for n in 0..20_u8 {
        client.send_to(&[n], &relay.listen).unwrap();
        assert_eq!(receive(&far).0, [n]);
        // Longer than the idle time, by an increasing part of a tick.
        std::thread::sleep(Duration::from_millis(100 + 5 * u64::from(n)));
    }
    assert_eq!(value(&relay.end(), "relayed_forward"), 20);
}

#[test]
fn expired_client_gets_a_new_flow() {
    let _machine = beside_others();
    let far = socket();
    let relay = Relay::to_socket(&far, &["--idle", "200ms"]);
    let client = socket();
    client.send_to(b"one", &relay.listen).unwrap();
    let (_, before) = receive(&far);
    let start = Instant::now();
    let after = loop {
        std::thread::sleep(Duration::from_millis(400));
        client.send_to(b"two", &relay.listen).unwrap();
        let (_, after) = receive(&far);
        if after != before || start.elapsed() > TEST_TIMEOUT {
            break after;
        }
    };
    far.send_to(b"back", after).unwrap();
    assert_eq!(receive(&client).0, b"back");
    let summary = relay.end();
    assert!(value(&summary, "flows_expired") >= 1 && after != before, "{summary}");
}
