//! Experiments from their creation to their results.

use serde_json::{Value, json};

use crate::server::{Sandbox, Server, is_root, plan, wait_until};

#[test]
fn experiment_creates_a_run_with_results() {
    if !is_root("experiment_creates_a_run_with_results") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(3, 100));
    let ended = server.wait_for_state(&id, "finished");
    assert_eq!((&ended["done"], &ended["all"]), (&json!(3), &json!(3)), "{ended}");
    assert!(ended["plan"].as_str().unwrap().contains("line:2") && ended["seed"] == 7);
    let run = ended["run"].as_str().unwrap();

    let shown = server.get(&format!("/runs/{run}")).json();
    assert_eq!((&shown["schema"], &shown["state"]), (&json!("dwell.run/1"), &json!("finished")));
    assert_eq!(server.get("/runs/last").json()["run"], run);
    let listed = server.get("/runs?plan=small&state=finished&kind=run").json();
    assert_eq!((&listed["total"], &listed["runs"][0]["run"]), (&json!(1), &json!(run)));
    assert_eq!(server.get("/runs?plan=other").json()["total"], 0);

    let csv = server.get(&format!("/runs/{run}/samples"));
    assert!(csv.head.contains("text/csv"), "{}", csv.head);
    assert_eq!(csv.text().lines().count(), 301);
    let parquet = server.get(&format!("/runs/{run}/trials/1/samples.parquet"));
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));

    let note = server.json("POST", &format!("/runs/{run}/notes"), &json!({ "text": "--rain" }));
    assert_eq!(note.status, 204, "{}", note.text());
    // The object of a finished run is remembered, but not without its new note.
    assert_eq!(server.get(&format!("/runs/{run}")).json()["notes"], json!(["--rain"]));

    let compared = server.get(&format!("/compare?runs={run},{run}&metric=rtt_ns")).json();
    assert_eq!(compared["schema"], "dwell.comparison/1", "{compared}");

    let metrics = server.request("GET", "/metrics", "", b"").text();
    assert!(metrics.contains("dwell_runs{state=\"finished\"} 1\n"), "{metrics}");
    assert!(metrics.contains("dwell_last_delay_p50_seconds{plan=\"small\""), "{metrics}");
}

#[test]
fn stopped_experiment_is_resumed() {
    if !is_root("stopped_experiment_is_resumed") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(4, 700));
    server.wait_for(&id, "one trial done", |experiment| experiment["done"].as_u64() >= Some(1));
    // It cannot be deleted while it runs, and neither can its run.
    assert_eq!(server.json("DELETE", &format!("/experiments/{id}"), &Value::Null).status, 409);
    let run = server.get(&format!("/experiments/{id}")).json()["run"].as_str().unwrap().to_owned();
    assert_eq!(server.json("DELETE", &format!("/runs/{run}"), &Value::Null).status, 409);
    assert_eq!(server.post(&format!("/experiments/{id}/stop")).status, 202);
    let stopped = server.wait_for_state(&id, "stopped");
    assert!(stopped["done"].as_u64() < Some(4), "{stopped}");
    // Its run is not continued while it is deleted: it would be lost with its new trials.
    let deleted = wait_until("deleted", || {
        let answer = server.json("DELETE", &format!("/runs/{run}"), &Value::Null);
        if answer.status == 202 { Ok(answer.json()) } else { Err(answer.text()) }
    });
    assert_eq!(deleted["name"], json!(run));
    assert_eq!(server.get("/runs/last").error(), (404, "not-found".into()));
    let refused = server.post(&format!("/experiments/{id}/resume"));
    assert_eq!(refused.error(), (409, "conflict".into()));
    assert!(refused.text().contains("restore it first"), "{}", refused.text());
    assert_eq!(server.post(&format!("/runs/{run}/undo")).status, 204);
    wait_until("resumed", || match server.post(&format!("/experiments/{id}/resume")) {
        answer if answer.status == 202 => Ok(()),
        answer => Err(answer.text()),
    });
    let ended = server.wait_for_state(&id, "finished");
    assert_eq!((&ended["done"], &ended["run"]), (&json!(4), &json!(run)));
    assert_eq!(server.get("/runs").json()["total"], 1);
    assert_eq!(server.post(&format!("/experiments/{id}/stop")).status, 409);
    assert_eq!(server.post(&format!("/experiments/{id}/resume")).status, 409);

    for path in [format!("/experiments/{id}"), format!("/runs/{run}")] {
        assert_eq!(server.json("DELETE", &path, &Value::Null).status, 202);
    }
    for list in ["/experiments", "/runs"] {
        assert_eq!(server.get(list).json()["total"], 0, "{list}");
        assert_eq!(server.get(&format!("{list}?deleted=true")).json()["total"], 1, "{list}");
    }
    assert_eq!(server.get(&format!("/experiments/{id}")).json()["deleted"], true);
    for path in [format!("/experiments/{id}"), format!("/runs/{run}")] {
        let answer = server.post(&format!("{path}/undo"));
        assert!(matches!(answer.status, 200 | 204), "{}", answer.text());
    }
    assert_eq!(server.get("/runs").json()["total"], 1);
    assert_eq!(server.get("/experiments").json()["experiments"][0]["state"], "finished");
}

#[test]
fn second_experiment_waits_for_the_first() {
    if !is_root("second_experiment_waits_for_the_first") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let first = server.experiment(&plan(1, 3_000));
    server.wait_for_state(&first, "running");
    let second = server.experiment(&plan(1, 50));
    let waiting = server.wait_for(&second, "waiting", |experiment| !experiment["reason"].is_null());
    assert_eq!(waiting["state"], "queued", "{waiting}");
    assert!(waiting["reason"].as_str().unwrap().contains("another run"), "{waiting}");
    server.wait_for_state(&second, "finished");
    server.wait_for_state(&first, "finished");
}

#[test]
fn queued_experiments_start_in_their_order() {
    if !is_root("queued_experiments_start_in_their_order") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let first = server.experiment(&plan(1, 3_000));
    server.wait_for_state(&first, "running");
    let queued: Vec<String> = (0..5).map(|_| server.experiment(&plan(1, 20))).collect();
    let started = |id: &String| {
        let run = server.wait_for_state(id, "finished")["run"].as_str().unwrap().to_owned();
        // DATE-NUMBER: a run gets its number when it starts.
        run.split_once('-').unwrap().1.parse::<u32>().unwrap()
    };
    let numbers: Vec<u32> = queued.iter().map(started).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6]);
}

#[test]
fn plan_is_checked_before_it_starts() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let check = |plan: &str| {
        let answer = server.json("POST", "/plans/check", &json!({ "plan": plan }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let good = check(&plan(3, 100));
    assert_eq!((&good["trials"], &good["errors"]), (&json!(3), &json!([])), "{good}");
    let bad = plan(3, 100).replace("count", "cuont");
    let mistake = &check(&bad)["errors"][0];
    assert_eq!(mistake["line"], 9, "{mistake}");
    let create = |body: Value| server.json("POST", "/experiments", &body).error();
    assert_eq!(create(json!({ "plan": bad })), (422, "invalid-plan".into()));
    let lab = plan(3, 100).replace("line:2", "/etc/lab.toml");
    assert_eq!(create(json!({ "plan": lab })), (422, "invalid-plan".into()));
    let flood = plan(12_000, 100);
    assert_eq!(create(json!({ "plan": flood })), (409, "needs-confirmation".into()));
    let roles = plan(3, 100).replace("lab = \"line:2\"", "roles = [\"n1\", \"n2\"]");
    assert_eq!(create(json!({ "plan": roles })), (422, "invalid".into()));
    let on = json!({ "n1": "moon", "n2": "mars" });
    assert_eq!(create(json!({ "plan": roles, "on": on })), (422, "invalid".into()));
    assert!(!sandbox.data().exists(), "a refused plan creates nothing");
}

#[test]
fn unwritable_events_file_stops_the_run_at_once() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("plan.toml");
    std::fs::write(&file, plan(1, 10)).unwrap();
    let run = std::process::Command::new(crate::server::DWELL)
        .arg("run")
        .arg(&file)
        .args(["--events", "/nonexistent/events.jsonl", "--data"])
        .arg(sandbox.data())
        .output()
        .unwrap();
    let text = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2), "{text}");
    assert!(text.contains("/nonexistent/events.jsonl"), "{text}");
    assert!(!sandbox.data().exists());
}
