//! The devices of a data directory.

use dwell_fleet::Device;
use dwell_node_cli::{Failure, say};
use dwell_store::{DeviceRow, Store};

use super::super::data::DataArgs;

/// Letters of a name for which a suggested one may differ by one more letter.
const LETTERS_PER_MISTAKE: usize = 4;

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// A device of the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct KnownDevice {
    pub(super) row: DeviceRow,
    /// Its description.
    pub(crate) device: Device,
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
}

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
pub(crate) fn all(store: &Store) -> Result<Vec<KnownDevice>, Failure> {
    let known = |row| KnownDevice::read(row).map_err(|error| say(&format!("dwell: {error}"))).ok();
    Ok(store.devices()?.into_iter().filter_map(known).collect())
}

/// Returns the device of this name. A missing device is a usage error.
pub(crate) fn find(store: &Store, name: &str) -> Result<KnownDevice, Failure> {
    match store.device(name)? {
        Some(row) => KnownDevice::read(row).map_err(|error| anyhow::anyhow!(error).into()),
        None => Err(Failure::usage(unknown(store, name)?)),
    }
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

/// Describes an unknown name, with those like it.
fn unknown(store: &Store, name: &str) -> Result<String, Failure> {
    let known: Vec<String> = store.devices()?.into_iter().map(|row| row.name).collect();
    let advice = match &similar(name, &known)[..] {
        [] if known.is_empty() => "add it with `dwell device add`".to_owned(),
        [] => "`dwell device list` lists all devices".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Ok(format!("there is no device '{name}'; {advice}"))
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
        let text = |name: &str| find(&store, name).unwrap_err().error.to_string();
        assert_eq!(text("pi-kichen"), "there is no device 'pi-kichen'; did you mean pi-kitchen?");
        assert_eq!(text("Router"), "there is no device 'Router'; did you mean router?");
        assert_eq!(text("x"), "there is no device 'x'; `dwell device list` lists all devices");
        let (_dir, empty) = with_devices(&[]);
        let error = find(&empty, "x").unwrap_err().error.to_string();
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
            let error = find(&store, name).unwrap_err().error.to_string();
            assert!(error.contains(name) && error.contains("cannot be read"), "{error}");
        }
        let all = all(&store).unwrap();
        assert_eq!(all.iter().map(|known| known.row.name.as_str()).collect::<Vec<_>>(), ["pi4"]);
    }
}
