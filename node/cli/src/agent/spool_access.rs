//! Access of carriers to a spool: they list and read records, and leave receipts, schedules and requests
//! to pause. A carrier is another process than the agent; they meet in files only.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dwell_io::plain_file;
use dwell_rollup::{
    DEFAULT_SPOOL_DIR, Incarnation, Level, MAX_MESSAGE_LEN, MAX_RECEIPTS_LEN, PAUSE_FILE,
    PAUSE_LOCK_FILE, Pause, RECEIPTS_DIR, RangeSet, RecordFile, SCHEDULE_FILE, STATUS_FILE,
    Selection, SpoolCursor, find_spool_dir, level_dir, select_records,
};
use serde_json::Value;

/// Maximum length of a small file in bytes.
const MAX_SMALL_LEN: usize = 1 << 20;

/// Returns the directory of the spool on this machine.
pub(crate) fn default_dir() -> PathBuf {
    // The owner of a process is its effective user, see proc(5).
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let has_shared = is_root || Path::new(DEFAULT_SPOOL_DIR).is_dir();
    find_spool_dir(|name| std::env::var_os(name).map(PathBuf::from), has_shared)
}

/// Records of one level from a position on.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Whole records without those that have a receipt, at most [`MAX_MESSAGE_LEN`] bytes.
    pub(crate) records: Vec<u8>,
    /// Position after them; `None` if nothing was read yet.
    pub(crate) next: Option<SpoolCursor>,
    /// Whether more can be read now.
    pub(crate) has_more: bool,
}

/// The files of a level, oldest first.
pub(crate) fn record_files(dir: &Path, level: Level) -> io::Result<Vec<RecordFile>> {
    let entries = match fs::read_dir(dir.join(level_dir(level))) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name();
            files.extend(name.to_str().and_then(|name| name.parse::<RecordFile>().ok()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Path of a file with records.
pub(crate) fn record_path(dir: &Path, level: Level, file: &RecordFile) -> PathBuf {
    dir.join(level_dir(level)).join(file.to_string())
}

/// Reads the next records of a level; only those `written` from the first to the second time on
/// CLOCK_REALTIME, if it is given. A file that the agent deletes at the same time is skipped.
pub(crate) fn read_records(
    dir: &Path,
    level: Level,
    from: Option<SpoolCursor>,
    written: Option<(i64, i64)>,
) -> io::Result<Batch> {
    let mut batch = Batch { next: from, ..Batch::default() };
    let mut receipts: Option<(Incarnation, RangeSet)> = None;
    for file in record_files(dir, level)? {
        let offset = match from {
            Some(from) if file < from.file => continue,
            Some(from) if file == from.file => from.offset,
            _ => 0,
        };
        let content = match read_from(&record_path(dir, level, &file), offset) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let receipted = match receipts.take_if(|known| known.0 == file.incarnation) {
            Some((_, known)) => known,
            None => read_receipts(dir, file.incarnation)?,
        };
        let Selection { used, is_full } =
            select_records(&content, &receipted, written, MAX_MESSAGE_LEN, &mut batch.records);
        batch.next = Some(SpoolCursor { file, offset: offset + used as u64 });
        if is_full {
            batch.has_more = true;
            return Ok(batch);
        }
        receipts = Some((file.incarnation, receipted));
    }
    Ok(batch)
}

/// Opens a file that another user of the spool's group may have put there.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    plain_file::open(OpenOptions::new().read(true), path)
}

/// Opens the file of a lock, creating it if needed.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    plain_file::open(options.write(true).create(true).truncate(false).mode(0o660), path)
}

/// Reads a file from an offset to its end.
pub(super) fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = open_to_read(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// The receipts of an incarnation; empty without a file, or if it is invalid.
pub(crate) fn read_receipts(dir: &Path, incarnation: Incarnation) -> io::Result<RangeSet> {
    let path = dir.join(RECEIPTS_DIR).join(incarnation.to_string());
    let text = read_small(&path, MAX_RECEIPTS_LEN)?;
    Ok(text.and_then(|text| text.trim_end().parse().ok()).unwrap_or_default())
}

/// Leaves receipts.
pub(crate) fn write_receipts(
    dir: &Path,
    incarnation: Incarnation,
    sequences: &RangeSet,
) -> io::Result<()> {
    let path = dir.join(RECEIPTS_DIR).join(incarnation.to_string());
    write_whole(&path, format!("{sequences}\n").as_bytes())
}

/// Leaves a schedule, as JSON.
pub(crate) fn write_schedule(dir: &Path, schedule: &str) -> io::Result<()> {
    write_whole(&dir.join(SCHEDULE_FILE), schedule.as_bytes())
}

/// Leaves a request to pause, or withdraws it.
pub(crate) fn write_pause(dir: &Path, pause: Option<&Pause>) -> io::Result<()> {
    let path = dir.join(PAUSE_FILE);
    match pause {
        Some(pause) => {
            let json = serde_json::to_string(pause).map_err(io::Error::other)?;
            write_whole(&path, json.as_bytes())
        }
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

/// The last status of the agent ([`dwell_rollup::StatusFile`]) as it wrote it, which may be another build
/// than this; `None` if it never ran here.
pub(crate) fn read_status(dir: &Path) -> io::Result<Option<Value>> {
    let text = read_small(&dir.join(STATUS_FILE), MAX_SMALL_LEN)?;
    text.map(|text| serde_json::from_str(&text).map_err(io::Error::other)).transpose()
}

/// Pauses the agent until the returned file is dropped, or this process ends. `None` if there is no
/// spool.
pub(crate) fn hold_pause(dir: &Path, reason: &str) -> io::Result<Option<File>> {
    let mut file = match open_lock(&dir.join(PAUSE_LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The agent holds its lock on the file only while it looks for another one.
    file.lock_shared()?;
    file.set_len(0)?;
    file.write_all(reason.as_bytes())?;
    Ok(Some(file))
}

/// Reads a small text file; `None` if it does not exist.
pub(super) fn read_small(path: &Path, max_len: usize) -> io::Result<Option<String>> {
    let file = match open_to_read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let len = file.take(max_len as u64 + 1).read_to_string(&mut text)?;
    if len > max_len {
        let reason = format!("{} is longer than {max_len} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(Some(text))
}

/// Writes the name of a file to the medium.
pub(super) fn sync_dir_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    plain_file::sync_dir(dir.unwrap_or(Path::new(".")))
}

/// Replaces a file, so that a reader sees the old or the new content, also after a power failure.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        // What a killed process of this number left, or a link in its place.
        if let Err(error) = fs::remove_file(&temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        // Whatever the umask, the agent and its carriers may be different users of one group.
        file.set_permissions(Permissions::from_mode(0o660))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_dir_of(path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))
}
