//! Removing devices: they can be restored, also after a restart of the server.

use std::fs;

use serde_json::{Value, json};

use crate::server::{Sandbox, Server, plan, wait_until};

/// Nothing listens on this port.
const UNREACHABLE: &str = "127.0.0.1:1";

fn add(server: &Server, name: &str) {
    let device = json!({ "name": name, "destination": UNREACHABLE });
    assert_eq!(server.json("POST", "/devices", &device).status, 201);
}

fn remove(server: &Server, path: &str) {
    let answer = server.json("DELETE", path, &Value::Null);
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(answer.json()["undo_seconds"], 600);
}

fn names(server: &Server, query: &str) -> Vec<String> {
    let devices = server.get(&format!("/devices{query}")).json()["devices"].take();
    let devices = devices.as_array().unwrap().iter();
    devices.map(|it| it["device"]["name"].as_str().unwrap().to_owned()).collect()
}

fn page(server: &Server, path: &str) -> String {
    server.request("GET", path, "", b"").text()
}

/// Makes a removal older than the time in which it can be undone.
fn age(sandbox: &Sandbox, name: &str) {
    let path = sandbox.data().join("deleted-devices").join(name);
    let mut mark: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    mark["at"] = json!("2026-01-01T00:00:00Z");
    fs::write(path, mark.to_string()).unwrap();
}

#[test]
fn removed_device_is_restored_after_a_restart() {
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox.data());
    add(&server, "pi4");
    add(&server, "pi5");
    remove(&server, "/devices/pi4");
    remove(&server, "/devices/pi4");
    server.kill();
    let server = Server::start(&sandbox.data());
    assert_eq!(names(&server, ""), ["pi5"]);
    assert_eq!(names(&server, "?deleted=true"), ["pi4"]);
    for path in ["/", "/devices"] {
        let text = page(&server, path);
        assert!(text.contains("<b>Device pi4 is deleted.</b>"), "{text}");
    }
    assert!(page(&server, "/devices/pi4").contains("device pi4 is deleted"));
    assert!(!page(&server, "/devices").contains("href=\"/devices/pi4\""));
    // It is not used while it is hidden.
    assert_eq!(server.post("/devices/pi4/check").status, 409);
    assert_eq!(server.json("PATCH", "/devices/pi4", &json!({ "price": "1 EUR" })).status, 409);
    let plan = plan(1, 1).replace("lab = \"line:2\"", "roles = [\"n1\", \"n2\"]");
    let experiment = json!({ "plan": plan, "on": { "n1": "pi4", "n2": "pi5" } });
    let refused = server.json("POST", "/experiments", &experiment);
    assert!(refused.text().contains("device pi4 is deleted"), "{}", refused.text());
    assert_eq!(server.post("/devices/pi4/undo").status, 204);
    assert_eq!(names(&server, ""), ["pi4", "pi5"]);
    assert_eq!(names(&server, "?deleted=true"), Vec::<String>::new());
}

#[test]
fn removal_is_completed_by_a_later_server() {
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox.data());
    for name in ["gone", "unreachable", "waiting"] {
        add(&server, name);
    }
    remove(&server, "/devices/gone?keep_files=true");
    remove(&server, "/devices/unreachable");
    remove(&server, "/devices/waiting");
    server.kill();
    age(&sandbox, "gone");
    age(&sandbox, "unreachable");
    let server = Server::start(&sandbox.data());
    wait_until("removed", || match server.get("/devices/gone") {
        answer if answer.status == 404 => Ok(()),
        answer => Err(answer.text()),
    });
    // It cannot be reached, so it is shown again with the reason.
    let reason = wait_until("refused", || {
        let device = server.get("/devices/unreachable").json();
        device["removal_error"].as_str().map(str::to_owned).ok_or(device.clone())
    });
    assert!(reason.contains("not removed"), "{reason}");
    assert_eq!(names(&server, ""), ["unreachable"]);
    assert!(page(&server, "/devices").contains("<b>Device unreachable was not deleted.</b>"));
    assert_eq!(names(&server, "?deleted=true"), ["waiting"]);
    assert_eq!(server.post("/devices/unreachable/undo").status, 204);
    assert!(!page(&server, "/devices").contains("was not deleted"));
    assert_eq!(server.post("/devices/gone/undo").status, 404);
}
