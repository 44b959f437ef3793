//! The list of devices.

use dwell_report::Table;
use dwell_store::{CheckResult, DeviceCheck, Lease, Store, StoreError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::details::{check_object, description, lease_object, one_line};
use super::known::KnownDevice;
use super::verdict::JudgedDevice;
use crate::age::ago;

/// Maximum length of the reason of a failed check in the table, in characters.
const MAX_REASON_LEN: usize = 60;

/// A device with its state.
pub struct ListedDevice {
    /// The device.
    pub known: KnownDevice,
    /// Its last check.
    pub last: Option<DeviceCheck>,
    /// The last check that it answered.
    pub answer: Option<DeviceCheck>,
    /// Its lease.
    pub lease: Option<Lease>,
}

impl ListedDevice {
    /// Reads the state of a device; `leases` are all of the store.
    pub fn read(store: &Store, leases: &[Lease], known: KnownDevice) -> Result<Self, StoreError> {
        let lease = leases.iter().find(|lease| lease.device == known.row.name).cloned();
        let (last, answer) = (store.last_check(&known.row)?, store.last_answer(&known.row)?);
        Ok(Self { known, last, answer, lease })
    }

    /// Returns an element of `devices` in `dwell.devices/1`.
    pub fn object(&self, judged: Option<&JudgedDevice<'_>>) -> Value {
        let of = self;
        let last = of.last.as_ref();
        let answer = of.answer.as_ref().map(|check| match &check.result {
            CheckResult::Answer { arch, kernel, build, .. } => {
                json!({ "at": check.at, "arch": arch, "kernel": kernel, "build": build })
            }
            CheckResult::Error(_) => Value::Null,
        });
        json!({
            "device": description(&of.known.device),
            "added": of.known.row.added,
            "last_check": last.map(check_object),
            "last_answer": answer,
            "lease": of.lease.as_ref().map(lease_object),
            "verdicts": judged.map(|judged| &judged.cards),
        })
    }
}

/// Returns one row per device.
pub fn device_table(listed: &[ListedDevice], now: Timestamp) -> Table {
    let columns = ["name", "destination", "model", "arch", "kernel", "last check", "in use"];
    let row = |of: &ListedDevice| {
        let device = &of.known.device;
        let (arch, kernel) = match of.answer.as_ref().map(|check| &check.result) {
            Some(CheckResult::Answer { arch, kernel, .. }) => (arch.clone(), kernel.clone()),
            _ => ("-".to_owned(), "-".to_owned()),
        };
        let last = of.last.as_ref().map_or("never".to_owned(), |check| {
            let ago = ago(&check.at, now);
            match &check.result {
                CheckResult::Answer { .. } => format!("ok, {ago}"),
                CheckResult::Error(reason) => format!("failed, {ago}: {}", shortened(reason)),
            }
        });
        let in_use = of.lease.as_ref().map_or("-".to_owned(), |lease| {
            let stale = if lease.stale { "stale: " } else { "" };
            format!("{stale}{}, run {}, {}", lease.owner, lease.run, ago(&lease.since, now))
        });
        let model = device.model.clone().unwrap_or_else(|| "-".to_owned());
        let cells =
            [device.name.clone(), device.destination.clone(), model, arch, kernel, last, in_use];
        cells.map(|cell| one_line(&cell)).to_vec()
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: listed.iter().map(row).collect() }
}

fn shortened(reason: &str) -> String {
    if reason.chars().count() <= MAX_REASON_LEN {
        return reason.to_owned();
    }
    let start: String = reason.chars().take(MAX_REASON_LEN - 3).collect();
    format!("{}...", start.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reason_is_shortened() {
        assert_eq!(shortened("no route to host"), "no route to host");
        let long = shortened(&"ä ".repeat(100));
        assert!(long.chars().count() <= MAX_REASON_LEN && long.ends_with("ä..."), "{long}");
    }
}
