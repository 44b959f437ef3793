//! Requests to send no probes: a file of a carrier, or the lock of a process such as the worker of an
//! experiment, which ends with that process.

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::Path;

use dwell_rollup::{PAUSE_FILE, PAUSE_LOCK_FILE};
use serde_json::Value;

use super::spool_access::{open_to_read, read_small};

/// Maximum length of a request in bytes.
const MAX_PAUSE_LEN: usize = 4_096;

/// Maximum length of a reason in characters.
const MAX_REASON_LEN: usize = 300;

/// The reason to pause now; `None` without a request. An unreadable request counts.
pub(super) fn requested(dir: &Path) -> Option<String> {
    let of_file = match read_small(&dir.join(PAUSE_FILE), MAX_PAUSE_LEN) {
        Ok(None) => None,
        Ok(Some(text)) => {
            let pause = serde_json::from_str::<Value>(&text).ok();
            let reason = pause.as_ref().and_then(|pause| pause["reason"].as_str());
            Some(reason.unwrap_or("requested by a file").to_owned())
        }
        Err(error) => Some(format!("cannot read {PAUSE_FILE}: {error}")),
    };
    let reason = of_file.or_else(|| held(dir))?;
    Some(reason.chars().take(MAX_REASON_LEN).collect())
}

/// The reason of a process that holds the lock.
fn held(dir: &Path) -> Option<String> {
    let file = open_to_read(&dir.join(PAUSE_LOCK_FILE)).ok()?;
    match file.try_lock() {
        // Released when the file is closed.
        Ok(()) | Err(TryLockError::Error(_)) => None,
        Err(TryLockError::WouldBlock) => Some(reason(&file)),
    }
}

fn reason(file: &File) -> String {
    let mut text = String::new();
    let read = file.take(MAX_PAUSE_LEN as u64).read_to_string(&mut text);
    match read {
        Ok(_) if !text.is_empty() => text,
        _ => "requested by a process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dwell_rollup::Pause;

    use super::super::spool_access::{hold_pause, write_pause};
    use super::*;

    #[test]
    fn pause_lasts_as_long_as_its_file_or_lock() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(requested(dir), None);
        let pause = Pause { reason: "maintenance".into(), since_wall_ns: 5 };
        write_pause(dir, Some(&pause)).unwrap();
        assert_eq!(requested(dir).as_deref(), Some("maintenance"));
        write_pause(dir, None).unwrap();
        write_pause(dir, None).unwrap();
        assert_eq!(requested(dir), None);
        let first = hold_pause(dir, "run 1").unwrap().unwrap();
        assert_eq!(requested(dir).as_deref(), Some("run 1"));
        let second = hold_pause(dir, "run 2").unwrap().unwrap();
        drop(first);
        assert_eq!(requested(dir).as_deref(), Some("run 2"));
        drop(second);
        assert_eq!(requested(dir), None);
        std::fs::write(dir.join(PAUSE_FILE), "{").unwrap();
        assert_eq!(requested(dir).as_deref(), Some("requested by a file"));
        assert!(hold_pause(&dir.join("missing"), "x").unwrap().is_none());
    }
}
