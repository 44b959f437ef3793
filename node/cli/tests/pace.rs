//! `dwell pace` and `dwell pace sink` against each other over loopback, and invalid command lines.

#[path = "lab/fixture.rs"]
#[expect(dead_code, reason = "tests of labs use the rest")]
mod fixture;
#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use dwell_io::{interface, netns};
use dwell_record::segment::{self, Record};
use dwell_sample::{Sample, State};
use dwell_units::BitRate;
use dwell_wire::traffic::Mark;
use fixture::{Running, TestLab, as_root, until};
use serde_json::{Value, json as value};
use support::{DWELL, Server, dwell, free_port, json, said};

/// Starts `dwell pace sink` on a free port; returns it with its URL.
fn sink() -> (Server, String) {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut command = Command::new(DWELL);
    command.args(["pace", "sink", &url, "--json"]);
    (Server::ready(command, "stamping", 1), url)
}

fn pace(url: &str, more: &[&str]) -> Value {
    let output = dwell(&[&["pace", url, "--json", "-q"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    json(&output)
}

fn samples(path: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut file = fs::File::open(path).unwrap();
    let end = segment::read(&mut file, &mut |record| {
        if let Record::Sample(sample, ..) = record {
            samples.push(*sample);
        }
    })
    .unwrap();
    assert_eq!(end.totals.unwrap().samples, samples.len() as u64, "the segment is complete");
    samples
}

#[test]
fn trains_leave_on_time_without_receiver() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    for engine in ["sleep", "spin", "sleep-spin"] {
        let more = ["--rate", "10Mbit/s", "--size", "576B", "--repeat", "6", "--engine", engine];
        let found = pace(&url, &more);
        let (values, metrics) = (&found["values"], &found["metrics"]);
        assert_eq!(found["parameters"]["gap_ns"], value!(460_800.0), "{found:#}");
        assert_eq!(found["stamps"]["tx"], "kernel-sw");
        assert_eq!(values["trains"], value!(6.0));
        assert_eq!(values["packets"], value!(300));
        // A busy machine may leave no time to prepare packets.
        let ahead = found["parameters"]["ahead_packets"].as_u64().unwrap();
        assert_eq!(
            ahead > 150,
            engine != "sleep",
            "{engine}: {ahead} of 300 packets were prepared"
        );
        assert_eq!(metrics["gap_ns"]["count"], value!(6 * 49));
        assert_eq!(found["trains"].as_array().unwrap().len(), 6);
        // A sleeping sender is late by the wake-up time; no packet leaves early.
        let errors = &metrics["schedule_error_ns"];
        assert!(errors["min"].as_i64().unwrap() > 0, "{errors}");
        if engine == "sleep" {
            // On a busy host most wake-ups are half a millisecond late, but not all.
            assert!(errors["min"].as_i64().unwrap() < 400_000, "{metrics:#}");
        } else {
            assert!(
                metrics["gap_error_ns"]["p50"].as_i64().unwrap() < 20_000,
                "{engine}: {metrics:#}"
            );
        }
        // Most gaps are right, but each stall shifts the rest of its train, which takes 23 ms: on a
        // busy host the least disturbed train shows what the engine can do.
        let rate = values["rate_bps"].as_f64().unwrap();
        assert!(rate < 1.1e7, "{engine}: {rate}");
        let least = if engine == "sleep" { 0.3e7 } else { 0.9e7 };
        let trains = found["trains"].as_array().unwrap();
        let best = trains.iter().filter_map(|train| train["rate_bps"].as_f64()).fold(0.0, f64::max);
        assert!((least..1.1e7).contains(&best), "{engine}: {trains:?}");
        assert!(values["icmp_errors"].as_u64().unwrap() > 0, "{values}");
        let said = found["trust"]["warnings"].to_string();
        assert!(said.contains("departures are valid"), "{said}");
    }
}

#[test]
fn sink_stamps_replace_missing_departures() {
    let (server, url) = sink();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pace.segment");
    let file = file.to_str().unwrap();
    let more = ["--rate", "20Mbit/s", "--size", "300B", "--repeat", "4", "--engine", "spin"];
    let own = pace(&url, &[&more[..], &["--sink"]].concat());
    assert_eq!(own["parameters"]["departures"], "tx_kernel");
    let far = pace(&url, &[&more[..], &["--sink", "--stamps", "user", "--samples", file]].concat());
    assert_eq!(far["parameters"]["departures"], "sink");
    for found in [&own, &far] {
        let packets = &found["packets"];
        assert_eq!((&packets["sent"], &packets["received"]), (&value!(200), &value!(200)));
        assert_eq!(found["metrics"]["gap_ns"]["count"], value!(4 * 49), "{found:#}");
    }
    let printed = server.stop();
    let counted = json(&printed);
    // Both runs, each with one warm-up train.
    assert_eq!(counted["values"]["packets"], value!(2 * 250), "{counted:#}");
    assert_eq!(counted["values"]["clock_steps"], value!(0), "{counted:#}");
    let samples = samples(file);
    assert_eq!(samples.len(), 200);
    assert!(samples.iter().all(|sample| sample.state == State::Received));
    // Neighbouring numbers belong to one train.
    let ids: Vec<_> = samples.iter().map(|sample| sample.id).collect();
    let expected: Vec<u64> =
        (0..4).flat_map(|train| (0..50).map(move |n| train * 51 + n)).collect();
    assert_eq!(ids, expected);
    for pair in samples.windows(2).filter(|pair| pair[1].id - pair[0].id == 1) {
        assert_eq!((pair[1].intended - pair[0].intended).0, 120_000);
        assert!(pair[1].remote.unwrap().rx > pair[0].remote.unwrap().rx);
    }
}

#[test]
fn sink_drops_packets_of_unannounced_flows() {
    let (server, url) = sink();
    let more = ["--rate", "20Mbit/s", "--size", "300B", "--repeat", "4", "--engine", "spin"];
    let kept = ["--sink", "--stamps", "user"];
    for announces in [false, true, false] {
        let found = pace(&url, &[&more[..], if announces { &kept } else { &[] }].concat());
        assert_eq!(found["values"]["icmp_errors"], value!(0), "{found:#}");
        assert_eq!(found["parameters"]["sink"], value!(announces));
        assert_eq!(found["packets"]["received"], if announces { value!(200) } else { Value::Null });
    }
    let counted = json(&server.stop());
    let count = |name: &str| counted["values"][name].as_u64().unwrap();
    // Five trains of 50 packets per run, one for warm-up, each with three lead-in packets. The sink
    // may notice the end of the second sender only after the third has started.
    let read = count("packets") + count("lead_packets");
    assert_eq!((read + count("unread_packets"), count("overflowed_packets")), (3 * 265, 0));
    assert_eq!(count("packets") - count("unasked_packets"), 250, "{counted:#}");
    assert!((265..=530).contains(&count("unread_packets")), "{counted:#}");
}

#[test]
fn sink_probes_silent_sender() {
    let (server, url) = sink();
    let address = url.strip_prefix("udp://").unwrap();
    let sender = TcpStream::connect(address).unwrap();
    // A closed connection is reported by the sender's kernel, a vanished machine is not.
    let has_keepalive = || {
        let port = address.rsplit_once(':').unwrap().1;
        let mut ss = Command::new("ss");
        let output = ss.args(["-Htno", "sport", "=", &format!(":{port}")]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("timer:(keepalive,")
    };
    until("the sink's kernel uses keep-alive", has_keepalive);
    drop(sender);
    server.stop();
}

#[test]
fn lost_sink_keeps_local_results() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    let sink = std::thread::spawn(move || {
        let (mut sender, _) = far.accept().unwrap();
        let mut requests = BufReader::new(sender.try_clone().unwrap()).lines();
        // The sink greets and is gone when asked for timestamps.
        assert!(requests.next().unwrap().unwrap().starts_with("dwell-pace/1 "));
        sender.write_all(b"dwell-pace/1 - kernel-sw\n").unwrap();
        assert_eq!(requests.next().unwrap().unwrap(), "stamps");
    });
    let more = ["--rate", "20Mbit/s", "--size", "300B", "--repeat", "3", "--engine", "spin"];
    let output = dwell(&[&["pace", &url, "--json", "-q", "--sink"], &more[..]].concat());
    sink.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("the far end is gone"), "{}", said(&output));
    let found = json(&output);
    assert_eq!(found["metrics"]["gap_ns"]["count"], value!(3 * 49), "{found:#}");
    assert_eq!(found["packets"], Value::Null, "arrivals are unknown");
}

/// Acts as the sink of another machine whose clock is stepped back by years within the second of
/// three trains of 50 packets.
fn stepped_sink(far: &TcpListener) {
    let stamp = |number: u64, at: u64| [number.to_be_bytes(), at.to_be_bytes()].concat();
    let at = |id: u64| 120_000 * id + if id < 51 + 20 { 1 << 60 } else { 1 << 50 };
    let ids = (0..3).flat_map(|train| (0..50).map(move |n| 51 * train + n));
    let stamps = ids.flat_map(|id| match id {
        71 => [stamp(u64::MAX, 0), stamp(id, at(id))].concat(),
        _ => stamp(id, at(id)),
    });
    let reply = [b"151\n".to_vec(), stamps.collect()].concat();
    let (mut sender, _) = far.accept().unwrap();
    let requests = BufReader::new(sender.try_clone().unwrap()).lines();
    let mut answers = [b"dwell-pace/1 - kernel-sw\n".to_vec()].into_iter();
    for _ in requests.map_while(Result::ok) {
        sender.write_all(&answers.next().unwrap_or_else(|| reply.clone())).unwrap();
    }
}

#[test]
fn train_with_sink_clock_step_is_discarded() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    let send = |more: &[&str]| {
        std::thread::scope(|scope| {
            let sink = scope.spawn(|| stepped_sink(&far));
            let train = ["--rate", "20Mbit/s", "--size", "300B", "--repeat", "3", "--sink"];
            let found = pace(&url, &[&train[..], &["--engine", "spin"], more].concat());
            sink.join().unwrap();
            found
        })
    };
    let found = send(&["--stamps", "user"]);
    let gaps = &found["metrics"]["gap_ns"];
    assert_eq!((&gaps["count"], &gaps["max"]), (&value!(2 * 49), &value!(120_000)), "{found:#}");
    let said = found["trust"]["warnings"].to_string();
    assert!(said.contains("a clock was stepped: 1 trains are discarded"), "{said}");
    // Kernel timestamps of this machine are unaffected, and no packet was overtaken either way.
    let own = send(&[]);
    assert_eq!(own["metrics"]["gap_ns"]["count"], value!(3 * 49), "{own:#}");
    for packets in [&found["packets"], &own["packets"]] {
        assert_eq!((&packets["received"], &packets["reordered"]), (&value!(150), &value!(0)));
    }
}

#[test]
fn lead_in_packets_are_not_counted() {
    const LEAD: u64 = u64::MAX << 32;
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    far.set_nonblocking(true).unwrap();
    let received = || {
        let mut buffer = [0; 2_000];
        let one = || far.recv(&mut buffer).ok().map(|len| Mark::parse(&buffer[..len]).unwrap().seq);
        std::iter::from_fn(one).collect::<Vec<_>>()
    };
    let train = ["--size", "200B", "--count", "3", "--repeat", "2", "--warm-up", "0", "--rate"];
    for engine in ["spin", "sleep-spin", "sendmmsg"] {
        let of = |rate| pace(&url, &[&train[..], &[rate, "--engine", engine]].concat());
        let found = of("10Mbit/s");
        let led = |first: u64| [0, 1, 2].map(|n| LEAD | (first + n));
        let expected = [led(0), [0, 1, 2], led(4), [4, 5, 6]].concat();
        assert_eq!(received(), expected, "{engine}");
        let [leads, sent] = [&found["parameters"]["leads_per_train"], &found["values"]["packets"]];
        assert_eq!((leads, sent), (&value!(3), &value!(6)), "{found:#}");
        assert_eq!(found["metrics"]["gap_ns"]["count"], value!(4));
        // Gaps of 32 ms.
        let found = of("50kbit/s");
        assert_eq!(received(), [0, 1, 2, 4, 5, 6], "{engine}");
        assert_eq!(found["parameters"]["leads_per_train"], value!(0));
    }
    pace(&url, &["--pattern", "pair", "--pairs", "2", "--warm-up", "0", "--engine", "spin"]);
    assert_eq!(received(), [0, 1, 3, 4]);
}

#[test]
fn pair_capacity_counts_the_size_option_used() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let found = pace(&url, &["--pattern", "pair", "--frame-size", "1514B", "--engine", "spin"]);
    let parameters = &found["parameters"];
    let sizes = ["size_bytes", "payload_bytes", "frame_bytes"].map(|name| parameters[name].clone());
    assert_eq!(sizes, [1_500, 1_472, 1_514].map(|size| value!(size)));
    let values = &found["values"];
    let smallest = values["min_gap_ns"].as_f64().unwrap();
    let capacity = values["capacity_bps"].as_f64().unwrap();
    // The rate counts the size option used, here the frame.
    assert!((capacity * smallest / (1_514.0 * 8e9) - 1.0).abs() < 1e-9, "{values}");
    assert_eq!(found["metrics"]["gap_ns"]["count"], value!(25), "{found:#}");
    // Only first packets count as late; second packets have the gap.
    let errors = &found["metrics"]["schedule_error_ns"];
    assert_eq!(errors["count"], value!(25), "{found:#}");
    assert!(errors["min"].as_i64().unwrap() > 0, "{errors}");
    assert_eq!(
        found["parameters"]["late_ns"],
        value!(1e6),
        "the default is the interval between pairs"
    );
    let missed = values["missed_deadlines"].as_f64().unwrap();
    assert_eq!(missed > 0.0, errors["max"].as_i64().unwrap() > 1_000_000, "{errors} {missed}");
}

#[test]
fn auto_engine_is_measured_with_reason() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let found = pace(&url, &["--rate", "50Mbit/s", "--size", "576B", "--repeat", "3"]);
    let used = found["parameters"]["engine_used"].as_str().unwrap();
    assert_ne!(used, "sleep", "{found:#}");
    let why = found["engine"].as_str().unwrap();
    assert!(why.starts_with(used) && why.contains("sleep-spin"), "{why}");
}

#[test]
fn stop_while_choosing_reports_no_engine() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    let mut command = Command::new(DWELL);
    // A gap is one second, so choosing takes long.
    command.args(["pace", &url, "--rate", "1kbit/s", "--size", "125B", "--json", "-q"]);
    let server = Server::ready(command, "", 0);
    far.recv(&mut [0; 125]).unwrap();
    let output = server.stop();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let found = json(&output);
    assert_eq!(found["values"]["packets"], value!(0), "{found:#}");
    assert_eq!(found["parameters"]["engine_used"], "auto");
    assert!(found["engine"].as_str().unwrap().contains("none was chosen"), "{found:#}");
    let said = found["trust"]["warnings"].to_string();
    assert!(said.contains("before the first packet"), "{said}");
}

#[test]
fn engine_choice_packets_are_not_counted_by_sink() {
    let (server, url) = sink();
    let found = pace(&url, &["--rate", "50Mbit/s", "--size", "576B", "--repeat", "3", "--sink"]);
    let packets = &found["packets"];
    assert_eq!((&packets["sent"], &packets["received"]), (&value!(150), &value!(150)));
    assert_eq!(packets["reordered"], value!(0));
    // All engines that work over loopback have timestamps of their own.
    assert!(!found["engine"].as_str().unwrap().contains("by the sink's stamps"), "{found:#}");
    let user = ["--rate", "50Mbit/s", "--size", "576B", "--repeat", "3", "--sink", "--stamps"];
    let found = pace(&url, &[&user[..], &["user"]].concat());
    assert!(found["engine"].as_str().unwrap().contains("by the sink's stamps"), "{found:#}");
    assert_eq!(found["packets"]["received"], value!(150));
    drop(server);
}

#[test]
fn invalid_pace_options_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let gaps = directory.path().join("gaps");
    fs::write(&gaps, "10us\n# a comment\nsoon\n").unwrap();
    let gaps = gaps.to_str().unwrap();
    let url = "udp://127.0.0.1:9";
    let rate = ["--rate", "10Mbit/s"];
    let cases: [(&[&str], i32, &str); 16] = [
        (&[url], 2, "--rate"),
        (&["tcp://127.0.0.1:9", "--pattern", "pair"], 2, "only udp://"),
        (&[url, rate[0], rate[1], "--size", "30B"], 2, "at least 44B"),
        (&[url, rate[0], rate[1], "--frame-size", "70kB"], 2, "for --frame-size"),
        (&[url, rate[0], rate[1], "--size", "200B", "--payload-size", "9B"], 2, "cannot be used"),
        (&[url, rate[0], "0bit/s"], 2, "--rate"),
        (&[url, rate[0], rate[1], "--count", "1"], 2, "--count"),
        (&[url, rate[0], rate[1], "--count", "4000000000"], 2, "at most 10000000"),
        (&[url, rate[0], rate[1], "--engine", "magic"], 2, "sleep-spin"),
        (&[url, rate[0], rate[1], "--bypass"], 2, "--engine packet-ring"),
        (&[url, rate[0], rate[1], "--bypass", "--engine", "spin"], 2, "--engine packet-ring"),
        (&[url, "--from", gaps], 2, "line 3"),
        (&[url, "--from", gaps, rate[0], rate[1]], 2, "cannot be used with '--rate"),
        (&[url, "--from", gaps, "--gap", "1ms"], 2, "cannot be used with '--gap"),
        (&[url, "--from", gaps, "--count", "5"], 2, "cannot be used with '--count"),
        (&[url, rate[0], rate[1], "--sink"], 1, "dwell pace sink"),
    ];
    for (arguments, exit, says) in cases {
        let output = dwell(&[&["pace"], arguments].concat());
        assert_eq!(output.status.code(), Some(exit), "{arguments:?} {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn threshold_decides_the_exit_code_of_pace() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let train = ["--rate", "10Mbit/s", "--size", "576B", "--repeat", "3", "--engine", "sleep"];
    let exit = |condition: &str| {
        let more = ["--json", "-q", "--fail-if", condition];
        let output = dwell(&[&["pace", &url], &train[..], &more].concat());
        (output.status.code(), said(&output))
    };
    // 147 gaps.
    assert_eq!(exit("gap_error.p95 > 10s").0, Some(0));
    assert_eq!(exit("gap.p50 > 1ns").0, Some(3));
    let (code, said) = exit("p99 > 10s");
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("no probe of 147") && said.contains("299 or more"), "{said}");
    let (code, said) = exit("loss > 1%");
    assert_eq!(code, Some(5), "arrivals are not counted: {said}");
    let (code, said) = exit("rtt.p99 > 1ms");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("known are gap, gap_error"), "{said}");
}

#[test]
fn user_stamps_decide_no_threshold() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let train = ["--rate", "10Mbit/s", "--size", "576B", "--repeat", "3", "--engine", "sleep"];
    for condition in ["gap_error.p95 > 10s", "gap.p50 > 1ns", "gap_error.max > 10s"] {
        let more = ["--stamps", "user", "-q", "--fail-if", condition];
        let output = dwell(&[&["pace", &url], &train[..], &more].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(5), "{condition}: {said}");
        assert!(said.contains("cannot tell: departures are user timestamps"), "{said}");
    }
}

/// Acts as a sink that received the first 5 packets of each of three trains of 50.
fn losing_sink(far: &TcpListener) {
    let ids = (0..3).flat_map(|train| (0..5).map(move |n| 51 * train + n));
    let stamps = ids.flat_map(|id: u64| [id, 120_000 * id + (1 << 60)].map(u64::to_be_bytes));
    let reply = [b"15\n".to_vec(), stamps.flatten().collect()].concat();
    let (mut sender, _) = far.accept().unwrap();
    let requests = BufReader::new(sender.try_clone().unwrap()).lines();
    let mut answers = [b"dwell-pace/1 - kernel-sw\n".to_vec()].into_iter();
    for _ in requests.map_while(Result::ok) {
        sender.write_all(&answers.next().unwrap_or_else(|| reply.clone())).unwrap();
    }
}

#[test]
fn lost_packets_exceed_gap_limits_by_sink_stamps() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    let judge = |more: &[&str]| {
        std::thread::scope(|scope| {
            let sink = scope.spawn(|| losing_sink(&far));
            let train = ["--rate", "20Mbit/s", "--size", "300B", "--repeat", "3", "--sink"];
            let limit = ["--engine", "spin", "-q", "--fail-if", "gap.p50 > 10s"];
            let output = dwell(&[&["pace", &url], &train[..], &limit, more].concat());
            sink.join().unwrap();
            (output.status.code(), said(&output))
        })
    };
    let (code, said) = judge(&["--stamps", "user"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("among the late and lost probes"), "{said}");
    // This machine timestamped the lost packets too.
    let (code, said) = judge(&[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn unreachable_rate_is_reported_with_reached_rate() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let found = pace(&url, &["--rate", "1000Gbit/s", "--size", "1500B", "--engine", "sendmmsg"]);
    let reached = found["values"]["rate_bps"].as_f64().unwrap();
    let said = found["trust"]["warnings"].to_string();
    let (_, rate) = said.split_once("requested rate: 1000 Gbit/s requested, ").expect(&said);
    let (rate, _) = rate.split_once(" reached").unwrap();
    let rate: BitRate = rate.parse().unwrap();
    assert!((rate.0 as f64 / reached - 1.0).abs() < 0.01, "{said} {reached}");
    // With varying gaps every train has its own rate.
    let directory = tempfile::tempdir().unwrap();
    let gaps = directory.path().join("gaps");
    fs::write(&gaps, "10\n20\n30\n".repeat(20)).unwrap();
    let poisson = ["--pattern", "poisson", "--rate", "1000Gbit/s"];
    for pattern in [&["--from", gaps.to_str().unwrap()][..], &poisson] {
        let size = ["--size", "1500B", "--engine", "sendmmsg"];
        let said = pace(&url, &[pattern, &size].concat())["trust"]["warnings"].to_string();
        assert!(said.contains("rate-missed"), "{pattern:?}: {said}");
    }
}

#[test]
fn delayed_pairs_are_reported() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let said = |gap| {
        let pairs = ["--pattern", "pair", "--pairs", "30", "--gap", gap, "--engine", "spin"];
        pace(&url, &pairs)["trust"]["warnings"].to_string()
    };
    assert!(said("20us").contains("apart on average, not 20us"), "{}", said("20us"));
    // No pair takes that long, even with stalls.
    assert!(!said("40ms").contains("apart on average"));
}

#[test]
fn bypassed_limit_is_named_and_met_limit_is_kept() {
    if !as_root() {
        return;
    }
    let options = ["line:2", "--rate", "10Mbit/s", "--mechanism", "tbf"];
    let lab = TestLab::up("limit", &options);
    let ring = ["pace", "udp://n2:9", "--rate", "50Mbit/s", "--size", "1500B", "--json", "-q"];
    let found = |more: &[&str]| {
        let ring = [&[DWELL][..], &ring, &["--repeat", "4", "--engine", "packet-ring"], more];
        json(&lab.exec("n1", &ring.concat()))
    };
    let (bypassing, meeting) = (found(&["--bypass"]), found(&[]));
    let exit = |more: &[&str]| {
        let repeat = ["--repeat", "4", "--engine", "packet-ring", "--fail-if", "gap.p50 > 10s"];
        lab.exec("n1", &[&[DWELL][..], &ring, &repeat, more].concat()).status.code()
    };
    assert_eq!((exit(&["--bypass"]), exit(&[])), (Some(5), Some(0)));
    let said = |found: &Value| found["trust"]["warnings"].to_string();
    assert_eq!(bypassing["parameters"]["limit_unseen"], true);
    assert!(
        said(&bypassing).contains("tbf limits the rate of the outgoing interface"),
        "{bypassing:#}"
    );
    assert_eq!(meeting["parameters"]["limit_unseen"], false);
    assert!(said(&meeting).contains("of the requested rate: 50 Mbit/s requested"), "{meeting:#}");
    let rate = meeting["values"]["rate_bps"].as_f64().unwrap();
    assert!(rate < 10.5e6, "{rate}");
}

#[test]
fn sink_refuses_receive_offload() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("merging", &["line:2"]);
    let merge = |on: bool| {
        let switch = || interface::switch_offload("n1", "rx-gro-list", on);
        netns::within(&lab.netns("n2"), switch).unwrap().unwrap();
    };
    let sink = Running::start(&lab, "n2", "stamping", &["pace", "sink", "udp://0.0.0.0:5001"]);
    let train =
        ["pace", "udp://198.19.0.2:5001", "--rate", "10Mbit/s", "--sink", "--engine", "spin", "-q"];
    let send = || lab.exec("n1", &[&[DWELL][..], &train].concat());
    merge(true);
    let refused = send();
    assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
    assert!(said(&refused).contains("ethtool -K n1 rx-gro-list off"), "{}", said(&refused));
    merge(false);
    assert_eq!(send().status.code(), Some(0));
    sink.end();
}

#[test]
fn stopped_train_keeps_sent_packets() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", far.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pace.segment");
    let mut command = Command::new(DWELL);
    // The train takes more than a day.
    command.args(["pace", &url, "--rate", "10kbit/s", "--size", "100B", "--repeat", "1"]);
    command.args(["--count", "1000000", "--engine", "sleep-spin", "--json", "-q", "--samples"]);
    command.arg(&file);
    let server = Server::ready(command, "departures from", 1);
    let mut packet = [0; 100];
    // Waits for the first three counted packets.
    let is_counted = |packet: &[u8]| Mark::parse(packet).unwrap().seq < 1 << 63;
    for _ in 0..3 {
        while far.recv(&mut packet).map(|len| !is_counted(&packet[..len])).unwrap() {}
    }
    let output = server.stop();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let found = json(&output);
    let sent = found["values"]["packets"].as_u64().unwrap();
    // It stops at once, except for stalls.
    assert!((3..30).contains(&sent), "{found:#}");
    assert_eq!(found["metrics"]["gap_ns"]["count"].as_u64(), Some(sent - 1));
    assert_eq!(samples(file.to_str().unwrap()).len() as u64, sent);
}

#[test]
fn gaps_of_a_file_are_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let gaps = directory.path().join("gaps");
    fs::write(&gaps, "100us\n300000\n0.2ms # three gaps, four packets\n").unwrap();
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let file = directory.path().join("pace.segment");
    let file = file.to_str().unwrap();
    let more = ["--from", gaps.to_str().unwrap(), "--repeat", "2", "--samples", file];
    let found = pace(&url, &[&more[..], &["--engine", "spin"]].concat());
    assert_eq!(found["parameters"]["pattern"], "replay");
    let samples = samples(file);
    assert!(samples.iter().all(|sample| sample.state == State::Sent && sample.tx.kernel.is_some()));
    let gaps = samples.windows(2).filter(|pair| pair[1].id - pair[0].id == 1);
    let gaps: Vec<_> = gaps.map(|pair| (pair[1].intended - pair[0].intended).0).collect();
    assert_eq!(gaps, [100_000, 300_000, 200_000, 100_000, 300_000, 200_000]);
}

#[test]
fn unprivileged_engine_is_named_and_skipped() {
    if !as_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("dwell-node");
    fs::copy(DWELL, &program).unwrap();
    let open = Command::new("chmod").args(["755", "."]).current_dir(&home).status().unwrap();
    assert!(open.success());
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let unprivileged = |engine: &str| {
        let who = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
        let rate = ["--rate", "10Mbit/s", "--size", "300B", "--repeat", "2", "--json", "-q"];
        let mut command = Command::new("setpriv");
        command.args(who).arg(&program).args(["pace", &url, "--engine", engine]).args(rate);
        command.current_dir("/").output().unwrap()
    };
    let refused = unprivileged("packet-ring");
    assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
    assert!(said(&refused).contains("CAP_NET_RAW"), "{}", said(&refused));
    let found = unprivileged("auto");
    assert_eq!(found.status.code(), Some(0), "{}", said(&found));
    let engine = json(&found)["engine"].to_string();
    assert!(engine.contains("packet-ring") && engine.contains("CAP_NET_RAW"), "{engine}");
}
