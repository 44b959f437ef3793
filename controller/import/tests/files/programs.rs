//! Files written by other programs, compared with the figures these programs printed.
//! `tests/data/README.md` describes how each was recorded.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::outcome::{import, import_as, recorded, spread};
use dwell_import::{Format, ImportWarning, detect};
use dwell_record::{Column, Packets, Scalar};
use dwell_sample::State;

fn close(found: f64, printed: f64, unit: f64) {
    assert!(
        (found - printed).abs() <= unit / 2.0 + 1e-6,
        "{found} differs from {printed} by more than half of {unit}"
    );
}

#[test]
fn csv_rows_are_exact_nanoseconds_and_nan_is_a_loss() {
    let outcome = import("roedlach-vock.csv");
    let (min, mean, max) = outcome.spread(Column::Rtt);
    assert_eq!((min, max), (230_090, 2_836_228));
    close(mean, 58_830_884.0 / 198.0, 0.0);
    assert_eq!(outcome.ids("", State::Lost), [57, 143]);
    assert_eq!(outcome.imported.packets().unwrap().sent, 200);
}

#[test]
fn published_round_trips_give_the_published_figures() {
    const TEST: &str = "published_round_trips_give_the_published_figures";
    let shared = std::env::var_os("DWELL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = shared.join("data/roundtrip/pi4_to_pi3_no_load_50000.csv");
    let Ok(file) = File::open(&path) else {
        println!("SKIP {TEST}: {} does not exist (set DWELL_SHARED to its root)", path.display());
        return;
    };
    let mut input = BufReader::with_capacity(dwell_import::HEAD_LEN, file);
    assert_eq!(detect(input.fill_buf().unwrap()), Some(Format::RoundTripCsv));
    let mut times = Vec::new();
    let imported = dwell_import::read(Format::RoundTripCsv, &mut input, &mut |_, batch| {
        times.extend_from_slice(batch.column(Column::Rtt).unwrap());
        Ok::<_, std::convert::Infallible>(())
    });
    assert_eq!(imported.unwrap().packets().unwrap().received, 50_000);
    let (min, mean, max) = spread(&times);
    assert_eq!((times.len(), min, max), (50_000, 170_167, 3_256_449));
    close(mean, 281_354.0, 1.0);
}

/// `ping` prints milliseconds with three decimals; its mean includes duplicates.
#[test]
fn imported_ping_figures_equal_its_totals() {
    for (name, min, mean, max) in
        [("ping-v4.txt", 3_000, 12_000.0, 27_000), ("ping-v6-stamped.txt", 2_000, 6_000.0, 16_000)]
    {
        let outcome = import(name);
        let found = outcome.spread(Column::Rtt);
        assert_eq!((found.0, found.2), (min, max), "{name}");
        close(found.1, mean, 2_000.0);
        assert_eq!(outcome.ids("", State::Received), [1, 2, 3, 4, 5]);
        assert_eq!(outcome.imported.warnings, [], "{name}");
        assert_eq!(outcome.imported.parameters["payload_bytes"], 56, "{name}");
    }
    assert_eq!(import("ping-v6-stamped.txt").imported.target, "icmp://[::1]");
    let stamps = import("ping-v6-stamped.txt").column("", Column::RxApp);
    assert_eq!(stamps[0], 1_795_247_334_382_889_000);
}

#[test]
fn ping_losses_duplicates_and_errors_become_states() {
    for name in ["ping-losses.txt", "ping-losses-outstanding.txt"] {
        let outcome = import(name);
        let expected =
            Packets { sent: 24, received: 17, lost: 7, duplicate: 4, ..Packets::default() };
        assert_eq!(outcome.imported.packets(), Some(expected), "{name}");
        assert_eq!(outcome.ids("", State::Lost), [3, 5, 9, 10, 16, 17, 24], "{name}");
        assert_eq!(outcome.ids("", State::Duplicate), [2, 8, 14, 20], "{name}");
        let errors = outcome.imported.flows[0].values["icmp_errors"];
        assert_eq!(errors, Some(Scalar::Count(2)), "{name}");
        assert_eq!(outcome.imported.skipped_lines, 0, "{name}");
    }
    let (min, mean, max) = import("ping-losses.txt").spread(Column::Rtt);
    assert_eq!((min, max), (29_000, 169_000));
    close(mean, 133_000.0, 2_000.0);
}

#[test]
fn unanswered_ping_loses_all_probes() {
    let text = "PING 10.0.0.9 (10.0.0.9) 56(84) bytes of data.\n\n--- 10.0.0.9 ping statistics ---\n\
                3 packets transmitted, 0 received, 100% packet loss, time 2050ms\n\n";
    let outcome = import_as(Format::Ping, text.as_bytes()).unwrap();
    assert_eq!(outcome.ids("", State::Lost), [1, 2, 3]);
    assert_eq!(outcome.imported.packets().unwrap().sent, 3);
}

#[test]
fn ping_counting_from_0_keeps_its_first_reply() {
    let text = "PING 127.0.0.1 (127.0.0.1): 56 data bytes\n\
                64 bytes from 127.0.0.1: icmp_seq=0 ttl=64 time=0.042 ms\n\
                64 bytes from 127.0.0.1: icmp_seq=2 ttl=64 time=0.100 ms\n\n\
                4 packets transmitted, 2 packets received, 50.0% packet loss\n";
    let outcome = import_as(Format::Ping, text.as_bytes()).unwrap();
    assert_eq!(outcome.ids("", State::Received), [0, 2]);
    assert_eq!(outcome.ids("", State::Lost), [1, 3]);
}

#[test]
fn quiet_ping_has_totals_and_no_samples() {
    let outcome = import("ping-quiet.txt");
    let flow = &outcome.imported.flows[0];
    let expected = Packets { sent: 4, received: 3, lost: 1, duplicate: 1, ..Packets::default() };
    assert_eq!((flow.packets, flow.rows), (Some(expected), 0));
    let rtt = &flow.metrics["rtt_ns"];
    assert_eq!((rtt.min, rtt.mean, rtt.max), (Some(119_000), Some(452_000.0), Some(794_000)));
}

/// BusyBox counts from 0 and includes duplicates in its figures.
#[test]
fn busybox_ping_log_gives_samples_losses_and_duplicates() {
    let outcome = import("busybox-ping-losses.txt");
    let expected = Packets { sent: 20, received: 17, lost: 3, duplicate: 3, ..Packets::default() };
    assert_eq!(outcome.imported.packets(), Some(expected));
    assert_eq!(outcome.ids("", State::Lost), [3, 10, 17]);
    assert_eq!(outcome.ids("", State::Duplicate), [2, 8, 14]);
    let (min, mean, max) = outcome.spread(Column::Rtt);
    assert_eq!((min, max), (169_000, 1_780_000));
    close(mean, 285_000.0, 2_000.0);
    assert_eq!(outcome.imported.target, "icmp://10.91.1.2");
    assert_eq!(outcome.imported.parameters["payload_bytes"], 56);
    assert_eq!(outcome.imported.skipped_lines, 0);
    assert_eq!(outcome.imported.warnings, []);

    let v6 = import("busybox-ping-v6.txt");
    assert_eq!(v6.imported.target, "icmp://[fd91:1::2]");
    assert_eq!(v6.ids("", State::Received), [0, 1, 2, 3, 4]);
    assert_eq!(v6.spread(Column::Rtt), (80_000, 84_800.0, 96_000));
}

#[test]
fn busybox_ping_without_its_first_reply_counts_from_0() {
    let text = "PING 10.0.0.9 (10.0.0.9): 56 data bytes\n\
                64 bytes from 10.0.0.9: seq=1 ttl=64 time=0.345 ms\n\n\
                --- 10.0.0.9 ping statistics ---\n\
                3 packets transmitted, 1 packets received, 66% packet loss\n\
                round-trip min/avg/max = 0.345/0.345/0.345 ms\n";
    let outcome = import_as(Format::Ping, text.as_bytes()).unwrap();
    assert_eq!(outcome.ids("", State::Lost), [0, 2]);
    let none = text.replace("64 bytes from 10.0.0.9: seq=1 ttl=64 time=0.345 ms\n", "");
    let none = none.replace("1 packets received, 66%", "0 packets received, 100%");
    let outcome = import_as(Format::Ping, none.as_bytes()).unwrap();
    assert_eq!(outcome.ids("", State::Lost), [0, 1, 2]);
}

#[test]
fn quiet_busybox_ping_has_totals_and_no_samples() {
    let outcome = import("busybox-ping-quiet.txt");
    let flow = &outcome.imported.flows[0];
    let expected = Packets { sent: 5, received: 4, lost: 1, duplicate: 1, ..Packets::default() };
    assert_eq!((flow.packets, flow.rows), (Some(expected), 0));
    let rtt = &flow.metrics["rtt_ns"];
    assert_eq!((rtt.min, rtt.mean, rtt.max), (Some(183_000), Some(201_000.0), Some(215_000)));
}

#[test]
fn windows_ping_log_is_refused_by_name() {
    for line in [
        "Reply from 10.0.0.1: bytes=32 time<1ms TTL=128",
        "Antwort von 10.0.0.1: Bytes=32 Zeit=14ms TTL=117",
    ] {
        let text = format!("\r\nPinging 10.0.0.1 with 32 bytes of data:\r\n{line}\r\n");
        assert_eq!(detect(text.as_bytes()), None);
        let error = dwell_import::recognise(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("Windows ping") && error.contains("milliseconds"), "{error}");
    }
}

#[test]
fn mtr_hops_are_summaries_with_counts_and_without_percentiles() {
    let outcome = import("mtr-losses.json");
    assert!(outcome.batches.is_empty());
    let flows = &outcome.imported.flows;
    let names: Vec<_> = flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["hop 1 10.91.0.2", "hop 2 10.91.1.2"]);
    assert_eq!(flows[1].target, "mtr://10.91.1.2");
    let expected = Packets { sent: 10, received: 7, lost: 3, ..Packets::default() };
    assert_eq!(flows[1].packets, Some(expected));
    assert_eq!(flows[1].values["loss_ratio"], Some(Scalar::Real(0.3)));
    let rtt = &flows[1].metrics["rtt_ns"];
    assert_eq!((rtt.count, rtt.min, rtt.max), (7, Some(180_000), Some(224_000)));
    assert_eq!((rtt.mean, rtt.stddev), (Some(196_000.0), Some(14_000.0)));
    assert_eq!([rtt.p50, rtt.p90, rtt.p95, rtt.p99, rtt.p99_9], [None; 5]);
    assert_eq!(outcome.imported.parameters["tests"], 10);
    let warnings = outcome.imported.warnings;
    let totals = ImportWarning::TotalsOnly("mtr", "a summary per hop");
    assert_eq!(warnings, [totals, ImportWarning::RouterLimitsReplies]);
}

#[test]
fn mtr_reports_of_two_targets_are_distinguished() {
    let flows = import("mtr-two.json").imported.flows;
    let of = |name: &str, target: &str| (name.to_owned(), target.to_owned());
    let found: Vec<_> = flows.into_iter().map(|flow| (flow.name, flow.target)).collect();
    let expected = [
        of("hop 1 10.91.0.2", "mtr://10.91.1.2"),
        of("hop 2 10.91.1.2", "mtr://10.91.1.2"),
        of("10.91.1.1 hop 1 10.91.1.1", "mtr://10.91.1.1"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn iperf3_tcp_stream_has_its_smoothed_round_trips() {
    let outcome = import("iperf3-tcp.json");
    let flow = &outcome.imported.flows[0];
    assert_eq!(flow.name, "[5] 10.91.0.1:57138 - 10.91.1.2:5201");
    assert_eq!((outcome.imported.target.as_str(), flow.packets), ("iperf3://10.91.1.2:5201", None));
    let rtt = &flow.metrics["tcp_smoothed_rtt_ns"];
    // iperf3 itself states 59, 70 and 93 us.
    assert_eq!((rtt.count, rtt.min, rtt.max), (4, Some(59_000), Some(93_000)));
    assert_eq!((rtt.mean, rtt.p50), (Some(70_000.0), None));
    assert_eq!(flow.values["bytes"], Some(Scalar::Count(5_111_808)));
    assert_eq!(flow.values["tcp_retransmits"], Some(Scalar::Count(0)));
    let Some(Scalar::Real(rate)) = flow.values["rate_bps"] else { panic!() };
    close(rate, 20_432_541.0, 1.0);
    assert_eq!(flow.intervals.len(), 4);
    assert_eq!(flow.intervals[1].start_ns, 500_085_000);
    assert!(!flow.metrics.contains_key("rtt_ns"), "a smoothed value is not a round-trip time");
}

#[test]
fn iperf3_datagram_counts_equal_its_own_at_both_ends() {
    for (name, target) in
        [("iperf3-udp.json", "iperf3://10.91.1.2:5201"), ("iperf3-udp-server.json", "")]
    {
        let outcome = import(name);
        let flow = &outcome.imported.flows[0];
        let (sent, lost) = (71_020, 39_258);
        let expected = Packets { sent, received: sent - lost, lost, ..Packets::default() };
        assert_eq!((flow.packets, outcome.imported.target.as_str()), (Some(expected), target));
        assert_eq!(flow.values["jitter_rfc3550_ns"], Some(Scalar::Real(129_281.0)), "{name}");
        assert_eq!(outcome.imported.warnings.len(), 1, "{:?}", outcome.imported.warnings);
    }
    let client = import("iperf3-udp.json").imported.flows.remove(0);
    assert!(client.intervals.iter().all(|interval| interval.lost.is_none()));
    let server = import("iperf3-udp-server.json").imported.flows.remove(0);
    assert!(server.intervals.iter().all(|interval| interval.lost.is_some()));
}

#[test]
fn iperf3_streams_of_both_directions_are_flows() {
    let flows = import("iperf3-bidir.json").imported.flows;
    let readings =
        |flow: &dwell_import::ImportedFlow| flow.metrics.values().map(|one| one.count).sum();
    let readings: Vec<u64> = flows.iter().map(readings).collect();
    assert_eq!(readings, [1, 1, 0, 0], "only the local kernel states round-trip times");
}

#[test]
fn iperf3_datagrams_uncounted_by_the_receiver_are_noted() {
    let text = String::from_utf8(recorded("iperf3-udp.json")).unwrap();
    let at = text.rfind("\"packets\":\t71020").unwrap();
    let text = format!("{}{}", &text[..at], text[at..].replacen("71020", "70020", 1));
    let warnings = import_as(Format::Iperf3, text.as_bytes()).unwrap().imported.warnings;
    assert_eq!(warnings[0], ImportWarning::UncountedDatagrams(1_000));
}

#[test]
fn failed_iperf3_test_is_refused_with_its_reason() {
    let text = r#"{"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {},
                   "error": "unable to connect to server: Connection refused"}"#;
    assert_eq!(detect(text.as_bytes()), Some(Format::Iperf3));
    let error = import_as(Format::Iperf3, text.as_bytes()).unwrap_err().to_string();
    assert!(error.ends_with("iperf3 reports: unable to connect to server: Connection refused"));
    for (text, hint) in [
        ("Connecting to host 10.0.0.1, port 5201\n[ ID] Interval  Transfer  Bitrate\n", "with -J)"),
        ("{\"event\":\"start\",\"data\":{\"version\":\"iperf 3.17\"}}\n", "with -J only)"),
    ] {
        let error = dwell_import::recognise(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn irtt_figures_equal_its_own_statistics() {
    let outcome = import("irtt.json");
    let figures = |column| {
        let (min, mean, max) = outcome.spread(column);
        (min, mean as i64, max)
    };
    assert_eq!(figures(Column::OneWayForward), (43_143, 97_254, 150_130));
    assert_eq!(figures(Column::OneWayBackward), (31_051, 42_906, 62_116));
    assert_eq!(figures(Column::Residence), (909, 3_485, 7_199));
    // irtt's round trip excludes the residence time; dwell's includes it.
    let rtts = outcome.column("", Column::Rtt).into_iter();
    let without: Vec<_> =
        rtts.zip(outcome.column("", Column::Residence)).map(|(rtt, stay)| rtt - stay).collect();
    let (min, mean, max) = spread(&without);
    assert_eq!((min, mean as i64, max), (74_205, 140_178, 194_355));
    assert_eq!(outcome.ids("", State::Lost), [3, 8]);
    let flow = &outcome.imported.flows[0];
    let Some(Scalar::Real(forward)) = flow.values["loss_forward_ratio"] else { panic!() };
    close(forward, 2.0 / 13.0, 0.0);
    assert_eq!(flow.metrics["schedule_error_ns"].max, Some(698_074));
    assert_eq!(outcome.imported.parameters["interval_ns"], 20_000_000);
}

#[test]
fn irtt_between_two_machines_has_no_one_way_delay() {
    let text = String::from_utf8(recorded("irtt.json")).unwrap();
    let text = text.replace(r#""remote_address": "127.0.0.1"#, r#""remote_address": "127.0.0.2"#);
    let outcome = import_as(Format::Irtt, text.as_bytes()).unwrap();
    assert_eq!(outcome.column("", Column::OneWayForward), [0_i64; 0]);
    assert_eq!(outcome.column("", Column::ForwardPlusOffset).len(), 11);
    assert_eq!(outcome.column("", Column::BackwardMinusOffset).len(), 11);
}

/// sockperf prints half of the round trip, unless `--full-rtt` is given.
#[test]
fn sockperf_latencies_equal_the_printed_ones() {
    for (name, count, halves, min, mean, max) in [
        ("sockperf-ping-pong.csv", 32, 2.0, 3_591.0, 143_553.0, 1_590_934.0),
        ("sockperf-under-load.csv", 9, 2.0, 3_772.0, 321_388.0, 2_244_153.0),
        ("sockperf-full-rtt.csv", 34, 1.0, 14_441.0, 334_159.0, 4_430_080.0),
    ] {
        let outcome = import(name);
        let found = outcome.spread(Column::Rtt);
        // sockperf truncates its figures.
        close(found.0 as f64 / halves, min, 2.0);
        close(found.1 / halves, mean, 2.0);
        close(found.2 as f64 / halves, max, 2.0);
        let packets = outcome.imported.packets().unwrap();
        assert_eq!((packets.received, packets.lost), (count, 0), "{name}");
        assert_eq!(outcome.column("", Column::Gap).len() as u64, count - 1, "{name}");
        assert_eq!(outcome.imported.skipped_lines, 0, "{name}");
    }
}

#[test]
fn iperf_totals_equal_the_printed_ones_at_both_ends() {
    for (name, jitter) in [("iperf2-client.txt", 454_000.0), ("iperf2-server.txt", 455_000.0)] {
        let outcome = import(name);
        let flow = &outcome.imported.flows[0];
        let expected =
            Packets { sent: 103, received: 93, lost: 10, reordered: 2, ..Packets::default() };
        assert_eq!(flow.packets, Some(expected), "{name}");
        assert_eq!(flow.values["jitter_rfc3550_ns"], Some(Scalar::Real(jitter)), "{name}");
        assert_eq!(flow.values["rate_bps"], Some(Scalar::Real(147_000.0)), "{name}");
        let latency = &flow.metrics["one_way_forward_ns"];
        assert_eq!((latency.min, latency.max), (Some(12_000), Some(10_049_000)), "{name}");
        assert_eq!((latency.mean, latency.stddev), (Some(274_000.0), Some(1_463_000.0)), "{name}");
        let starts: Vec<_> = flow.intervals.iter().map(|i| (i.start_ns, i.end_ns)).collect();
        let half = 500_000_000;
        assert_eq!(starts, [(0, half), (half, 2 * half)], "{name}");
        assert_eq!(outcome.imported.skipped_lines, 0, "{name}");
    }
    let server = import("iperf2-server.txt");
    let lost: Vec<_> = server.imported.flows[0].intervals.iter().map(|i| i.lost).collect();
    assert_eq!(lost, [Some(5), Some(5)]);
    let warnings = server.imported.all_warnings();
    assert!(warnings[0].contains("33678: no totals"), "{warnings:?}");
}

#[test]
fn iperf_flows_without_a_report_have_no_packet_counts() {
    let outcome = import("iperf2-client-two.txt");
    let flows = &outcome.imported.flows;
    assert_eq!(flows.len(), 2);
    for flow in flows {
        assert_eq!(flow.packets, None);
        assert_eq!(flow.values["datagrams_sent"], Some(Scalar::Count(104)));
        assert_eq!(flow.values.get("loss_ratio"), None);
    }
}

#[test]
fn iperf_warning_belongs_to_its_flow() {
    // The last line but one is the only one that names the socket-4 flow.
    let text = String::from_utf8(recorded("iperf2-client-two.txt")).unwrap();
    let text = text.trim_end().trim_end_matches(|c| c != '\n');
    for (text, warned) in [(text.to_owned(), "[2]"), (text.replace("[  4]", "[  1]"), "[1]")] {
        let imported = import_as(Format::Iperf2, text.as_bytes()).unwrap().imported;
        let counts: Vec<_> =
            imported.flows.iter().map(|f| (&f.name[..3], f.warnings.len())).collect();
        assert_eq!(counts, ["[1]", "[2]"].map(|name| (name, usize::from(name == warned))));
        assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
    }
}

#[test]
fn iperf_server_without_synchronised_clock_has_no_latency() {
    let text = String::from_utf8(recorded("iperf2-server.txt")).unwrap();
    let text = text.replace("0.274/0.012/10.049/1.463 ms", "-/-/-/- ms");
    let outcome = import_as(Format::Iperf2, text.as_bytes()).unwrap();
    assert!(outcome.imported.flows[0].metrics.is_empty());
    assert_eq!(outcome.imported.packets().unwrap().lost, 10);
}

#[test]
fn iperf_latency_between_hosts_is_not_a_one_way_delay() {
    let text = String::from_utf8(recorded("iperf2-server.txt")).unwrap();
    let text = text.replace("connected with 127.0.0.1", "connected with 127.0.0.2");
    let outcome = import_as(Format::Iperf2, text.as_bytes()).unwrap();
    let metrics = &outcome.imported.flows[0].metrics;
    assert_eq!(metrics.keys().collect::<Vec<_>>(), ["forward_plus_offset_ns"]);
}

/// Compares with ITGDec, which prints microseconds.
#[test]
fn d_itg_delays_equal_those_of_its_decoder() {
    let outcome = import("d-itg-receiver.log");
    for (flow, count, min, mean, max) in [
        ("1 127.0.0.1:55056 > 127.0.0.1:8999", 50, 17_000, 30_000.0, 80_000),
        ("1 127.0.0.1:50102 > 127.0.0.1:9001", 10, 15_000, 23_000.0, 33_000),
        ("2 127.0.0.1:40379 > 127.0.0.1:9002", 10, 5_000, 17_000.0, 30_000),
    ] {
        let delays = outcome.column(flow, Column::OneWayForward);
        let found = spread(&delays);
        assert_eq!((delays.len(), found.0, found.2), (count, min, max), "{flow}");
        close(found.1, mean, 2_000.0);
        assert_eq!(outcome.column(flow, Column::Gap).len(), count - 1, "{flow}");
    }
    assert_eq!(outcome.imported.packets().unwrap().received, 70);
    let bytes: i64 = outcome
        .imported
        .flows
        .iter()
        .map(|f| outcome.column(&f.name, Column::SizeBytes).iter().sum::<i64>())
        .sum();
    assert_eq!(bytes, 6_640);
}

#[test]
fn itg_missing_records_are_losses() {
    let whole = recorded("d-itg-receiver.log");
    let records = whole.chunks(144).take(50).enumerate();
    let kept = records.filter(|(number, _)| !matches!(number, 0 | 7 | 8)).flat_map(|(_, r)| r);
    let outcome = import_as(Format::Itg, &kept.copied().collect::<Vec<_>>()).unwrap();
    let flow = "1 127.0.0.1:55056 > 127.0.0.1:8999";
    assert_eq!(outcome.ids(flow, State::Lost), [1, 8, 9]);
    assert_eq!(outcome.imported.packets().unwrap().sent, 50);

    let sender = import("d-itg-sender.log");
    let flow = &sender.imported.flows[0].name;
    assert_eq!(sender.column(flow, Column::OneWayForward), [0_i64; 0]);
    let warned = sender.imported.flows.iter().filter(|flow| flow.warnings.len() == 1).count();
    assert_eq!((warned, sender.imported.warnings.len()), (sender.imported.flows.len(), 0));
    assert_eq!(sender.imported.packets(), None, "a sender does not know what arrived");
}

#[test]
fn dwell_csv_reproduces_the_run_summary() {
    let outcome = import("dwell.csv");
    let expected = Packets { sent: 12, received: 10, lost: 2, ..Packets::default() };
    assert_eq!(outcome.imported.packets(), Some(expected));
    assert_eq!(outcome.spread(Column::Rtt), (65_650, 187_707.4, 1_068_888));
    assert_eq!(outcome.spread(Column::RttKernel), (55_868, 176_688.5, 1_048_799));
    assert_eq!(outcome.spread(Column::Residence), (8_426, 17_234.9, 40_857));
    assert_eq!(outcome.ids("", State::Lost), [4, 9]);
    assert_eq!(outcome.column("", Column::ScheduleError).len(), 12);
}
