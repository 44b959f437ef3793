//! Tests of the suite about statuses without their bodies, and of what is read for many nodes at once.

use std::collections::BTreeSet;

use dwell_hub::store::StatusPoint;
use dwell_hub::{Collection, NodeReport};
use dwell_rollup::{Pause, PauseInterval, Status};

use crate::agent::{Agent, HOUR, NOW, SECOND, deliver, message, name};
use crate::state::Create;

pub(crate) fn histories_of_nodes_have_pauses_and_bounds(create: Create<'_>) {
    let mut store = create();
    let mut expected = Vec::new();
    for node in ["a", "b"] {
        let mut agent = Agent::new(node, 1, 1, NOW - HOUR);
        let mut records = Vec::new();
        for n in 1..=3 {
            agent.wait(60 * SECOND);
            let wall_ns = agent.wall_ns();
            let ended = |n: i64| PauseInterval {
                reason: "run".into(),
                from_wall_ns: wall_ns - 2 * n - 2,
                to_wall_ns: wall_ns - 2 * n - 1,
            };
            // A node that floods writes more than an agent does.
            let pauses: Vec<_> = if n == 2 { (0..300).map(ended).collect() } else { Vec::new() };
            let pause = (n == 3).then(|| Pause { reason: "\0".into(), since_wall_ns: wall_ns - 9 });
            let clock_bound_ns = (n == 1).then_some(77);
            let status = Status {
                schedule_version: n,
                clock_synchronised: true,
                clock_bound_ns,
                pauses,
                pause,
                ..Status::default()
            };
            let of = status.pauses.iter().take(100).map(|it| (it.from_wall_ns, it.to_wall_ns));
            let mut spans: Vec<_> = of.collect();
            spans.extend((n == 3).then_some((wall_ns - 9, wall_ns)));
            expected.push(StatusPoint {
                wall_ns,
                schedule_version: n,
                clock_bound_ns,
                pauses: spans,
            });
            records.push(agent.status_with(status));
        }
        deliver(&mut *store, &agent.node, &message(&records)).unwrap();
    }
    let mut transaction = store.begin_to_read().unwrap();
    let nodes: Vec<_> = transaction.nodes().unwrap().iter().map(|node| node.id).collect();
    let of = |points: &[StatusPoint]| points.to_vec();
    let all = transaction.status_histories(&nodes, NOW - HOUR, NOW).unwrap();
    assert_eq!(
        (of(&all[&nodes[0]]), of(&all[&nodes[1]])),
        (of(&expected[..3]), of(&expected[3..]))
    );
    let from_ns = expected[1].wall_ns;
    let some = transaction.status_histories(&nodes[1..], from_ns, from_ns + 1).unwrap();
    assert_eq!((some.len(), of(&some[&nodes[1]])), (1, of(&expected[4..5])));
    let body = transaction.statuses(nodes[0], from_ns, from_ns + 1).unwrap().remove(0);
    assert_eq!(body.status.pauses.len(), 100, "the rest of a flood is not kept");
    let last = transaction.last_statuses(&nodes).unwrap();
    assert_eq!(nodes.iter().map(|id| last[id].wall_ns).collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(last[&nodes[0]].status.schedule_version, 3);
}

pub(crate) fn reports_of_nodes_are_read_at_once(create: Create<'_>) {
    let mut store = create();
    for (node, incarnations) in [("a", 2), ("b", 1)] {
        for incarnation in 1..=incarnations {
            let mut agent = Agent::new(node, incarnation, incarnation as u8, NOW - HOUR);
            let status = agent.status();
            deliver(&mut *store, &agent.node, &message([&status])).unwrap();
        }
    }
    let mut transaction = store.begin().unwrap();
    transaction.add_nodes(&[name("c")]).unwrap();
    let fault = Some("no route".to_owned());
    let collection = Collection { node: name("c"), hub: "h@m:/data".to_owned(), fault };
    collection.store(&mut *transaction).unwrap();
    let reports = NodeReport::read_all(&mut *transaction).unwrap();
    let of: Vec<_> = reports
        .iter()
        .map(|it| (it.incarnations.len(), it.status.is_some(), it.collection_fault.as_deref()))
        .collect();
    assert_eq!(of, [(2, true, None), (1, true, None), (0, false, Some("no route"))]);
    for report in reports {
        let one = NodeReport::read(&mut *transaction, report.node.clone()).unwrap();
        assert_eq!(one, report);
    }
    let parts = transaction.node_schedules(1, None).unwrap();
    assert_eq!(parts.len(), 0);
}
