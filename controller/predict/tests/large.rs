//! Queries in networks of 100,000 nodes.

use std::time::{Duration, Instant};

use dwell_predict::{
    Flow, FlowState, InlineModel, Link, Network, NetworkBuilder, Request, predict,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Side of the grid: 316 x 317 = 100,172 nodes.
const ROWS: u32 = 316;
const COLUMNS: u32 = 317;

/// Maximum time of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of queries of which the fastest counts, because other tests use the processors.
const ATTEMPTS: usize = 5;

fn relay_kinds(builder: &mut NetworkBuilder) -> Vec<u32> {
    let kind = |i: u32| {
        let spread = f64::from(1 + i) * 40_000.0;
        let quantiles =
            vec![(0.0, 0.0), (0.5, spread / 10.0), (0.95, spread / 2.0), (1.0, spread * 5.0)];
        let model = InlineModel {
            delay_ns: 150_000.0 - f64::from(i) * 12_000.0,
            ns_per_byte: 10.0,
            residual_ns: quantiles.try_into().ok(),
            cost_ns: Some(30_000.0),
            capacity_ratio: 1.0,
        };
        builder.relay(model.relay(&format!("kind {i}"), "translate"))
    };
    (0..10).map(kind).collect()
}

/// A grid of relays of ten random kinds with links of two rates; `shortcuts` links join random
/// nodes.
fn network(shortcuts: usize) -> Network {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut builder = NetworkBuilder::default();
    let kinds = relay_kinds(&mut builder);
    let link = |rate: f64| Link {
        rate_bps: Some(rate),
        delay_ns: 0.0,
        loss_ratio: 0.0,
        model: None,
        excess: None,
    };
    let links = [10e6, 100e6].map(|rate| builder.link_kind(link(rate)));
    for node in 0..ROWS * COLUMNS {
        let kind = kinds[random.random_range(0..kinds.len())];
        builder.node(&format!("n{node}"), Some(kind)).unwrap();
    }
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let node = row * COLUMNS + column;
            let mut join = |to: u32| {
                let kind = links[random.random_range(0..links.len())];
                builder.link(node, to, kind).unwrap();
            };
            if column + 1 < COLUMNS {
                join(node + 1);
            }
            if row + 1 < ROWS {
                join(node + COLUMNS);
            }
        }
    }
    let mut taken = std::collections::HashSet::new();
    while taken.len() < shortcuts {
        let [a, b] = [0; 2].map(|_: u32| random.random_range(0..ROWS * COLUMNS));
        if a.abs_diff(b) > COLUMNS && taken.insert((a.min(b), a.max(b))) {
            builder.link(a, b, links[1]).unwrap();
        }
    }
    builder.flow(Flow {
        name: "corner to corner".into(),
        from: 0,
        to: ROWS * COLUMNS - 1,
        size_bytes: 700.0,
        rate_pps: 200.0,
        path: Vec::new(),
    });
    builder.build().unwrap()
}

fn assert_quick(shortcuts: usize, deadline_ns: f64) {
    let network = network(shortcuts);
    assert!(network.node_count() >= 100_000);
    let request = Request { deadline_ns, probability: 0.95 };
    let mut fastest = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let prediction = predict(&network, "grid", &request);
        fastest = fastest.min(start.elapsed());
        let flow = &prediction.flows[0];
        assert_eq!(flow.state, FlowState::Meets, "{:?}", flow.reason);
        let (chosen, fewest) = (flow.chosen.as_ref().unwrap(), flow.fewest_hops.as_ref().unwrap());
        assert!(chosen.p95_ns <= Some(deadline_ns), "{:?}", chosen.p95_ns);
        assert!(
            fewest.hops <= chosen.hops && fewest.mean_ns >= chosen.mean_ns,
            "{}",
            fewest.mean_ns
        );
        assert!(chosen.resolution_ns < 0.02 * chosen.mean_ns, "{}", chosen.resolution_ns);
        if fastest < QUERY_TIMEOUT {
            println!(
                "{} nodes, {} links: {fastest:.1?} for {} candidates, {} hops chosen",
                network.node_count(),
                network.link_count(),
                flow.candidates,
                chosen.hops
            );
            return;
        }
    }
    panic!("the fastest of {ATTEMPTS} queries took {fastest:?}");
}

#[test]
fn query_over_600_hops_takes_under_a_second() {
    assert_quick(0, 400e6);
}

#[test]
fn query_in_a_small_world_takes_under_a_second() {
    assert_quick(100_000, 10e6);
}
