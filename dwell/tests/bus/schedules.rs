//! Schedules on the bus.

use std::time::Instant;

use dwell_rollup::{NodeSchedule, Subject};

use crate::bus::Bus;

#[test]
fn new_schedule_reaches_nodes_within_five_seconds() {
    let Some(mut bus) = Bus::new() else { return };
    bus.start_hub();
    let node = bus.connect("a", &bus.enroll("a"));
    let mut schedules = node.subscribe(&bus, &Subject::Schedule.of(&node.name));
    assert_eq!(node.ask(&bus, &[], None).schedule, None);
    let apply = |interval: &str| {
        let text = format!(
            "version = 1\n[nodes.a]\naddress = \"10.0.0.1\"\n[nodes.b]\naddress = \"10.0.0.2\"\n\
             [[measure]]\nname = \"mesh\"\nmesh = \"all\"\ninterval = \"{interval}\"\n"
        );
        let file = bus.sandbox.write("mesh.toml", &text);
        bus.dwell(&["hub", "schedule", "apply", &file]);
        Instant::now()
    };
    for (version, interval) in [(1, "1s"), (2, "2s")] {
        let applied = apply(interval);
        let pushed = schedules.next(&bus);
        assert!(applied.elapsed().as_secs_f64() < 5.0, "{:?}", applied.elapsed());
        let schedule = NodeSchedule::from_json(&pushed.payload).unwrap();
        assert_eq!((schedule.version, schedule.entries.len()), (version, 1));
    }
    // A node asks for what it missed; one that has it gets none.
    let answer = node.ask(&bus, &[], Some(1)).schedule.unwrap();
    assert_eq!(NodeSchedule::from_json(answer.as_bytes()).unwrap().version, 2);
    assert_eq!(node.ask(&bus, &[], Some(2)).schedule, None);
    bus.stop_hub();
}
