//! Files that are truncated, malformed, of another format or hostile.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use crate::outcome::{Outcome, import_as, recorded};
use dwell_import::{Format, ImportError, ImportWarning, detect, read};
use dwell_record::{Batch, Column};
use dwell_sample::State;
use proptest::prelude::*;

const RECORDED: [(&str, Format); 33] = [
    ("roedlach-vock.csv", Format::RoundTripCsv),
    ("ping-v4.txt", Format::Ping),
    ("ping-v6-stamped.txt", Format::Ping),
    ("ping-losses.txt", Format::Ping),
    ("ping-losses-outstanding.txt", Format::Ping),
    ("ping-quiet.txt", Format::Ping),
    ("busybox-ping-losses.txt", Format::Ping),
    ("busybox-ping-quiet.txt", Format::Ping),
    ("busybox-ping-v6.txt", Format::Ping),
    ("mtr-losses.json", Format::Mtr),
    ("mtr-two.json", Format::Mtr),
    ("mtr-v6.json", Format::Mtr),
    ("iperf3-tcp.json", Format::Iperf3),
    ("iperf3-udp.json", Format::Iperf3),
    ("iperf3-udp-server.json", Format::Iperf3),
    ("iperf3-bidir.json", Format::Iperf3),
    ("icmp-busybox.pcap", Format::Pcap),
    ("irtt.json", Format::Irtt),
    ("sockperf-ping-pong.csv", Format::Sockperf),
    ("sockperf-under-load.csv", Format::Sockperf),
    ("sockperf-full-rtt.csv", Format::Sockperf),
    ("iperf2-client.txt", Format::Iperf2),
    ("iperf2-client-two.txt", Format::Iperf2),
    ("iperf2-server.txt", Format::Iperf2),
    ("d-itg-receiver.log", Format::Itg),
    ("d-itg-sender.log", Format::Itg),
    ("dwell.csv", Format::DwellCsv),
    ("stamp-roundtrip-iperf2.pcap", Format::Pcap),
    ("stamp-roundtrip-iperf2.pcapng", Format::Pcapng),
    ("roundtrip-nanoseconds.pcap", Format::Pcap),
    ("roundtrip-cooked-1.pcap", Format::Pcap),
    ("roundtrip-cooked-2.pcap", Format::Pcap),
    ("stamp-v6-raw.pcap", Format::Pcap),
];

#[test]
fn every_recorded_file_is_detected() {
    for (name, format) in RECORDED {
        assert_eq!(detect(&recorded(name)), Some(format), "{name}");
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    assert_eq!(
        fs::read_dir(data).unwrap().count(),
        RECORDED.len() + 1,
        "recorded files and README"
    );
    for format in Format::ALL {
        assert!(RECORDED.iter().any(|(_, recorded)| *recorded == format), "{}", format.name());
    }
}

/// Detection by the first bytes, and readers of other formats, must not mistake a file for another
/// format.
#[test]
fn readers_reject_files_of_other_formats() {
    for (name, format) in RECORDED {
        let bytes = recorded(name);
        for length in 0..bytes.len().min(2_000) {
            let found = detect(&bytes[..length]);
            assert!(found.is_none_or(|found| found == format), "{name} {length} {found:?}");
        }
        for other in Format::ALL.into_iter().filter(|other| *other != format) {
            if let Ok(outcome) = import_as(other, &bytes) {
                assert!(outcome.batches.is_empty(), "{name} as {}", other.name());
            }
        }
    }
}

#[test]
fn truncated_files_yield_no_invented_samples() {
    for (name, format) in RECORDED {
        let bytes = recorded(name);
        let all = import_as(format, &bytes).unwrap().imported;
        let rows = all.flows.iter().map(|flow| flow.rows).sum::<u64>();
        for length in (0..bytes.len()).step_by(1 + bytes.len() / 400) {
            if let Ok(cut) = import_as(format, &bytes[..length]) {
                let cut = cut.imported.flows.iter().map(|flow| flow.rows).sum::<u64>();
                assert!(cut <= rows, "{name} at {length}: {cut} of {rows}");
            }
        }
    }
}

#[test]
fn bad_row_is_skipped_counted_and_quoted() {
    let mut text = String::from_utf8(recorded("roedlach-vock.csv")).unwrap();
    text.insert_str(text.find("         5,").unwrap(), "no row at all\n");
    text.push_str("       200,0.0001\x1b[2J\n");
    let outcome = import_as(Format::RoundTripCsv, text.as_bytes()).unwrap();
    assert_eq!(outcome.imported.skipped_lines, 2);
    let example = outcome.imported.skipped_example.unwrap();
    assert_eq!((example.row, example.text.as_str()), (7, "no row at all"));
    assert_eq!(outcome.imported.flows[0].rows, 200);
    assert!(
        matches!(outcome.imported.warnings[0], ImportWarning::RowsSkipped(_, 7, _)),
        "{:?}",
        outcome.imported.warnings
    );
}

#[test]
fn file_with_mostly_bad_rows_is_refused() {
    let text = "id,roundtrip_time [s]\n         0,0.000000001\nx\ny\n";
    let error = import_as(Format::RoundTripCsv, text.as_bytes()).unwrap_err();
    let ImportError::Rows { rows, skipped, row, text, .. } = &error else { panic!("{error}") };
    assert_eq!((*rows, *skipped, *row, text.as_str()), (3, 2, 3, "x"));
}

#[test]
fn csv_rows_of_any_number_format_are_read() {
    let text = "id,roundtrip_time [s]\r\n0,0.000001\r\n 1 , 1e-6\n         2,0.000000007\n3,nan\n\
                         4,        NaN\n12345678901,12.000000001";
    let outcome = import_as(Format::RoundTripCsv, text.as_bytes()).unwrap();
    assert_eq!(outcome.column("", Column::Rtt), [1_000, 1_000, 7, 12_000_000_001]);
    assert_eq!(outcome.ids("", State::Lost), [3, 4]);
    assert_eq!(outcome.ids("", State::Received), [0, 1, 2, 12_345_678_901]);
    assert_eq!(outcome.imported.skipped_lines, 0);
}

#[test]
fn csv_longer_than_the_buffer_keeps_each_row_once() {
    let rows = 200_000_u64;
    let mut text = String::from("id,roundtrip_time [s]\n");
    (0..rows).for_each(|id| text.push_str(&format!("{id:>10},0.{:09}\n", 1_000 + id)));
    // A line longer than the buffer, in the middle of the file.
    text.insert_str(22 + 23 * 100_000, &format!("{}\n", "9".repeat(500_000)));
    let mut next = 0;
    let imported = read(Format::RoundTripCsv, &mut text.as_bytes(), &mut |_, batch: Batch| {
        assert!(batch.len() <= 65_536);
        for row in 0..batch.len() {
            assert_eq!(batch.id[row], next);
            assert_eq!(batch.number(row, Column::Rtt), Some(1_000 + next as i64));
            next += 1;
        }
        Ok::<_, Infallible>(())
    });
    let imported = imported.unwrap();
    assert_eq!((next, imported.skipped_lines), (rows, 1));
    assert_eq!(imported.skipped_example.unwrap().row, 100_002);
}

/// A round-trip time is measured on one clock, so it cannot be negative.
#[test]
fn negative_round_trip_is_a_bad_row_in_every_format() {
    let of = |name: &str| String::from_utf8(recorded(name)).unwrap();
    let round_trips = of("roedlach-vock.csv").replacen("         5,", "         5,-", 1);
    let ping = of("ping-v4.txt").replacen(" time=", " time=-", 1);
    let dwell = "id,state,reordered,void,rtt_kernel_ns\n0,received,false,false,-1\n\
                 1,received,false,false,0\n2,received,false,true,-5\n";
    // The client's clocks claim that the first reply was received a second earlier.
    let irtt = |text: &str, clock: &str| {
        let receive = text.find("\"receive\": {").unwrap();
        let at = receive + text[receive..].find(clock).unwrap() + clock.len();
        let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
        let number: i64 = text[at..end].parse().unwrap();
        format!("{}{}{}", &text[..at], number - 1_000_000_000, &text[end..])
    };
    let json = irtt(&irtt(&of("irtt.json"), "\"wall\": "), "\"monotonic\": ");
    let sockperf = of("sockperf-ping-pong.csv");
    let row = sockperf.lines().find(|line| line.starts_with("0, ")).unwrap();
    let cells: Vec<_> = row.split(", ").collect();
    let swapped = [cells[0], cells[2], cells[1], cells[3]].join(", ");
    let sockperf = sockperf.replacen(row, &swapped, 1);
    for (format, text) in [
        (Format::RoundTripCsv, round_trips.as_str()),
        (Format::Ping, ping.as_str()),
        (Format::DwellCsv, dwell),
        (Format::Irtt, json.as_str()),
        (Format::Sockperf, sockperf.as_str()),
    ] {
        let outcome = import_as(format, text.as_bytes()).unwrap();
        let imported = &outcome.imported;
        assert_eq!(imported.skipped_lines, 1, "{imported:?}");
        assert_eq!(imported.warnings.len(), 1, "{imported:?}");
        assert!(outcome.column("", Column::Rtt).iter().all(|rtt| *rtt >= 0), "{}", format.name());
        assert!(imported.flows[0].rows > 1, "{}", format.name());
    }
}

#[test]
fn negative_one_way_delay_is_kept_with_a_warning() {
    let mut log = recorded("d-itg-receiver.log");
    // Sets the send time of the first packet a second after its arrival.
    let second = f64::from_le_bytes(*log[128..].first_chunk().unwrap()) + 1.0;
    log[128..136].copy_from_slice(&second.to_le_bytes());
    let outcome = import_as(Format::Itg, &log).unwrap();
    let flow = &outcome.imported.flows[0];
    let delays = outcome.column(&flow.name, Column::OneWayForward);
    assert_eq!(delays.iter().filter(|delay| **delay < 0).count(), 1);
    assert!(matches!(flow.warnings[0], ImportWarning::NegativeDelays(_)), "{:?}", flow.warnings);
    assert_eq!((outcome.imported.skipped_lines, outcome.imported.flows[1].warnings.len()), (0, 0));

    let text = String::from_utf8(recorded("iperf2-server.txt")).unwrap();
    let text = text.replace("/0.012/", "/-0.012/");
    let imported = import_as(Format::Iperf2, text.as_bytes()).unwrap().imported;
    let flow = &imported.flows[0];
    assert_eq!(flow.metrics["one_way_forward_ns"].min, Some(-12_000));
    assert!(matches!(flow.warnings[0], ImportWarning::NegativeDelays(_)), "{:?}", flow.warnings);
}

#[test]
fn reply_before_its_request_has_no_round_trip() {
    let mut capture = recorded("roundtrip-nanoseconds.pcap");
    let whole = import_as(Format::Pcap, &capture).unwrap();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    // The last packet, 66 bytes after a header of 16, is a reply.
    let reply = capture.len() - 16 - 66;
    assert_eq!(word(&capture, reply + 8), 66);
    let second = word(&capture, reply) - 1;
    capture[reply..reply + 4].copy_from_slice(&second.to_le_bytes());
    let outcome = import_as(Format::Pcap, &capture).unwrap();
    let rtts = |outcome: &Outcome| {
        let flows = &outcome.imported.flows;
        flows.iter().map(|flow| outcome.column(&flow.name, Column::Rtt).len()).sum::<usize>()
    };
    assert_eq!(rtts(&outcome), rtts(&whole) - 1);
    let warnings = &outcome.imported.warnings;
    assert!(warnings.contains(&ImportWarning::ImpossibleTimes(1)), "{warnings:?}");
}

#[test]
fn sample_receiver_error_ends_the_import() {
    for (name, format) in RECORDED {
        let bytes = recorded(name);
        let refuse = |_: &str, _: Batch| Err("the disk is full");
        let result = read(format, &mut &bytes[..], &mut { refuse });
        let summaries = [Format::Iperf2, Format::Iperf3, Format::Mtr];
        let no_rows = summaries.contains(&format) || name.ends_with("ping-quiet.txt");
        match result {
            Err(ImportError::Samples(reason)) => assert_eq!(reason.to_string(), "the disk is full"),
            Ok(_) => assert!(no_rows, "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn ping_sequence_is_unwrapped() {
    let mut text = String::from("PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.\n");
    for id in (65_530..65_540_u32).filter(|id| *id != 65_535 && *id != 65_537) {
        let seq = id % 65_536;
        text.push_str(&format!("64 bytes from 127.0.0.1: icmp_seq={seq} ttl=64 time=0.01 ms\n"));
    }
    let outcome = import_as(Format::Ping, text.as_bytes()).unwrap();
    let received = outcome.ids("", State::Received);
    assert_eq!(received, [65_530, 65_531, 65_532, 65_533, 65_534, 65_536, 65_538, 65_539]);
    let lost = outcome.ids("", State::Lost);
    assert_eq!(lost.len(), 65_529 + 2);
    assert_eq!(lost[65_529..], [65_535, 65_537]);
}

#[test]
fn impossible_ping_totals_do_not_fill_the_disk() {
    let mut text = String::from_utf8(recorded("ping-v4.txt")).unwrap();
    text = text.replace("5 packets transmitted", "18446744073709551615 packets transmitted");
    let outcome = import_as(Format::Ping, text.as_bytes()).unwrap();
    assert_eq!(outcome.imported.flows[0].rows, 5);
    assert!(matches!(outcome.imported.warnings[0], ImportWarning::CountsContradict(u64::MAX, _)));
}

#[test]
fn file_without_samples_is_refused_by_every_reader() {
    let of = |name: &str| String::from_utf8(recorded(name)).unwrap();
    let first_line = |name: &str| of(name).lines().next().unwrap().to_owned() + "\n";
    let irtt = of("irtt.json");
    let trips = irtt.find("\"round_trips\": [").unwrap() + "\"round_trips\": [".len();
    let mtr = of("mtr-losses.json");
    let hubs = mtr.find("\"hubs\": [").unwrap() + "\"hubs\": [".len();
    let sockperf = of("sockperf-ping-pong.csv");
    let rows = sockperf.find("packet, txTime").unwrap();
    let header = sockperf[rows..].lines().next().unwrap().len() + 1;
    let iperf2 = of("iperf2-client.txt");
    let iperf3 =
        r#"{"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {}}"#;
    let dwell = of("dwell.csv");
    for (format, text) in [
        (Format::RoundTripCsv, first_line("roedlach-vock.csv").into_bytes()),
        (Format::Ping, first_line("ping-v4.txt").into_bytes()),
        (Format::Ping, first_line("busybox-ping-v6.txt").into_bytes()),
        (Format::Irtt, format!("{}]}}", &irtt[..trips]).into_bytes()),
        (Format::Mtr, format!("{}]}}}}", &mtr[..hubs]).into_bytes()),
        (Format::Sockperf, sockperf.as_bytes()[..rows + header].to_vec()),
        (Format::Iperf2, iperf2.as_bytes()[..iperf2.find("[ ID] Interval").unwrap()].to_vec()),
        (Format::Iperf3, iperf3.as_bytes().to_vec()),
        (Format::DwellCsv, dwell.lines().next().unwrap().as_bytes().to_vec()),
        (Format::Pcap, recorded("roundtrip-nanoseconds.pcap")[..24].to_vec()),
    ] {
        let error = match import_as(format, &text) {
            Err(error @ ImportError::NoSamples { .. }) => error.to_string(),
            other => panic!("{}: {other:?}", format.name()),
        };
        assert!(error.starts_with("no sample in this"), "{error}");
    }
}

#[test]
fn capture_without_probes_is_refused_with_its_contents() {
    let mut capture = recorded("icmp-busybox.pcap");
    // Changes the protocol field of IPv4 and IPv6 so that no echo messages are left.
    let mut at = 24;
    while at < capture.len() {
        let word = capture[at + 8..at + 12].try_into().unwrap();
        let (packet, length) = (at + 16, u32::from_le_bytes(word) as usize);
        let is_v4 = capture[packet + 14] >> 4 == 4;
        capture[packet + if is_v4 { 14 + 9 } else { 14 + 6 }] = 89;
        at = packet + length;
    }
    let error = import_as(Format::Pcap, &capture).unwrap_err().to_string();
    let expected = "no sample in this pcap capture: left out 63 packets that are neither UDP";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn irtt_loss_of_an_unsigned_underflow_is_null_with_a_note() {
    let text = String::from_utf8(recorded("irtt.json")).unwrap();
    let at = text.find("\"upstream_loss_percent\": ").unwrap() + 25;
    let end = at + text[at..].find(',').unwrap();
    let text = format!("{} 1.8446744073709552e+19{}", &text[..at], &text[end..]);
    let imported = import_as(Format::Irtt, text.as_bytes()).unwrap().imported;
    let flow = &imported.flows[0];
    assert_eq!(flow.values["loss_forward_ratio"], None);
    assert!(flow.values["loss_backward_ratio"].is_some());
    let note = "loss_forward_ratio is null: the file states 1.8e17, which is not between 0 and 1";
    assert_eq!(flow.warnings.iter().map(ImportWarning::to_string).collect::<Vec<_>>(), [note]);
}

#[test]
fn impossible_counts_do_not_overflow() {
    let most = u64::MAX.to_string();
    let sockperf = String::from_utf8(recorded("sockperf-ping-pong.csv")).unwrap();
    let sockperf = sockperf.replace("dropped messages = 0", &format!("dropped messages = {most}"));
    let packets = import_as(Format::Sockperf, sockperf.as_bytes()).unwrap().imported.packets();
    assert_eq!(packets.unwrap().sent, u64::MAX);
    let irtt = String::from_utf8(recorded("irtt.json")).unwrap();
    let irtt = irtt.replace("\"duplicates\": 0", &format!("\"duplicates\": {most}"));
    let packets = import_as(Format::Irtt, irtt.as_bytes()).unwrap().imported.packets();
    assert_eq!(packets.unwrap().duplicate, u64::MAX);
}

#[test]
fn late_row_of_dwell_supersedes_its_loss() {
    let text = "id,state,reordered,void,rtt_ns\n0,lost,false,false,\n1,received,false,false,5\n\
                0,late,false,false,900\n1,duplicate,false,false,7\n2,send-failed,false,true,\n";
    let packets = import_as(Format::DwellCsv, text.as_bytes()).unwrap().imported.packets().unwrap();
    assert_eq!((packets.sent, packets.received, packets.late, packets.lost), (2, 1, 1, 0));
    assert_eq!((packets.duplicate, packets.send_failed), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_by_every_reader_without_panic(bytes: Vec<u8>) {
        let _ = detect(&bytes);
        for format in Format::ALL {
            if let Ok(outcome) = import_as(format, &bytes) {
                outcome.assert_possible();
            }
        }
    }

    #[test]
    fn mutated_recorded_files_are_read_without_panic(
        file in 0..RECORDED.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (name, format) = RECORDED[file];
        let mut bytes = recorded(name);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = detect(&bytes);
        if let Ok(outcome) = import_as(format, &bytes) {
            outcome.assert_possible();
        }
    }
}
