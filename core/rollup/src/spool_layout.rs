//! Names in the directory of a spool, where an agent meets carriers in files only.
//!
//! ```text
//! records/LEVEL/START-INCARNATION-FIRST.rec   records in the order of their sequence numbers
//! receipts/INCARNATION                        sequence numbers that a hub has committed
//! schedule.json                               schedule of the hub
//! pause.json                                  request to send no probes
//! pause.lock                                  locked by a process: the same, until it ends
//! status.json                                 the last status, with node and incarnation
//! state.json                                  what the agent keeps between its starts
//! uplink.lock                                 locked by the carrier for a bus
//! ```
//!
//! The agent writes records, `status.json` and `state.json`. Carriers write the others, each under
//! another name first and then by rename(2). A carrier writes the whole set of sequence numbers that
//! the hub knows, so the last one counts.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::record::Incarnation;
use crate::rollup::Level;
use crate::status::{DroppedCounts, DroppedRecords, Status};

/// Default directory.
pub const DEFAULT_SPOOL_DIR: &str = "/var/lib/dwell-agent";

/// Environment variable with another default directory.
const SPOOL_VARIABLE: &str = "DWELL_AGENT_SPOOL";

/// Returns the directory of the spool if no configuration names one: that of the environment, or
/// [`DEFAULT_SPOOL_DIR`] if it is in use (`has_shared`), or that of the user by the XDG Base Directory
/// Specification. `variable` returns the values of environment variables. Agent and carriers of one user find
/// the same.
pub fn find_spool_dir(variable: impl Fn(&str) -> Option<PathBuf>, has_shared: bool) -> PathBuf {
    if let Some(dir) = variable(SPOOL_VARIABLE) {
        return dir;
    }
    let state = variable("XDG_STATE_HOME").filter(|dir| dir.is_absolute());
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state {
        Some(state) if !has_shared => state.join("dwell-agent"),
        _ => DEFAULT_SPOOL_DIR.into(),
    }
}

/// Directory of receipts.
pub const RECEIPTS_DIR: &str = "receipts";

/// The schedule.
pub const SCHEDULE_FILE: &str = "schedule.json";

/// A request to pause.
pub const PAUSE_FILE: &str = "pause.json";

/// The file that a process locks to pause the agent until the process ends.
pub const PAUSE_LOCK_FILE: &str = "pause.lock";

/// The last status.
pub const STATUS_FILE: &str = "status.json";

/// What the agent keeps between its starts.
pub const STATE_FILE: &str = "state.json";

/// The file that the carrier for a bus locks.
pub const UPLINK_LOCK_FILE: &str = "uplink.lock";

/// Levels of records that a node writes, in the order in which a full spool drops them.
pub const SPOOL_LEVELS: [Level; 3] = [Level::Samples, Level::TenSeconds, Level::FiveMinutes];

/// Maximum length of a file with receipts in bytes.
pub const MAX_RECEIPTS_LEN: usize = 4 << 20;

/// Directory of the records of a level.
pub fn level_dir(level: Level) -> String {
    format!("records/{}", level.name())
}

/// Name of a file with records. The order of names of one level is that of their age, whatever the
/// clock showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordFile {
    /// Number of the agent's start in this spool, from 1.
    pub start: u32,
    /// Incarnation of its records.
    pub incarnation: Incarnation,
    /// Smallest sequence number.
    pub first: u64,
}

impl fmt::Display for RecordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{}-{:020}.rec", self.start, self.incarnation, self.first)
    }
}

/// Text that is not the name of a file with records, or not a position in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a file with records, or not a position in one")]
pub struct InvalidRecordFile;

impl FromStr for RecordFile {
    type Err = InvalidRecordFile;

    fn from_str(name: &str) -> Result<Self, InvalidRecordFile> {
        let mut parts = name.strip_suffix(".rec").ok_or(InvalidRecordFile)?.split('-');
        let mut digits = |len: usize| {
            let part = parts.next()?;
            (part.len() == len && part.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(part)
        };
        let mut read = || {
            let (start, incarnation, first) = (digits(10)?, digits(16)?, digits(20)?);
            Some(Self {
                start: start.parse().ok()?,
                incarnation: incarnation.parse().ok()?,
                first: first.parse().ok()?,
            })
        };
        let file = read().ok_or(InvalidRecordFile)?;
        parts.next().is_none().then_some(file).ok_or(InvalidRecordFile)
    }
}

/// A position in the records of a level: everything before it was read. Its text is
/// `FILE:OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SpoolCursor {
    /// The file. If it no longer exists, reading continues with the next one.
    pub file: RecordFile,
    /// Offset of the next record in bytes.
    pub offset: u64,
}

impl fmt::Display for SpoolCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

impl FromStr for SpoolCursor {
    type Err = InvalidRecordFile;

    fn from_str(text: &str) -> Result<Self, InvalidRecordFile> {
        let (file, offset) = text.split_once(':').ok_or(InvalidRecordFile)?;
        let offset = offset.parse().map_err(|_| InvalidRecordFile)?;
        Ok(Self { file: file.parse()?, offset })
    }
}

macro_rules! text_in_serde {
    ($($type:ty),+) => {$(
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidRecordFile;

            fn try_from(text: String) -> Result<Self, InvalidRecordFile> {
                text.parse()
            }
        }
    )+};
}

text_in_serde!(RecordFile, SpoolCursor);

/// Content of [`STATUS_FILE`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusFile {
    /// The node.
    pub node: Name,
    /// Incarnation of roll-ups and status records.
    pub incarnation: Incarnation,
    /// Id of the agent's process.
    pub pid: u32,
    /// CLOCK_REALTIME in nanoseconds.
    pub wall_ns: i64,
    /// The status.
    pub status: Status,
}

/// Content of [`STATE_FILE`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpoolState {
    /// Number of starts of agents on this spool.
    pub starts: u32,
    /// Records dropped since the spool was created.
    pub dropped: DroppedCounts,
    /// Those that no status record names yet.
    pub unreported: Vec<DroppedRecords>,
    /// The file that was dropped last and is counted above; it may still exist.
    pub last_dropped: Option<RecordFile>,
    /// Bytes of records that were damaged or incomplete.
    pub damaged_bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn spool_of_a_user_is_in_the_home() {
        let dir = |variables: &[(&str, &str)], has_shared: bool| {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            find_spool_dir(value, has_shared)
        };
        let (home, state) = (("HOME", "/home/pi"), ("XDG_STATE_HOME", "/state"));
        let own = Path::new("/home/pi/.local/state/dwell-agent");
        assert_eq!(dir(&[home], false), own);
        assert_eq!(dir(&[home], true), Path::new(DEFAULT_SPOOL_DIR));
        assert_eq!(dir(&[], false), Path::new(DEFAULT_SPOOL_DIR));
        assert_eq!(dir(&[home, state], false), Path::new("/state/dwell-agent"));
        assert_eq!(
            dir(&[home, ("XDG_STATE_HOME", "state")], false),
            own,
            "a relative path is ignored"
        );
        assert_eq!(dir(&[home, (SPOOL_VARIABLE, "/spool")], true), Path::new("/spool"));
    }

    #[test]
    fn names_of_record_files_sort_by_age() {
        let file = |start, incarnation, first| RecordFile {
            start,
            incarnation: Incarnation(incarnation),
            first,
        };
        let files = [file(9, 7, 1), file(9, 7, 10), file(10, 3, 2), file(u32::MAX, 0, u64::MAX)];
        let names: Vec<_> = files.iter().map(RecordFile::to_string).collect();
        assert!(names.is_sorted() && files.is_sorted());
        assert_eq!(names[0], "0000000009-0000000000000007-00000000000000000001.rec");
        for (file, name) in files.iter().zip(&names) {
            assert_eq!(name.parse(), Ok(*file));
            let cursor = SpoolCursor { file: *file, offset: 12 };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn other_names_are_refused() {
        let name = "0000000009-0000000000000007-00000000000000000001.rec";
        for wrong in
            ["", ".rec", &name[1..], &name[..name.len() - 4], &format!("{name}.rec"), "../x.rec"]
        {
            assert_eq!(wrong.parse::<RecordFile>(), Err(InvalidRecordFile), "{wrong}");
        }
        assert!(format!("{name}:-1").parse::<SpoolCursor>().is_err());
        assert!(
            format!("{}:3", name.replace("-0000000000000007", "")).parse::<SpoolCursor>().is_err()
        );
    }
}
