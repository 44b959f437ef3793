//! What each engine promises.

use std::net::SocketAddr;

use dwell_io::pacer::Manner;
use dwell_io::port::{PortOptions, StampRequest};
use dwell_io::train::{Sendmmsg, SocketSender, Stamping, TrainSender};
use dwell_io::udp::UdpPort;

use crate::fixture::{Ends, PORT, payloads, run};

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
        let pairs = told.left[crate::fixture::ALONE..].chunks(2);
        assert!(pairs.clone().all(|pair| pair[0].app == pair[1].app), "one call");
        assert!(told.pair_gap() < 20_000, "{}", told.pair_gap());
    }
}
