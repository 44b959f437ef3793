//! `dwell hub nodes` states why the hub collects nothing from a node, and what to do.

use std::fs;
use std::process::Stdio;

use dwell_io::process::{Handle, Signal};
use dwell_rollup::{Incarnation, STATUS_FILE, Status, StatusFile};

use crate::fixture::{DWELL, Sandbox, stderr, stdout, wait_for_exit, wait_until};
use crate::lab_devices::{DeviceLab, Peculiarity};

const SPOOL: &str = "/tmp/agent";

/// Leaves the status of an agent on a device, by its name and the age of the status in seconds.
fn leave_status(lab: &DeviceLab, index: usize, node: &str, age: i64) {
    let now = jiff::Timestamp::now().as_second();
    let status = StatusFile {
        node: node.parse().unwrap(),
        incarnation: Incarnation(1),
        pid: 1,
        wall_ns: (now - age) * 1_000_000_000,
        status: Status::default(),
    };
    let spool = lab.devices[index].folder("/tmp").join("agent");
    fs::create_dir_all(&spool).unwrap();
    fs::write(spool.join(STATUS_FILE), serde_json::to_string(&status).unwrap()).unwrap();
}

#[test]
fn faulty_nodes_are_listed_with_their_remedy() {
    let config = format!("SetEnv DWELL_AGENT_SPOOL={SPOOL}");
    let of = |_| Peculiarity { config: config.clone(), ..Peculiarity::default() };
    let Some(mut lab) = DeviceLab::with(5, of) else { return };
    leave_status(&lab, 0, "d1", -7_200);
    leave_status(&lab, 1, "d2", 7_200);
    leave_status(&lab, 2, "other", 0);
    lab.kill_all(4);
    let mut command = lab.controller(&[DWELL, "hub", "--embedded", "--interval", "1s"]);
    let mut hub = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let expected = [
        "d1: its clock is more than 5 min ahead of this machine's; synchronise both",
        "d2: its agent wrote the last status at ",
        "d3: its agent is named other, not d3; change `node` in its configuration",
        "d4: no agent has run there; start it by `dwell-node agent --config agent.toml`",
        "d5: ",
    ];
    let mut shown = String::new();
    wait_until("the hub to have tried all devices", || {
        shown = stdout(&lab.sandbox.dwell(&["hub", "nodes"]));
        shown.matches("note:").count() >= expected.len()
    });
    for expected in expected {
        assert!(shown.contains(&format!("note: {expected}")), "{expected}: {shown}");
    }
    assert!(!shown.contains("no hub is running"), "{shown}");
    let waited = lab.sandbox.dwell(&["hub", "nodes", "--wait", "100ms"]);
    assert_eq!(waited.status.code(), Some(1), "{waited:?}");
    assert!(stderr(&waited).contains("d1, d2, d3, d4, d5"), "{waited:?}");
    // A node that recovers is no longer listed.
    leave_status(&lab, 0, "d1", 0);
    wait_until("the note of d1 to disappear", || {
        !stdout(&lab.sandbox.dwell(&["hub", "nodes"])).contains("note: d1")
    });
    Handle::open(hub.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert_eq!(wait_for_exit(&mut hub).code(), Some(0));
    let stopped = stdout(&lab.sandbox.dwell(&["hub", "nodes"]));
    assert_eq!(stopped.matches("note:").count(), 1, "{stopped}");
    assert!(stopped.contains("no hub is running on") && stopped.contains("d4 "), "{stopped}");
    (0..lab.devices.len()).for_each(|index| lab.kill_all(index));
}

#[test]
fn waiting_without_devices_is_a_usage_error() {
    let refused = Sandbox::new().dwell(&["hub", "nodes", "--wait", "1s"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("dwell device add NAME"), "{refused:?}");
}
