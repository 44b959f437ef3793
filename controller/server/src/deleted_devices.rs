//! Devices that were removed on a page or by the API, and can still be restored: a file
//! `DATA/deleted-devices/NAME`. They are hidden at once, and removed by `dwell device remove` ten
//! minutes later.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell_fleet::Device;
use dwell_results::device::in_use;
use dwell_store::DeviceRow;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::deleted_runs::{blocking, shortened};
use crate::error::Error;
use crate::experiments::{is_purged, now, unreadable, write_file};

/// Time-out of one removal. The command connects to the device.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(180);

/// The mark of a removed device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removal {
    /// When it was removed, RFC 3339.
    pub(crate) at: String,
    /// When the device was added, RFC 3339. Another device may get its name later.
    added: String,
    /// Whether the node program stays on the device.
    keep_files: bool,
    /// Why the command failed. The device is not hidden then.
    pub(crate) failed: Option<String>,
}

impl Removal {
    fn is_of(&self, device: &DeviceRow) -> bool {
        self.added == device.added
    }
}

/// The removed devices by name, and those whose removal failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeletedDevices(BTreeMap<String, Removal>);

impl DeletedDevices {
    /// Reads the marks of a data directory. Unreadable ones are left out.
    pub(crate) fn read(data: &Path) -> Self {
        let entries = fs::read_dir(folder(data)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let marked = names.filter(|name| is_device_name(name)).filter_map(|name| {
            let text = fs::read_to_string(folder(data).join(&name)).ok()?;
            Some((name, serde_json::from_str(&text).ok()?))
        });
        Self(marked.collect())
    }

    /// Whether lists leave this device out.
    pub(crate) fn hides(&self, device: &DeviceRow) -> bool {
        self.removal_of(device).is_some_and(|removal| removal.failed.is_none())
    }

    /// Returns the removal of this device, also a failed one.
    pub(crate) fn removal_of(&self, device: &DeviceRow) -> Option<&Removal> {
        self.0.get(&device.name).filter(|removal| removal.is_of(device))
    }
}

impl IntoIterator for DeletedDevices {
    type Item = (String, Removal);
    type IntoIter = std::collections::btree_map::IntoIter<String, Removal>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

fn folder(data: &Path) -> PathBuf {
    data.join("deleted-devices")
}

/// Whether a device can have this name. Only such names become paths.
fn is_device_name(name: &str) -> bool {
    Device::new(name, "host").is_ok()
}

fn write(data: &Path, name: &str, removal: &Removal) -> Result<(), Error> {
    let dir = folder(data);
    let write = || -> io::Result<()> {
        fs::create_dir_all(&dir)?;
        write_file(&dir.join(name), &serde_json::to_vec(removal)?)
    };
    write().map_err(|error| unreadable("write to", &dir, &error))
}

fn forget(data: &Path, name: &str) -> Result<(), Error> {
    let path = folder(data).join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(unreadable("delete", &path, &error))
        }
        _ => Ok(()),
    }
}

impl App {
    /// Returns the removed devices. It reads a directory.
    pub(crate) fn deleted_devices(&self) -> DeletedDevices {
        DeletedDevices::read(&self.config().data)
    }

    /// Returns the row of a device, also of a removed one.
    ///
    /// # Errors
    /// No device has this name.
    pub(crate) async fn device_row(&self, name: &str) -> Result<DeviceRow, Error> {
        let missing = || Error::NotFound(format!("there is no device '{}'", shortened(name)));
        if !is_device_name(name) {
            return Err(missing());
        }
        let wanted = name.to_owned();
        let found = self.read(move |store| Ok(store.device(&wanted)?)).await?;
        found.flatten().ok_or_else(missing)
    }

    /// Hides a device, which is removed in ten minutes.
    ///
    /// # Errors
    /// No device has this name, or a run uses it.
    pub(crate) async fn remove_device(&self, name: &str, keep_files: bool) -> Result<(), Error> {
        let device = self.device_row(name).await?;
        let row = device.clone();
        let lease = self.read(move |store| Ok(store.lease_of(&row)?)).await?.flatten();
        if let Some(lease) = lease.filter(|lease| !lease.stale) {
            return Err(Error::Conflict(format!("device {name} is {}", in_use(&lease))));
        }
        let data = self.config().data.clone();
        blocking(move || {
            if DeletedDevices::read(&data).hides(&device) {
                return Ok(());
            }
            let removal = Removal { at: now(), added: device.added, keep_files, failed: None };
            write(&data, &device.name, &removal)
        })
        .await
    }

    /// Shows a removed device again, or dismisses a failed removal.
    ///
    /// # Errors
    /// No device has this name; it was removed too long ago.
    pub(crate) async fn restore_device(&self, name: &str) -> Result<(), Error> {
        let device = self.device_row(name).await?;
        let data = self.config().data.clone();
        blocking(move || forget(&data, &device.name)).await
    }

    /// Removes for ever the devices that were removed more than ten minutes ago.
    pub(crate) async fn purge_devices(&self) {
        let data = self.config().data.clone();
        let marked = blocking(move || Ok(DeletedDevices::read(&data))).await.unwrap_or_default();
        for (name, removal) in marked {
            let known = match self.device_row(&name).await {
                Ok(device) => removal.is_of(&device),
                Err(Error::NotFound(_)) => false,
                // Tried again later.
                Err(_) => continue,
            };
            if !known {
                self.forget_removal(name).await;
            } else if removal.failed.is_none() && is_purged(&removal.at, Timestamp::now()) {
                self.remove_for_ever(name, removal).await;
            }
        }
    }

    async fn remove_for_ever(&self, name: String, removal: Removal) {
        let keep_files = removal.keep_files.then_some("--keep-files");
        let arguments = ["device", "remove", "--yes"].into_iter().chain(keep_files);
        let arguments = arguments.chain(["--", &name]).map(OsString::from);
        let failed = match self.command(arguments, REMOVE_TIMEOUT).await {
            Ok(output) if output.code == Some(0) => return self.forget_removal(name).await,
            Ok(output) => output.reason(),
            Err(error) => error.to_string(),
        };
        let data = self.config().data.clone();
        let record = move || {
            // It may have been restored while the command ran.
            let is_wanted = DeletedDevices::read(&data).0.get(&name) == Some(&removal);
            let failed = Removal { failed: Some(failed), ..removal };
            if is_wanted { write(&data, &name, &failed) } else { Ok(()) }
        };
        // If it cannot be recorded, the removal is tried again.
        let _ = blocking(record).await;
    }

    async fn forget_removal(&self, name: String) {
        let data = self.config().data.clone();
        // A mark that stays is read again by the next purge.
        let _ = blocking(move || forget(&data, &name)).await;
    }
}

#[cfg(test)]
mod tests {
    use dwell_store::Store;

    use super::*;

    /// Returns a data directory with the device `pi4`, and its row.
    fn with_device() -> (tempfile::TempDir, DeviceRow) {
        let data = tempfile::tempdir().unwrap();
        let mut store = Store::open(data.path()).unwrap();
        store.add_device("pi4", "{}").unwrap();
        let device = store.device("pi4").unwrap().unwrap();
        (data, device)
    }

    fn removal(device: &DeviceRow) -> Removal {
        Removal { at: now(), added: device.added.clone(), keep_files: true, failed: None }
    }

    #[test]
    fn mark_hides_only_the_device_that_was_removed() {
        let (data, pi4) = with_device();
        let written = removal(&pi4);
        write(data.path(), "pi4", &written).unwrap();
        let deleted = DeletedDevices::read(data.path());
        assert_eq!(deleted.0["pi4"], written);
        assert!(deleted.hides(&pi4));
        let earlier = Removal { added: "2026-01-01T00:00:00Z".to_owned(), ..written };
        write(data.path(), "pi4", &earlier).unwrap();
        assert!(!DeletedDevices::read(data.path()).hides(&pi4), "it was of an earlier device");
        forget(data.path(), "pi4").unwrap();
        assert!(DeletedDevices::read(data.path()).0.is_empty());
        forget(data.path(), "pi4").unwrap();
    }

    #[test]
    fn failed_removal_has_its_reason_and_hides_nothing() {
        let (data, pi4) = with_device();
        let failed = Removal { failed: Some("unreachable".to_owned()), ..removal(&pi4) };
        write(data.path(), "pi4", &failed).unwrap();
        let deleted = DeletedDevices::read(data.path());
        assert!(!deleted.hides(&pi4));
        assert_eq!(deleted.removal_of(&pi4), Some(&failed));
    }

    #[test]
    fn unreadable_marks_hide_no_other_mark() {
        let (data, pi4) = with_device();
        write(data.path(), "pi4", &removal(&pi4)).unwrap();
        fs::write(folder(data.path()).join("pi5"), "{").unwrap();
        fs::write(folder(data.path()).join(".tmp1"), "{}").unwrap();
        let names: Vec<String> =
            DeletedDevices::read(data.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["pi4"]);
    }
}
