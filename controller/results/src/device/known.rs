//! The devices of a data directory.

use dwell_fleet::Device;
use dwell_store::{DeviceRow, Store, StoreError};
use thiserror::Error;

use crate::OnProblem;

/// Letters of a name for which a suggested one may differ by one more letter.
const LETTERS_PER_MISTAKE: usize = 4;

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// Why there is no such device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The catalogue cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The description of the device cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// No device has this name; the text names those like it.
    #[error("{0}")]
    Unknown(String),
}

/// A device of the catalogue.
#[derive(Clone, Debug)]
pub struct KnownDevice {
    /// Its row in the catalogue.
    pub row: DeviceRow,
    /// Its description.
    pub device: Device,
}

impl KnownDevice {
    /// Reads the description.
    fn read(row: DeviceRow) -> Result<Self, String> {
        let unreadable = |error: &dyn std::fmt::Display| {
            format!("the catalogue's description of device {} cannot be read: {error}", row.name)
        };
        let device: Device =
            serde_json::from_str(&row.description).map_err(|error| unreadable(&error))?;
        Device::new(&device.name, &device.destination).map_err(|error| unreadable(&error))?;
        if device.name != row.name {
            return Err(unreadable(&format_args!("it is of device '{}'", device.name)));
        }
        Ok(Self { row, device })
    }

    /// Returns all devices, by name. Unreadable descriptions are reported and left out.
    pub fn all(store: &Store, on_problem: OnProblem<'_>) -> Result<Vec<Self>, StoreError> {
        let known = |row| Self::read(row).map_err(|error| on_problem(&error)).ok();
        Ok(store.devices()?.into_iter().filter_map(known).collect())
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    /// No device has this name, or it cannot be read.
    pub fn find(store: &Store, name: &str) -> Result<Self, DeviceError> {
        match store.device(name)? {
            Some(row) => Self::read(row).map_err(DeviceError::Unreadable),
            None => Err(DeviceError::Unknown(unknown(store, name)?)),
        }
    }
}

/// Describes an unknown name, with those like it.
fn unknown(store: &Store, name: &str) -> Result<String, StoreError> {
    let known: Vec<String> = store.devices()?.into_iter().map(|row| row.name).collect();
    let advice = match &similar(name, &known)[..] {
        [] if known.is_empty() => "add it with `dwell device add`".to_owned(),
        [] => "`dwell device list` lists all devices".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Ok(format!("there is no device '{name}'; {advice}"))
}

/// Returns the names that differ from `name` by few letters, the nearest first.
fn similar(name: &str, known: &[String]) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let max_distance = 1 + name.len() / LETTERS_PER_MISTAKE;
    let mut near: Vec<(usize, &String)> = known
        .iter()
        .map(|other| (strsim::damerau_levenshtein(&name, &other.to_ascii_lowercase()), other))
        .filter(|(distance, _)| *distance <= max_distance && *distance < name.len())
        .collect();
    near.sort();
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_devices(names: &[&str]) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        for name in names {
            let device = Device::new(name, "pi@192.0.2.7").unwrap();
            store.add_device(name, &serde_json::to_string(&device).unwrap()).unwrap();
        }
        (dir, store)
    }

    #[test]
    fn unknown_name_is_answered_with_near_names() {
        let (_dir, store) = with_devices(&["pi-kitchen", "pi4", "router"]);
        let text = |name: &str| KnownDevice::find(&store, name).unwrap_err().to_string();
        assert_eq!(text("pi-kichen"), "there is no device 'pi-kichen'; did you mean pi-kitchen?");
        assert_eq!(text("Router"), "there is no device 'Router'; did you mean router?");
        assert_eq!(text("x"), "there is no device 'x'; `dwell device list` lists all devices");
        let (_dir, empty) = with_devices(&[]);
        let error = KnownDevice::find(&empty, "x").unwrap_err().to_string();
        assert_eq!(error, "there is no device 'x'; add it with `dwell device add`");
    }

    #[test]
    fn unreadable_description_hides_no_other_device() {
        let (_dir, mut store) = with_devices(&["pi4"]);
        for (name, description) in [
            ("broken", "{"),
            ("other", r#"{"name":"moon","destination":"h"}"#),
            ("hostile", r#"{"name":"hostile","destination":"-oProxyCommand=reboot"}"#),
            ("newer", r#"{"name":"newer","destination":"h","planet":"mars"}"#),
        ] {
            store.add_device(name, description).unwrap();
            let error = KnownDevice::find(&store, name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("cannot be read"), "{error}");
        }
        let all = KnownDevice::all(&store, &|_| ()).unwrap();
        assert_eq!(all.iter().map(|known| known.row.name.as_str()).collect::<Vec<_>>(), ["pi4"]);
    }
}
