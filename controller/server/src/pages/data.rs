//! `/data`: sizes of the stored runs, export, import and deletion.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path as FilePath, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::multipart::Field;
use axum::extract::{DefaultBodyLimit, Multipart, Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dwell_results::amounts;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio_stream::wrappers::ReceiverStream;

use super::layout::{Layout, render, render_refused};
use super::pager::{ListQuery, Pager};
use super::runs::{ListedRun, listed};
use super::trash::Deletion;
use super::{redirect, said};
use crate::app::App;
use crate::error::Error;

/// Maximum length of an uploaded file in bytes.
const MAX_UPLOAD_LEN: usize = 256 << 20;

/// Time for importing a file of that length.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes of an export that are read at once.
const EXPORT_BATCH: usize = 64 << 10;

/// Maximum length of a file name in bytes.
const MAX_NAME_LEN: usize = 100;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/data", get(page))
        .route("/data/import", post(import).layer(DefaultBodyLimit::max(MAX_UPLOAD_LEN)))
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

/// Returns free and total bytes of the file system of a directory, or of the nearest one above it
/// that exists.
pub(super) fn disk_space(dir: &FilePath) -> Option<(u64, u64)> {
    let stat = dir.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok())?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
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
        deletions: app.trash().all(),
        rows,
        pager,
        directory: directory.display().to_string(),
        disk,
        max_upload: amounts::bytes(MAX_UPLOAD_LEN as u64),
        refused,
    })
}

/// Imports a file that the browser sends.
async fn import(State(app): State<App>, mut form: Multipart) -> Result<Response, Error> {
    let refused =
        |error: axum::extract::multipart::MultipartError| Error::Invalid(error.body_text());
    while let Some(field) = form.next_field().await.map_err(refused)? {
        if field.name() != Some("file") {
            continue;
        }
        let name = file_name(field.file_name().unwrap_or_default());
        let dir = app.config().data.join("uploads").join(unique_name());
        let imported = import_file(&app, field, &dir, &name).await;
        // What is left of it disturbs nothing, and has its own directory.
        let _ = tokio::fs::remove_dir_all(&dir).await;
        return match imported? {
            Ok(run) => Ok(redirect(&format!("/runs/{run}")).into_response()),
            Err(reason) => {
                let reason = reason.replace(&format!("{}/", dir.display()), "");
                let page = data_page(&app, ListQuery::default(), Some(reason)).await?;
                Ok(render_refused(&page))
            }
        };
    }
    Err(Error::Invalid("the form has no file".to_owned()))
}

/// Stores a file in a directory and imports it. Returns the name of the run, or why the file was
/// refused.
async fn import_file(
    app: &App,
    mut field: Field<'_>,
    dir: &FilePath,
    name: &str,
) -> Result<Result<String, String>, Error> {
    let failed = |error: io::Error| Error::Command(format!("cannot store the file: {error}"));
    tokio::fs::create_dir_all(dir).await.map_err(failed)?;
    let path = dir.join(name);
    let mut file = tokio::fs::File::create(&path).await.map_err(failed)?;
    let mut length = 0;
    loop {
        match field.chunk().await {
            Ok(None) => break,
            Ok(Some(bytes)) => {
                length += bytes.len();
                file.write_all(&bytes).await.map_err(failed)?;
            }
            Err(error) => return Ok(Err(error.body_text())),
        }
    }
    file.flush().await.map_err(failed)?;
    if length == 0 {
        return Ok(Err("choose a file; the one that was sent is empty".to_owned()));
    }
    let arguments = ["import", "--json", "--"].map(OsString::from).into_iter();
    let output = app.command(arguments.chain([path.into()]), IMPORT_TIMEOUT).await?;
    let object: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    match (output.code, object["run"].as_str()) {
        (Some(0), Some(run)) => Ok(Ok(run.to_owned())),
        _ => Ok(Err(said(&output))),
    }
}

/// Returns a name for the uploaded file without anything that could leave its directory.
fn file_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let valid = |c: &char| c.is_alphanumeric() || "-_. ".contains(*c);
    let name: String = last.chars().filter(valid).collect();
    let name = name.trim_start_matches(['.', ' ', '-']);
    let mut end = name.len().min(MAX_NAME_LEN);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    match &name[..end] {
        "" => "upload".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns a name that no other upload of any server has.
fn unique_name() -> String {
    static UPLOADS: AtomicU64 = AtomicU64::new(0);
    let number = UPLOADS.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{number}", std::process::id(), Timestamp::now().as_nanosecond())
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
    let kind = match &*format {
        "csv" => "text/csv; charset=utf-8",
        "jsonl" => "application/x-ndjson",
        "hdr" => "text/plain; charset=utf-8",
        "parquet" => return archive(&app, run).await,
        _ => {
            let formats = "use csv, jsonl, hdr or parquet";
            return Err(Error::Invalid(format!("format '{format}': {formats}")));
        }
    };
    let row = app.read(move |store| Ok(store.run(&run)?)).await?;
    let row = row.ok_or_else(|| Error::NotFound("there are no runs".to_owned()))?;
    let mut child = Command::new(&app.config().program)
        .args(["export", &format!("--format={format}"), "--", &row.run])
        .env("DWELL_DATA", &app.config().data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::Command(format!("cannot start dwell: {error}")))?;
    let stdout = child.stdout.take();
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(2);
    tokio::spawn(async move {
        if let Some(mut stdout) = stdout {
            let mut batch = vec![0; EXPORT_BATCH];
            loop {
                let read = stdout.read(&mut batch).await;
                let sent = match read {
                    Ok(0) => break,
                    Ok(count) => Ok(Bytes::copy_from_slice(&batch[..count])),
                    Err(error) => Err(error),
                };
                // Without a reader the command is ended when it is dropped.
                if sender.send(sent).await.is_err() {
                    return;
                }
            }
        }
        // A file that ends early must not look complete.
        if !child.wait().await.is_ok_and(|status| status.success()) {
            let _ = sender.send(Err(io::Error::other("dwell export failed"))).await;
        }
    });
    let name = format!("attachment; filename=\"{}.{format}\"", row.run);
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
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
    fn uploaded_name_stays_in_its_directory() {
        for (sent, name) in [
            ("ping.txt", "ping.txt"),
            ("../../etc/passwd", "passwd"),
            ("C:\\data\\a b.pcap", "a b.pcap"),
            ("..", "upload"),
            ("-rf", "rf"),
            ("a\0\n/", "upload"),
            ("x;$(reboot)", "xreboot"),
        ] {
            assert_eq!(file_name(sent), name, "{sent:?}");
        }
        let long = file_name(&"ä".repeat(MAX_NAME_LEN));
        assert!(long.len() <= MAX_NAME_LEN && long.starts_with('ä'));
    }

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

    #[test]
    fn disk_space_of_a_missing_directory_is_that_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let (free, all) = disk_space(&dir.path().join("a/b")).unwrap();
        assert!(free <= all && all > 0);
    }
}
