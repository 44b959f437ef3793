//! Deletions that can be undone. Runs are deleted as the API deletes them. A device disappears from
//! the lists at once, and a command of dwell removes it after a time; a server that ends before has
//! removed nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::deleted_runs::deleted_runs;
use crate::error::Error;
use crate::experiments::UNDO_TIMEOUT;

/// Time after which the removing command is ended. It connects to the device.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(110);

/// A deletion, as the lists show it.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    /// What is deleted, such as `Run 20261126-1`.
    pub(crate) what: String,
    /// Path of its page, below which the form is that restores it.
    pub(crate) path: String,
    /// When it can no longer be undone, in UTC.
    pub(crate) until: String,
    /// Why the command failed; it is not deleted then.
    pub(crate) failed: Option<String>,
}

/// A device that is removed.
#[derive(Clone, Debug)]
struct Removal {
    until: Timestamp,
    failed: Option<String>,
}

/// The devices that are removed.
#[derive(Debug, Default)]
pub(crate) struct Trash(Mutex<BTreeMap<String, Removal>>);

impl Trash {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Removal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a device is hidden from lists.
    pub(crate) fn has_device(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|removal| removal.failed.is_none())
    }

    /// Undoes a removal, or dismisses a failed one.
    pub(crate) fn undo(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Starts a removal; `None` if it has started before.
    fn begin(&self, name: &str) -> Option<Timestamp> {
        let until = Timestamp::now() + UNDO_TIMEOUT;
        let mut all = self.lock();
        if all.get(name).is_some_and(|removal| removal.failed.is_none()) {
            return None;
        }
        all.insert(name.to_owned(), Removal { until, failed: None });
        Some(until)
    }

    /// Whether this removal is still wanted.
    fn is_due(&self, name: &str, until: Timestamp) -> bool {
        self.lock().get(name).is_some_and(|it| it.until == until && it.failed.is_none())
    }

    fn fail(&self, name: &str, reason: String) {
        if let Some(removal) = self.lock().get_mut(name) {
            removal.failed = Some(reason);
        }
    }

    fn deletions(&self) -> Vec<Deletion> {
        let all = self.lock();
        let deletion = |(name, removal): (&String, &Removal)| Deletion {
            what: format!("Device {name}"),
            path: format!("/devices/{name}"),
            until: time_of_day(removal.until),
            failed: removal.failed.clone(),
        };
        all.iter().map(deletion).collect()
    }
}

/// Formats the time of day, in UTC.
fn time_of_day(at: Timestamp) -> String {
    at.strftime("%H:%M:%SZ").to_string()
}

impl App {
    /// Removes a device unless that is undone in time.
    pub(super) fn remove_device_later(&self, name: String) {
        let Some(until) = self.trash().begin(&name) else { return };
        let app = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIMEOUT).await;
            if app.trash().is_due(&name, until) {
                app.remove_device(&name).await;
            }
        });
    }

    async fn remove_device(&self, name: &str) {
        let arguments = ["device", "remove", "--yes", "--", name].map(OsString::from);
        match self.command(arguments, REMOVE_TIMEOUT).await {
            Ok(output) if output.code == Some(0) => self.trash().undo(name),
            Ok(output) => self.trash().fail(name, super::said(&output)),
            Err(error) => self.trash().fail(name, error.to_string()),
        }
    }

    /// Returns everything that was deleted and can be restored.
    pub(super) async fn deletions(&self) -> Result<Vec<Deletion>, Error> {
        let data = self.config().data.clone();
        let runs = tokio::task::spawn_blocking(move || deleted_runs(&data));
        let run = |(run, at): (String, String)| {
            let until = at.trim().parse::<Timestamp>().ok()? + UNDO_TIMEOUT;
            Some(Deletion {
                what: format!("Run {run}"),
                path: format!("/runs/{run}"),
                until: time_of_day(until),
                failed: None,
            })
        };
        let runs = runs.await.map_err(|_| Error::Ending)?;
        Ok(runs.into_iter().filter_map(run).chain(self.trash().deletions()).collect())
    }

    /// Returns the names of deleted runs. It reads a directory.
    pub(super) fn hidden_runs(&self) -> Vec<String> {
        deleted_runs(&self.config().data).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undone_removal_is_not_due() {
        let trash = Trash::default();
        let until = trash.begin("pi4").unwrap();
        assert!(trash.has_device("pi4") && trash.is_due("pi4", until));
        assert_eq!(trash.begin("pi4"), None);
        trash.undo("pi4");
        assert!(!trash.has_device("pi4") && !trash.is_due("pi4", until));
    }

    #[test]
    fn failed_removal_has_its_reason_and_can_be_repeated() {
        let trash = Trash::default();
        let until = trash.begin("pi4").unwrap();
        trash.fail("pi4", "unreachable".to_owned());
        assert!(!trash.has_device("pi4") && !trash.is_due("pi4", until));
        assert_eq!(trash.deletions()[0].failed.as_deref(), Some("unreachable"));
        assert!(trash.begin("pi4").is_some() && trash.has_device("pi4"));
    }
}
