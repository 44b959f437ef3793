//! `/data`: sizes of the stored runs, export, import and deletion.

use std::io::{self, Read as _};
use std::path::PathBuf;

use askama::Template;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{Multipart, Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dwell_results::amounts;
use serde::Deserialize;
use tokio_stream::wrappers::ReceiverStream;

use super::deletions::Deletion;
use super::layout::{Layout, render, render_refused};
use super::pager::{ListQuery, Pager};
use super::redirect;
use super::runs::{ListedRun, listed};
use crate::access::MAX_IMPORT_LEN;
use crate::api::{ExportData, ExportFormat};
use crate::app::App;
use crate::data::disk_space;
use crate::error::Error;

/// Bytes of a file that are read at once.
const EXPORT_BATCH: usize = 64 << 10;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/data", get(page))
        .route("/data/import", post(import))
        .route("/runs/{run}/export", get(export))
}

#[derive(Template)]
#[template(path = "data.html")]
struct Page {
    layout: Layout,
    deletions: Vec<Deletion>,
    rows: Vec<(ListedRun, String)>,
    pager: Pager,
    directory: String,
    /// Free and total bytes of the file system.
    disk: Option<(String, String)>,
    max_upload: String,
    /// Why a file was not imported.
    refused: Option<String>,
}

async fn page(State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Response, Error> {
    Ok(render(&data_page(&app, query, None).await?))
}

async fn data_page(app: &App, query: ListQuery, refused: Option<String>) -> Result<Page, Error> {
    let (rows, pager) = listed(app, "/data", query).await?;
    let sizes = app.read(move |store| {
        let size = |run: &ListedRun| amounts::bytes(store.samples_bytes(&run.row));
        let with_size = |run: ListedRun| (size(&run), run);
        Ok(rows.into_iter().map(with_size).map(|(size, run)| (run, size)).collect())
    });
    let rows = sizes.await?.unwrap_or_default();
    let directory = &app.config().data;
    let disk = disk_space(directory).map(|(free, all)| (amounts::bytes(free), amounts::bytes(all)));
    Ok(Page {
        layout: Layout::new("Data", "/data"),
        deletions: app.deletions().await?,
        rows,
        pager,
        directory: directory.display().to_string(),
        disk,
        max_upload: amounts::bytes(MAX_IMPORT_LEN as u64),
        refused,
    })
}

/// Imports a file that the browser sends.
async fn import(State(app): State<App>, mut form: Multipart) -> Result<Response, Error> {
    let refused = |error: MultipartError| Error::Invalid(error.body_text());
    while let Some(field) = form.next_field().await.map_err(refused)? {
        if field.name() != Some("file") {
            continue;
        }
        let name = field.file_name().unwrap_or_default();
        let name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let imported = match name.is_empty() {
            true => Err(Error::Invalid("choose a file".to_owned())),
            false => import_field(&app, &name, field).await,
        };
        return match imported {
            Ok(run) => Ok(redirect(&format!("/runs/{run}")).into_response()),
            Err(error @ (Error::Invalid(_) | Error::Command(_) | Error::Request(..))) => {
                let page = data_page(&app, ListQuery::default(), Some(error.to_string())).await?;
                Ok(render_refused(&page))
            }
            Err(error) => Err(error),
        };
    }
    Err(Error::Invalid("the form has no file".to_owned()))
}

/// Imports a file of a form. Returns the name of the run.
async fn import_field(app: &App, name: &str, mut field: Field<'_>) -> Result<String, Error> {
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(2);
    let send = async move {
        loop {
            let next = match field.chunk().await {
                Ok(None) => return,
                Ok(Some(bytes)) => Ok(bytes),
                Err(error) => Err(io::Error::other(error.body_text())),
            };
            let is_last = next.is_err();
            // Without a reader, the import says why.
            if sender.send(next).await.is_err() || is_last {
                return;
            }
        }
    };
    let body = Body::from_stream(ReceiverStream::new(receiver));
    let ((), imported) = tokio::join!(send, app.import(name, body));
    let imported = imported?;
    let missing = || Error::Command("dwell import printed no run".to_owned());
    Ok(imported["run"].as_str().ok_or_else(missing)?.to_owned())
}

#[derive(Deserialize)]
struct ExportQuery {
    format: String,
}

/// Sends the samples of a run as `dwell export` prints them, while it prints them.
async fn export(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(ExportQuery { format }): Query<ExportQuery>,
) -> Result<Response, Error> {
    let format = match &*format {
        "csv" => ExportFormat::Csv,
        "jsonl" => ExportFormat::Jsonl,
        "hdr" => ExportFormat::Hdr,
        "parquet" => return archive(&app, run).await,
        _ => {
            let formats = "use csv, jsonl, hdr or parquet";
            return Err(Error::Invalid(format!("format '{format}': {formats}")));
        }
    };
    app.export(&run, format, ExportData::Samples).await
}

/// Sends the sample files of all trials in one archive: `TRIAL.parquet`.
async fn archive(app: &App, run: String) -> Result<Response, Error> {
    let read = app.read(move |store| {
        let row = store.run(&run)?;
        let mut files = Vec::new();
        for trial in store.trials(&row)?.iter().filter(|trial| trial.samples.is_some()) {
            let path = store.samples_path(&row.run, trial.number);
            files.push((format!("{}/{}.parquet", row.run, trial.number), path));
        }
        Ok((row.run, files))
    });
    let (run, files): (String, Vec<(String, PathBuf)>) =
        read.await?.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))?;
    if files.is_empty() {
        return Err(Error::NotFound(format!("run {run} has no samples")));
    }
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(2);
    tokio::task::spawn_blocking(move || {
        let mut send = |bytes: Vec<u8>| sender.blocking_send(Ok(bytes.into())).is_ok();
        // The receiver sees an error as an archive that ends early.
        if let Err(error) = write_tar(&files, &mut send) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let name = format!("attachment; filename=\"{run}-samples.tar\"");
    let kind = "application/x-tar".to_owned();
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Length of a block of an archive.
const TAR_BLOCK: usize = 512;

/// Writes files by name as a tar archive (POSIX ustar) in pieces, until `send` returns `false`.
fn write_tar(files: &[(String, PathBuf)], send: &mut dyn FnMut(Vec<u8>) -> bool) -> io::Result<()> {
    for (name, path) in files {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = tar_header(name, length).to_vec();
        let mut left = length;
        loop {
            let mut batch = Vec::new();
            let taken = (&mut file).take(left.min(EXPORT_BATCH as u64)).read_to_end(&mut batch)?;
            left -= taken as u64;
            bytes.append(&mut batch);
            if taken == 0 && left > 0 {
                return Err(io::Error::other(format!("{} became shorter", path.display())));
            }
            if left == 0 {
                bytes.resize(bytes.len().next_multiple_of(TAR_BLOCK), 0);
            }
            if !send(std::mem::take(&mut bytes)) {
                return Ok(());
            }
            if left == 0 {
                break;
            }
        }
    }
    send(vec![0; 2 * TAR_BLOCK]);
    Ok(())
}

/// Returns the header of a file in an archive. The name has at most 100 bytes.
fn tar_header(name: &str, length: u64) -> [u8; TAR_BLOCK] {
    let mut header = [0; TAR_BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, "00000000000\0");
    // The checksum is computed as if its field had spaces.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_read_by_tar() {
        let dir = tempfile::tempdir().unwrap();
        let contents = [vec![1; 3 * EXPORT_BATCH + 7], Vec::new(), vec![2; TAR_BLOCK]];
        let mut files = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            let path = dir.path().join(number.to_string());
            std::fs::write(&path, content).unwrap();
            files.push((format!("20261126-1/{number}.parquet"), path));
        }
        let mut archive = Vec::new();
        write_tar(&files, &mut |bytes| {
            archive.extend(bytes);
            true
        })
        .unwrap();
        let path = dir.path().join("all.tar");
        std::fs::write(&path, archive).unwrap();
        let mut tar = std::process::Command::new("tar");
        let ran = tar.arg("-xf").arg(&path).arg("-C").arg(dir.path()).output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        for ((name, _), content) in files.iter().zip(&contents) {
            assert!(std::fs::read(dir.path().join(name)).unwrap() == *content, "{name}");
        }
    }
}
