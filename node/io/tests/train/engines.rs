//! Guarantees of each engine.

use std::net::SocketAddr;

use dwell_io::clock::monotonic;
use dwell_io::interface::switch_udp_segmentation;
use dwell_io::port::{SocketOptions, StampRequest};
use dwell_io::train::{Departure, Numbers, TrainProgress};
use dwell_sample::PaceEngine;
use dwell_units::Nanos;

use crate::fixture::{Ends, PORT, open, open_bypassing, run, send, skip};

const LEN: usize = 200;

fn targets() -> [SocketAddr; 2] {
    ["198.19.7.2", "fd00:7::2"].map(|address| SocketAddr::new(address.parse().unwrap(), PORT))
}

fn stamped() -> SocketOptions {
    SocketOptions { stamps: StampRequest::Kernel, ..Default::default() }
}

#[test]
fn socket_engine_keeps_schedule_with_timestamps() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = || open(PaceEngine::SleepSpin, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open) else { return };
        report.assert_stamped();
    }
}

#[test]
fn spinning_sender_is_punctual_and_naive_sender_is_stamped() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = |engine| move || open(engine, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open(PaceEngine::Spin)) else { return };
        report.assert_stamped();
        let Some(report) = send(&ends, LEN, open(PaceEngine::Sleep)) else { return };
        report.assert_stamped();
    }
}

#[test]
fn long_train_has_all_timestamps() {
    const PACKETS: usize = 100_000;
    let Some(ends) = Ends::up() else { return };
    let target = targets()[0];
    for name in [PaceEngine::SleepSpin, PaceEngine::Sendmmsg] {
        let left = ends.near(|| {
            let mut engine = open(name, target, &stamped(), LEN).unwrap();
            engine.prepare(Numbers::new(0, PACKETS));
            let mut left = vec![Departure::default(); PACKETS];
            let start = monotonic() + Nanos::from_millis(1);
            let due: Vec<_> =
                (0..PACKETS as i64).map(|n| start + Nanos::from_micros(30 * n)).collect();
            engine.send(TrainProgress::unstopped(&due), &mut left);
            engine.collect(&mut left, Nanos::from_secs(1));
            left
        });
        let stamped = left.iter().filter(|left| left.kernel.is_some()).count();
        assert_eq!(stamped, PACKETS, "{name:?}");
    }
}

#[test]
fn sendmmsg_sends_pairs_in_one_call_with_timestamps() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = || open(PaceEngine::Sendmmsg, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open) else { return };
        report.assert_stamped();
        report.assert_pairs_left_by_one_call();
        assert!(report.pair_gap() < 100_000, "{}", report.pair_gap());
    }
}

#[test]
fn gso_sends_packets_due_together_as_one_message() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let refused = ends.near(|| {
            switch_udp_segmentation("near", true).unwrap();
            let gso = open(PaceEngine::Gso, target, &stamped(), LEN);
            gso.err().expect("packets would leave merged").why
        });
        assert!(refused.contains("ethtool -K near tx-udp-segmentation off"), "{refused}");
        for options in [stamped(), SocketOptions::default()] {
            let report = run(&ends, LEN, || {
                switch_udp_segmentation("near", false).unwrap();
                open(PaceEngine::Gso, target, &options, LEN).unwrap()
            });
            let Some(report) = report else { return };
            if options.stamps == StampRequest::Kernel {
                report.assert_stamped();
            } else {
                assert!(report.left().all(|left| left.kernel.is_none()));
            }
            assert!((1..50_000).contains(&report.pair_gap()), "{}", report.pair_gap());
        }
    }
}

#[test]
fn packet_ring_sends_whole_packets_with_and_without_qdisc() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        for open in [open, open_bypassing] {
            let open = || open(PaceEngine::PacketRing, target, &stamped(), LEN).unwrap();
            let Some(report) = run(&ends, LEN, open) else { return };
            // The driver timestamps them either way.
            report.assert_stamped();
        }
    }
}

#[test]
fn af_xdp_sends_whole_packets_without_timestamps() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = || open(PaceEngine::Xsk, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open) else { return };
        assert!(report.left().all(|left| left.kernel.is_none()));
        report.assert_pairs_left_by_one_call();
    }
}

#[test]
fn io_uring_sends_pairs_in_one_call_with_timestamps() {
    let Some(ends) = Ends::up() else { return };
    if let Err(why) = open(PaceEngine::Uring, targets()[0], &stamped(), LEN)
        && why.why.contains("io_uring_disabled")
    {
        return skip(&why.why);
    }
    for target in targets() {
        let open = || open(PaceEngine::Uring, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open) else { return };
        report.assert_stamped();
        report.assert_pairs_left_by_one_call();
    }
}

#[test]
fn ignored_txtime_is_detected() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = || open(PaceEngine::Txtime, target, &stamped(), LEN);
        let why = ends.near(open).err().expect("a veth has no queueing discipline").why;
        let expected = "SO_TXTIME is accepted and ignored: no fq or etf qdisc on near, but noqueue";
        assert_eq!(why, expected);
    }
}

#[test]
fn packets_kept_by_fq_leave_when_due() {
    let Some(ends) = Ends::up() else { return };
    if let Err(why) = ends.qdisc(&["fq"]) {
        return skip(&format!("needs fq: {why}"));
    }
    for target in targets() {
        let open = || open(PaceEngine::Txtime, target, &stamped(), LEN).unwrap();
        let Some(report) = run(&ends, LEN, open) else { return };
        report.assert_stamped();
    }
}

#[test]
fn af_xdp_queue_is_freed_with_its_engine() {
    let Some(ends) = Ends::up() else { return };
    ends.near(|| {
        let open = || open(PaceEngine::Xsk, targets()[0], &stamped(), LEN);
        let engine = open().unwrap();
        let why = open().err().expect("the queue is taken").why;
        assert!(why.contains("binding an AF_XDP socket to queue 0 of near"), "{why}");
        drop(engine);
        open().unwrap();
    });
}

#[test]
fn packets_dropped_by_full_queue_are_reported_as_not_sent() {
    let Some(ends) = Ends::up() else { return };
    // Room for some ten packets, at a rate at which none has left when the next ones come.
    ends.qdisc(&["tbf", "rate", "1mbit", "burst", "1600", "limit", "3000"]).unwrap();
    let target = targets()[0];
    use PaceEngine::{PacketRing, Sendmmsg, SleepSpin, Uring};
    for name in [SleepSpin, Sendmmsg, Uring, PacketRing] {
        ends.near(|| {
            let mut engine = open(name, target, &stamped(), LEN).unwrap();
            // Bursts of five, then a few that find room.
            for (first, slots, gap) in [(0_u64, 60, 20), (100, 3, 10_000)] {
                engine.prepare(Numbers::new(first, slots));
                let start = monotonic() + Nanos::from_millis(200);
                let due = |n: usize| start + Nanos::from_micros(n as i64 / 5 * 5 * gap);
                let due: Vec<_> = (0..slots).map(due).collect();
                let mut left = vec![Departure::default(); slots];
                engine.send(TrainProgress::unstopped(&due), &mut left);
                engine.collect(&mut left, Nanos::from_secs(1));
                let is_sent = |left: &&Departure| left.app.is_some();
                let sent = left.iter().filter(is_sent).count();
                if first == 0 {
                    assert!((5..50).contains(&sent), "{name:?}: {sent}");
                    assert!(engine.failure().is_some(), "{name:?}");
                } else {
                    assert_eq!(sent, slots, "{name:?}");
                }
                // For several packets sent by one call, the kernel does not report which took a key
                // in vain.
                let may_lack = name == Sendmmsg && first == 0;
                for left in left.iter().filter(is_sent) {
                    let is_stamped = left.kernel >= left.app;
                    assert!(is_stamped || left.kernel.is_none() && may_lack, "{name:?}: {left:?}");
                }
                let numbers = (first..).zip(&left).filter(|(_, left)| left.app.is_some());
                let numbers: Vec<_> = numbers.map(|(n, _)| n).collect();
                assert_eq!(ends.numbers(numbers.len()), numbers, "{name:?}");
            }
        });
    }
}

#[test]
fn packets_above_mtu_are_refused() {
    let Some(ends) = Ends::up() else { return };
    let too_long = 1_473;
    ends.near(|| {
        let ring = open(PaceEngine::PacketRing, targets()[0], &stamped(), too_long);
        let why = ring.err().expect("they do not fit").why;
        assert_eq!(why, "packets of 1501 bytes exceed the MTU of near, 1500 bytes");
        let xsk = open(PaceEngine::Xsk, targets()[0], &stamped(), too_long);
        assert_eq!(xsk.err().expect("they do not fit").why, why);
    });
}

#[test]
fn frames_to_missing_neighbour_are_refused() {
    let Some(ends) = Ends::up() else { return };
    let missing = SocketAddr::new("198.19.7.99".parse().unwrap(), PORT);
    let open = || open(PaceEngine::PacketRing, missing, &stamped(), LEN);
    let why = ends.near(open).err().expect("no neighbour answers").why;
    assert_eq!(why, "no neighbour at near answers for 198.19.7.99");
}

#[test]
fn loopback_frames_arrive_over_ipv6_and_ipv4_is_refused() {
    let Some(ends) = Ends::up() else { return };
    ends.near(|| {
        for ours in ["127.0.0.1", "198.19.7.1"] {
            let target = SocketAddr::new(ours.parse().unwrap(), PORT);
            let ring = open(PaceEngine::PacketRing, target, &stamped(), LEN);
            let why = ring.err().expect("the kernel would drop them").why;
            assert!(why.contains("loopback"), "{why}");
        }
        let sink = std::net::UdpSocket::bind("[::1]:0").unwrap();
        sink.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let target = sink.local_addr().unwrap();
        let open = |engine| open(engine, target, &stamped(), LEN).unwrap();
        for mut engine in [PaceEngine::PacketRing, PaceEngine::Xsk].map(open) {
            engine.prepare(Numbers::new(0, 1));
            let mut left = [Departure::default()];
            engine
                .send(TrainProgress::unstopped(&[monotonic() + Nanos::from_millis(1)]), &mut left);
            assert_eq!(sink.recv(&mut [0; 2_000]).unwrap(), LEN);
        }
    });
}
