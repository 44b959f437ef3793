//! Hostile requests get an error in the uniform form, at once.

use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Sandbox, Server, plan};

#[test]
fn hostile_names_are_not_found() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let names = [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "a%00b",
        "%ff",
        "--help",
        "-1",
        "20260101-000000-0000%2f..",
        "%F0%9F%98%80",
        "last%20",
        "'%20OR%201=1",
    ];
    let long = "x".repeat(5_000);
    for name in names.into_iter().chain([long.as_str()]) {
        for (method, path) in [
            ("GET", format!("/runs/{name}")),
            ("DELETE", format!("/runs/{name}")),
            ("POST", format!("/runs/{name}/undo")),
            ("GET", format!("/runs/{name}/samples")),
            ("GET", format!("/runs/{name}/events")),
            ("GET", format!("/runs/{name}/trials/1/samples.parquet")),
            ("GET", format!("/experiments/{name}")),
            ("DELETE", format!("/experiments/{name}")),
            ("POST", format!("/experiments/{name}/stop")),
            ("POST", format!("/experiments/{name}/resume")),
            ("POST", format!("/experiments/{name}/undo")),
            ("GET", format!("/experiments/{name}/events")),
            ("GET", format!("/devices/{name}")),
            ("DELETE", format!("/devices/{name}")),
            ("POST", format!("/devices/{name}/undo")),
            ("POST", format!("/devices/{name}/check")),
            ("GET", format!("/compare?runs={name},{name}")),
        ] {
            let answer = server.json(method, &path, &Value::Null);
            assert!(matches!(answer.error().0, 400 | 404), "{method} {path}: {}", answer.text());
        }
    }
    assert!(!sandbox.data().exists(), "{:?}", sandbox.data());
}

#[test]
fn hostile_bodies_are_refused() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let post = |kind: &str, body: &[u8]| {
        let headers = format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.len());
        server.request("POST", "/api/v1/experiments", &headers, body).error().0
    };
    const JSON: &str = "application/json";
    // A type that a form of a foreign page could send.
    assert!(matches!(post("text/plain", b"{}"), 403 | 415));
    assert_eq!(post("application/xml", b"{}"), 415);
    assert_eq!(post(JSON, b""), 400);
    assert_eq!(post(JSON, b"{\"plan\": \"x\"} {}"), 400);
    assert_eq!(post(JSON, b"\xff\xfe"), 400);
    assert_eq!(post(JSON, "[".repeat(100_000).as_bytes()), 422);
    assert_eq!(post(JSON, format!("{{\"on\": {}", "{\"a\":".repeat(100_000)).as_bytes()), 422);
    assert_eq!(post(JSON, b"{\"plan\": 3}"), 422);
    assert_eq!(post(JSON, b"{\"plan\": \"\", \"evil\": 1}"), 422);
    assert_eq!(post(JSON, &vec![b' '; 2 << 20]), 413);
    let create = |body: Value| server.json("POST", "/experiments", &body).error();
    assert_eq!(create(json!({ "plan": "\0" })).0, 422);
    assert_eq!(create(json!({ "plan": plan(1, 1), "settings": ["a\0=b"] })).0, 422);
    assert_eq!(create(json!({ "plan": plan(1, 1), "settings": vec!["a=b"; 1_000] })).0, 422);
    assert_eq!(create(json!({ "plan": plan(1, 1), "on": { "--help": "-x" } })).0, 422);
    let large =
        format!("{}[matrix]\n\"ping.count\" = {{ from = 1, to = 90000, step = 1 }}\n", plan(1, 1));
    let since = Instant::now();
    assert_eq!(create(json!({ "plan": large })).0, 422);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    for device in [
        json!({ "name": "-x", "destination": "h" }),
        json!({ "name": "x", "destination": "-oProxyCommand=reboot" }),
        json!({ "name": "x", "destination": "h", "tags": ["a,b"] }),
        json!({ "name": "x", "destination": "h", "interfaces": ["/../etc"] }),
        json!({ "name": "x", "destination": "h", "notes": "a\0b" }),
        json!({ "name": "x", "destination": "h", "notes": "a".repeat(500_000) }),
        json!({ "name": "x", "destination": "h", "planet": "mars" }),
    ] {
        assert_eq!(server.json("POST", "/devices", &device).error().0, 422, "{device}");
    }
}

#[test]
fn wrong_method_path_and_query_are_refused() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    assert_eq!(server.get("/nothing").error(), (404, "not-found".into()));
    let answer = server.json("PUT", "/runs", &Value::Null);
    assert_eq!(answer.error(), (405, "method-not-allowed".into()));
    assert!(answer.head.contains("allow: get"), "{}", answer.head);
    for query in ["limit=0", "limit=1001", "limit=x", "offset=-1", "state=lost", "evil=1"] {
        assert_eq!(server.get(&format!("/runs?{query}")).error().0, 400, "{query}");
    }
}

#[test]
fn large_upload_is_refused_before_it_is_read() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let path = "/api/v1/data/import?name=a.csv";
    let since = Instant::now();
    let kind = "content-type: application/octet-stream\r\n";
    let length = |length: u64| format!("{kind}content-length: {length}\r\n");
    let mut stream = server.send("POST", path, &length(1 << 30), b"begin");
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    for name in ["", ".hidden", "a%2f..%2fb", "a%00", "..", &"x".repeat(101)] {
        let path = format!("/api/v1/data/import?name={name}");
        let answer = server.request("POST", &path, &length(1), b"x");
        assert_eq!(answer.error().0, 422, "{name}");
    }
    let noise = server.request("POST", path, &length(5), b"noise");
    assert_eq!(noise.error(), (422, "invalid".into()));
    assert!(!noise.text().contains("uploads"), "{}", noise.text());
    let csv = b"id,roundtrip_time [s]\n         1,0.000100000\n         2,0.000200000\n";
    let imported = server.request("POST", path, &length(csv.len() as u64), csv);
    assert_eq!(imported.status, 201, "{}", imported.text());
    let listed = server.get("/runs?kind=import").json();
    assert_eq!(listed["runs"][0]["name"], "a.csv", "{listed}");
}
