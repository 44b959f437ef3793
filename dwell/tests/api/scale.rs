//! Lists of 10,000 runs and devices, a run of many samples, and many requests.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Sandbox, Server, is_root, plan};

/// Number of runs and of devices.
const ROWS: u64 = 10_000;

/// Longest answer. A debug build on a busy machine is several times slower than a release build.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// Longest page, in bytes. Its tables have 50 rows.
const MAX_PAGE_LEN: usize = 200_000;

/// Rate of requests that the server must keep.
const REQUESTS_PER_SECOND: u32 = 200;

/// Default duration of the requests, overridden by the environment variable DWELL_LOAD_SECONDS.
const DEFAULT_LOAD_SECONDS: u32 = 5;

/// Fills a catalogue with runs of three trials and with devices that were checked twice.
fn fill(sandbox: &Sandbox) {
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    let numbers = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})"
    );
    // As long as that of a real device.
    let interface = json!({ "name": "eth0", "driver": "bcmgenet", "up": true });
    let interfaces = vec![interface; 100];
    let clocks = json!({ "source": "arch_sys_counter", "utc_error_ns": 250_000 });
    let answer = json!({ "doctor": { "interfaces": interfaces, "clocks": clocks } });
    let plan_text = plan(3, 100).replace('\'', "''");
    db.execute_batch(&format!(
        "BEGIN;
         INSERT INTO plans (id, name, text) VALUES (1, 'small', '{plan_text}');
         {numbers} INSERT INTO runs
             (id, run, kind, plan_id, name, state, started, finished, settings, seed, axes, dwell)
             SELECT n, '20260101-' || n, 'run', 1, 'small', 'finished', '2026-01-01T00:00:00Z',
                    '2026-01-01T00:01:00Z', '[]', 1, '[]', '0' FROM numbers;
         {numbers} INSERT INTO trials (run_id, number, cell, repetition, position, state, parameters)
             SELECT n, trial, 0, trial, trial, 'finished', '{{}}'
             FROM numbers, (SELECT 1 AS trial UNION SELECT 2 UNION SELECT 3);
         {numbers} INSERT INTO devices (id, name, added, description)
             SELECT n + 10, 'pi' || n, '2026-01-01T00:00:00Z',
                    json_object('name', 'pi' || n, 'destination', 'pi@192.0.2.7') FROM numbers;
         {numbers} INSERT INTO device_checks (device_id, at, error)
             SELECT n + 10, '2026-01-01T00:00:00Z', 'no route to host'
             FROM numbers, (SELECT 1 UNION SELECT 2);
         {numbers} INSERT INTO device_checks (device_id, at, arch, kernel, build, answer)
             SELECT n + 10, '2026-01-01T00:00:00Z', 'aarch64', '6.1', '5f', '{answer}'
             FROM numbers WHERE n % 2;
         COMMIT;"
    ))
    .unwrap();
}

/// Writes experiments that have ended.
fn fill_experiments(sandbox: &Sandbox) {
    let end = "{\"at\":\"t\",\"event\":\"end\",\"state\":\"finished\",\"reason\":null}\n";
    for number in 0..ROWS {
        let (hours, minutes, seconds) = (number / 3_600, number / 60 % 60, number % 60);
        let id = format!("20260101-{hours:02}{minutes:02}{seconds:02}-0000");
        let dir = sandbox.data().join("experiments").join(id);
        let record = json!({
            "schema": "dwell.experiment/1", "name": format!("small{number}"), "title": null,
            "owner": "a@b", "on": {}, "created": "2026-01-01T00:00:00.000Z", "settings": [],
            "seed": null,
        });
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("experiment.json"), record.to_string()).unwrap();
        fs::write(dir.join("events.jsonl"), end).unwrap();
    }
}

#[test]
fn lists_of_ten_thousand_rows_answer_at_once() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let device = json!({ "name": "first", "destination": "h" });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
    fill(&sandbox);
    fill_experiments(&sandbox);
    for path in [
        "/api/v1/runs",
        "/api/v1/runs?limit=1000&offset=9000",
        "/api/v1/runs?plan=small&state=finished",
        "/api/v1/devices",
        "/api/v1/devices?limit=1000&offset=9000",
        "/api/v1/data",
        "/metrics",
        "/",
        "/devices",
        "/devices?page=200",
        "/devices?q=pi99",
        "/devices/pi5",
        "/experiments",
        "/experiments?page=200",
        "/experiments?q=small99",
        "/experiments/new",
        "/api/v1/experiments?limit=1000&offset=9000",
        "/runs",
        "/runs?page=200",
        "/runs?q=finished",
        "/data",
        "/compare",
        "/reports",
    ] {
        let since = Instant::now();
        let answer = server.request("GET", path, "", b"");
        let taken = since.elapsed();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        println!("{path}: {} bytes in {} ms", answer.body.len(), taken.as_millis());
        assert!(taken < MAX_ANSWER_TIME, "{path}: {taken:?}");
        let is_page = !path.starts_with("/api/") && path != "/metrics";
        assert!(
            !is_page || answer.body.len() < MAX_PAGE_LEN,
            "{path}: {} bytes",
            answer.body.len()
        );
    }
    let overview = server.request("GET", "/", "", b"").text();
    assert!(overview.contains("5000 of 10001 failed the last check"), "{overview}");
    assert!(overview.contains("5000 synchronised"), "{overview}");
    let experiments = server.request("GET", "/experiments?page=200", "", b"").text();
    assert!(experiments.contains("10000 experiments") && experiments.contains("small0<"));
    let found = server.request("GET", "/experiments?q=small99", "", b"").text();
    // small99, small990 to small999, small9900 to small9999.
    assert!(found.contains("111 experiments"), "{found}");
    let last = server.get("/runs?limit=10&offset=9995").json();
    assert_eq!((&last["total"], last["runs"].as_array().unwrap().len()), (&json!(ROWS), 5));
    let devices = server.get("/devices?limit=1000&offset=9000").json();
    assert_eq!(
        (&devices["total"], devices["devices"].as_array().unwrap().len()),
        (&json!(ROWS + 1), 1_000)
    );
}

#[test]
fn server_keeps_200_requests_per_second() {
    if !is_root("server_keeps_200_requests_per_second") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(3, 100));
    let run = server.wait_for_state(&id, "finished")["run"].as_str().unwrap().to_owned();
    let seconds = std::env::var("DWELL_LOAD_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds: u32 = seconds.unwrap_or(DEFAULT_LOAD_SECONDS);
    let paths = [
        "/runs".to_owned(),
        format!("/runs/{run}"),
        "/devices".to_owned(),
        format!("/experiments/{id}"),
        "/experiments".to_owned(),
    ];
    let since = Instant::now();
    let (mut slowest, mut late) = (Duration::ZERO, Duration::ZERO);
    for number in 0..seconds * REQUESTS_PER_SECOND {
        let due = since + Duration::from_secs(1) / REQUESTS_PER_SECOND * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        late = late.max(due.elapsed());
        let begin = Instant::now();
        let answer = server.get(&paths[number as usize % paths.len()]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        slowest = slowest.max(begin.elapsed());
    }
    let rate = f64::from(seconds * REQUESTS_PER_SECOND) / since.elapsed().as_secs_f64();
    println!(
        "{rate:.0} requests per second for {seconds} s, slowest {} ms, at most {} ms late, {}",
        slowest.as_millis(),
        late.as_millis(),
        memory(&server)
    );
}

#[test]
fn idle_server_needs_little_memory() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    assert_eq!(server.get("/version").status, 200);
    println!("idle: {}", memory(&server));
}

fn memory(server: &Server) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default().to_owned()
}

/// A run whose segment has many samples; the number is that of the environment variable
/// DWELL_MANY_SAMPLES.
#[test]
fn run_of_many_samples_answers_from_summaries() {
    let count: u64 = std::env::var("DWELL_MANY_SAMPLES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200_000);
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let path = sandbox.path("many.csv");
    let rows = (0..count).map(|id| format!("{id:10},{:11.9}\n", 1e-4 + (id % 997) as f64 * 1e-7));
    let text = std::iter::once("id,roundtrip_time [s]\n".to_owned()).chain(rows);
    fs::write(&path, text.collect::<String>()).unwrap();
    let imported = std::process::Command::new(crate::server::DWELL)
        .args(["import", "--json"])
        .arg(&path)
        .arg("--data")
        .arg(sandbox.data())
        .output()
        .unwrap();
    assert!(imported.status.success(), "{imported:?}");
    for attempt in ["first", "second"] {
        let since = Instant::now();
        let run: Value = server.get("/runs/last").json();
        println!("{count} samples: {attempt} answer in {} ms", since.elapsed().as_millis());
        assert_eq!(
            run["trials"][0]["packets"]["received"],
            json!(count),
            "{}",
            run["trials"][0]["packets"]
        );
        assert!(since.elapsed() < MAX_ANSWER_TIME, "{:?}", since.elapsed());
    }
}
