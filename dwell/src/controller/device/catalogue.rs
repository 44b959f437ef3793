//! The devices of a data directory.

use dwell_node_cli::Failure;
use dwell_results::device::{DeviceError, KnownDevice};
use dwell_store::{Store, StoreError};

use super::super::data::{DataArgs, say_problem};

/// Opens the data directory for changes of existing devices.
pub(super) fn open(data: &DataArgs) -> Result<Store, Failure> {
    if data.open_if_exists()?.is_none() {
        return Err(no_devices(data));
    }
    data.open()
}

/// Opens the data directory for reading.
pub(super) fn open_to_read(data: &DataArgs) -> Result<Store, Failure> {
    data.open_if_exists()?.ok_or_else(|| no_devices(data))
}

/// The failure of a command that needs devices.
pub(super) fn no_devices(data: &DataArgs) -> Failure {
    Failure::from(anyhow::anyhow!("{}", how_to_add(data)))
}

/// States that there are no devices, and how to add one.
pub(crate) fn how_to_add(data: &DataArgs) -> String {
    format!(
        "no devices in {} yet; add one with `dwell device add NAME [USER@]HOST`",
        data.data.display()
    )
}

/// Returns all devices, by name. Unreadable descriptions are reported and left out.
pub(super) fn all(store: &Store) -> Result<Vec<KnownDevice>, StoreError> {
    KnownDevice::all(store, &say_problem)
}

/// Returns the device of this name. A missing device is a usage error.
pub(crate) fn find(store: &Store, name: &str) -> Result<KnownDevice, Failure> {
    KnownDevice::find(store, name).map_err(|error| match error {
        DeviceError::Unknown(text) => Failure::usage(text),
        other => other.into(),
    })
}

/// Returns the devices with these names, then those with one of these tags. Without names and tags,
/// returns all. No device is returned twice.
pub(super) fn select(
    store: &Store,
    data: &DataArgs,
    names: &[String],
    tags: &[String],
) -> Result<Vec<KnownDevice>, Failure> {
    let mut selected: Vec<KnownDevice> = Vec::new();
    for name in names {
        if !selected.iter().any(|known| known.row.name == *name) {
            selected.push(find(store, name)?);
        }
    }
    if !names.is_empty() && tags.is_empty() {
        return Ok(selected);
    }
    let all = all(store)?;
    if all.is_empty() {
        return Err(no_devices(data));
    }
    for tag in tags {
        if !all.iter().any(|known| known.device.tags.contains(tag)) {
            return Err(Failure::usage(unknown_tag(&all, tag)));
        }
    }
    let wanted = |known: &KnownDevice| {
        tags.is_empty() || known.device.tags.iter().any(|tag| tags.contains(tag))
    };
    for known in all.into_iter().filter(wanted) {
        if !selected.iter().any(|other| other.row.name == known.row.name) {
            selected.push(known);
        }
    }
    Ok(selected)
}

fn unknown_tag(all: &[KnownDevice], tag: &str) -> String {
    let mut known: Vec<&str> =
        all.iter().flat_map(|known| &known.device.tags).map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    match &known[..] {
        [] => format!("no device has the tag '{tag}'; no device has tags"),
        known => format!("no device has the tag '{tag}'; known tags: {}", known.join(", ")),
    }
}
