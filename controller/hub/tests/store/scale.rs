//! Times of the largest pages. The bounds are those of unoptimised code; the printed times are what the
//! measurement took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dwell_hub::{Query, Window, WindowFigures, mesh, query};
use dwell_rollup::{Level, Name, PauseInterval, RollupMetric, Status, Stream};

use crate::agent::{Agent, DAY, FIVE_MINUTES, HOUR, NOW, deliver, deliver_at, message, name};
use crate::sqlite_store;
use crate::state::Create;

/// Number of nodes of the mesh.
const NODES: usize = 100;

/// Number of statuses of a node per hour: all of them in optimised code.
const STATUSES_PER_HOUR: i64 = if cfg!(debug_assertions) { 1 } else { 12 };

/// Time on a CPU of this thread: other programs do not disturb it. Nothing here waits for a disk.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Time on a CPU within which a page is read by unoptimised code.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

fn node_name(n: usize) -> Name {
    name(&format!("node-{n:03}"))
}

/// The part of a node in a schedule of a full mesh.
fn mesh_part(version: u64, node: &Name) -> String {
    let others = (0..NODES).map(node_name).filter(|other| other != node);
    let entries = others.map(|other| {
        format!(
            r#"{{"name":"mesh+{other}","reflector":"{other}","target":"stamp://192.0.2.1","interval":"1s"}}"#
        )
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    format!(r#"{{"version":{version},"node":"{node}","entries":[{entries}]}}"#)
}

/// Figures as `ingest` keeps them, of a window of real records.
fn figures(window: Window) -> WindowFigures {
    let mut test = sqlite_store();
    let mut agent = Agent::new("a", 1, 1, NOW - HOUR);
    let delays: Vec<i64> = (1..=300).collect();
    let records: Vec<_> = (0..12).map(|_| agent.rollup(Level::FiveMinutes, &delays)).collect();
    deliver(&mut *test, &agent.node, &message(&records)).unwrap();
    let windows = test.begin_to_read().unwrap().windows(window, None).unwrap();
    windows.into_iter().next().unwrap().1
}

pub(crate) fn mesh_of_100_nodes_is_read_at_once(create: Create<'_>) {
    let mut test = create();
    let windows = Window::ALL.map(|window| (window, figures(window)));
    let mut transaction = test.begin().unwrap();
    let names: Vec<Name> = (0..NODES).map(node_name).collect();
    let nodes = transaction.add_nodes(&names).unwrap();
    for (sender, node) in names.iter().zip(&nodes) {
        let streams = names.iter().filter(|other| *other != sender).map(|reflector| {
            let (protocol, entry) = (name("stamp"), name(&format!("mesh+{reflector}")));
            (*node, Stream { reflector: reflector.clone(), protocol, entry })
        });
        let ids = transaction.add_streams(&streams.collect::<Vec<_>>(), 1_000).unwrap();
        let figures = ids.into_iter().flatten().flat_map(|id| {
            windows.iter().map(move |(window, figures)| (id, *window, Some(figures.clone())))
        });
        transaction.set_windows(&figures.collect::<Vec<_>>()).unwrap();
    }
    let parts =
        |version| names.iter().map(|node| (node.clone(), mesh_part(version, node))).collect();
    transaction.add_schedule(NOW - 2 * DAY, "u@h", "", &parts).unwrap();
    transaction.commit().unwrap();
    // The statuses of a day.
    let interval_ns = HOUR / STATUSES_PER_HOUR;
    for node in &names {
        let mut agent = Agent::new(node.as_str(), 1, 1, NOW - DAY);
        let records: Vec<_> = (0..24 * STATUSES_PER_HOUR)
            .map(|_| {
                agent.wait(interval_ns);
                agent.status_with(Status {
                    schedule_version: 1,
                    clock_synchronised: true,
                    clock_bound_ns: Some(50_000),
                    ..Status::default()
                })
            })
            .collect();
        deliver(&mut *test, node, &message(&records)).unwrap();
    }
    for window in Window::ALL {
        let (start, cpu_start) = (Instant::now(), cpu_time());
        let found = mesh(&mut *test.begin_to_read().unwrap(), window, NOW).unwrap();
        let (elapsed, took) = (start.elapsed(), cpu_time() - cpu_start);
        let (count, name) = (found.streams.len(), window.name());
        println!("mesh of {count} streams, last {name}: {took:?} of this thread, {elapsed:?}");
        assert_eq!(found.streams.len(), NODES * (NODES - 1));
        let figures = found.streams[0].figures.as_ref().unwrap();
        let due = (figures.window.to_ns - figures.window.from_ns) as f64 / 1e9;
        assert_eq!((figures.due, figures.window.counts.sent), (Some(due), 12 * 301));
        assert!(took < READ_TIMEOUT, "{took:?}");
    }
}

pub(crate) fn pair_over_90_days_is_read_at_once(create: Create<'_>) {
    let mut test = create();
    let mut transaction = test.begin().unwrap();
    let json = r#"{"version":1,"node":"a","entries":[{"name":"mesh+b","reflector":"b",
                   "target":"stamp://192.0.2.2","interval":"1min"}]}"#;
    let parts = |_| BTreeMap::from([(name("a"), json.to_owned())]);
    transaction.add_schedule(NOW - 91 * DAY, "u@h", "", &parts).unwrap();
    transaction.commit().unwrap();
    let mut agent = Agent::new("a", 1, 1, NOW - 90 * DAY);
    let mut reflector = Agent::new("b", 1, 1, NOW - 90 * DAY);
    let delays: Vec<i64> = (1..=59).collect();
    let interval_ns = HOUR / STATUSES_PER_HOUR;
    for day in 0..90 {
        let arrival_ns = NOW - (89 - day) * DAY;
        let mut records = Vec::new();
        let mut statuses = Vec::new();
        for interval in 0..24 * STATUSES_PER_HOUR {
            // One row of 5 min is an hour row.
            if (interval * interval_ns) % HOUR == 0 {
                records.push(agent.rollup(Level::FiveMinutes, &delays));
                agent.wait(interval_ns - FIVE_MINUTES);
            } else {
                agent.wait(interval_ns);
            }
            let pauses = if interval == 0 {
                let (from_wall_ns, to_wall_ns) = (agent.wall_ns() - HOUR, agent.wall_ns());
                vec![PauseInterval { reason: "run".into(), from_wall_ns, to_wall_ns }]
            } else {
                Vec::new()
            };
            let status = Status { schedule_version: 1, pauses, ..Status::default() };
            records.push(agent.status_with(status.clone()));
            reflector.wait(interval_ns);
            statuses.push(reflector.status_with(status));
        }
        for (of, records) in [(&agent, &records), (&reflector, &statuses)] {
            deliver_at(&mut *test, &of.node, &message(records), arrival_ns).unwrap();
        }
    }
    let question = Query {
        sender: name("a"),
        reflector: name("b"),
        measure: None,
        protocol: None,
        metric: RollupMetric::Rtt,
        from_ns: NOW - 90 * DAY,
        to_ns: NOW,
        step_ns: Some(6 * HOUR),
    };
    let (start, cpu_start) = (Instant::now(), cpu_time());
    let answer = query(&mut *test.begin_to_read().unwrap(), &question, NOW).unwrap();
    let (elapsed, took) = (start.elapsed(), cpu_time() - cpu_start);
    let rows = answer[0].rows.len();
    println!("pair over 90 days, {rows} rows: {took:?} of this thread, {elapsed:?}");
    assert_eq!((answer[0].rows.len(), answer[0].total.counts.sent), (360, 90 * 24 * 60));
    assert_eq!(answer[0].sender_pauses.len(), 90);
    assert!(took < READ_TIMEOUT, "{took:?}");
}
