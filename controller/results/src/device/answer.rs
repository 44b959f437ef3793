//! Stored answers of devices to `dwell device check`.

use dwell_fleet::DeviceAnswer;
use dwell_store::{CheckResult, DeviceCheck};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The stored answer of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredAnswer {
    /// Machine type, as `uname -m` prints it.
    pub arch: String,
    /// Kernel release.
    pub kernel: String,
    /// User of the SSH session.
    pub uid: u32,
    /// Directory of the node program.
    pub dir: String,
    /// Path of the node program.
    pub program: String,
    /// Version and start of the hash of the node program.
    pub build: String,
    /// Bytes that were copied: 0 if the program was there.
    pub uploaded_bytes: u64,
    /// Time from the start of ssh to the first line of the device.
    pub connect_ns: u64,
    /// `dwell.doctor/1`.
    pub doctor: Value,
}

/// Path of the maximum error of a device's clock against UTC in a stored answer, in nanoseconds, for
/// [`Store::last_checks`](dwell_store::Store::last_checks). It is null if the clock is not synchronised.
pub const CLOCK_ERROR: &str = "$.doctor.clocks.utc_error_ns";

/// Returns the stored answer of a check; `None` if it failed or cannot be read.
pub fn stored_answer(check: &DeviceCheck) -> Option<StoredAnswer> {
    match &check.result {
        CheckResult::Answer { answer, .. } => serde_json::from_str(answer).ok(),
        CheckResult::Error(_) => None,
    }
}

impl From<DeviceAnswer> for StoredAnswer {
    fn from(answer: DeviceAnswer) -> Self {
        Self {
            arch: answer.arch,
            kernel: answer.kernel,
            uid: answer.uid,
            dir: answer.dir,
            program: answer.program,
            build: answer.build,
            uploaded_bytes: answer.uploaded_bytes,
            connect_ns: answer.connect.as_nanos().try_into().unwrap_or(u64::MAX),
            doctor: answer.doctor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_answer_of_another_version_is_readable() {
        let answer: StoredAnswer = serde_json::from_str(r#"{"arch":"armv7l","new":1}"#).unwrap();
        assert_eq!((answer.arch.as_str(), answer.doctor), ("armv7l", Value::Null));
    }
}
