//! Everything that is stored about a device.

use dwell_fleet::Device;
use dwell_report::VerdictCard;
use dwell_store::{CheckResult, DeviceCheck, Lease, RunRow, Store, StoreError};
use serde_json::{Value, json};

use super::abilities::lacks;
use super::answer::{StoredAnswer, stored_answer};
use super::known::KnownDevice;
use super::verdict::cards;
use crate::OnProblem;

/// Everything that is stored about a device.
pub struct DeviceDetails {
    /// The device.
    pub known: KnownDevice,
    /// Its lease.
    pub lease: Option<Lease>,
    /// The last check.
    pub last: Option<DeviceCheck>,
    /// The last check that it answered.
    pub answered: Option<DeviceCheck>,
    /// Its runs, with its roles in them, the newest first.
    pub runs: Vec<(RunRow, Vec<String>)>,
    /// Its verdict cards.
    pub cards: Vec<VerdictCard>,
}

impl DeviceDetails {
    /// Reads them.
    pub fn read(
        store: &Store,
        known: KnownDevice,
        on_problem: OnProblem<'_>,
    ) -> Result<Self, StoreError> {
        let lease = store.lease_of(&known.row)?;
        let mut runs = Vec::new();
        for run in store.runs_of_device(&known.row)? {
            let nodes = store.nodes_on_device(&run, &known.row)?;
            runs.push((run, nodes));
        }
        Ok(Self {
            lease,
            last: store.last_check(&known.row)?,
            answered: store.last_answer(&known.row)?,
            cards: cards(store, &known, on_problem)?,
            runs,
            known,
        })
    }

    /// Returns the `dwell.device/1` object.
    pub fn object(&self) -> Value {
        let shown = self;
        let answer = shown.answered.as_ref().and_then(stored_answer);
        let run = |(run, nodes): &(RunRow, Vec<String>)| {
            json!({
                "run": run.run,
                "plan": run.name,
                "roles": nodes,
                "state": run.state,
                "started": run.started,
                "owner": run.owner,
                "trials": run.trials,
                "trials_finished": run.trials_finished,
            })
        };
        json!({
            "schema": "dwell.device/1",
            "device": description(&shown.known.device),
            "added": shown.known.row.added,
            "lease": shown.lease.as_ref().map(lease_object),
            "last_check": shown.last.as_ref().map(check_object),
            "answered_at": shown.answered.as_ref().map(|check| &check.at),
            "privileges": answer.as_ref().and_then(|answer| lacks(&shown.known.device, answer)),
            "answer": answer,
            "runs": shown.runs.iter().map(run).collect::<Vec<_>>(),
            "verdicts": shown.cards,
        })
    }
}

/// Returns the description of a device with a null for each missing field.
pub fn description(device: &Device) -> Value {
    json!({
        "name": device.name,
        "destination": device.destination,
        "model": device.model,
        "role": device.role,
        "interfaces": device.interfaces,
        "addresses": device.addresses,
        "tags": device.tags,
        "notes": device.notes,
        "price": device.price,
        "sudo": device.sudo,
    })
}

/// Returns time and result of a check.
pub fn check_object(check: &DeviceCheck) -> Value {
    let error = match &check.result {
        CheckResult::Answer { .. } => None,
        CheckResult::Error(error) => Some(error),
    };
    json!({ "at": check.at, "answered": error.is_none(), "error": error })
}

/// Returns a lease in the form of all JSON outputs.
pub fn lease_object(lease: &Lease) -> Value {
    lease_json(&lease.run, &lease.owner, &lease.since, lease.stale)
}

/// Returns a lease in the form of all JSON outputs.
pub fn lease_json(run: &str, owner: &str, since: &str, stale: bool) -> Value {
    json!({ "run": run, "owner": owner, "since": since, "stale": stale })
}

/// Describes the lease of a device.
pub fn in_use(lease: &Lease) -> String {
    format!("in use by {}, run {}, since {}", lease.owner, lease.run, lease.since)
}

/// Returns what a device says about itself, by subject.
pub fn answer_rows(device: &Device, answer: &StoredAnswer) -> [(&'static str, String); 4] {
    let doctor = &answer.doctor;
    let machine = &doctor["machine"];
    let mut parts = vec![answer.arch.clone(), format!("Linux {}", answer.kernel)];
    parts.extend(machine["cpu"].as_str().map(str::to_owned));
    parts.extend(machine["cores"].as_u64().map(|cores| format!("{cores} CPUs")));
    parts.extend(machine["governor"].as_str().map(|governor| format!("governor {governor}")));
    let user = match answer.uid {
        0 => "as root".to_owned(),
        uid if device.sudo => format!("as root by sudo of uid {uid}"),
        uid => format!("as uid {uid}"),
    };
    let clock = &doctor["clocks"];
    let synchronised = match clock["utc_error_ns"].as_i64() {
        Some(ns) => format!("synchronised to UTC within {:.3} ms", ns as f64 / 1e6),
        None => "not synchronised to UTC".to_owned(),
    };
    let source = clock["source"].as_str().unwrap_or("unknown source");
    [
        ("machine", parts.join(", ")),
        ("node", format!("{} {user}, {}", answer.build, answer.program)),
        ("clock", format!("{source}, {synchronised}")),
        ("interfaces", interfaces(doctor)),
    ]
}

/// Lists the interfaces that are up, except loopback.
fn interfaces(doctor: &Value) -> String {
    let all = doctor["interfaces"].as_array().into_iter().flatten();
    let up = all.filter(|found| found["up"] == true && found["name"] != "lo");
    let words = up.filter_map(|found| {
        let driver = found["driver"].as_str().unwrap_or("unknown driver");
        Some(format!("{} ({driver})", found["name"].as_str()?))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none up".to_owned() } else { words.join(", ") }
}

/// Puts text from a user or a device on one line.
pub fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}
