//! STAMP sessions of the program of the reflector in the driver.

use std::net::SocketAddr;

use dwell_engine::protocol::Scheme;
use dwell_io::bpf::Verdict;

use crate::fixture::as_root;
use crate::xdp_frames::{Packet, stamp};
use crate::xdp_reflector_program::{counters, program, request};
use crate::xdp_refusals::{with_extension, with_options};

#[test]
fn session_that_reached_the_socket_stays_there() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    let sessions = program.sessions().unwrap();
    let mut run = |seq, ssid, kind: Option<u8>| {
        let mut payload = stamp(seq, ssid, 76);
        if let Some(kind) = kind {
            payload[45] = kind;
        }
        let packet = Packet::new(Scheme::Stamp, false, payload);
        program.run(&request(&packet), 1).unwrap().verdict
    };
    for seq in 0..5 {
        assert_eq!(run(seq, 1, None), Verdict::Reply);
    }
    assert_eq!(run(5, 1, Some(4)), Verdict::Pass);
    assert_eq!(run(6, 1, None), Verdict::Pass);
    assert_eq!(run(7, 2, None), Verdict::Reply, "another session");
    let from = "192.0.2.2:40000".parse().unwrap();
    assert_eq!([1, 2, 3].map(|ssid| sessions.replies(0, from, ssid)), [5, 1, 0]);
}

#[test]
fn every_packet_for_the_socket_moves_its_session() {
    if !as_root() {
        return;
    }
    let stamp = |is_ipv6, ssid, len| Packet::new(Scheme::Stamp, is_ipv6, stamp(1, ssid, len));
    let short = |ssid: u16| {
        let mut packet = stamp(false, ssid, 44);
        packet.payload.truncate(20);
        packet
    };
    let fragment = |packet: &Packet| {
        let mut frame = request(packet);
        frame[20] = 0x20;
        frame
    };
    let moved = [
        ("short", false, request(&short(1))),
        ("above the MTU", false, request(&stamp(false, 1, 1_473))),
        ("first fragment", false, fragment(&stamp(false, 1, 76))),
        ("IP options", false, with_options(&stamp(false, 1, 76))),
        ("extension", true, with_extension(&stamp(true, 1, 76), 0, [0; 3])),
        ("first fragment of IPv6", true, with_extension(&stamp(true, 1, 76), 44, [0, 0, 1])),
    ];
    for (name, is_ipv6, frame) in moved {
        let mut program = program(None);
        let sessions = program.sessions().unwrap();
        let packet = stamp(is_ipv6, 1, 76);
        let mut verdict = |frame: &[u8]| program.run(frame, 1).unwrap().verdict;
        assert_eq!(verdict(&request(&packet)), Verdict::Reply, "{name}");
        assert_eq!(verdict(&frame), Verdict::Pass, "{name}");
        assert_eq!(verdict(&request(&packet)), Verdict::Pass, "{name}");
        assert_eq!(verdict(&request(&stamp(is_ipv6, 2, 76))), Verdict::Reply, "{name}");
        assert_eq!(sessions.replies(0, packet.from, 1), 1, "{name}");
        assert_eq!(counters(&program, Scheme::Stamp).to_socket, 2, "{name}");
    }
}

#[test]
fn one_source_evicts_no_session_of_another() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    let sessions = program.sessions().unwrap();
    let of = |from: &str, is_ipv6, ssid| {
        let mut packet = Packet::new(Scheme::Stamp, is_ipv6, stamp(1, ssid, 44));
        packet.from = from.parse().unwrap();
        (packet.from, request(&packet))
    };
    let mut known = Vec::new();
    for host in 2..=100 {
        for (text, is_ipv6) in
            [(format!("192.0.2.{host}:9000"), false), (format!("[2001:db8:{host}::2]:9000"), true)]
        {
            let (from, frame) = of(&text, is_ipv6, 7);
            assert_eq!(program.run(&frame, 1).unwrap().verdict, Verdict::Reply);
            known.push((from, sessions.replies(0, from, 7)));
        }
    }
    assert!(known.iter().all(|(_, replies)| *replies == 1), "{known:?}");
    for ssid in 0..=u16::MAX {
        let ports = if ssid % 2 == 0 { "203.0.113.1:5000" } else { "203.0.113.1:5001" };
        assert_eq!(program.run(&of(ports, false, ssid).1, 1).unwrap().verdict, Verdict::Reply);
    }
    let after: Vec<_> =
        known.iter().map(|(from, _)| (*from, sessions.replies(0, *from, 7))).collect();
    assert_eq!(known, after);
    let flooder = ["203.0.113.1:5000", "203.0.113.1:5001"].map(|from| from.parse().unwrap());
    let kept = (0..=u16::MAX)
        .filter(|ssid| flooder.iter().any(|from| sessions.replies(0, *from, *ssid) > 0));
    let kept = kept.count();
    assert!((1..=1_024).contains(&kept), "{kept} sessions of one address");
}

#[test]
fn one_source_evicts_at_most_a_session_per_full_set() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    let sessions = program.sessions().unwrap();
    let mut open = |from: SocketAddr, ssid| {
        let mut packet = Packet::new(Scheme::Stamp, false, stamp(1, ssid, 44));
        packet.from = from;
        assert_eq!(program.run(&request(&packet), 1).unwrap().verdict, Verdict::Reply);
    };
    // More sessions of different addresses than there is room for.
    let others =
        (0..80_000_u32).map(|n| SocketAddr::from(((0x0b00_0000 + n).to_be_bytes(), 9_000)));
    let others: Vec<_> = others.collect();
    others.iter().for_each(|from| open(*from, 7));
    let is_kept = |from: &SocketAddr| sessions.replies(0, *from, 7) > 0;
    let kept: Vec<_> = others.iter().copied().filter(is_kept).collect();
    assert!(kept.len() > 16_000, "{}", kept.len());
    (0..=u16::MAX).for_each(|ssid| open("203.0.113.1:5000".parse().unwrap(), ssid));
    let evicted = kept.iter().filter(|from| !is_kept(from)).count();
    assert!((1..=128).contains(&evicted), "{evicted} of {}", kept.len());
}
