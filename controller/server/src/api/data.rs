//! `/data`: what the data directory holds, and imports.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio_stream::StreamExt as _;
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ChangeErrors, CommonErrors};
use super::extract::{Query, too_long};
use crate::app::App;
use crate::data::disk_space;
use crate::error::Error;
use crate::experiments::unreadable;

/// Maximum length of an imported file, in bytes.
pub(crate) const MAX_IMPORT_LEN: u64 = 256 << 20;

/// Time-out of an import, after the file was received.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum length of the name of an imported file, in bytes.
const MAX_NAME_LEN: usize = 100;

/// Sizes of the data directory, in bytes.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Sizes {
    /// The directory, on the server.
    pub(crate) directory: String,
    /// Number of runs.
    pub(crate) runs: u64,
    /// Number of devices.
    pub(crate) devices: u64,
    /// The catalogue with its journal.
    pub(crate) catalogue_bytes: u64,
    /// Samples of all runs.
    pub(crate) samples_bytes: u64,
    /// Experiments.
    pub(crate) experiments_bytes: u64,
    /// Free space of the file system for this user.
    pub(crate) free_bytes: u64,
}

/// Returns the sizes of the data directory
#[utoipa::path(get, path = "/data", tag = "data", responses((status = 200, body = Sizes), CommonErrors))]
pub(super) async fn sizes(State(app): State<App>) -> Result<axum::Json<Sizes>, ApiError> {
    Ok(axum::Json(app.sizes().await?))
}

impl App {
    /// Returns the sizes of the data directory.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub(crate) async fn sizes(&self) -> Result<Sizes, Error> {
        let counts = self.read(|store| Ok(store.counts()?)).await?.unwrap_or_default();
        let dir = self.config().data.clone();
        let sizes = tokio::task::spawn_blocking(move || Sizes {
            directory: dir.display().to_string(),
            runs: counts.runs.iter().map(|(_, count)| count).sum(),
            devices: counts.devices,
            catalogue_bytes: ["", "-wal", "-shm"]
                .iter()
                .filter_map(|end| fs::metadata(dir.join(format!("catalogue.sqlite{end}"))).ok())
                .map(|file| file.len())
                .sum(),
            samples_bytes: size_of(&dir.join("samples")),
            experiments_bytes: size_of(&dir.join("experiments")),
            free_bytes: disk_space(&dir).map_or(0, |(free, _)| free),
        });
        sizes.await.map_err(|_| Error::Ending)
    }

    /// Imports a file with this content, by `dwell import`. Returns what it printed:
    /// `dwell.import/1`.
    ///
    /// # Errors
    /// The file is too long, or in no known format.
    pub(crate) async fn import(&self, name: &str, content: Body) -> Result<Value, Error> {
        let name = file_name(name)?;
        let dir = self.upload_dir().await?;
        let path = dir.path().join(name);
        receive(&path, content).await?;
        let mut arguments: Vec<OsString> = ["import", "--json", "--"].map(OsString::from).to_vec();
        arguments.push(path.clone().into_os_string());
        let output = self.command(arguments, IMPORT_TIMEOUT).await?.success();
        // The name of the temporary directory says nothing to the reader.
        let shown = |text: String| text.replace(&format!("{}/", dir.path().display()), "");
        let text = output.map_err(|error| match error {
            Error::Invalid(text) => Error::Invalid(shown(text)),
            Error::Command(text) => Error::Command(shown(text)),
            error => error,
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Command(format!("dwell import printed no JSON: {error}")))
    }

    /// Creates a directory for an uploaded file, on the file system of the data directory.
    async fn upload_dir(&self) -> Result<tempfile::TempDir, Error> {
        let parent = self.config().data.join("uploads");
        let create = move || -> Result<tempfile::TempDir, Error> {
            let make = || -> io::Result<tempfile::TempDir> {
                fs::create_dir_all(&parent)?;
                tempfile::tempdir_in(&parent)
            };
            make().map_err(|error| unreadable("write to", &parent, &error))
        };
        tokio::task::spawn_blocking(create).await.map_err(|_| Error::Ending)?
    }
}

/// Checks the name of an uploaded file, which becomes the name of the run.
fn file_name(name: &str) -> Result<&str, Error> {
    let is_allowed = |c: char| !c.is_control() && c != '/';
    if name.is_empty()
        || name.len() > MAX_NAME_LEN
        || name.starts_with('.')
        || !name.chars().all(is_allowed)
    {
        return Err(Error::Invalid(format!(
            "name: give a file name of at most {MAX_NAME_LEN} bytes without '/', not starting with '.'"
        )));
    }
    Ok(name)
}

/// Writes a body of limited length to a file.
async fn receive(path: &FilePath, content: Body) -> Result<(), Error> {
    let failed = |error: io::Error| unreadable("write", path, &error);
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut stream = content.into_data_stream();
    let mut length = 0;
    while let Some(chunk) = stream.next().await {
        let chunk: Bytes = chunk.map_err(|error| {
            let text = format!("the upload ended early: {error}");
            Error::Request(StatusCode::BAD_REQUEST, "bad-request", text)
        })?;
        length += chunk.len() as u64;
        if length > MAX_IMPORT_LEN {
            return Err(too_long(MAX_IMPORT_LEN).0);
        }
        file.write_all(&chunk).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}

/// Size of all files below a directory.
fn size_of(dir: &FilePath) -> u64 {
    let mut folders: Vec<PathBuf> = vec![dir.to_owned()];
    let mut size = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Symbolic links are not followed.
            match entry.metadata() {
                Ok(file) if file.is_dir() => folders.push(entry.path()),
                Ok(file) => size += file.len(),
                Err(_) => {}
            }
        }
    }
    size
}

/// What is uploaded.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportQuery {
    /// Name of the file, which becomes the name of the run
    #[param(min_length = 1, max_length = 100)]
    name: String,
}

/// Imports the body, a file of at most 256 MiB in a format of docs/import.md: `dwell.import/1`
#[utoipa::path(post, path = "/data/import", tag = "data", params(ImportQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = Value), CommonErrors, ChangeErrors))]
pub(super) async fn import(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<ImportQuery>,
    body: Body,
) -> Result<(StatusCode, axum::Json<Value>), ApiError> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    // Refused before any of it is read.
    if length.is_some_and(|length: u64| length > MAX_IMPORT_LEN) {
        return Err(too_long(MAX_IMPORT_LEN));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    if kind.is_some_and(|kind| !kind.starts_with("application/octet-stream")) {
        return Err(ApiError::request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "the body must have Content-Type: application/octet-stream",
        ));
    }
    Ok((StatusCode::CREATED, axum::Json(app.import(&query.name, body).await?)))
}
