//! Servers that are killed, share a directory, or lose it.

use std::fs;

use dwell_io::process::{Handle, Signal};
use serde_json::{Value, json};

use crate::server::{Sandbox, Server, is_root, plan, wait_until};

#[test]
fn killed_server_loses_no_experiment() {
    if !is_root("killed_server_loses_no_experiment") {
        return;
    }
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(4, 700));
    let waiting = server.experiment(&plan(1, 50));
    server.wait_for(&id, "one trial done", |experiment| experiment["done"].as_u64() >= Some(1));
    server.kill();
    let server = Server::start(&sandbox.data());
    let state = server.get(&format!("/experiments/{id}")).json();
    assert!(matches!(state["state"].as_str(), Some("running" | "finished")), "{state}");
    assert_eq!(server.wait_for_state(&id, "finished")["done"], 4);
    server.wait_for_state(&waiting, "finished");
    let shown = server.get("/runs?plan=small").json();
    let runs = shown["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["trials_finished"].as_u64().unwrap()).sum::<u64>(), 5);
}

#[test]
fn killed_run_is_interrupted_and_resumed() {
    if !is_root("killed_run_is_interrupted_and_resumed") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(3, 1_000));
    server.wait_for_state(&id, "running");
    let record = sandbox.data().join("experiments").join(&id).join("process.json");
    let record: Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    let pid = record["process"]["pid"].as_u64().unwrap() as u32;
    Handle::open(pid).unwrap().signal(Signal::Kill).unwrap();
    let state = server.wait_for_state(&id, "interrupted");
    assert!(state["reason"].as_str().unwrap().contains("ended unexpectedly"), "{state}");
    assert_eq!(server.post(&format!("/experiments/{id}/resume")).status, 202);
    assert_eq!(server.wait_for_state(&id, "finished")["done"], 3);
}

#[test]
fn two_servers_show_and_stop_one_experiment() {
    if !is_root("two_servers_show_and_stop_one_experiment") {
        return;
    }
    let sandbox = Sandbox::new();
    let (one, other) = (Server::start(&sandbox.data()), Server::start(&sandbox.data()));
    let id = one.experiment(&plan(1, 20_000));
    other.wait_for_state(&id, "running");
    assert_eq!(other.post(&format!("/experiments/{id}/stop")).status, 202);
    one.wait_for_state(&id, "stopped");
    // Only one of two servers resumes it.
    let path = format!("/experiments/{id}/resume");
    let statuses = std::thread::scope(|scope| {
        let both = [&one, &other].map(|server| scope.spawn(|| server.post(&path).status));
        both.map(|status| status.join().unwrap())
    });
    assert!(statuses == [202, 409] || statuses == [409, 202], "{statuses:?}");
    one.wait_for_state(&id, "running");
    assert_eq!(one.post(&format!("/experiments/{id}/stop")).status, 202);
    other.wait_for_state(&id, "stopped");
    assert_eq!(other.get("/runs").json()["total"], 1);
}

#[test]
fn run_is_purged_unless_continued_after_its_deletion() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let device = json!({ "name": "pi4", "destination": "h" });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    drop(server);
    // Deleted at 00:10; one of them has a trial that was measured at 00:20.
    const MARKED_NS: i64 = 1_767_226_200_000_000_000;
    const LATER_NS: i64 = MARKED_NS + 600_000_000_000;
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    db.execute_batch(&format!(
        "INSERT INTO plans (id, name, text) VALUES (1, 'small', 'version = 1');
         INSERT INTO runs
             (id, run, kind, plan_id, name, state, started, finished, settings, seed, axes, dwell)
             SELECT id, '20260101-' || id, 'run', 1, 'small', 'stopped', '2026-01-01T00:00:00Z',
                    '2026-01-01T00:30:00Z', '[]', 1, '[]', '0'
             FROM (SELECT 1 AS id UNION SELECT 2);
         INSERT INTO trials
             (run_id, number, cell, repetition, position, state, parameters, first_ns)
             VALUES (1, 1, 0, 1, 1, 'finished', '{{}}', {}), (2, 1, 0, 1, 1, 'finished', '{{}}', {LATER_NS});",
        MARKED_NS - 1
    ))
    .unwrap();
    drop(db);
    let marks = sandbox.data().join("deleted-runs");
    fs::create_dir(&marks).unwrap();
    for run in ["20260101-1", "20260101-2"] {
        fs::write(marks.join(run), "2026-01-01T00:10:00.000Z").unwrap();
    }
    let server = Server::start(&sandbox.data());
    wait_until("purged", || match fs::read_dir(&marks).unwrap().count() {
        0 => Ok(()),
        count => Err(count),
    });
    let kept = server.get("/runs").json();
    assert_eq!((&kept["total"], &kept["runs"][0]["run"]), (&json!(1), &json!("20260101-2")));
}

#[test]
fn deleted_data_directory_is_empty_not_fatal() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let device = json!({ "name": "pi4", "destination": "pi@192.0.2.7" });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    assert_eq!(server.get("/devices").json()["total"], 1);
    fs::remove_dir_all(sandbox.data()).unwrap();
    for path in ["/devices", "/runs", "/experiments"] {
        let answer = server.get(path);
        assert_eq!((answer.status, &answer.json()["total"]), (200, &json!(0)), "{path}");
    }
    assert_eq!(server.get("/devices/pi4").error(), (404, "not-found".into()));
    assert_eq!(server.get("/data").status, 200);
    let metrics = server.request("GET", "/metrics", "", b"");
    assert!(metrics.status == 200 && metrics.text().ends_with("# EOF\n"), "{}", metrics.text());
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    assert_eq!(server.get("/devices").json()["total"], 1);
}
