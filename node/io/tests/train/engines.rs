//! What each engine promises.

use std::net::SocketAddr;

use dwell_io::interface::switch_udp_segmentation;
use dwell_io::pacer::Manner;
use dwell_io::port::{PortOptions, StampRequest};
use dwell_io::train::{
    Gso, PacketRing, Sendmmsg, SocketSender, Stamping, TrainSender, Txtime, Uring, Xsk,
};
use dwell_io::udp::UdpPort;

use crate::fixture::{ALONE, Ends, PORT, payloads, run, skip};

const LEN: usize = 200;

fn targets() -> [SocketAddr; 2] {
    ["198.19.7.2", "fd00:7::2"].map(|address| SocketAddr::new(address.parse().unwrap(), PORT))
}

fn stamped() -> PortOptions {
    PortOptions { stamps: StampRequest::Kernel, ..Default::default() }
}

#[test]
fn the_plainest_engine_keeps_its_schedule_and_every_packet_is_stamped() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let told = run(&ends, LEN, || {
            let port = UdpPort::connect(target, &stamped()).unwrap();
            let manner = Some(Manner::SleepSpin);
            Box::new(SocketSender::new(port, payloads(LEN), manner, true))
        });
        let Some(told) = told else { return };
        told.assert_stamped();
    }
}

#[test]
fn what_is_due_together_leaves_by_one_call_and_every_packet_is_stamped() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let told = run(&ends, LEN, || {
            let engine = Sendmmsg::new(target, &stamped(), payloads(LEN)).unwrap();
            assert_eq!(engine.stamping(), Stamping::Socket);
            Box::new(engine)
        });
        let Some(told) = told else { return };
        told.assert_stamped();
        let pairs = told.left[ALONE..].chunks(2);
        assert!(pairs.clone().all(|pair| pair[0].app == pair[1].app), "one call");
        assert!(told.pair_gap() < 20_000, "{}", told.pair_gap());
    }
}

#[test]
fn what_is_due_together_leaves_as_one_message_that_is_cut_before_the_driver() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let refused = ends.near(|| {
            switch_udp_segmentation("near", true).unwrap();
            Gso::new(target, &stamped(), payloads(LEN))
                .err()
                .expect("packets would leave merged")
                .why
        });
        assert!(refused.contains("ethtool -K near tx-udp-segmentation off"), "{refused}");
        for options in [stamped(), PortOptions::default()] {
            let told = run(&ends, LEN, || {
                switch_udp_segmentation("near", false).unwrap();
                let engine = Gso::new(target, &options, payloads(LEN)).unwrap();
                let by_tap = options.stamps == StampRequest::Kernel;
                let expected = if by_tap { Stamping::Tap } else { Stamping::FarEnd };
                assert_eq!(engine.stamping(), expected);
                Box::new(engine)
            });
            let Some(told) = told else { return };
            if options.stamps == StampRequest::Kernel {
                told.assert_stamped();
            } else {
                assert!(told.left.iter().all(|left| left.kernel.is_none()));
            }
            assert!((1..10_000).contains(&told.pair_gap()), "{}", told.pair_gap());
        }
    }
}

#[test]
fn frames_from_a_ring_are_whole_packets_with_and_without_the_queueing_discipline() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        for bypass in [false, true] {
            let told = run(&ends, LEN, || {
                let engine =
                    PacketRing::new(target, &stamped(), payloads(LEN), 80, bypass).unwrap();
                Box::new(engine)
            });
            let Some(told) = told else { return };
            // The driver stamps them either way.
            told.assert_stamped();
        }
    }
}

#[test]
fn frames_by_af_xdp_are_whole_packets_and_nobody_at_this_end_stamps_them() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let told = run(&ends, LEN, || {
            let engine = Xsk::new(target, &stamped(), payloads(LEN), 80).unwrap();
            assert_eq!(engine.stamping(), Stamping::FarEnd);
            Box::new(engine)
        });
        let Some(told) = told else { return };
        assert!(told.left.iter().all(|left| left.kernel.is_none()));
        let pairs = told.left[ALONE..].chunks(2);
        assert!(pairs.clone().all(|pair| pair[0].app == pair[1].app), "one call");
    }
}

#[test]
fn requests_by_io_uring_leave_by_one_call_and_every_packet_is_stamped() {
    let Some(ends) = Ends::up() else { return };
    if let Err(why) = Uring::new(targets()[0], &stamped(), payloads(LEN))
        && why.why.contains("io_uring_disabled")
    {
        return skip(&why.why);
    }
    for target in targets() {
        let told = run(&ends, LEN, || {
            let engine = Uring::new(target, &stamped(), payloads(LEN)).unwrap();
            assert_eq!(engine.stamping(), Stamping::Socket);
            Box::new(engine)
        });
        let Some(told) = told else { return };
        told.assert_stamped();
        let pairs = told.left[ALONE..].chunks(2);
        assert!(pairs.clone().all(|pair| pair[0].app == pair[1].app), "one call");
    }
}

#[test]
fn times_of_departure_that_nobody_keeps_are_found_out() {
    let Some(ends) = Ends::up() else { return };
    for target in targets() {
        let open = || Txtime::new(target, &stamped(), payloads(LEN));
        let why = ends.near(open).err().expect("a veth has no queueing discipline").why;
        let expected = "SO_TXTIME is accepted and ignored: no fq or etf qdisc on near, but noqueue";
        assert_eq!(why, expected);
    }
}

#[test]
fn packets_that_fq_keeps_leave_when_they_are_due() {
    let Some(ends) = Ends::up() else { return };
    if let Err(why) = ends.qdisc(&["fq"]) {
        return skip(&format!("needs fq: {why}"));
    }
    for target in targets() {
        let open = || Box::new(Txtime::new(target, &stamped(), payloads(LEN)).unwrap());
        let Some(told) = run(&ends, LEN, || open()) else { return };
        told.assert_stamped();
    }
}
