//! Schedules on the bus.

use std::time::Instant;

use dwell_rollup::{NodeSchedule, Subject};

use crate::bus::Bus;
use crate::network::wait_until;

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

#[test]
fn alerts_of_a_hub_without_ssh_know_the_devices() {
    let Some(mut bus) = Bus::new() else { return };
    // Only the catalogue names the senders of the star, and none has delivered a record.
    for (name, address) in [("a", "192.0.2.1"), ("b", "192.0.2.2")] {
        bus.dwell(&["device", "add", name, "root@192.0.2.9", "--address", address]);
    }
    let star = "version = 1\n[nodes.hub]\naddress = \"192.0.2.3\"\n[[measure]]\nname = \"star\"\n\
                star = { from = \"all\", to = \"hub\" }\ninterval = \"1s\"\n";
    let star = bus.sandbox.write("star.toml", star);
    bus.dwell(&["hub", "schedule", "apply", &star]);
    let rules =
        "version = 1\n[[alert]]\nname = \"down\"\nwhen = \"silent for 15m\"\nnodes = \"b\"\n";
    let rules = bus.sandbox.write("alerts.toml", rules);
    bus.dwell(&["hub", "alerts", "apply", &rules]);
    bus.start_hub();
    wait_until("the evaluation of alerts", || {
        let status = bus.sandbox.dwell(&["hub", "alerts", "status"]);
        String::from_utf8_lossy(&status.stdout).contains("evaluated by")
    });
    bus.stop_hub();
    let said = bus.sandbox.stderr();
    assert!(!said.contains("is no node"), "{said}");
}
