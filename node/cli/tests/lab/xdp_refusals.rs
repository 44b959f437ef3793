//! Frames that the program of the reflector in the driver must not answer.

use std::net::IpAddr;

use dwell_engine::protocol::Scheme;
use dwell_io::bpf::{DriverCounters, Verdict};
use dwell_wire::icmp::checksum;

use crate::fixture::as_root;
use crate::xdp_frames::{OUR_MAC, Packet, SCHEMES, THEIR_MAC};
use crate::xdp_reflector_program::{all_counters, corpus, program, request};

/// A frame that gets no reply: its name, the frame, the verdict, and the counter that rises.
pub(crate) type Refused = (&'static str, Vec<u8>, Verdict, fn(&mut DriverCounters));

/// The frame of an IPv4 packet with 4 bytes of options.
pub(crate) fn with_options(packet: &Packet) -> Vec<u8> {
    let mut frame = request(packet);
    frame.splice(34..34, [1, 1, 1, 0]);
    frame[14] = 0x46;
    frame[17] += 4;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The frame of an IPv6 packet with an extension header of 8 bytes, whose bytes 1 to 3 are `of`.
pub(crate) fn with_extension(packet: &Packet, kind: u8, of: [u8; 3]) -> Vec<u8> {
    let mut frame = request(packet);
    let next = std::mem::replace(&mut frame[20], kind);
    frame[19] += 8;
    frame.splice(54..54, [&[next][..], &of, &[0; 4]].concat());
    frame
}

pub(crate) fn refused() -> Vec<(Scheme, Refused)> {
    use Verdict::{Drop, Pass};
    let udp = |payload: &[u8]| Packet::new(Scheme::Udp, false, payload.to_vec());
    let changed = |packet: &Packet, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = request(packet);
        change(&mut frame);
        frame
    };
    let header = |frame: &mut Vec<u8>| {
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    let from =
        |packet: Packet, from: &str| request(&Packet { from: from.parse().unwrap(), ..packet });
    let stamp = |payload: Vec<u8>| Packet::new(Scheme::Stamp, false, payload);
    let none: fn(&mut DriverCounters) = |_| {};
    let mut reply = crate::xdp_frames::stamp(1, 2, 44);
    reply.copy_within(4..12, 16);
    reply[36..44].copy_from_slice(&[1, 1, 0, 0, 64, 0, 0, 0]);
    let mut partial = reply.clone();
    partial[43] = 9;
    let mut unknown = crate::xdp_frames::stamp(1, 9, 76);
    unknown[45] = 3;
    let echo = udp(&[1; 20]);
    let icmp = Packet::new(Scheme::Icmp, false, vec![8, 0, 0, 0, 1, 2, 3, 4, 5]);
    let icmp6 = Packet::new(Scheme::Icmp, true, vec![128, 0, 0, 0, 1, 2, 3, 4, 5]);
    let v6 = Packet::new(Scheme::Udp, true, vec![1; 20]);
    let mapped = Packet { to: "[::ffff:192.0.2.1]:7000".parse().unwrap(), ..v6.clone() };
    let roundtrip = |end: &[u8]| Packet::new(Scheme::Roundtrip, false, [&[0; 20], end].concat());
    let multicast = |frame: &mut Vec<u8>| frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    vec![
        (Scheme::Udp, ("empty echo", request(&udp(&[])), Drop, |c| c.malformed += 1)),
        (
            Scheme::Udp,
            ("TTL 1", request(&Packet { ttl: 1, ..echo.clone() }), Drop, |c| c.looping += 1),
        ),
        (Scheme::Udp, ("own port", from(echo.clone(), "192.0.2.2:7000"), Drop, |c| c.looping += 1)),
        (Scheme::Udp, ("chargen", from(echo.clone(), "192.0.2.2:19"), Drop, |c| c.looping += 1)),
        (Scheme::Udp, ("port 0", from(echo.clone(), "192.0.2.2:0"), Drop, |c| c.looping += 1)),
        (
            Scheme::Udp,
            ("own address", from(echo.clone(), "192.0.2.1:9999"), Drop, |c| c.looping += 1),
        ),
        (
            Scheme::Udp,
            ("subnet broadcast", from(echo.clone(), "192.0.2.255:9"), Drop, |c| c.looping += 1),
        ),
        (
            Scheme::Udp,
            ("multicast source", from(echo.clone(), "224.0.0.1:9999"), Drop, |c| c.looping += 1),
        ),
        (
            Scheme::Udp,
            ("broadcast", from(echo.clone(), "255.255.255.255:9"), Drop, |c| c.looping += 1),
        ),
        (Scheme::Udp, ("no source", from(echo.clone(), "0.0.0.0:9999"), Drop, |c| c.looping += 1)),
        (Scheme::Udp, ("loopback", from(echo.clone(), "127.0.0.9:9999"), Drop, |c| c.looping += 1)),
        (Scheme::Udp, ("loopback v6", from(v6.clone(), "[::1]:9999"), Drop, |c| c.looping += 1)),
        (
            Scheme::Udp,
            ("mapped source", from(v6.clone(), "[::ffff:192.0.2.2]:9999"), Drop, |c| {
                c.looping += 1
            }),
        ),
        (Scheme::Udp, ("mapped destination", request(&mapped), Pass, none)),
        (
            Scheme::Udp,
            ("multicast v6", from(v6.clone(), "[ff02::1]:9999"), Drop, |c| c.looping += 1),
        ),
        (Scheme::Udp, ("group frame", changed(&echo, &multicast), Drop, |c| c.looping += 1)),
        (Scheme::Udp, ("other MAC", changed(&echo, &|f| f[5] = 9), Pass, none)),
        (
            Scheme::Udp,
            (
                "other address",
                changed(&echo, &|f| {
                    f[33] = 9;
                    header(f);
                }),
                Pass,
                none,
            ),
        ),
        (Scheme::Udp, ("other port", changed(&echo, &|f| f[37] = 9), Pass, none)),
        (
            Scheme::Udp,
            (
                "first fragment",
                changed(&echo, &|f| {
                    f[20] = 0x20;
                    header(f);
                }),
                Pass,
                |c| c.to_socket += 1,
            ),
        ),
        (
            Scheme::Udp,
            (
                "last fragment",
                changed(&echo, &|f| {
                    f[21] = 7;
                    header(f);
                }),
                Pass,
                none,
            ),
        ),
        (Scheme::Udp, ("IP options", with_options(&echo), Pass, |c| c.to_socket += 1)),
        (Scheme::Udp, ("extension", with_extension(&v6, 60, [0; 3]), Pass, |c| c.to_socket += 1)),
        (
            Scheme::Udp,
            ("first of IPv6", with_extension(&v6, 44, [0, 0, 1]), Pass, |c| c.to_socket += 1),
        ),
        (Scheme::Udp, ("last of IPv6", with_extension(&v6, 44, [0, 0, 8]), Pass, none)),
        (
            Scheme::Icmp,
            ("ICMPv6 extension", with_extension(&icmp6, 0, [0; 3]), Pass, |c| c.to_socket += 1),
        ),
        (
            Scheme::Udp,
            ("header sum", changed(&echo, &|f| f[24] ^= 1), Drop, |c| c.bad_checksum += 1),
        ),
        (
            Scheme::Udp,
            ("payload bit", changed(&echo, &|f| f[50] ^= 1), Drop, |c| c.bad_checksum += 1),
        ),
        (Scheme::Udp, ("IPv6 bit", changed(&v6, &|f| f[70] ^= 1), Drop, |c| c.bad_checksum += 1)),
        (
            Scheme::Udp,
            ("IPv6 no sum", changed(&v6, &|f| f[60..62].fill(0)), Drop, |c| c.malformed += 1),
        ),
        (
            Scheme::Udp,
            ("truncated", changed(&echo, &|f| f.truncate(50)), Drop, |c| c.malformed += 1),
        ),
        (Scheme::Udp, ("no header", changed(&echo, &|f| f.truncate(40)), Pass, none)),
        (Scheme::Udp, ("UDP length 7", changed(&echo, &|f| f[39] = 7), Drop, |c| c.malformed += 1)),
        (
            Scheme::Udp,
            ("UDP too long", changed(&echo, &|f| f[39] = 99), Drop, |c| c.malformed += 1),
        ),
        (Scheme::Udp, ("other protocol", changed(&v6, &|f| f[20] = 132), Pass, none)),
        (Scheme::Udp, ("above the MTU", request(&udp(&[1; 1_473])), Pass, |c| c.to_socket += 1)),
        (Scheme::Stamp, ("13 bytes", request(&stamp(vec![1; 13])), Drop, |c| c.malformed += 1)),
        (Scheme::Stamp, ("TWAMP light", request(&stamp(vec![1; 14])), Pass, |c| c.to_socket += 1)),
        (Scheme::Stamp, ("a reply", request(&stamp(reply)), Drop, |c| c.looping += 1)),
        (Scheme::Stamp, ("like a reply", request(&stamp(partial)), Pass, |c| c.to_socket += 1)),
        (Scheme::Stamp, ("unknown TLV", request(&stamp(unknown)), Pass, |c| c.to_socket += 1)),
        (Scheme::Roundtrip, ("ACK", request(&roundtrip(b"ACK\0")), Drop, |c| c.malformed += 1)),
        (
            Scheme::Roundtrip,
            ("25 bytes", request(&roundtrip(b"REQ\0\0")), Drop, |c| c.malformed += 1),
        ),
        (
            Scheme::Icmp,
            ("ICMP sum", changed(&icmp, &|f| f[40] ^= 1), Drop, |c| c.bad_checksum += 1),
        ),
        (
            Scheme::Icmp,
            ("ICMPv6 sum", changed(&icmp6, &|f| f[60] ^= 1), Drop, |c| c.bad_checksum += 1),
        ),
        (Scheme::Icmp, ("echo reply", changed(&icmp, &|f| f[34] = 0), Pass, none)),
        (Scheme::Icmp, ("code 1", changed(&icmp, &|f| f[35] = 1), Pass, none)),
        (Scheme::Icmp, ("solicitation", changed(&icmp6, &|f| f[54] = 135), Pass, none)),
    ]
}

#[test]
fn driver_refuses_hostile_frames_and_counts_them() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    for (scheme, (name, frame, verdict, count)) in refused() {
        let mut expected = all_counters(&program);
        count(&mut expected[SCHEMES.iter().position(|of| *of == scheme).unwrap()]);
        let run = program.run(&frame, 1).unwrap();
        assert_eq!((run.verdict, &run.frame), (verdict, &frame), "{name}");
        assert_eq!(all_counters(&program), expected, "{name}");
    }
}

#[test]
fn frames_to_groups_pass_uncounted() {
    if !as_root() {
        return;
    }
    let mut program = program(None);
    let groups = [
        ("192.0.2.255", [0xff; 6]),
        ("255.255.255.255", [0xff; 6]),
        ("224.0.0.1", [1, 0, 0x5e, 0, 0, 1]),
        ("ff02::1", [0x33, 0x33, 0, 0, 0, 1]),
    ];
    for (group, group_mac) in groups {
        let group: IpAddr = group.parse().unwrap();
        for mut packet in corpus() {
            if packet.to.is_ipv4() != group.is_ipv4() {
                continue;
            }
            packet.to.set_ip(group);
            for mac in [group_mac, OUR_MAC] {
                let frame = packet.frame(mac, THEIR_MAC);
                let run = program.run(&frame, 1).unwrap();
                assert_eq!((run.verdict, run.frame), (Verdict::Pass, frame), "{packet:?}");
            }
        }
    }
    assert_eq!(all_counters(&program), [DriverCounters::default(); 4]);
}
