//! `/devices`. Changes are made by `dwell device`, as in a terminal.

use std::ffi::OsString;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dwell_fleet::Device;
use dwell_results::device::{DeviceDetails, KnownDevice, ListedDevice};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::{Json, Path, Query};
use super::page;
use super::runs::Deletion;
use crate::app::App;
use crate::command::{CHANGE_TIMEOUT, WORK_TIMEOUT};
use crate::deleted_runs::shortened;
use crate::error::Error;

/// Which devices are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DevicesQuery {
    /// Maximum number of devices, 1 to 1000; 100 if absent
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Number of devices to skip
    #[param(value_type = Option<i64>, minimum = 0, maximum = 4294967295_i64)]
    offset: Option<u32>,
    /// Only devices with this tag
    tag: Option<String>,
    /// Only devices that were removed and can be restored
    deleted: Option<bool>,
}

/// A page of devices, by name. `dwell.devices/1` with three more fields.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DevicesPage {
    /// `dwell.devices/1`.
    schema: &'static str,
    /// The devices.
    devices: Vec<Value>,
    /// Number of all devices that match.
    total: usize,
    /// Number of devices that were skipped.
    offset: u32,
    /// Maximum number of devices.
    limit: u32,
}

/// Lists devices, by name
#[utoipa::path(get, path = "/devices", tag = "devices", params(DevicesQuery),
    responses((status = 200, body = DevicesPage), CommonErrors))]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<DevicesQuery>,
) -> Result<axum::Json<DevicesPage>, ApiError> {
    let (offset, limit) = page(query.offset, query.limit)?;
    let reader = app.clone();
    let found = app.read(move |store| {
        let mut known = KnownDevice::all(store, &|_| {})?;
        let deleted = reader.deleted_devices();
        known.retain(|known| deleted.hides(&known.row) == query.deleted.unwrap_or(false));
        if let Some(tag) = &query.tag {
            known.retain(|known| known.device.tags.contains(tag));
        }
        let total = known.len();
        let leases = store.leases()?;
        let wanted = known.into_iter().skip(offset as usize).take(limit as usize);
        let objects =
            wanted.map(|known| Ok(ListedDevice::read(store, &leases, known)?.object(None)));
        Ok((objects.collect::<Result<Vec<_>, Error>>()?, total))
    });
    let (devices, total) = found.await?.unwrap_or_default();
    Ok(axum::Json(DevicesPage { schema: "dwell.devices/1", devices, total, offset, limit }))
}

/// Returns a device with its last check, its runs and its verdicts: `dwell.device/1`
#[utoipa::path(get, path = "/devices/{name}", tag = "devices",
    params(("name" = String, Path, description = "Name of the device", example = "pi4")),
    responses((status = 200, body = Value), CommonErrors, ChangeErrors))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let missing = Error::NotFound(format!("there is no device '{}'", shortened(&name)));
    let reader = app.clone();
    let object = app.read(move |store| {
        let known = KnownDevice::find(store, &name)?;
        let deleted = reader.deleted_devices();
        let failure = deleted.removal_of(&known.row).and_then(|removal| removal.failed.clone());
        let mut object = DeviceDetails::read(store, known, &|_| {})?.object();
        if let Some(reason) = failure {
            object["removal_error"] = reason.into();
        }
        Ok(object)
    });
    object.await?.map(axum::Json).ok_or_else(|| missing.into())
}

/// Refuses a name that no device has, and one of a removed device.
async fn check_exists(app: &App, name: &str) -> Result<(), Error> {
    let device = app.device_row(name).await?;
    if app.deleted_devices().hides(&device) {
        return Err(Error::Conflict(format!("device {name} is removed; restore it first")));
    }
    Ok(())
}

/// A device to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewDevice {
    /// Letters, digits, `-`, `_` and `.`.
    name: String,
    /// How ssh reaches it: `[USER@]HOST[:PORT]`, or a name from `~/.ssh/config`.
    destination: String,
    /// Model, such as `Raspberry Pi 4B`.
    model: Option<String>,
    /// Use of the device, such as `sender`.
    role: Option<String>,
    /// Interfaces that carry test traffic.
    interfaces: Option<Vec<String>>,
    /// IP addresses that probes are sent to.
    addresses: Option<Vec<String>>,
    /// Tags.
    tags: Option<Vec<String>>,
    /// Note.
    notes: Option<String>,
    /// Price, such as `35 USD`.
    price: Option<String>,
    /// Whether the node runs as root, by `sudo -n`.
    sudo: Option<bool>,
}

/// Changes of a device. Absent fields keep their value; an empty text or list clears a field.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceChanges {
    /// New name.
    name: Option<String>,
    /// New destination.
    destination: Option<String>,
    /// Model, such as `Raspberry Pi 4B`.
    model: Option<String>,
    /// Use of the device, such as `sender`.
    role: Option<String>,
    /// Interfaces that carry test traffic.
    interfaces: Option<Vec<String>>,
    /// IP addresses that probes are sent to.
    addresses: Option<Vec<String>>,
    /// Tags.
    tags: Option<Vec<String>>,
    /// Note.
    notes: Option<String>,
    /// Price, such as `35 USD`.
    price: Option<String>,
    /// Whether the node runs as root, by `sudo -n`.
    sudo: Option<bool>,
}

impl From<NewDevice> for DeviceChanges {
    fn from(new: NewDevice) -> Self {
        Self {
            name: Some(new.name),
            destination: Some(new.destination),
            model: new.model,
            role: new.role,
            interfaces: new.interfaces,
            addresses: new.addresses,
            tags: new.tags,
            notes: new.notes,
            price: new.price,
            sudo: new.sudo,
        }
    }
}

impl DeviceChanges {
    /// Returns the options of `dwell device add`, and the names of the fields that are cleared.
    fn options(&self) -> Result<(Vec<OsString>, Vec<&'static str>), Error> {
        let (mut options, mut cleared) = (Vec::new(), Vec::new());
        let mut set = |name: &'static str, value: &str| {
            options.push(OsString::from(format!("--{name}={value}")));
        };
        let texts = [
            ("model", &self.model),
            ("role", &self.role),
            ("note", &self.notes),
            ("price", &self.price),
        ];
        for (name, text) in texts {
            match text.as_deref() {
                Some("") => cleared.push(name),
                Some(text) => set(name, text),
                None => {}
            }
        }
        let lists = [
            ("interface", self.interfaces.as_ref()),
            ("address", self.addresses.as_ref()),
            ("tag", self.tags.as_ref()),
        ];
        for (name, list) in lists {
            match list.map(Vec::as_slice) {
                Some([]) => cleared.push(name),
                Some(values) => {
                    for value in values {
                        // The command line would take it for two values.
                        if value.contains(',') {
                            return Err(Error::Invalid(format!(
                                "{name}: '{value}' contains a comma"
                            )));
                        }
                        set(name, value);
                    }
                }
                None => {}
            }
        }
        match self.sudo {
            Some(true) => options.push("--sudo".into()),
            Some(false) => cleared.push("sudo"),
            None => {}
        }
        Ok((options, cleared))
    }
}

/// Adds a device. It is not checked yet
#[utoipa::path(post, path = "/devices", tag = "devices", request_body = NewDevice,
    responses((status = 201, body = Value, headers(("Location" = String))), CommonErrors, ChangeErrors))]
pub(super) async fn add(
    State(app): State<App>,
    Json(new): Json<NewDevice>,
) -> Result<Response, ApiError> {
    let (name, destination) = (new.name.clone(), new.destination.clone());
    Device::new(&name, &destination).map_err(|error| Error::Invalid(error.to_string()))?;
    let (options, _) = DeviceChanges::from(new).options()?;
    let mut arguments: Vec<OsString> = vec!["device".into(), "add".into()];
    arguments.extend(options);
    arguments.extend(["--".into(), name.clone().into(), destination.into()]);
    app.command(arguments, CHANGE_TIMEOUT).await?.success()?;
    let location = [(header::LOCATION, format!("/api/v1/devices/{name}"))];
    let device = get(State(app), Path(name)).await?;
    Ok((StatusCode::CREATED, location, device).into_response())
}

/// Changes fields of a device
#[utoipa::path(patch, path = "/devices/{name}", tag = "devices", request_body = DeviceChanges,
    params(("name" = String, Path, description = "Name of the device", example = "pi4")),
    responses((status = 200, body = Value), CommonErrors, ChangeErrors))]
pub(super) async fn edit(
    State(app): State<App>,
    Path(name): Path<String>,
    Json(changes): Json<DeviceChanges>,
) -> Result<axum::Json<Value>, ApiError> {
    check_exists(&app, &name).await?;
    let (options, cleared) = changes.options()?;
    let mut arguments: Vec<OsString> = vec!["device".into(), "edit".into()];
    arguments.extend(options);
    arguments.extend(cleared.iter().map(|field| OsString::from(format!("--clear={field}"))));
    arguments.extend(changes.name.iter().map(|name| OsString::from(format!("--name={name}"))));
    let destination = changes.destination.iter();
    arguments.extend(destination.map(|to| OsString::from(format!("--destination={to}"))));
    arguments.extend(["--".into(), name.clone().into()]);
    app.command(arguments, CHANGE_TIMEOUT).await?.success()?;
    get(State(app), Path(changes.name.unwrap_or(name))).await
}

/// Connects to a device and stores what it can measure: `dwell.device-check/1`
#[utoipa::path(post, path = "/devices/{name}/check", tag = "devices",
    params(("name" = String, Path, description = "Name of the device", example = "pi4")),
    responses((status = 200, body = Value), CommonErrors, ChangeErrors))]
pub(super) async fn check(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    check_exists(&app, &name).await?;
    let arguments = ["device", "check", "--json", "--", &name].map(OsString::from);
    let output = app.command(arguments, WORK_TIMEOUT).await?;
    // A device that does not answer is a result, too.
    match serde_json::from_str(&output.stdout) {
        Ok(object) => Ok(axum::Json(object)),
        Err(_) => Err(output.success().err().unwrap_or(Error::Ending).into()),
    }
}

/// How to remove a device.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// Do not connect to the device; leave the node program there
    keep_files: Option<bool>,
}

/// Removes a device, and the node program from it. It can be restored for ten minutes. Its runs are kept
#[utoipa::path(delete, path = "/devices/{name}", tag = "devices",
    params(("name" = String, Path, description = "Name of the device", example = "pi4"), RemovalQuery),
    responses((status = 202, body = Deletion), CommonErrors, ChangeErrors))]
pub(super) async fn remove(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(query): Query<RemovalQuery>,
) -> Result<(StatusCode, axum::Json<Deletion>), ApiError> {
    app.remove_device(&name, query.keep_files.unwrap_or(false)).await?;
    Ok((StatusCode::ACCEPTED, Deletion::of(name)))
}

/// Restores a removed device, or dismisses a failed removal
#[utoipa::path(post, path = "/devices/{name}/undo", tag = "devices",
    params(("name" = String, Path, description = "Name of the device", example = "pi4")),
    responses((status = 204, description = "Restored"), CommonErrors, ChangeErrors))]
pub(super) async fn undo(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.restore_device(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
