//! `dwell hub schedule`.

use serde_json::json;

use crate::fixture::{Sandbox, stderr, stdout};
use crate::schema::assert_matches_schema;

const MESH: &str = "version = 1\n[[measure]]\nname = \"mesh\"\nmesh = \"all\"\nport = 8620\n\
                    interval = \"100ms\"\nsize = \"72B\"\n";

/// A data directory with two devices.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    for (name, address) in [("a", "192.0.2.1"), ("b", "192.0.2.2")] {
        let added = sandbox.dwell(&["device", "add", name, name, "--address", address]);
        assert!(added.status.success(), "{added:?}");
    }
    sandbox
}

#[test]
fn schedule_is_checked_applied_and_listed() {
    let sandbox = sandbox();
    let file = sandbox.write("mesh.toml", MESH);
    let checked = sandbox.json(&["hub", "schedule", "check", &file]);
    assert_matches_schema("dwell.schedule", &checked);
    assert_eq!(
        (&checked["version"], checked["nodes"].as_array().unwrap().len()),
        (&json!(null), 2)
    );
    assert_eq!(checked["nodes"][0]["packets_per_second"], json!(20.0));
    assert_eq!(checked["nodes"][0]["bytes_per_day"], json!(20 * 100 * 86_400));
    assert!(!sandbox.data().join("hub.sqlite").exists(), "a check changes nothing");
    let table = stdout(&sandbox.dwell(&["hub", "schedule", "check", &file]));
    assert!(table.starts_with("node  streams  reflected  packets/s  bytes/day\n"), "{table}");
    assert!(table.contains("a     1        1          20.0       172.8MB"), "{table}");
    let history = sandbox.dwell(&["hub", "schedule", "history"]);
    assert_eq!(history.status.code(), Some(2));
    assert!(stderr(&history).contains("there is no hub in"), "{history:?}");
    let applied = sandbox.json(&["hub", "schedule", "apply", &file]);
    assert_matches_schema("dwell.schedule", &applied);
    assert_eq!((&applied["version"], &applied["nodes"]), (&json!(1), &checked["nodes"]));
    let slower = sandbox.write("slower.toml", &MESH.replace("100ms", "1s"));
    let again = sandbox.dwell(&["hub", "schedule", "apply", &slower]);
    assert!(stderr(&again).contains("applied as version 2"), "{again:?}");
    let listed = sandbox.json(&["hub", "schedule", "history"]);
    assert_matches_schema("dwell.schedules", &listed);
    assert_eq!(listed["schedules"][0]["text"], MESH);
    let text = sandbox.dwell(&["hub", "schedule", "history", "1"]);
    assert_eq!(stdout(&text), MESH);
    let missing = sandbox.dwell(&["hub", "schedule", "history", "3"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("the newest is 2"), "{missing:?}");
    let nodes = sandbox.json(&["hub", "nodes"]);
    assert_matches_schema("dwell.hub-nodes", &nodes);
}

#[test]
fn wrong_schedule_is_a_usage_error_and_changes_nothing() {
    let sandbox = sandbox();
    for (text, wrong) in [
        ("version = 1\nmeasures = 1\n", "unknown field `measures`"),
        ("version = 1\n[[measure]]\nname = \"m\"\nmesh = \"c\"\n", "'c' is no node and no group"),
        (&MESH.replace("100ms", "100us"), "interval"),
        (&format!("{MESH}[limits]\npackets_per_second = 19\n"), "more than limits"),
    ] {
        let file = sandbox.write("wrong.toml", text);
        for command in ["check", "apply"] {
            let refused = sandbox.dwell(&["hub", "schedule", command, &file]);
            assert_eq!(refused.status.code(), Some(2), "{text}: {refused:?}");
            let said = stderr(&refused);
            assert!(said.contains("wrong.toml: ") && said.contains(wrong), "{said}");
        }
    }
    assert!(!sandbox.data().join("hub.sqlite").exists());
    let missing = sandbox.dwell(&["hub", "schedule", "check", "/nonexistent.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read /nonexistent.toml"), "{missing:?}");
}
