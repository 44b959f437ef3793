//! The program of the reflector in the driver, run by the kernel on frames without an interface.

use std::net::SocketAddr;

use dwell_engine::protocol::Scheme;
use dwell_engine::reflector::unanswered_ports;
use dwell_io::bpf::{
    DriverClock, DriverCounters, DriverDestination, DriverLink, Verdict, XdpReflector,
    XdpReflectorSpec,
};
use dwell_io::clock;
use dwell_units::Nanos;
use dwell_wire::icmp::checksum;
use dwell_wire::timestamp::{self, ErrorEstimate, Format};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::fixture::as_root;
use crate::xdp_frames::{
    CLOCK, OUR_MAC, Packet, Reference, SCHEMES, THEIR_MAC, own_addresses, port, stamp,
    subnet_broadcast,
};
use crate::xdp_refusals::{with_extension, with_options};

const SEED: u64 = 0x7864_7072_6566_6c65;

pub(crate) fn program(limit: Option<Nanos>) -> XdpReflector {
    load(limit, true)
}

fn load(limit: Option<Nanos>, recognise_merged: bool) -> XdpReflector {
    let spec = XdpReflectorSpec {
        interface: 1,
        link: DriverLink { mtu: 1_500, mac: OUR_MAC },
        is_loopback: false,
        stateless: false,
        clock: Some(CLOCK),
        unanswered_ports: unanswered_ports(Some(&SCHEMES.map(port))),
        recognise_merged,
    };
    let mut program = XdpReflector::load(&spec).unwrap();
    let gap = limit.map_or(0, |gap| gap.0.cast_unsigned());
    let own = own_addresses();
    let destinations = own.iter().flat_map(|ip| {
        (0..).zip(SCHEMES).map(move |(service, scheme)| DriverDestination {
            to: SocketAddr::new(*ip, port(scheme)),
            kind: scheme.spec().driver_reply.unwrap() as u32,
            service,
            local_gap: gap,
            global_gap: gap,
        })
    });
    program.set_destinations(&destinations.collect::<Vec<_>>()).unwrap();
    program.set_own_addresses(&[own[0], own[1], subnet_broadcast()]).unwrap();
    let error_estimate = ErrorEstimate::of_clock(None).to_bits();
    program.set_clock(DriverClock { tai_offset: clock::tai_offset(), error_estimate }).unwrap();
    program
}

pub(crate) fn request(packet: &Packet) -> Vec<u8> {
    packet.frame(OUR_MAC, THEIR_MAC)
}

/// Packets that the program answers, in both families, without a VLAN tag, with one, and with DSCP 46
/// and ECN 1.
pub(crate) fn corpus() -> Vec<Packet> {
    let mut echo = vec![8, 0, 0, 0, 1, 2, 3, 4];
    echo.extend(0..56);
    let mut echo_v6 = echo.clone();
    echo_v6[0] = 128;
    let mut roundtrip = vec![7; 24];
    roundtrip[20..].copy_from_slice(b"REQ\0");
    let mut packets = Vec::new();
    for is_ipv6 in [false, true] {
        let mut add = |scheme, payload| packets.push(Packet::new(scheme, is_ipv6, payload));
        for len in [44, 48, 64, 76, 80, 101, 1_400] {
            add(Scheme::Stamp, stamp(7, 3, len));
        }
        for len in [1, 2, 3, 16, 43, 44, 64, 1_400] {
            add(Scheme::Udp, (0..len).map(|n| n as u8).collect());
        }
        add(Scheme::Roundtrip, roundtrip.clone());
        add(Scheme::Icmp, if is_ipv6 { echo_v6.clone() } else { echo.clone() });
    }
    let tagged = packets.iter().map(|packet| Packet { vlan: Some(5), ..packet.clone() });
    let marked = packets.iter().map(|packet| Packet { tos: 0xb9, ..packet.clone() });
    let variants: Vec<_> = tagged.chain(marked).collect();
    packets.extend(variants);
    packets
}

pub(crate) fn counters(program: &XdpReflector, scheme: Scheme) -> DriverCounters {
    let number = SCHEMES.iter().position(|of| *of == scheme).unwrap();
    program.counters(number as u32).unwrap()
}

/// Counters of all services.
pub(crate) fn all_counters(program: &XdpReflector) -> [DriverCounters; 4] {
    SCHEMES.map(|scheme| counters(program, scheme))
}

#[test]
fn driver_replies_equal_those_of_the_socket_engine() {
    if !as_root() {
        return;
    }
    let (mut program, mut reference) = (program(None), Reference::new());
    for packet in corpus() {
        let frame = request(&packet);
        let before = clock::realtime();
        let run = program.run(&frame, 1).unwrap();
        let after = clock::realtime();
        assert_eq!(run.verdict, Verdict::Reply, "{packet:?}");
        assert_eq!(run.frame, reference.reply(&packet, &run.frame).unwrap(), "{packet:?}");
        if packet.scheme != Scheme::Stamp {
            continue;
        }
        let time = |at: usize| {
            let at = packet.transport_at() + 8 + at;
            let bits = u64::from_be_bytes(run.frame[at..at + 8].try_into().unwrap());
            timestamp::read(bits, Format::Ntp, before)
        };
        let (t3, t2) = (time(4), time(16));
        let slack = Nanos(1);
        assert!(before - slack <= t2 && t2 <= t3 && t3 <= after + slack, "{t2:?} {t3:?}");
    }
    // UDP without a checksum stays without.
    let plain = Packet::new(Scheme::Udp, false, vec![1; 20]);
    let plain = Packet { udp_checksum: false, ..plain };
    let run = program.run(&request(&plain), 1).unwrap();
    assert_eq!(run.frame, reference.reply(&plain, &run.frame).unwrap());
}

#[test]
fn driver_checksums_equal_full_recomputation() {
    if !as_root() {
        return;
    }
    let (mut program, mut reference) = (program(None), Reference::new());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for round in 0..3_000_u32 {
        let scheme = SCHEMES[rng.random_range(0..4)];
        let is_ipv6 = rng.random();
        let mut payload = match scheme {
            Scheme::Stamp => stamp(rng.random(), round as u16, [44, 76, 200][round as usize % 3]),
            Scheme::Roundtrip => vec![0; 24],
            _ => vec![0; rng.random_range(8..600)],
        };
        match scheme {
            Scheme::Stamp => {
                rng.fill_bytes(&mut payload[..14]);
                rng.fill_bytes(&mut payload[16..44]);
            }
            _ => rng.fill_bytes(&mut payload),
        }
        match scheme {
            Scheme::Roundtrip => payload[20..].copy_from_slice(b"REQ\0"),
            Scheme::Icmp => payload[..4].copy_from_slice(&[if is_ipv6 { 128 } else { 8 }, 0, 0, 0]),
            _ => {}
        }
        let packet =
            Packet { ttl: rng.random_range(2..=255), ..Packet::new(scheme, is_ipv6, payload) };
        let run = program.run(&request(&packet), 1).unwrap();
        let expected = reference.reply(&packet, &run.frame);
        let shown = format!("seed {SEED:#x}, round {round}: {packet:?}");
        assert_eq!((run.verdict, &run.frame), (Verdict::Reply, &expected.unwrap()), "{shown}");
    }
}

#[test]
fn packets_for_the_socket_spend_the_same_limit() {
    if !as_root() {
        return;
    }
    let echo = Packet::new(Scheme::Udp, false, vec![1; 20]);
    let v6 = Packet::new(Scheme::Udp, true, vec![1; 20]);
    let short = Packet::new(Scheme::Stamp, false, vec![1; 20]);
    let mut fragment = request(&echo);
    fragment[20] = 0x20;
    let long = Packet::new(Scheme::Udp, false, vec![1; 1_473]);
    for (name, scheme, frame) in [
        ("IP options", Scheme::Udp, with_options(&echo)),
        ("first fragment", Scheme::Udp, fragment),
        ("above the MTU", Scheme::Udp, request(&long)),
        ("extension", Scheme::Udp, with_extension(&v6, 60, [0; 3])),
        ("short", Scheme::Stamp, request(&short)),
    ] {
        let mut program = program(Some(Nanos::from_secs(10)));
        assert_eq!(program.run(&frame, 1).unwrap().verdict, Verdict::Pass, "{name}");
        assert_eq!(program.run(&frame, 1).unwrap().verdict, Verdict::Drop, "{name}");
        let plain = match (scheme, name) {
            (Scheme::Stamp, _) => Packet::new(Scheme::Stamp, false, stamp(1, 1, 44)),
            (_, "extension") => v6.clone(),
            _ => echo.clone(),
        };
        assert_eq!(program.run(&request(&plain), 1).unwrap().verdict, Verdict::Drop, "{name}");
        let counted = counters(&program, scheme);
        assert_eq!((counted.to_socket, counted.limited), (1, 2), "{name}");
    }
}

#[test]
fn packets_up_to_the_mtu_are_answered_with_and_without_tag() {
    if !as_root() {
        return;
    }
    let (mut program, mut reference) = (program(None), Reference::new());
    for (is_ipv6, longest) in [(false, 1_472), (true, 1_452)] {
        for vlan in [None, Some(5)] {
            let echo = |len| Packet { vlan, ..Packet::new(Scheme::Udp, is_ipv6, vec![1; len]) };
            let packet = echo(longest);
            let run = program.run(&request(&packet), 1).unwrap();
            let shown = format!("IPv6 {is_ipv6}, tag {vlan:?}");
            assert_eq!(run.frame, reference.reply(&packet, &run.frame).unwrap(), "{shown}");
            let run = program.run(&request(&echo(longest + 1)), 1).unwrap();
            assert_eq!(run.verdict, Verdict::Pass, "{shown}");
        }
    }
}

#[test]
fn echo_replies_keep_the_class_of_icmp_requests_only() {
    if !as_root() {
        return;
    }
    // DSCP EF; in IPv6 also a flow label.
    let classed = |mut frame: Vec<u8>, label: u8| {
        match frame[12..14] {
            [8, 0] => {
                frame[15] = 0xb8;
                frame[24..26].fill(0);
                let sum = checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            _ => frame[14..18].copy_from_slice(&[0x6b, 0x80, label, label]),
        }
        frame
    };
    let (mut program, mut reference) = (program(None), Reference::new());
    for is_ipv6 in [false, true] {
        let kind = if is_ipv6 { 128 } else { 8 };
        let icmp = Packet::new(Scheme::Icmp, is_ipv6, vec![kind, 0, 0, 0, 1, 2, 3, 4]);
        let run = program.run(&classed(request(&icmp), 7), 1).unwrap();
        let reply = reference.reply(&icmp, &run.frame).unwrap();
        assert_eq!(run.frame, classed(reply, 0), "IPv6 {is_ipv6}");
        let udp = Packet::new(Scheme::Udp, is_ipv6, vec![1; 20]);
        let run = program.run(&classed(request(&udp), 7), 1).unwrap();
        assert_eq!(run.frame, reference.reply(&udp, &run.frame).unwrap(), "IPv6 {is_ipv6}");
    }
}

#[test]
fn link_changes_apply_to_the_running_program() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    let long = Packet::new(Scheme::Udp, false, vec![1; 1_473]);
    let mut verdict = |frame: &[u8], link: DriverLink| {
        program.set_link(link).unwrap();
        program.run(frame, 1).unwrap().verdict
    };
    let (near, far) = ([2, 0, 0, 0, 0, 7], DriverLink { mtu: 9_000, mac: OUR_MAC });
    assert_eq!(verdict(&request(&long), far), Verdict::Reply);
    assert_eq!(verdict(&request(&long), DriverLink { mtu: 1_500, ..far }), Verdict::Pass);
    let moved = long.frame(near, THEIR_MAC);
    assert_eq!(verdict(&moved, far), Verdict::Pass);
    assert_eq!(verdict(&moved, DriverLink { mac: near, ..far }), Verdict::Reply);
}

#[test]
fn run_time_is_that_of_a_reply_on_any_own_port() {
    if !as_root() {
        return;
    }
    let run_time = |mtu: u32| {
        let spec = XdpReflectorSpec {
            interface: 1,
            link: DriverLink { mtu, mac: OUR_MAC },
            is_loopback: false,
            stateless: false,
            clock: None,
            unanswered_ports: unanswered_ports(Some(&[40_000, 1_024])),
            recognise_merged: true,
        };
        let mut program = XdpReflector::load(&spec).unwrap();
        let time = program.run_time().unwrap();
        let counted = program.counters(63).unwrap();
        assert_eq!((counted.replies, counted.looping), (101, 0), "MTU {mtu}");
        time
    };
    let times = [68, 1_500, 9_000, 65_536].map(run_time);
    assert!(times[0] > Nanos(0), "{times:?}");
    // Longer packets are measured up to 3,486 bytes, and scaled from there.
    assert!(times[2] > times[0].saturating_mul(2), "{times:?}");
}

#[test]
fn program_for_older_kernels_answers_too() {
    if !as_root() {
        return;
    }
    let mut program = load(None, false);
    for packet in corpus() {
        assert_eq!(program.run(&request(&packet), 1).unwrap().verdict, Verdict::Reply);
    }
}

#[test]
fn driver_silences_and_limits_each_source() {
    if !as_root() {
        return;
    }
    let mut open = program(None);
    let packet = |port: u16, payload: Vec<u8>| {
        let mut packet = Packet::new(Scheme::Udp, false, payload);
        packet.from.set_port(port);
        request(&packet)
    };
    let mut verdicts =
        (0..1_500).map(|_| open.run(&packet(5_000, vec![9; 30]), 1).unwrap().verdict);
    assert!(verdicts.by_ref().take(1_000).all(|verdict| verdict == Verdict::Reply));
    assert!(verdicts.all(|verdict| verdict == Verdict::Drop));
    assert_eq!(open.run(&packet(5_001, vec![9; 30]), 1).unwrap().verdict, Verdict::Reply);
    assert_eq!(open.run(&packet(5_000, vec![8; 30]), 1).unwrap().verdict, Verdict::Drop);
    assert_eq!(counters(&open, Scheme::Udp).silenced, 501);

    // One reply in 10 s, and a burst of one.
    let mut limited = program(Some(Nanos::from_secs(10)));
    let mut verdict =
        |port, text: &[u8]| limited.run(&packet(port, text.to_vec()), 1).unwrap().verdict;
    assert_eq!(verdict(5_000, b""), Verdict::Drop, "malformed: spends nothing");
    assert_eq!(verdict(5_000, b"one"), Verdict::Reply);
    assert_eq!(verdict(5_000, b"two"), Verdict::Drop);
    assert_eq!(verdict(5_001, b"one"), Verdict::Reply);
    let counted = counters(&limited, Scheme::Udp);
    assert_eq!((counted.limited, counted.malformed, counted.replies), (1, 1, 2));
}

/// Addresses that differ in the highest bit of the first half, and in the bits of the second half that
/// a multiplicative hash of adjacent halves would cancel it by.
#[test]
fn chosen_address_does_not_spend_the_limit_of_another() {
    if !as_root() {
        return;
    }
    let mut limited = program(Some(Nanos::from_secs(10)));
    let mut verdict = |from: &str| {
        let mut packet = Packet::new(Scheme::Udp, true, b"text".to_vec());
        packet.from.set_ip(from.parse().unwrap());
        limited.run(&request(&packet), 1).unwrap().verdict
    };
    assert_eq!(verdict("2001:db8::2"), Verdict::Reply);
    assert_eq!(verdict("2001:db8::2"), Verdict::Drop, "the limit holds");
    assert_eq!(verdict("2001:d38::400:80:0:2"), Verdict::Reply);
}

#[test]
fn partial_checksum_is_recognised() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    for is_ipv6 in [false, true] {
        let packet = Packet::new(Scheme::Udp, is_ipv6, b"made on this machine".to_vec());
        let mut frame = request(&packet);
        let at = packet.transport_at() + 6;
        frame[at..at + 2].copy_from_slice(&packet.partial_sum().to_be_bytes());
        let run = program.run(&frame, 1).unwrap();
        // Generic: the socket buffer still knows that a card has to complete the sum.
        assert_eq!((run.verdict, &run.frame[at..at + 2]), (Verdict::Reply, &frame[at..at + 2]));
    }
}
