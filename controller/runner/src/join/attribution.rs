//! The attribution test (node/cli/tests/attribution) cannot use this crate and has its own join.
//! This test verifies that both join the same segments to the same packets.

use std::fs;

use dwell_record::segment::{Header, SegmentWriter};
use dwell_sample::PacketOutcome;

use super::*;

#[path = "../../../../node/cli/tests/attribution/joined.rs"]
#[expect(dead_code, reason = "only the attribution test compares rounds")]
mod attribution_join;

const WARM_UP: u64 = 20;

/// Returns a segment of the packets observed at one machine. Another flow has the same ids.
fn segment(flow: &FlowEntry, points: &[Point], delay: i64, skip: u64) -> Vec<u8> {
    let header = Header::of_observations("relay", "udp://n2:5001".into());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    let from = "10.9.9.9:9".parse().unwrap();
    let other = FlowEntry { flow: 9, from, from_out: None, to_out: None, ..flow.clone() };
    [&other, flow].into_iter().for_each(|flow| writer.push_flow(flow).unwrap());
    for id in (1..=300_u64).filter(|id| id % 29 != skip) {
        let mut stamps = PointStamps::default();
        for (n, point) in points.iter().enumerate() {
            let at = 1_000_000 * id as i64 + delay + 100 * n as i64 + (id * id % 77) as i64;
            stamps.set(*point, Instant::from_nanos(at));
        }
        let observation = PacketObservation {
            flow: flow.flow,
            id,
            size: 1_000,
            outcome: PacketOutcome::Observed,
            stamps,
        };
        writer.push_observation(&observation);
        if points.len() > 4 {
            writer.push_observation(&PacketObservation {
                flow: 9,
                stamps: PointStamps::default(),
                ..observation
            });
        }
    }
    writer.finish(0).unwrap()
}

#[test]
fn attribution_test_and_runner_join_alike() {
    let [sender, relay, out, sink] =
        ["10.0.0.1:4000", "10.0.0.2:5001", "10.0.1.1:5000", "10.0.1.2:5001"]
            .map(|address| address.parse().unwrap());
    let flow = |from, to, out: Option<(SocketAddr, SocketAddr)>| FlowEntry {
        flow: 3,
        protocol: "udp".into(),
        from,
        to,
        from_out: out.map(|out| out.0),
        to_out: out.map(|out| out.1),
    };
    let node =
        [Point::RxKernel, Point::RxApp, Point::TxApp, Point::TxSched, Point::TxKernel].as_slice();
    let left = segment(&flow(sender, relay, None), &[Point::TxApp, Point::TxKernel], 0, 99);
    let passed = segment(&flow(sender, relay, Some((out, sink))), node, 1_000, 5);
    let came = segment(&flow(out, sink, None), &[Point::RxKernel, Point::RxApp], 5_000, 7);

    let mut join = Join::default();
    join.add_sender(&mut &left[..]).unwrap();
    join.add_relay(&mut &passed[..]).unwrap();
    join.add_receiver(&mut &came[..]).unwrap();
    let join = join.without_first(WARM_UP as usize);

    let directory = tempfile::tempdir().unwrap();
    let machines = [("sender", left), ("node", passed), ("sink", came)].map(|(name, segment)| {
        let file = directory.path().join(name);
        fs::write(&file, segment).unwrap();
        attribution_join::MachineSegment::read(&file)
    });
    let mut round = attribution_join::Round::join(&machines[0], &machines[1], &machines[2]);

    round.ways.sort_by_key(|path| path.sender.get(Point::TxApp).map(Instant::as_nanos));
    assert!(join.packets.iter().map(|packet| packet.path).eq(round.ways.iter().copied()));
    assert_eq!(join.link_endpoints(), LinkEndpoints::of(&round.ways));
    assert!(round.ways.len() == 280 && join.missing().len() >= 5, "{:?}", join.missing());
}
