//! Streams of server-sent events.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use serde_json::json;

use crate::server::{Events, STEP_TIMEOUT, Sandbox, Server, is_root, plan, wait_until};

#[test]
fn stream_begins_with_the_state_and_resumes() {
    if !is_root("stream_begins_with_the_state_and_resumes") {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let id = server.experiment(&plan(2, 1_500));
    let path = format!("/experiments/{id}/events");
    let mut events = Events::open(&server, &path, None);
    let first = events.next().unwrap();
    assert_eq!((first.name.as_str(), &first.data["experiment"]["id"]), ("state", &json!(id)));
    let mut seen = vec![first];
    while seen.last().unwrap().data["experiment"]["state"] != "finished" {
        seen.push(events.next().unwrap());
    }
    let named = |name: &str| seen.iter().filter(|event| event.name == name).count();
    // Start and end of each trial.
    assert_eq!(named("trial"), 4, "{seen:?}");
    assert!(named("progress") >= 2, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].id <= pair[1].id), "{seen:?}");

    let place = seen.iter().position(|event| event.name == "trial").unwrap();
    let mut resumed = Events::open(&server, &path, Some(seen[place].id));
    for event in &seen[place + 1..] {
        if event.name == "state" {
            continue;
        }
        let again = resumed.next().unwrap();
        assert_eq!((&again.name, again.id, &again.data), (&event.name, event.id, &event.data));
    }
    let last = resumed.next().unwrap();
    assert_eq!((last.name.as_str(), last.data["ended"].as_array().unwrap().len()), ("state", 2));

    let run = seen.last().unwrap().data["experiment"]["run"].as_str().unwrap().to_owned();
    let state = Events::open(&server, &format!("/runs/{run}/events"), None).next().unwrap();
    assert_eq!(
        (&state.data["state"], &state.data["trials_finished"]),
        (&json!("finished"), &json!(2))
    );
}

/// An experiment whose process is not dwell, but a program that waits, and whose events the test
/// writes.
struct Staged {
    id: &'static str,
    dir: PathBuf,
    process: Child,
}

impl Staged {
    fn new(data: &Path) -> Self {
        let id = "20260101-000000-0000";
        let dir = data.join("experiments").join(id);
        fs::create_dir_all(&dir).unwrap();
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let start: u64 = fields.split(' ').nth(19).unwrap().parse().unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let record = json!({
            "schema": "dwell.experiment/1", "name": "x", "title": null, "owner": "a@b", "on": {},
            "created": "2026-01-01T00:00:00.000Z", "settings": [], "seed": null,
        });
        let process_record = json!({ "pid": process.id(), "start": start, "boot": boot.trim() });
        let launch = json!({ "events_from": 0, "process": process_record });
        fs::write(dir.join("experiment.json"), record.to_string()).unwrap();
        fs::write(dir.join("process.json"), launch.to_string()).unwrap();
        fs::write(dir.join("plan.toml"), "version = 1\n").unwrap();
        let staged = Self { id, dir, process };
        staged.append(
            "{\"at\":\"t\",\"event\":\"run\",\"run\":\"20260101-1\",\"plan\":\"x\",\"trials\":9,\
             \"done\":0,\"seed\":1}\n",
        );
        staged
    }

    fn append(&self, text: &str) {
        let path = self.dir.join("events.jsonl");
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Messages of 1,000 bytes, together more than the buffers of a connection hold.
const BATCHES: usize = 130;
const BATCH: usize = 100;

fn messages(count: usize) -> String {
    let text = "x".repeat(1_000);
    format!("{{\"at\":\"t\",\"event\":\"message\",\"text\":\"{text}\"}}\n").repeat(count)
}

#[test]
fn reader_that_never_reads_is_disconnected() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let staged = Staged::new(&sandbox.data());
    let path = format!("/api/v1/experiments/{}/events", staged.id);
    let mut stalled = server.send("GET", &path, "", b"");
    let mut reading = Events::open(&server, &path["/api/v1".len()..], None);
    assert_eq!(reading.next().unwrap().data["experiment"]["state"], "running");
    // Beyond all buffers of a connection, in pieces that a reader can follow.
    for _ in 0..BATCHES {
        staged.append(&messages(BATCH));
        let mut received = 0;
        while received < BATCH {
            let event = reading.next().expect("one who reads is not disconnected");
            received += usize::from(event.name == "log");
        }
    }
    let mut all = Vec::new();
    let since = Instant::now();
    // The server has ended the stream, so that what is in the buffers is all that comes.
    let _ = stalled.read_to_end(&mut all);
    assert!(since.elapsed() < STEP_TIMEOUT / 2, "the stream still goes on");
    assert!(all.len() < BATCHES * BATCH * 1_000, "it received everything: {}", all.len());
    let memory = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = memory.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    println!("{line} after {} bytes to a reader that never reads", BATCHES * BATCH * 1_000);
}

#[test]
fn dead_process_is_reported_to_watchers() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let mut staged = Staged::new(&sandbox.data());
    let mut events = Events::open(&server, &format!("/experiments/{}/events", staged.id), None);
    assert_eq!(events.next().unwrap().data["experiment"]["state"], "running");
    fs::write(staged.dir.join("log.txt"), "dwell: it broke\n").unwrap();
    staged.process.kill().unwrap();
    staged.process.wait().unwrap();
    let state = events.next().unwrap().data;
    assert_eq!(state["experiment"]["state"], "interrupted", "{state}");
    assert!(state["experiment"]["reason"].as_str().unwrap().contains("it broke"), "{state}");
    // Purged or deleted by hand: the stream says so and ends.
    fs::remove_dir_all(&staged.dir).unwrap();
    assert_eq!(events.next().unwrap().name, "gone");
    assert!(events.next().is_none());
    wait_until("gone", || match server.get(&format!("/experiments/{}", staged.id)).status {
        404 => Ok(()),
        status => Err(status),
    });
}
