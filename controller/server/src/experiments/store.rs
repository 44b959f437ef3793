//! Experiments in files: `DATA/experiments/ID/` holds `experiment.json`, `plan.toml`,
//! `events.jsonl`, `process.json` and `log.txt`. Deleted ones are in `DATA/experiments/.trash/`
//! until they are purged.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::{self, Process};
use crate::error::Error;

/// Time during which a deletion can be undone.
pub(crate) const UNDO_TIMEOUT: Duration = Duration::from_secs(600);

/// Start of the names of directories that are being written or removed.
const TEMPORARY_PREFIX: &str = ".new-";

/// Maximum length of a file of an experiment that is read as a whole.
const MAX_FILE_LEN: u64 = 1 << 20;

/// Number of bytes at the end of a log that are searched for its last line.
const LOG_TAIL_LEN: u64 = 4_096;

/// Name of an experiment: `YYYYMMDD-HHMMSS-xxxx`. Only such names become paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExperimentId(String);

impl ExperimentId {
    /// Returns a new name: the time and four random characters.
    fn new(now: Timestamp) -> Self {
        // The keys of every hasher are random.
        let random = RandomState::new().build_hasher().finish() as u16;
        Self(format!("{}-{random:04x}", now.strftime("%Y%m%d-%H%M%S")))
    }

    /// Checks a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digits = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let mut parts = text.split('-');
        let is_random = |part: &str| {
            part.len() == 4
                && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let is_valid = is_digits(parts.next()?, 8)
            && is_digits(parts.next()?, 6)
            && is_random(parts.next()?)
            && parts.next().is_none();
        is_valid.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// `experiment.json`: what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) created: String,
    pub(super) owner: String,
    pub(super) on: BTreeMap<String, String>,
    pub(super) settings: Vec<String>,
    pub(super) seed: Option<u64>,
}

/// `process.json`: the process that was started last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Launch {
    /// Length of the events file before the start. Only an end behind it is of this process.
    pub(super) events_from: u64,
    /// The process; `None` while it is being started.
    pub(super) process: Option<Process>,
}

/// Identity and time of a file, by which a change is noticed.
pub(super) type FileStamp = (u64, u64, i64, i64, u64);

/// Returns the stamp of a file; `None` if it does not exist.
pub(super) fn stamp(path: &Path) -> Option<FileStamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

/// The files of one experiment.
#[derive(Clone, Debug)]
pub(super) struct Files {
    dir: PathBuf,
    /// When it was deleted; `None` if it was not.
    pub(super) deleted: Option<String>,
}

impl Files {
    pub(super) fn record(&self) -> PathBuf {
        self.dir.join("experiment.json")
    }

    pub(super) fn plan(&self) -> PathBuf {
        self.dir.join("plan.toml")
    }

    pub(super) fn events(&self) -> PathBuf {
        self.dir.join("events.jsonl")
    }

    pub(super) fn launch(&self) -> PathBuf {
        self.dir.join("process.json")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log.txt")
    }

    /// Reads the plan.
    pub(super) fn plan_text(&self) -> Result<String, Error> {
        read_text(&self.plan()).map_err(|error| unreadable("read", &self.plan(), &error))
    }

    /// Locks the experiment, so that two servers do not start it at the same time.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("lock");
        let lock = || -> io::Result<File> {
            let file = File::options().write(true).create(true).truncate(false).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        lock().map_err(|error| unreadable("lock", &path, &error))
    }

    /// The process that works on the experiment, if there was one since the last boot.
    pub(super) fn process(&self, launch: &Launch) -> Option<Process> {
        launch.process.clone().or_else(|| {
            // The server ended between the start of the process and the record of it.
            Process::with_argument(&events_argument(&self.events()))
        })
    }

    /// Starts `dwell run` with these arguments. The caller holds the lock.
    pub(super) fn start(&self, program: &Path, arguments: Vec<OsString>) -> Result<(), Error> {
        let events_from = fs::metadata(self.events()).map_or(0, |file| file.len());
        let path = self.launch();
        let record = |process| {
            write_json(&path, &Launch { events_from, process })
                .map_err(|error| unreadable("write", &path, &error))
        };
        record(None)?;
        let process = process::start(program, &arguments, &self.log())
            .map_err(|error| Error::Command(format!("cannot start dwell run: {error}")))?;
        record(Some(process))
    }

    /// The last line that the process printed.
    pub(super) fn last_line(&self) -> Option<String> {
        let mut file = File::open(self.log()).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_LEN))).ok()?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_LEN).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// The argument of `dwell run` that names the file of events.
pub(super) fn events_argument(path: &Path) -> OsString {
    let mut argument = OsString::from("--events=");
    argument.push(path);
    argument
}

/// The directory of all experiments.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    dir: PathBuf,
}

impl Folder {
    pub(super) fn new(data: &Path) -> Self {
        Self { dir: data.join("experiments") }
    }

    fn trash(&self) -> PathBuf {
        self.dir.join(".trash")
    }

    /// Returns the names of all experiments, the newest first.
    pub(super) fn ids(&self) -> Result<Vec<ExperimentId>, Error> {
        ids_in(&self.dir)
    }

    /// Returns the names of the deleted experiments, the newest first.
    pub(super) fn deleted_ids(&self) -> Result<Vec<ExperimentId>, Error> {
        ids_in(&self.trash())
    }

    /// Returns the files of an experiment, also of a deleted one.
    pub(super) fn files(&self, id: &ExperimentId) -> Option<Files> {
        let dir = self.dir.join(id.as_str());
        if dir.is_dir() {
            return Some(Files { dir, deleted: None });
        }
        let dir = self.trash().join(id.as_str());
        let deleted = read_text(&dir.join("deleted")).unwrap_or_default();
        dir.is_dir().then_some(Files { dir, deleted: Some(deleted) })
    }

    /// Writes a new experiment. It appears with all its files at once.
    pub(super) fn create(
        &self,
        record: &Record,
        plan: &str,
    ) -> Result<(ExperimentId, Files), Error> {
        let failed = |error: io::Error| unreadable("write to", &self.dir, &error);
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let temporary = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempdir_in(&self.dir);
        let temporary = temporary.map_err(failed)?;
        let files = Files { dir: temporary.path().to_owned(), deleted: None };
        write_json(&files.record(), record).map_err(failed)?;
        write_file(&files.plan(), plan.as_bytes()).map_err(failed)?;
        loop {
            let id = ExperimentId::new(Timestamp::now());
            let dir = self.dir.join(id.as_str());
            // A non-empty directory of this name is not replaced (rename(2)).
            match fs::rename(temporary.path(), &dir) {
                Ok(()) => {
                    // Its path no longer exists, so there is nothing to remove.
                    let _ = temporary.keep();
                    sync(&self.dir).map_err(failed)?;
                    return Ok((id, Files { dir, deleted: None }));
                }
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Moves an experiment to the trash.
    pub(super) fn delete(&self, id: &ExperimentId) -> Result<(), Error> {
        let (from, to) = (self.dir.join(id.as_str()), self.trash().join(id.as_str()));
        let failed = |error: io::Error| unreadable("delete", &from, &error);
        fs::create_dir_all(self.trash()).map_err(failed)?;
        write_file(&from.join("deleted"), now().as_bytes()).map_err(failed)?;
        fs::rename(&from, &to).map_err(failed)
    }

    /// Moves an experiment back from the trash.
    pub(super) fn undo(&self, id: &ExperimentId) -> Result<(), Error> {
        let (from, to) = (self.trash().join(id.as_str()), self.dir.join(id.as_str()));
        fs::rename(&from, &to).map_err(|error| unreadable("restore", &from, &error))?;
        // Ignored outside the trash, and replaced by the next deletion.
        let _ = fs::remove_file(to.join("deleted"));
        Ok(())
    }

    /// Removes experiments for ever that were deleted long ago, and what a killed server was writing.
    pub(super) fn purge(&self, now: Timestamp) {
        for id in self.deleted_ids().unwrap_or_default() {
            let dir = self.trash().join(id.as_str());
            let deleted = read_text(&dir.join("deleted")).ok();
            if is_purged(deleted.as_deref().unwrap_or_default(), now) {
                // Renamed first, so that it is restored as a whole or not at all.
                let removed = self.dir.join(format!("{TEMPORARY_PREFIX}{}", id.as_str()));
                // Tried again later.
                let _ = fs::rename(dir, &removed).and_then(|()| fs::remove_dir_all(removed));
            }
        }
        remove_old(&self.dir, TEMPORARY_PREFIX, UNDO_TIMEOUT);
    }
}

/// Removes the directories in `dir` whose names begin with `prefix` and that are older than `age`: a
/// killed server left them.
pub(crate) fn remove_old(dir: &Path, prefix: &str, age: Duration) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|it| it.file_name().to_string_lossy().starts_with(prefix)) {
        let since = entry.metadata().and_then(|it| it.modified()).map(|time| time.elapsed());
        if since.is_ok_and(|since| since.is_ok_and(|since| since > age)) {
            // Tried again later.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether something that was deleted at this time can no longer be restored.
pub(crate) fn is_purged(deleted: &str, now: Timestamp) -> bool {
    let Ok(deleted) = deleted.trim().parse::<Timestamp>() else { return true };
    let age = now.as_second() - deleted.as_second();
    // A clock that was set back does not keep it for ever.
    age.unsigned_abs() >= UNDO_TIMEOUT.as_secs()
}

fn ids_in(dir: &Path) -> Result<Vec<ExperimentId>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable("read", dir, &error)),
    };
    let names = entries.flatten().filter_map(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        ExperimentId::parse(entry.file_name().to_str()?).filter(|_| is_dir)
    });
    let mut ids: Vec<_> = names.collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids)
}

/// The time now in RFC 3339 with milliseconds.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

pub(crate) fn unreadable(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::File(format!("cannot {what} {}: {error}", path.display()))
}

pub(super) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_LEN).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a JSON file; `None` if it is missing or damaged.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&read_text(path).ok()?).ok()
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_file(path, &serde_json::to_vec_pretty(value)?)
}

/// Writes a file as a whole: after a crash it has the old content or the new one.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync(dir)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            schema: "dwell.experiment/1".into(),
            name: "x".into(),
            title: None,
            created: now(),
            owner: "alice@lab".into(),
            on: BTreeMap::new(),
            settings: Vec::new(),
            seed: Some(u64::MAX),
        }
    }

    #[test]
    fn only_own_names_become_paths() {
        let id = ExperimentId::new(Timestamp::now());
        assert_eq!(ExperimentId::parse(id.as_str()), Some(id));
        for hostile in [
            "",
            ".",
            "..",
            "../../etc",
            "20261126-101500-00ff/..",
            "20261126-101500-00fF",
            "20261126-101500-00ff-",
            "20261126-101500-00f\u{661}",
            "20261126-101500-00ff\0",
            ".trash",
            "%2e%2e",
            "20261126-101500",
        ] {
            assert_eq!(ExperimentId::parse(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn only_old_directories_with_the_prefix_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, age| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
            let time = std::time::SystemTime::now() - age;
            File::open(&path).unwrap().set_modified(time).unwrap();
        };
        let minute = Duration::from_secs(60);
        make(".new-old", 3 * minute);
        make(".new-young", minute);
        make("other", 3 * minute);
        remove_old(dir.path(), TEMPORARY_PREFIX, 2 * minute);
        let left = [".new-old", ".new-young", "other"].map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn deleted_experiment_is_restored_or_purged() {
        let data = tempfile::tempdir().unwrap();
        let folder = Folder::new(data.path());
        assert_eq!(folder.ids().unwrap(), []);
        let (id, files) = folder.create(&record(), "version = 1\n").unwrap();
        assert_eq!(read_json::<Record>(&files.record()).unwrap().seed, Some(u64::MAX));
        assert_eq!(files.plan_text().unwrap(), "version = 1\n");
        folder.delete(&id).unwrap();
        assert_eq!((folder.ids().unwrap().len(), folder.deleted_ids().unwrap().len()), (0, 1));
        assert!(folder.files(&id).unwrap().deleted.is_some());
        folder.undo(&id).unwrap();
        assert!(folder.files(&id).unwrap().deleted.is_none());
        folder.delete(&id).unwrap();
        folder.purge(Timestamp::now());
        assert!(folder.files(&id).is_some(), "it can still be restored");
        folder.purge(Timestamp::now() + jiff::Span::new().minutes(11));
        assert!(folder.files(&id).is_none());
        let left = fs::read_dir(data.path().join("experiments")).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, [".trash"]);
    }
}
