//! The programs that timestamp replies in the driver and probes at tcx egress, run on single frames
//! (BPF_PROG_TEST_RUN): they find the id of the measurement's frames and pass all others without an
//! event.
#![cfg(feature = "bpf")]

use dwell_io::bpf::{DriverStampSpec, DriverStamps, FrameStamp, ProbeFrames};
use dwell_io::clock;
use dwell_wire::{echo, icmp, roundtrip};

const ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn spec(is_ipv6: bool, transport: ProbeFrames) -> DriverStampSpec {
    let (local, remote) = match is_ipv6 {
        false => ("192.0.2.1:40000", "192.0.2.2:862"),
        true => ("[2001:db8::1]:40000", "[2001:db8::2]:862"),
    };
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    let (reply_id_at, id_len) = if transport == ProbeFrames::Udp { (8 + 24, 4) } else { (6, 2) };
    DriverStampSpec { transport, local, remote, probe_id_at: 8, reply_id_at, id_len }
}

/// A reply of 64 bytes payload that fits `spec`; UDP: a STAMP reply.
fn reply(spec: &DriverStampSpec, vlan: bool) -> Vec<u8> {
    frame(spec, false, vlan)
}

/// A probe or reply of 64 bytes payload that fits `spec`.
fn frame(spec: &DriverStampSpec, is_probe: bool, vlan: bool) -> Vec<u8> {
    let mut transport = vec![0; 72];
    let is_ipv6 = spec.local.is_ipv6();
    let protocol = match (spec.transport, is_ipv6) {
        (ProbeFrames::Udp, _) => 17,
        (ProbeFrames::Echo, false) => 1,
        (ProbeFrames::Echo, true) => 58,
    };
    let (from, to, id_at) = match is_probe {
        true => (spec.local, spec.remote, spec.probe_id_at),
        false => (spec.remote, spec.local, spec.reply_id_at),
    };
    if spec.transport == ProbeFrames::Udp {
        transport[..2].copy_from_slice(&from.port().to_be_bytes());
        transport[2..4].copy_from_slice(&to.port().to_be_bytes());
    } else {
        transport[0] = match (is_ipv6, is_probe) {
            (false, false) => 0,
            (false, true) => 8,
            (true, false) => 129,
            (true, true) => 128,
        };
        transport[4..6].copy_from_slice(&spec.local.port().to_be_bytes());
    }
    let (id_at, id_len) = (usize::from(id_at), usize::from(spec.id_len));
    transport[id_at..id_at + id_len].copy_from_slice(&ID[..id_len]);
    let mut frame = vec![2; 12];
    if vlan {
        frame.extend([0x81, 0, 0, 7]);
    }
    match (from.ip(), to.ip()) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0, 0, 92, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 72, protocol, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => unreachable!("one family"),
    }
    frame.extend(transport);
    frame
}

/// Loads the program, or prints why it cannot.
fn load(test: &str, spec: &DriverStampSpec) -> Option<DriverStamps> {
    match DriverStamps::load(spec) {
        Ok(program) => Some(program),
        Err(error) if error.is_unsupported() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const KINDS: [(bool, ProbeFrames); 4] = [
    (false, ProbeFrames::Udp),
    (true, ProbeFrames::Udp),
    (false, ProbeFrames::Echo),
    (true, ProbeFrames::Echo),
];

#[test]
fn reply_is_stamped_with_its_id_in_every_encapsulation() {
    for (is_ipv6, transport) in KINDS {
        let spec = spec(is_ipv6, transport);
        let test = "reply_is_stamped_with_its_id_in_every_encapsulation";
        let Some(mut program) = load(test, &spec) else { return };
        for vlan in [false, true] {
            let before = clock::realtime();
            let FrameStamp { at, id, is_probe } =
                program.run(&reply(&spec, vlan)).unwrap().expect("a timestamp");
            assert!(before <= at && at <= clock::realtime(), "{spec:?}");
            let len = usize::from(spec.id_len);
            assert_eq!((&id[..len], &id[len..], is_probe), (&ID[..len], &[0; 8][len..], false));
        }
    }
}

#[test]
fn malformed_and_foreign_frames_pass_without_a_stamp() {
    for (is_ipv6, transport) in KINDS {
        let spec = spec(is_ipv6, transport);
        let test = "malformed_and_foreign_frames_pass_without_a_stamp";
        let Some(mut program) = load(test, &spec) else { return };
        let whole = reply(&spec, true);
        let header = 18 + if is_ipv6 { 40 } else { 20 };
        let needed = header
            + usize::from(spec.reply_id_at).max(8 - usize::from(spec.id_len))
            + usize::from(spec.id_len);
        for len in 14..whole.len() {
            let stamped = program.run(&whole[..len]).unwrap().is_some();
            assert_eq!(stamped, len >= needed, "{len} bytes of {spec:?}");
        }
        // Every bit of the types, addresses, protocol, ports and ICMP header counts.
        let ip = 18;
        let address = if is_ipv6 { ip + 8 } else { ip + 12 };
        let protocol = if is_ipv6 { ip + 6 } else { ip + 9 };
        let ports = match transport {
            ProbeFrames::Udp => header..header + 4,
            ProbeFrames::Echo => header + 4..header + 6,
        };
        let places = (12..14).chain(16..18).chain([protocol]).chain(address..header).chain(ports);
        for place in places {
            let mut frame = whole.clone();
            frame[place] ^= 0x10;
            assert_eq!(program.run(&frame).unwrap(), None, "byte {place} of {spec:?}");
        }
        if !is_ipv6 {
            for (place, value) in [(ip, 0x65), (ip, 0x44), (ip, 0x4f), (ip + 6, 0x20), (ip + 7, 1)]
            {
                let mut frame = whole.clone();
                frame[place] = value;
                assert_eq!(program.run(&frame).unwrap(), None, "{value} at {place}");
            }
        }
    }
}

/// Transport, offset of the id in a probe and its length, in each form of each protocol.
fn probe_ids() -> [(ProbeFrames, usize, u8); 5] {
    const UDP_HEADER: usize = 8;
    [
        // STAMP: the sequence number is first, also in authenticated packets.
        (ProbeFrames::Udp, UDP_HEADER, 4),
        (ProbeFrames::Udp, UDP_HEADER + echo::ID_AT, 8),
        (ProbeFrames::Udp, UDP_HEADER + roundtrip::ID_AT, 4),
        (ProbeFrames::Echo, icmp::HEADER + echo::ID_AT, 8),
        // Payloads too short for a mark.
        (ProbeFrames::Echo, icmp::SEQUENCE_AT, 2),
    ]
}

#[test]
fn probe_is_stamped_with_its_id_in_every_protocol() {
    let test = "probe_is_stamped_with_its_id_in_every_protocol";
    for (transport, at, id_len) in probe_ids() {
        for is_ipv6 in [false, true] {
            // Replies have their id elsewhere, as in STAMP.
            let (probe_id_at, reply_id_at) = (at as u16, at as u16 + 24);
            let spec =
                DriverStampSpec { probe_id_at, reply_id_at, id_len, ..spec(is_ipv6, transport) };
            let Some(mut program) = load(test, &spec) else { return };
            for vlan in [false, true] {
                let probe = frame(&spec, true, vlan);
                let before = clock::realtime();
                let FrameStamp { at, id, is_probe } =
                    program.run_probe(&probe).unwrap().expect("a timestamp");
                assert!(before <= at && at <= clock::realtime(), "{spec:?}");
                let len = usize::from(id_len);
                assert_eq!((&id[..len], &id[len..]), (&ID[..len], &[0; 8][len..]), "{spec:?}");
                assert!(is_probe, "{spec:?}");
                // Each program ignores the frames of the other direction.
                assert_eq!(program.run(&probe).unwrap(), None, "{spec:?}");
                assert_eq!(program.run_probe(&reply(&spec, vlan)).unwrap(), None, "{spec:?}");
            }
        }
    }
}

#[test]
fn cut_and_foreign_probes_pass_without_a_stamp() {
    let test = "cut_and_foreign_probes_pass_without_a_stamp";
    for (transport, at, id_len) in probe_ids() {
        for is_ipv6 in [false, true] {
            let spec = DriverStampSpec {
                probe_id_at: at as u16,
                reply_id_at: 0,
                id_len,
                ..spec(is_ipv6, transport)
            };
            let Some(mut program) = load(test, &spec) else { return };
            let whole = frame(&spec, true, false);
            let header = 14 + if is_ipv6 { 40 } else { 20 };
            let needed = header + (at + usize::from(id_len)).max(8);
            // The kernel runs a program at tcx on whole IP headers only.
            for len in header..whole.len() {
                let stamped = program.run_probe(&whole[..len]).unwrap().is_some();
                assert_eq!(stamped, len >= needed, "{len} bytes of {spec:?}");
            }
            let address = if is_ipv6 { 14 + 8 } else { 14 + 12 };
            let ports = match transport {
                ProbeFrames::Udp => header..header + 4,
                ProbeFrames::Echo => header + 4..header + 6,
            };
            for place in (12..14).chain(address..header).chain(ports) {
                let mut frame = whole.clone();
                frame[place] ^= 0x10;
                assert_eq!(program.run_probe(&frame).unwrap(), None, "byte {place} of {spec:?}");
            }
        }
    }
}
