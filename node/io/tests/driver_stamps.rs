//! The program that timestamps replies in the driver, run on single frames (BPF_PROG_TEST_RUN): it
//! finds the id of replies of the measurement and passes all others without an event.
#![cfg(feature = "bpf")]

use dwell_io::bpf::{DriverStampSpec, DriverStamps, FrameStamp, ProbeFrames};
use dwell_io::clock;

const ID: [u8; 4] = [1, 2, 3, 4];

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
    let mut transport = vec![0; 72];
    let is_ipv6 = spec.local.is_ipv6();
    let protocol = match (spec.transport, is_ipv6) {
        (ProbeFrames::Udp, _) => 17,
        (ProbeFrames::Echo, false) => 1,
        (ProbeFrames::Echo, true) => 58,
    };
    if spec.transport == ProbeFrames::Udp {
        transport[..2].copy_from_slice(&spec.remote.port().to_be_bytes());
        transport[2..4].copy_from_slice(&spec.local.port().to_be_bytes());
        transport[32..36].copy_from_slice(&ID);
    } else {
        transport[0] = if is_ipv6 { 129 } else { 0 };
        transport[4..6].copy_from_slice(&spec.local.port().to_be_bytes());
        transport[6..8].copy_from_slice(&ID[..2]);
    }
    let mut frame = vec![2; 12];
    if vlan {
        frame.extend([0x81, 0, 0, 7]);
    }
    match (spec.remote.ip(), spec.local.ip()) {
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
