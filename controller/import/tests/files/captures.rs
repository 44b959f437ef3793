//! Captures written by tcpdump and dumpcap, and variants of them.

use crate::outcome::{Outcome, import, import_as, recorded};
use dwell_import::{Format, ImportWarning, ImportedFlow, detect};
use dwell_record::Column;
use dwell_sample::State;

const STAMP: &str = "127.0.0.1:51881 > 127.0.0.1:20862 stamp ssid 34883";
const REPLIES: &str = "127.0.0.1:20862 > 127.0.0.1:51881 stamp ssid 34883 replies";

fn names(outcome: &Outcome) -> Vec<&str> {
    outcome.imported.flows.iter().map(|flow| flow.name.as_str()).collect()
}

/// The capture holds the packets of `dwell.csv`, seen on both sides of a forwarder that lost two.
#[test]
fn witness_agrees_with_its_run() {
    let witness = import("stamp-roundtrip-iperf2.pcap");
    let run = import("dwell.csv");
    let replies = "127.0.0.1:20864 > 127.0.0.1:57378 stamp ssid 4100 replies";
    assert_eq!(witness.ids(replies, State::Received), run.ids("", State::Received));
    assert_eq!(witness.ids(replies, State::Lost), [4, 9]);
    assert_eq!(witness.column(replies, Column::T2), run.column("", Column::T2));
    assert_eq!(witness.column(replies, Column::T3), run.column("", Column::T3));
    let seen = witness.column(replies, Column::Rtt);
    for (seen, kernel) in seen.iter().zip(run.column("", Column::RttKernel)) {
        assert!((seen - kernel).abs() <= 2_000, "{seen} is far from {kernel}");
    }
}

#[test]
fn witnessed_requests_have_gaps_and_replies_round_trips() {
    let outcome = import("stamp-roundtrip-iperf2.pcap");
    // tshark prints 0.020003, 0.020000, 0.019998 and 0.020001 s between these packets.
    let gaps = outcome.column(STAMP, Column::Gap);
    assert_eq!(gaps, [20_003_000, 20_000_000, 19_998_000, 20_001_000]);
    let rtts = outcome.column(REPLIES, Column::Rtt);
    assert_eq!(rtts, [29_000, 28_000, 28_000, 34_000, 48_000]);
    assert_eq!(outcome.column(STAMP, Column::Rtt), [0_i64; 0]);
    // Warm-up packets have negative ids; they are counted and not kept.
    assert_eq!(outcome.ids(STAMP, State::Received), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.imported.parameters["warm_up_packets"], 37);
}

#[test]
fn packet_counts_come_from_reply_flows() {
    let outcome = import("stamp-roundtrip-iperf2.pcap");
    let replies = |flow: &&ImportedFlow| flow.name.ends_with(" replies");
    let of = |name: &str| outcome.imported.flows.iter().find(|flow| flow.name == name).unwrap();
    assert_eq!((of(STAMP).packets, of(STAMP).outcomes_unknown), (None, true));
    assert!(of(REPLIES).packets.is_some());
    let flows = &outcome.imported.flows;
    assert!(flows.iter().filter(|flow| !replies(flow)).all(|flow| flow.packets.is_none()));
    let answered: u64 =
        flows.iter().filter(replies).map(|flow| flow.packets.unwrap().received).sum();
    assert_eq!(outcome.imported.packets().unwrap().received, answered);
}

#[test]
fn iperf_packets_have_their_ids_and_sending_times() {
    let outcome = import("stamp-roundtrip-iperf2.pcap");
    let flow = "127.0.0.1:44653 > 127.0.0.1:5002 iperf2";
    assert_eq!(outcome.ids(flow, State::Received), (1..=12).collect::<Vec<_>>());
    assert_eq!(outcome.column(flow, Column::TxApp)[0], 1_795_247_649_955_271_000);
    assert_eq!(outcome.column(flow, Column::SizeBytes), [200; 12]);
    assert_eq!(outcome.imported.parameters["end_packets"], 1);
}

#[test]
fn pcapng_equals_pcap_with_finer_timestamps() {
    let (coarse, fine) =
        (import("stamp-roundtrip-iperf2.pcap"), import("stamp-roundtrip-iperf2.pcapng"));
    assert_eq!(names(&coarse), names(&fine));
    let finest = fine.column(STAMP, Column::Capture);
    assert!(finest.iter().any(|stamp| stamp % 1_000 != 0), "{finest:?}");
    for flow in names(&coarse) {
        for state in State::ALL {
            assert_eq!(coarse.ids(flow, state), fine.ids(flow, state), "{flow}");
        }
        let stamps = coarse.column(flow, Column::Capture).into_iter();
        for (coarse, fine) in stamps.zip(fine.column(flow, Column::Capture)) {
            assert_eq!(coarse, fine / 1_000 * 1_000);
        }
    }
}

#[test]
fn every_link_type_gives_the_same_round_trip_messages() {
    let flow = "127.0.0.1:46981 > 127.0.0.1:20863 roundtrip";
    let ethernet = import("roundtrip-nanoseconds.pcap");
    assert_eq!(ethernet.ids(flow, State::Received).len(), 5);
    // The nanosecond file must have timestamps that are not whole microseconds.
    let stamps = ethernet.column(flow, Column::Capture);
    assert!(stamps.iter().any(|stamp| stamp % 1_000 != 0), "{stamps:?}");
    for name in ["roundtrip-cooked-1.pcap", "roundtrip-cooked-2.pcap"] {
        let cooked = import(name);
        assert_eq!(names(&cooked), names(&ethernet), "{name}");
        for flow in names(&ethernet) {
            assert_eq!(cooked.ids(flow, State::Received), ethernet.ids(flow, State::Received));
            let gaps = |outcome: &Outcome| outcome.column(flow, Column::Gap);
            for (one, other) in gaps(&cooked).iter().zip(gaps(&ethernet)) {
                assert!((one - other).abs() <= 1_000, "{one} {other}");
            }
        }
    }
}

#[test]
fn raw_ipv6_is_read() {
    let outcome = import("stamp-v6-raw.pcap");
    let name = names(&outcome)[1];
    assert!(name.starts_with("[::1]:20862 > [::1]:"), "{name}");
    assert_eq!(outcome.ids(name, State::Received), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.column(name, Column::Rtt).len(), 5);
}

/// Derives both byte orders and both time units from recorded files.
#[test]
fn all_four_kinds_of_pcap_are_read() {
    let little = recorded("stamp-roundtrip-iperf2.pcap");
    let expected = import_as(Format::Pcap, &little).unwrap().batches;
    let big = swapped(&little);
    assert_eq!(detect(&big), Some(Format::Pcap));
    assert_eq!(import_as(Format::Pcap, &big).unwrap().batches, expected);

    let fine = recorded("roundtrip-nanoseconds.pcap");
    let expected = import_as(Format::Pcap, &fine).unwrap().batches;
    let big = swapped(&fine);
    assert_ne!(big[..4], little[..4]);
    assert_eq!(detect(&big), Some(Format::Pcap));
    assert_eq!(import_as(Format::Pcap, &big).unwrap().batches, expected);
}

/// Returns the capture with all header fields in the other byte order.
fn swapped(little: &[u8]) -> Vec<u8> {
    let mut big = little.to_vec();
    big[..4].reverse();
    for (at, width) in [(4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        big[at..at + width].reverse();
    }
    let mut at = 24;
    while at < big.len() {
        let length = u32::from_le_bytes(big[at + 8..at + 12].try_into().unwrap()) as usize;
        big[at..at + 16].chunks_mut(4).for_each(<[u8]>::reverse);
        at += 16 + length;
    }
    big
}

#[test]
fn truncated_capture_yields_its_packets_and_a_warning() {
    for name in ["roundtrip-nanoseconds.pcap", "stamp-roundtrip-iperf2.pcapng"] {
        let bytes = recorded(name);
        let format = detect(&bytes).unwrap();
        let cut = import_as(format, &bytes[..bytes.len() - 50]).unwrap();
        assert!(
            cut.imported.warnings.iter().any(|w| matches!(w, ImportWarning::Truncated(_))),
            "{name}"
        );
        let whole = import_as(format, &bytes).unwrap();
        assert!(whole.imported.warnings.is_empty(), "{name} {:?}", whole.imported.warnings);
    }
}

#[test]
fn packet_captured_twice_is_a_duplicate() {
    let bytes = recorded("roundtrip-nanoseconds.pcap");
    let packet = 16 + 66;
    let (head, first) = (&bytes[..24], &bytes[24..]);
    let doubled: Vec<_> = first.chunks(packet).flat_map(|p| [p, p]).flatten().copied().collect();
    let outcome = import_as(Format::Pcap, &[head, &doubled].concat()).unwrap();
    let flow = "127.0.0.1:46981 > 127.0.0.1:20863 roundtrip";
    assert_eq!(outcome.ids(flow, State::Received), outcome.ids(flow, State::Duplicate));
    assert_eq!(outcome.column(flow, Column::Gap).len(), 4);
}

/// The capture holds the packets of `busybox-ping-losses.txt`, seen at the sender.
#[test]
fn icmp_echoes_are_joined_by_id_and_sequence() {
    let outcome = import("icmp-busybox.pcap");
    let log = import("busybox-ping-losses.txt");
    let flow = names(&outcome)[1].to_owned();
    assert!(flow.starts_with("10.91.1.2 > 10.91.0.1 icmp id "), "{flow}");
    assert!(flow.ends_with(" replies"), "{flow}");
    for state in [State::Received, State::Lost, State::Duplicate] {
        assert_eq!(outcome.ids(&flow, state), log.ids("", state), "{state:?}");
    }
    // ping takes its timestamps in user space and truncates to 1 us, so its times exceed those of
    // the capture.
    let seen = outcome.column(&flow, Column::Rtt);
    let printed = log.column("", Column::Rtt);
    assert_eq!((seen.len(), printed.len()), (17, 20));
    assert!(seen.iter().max() < printed.iter().max(), "{seen:?}");
    assert!(seen.iter().all(|rtt| *rtt > 0));
    assert_eq!(outcome.column(&flow, Column::SizeBytes), [56; 20]);
    let about = outcome.imported.flows.iter().find(|about| about.name == flow).unwrap();
    assert_eq!(about.target, "icmp://10.91.1.2");
}

#[test]
fn icmpv6_echoes_are_joined_by_id_and_sequence() {
    let outcome = import("icmp-busybox.pcap");
    let v6: Vec<_> = names(&outcome).into_iter().filter(|name| name.starts_with('[')).collect();
    assert_eq!(v6.len(), 2, "{v6:?}");
    assert!(v6[1].starts_with("[fd91:1::2] > [fd91::1] icmp id "), "{v6:?}");
    assert_eq!(outcome.ids(v6[1], State::Received), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.column(v6[1], Column::Rtt).len(), 5);
    assert_eq!(outcome.column(v6[1], Column::SizeBytes), [56; 5]);
}

/// Returns a capture of raw IPv4 packets: milliseconds, whether a reply, identifier and sequence
/// number.
fn echoes(packets: &[(u32, bool, u16, u16)]) -> Vec<u8> {
    let mut capture = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 101]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect::<Vec<_>>();
    for &(ms, reply, id, seq) in packets {
        let mut ip = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 1, 0, 0];
        let (source, destination) = if reply { (2, 1) } else { (1, 2) };
        ip.extend([10, 0, 0, source, 10, 0, 0, destination]);
        ip.extend([if reply { 0 } else { 8 }, 0, 0, 0]);
        ip.extend([id, seq].iter().flat_map(|half| half.to_be_bytes()));
        ip.extend([7; 8]);
        let header = [1_795_247_657 + ms / 1_000, ms % 1_000 * 1_000, 36, 36];
        capture.extend(header.iter().flat_map(|word| word.to_be_bytes()));
        capture.extend(ip);
    }
    capture
}

const PING: &str = "10.0.0.2 > 10.0.0.1 icmp id 9 replies";

fn joined(packets: &[(u32, bool, u16, u16)]) -> Outcome {
    let bytes = echoes(packets);
    assert_eq!(detect(&bytes), Some(Format::Pcap));
    import_as(Format::Pcap, &bytes).unwrap()
}

#[test]
fn icmp_sequence_is_unwrapped() {
    let packets: Vec<_> = (0..6_u32)
        .flat_map(|n| {
            let seq = (65_533 + n) as u16;
            [(n * 1_000, false, 9, seq), (n * 1_000 + 5, true, 9, seq)]
        })
        .collect();
    let outcome = joined(&packets);
    assert_eq!(outcome.ids(PING, State::Received), (65_533..65_539).collect::<Vec<_>>());
    assert_eq!(outcome.column(PING, Column::Rtt), [5_000_000; 6]);
}

#[test]
fn icmp_reply_to_a_request_before_the_capture_has_no_round_trip() {
    // The first reply answers a request sent before the counter wrapped.
    let packets = [
        (0, true, 9, 65_535),
        (100, false, 9, 0),
        (105, true, 9, 0),
        (200, false, 9, 1),
        (205, true, 9, 1),
    ];
    let outcome = joined(&packets);
    assert_eq!(outcome.ids(PING, State::Received), [65_535, 65_536, 65_537]);
    assert_eq!(outcome.column(PING, Column::Rtt), [5_000_000; 2]);
    // After the first request with a low number, the old reply gets a negative number.
    let outcome = joined(&[&packets[1..2], &packets[..1], &packets[2..]].concat());
    assert_eq!(outcome.ids(PING, State::Received), [0, 1]);
    assert!(
        matches!(outcome.imported.warnings[0], ImportWarning::NumbersBelowFirst(1)),
        "{:?}",
        outcome.imported
    );
}

#[test]
fn request_at_the_end_of_a_capture_is_not_lost() {
    let packets = [
        (0, false, 9, 1),
        (5, true, 9, 1),
        (100, false, 9, 2),
        (200, false, 9, 3),
        (205, true, 9, 3),
        (300, false, 9, 4),
    ];
    let outcome = joined(&packets);
    assert_eq!(outcome.ids(PING, State::Lost), [2]);
    let about = outcome.imported.flows.iter().find(|flow| flow.name == PING).unwrap();
    assert!(
        matches!(about.warnings[0], ImportWarning::UndecidedRequests(1)),
        "{:?}",
        about.warnings
    );
}

#[test]
fn icmp_sessions_are_distinguished_by_identifier() {
    let packets = [(0, false, 9, 1), (1, false, 10, 1), (5, true, 10, 1), (7, true, 9, 1)];
    let outcome = joined(&packets);
    assert_eq!(outcome.column(PING, Column::Rtt), [7_000_000]);
    let other = "10.0.0.2 > 10.0.0.1 icmp id 10 replies";
    assert_eq!(outcome.column(other, Column::Rtt), [4_000_000]);
}
