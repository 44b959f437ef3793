use dwell_record::segment::{Header, SegmentWriter};
use dwell_sample::PacketOutcome;

use super::*;

fn entry(flow: u32, from: &str, to: &str) -> FlowEntry {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    FlowEntry { flow, protocol: "udp".into(), from, to, from_out: None, to_out: None }
}

fn observation(flow: u32, id: u64, stamps: &[(Point, i64)]) -> PacketObservation {
    let mut all = PointStamps::default();
    stamps.iter().for_each(|(point, at)| all.set(*point, Instant::from_nanos(*at)));
    PacketObservation { flow, id, size: 1_000, outcome: PacketOutcome::Observed, stamps: all }
}

fn segment(flows: &[FlowEntry], observations: &[PacketObservation]) -> Vec<u8> {
    let header = Header::of_observations("relay", "udp://n2:5001".into());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    flows.iter().for_each(|flow| writer.push_flow(flow).unwrap());
    observations.iter().for_each(|observation| writer.push_observation(observation));
    writer.finish(0).unwrap()
}

const SENDER: &str = "10.0.0.1:40000";
const RELAY: &str = "10.0.0.2:5001";
const RELAY_OUT: &str = "10.0.1.1:50000";
const RECEIVER: &str = "10.0.1.2:5001";

fn sent(ids: std::ops::Range<u64>) -> Vec<u8> {
    let at = |id: u64| id as i64 * 1_000_000;
    let observations: Vec<_> = ids
        .map(|id| observation(3, id, &[(Point::TxApp, at(id)), (Point::TxKernel, at(id) + 10)]))
        .collect();
    segment(&[entry(3, SENDER, RELAY)], &observations)
}

/// Returns the segment of a relay bound to the unspecified address, with another flow of the same
/// ids.
fn relayed(ids: &[u64]) -> Vec<u8> {
    let mut ours = entry(7, SENDER, "0.0.0.0:5001");
    ours.from_out = Some(RELAY_OUT.parse().unwrap());
    ours.to_out = Some(RECEIVER.parse().unwrap());
    let other = entry(8, "10.0.0.9:40000", "0.0.0.0:5001");
    let observations: Vec<_> = ids
        .iter()
        .flat_map(|&id| {
            let at = id as i64 * 1_000_000 + 100;
            let stamps = [
                (Point::RxKernel, at),
                (Point::RxApp, at + 20),
                (Point::TxApp, at + 60),
                (Point::TxSched, at + 65),
                (Point::TxKernel, at + 90),
            ];
            [observation(8, id, &[(Point::RxApp, 1)]), observation(7, id, &stamps)]
        })
        .collect();
    segment(&[ours, other], &observations)
}

fn received(ids: &[u64]) -> Vec<u8> {
    let observations: Vec<_> = ids
        .iter()
        .map(|&id| {
            let at = id as i64 * 1_000_000 + 300;
            observation(0, id, &[(Point::RxKernel, at), (Point::RxApp, at + 40)])
        })
        .collect();
    segment(&[entry(0, RELAY_OUT, "[::ffff:10.0.1.2]:5001")], &observations)
}

fn rows(join: &Join) -> Batch {
    join.batches().next().unwrap()
}

#[test]
fn components_of_a_row_sum_to_its_end_to_end_delay() {
    let mut join = Join::default();
    join.add_sender(&mut &sent(0..3)[..]).unwrap();
    join.add_relay(&mut &relayed(&[0, 1])[..]).unwrap();
    let hooks = segment(
        &[entry(0, SENDER, RELAY), entry(1, RELAY_OUT, RECEIVER), entry(2, SENDER, RECEIVER)],
        &[
            observation(0, 0, &[(Point::PreRouting, 110), (Point::PostRouting, 999)]),
            observation(1, 0, &[(Point::PostRouting, 170), (Point::PreRouting, 999)]),
            observation(2, 0, &[(Point::PreRouting, 999)]),
        ],
    );
    join.add_trace(Machine::Node, &mut &hooks[..]).unwrap();
    join.add_receiver(&mut &received(&[0, 1])[..]).unwrap();
    let rows = rows(&join);
    assert_eq!(rows.state, [State::Received, State::Received, State::Lost]);
    let sum = ["sender_out_ns", "link_in_ns", "queueing_in_ns", "processing_ns"];
    let sum = sum.iter().chain(&["queueing_out_ns", "qdisc_ns", "link_out_ns", "receiver_in_ns"]);
    let all = &rows;
    let components =
        |row| sum.clone().map(move |name| all.number(row, Column::named(name).unwrap()));
    for row in 0..2 {
        let whole: i64 = components(row).map(Option::unwrap).sum();
        assert_eq!(rows.number(row, Column::EndToEnd), Some(whole));
        assert_eq!(whole, 340);
    }
    assert!(
        components(2).skip(1).all(|component| component.is_none()),
        "a lost packet has no later components"
    );
    assert_eq!(
        rows.number(0, Column::NodeDelayNetfilter),
        Some(60),
        "each hook counts on its own side"
    );
    assert_eq!(rows.number(1, Column::NodeDelayNetfilter), None);
    assert_eq!(rows.number(0, Column::LinkDelay), Some(90 + 110));
    let stamps = ["node_rx_kernel_ns", "node_pre_routing_ns", "node_tx_app_ns", "node_rx_tcx_ns"];
    let stamps = stamps.map(|name| rows.number(0, Column::named(name).unwrap()));
    assert_eq!(stamps, [Some(100), Some(110), Some(160), None], "the node's own stamps are kept");
    assert!(rows.column(Column::NodeRxTcx).is_none(), "a column without stamps is absent");
    assert_eq!(join.counts.unmatched, [2, 1, 0], "other flows are counted and not joined");
    let missing = join.missing();
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing.contains(&(Machine::Node, Point::PreRouting, 1)));
}

#[test]
fn trace_of_a_routed_flow_sees_both_sides() {
    let mut join = Join::default();
    let send = [observation(0, 1, &[(Point::TxApp, 0), (Point::TxKernel, 5)])];
    join.add_sender(&mut &segment(&[entry(0, SENDER, RECEIVER)], &send)[..]).unwrap();
    let seen = [observation(9, 1, &[(Point::PreRouting, 25), (Point::PostRouting, 32)])];
    let hooks = segment(&[entry(9, SENDER, RECEIVER)], &seen);
    join.add_trace(Machine::Node, &mut &hooks[..]).unwrap();
    let came = [observation(0, 1, &[(Point::RxKernel, 60), (Point::RxApp, 71)])];
    join.add_receiver(&mut &segment(&[entry(0, SENDER, RECEIVER)], &came)[..]).unwrap();
    let rows = rows(&join);
    let number = |column| rows.number(0, column);
    assert_eq!(number(Column::EndToEnd), Some(71));
    assert_eq!(number(Column::NodeDelayNetfilter), Some(7));
    assert_eq!((number(Column::LinkIn), number(Column::LinkOut)), (Some(20), Some(28)));
    assert_eq!((number(Column::Processing), number(Column::NodeDelay)), (None, None));
    assert_eq!(join.link_endpoints().node, Some(DelayComponent::NodeDelayNetfilter));
}

#[test]
fn duplicate_and_reordered_packets_are_counted() {
    let mut join = Join::default();
    join.add_sender(&mut &sent(0..5)[..]).unwrap();
    join.add_relay(&mut &relayed(&[0, 1, 2, 3])[..]).unwrap();
    join.add_receiver(&mut &received(&[0, 2, 1, 2, 3, 77])[..]).unwrap();
    assert_eq!((join.counts.duplicate, join.counts.unmatched[2]), (1, 1));
    let rows = rows(&join);
    assert_eq!(rows.reordered, [false, true, false, false, false]);
    assert_eq!(join.sent_and_received(), (5, 4));
    // 3 packets of 1,000 B in 3 ms: the time starts with the first packet.
    assert_eq!(join.throughput(), Some(8e6));
    let counted = join.without_first(2);
    assert_eq!(counted.sent_and_received(), (3, 2));
    assert_eq!(rows.id.len(), 5);
}

#[test]
fn truncated_segment_yields_its_complete_part() {
    let mut join = Join::default();
    let whole = sent(0..2_000);
    let end = join.add_sender(&mut &whole[..whole.len() - 40]).unwrap();
    assert_eq!(end.totals, None);
    assert!(join.add_sender(&mut &b"nothing"[..]).is_err());
}

#[test]
fn repeated_sender_id_is_joined_once() {
    let mut join = Join::default();
    let at =
        |id: u64, ns: i64| observation(3, id, &[(Point::TxApp, ns), (Point::TxKernel, ns + 10)]);
    let observations = [at(0, 0), at(0, 500_000), at(1, 1_000_000)];
    join.add_sender(&mut &segment(&[entry(3, SENDER, RELAY)], &observations)[..]).unwrap();
    join.add_relay(&mut &relayed(&[0, 1])[..]).unwrap();
    join.add_receiver(&mut &received(&[0, 1])[..]).unwrap();
    let rows = rows(&join);
    assert_eq!((rows.id.as_slice(), join.counts.repeated), (&[0, 1][..], 1));
    let whole: Vec<_> = (0..2).map(|row| rows.number(row, Column::EndToEnd)).collect();
    assert_eq!(whole, [Some(340), Some(340)]);
}

#[test]
fn unstamped_node_leaves_no_link_delay() {
    for (relayed, link) in [(false, Some(290)), (true, None)] {
        let mut join = Join::new(relayed);
        let observations = [observation(0, 0, &[(Point::TxApp, 0), (Point::TxKernel, 10)])];
        join.add_sender(&mut &segment(&[entry(0, RELAY_OUT, RECEIVER)], &observations)[..])
            .unwrap();
        join.add_receiver(&mut &received(&[0])[..]).unwrap();
        let rows = rows(&join);
        assert_eq!(rows.number(0, Column::LinkDelay), link);
        assert_eq!(rows.number(0, Column::EndToEnd), Some(340));
    }
}

#[test]
fn qdisc_wait_counts_as_link_delay_for_emulated_links() {
    let rows_of = |queue_is_link: bool| {
        let mut join = Join::default();
        if queue_is_link {
            join.count_queues_as_links();
        }
        let stamps = [(Point::TxApp, 0), (Point::TxSched, 4), (Point::TxKernel, 10)];
        let observations = [observation(3, 0, &stamps)];
        join.add_sender(&mut &segment(&[entry(3, SENDER, RELAY)], &observations)[..]).unwrap();
        join.add_relay(&mut &relayed(&[0])[..]).unwrap();
        join.add_receiver(&mut &received(&[0])[..]).unwrap();
        let rows = rows(&join);
        [Column::SenderOut, Column::NodeDelay, Column::Qdisc, Column::LinkDelay, Column::EndToEnd]
            .map(|column| rows.number(0, column).unwrap())
    };
    let ([plain_out, plain_node, plain_wait, plain_link, whole], [out, node, wait, link, same]) =
        (rows_of(false), rows_of(true));
    assert_eq!((plain_out, plain_node, plain_wait), (10, 90, 25));
    assert_eq!((out, node, wait), (4, 65, 25));
    assert_eq!((link, same), (plain_link + 6 + 25, whole));
}

#[test]
fn clock_step_keeps_stamps_and_voids_delays() {
    let mut join = Join::default();
    join.add_sender(&mut &sent(0..3)[..]).unwrap();
    join.add_relay(&mut &relayed(&[0, 1])[..]).unwrap();
    join.add_receiver(&mut &received(&[0, 1])[..]).unwrap();
    assert_eq!(join.void(), 0);
    join.invalidate_delays();
    let rows = rows(&join);
    assert_eq!((join.void(), rows.void.as_slice()), (3, &[true; 3][..]));
    assert_eq!(rows.state[..2], [State::Received; 2], "arrival does not depend on a clock");
    assert_eq!(rows.number(1, Column::RxApp), Some(1_000_340));
    let delays = [Column::EndToEnd, Column::NodeDelay, Column::LinkDelay, Column::Processing];
    assert!(delays.iter().all(|delay| rows.column(*delay).is_none()));
    assert_eq!(join.throughput(), None);
}
