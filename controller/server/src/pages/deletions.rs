//! Deletions of runs and devices that can be undone, as the lists show them.

use jiff::Timestamp;

use crate::app::App;
use crate::deleted_devices::DeletedDevices;
use crate::deleted_runs::{blocking, deleted_runs};
use crate::error::Error;
use crate::experiments::UNDO_TIMEOUT;

/// A deletion, as the lists show it.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    /// What is deleted, such as `Run 20261126-1`.
    pub(crate) what: String,
    /// Path of its page; the form that restores it is below.
    pub(crate) path: String,
    /// Time of day when it can no longer be undone, in UTC.
    pub(crate) until: String,
    /// Why the command failed. The subject is not deleted then.
    pub(crate) failed: Option<String>,
}

impl Deletion {
    /// Returns `None` if the time of the deletion cannot be read.
    fn new(kind: &str, name: &str, at: &str, failed: Option<String>) -> Option<Self> {
        let until = at.trim().parse::<Timestamp>().ok()? + UNDO_TIMEOUT;
        Some(Self {
            what: format!("{kind} {name}"),
            path: format!("/{}s/{name}", kind.to_lowercase()),
            until: until.strftime("%H:%M:%SZ").to_string(),
            failed,
        })
    }
}

impl App {
    /// Returns everything that was deleted and can be restored, and the deletions that failed.
    pub(super) async fn deletions(&self) -> Result<Vec<Deletion>, Error> {
        let data = self.config().data.clone();
        let marks = blocking(move || Ok((deleted_runs(&data), DeletedDevices::read(&data))));
        let (runs, devices) = marks.await?;
        let runs = runs.into_iter().filter_map(|(run, at)| Deletion::new("Run", &run, &at, None));
        let devices = devices
            .into_iter()
            .filter_map(|(name, it)| Deletion::new("Device", &name, &it.at, it.failed));
        Ok(runs.chain(devices).collect())
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
    fn deletion_can_be_undone_for_ten_minutes() {
        let deletion = Deletion::new("Device", "pi4", "2026-01-01T23:55:01.250Z\n", None).unwrap();
        assert_eq!(deletion.what, "Device pi4");
        assert_eq!(
            (deletion.path.as_str(), deletion.until.as_str()),
            ("/devices/pi4", "00:05:01Z")
        );
        assert!(Deletion::new("Run", "20260101-1", "", None).is_none());
    }
}
