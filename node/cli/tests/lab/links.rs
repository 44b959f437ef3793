//! Emulated links: their effect on packets, their counters and logs.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{TestLab, as_root, dwell, until};

/// Sends `count` numbered datagrams from n1 to n2 and returns the numbers that arrived, in order.
/// The link's counters show when all were delivered.
fn send_numbered(lab: &TestLab, count: u32) -> Vec<u32> {
    let receiver = lab.socket("n2", "198.19.0.2:7000");
    let sender = lab.socket("n1", "198.19.0.1:7001");
    let over = AtomicBool::new(false);
    let empty = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let arrived = scope.spawn(|| {
            receiver.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut arrived = Vec::new();
            let mut number = [0; 4];
            loop {
                // Read before receiving, so that everything delivered before the end is still
                // received.
                let last = over.load(Ordering::SeqCst);
                match receiver.recv(&mut number) {
                    Ok(_) => arrived.push(u32::from_be_bytes(number)),
                    Err(_) if last => return arrived,
                    Err(_) => _ = empty.fetch_add(1, Ordering::SeqCst),
                }
            }
        });
        for number in 0..count {
            sender.send_to(&number.to_be_bytes(), "198.19.0.2:7000").unwrap();
            if number % 200 == 199 || number + 1 == count {
                // Not faster than the link delivers and the receiver reads, on any machine: both
                // have room for 200.
                until("the link has delivered all", || {
                    let c = &lab.describe()["links"][0]["counters"]["a_to_b"];
                    let counted = |name: &str| c[name].as_u64().unwrap();
                    counted("arrived") > u64::from(number)
                        && counted("arrived") + counted("duplicated")
                            == counted("delivered") + counted("dropped")
                });
                let seen = empty.load(Ordering::SeqCst);
                until("the receiver's buffer is empty", || empty.load(Ordering::SeqCst) > seen);
            }
        }
        over.store(true, Ordering::SeqCst);
        arrived.join().unwrap()
    })
}

#[test]
fn link_drops_match_missing_packets_and_repeat_with_seed() {
    if !as_root() {
        return;
    }
    const COUNT: u32 = 2_000;
    let run = |test: &str| -> BTreeSet<u32> {
        let options = ["line:2", "--loss", "5%", "--seed", "11", "--mechanism", "tap"];
        let lab = TestLab::up(test, &options);
        let arrived: BTreeSet<u32> = send_numbered(&lab, COUNT).into_iter().collect();
        let missing: BTreeSet<u32> = (0..COUNT).filter(|n| !arrived.contains(n)).collect();
        let events = lab.events();
        let dropped: BTreeSet<u32> = events
            .iter()
            .filter(|event| event["action"] == "drop" && event["dport"] == 7_000)
            .map(|event| u32::from_str_radix(&event["payload_head"].as_str().unwrap()[..8], 16))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(missing, dropped);
        let counters = &lab.describe()["links"][0]["counters"];
        assert_eq!(counters["events_lost"], 0);
        let counted = ["a_to_b", "b_to_a"].map(|d| counters[d]["lost"].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), events.len() as u64, "{counters}");
        missing
    };
    let (first, second) = (run("loss1"), run("loss2"));
    assert!((50..200).contains(&first.len()), "{} of {COUNT} at 5 %", first.len());
    assert_eq!(first, second, "the same seed loses the same packets");
}

#[test]
fn duplicates_and_reordering_match_the_link_log() {
    if !as_root() {
        return;
    }
    let options = ["line:2", "--delay", "2ms", "--duplicate", "3%", "--reorder", "3%"];
    let lab = TestLab::up("double", &[&options[..], &["--mechanism", "tap"]].concat());
    let arrived = send_numbered(&lab, 1_000);
    let events = lab.events();
    let count = |action: &str| {
        let ours = |event: &&Value| event["action"] == action && event["dport"] == 7_000;
        events.iter().filter(ours).count()
    };
    assert_eq!(arrived.len(), 1_000 + count("duplicate"));
    assert!(count("duplicate") > 0 && count("reorder") > 0);
    assert!(!arrived.is_sorted(), "some packets were reordered");
}

#[test]
fn tap_link_adds_delay_and_transmission_time() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up(
        "wire",
        &["line:2", "--rate", "1Mbit/s", "--delay", "5ms", "--mechanism", "tap"],
    );
    let far = lab.socket("n2", "198.19.0.2:7000");
    let near = lab.socket("n1", "198.19.0.1:0");
    let rtt = |size: usize| {
        let message = vec![0; size];
        let mut buffer = [0; 2_000];
        let sent = Instant::now();
        near.send_to(&message, "198.19.0.2:7000").unwrap();
        let (len, from) = far.recv_from(&mut buffer).unwrap();
        far.send_to(&buffer[..len], from).unwrap();
        near.recv(&mut buffer).unwrap();
        sent.elapsed().as_secs_f64()
    };
    for size in [58, 1_208] {
        // 42 bytes of Ethernet, IPv4 and UDP headers; both directions.
        let expected = 2.0 * (0.005 + (size + 42) as f64 * 8.0 / 1e6);
        // A busy machine only adds to the link's delay: repeat until one round trip is undisturbed.
        let start = Instant::now();
        let mut least = f64::INFINITY;
        for count in 1.. {
            least = least.min(rtt(size));
            if count >= 20 && (least < 1.1 * expected || start.elapsed().as_secs() >= 60) {
                break;
            }
        }
        assert!((1.0..1.1).contains(&(least / expected)), "{size} B: {least} not {expected}");
    }
}

/// The link itself holds the queue: its interface takes every frame at once, and
/// its departure timestamp precedes any wait.
#[test]
fn tap_link_leaves_no_backlog_in_the_qdisc() {
    if !as_root() {
        return;
    }
    // Almost as many as the link's own queue holds; four seconds at its rate.
    const COUNT: u64 = 95;
    let options = ["line:2", "--rate", "200kbit/s", "--mechanism", "tap"];
    let lab = TestLab::up("ahead", &options);
    let near = lab.socket("n1", "198.19.0.1:0");
    for _ in 0..COUNT {
        near.send_to(&[0; 1_000], "198.19.0.2:7000").unwrap();
    }
    let shown = lab.exec("n1", &["tc", "-s", "-j", "qdisc", "show", "dev", "n2"]);
    let counters = lab.describe()["links"][0]["counters"]["a_to_b"].clone();
    let number = |name: &str| counters[name].as_u64().unwrap();
    let under_way = number("arrived") - number("delivered") - number("dropped");
    assert!(under_way > COUNT / 2, "the link has a backlog: {counters}");
    let qdiscs: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let discipline = &qdiscs[0];
    assert!(discipline["packets"].as_u64().unwrap() >= COUNT, "{qdiscs}");
    assert_eq!(discipline["backlog"], 0, "{qdiscs}");
    assert_eq!(discipline["drops"], 0, "{qdiscs}");
}

#[test]
fn tap_link_ignores_sigint_and_ends_on_sigterm() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("sigint", &["line:2", "--delay", "1ms", "--mechanism", "tap"]);
    let pid = fs::read_to_string(lab.directory().join("link-0.pid")).unwrap();
    let link = Handle::open(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
    link.signal(Signal::Interrupt).unwrap();
    let far = lab.socket("n2", "198.19.0.2:7000");
    lab.socket("n1", "0.0.0.0:0").send_to(b"still there", "198.19.0.2:7000").unwrap();
    far.recv(&mut [0; 16]).unwrap();
    link.signal(Signal::Terminate).unwrap();
    until("the link ends", || lab.processes().is_empty());
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn killed_link_is_reported_as_dead() {
    if !as_root() {
        return;
    }
    let options = ["line:3", "--delay", "1ms", "--mechanism", "tap"];
    let lab = TestLab::up("dead", &options);
    assert_eq!(lab.describe()["state"], "up");
    let pid = fs::read_to_string(lab.directory().join("link-1.pid")).unwrap();
    let link = Handle::open(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
    link.signal(Signal::Kill).unwrap();
    assert!(link.wait(dwell_units::Nanos::from_secs(10)));
    let described = lab.describe();
    let states = [&described["links"][0]["state"], &described["links"][1]["state"]];
    assert_eq!((&described["state"], states), (&"broken".into(), [&"up".into(), &"dead".into()]));
    let listed = dwell(&["lab", "list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let line = listed.lines().find(|line| line.starts_with(&lab.name)).unwrap();
    assert!(line.contains("link n2 - n3 is dead"), "{line}");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}
