//! Runs that were deleted on a page or by the API, and can still be restored: a file
//! `DATA/deleted-runs/RUN` with the time. They are hidden at once, and deleted by `dwell delete` ten
//! minutes later.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell_store::{RunKind, RunRow, RunState, TrialRow};
use jiff::Timestamp;

use crate::api::upload_folder;
use crate::app::App;
use crate::error::Error;
use crate::experiments::{is_purged, now, remove_old, unreadable, write_file};

/// Time-out of one deletion.
const DELETE_TIMEOUT: Duration = Duration::from_secs(120);

/// Age of an upload that nothing waits for: an import ends within an hour.
const MAX_UPLOAD_AGE: Duration = Duration::from_secs(2 * 3_600);

/// Interval of deleting what can no longer be restored.
const PURGE_INTERVAL: Duration = Duration::from_secs(30);

fn folder(data: &Path) -> PathBuf {
    data.join("deleted-runs")
}

/// Whether a run is deleted and can be restored.
pub(crate) fn is_deleted(data: &Path, run: &str) -> bool {
    is_run_name(run) && folder(data).join(run).exists()
}

/// Whether a name can be one of a run, such as `20261126-1`. Only such names become paths.
pub(crate) fn is_run_name(name: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.split_once('-');
    name.len() <= 40
        && parts.is_some_and(|(day, number)| day.len() == 8 && is_number(day) && is_number(number))
}

/// Returns the deleted runs that can be restored, with the times of their deletion.
pub(crate) fn deleted_runs(data: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder(data)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let marked = names.filter(|name| is_run_name(name)).filter_map(|name| {
        let time = fs::read_to_string(folder(data).join(&name)).ok()?;
        Some((name, time))
    });
    marked.collect()
}

impl App {
    /// Hides a run, which is deleted in ten minutes.
    ///
    /// # Errors
    /// No run has this name, or it is being measured or imported.
    pub(crate) async fn delete_run(&self, run: &str) -> Result<(), Error> {
        let name = run.to_owned();
        let row = self.run_row(&name).await?;
        if row.state == RunState::Running {
            return Err(Error::Conflict(format!("run {name} is active; stop it first")));
        }
        let data = self.config().data.clone();
        blocking(move || {
            let dir = folder(&data);
            let mark = || -> io::Result<()> {
                fs::create_dir_all(&dir)?;
                write_file(&dir.join(&name), now().as_bytes())
            };
            mark().map_err(|error| unreadable("write to", &dir, &error))
        })
        .await
    }

    /// Shows a deleted run again.
    ///
    /// # Errors
    /// No run has this name; it was deleted too long ago.
    pub(crate) async fn undo_delete_run(&self, run: &str) -> Result<(), Error> {
        // Waits for a deletion that has begun; the run is gone after it.
        let _lock = self.deletion().lock().await;
        self.run_row(run).await?;
        let path = folder(&self.config().data).join(run);
        blocking(move || match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(unreadable("delete", &path, &error))
            }
            _ => Ok(()),
        })
        .await
    }

    /// Returns the row of a run, also of a deleted one.
    pub(crate) async fn run_row(&self, run: &str) -> Result<RunRow, Error> {
        let missing = || Error::NotFound(format!("there is no run '{}'", shortened(run)));
        if !is_run_name(run) {
            return Err(missing());
        }
        let name = run.to_owned();
        self.read(move |store| Ok(store.run(&name)?)).await?.ok_or_else(missing)
    }

    /// Deletes for ever what was deleted more than ten minutes ago, and uploads that a killed server
    /// left, until the server ends.
    pub(crate) async fn purge(self) {
        loop {
            self.experiments().purge().await;
            let data = self.config().data.clone();
            let marked = blocking(move || {
                remove_old(&upload_folder(&data), "", MAX_UPLOAD_AGE);
                Ok(deleted_runs(&data))
            });
            let marked = marked.await.unwrap_or_default();
            for (run, time) in marked.iter().filter(|(_, time)| is_purged(time, Timestamp::now())) {
                self.delete_for_ever(run, time).await;
            }
            self.purge_devices().await;
            tokio::time::sleep(PURGE_INTERVAL).await;
        }
    }

    /// Whether a run was continued after it was marked, such as in a terminal. It is kept then.
    async fn was_continued(&self, run: &str, marked: &str) -> bool {
        let Ok(marked) = marked.trim().parse::<Timestamp>() else { return false };
        let name = run.to_owned();
        let read = self.read(move |store| {
            let row = store.run(&name)?;
            let is_later = |trial: &TrialRow| {
                trial.first_ns.is_some_and(|at| i128::from(at) > marked.as_nanosecond())
            };
            let is_measured = row.kind == RunKind::Run && store.trials(&row)?.iter().any(is_later);
            Ok(row.state == RunState::Running || is_measured)
        });
        matches!(read.await, Ok(Some(true)))
    }

    /// Deletes a run that was marked at this time.
    async fn delete_for_ever(&self, run: &str, marked: &str) {
        let _lock = self.deletion().lock().await;
        let path = folder(&self.config().data).join(run);
        // It was restored.
        if !path.exists() {
            return;
        }
        if self.was_continued(run, marked).await {
            let _ = tokio::fs::remove_file(path).await;
            return;
        }
        let arguments = ["delete", "--yes", "--", run].map(OsString::from);
        let deleted = self.command(arguments, DELETE_TIMEOUT).await;
        // Exit code 2: there is no such run any more. Any other failure is tried again.
        if deleted.is_ok_and(|output| matches!(output.code, Some(0 | 2))) {
            let _ = tokio::fs::remove_file(path).await;
        }
    }
}

/// Shortens a name from a request for an error.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Runs work on files on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Ending)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_runs_become_paths() {
        assert!(is_run_name("20261126-1") && is_run_name("20261126-12345"));
        for hostile in ["", "last", "..", "2026112-1", "20261126-", "20261126-1/..", "20261126-1 "]
        {
            assert!(!is_run_name(hostile), "{hostile}");
        }
    }
}
